"""Compare perfkit's `llmc` and torch.compile with llm.c itself: GPT-2 124M, bf16, on one GPU, in turns.

    git clone https://github.com/karpathy/llm.c
    git clone https://github.com/NVIDIA/cudnn-frontend
    python benchmarks/llmc_beside.py --llmc llm.c --cudnn-frontend cudnn-frontend [-B 16] [-T 1024] [--turns 3]

llm.c is built twice from a copy of its sources by its own Makefile, with cuDNN's attention and without; nvcc and make
must be on the PATH. cuDNN is the one that PyTorch runs with, and so is cuBLAS where the toolkit has none. It trains
from random weights on random tokens, with AdamW and fp32 master weights, by its defaults, which compute GELU again in
the backward (`-r 1`), and without that (`-r 0`). A turn is each of these, then `perfkit run` of both variants without
a profiler. A figure is the median step of a turn. sdpa is compared with llm.c with cuDNN, explicit with llm.c without.
Exit code 1 where a backend is wrong or a side did not run.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

PERFKIT = [sys.executable, "-m", "perfkit"]
STEP = re.compile(r"^step +\d+/\d+ .*\| ([\d.]+) ms \|", re.MULTILINE)
STEPS, WARM = 60, 20
MAGIC, VERSION, VOCABULARY = 20240520, 1, 50257  # of llm.c's token files
BESIDE = {"sdpa": "cuDNN", "explicit": "plain"}  # perfkit's variant and the build of llm.c that it is compared with

# CUDA 13 takes a memory location where llm.c passes a device's number (only where memory is short).
SINCE_CUDA_13 = """
#include <cuda_runtime.h>
#if CUDART_VERSION >= 13000
static inline cudaError_t cudaMemAdvise(const void* memory, size_t bytes, cudaMemoryAdvise advice, int device) {
  cudaMemLocation place = {};
  place.type = device < 0 ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice;
  place.id = device < 0 ? 0 : device;
  return cudaMemAdvise(memory, bytes, advice, place);
}
#endif
"""


def library_folders() -> list[Path]:
    """Folders of NVIDIA's Python packages that hold `include` and `lib`: cuDNN first."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    found = [folder for root in roots for folder in sorted(root.iterdir()) if (folder / "include").is_dir()]
    return sorted(found, key=lambda folder: folder.name != "cudnn")


def search_paths(links: Path) -> dict[str, str]:
    """The environment in which compiler and linker find cuDNN and cuBLAS; `links` gets names without versions."""
    folders = library_folders()
    for folder in folders:
        for library in (folder / "lib").glob("lib*.so.*"):
            link = links / f"{library.name.split('.so')[0]}.so"
            if not link.exists():
                link.symlink_to(library)
    toolkit = Path(shutil.which("nvcc") or "nvcc").resolve().parents[1] / "lib64"
    included = [str(folder / "include") for folder in folders]
    older = links / "older_cuda.h"
    older.write_text(SINCE_CUDA_13, encoding="utf-8")
    linked = [str(toolkit), str(toolkit / "stubs"), str(links)]
    loaded = [str(folder / "lib") for folder in folders]
    return {
        **os.environ,
        "NVCC_APPEND_FLAGS": f"-include {older} -lnvrtc -lcuda",  # the frontend compiles kernels of its own
        "CPATH": os.pathsep.join(included),
        "LIBRARY_PATH": os.pathsep.join(linked),
        "LD_LIBRARY_PATH": os.pathsep.join([*loaded, os.environ.get("LD_LIBRARY_PATH", "")]),
    }


def build(source: Path, frontend: Path | None, work: Path, environment: Mapping[str, str]) -> Path:
    """llm.c's program, built in a copy of its sources; with cuDNN where its frontend is given."""
    folder = Path(shutil.copytree(source, work / ("cudnn" if frontend else "plain")))
    command = ["make", "train_gpt2cu", "NO_MULTI_GPU=1", "NO_USE_MPI=1"]
    if frontend:
        command += ["USE_CUDNN=1", f"CUDNN_FRONTEND_PATH={(frontend / 'include').resolve()}"]
        (folder / "cudnn-frontend").symlink_to(frontend.resolve())
    done = subprocess.run(command, cwd=folder, env=dict(environment), capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"llm.c was not built: {(done.stdout + done.stderr)[-1500:]}")
    return folder / "train_gpt2cu"


def write_tokens(path: Path, count: int) -> Path:
    """So many random tokens in llm.c's format: 256 numbers of 32 bits, then the tokens in 16."""
    header = np.zeros(256, np.int32)
    header[:3] = MAGIC, VERSION, count
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, count, dtype=np.uint16)
    path.write_bytes(header.tobytes() + tokens.tobytes())
    return path


def llmc_ms(
    program: Path, tokens: Path, batch: int, time: int, recompute: int, environment: Mapping[str, str]
) -> float:
    """The median step of llm.c's program in ms, by its own events."""
    size = ["-b", str(batch), "-t", str(time), "-d", str(batch * time), "-x", str(STEPS), "-r", str(recompute)]
    quiet = ["-v", "100000", "-m", "1", "-s", "0", "-h", "0", "-e", "d12", "-i", str(tokens), "-j", str(tokens)]
    done = subprocess.run([program, *quiet, *size], cwd=program.parent, env=dict(environment), capture_output=True,
                          text=True)  # fmt: skip
    steps = [float(found) for found in STEP.findall(done.stdout)][WARM:]
    if done.returncode or not steps:
        raise SystemExit(f"llm.c did not run: {(done.stdout + done.stderr)[-1500:]}")
    return statistics.median(steps)


def perfkit_runs(batch: int, time: int, variant: str, folder: Path) -> dict[str, dict[str, Any]]:
    """Return the results of `perfkit run` for compile and llmc, by backend; each must be correct."""
    size = ["--dtype", "bf16", "-B", str(batch), "-T", str(time), "--variant", variant, "--device", "cuda"]
    options = [
        "--backend",
        "compile,llmc",
        "--profiler",
        "none",
        "--steps",
        "30",
        "--json",
        "--out",
        str(folder),
        "--overwrite",
    ]
    done = subprocess.run([*PERFKIT, "run", "gpt2", *size, *options], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"perfkit run ended with {done.returncode}: {(done.stdout + done.stderr)[-1500:]}")
    return {found["name"]: found for found in json.loads(done.stdout)["backends"] if found["timed"]}


def turn(programs: Mapping[str, Path], tokens: Path, batch: int, time: int, work: Path,
         environment: Mapping[str, str]) -> dict[str, float]:  # fmt: skip
    """One figure of each side in ms, and llmc's MFU and memory (GiB) of each variant."""
    found = {}
    for name, program in programs.items():
        for recompute in (1, 0):
            found[f"llm.c {name} -r {recompute}"] = llmc_ms(program, tokens, batch, time, recompute, environment)
    print(", ".join(f"{name} {ms:.3f} ms" for name, ms in found.items()), file=sys.stderr, flush=True)
    for variant in BESIDE:
        backends = perfkit_runs(batch, time, variant, work / f"run-{variant}")
        for name, backend in backends.items():
            found[f"{name} {variant}"] = backend["step"]["value"] / 1e6
        found[f"MFU {variant}"] = backends["llmc"]["mfu"]
        found[f"GiB {variant}"] = backends["llmc"]["peak_memory_bytes"] / 2**30
    return found


def summary(turns: list[dict[str, float]]) -> list[str]:
    """Each figure with all its turns and their median; then llmc's share of the other's."""
    lines = []
    for name in turns[0]:
        values = [one[name] for one in turns]
        lines.append(f"{name:22} {statistics.median(values):8.3f}   of {', '.join(f'{v:.3f}' for v in values)}")
    for variant, built in BESIDE.items():
        for other in (f"llm.c {built} -r 1", f"llm.c {built} -r 0", f"compile {variant}"):
            shares = [one[f"llmc {variant}"] / one[other] for one in turns]
            told = ", ".join(f"{share:.3f}" for share in shares)
            lines.append(f"llmc {variant} / {other:18} {statistics.median(shares):.3f}   of {told}")
    return lines


def main() -> int:
    """Build, take turns, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--llmc", type=Path, required=True, metavar="FOLDER", help="llm.c's sources")
    parser.add_argument("--cudnn-frontend", type=Path, required=True, metavar="FOLDER", help="its sources")
    parser.add_argument("-B", type=int, default=16, help="sequences (16)")
    parser.add_argument("-T", type=int, default=1024, help="tokens of each (1024)")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the turns there")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="perfkit-llmc-") as scratch:
        work = Path(scratch)
        links = work / "links"
        links.mkdir()
        environment = search_paths(links)
        builds = {"cuDNN": arguments.cudnn_frontend, "plain": None}
        with ThreadPoolExecutor() as pool:
            built = pool.map(lambda one: build(arguments.llmc, one, work, environment), builds.values())
            programs = dict(zip(builds, built, strict=True))
        tokens = write_tokens(work / "tokens.bin", (STEPS + 2) * arguments.B * arguments.T)
        turns = []
        for number in range(arguments.turns):
            turns.append(turn(programs, tokens, arguments.B, arguments.T, work, environment))
            print(f"turn {number + 1}: " + ", ".join(f"{k} {v:.3f}" for k, v in turns[-1].items()), flush=True)
    print("\n".join(summary(turns)))
    if arguments.json:
        arguments.json.write_text(json.dumps(turns, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
