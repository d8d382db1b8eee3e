"""The real measurement with few and small parts, and what happens when something it needs is missing."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
import unittest.mock

import msgspec
import pytest

from perfkit.errors import RunFailed, Unavailable
from perfkit.hardware import measure as module
from perfkit.hardware import native_bench
from perfkit.hardware.ceilings import Ceiling
from perfkit.hardware.compiler import find_compiler
from perfkit.hardware.cpu import read_cpu
from perfkit.hardware.measure import cache_bytes, measure
from perfkit.hardware.observation import METHOD, MIB, Effort, gpu_plan
from perfkit.hardware.subprocesses import json_lines
from perfkit.hardware.torch_cuda import precisions
from perfkit.hardware.torch_operators import function_observations, matmul_observations
from tests.support.hardware.fakes import made_ceilings

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")

SMALL = Effort(
    sizes=(MIB // 4, 4 * MIB, 64 * MIB),
    main_memory=None,
    pattern_s=0.005,
    vector_s=0.02,
    matmul_s=0.1,
    rounds=2,
    more_rounds=1,
    shapes=((128,) * 3, (256,) * 3),
)


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        ([0.1], 0.1),
        ([0.9, 0.8, 0.0], 0.0),  # kernels of perfkit's own, which had ended
        ([0.9, 0.7, 0.8, 1.0], 0.7),
        ([None], None),
    ],
)
def test_the_share_of_a_gpu_that_others_use(monkeypatch, seen, found):
    looks = iter(seen)
    monkeypatch.setattr(module, "gpu_use", lambda index: next(looks))
    monkeypatch.setattr(module, "PERIOD_S", 0.0)
    assert module.used_by_others("cuda:1") == found
    assert list(looks) == []


@needs_compiler
def test_the_compiled_programs_are_right_and_agree_with_their_threads():
    seen = list(native_bench.bandwidth(SMALL, 1, 2 * MIB, 0))
    assert all(o.ok for o in seen)
    assert {o.working_set for o in seen} == set(SMALL.sizes)
    assert {"triad", "copy", "negate", "sum", "fill"} == {o.what for o in seen}
    assert all(1e8 < o.rate < 1e13 for o in seen)
    streaming = {o.working_set for o in seen if "streaming" in o.how}
    assert MIB // 4 not in streaming
    units = {o.resource: o for o in native_bench.vector(SMALL, 1, 0)}
    assert set(units) == {"vector_fp32", "vector_fp64", "vector_int"}
    assert all(o.ok for o in units.values())


@needs_compiler
def test_an_empty_parallel_region_takes_some_time():
    found = native_bench.region_s(SMALL, 2)
    assert found is not None and 1e-8 < found < 1


@needs_compiler
def test_what_other_threads_wrote_is_read_at_some_rate():
    found = native_bench.handover(SMALL, 2)
    assert found is not None and 1e6 < found < 1e13


@needs_compiler
@needs_torch
@pytest.mark.slow
def test_the_whole_measurement_holds_together():
    said = []
    found = measure("cpu", 2, said.append, SMALL)
    assert [size for size, _ in found.bandwidth] == list(SMALL.sizes)
    assert {"matrix_fp32", "matrix_fp64", "matrix_bf16", "vector_fp32", "vector_fp64"} <= set(found.compute)
    assert all(value > 0 for value in found.compute.values())
    assert found.compute["vector_fp64"] < found.compute["vector_fp32"]
    assert next(c for c in found.checks if c.name == "results").ok
    assert "matrix product, fp32" in said
    assert found.duration_s is not None and found.region_s and found.handover
    assert found.device_name == read_cpu().model
    assert found.software["torch"]
    # Ratio of the largest to the smallest working set: memory is never faster than cache.
    rates = [rate for _, rate in found.envelope()]
    assert rates == sorted(rates, reverse=True)


@needs_torch
@pytest.mark.slow
def test_without_a_compiler_torch_sets_the_roofs_and_a_warning_says_so(monkeypatch):
    def none(*_, **__):
        raise Unavailable("There is no C compiler on this machine.")
        yield

    monkeypatch.setattr(native_bench, "vector", none)
    found = measure("cpu", 1, None, SMALL)
    assert [size for size, _ in found.bandwidth] == list(SMALL.sizes)
    assert all("torch" in c.how for c in found.details if c.resource == "memory")
    assert any("no C compiler" in warning for warning in found.warnings)


@needs_torch
def test_no_such_gpu(monkeypatch):
    import torch

    if torch.cuda.is_available():
        device, words = "cuda:77", "no cuda:77"
    else:
        device, words = "cuda:0", "no usable CUDA GPU"
    with pytest.raises(Unavailable, match=words):
        measure(device, 1)


def test_no_torch(monkeypatch):
    monkeypatch.setattr("perfkit.hardware.measure.version_of", lambda name: None)
    with pytest.raises(Unavailable, match="needs torch"):
        measure("cpu", 1)


def test_cache_bytes_grow_with_threads_up_to_all_cores(tmp_path):
    from perfkit.hardware.cpu import linux_cpu
    from tests.support.hardware.fakes import xeon

    cpu = linux_cpu(xeon(tmp_path), frozenset(range(8)))
    assert cache_bytes(cpu, 4) == {"L1d": 4 * 48 * 1024.0, "L2": 8.0 * MIB, "L3": 210.0 * MIB}
    assert cache_bytes(cpu, 8) == cache_bytes(cpu, 4)
    assert cache_bytes(cpu, 1) == {"L1d": 48 * 1024.0, "L2": 2.0 * MIB, "L3": 105.0 * MIB}


class TestJsonLines:
    def test_lines_come_as_objects_and_noise_is_passed_over(self):
        code = "print('{\"a\": 1}'); print('noise'); print('[1]'); print('{\"b\": 2}')"
        assert list(json_lines([sys.executable, "-c", code], {}, 30, "It")) == [{"a": 1}, {"b": 2}]

    def test_a_death_is_one_sentence_with_its_last_words(self):
        code = "import sys; print('{\"a\": 1}', flush=True); sys.stderr.write('x\\nout of luck\\n'); sys.exit(3)"
        lines = json_lines([sys.executable, "-c", code], {}, 30, "The thing")
        assert next(lines) == {"a": 1}
        with pytest.raises(RunFailed, match="The thing ended with exit code 3: out of luck"):
            next(lines)

    def test_the_time_limit_ends_it_and_keeps_what_came(self):
        code = "import time; print('{\"a\": 1}', flush=True); time.sleep(60)"
        start = time.monotonic()
        assert list(json_lines([sys.executable, "-c", code], {}, 1.0, "It")) == [{"a": 1}]
        assert time.monotonic() - start < 20

    def test_leaving_early_ends_the_process(self):
        code = "import os, time\nprint('{\"pid\": %d}' % os.getpid(), flush=True)\ntime.sleep(60)"
        lines = json_lines([sys.executable, "-c", code], {}, 60, "It")
        pid = next(lines)["pid"]
        lines.close()
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_the_command_prints_what_is_kept(run_cli, monkeypatch, tmp_path):
    from perfkit.hardware import store
    from perfkit.hardware.identity import version_of

    monkeypatch.setenv("PERFKIT_CACHE", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    compiler = find_compiler()
    software = {"torch": version_of("torch") or "", "compiler": compiler.version if compiler else "", "method": METHOD}
    kept = made_ceilings(software=software, warnings=["busy then"], datasheet={"matrix_fp8": 2e12})
    kept.compute["matrix_fp8"] = 1.4e12
    kept.details.append(
        Ceiling(name="matmul 8192×8192×8192", resource="matrix_fp8", unit="FLOP/s", value=1.4e12, how="fast")
    )
    store._keep(store.cache_path("cpu", 2), kept)
    done = run_cli(["ceilings"])
    assert done.rc == 0, done.stderr
    for words in ("Fake CPU", "main memory 50.0 GB/s", "matrix fp32", "unknown", "256.0 MiB", "busy then"):
        assert words in done.stdout
    of_fp8 = next(line for line in done.stdout.splitlines() if line.startswith("matrix fp8"))
    assert of_fp8.split()[2:7] == ["1.40", "TFLOP/s", "2.00", "TFLOP/s", "70.0%"], of_fp8
    as_json = json.loads(run_cli(["ceilings", "--json"]).stdout)
    assert as_json["device_name"] == "Fake CPU" and as_json["compute"]["matrix_fp8"] == 1.4e12
    wrong = run_cli(["ceilings", "--device", "tpu"])
    assert wrong.rc == 2
    assert "not a device" in wrong.stderr


def test_working_sets_of_a_gpu_stand_close_below_the_size_of_its_l2():
    plain, sizes = gpu_plan(80 * 2**30).sizes, gpu_plan(80 * 2**30, 50 * MIB).sizes
    assert plain == tuple(MIB * 2**i for i in range(13))
    assert sizes == tuple(sorted({*plain, round(37.5 * MIB), 45 * MIB}))
    assert all(size % 1024 == 0 for size in gpu_plan(2**30, 6_000_001).sizes)


@needs_torch
def test_a_gpus_first_product_is_taken_to_fit_and_zeros_are_timed_too():
    plan = msgspec.structs.replace(gpu_plan(2**30), shapes=((256, 256, 256),), matmul_s=0.001)

    def best_of(call, seconds):
        call()
        return 1e-5

    seen = list(matmul_observations("cpu", plan, "fp32", best_of))
    assert {o.what for o in seen} == {"matmul 256×256×256", "matmul 256×256×256 of zeros"}
    assert all(o.ok and o.rate == pytest.approx(2 * 256**3 / 1e-5) for o in seen)


@needs_torch
def test_zeros_are_timed_at_every_shape_near_the_best():
    """The largest product is the best with normal numbers, a smaller one with zeros: the ceiling is the latter."""
    import torch

    plan = msgspec.structs.replace(gpu_plan(2**30), shapes=((64,) * 3, (128,) * 3, (256,) * 3), matmul_s=0.01)
    rates = {(64, True): 5e11, (128, True): 0.95e12, (256, True): 1e12, (128, False): 1.2e12, (256, False): 1.1e12}

    def operand(device, precision, rows, columns):
        return torch.ones(rows, columns)

    def best_of(call, seconds):
        inputs = [cell.cell_contents for cell in call.__closure__]
        a = next(t for t in inputs if isinstance(t, torch.Tensor))
        return 2 * a.shape[0] ** 3 / rates[a.shape[0], bool(a.any())]

    with unittest.mock.patch("perfkit.hardware.torch_operators._operand", operand):
        seen = list(matmul_observations("cpu", plan, "fp32", best_of))
    best = max(seen, key=lambda o: o.rate)
    assert best.what == "matmul 128×128×128 of zeros" and best.rate == pytest.approx(1.2e12)
    assert not any("64×64×64 of zeros" in o.what for o in seen)


@needs_torch
def test_exponentials_are_timed_by_two_libraries():
    seen = list(function_observations(SMALL, lambda call, seconds: call() is None or 1e-4))
    assert {o.how for o in seen} == {"torch.exp, fp32", "torch.exp2, fp32"} and all(o.ok for o in seen)
    assert {o.rate for o in seen} == {2**17 / 1e-4}


@needs_torch
def test_a_roof_is_that_of_the_faster_library():
    """`torch.mm` leaves oneDNN aside in fp32; what a backend may call must not run above the roof."""
    import torch

    if not torch.backends.mkldnn.is_available():
        pytest.skip("this PyTorch has no oneDNN")
    plan = msgspec.structs.replace(SMALL, matmul_s=10.0, shapes=((128,) * 3,))
    seen = list(matmul_observations("cpu", plan, "fp32", lambda call, seconds: call() is None or 1e-5))
    assert {o.how for o in seen if o.round == 0} == {"torch.mm, fp32", "oneDNN linear, fp32"}
    assert all(o.ok for o in seen)
    assert {o.how for o in matmul_observations("cpu", plan, "bf16", lambda call, seconds: 1e-5)} == {"torch.mm, bf16"}


@pytest.mark.parametrize(
    ("capability", "more"),
    [
        ("6.1", set()),
        ("7.5", {"fp16"}),
        ("8.0", {"fp16", "bf16", "tf32"}),
        ("8.6", {"fp16", "bf16", "tf32"}),
        *((name, {"fp16", "bf16", "tf32", "fp8"}) for name in ("8.9", "9.0", "10.0", "12.1")),
    ],
)
def test_precisions_that_a_gpu_multiplies(capability, more):
    assert set(precisions(capability)) == {"fp32", "fp64"} | more
    assert "fp8" not in precisions(capability, amd=True)  # an MI300 calls itself 9.4


def _fp8(product):
    """Return what is measured for fp8 where torch multiplies it by `product`."""
    import torch

    plan = msgspec.structs.replace(gpu_plan(2**30), shapes=((256,) * 3,), matmul_s=0.01)
    with unittest.mock.patch.object(torch, "_scaled_mm", product, create=True):
        return list(matmul_observations("cpu", plan, "fp8", lambda call, seconds: call() is None or 1e-5))


@needs_torch
def test_fp8_is_measured_with_fast_accumulation_and_checked():
    """A CPU has the same product: operands of e4m3, the second stored by columns, a scale each, a result in bf16."""
    import torch

    real, calls = torch._scaled_mm, []

    def recorded(a, b, *scales, **settings):
        calls.append((a, b, scales, settings))
        return real(a, b, *scales, **settings)

    seen = _fp8(recorded)
    assert {o.resource for o in seen} == {"matrix_fp8"}
    assert {o.how for o in seen} == {"torch._scaled_mm, fast accumulation, fp8"}
    assert {o.what for o in seen} == {"matmul 256×256×256", "matmul 256×256×256 of zeros"}
    assert all(o.ok and o.rate == pytest.approx(2 * 256**3 / 1e-5) for o in seen)
    a, b, scales, settings = next(call for call in calls if call[0].shape[0] == 256)
    assert {a.dtype, b.dtype} == {torch.float8_e4m3fn} and settings["out"].dtype == torch.bfloat16
    assert (a.stride(), b.stride()) == ((256, 1), (1, 256)) and settings["use_fast_accum"]
    assert [(s.dtype, s.item()) for s in scales] == [(torch.float32, 1.0)] * 2
    assert bool(a.float().std() > 0.5) and not calls[-1][0].float().any()  # drawn numbers first, zeros last


@needs_torch
def test_a_wrong_fp8_product_is_left_out():
    """Results that lack a twentieth of the sum, as truncated numbers do, are not a ceiling."""
    import torch

    real = torch._scaled_mm
    seen = _fp8(lambda a, b, *scales, out, **settings: real(a, b, *scales, out=out, **settings).mul_(0.95))
    assert seen and not any(o.ok for o in seen)


@needs_torch
@pytest.mark.parametrize("error", [RuntimeError, NotImplementedError, ValueError])
def test_where_torch_refuses_fp8_it_is_absent(error, recwarn):
    def refuses(*_, **__):
        raise error("torch._scaled_mm is only supported on CUDA devices with compute capability >= 9.0 or 8.9")

    assert _fp8(refuses) == []
    assert _fp8(None) == []  # a torch without it
    assert not recwarn.list
