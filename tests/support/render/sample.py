"""A report like one of a real run: GPT-2 124M, B=4, T=64, on two cores, in three backends of which one is wrong."""

from __future__ import annotations

import math
from collections.abc import Callable

from perfkit.analysis import results as r
from perfkit.analysis.roofline_results import RoofLine, RooflinePoint
from perfkit.analysis.step_results import Accounting, Exposed, Gap
from perfkit.run_folder import Check, Correctness, Settings, Symbol, WorkloadFacts
from tests.support.render.sample_step import (
    BANDWIDTH,
    MATRIX,
    PARAMETERS,
    VECTOR,
    B,
    C,
    L,
    N,
    Row,
    T,
    step_rows,
    with_own_kernels,
)

WRONG = "logits differ from the reference by 8.3e-02; 1.5e-06 is allowed."
PASSES = ("encoder", "forward", "classifier", "backward", "optimizer")


def group(key: str, rows: list[Row], total_time: float, **more: object) -> r.Group:
    """Rows taken together, by the definitions of the results."""
    judged = [row for row in rows if row.eff]
    time, judged_ns = math.fsum(row.time * row.count for row in rows), math.fsum(row.time * row.count for row in judged)
    flop, moved = math.fsum(row.flop * row.count for row in judged), math.fsum(row.bytes * row.count for row in judged)
    roof = math.fsum(row.roof * row.count for row in judged)
    compute = (
        math.fsum(row.flop * row.count for row in judged if row.family in ("matmul", "attention")) > 0.5 * flop > 0
    )
    return r.Group(
        key=key,
        count=sum(row.count for row in rows),
        time_ns=time,
        share=time / total_time,
        flop=flop if judged else None,
        bytes=moved if judged else None,
        flop_known_ns=judged_ns,
        bytes_known_ns=judged_ns,
        intensity=flop / moved if moved else None,
        flop_rate=flop / judged_ns * 1e9 if judged else None,
        bandwidth=moved / judged_ns * 1e9 if judged else None,
        roof_ns=roof if judged else None,
        judged_ns=judged_ns,
        efficiency=roof / judged_ns if judged else None,
        headroom_ns=judged_ns - roof if judged else None,
        bound="matrix_fp32" if compute else "memory" if judged else "",
        ceiling="matmul fp32, 181 GFLOP/s" if compute else "triad, 256 MiB working set (main memory), 21.4 GB/s",
        **more,
    )


def grouped(rows: list[Row], key: Callable[[Row], str], total: float) -> list[r.Group]:
    keys = dict.fromkeys(key(row) for row in rows)
    found = [group(k, [row for row in rows if key(row) == k], total) for k in keys]
    return sorted(found, key=lambda g: -g.time_ns)


def kernel_groups(rows: list[Row], total: float) -> list[r.Group]:
    found = []
    for name, shapes in dict.fromkeys((row.name, row.shapes) for row in rows):
        mine = [row for row in rows if (row.name, row.shapes) == (name, shapes)]
        passes = tuple(p for p in PASSES if any(row.pass_ == p for row in mine))
        found.append(group(name, mine, total, family=mine[0].family, passes=passes, shapes=shapes, example=name))
    return sorted(found, key=lambda g: -g.time_ns)


def tree(rows: list[Row], total: float, path: str = "", name: str = "model") -> r.ModuleNode:
    """The module tree over the rows below `path`."""
    depth = len(path.split(".")) if path else 0
    parts = dict.fromkeys(row.module.split(".")[depth] for row in rows if row.module.count(".") >= depth and row.module)
    children = []
    for part in parts:
        below = f"{path}.{part}" if path else part
        mine = [row for row in rows if row.module == below or row.module.startswith(f"{below}.")]
        children.append(tree(mine, total, below, part))
    return r.ModuleNode(name=name, path=path, total=group(path or "model", rows, total), children=children)


def points(groups: list[r.Group]) -> list[RooflinePoint]:
    return [
        RooflinePoint(
            label=f"{g.key} {g.shapes}",
            family=g.family,
            pass_=", ".join(g.passes),
            intensity=g.intensity,
            flop_rate=g.flop_rate,
            time_ns=g.time_ns,
            count=g.count,
            efficiency=g.efficiency,
            resource=g.bound,
            ceiling=g.ceiling,
        )
        for g in groups
        if g.intensity and g.flop_rate
    ]


def accounting(kernel_ns: float, timed: float | None) -> Accounting:
    parts = {"dispatch": 0.031, "profiler": 0.024, "Python": 0.022, "allocation": 0.019, "autograd": 0.012}
    texts = {
        "dispatch": "operators finding the kernel to run, views and wrappers around kernels",
        "profiler": "estimated: 5,600 events a step at 10,100 ns each",
        "Python": "no operator open: Python code, module calls, hooks",
        "allocation": "operators that only allocate",
        "autograd": "the autograd engine between and around backward operators",
    }
    step = kernel_ns / (1 - sum(parts.values()) - 0.004)
    gaps = [Gap(cause, share * step, share, texts[cause]) for cause, share in parts.items()]
    overhead = step / timed - 1 if timed else None
    return Accounting(
        profiled_step_ns=step,
        kernel_ns=kernel_ns,
        gaps=gaps,
        other_ns=0.004 * step,
        timed_step_ns=timed,
        profiler_overhead=overhead,
    )


def correctness(ok: bool) -> Correctness:
    names = [
        "logits",
        "loss",
        *(f"gradient transformer.h.{i}.{m}.weight" for i in range(L) for m in ("attn.c_attn", "mlp.c_fc")),
    ]
    checks = [
        Check(name, 3.1e-7 * (1 + k % 5), 1.5e-6 * (1 + k % 5), 5e-7 * (1 + k % 5), True)
        for k, name in enumerate(names)
    ]
    if not ok:
        checks[0] = Check("logits", 0.083, 1.5e-6, 5e-7, False)
        checks[4] = Check(names[4], None, 1.5e-6, 5e-7, False)
    return Correctness(reference="eager in fp64", ok=ok, checks=checks, reference_losses=losses(0.0))


def losses(off: float) -> list[float]:
    return [10.9 * math.exp(-0.11 * step) + off * step for step in range(10)]


def symbols() -> list[Symbol]:
    own = [
        ("layer_norm", "perfkit::layernorm_forward", 25),
        ("gelu", "perfkit::gelu_forward", 12),
        ("softmax", "perfkit::softmax_forward", 12),
    ]
    rows = [Symbol(name=n, kernel=k, trace="forward", count=c, expected=True) for n, k, c in own]
    rows += [
        Symbol(name=f"{n}_backward", kernel=k.replace("forward", "backward"), trace="backward", count=c, expected=True)
        for n, k, c in own
    ]
    rows += [
        Symbol(name="linear", kernel="torch", trace="forward", count=49),
        Symbol(name="matmul", kernel="torch", trace="backward", count=146),
    ]
    return rows


def samples(median: float) -> list[float]:
    return [median * (1 + 0.011 * math.sin(2.4 * i) + (0.05 if i == 7 else 0.0)) for i in range(20)]


def backend(name: str, rows: list[Row], eager_step: float | None = None, *, ok: bool = True) -> r.BackendReport:
    """One backend's report over `rows`; `eager_step` is what its speed is compared with."""
    total = math.fsum(row.time * row.count for row in rows)
    groups, step = kernel_groups(rows, total), total / 0.93
    passes = sorted(grouped(rows, lambda row: row.pass_, total), key=lambda g: PASSES.index(g.key))
    whole = tree(rows, total)
    ratio = eager_step / step if eager_step and ok else None
    model_flop = 6 * N * (PARAMETERS - 1024 * C) + 12 * L * N * T * C
    return r.BackendReport(
        name=name,
        status="ok" if ok else "wrong",
        reason="" if ok else WRONG,
        correctness=correctness(ok),
        step=r.Interval(step, step * 0.991, step * 1.012, 20),
        speedup=r.Interval(ratio, ratio * 0.985, ratio * 1.016, 20) if ratio else None,
        samples_per_second=N / step * 1e9,
        prepare_ns=0.4e9 if name == "eager" else 21.7e9,
        peak_memory_bytes=2.61 * 2**30,
        memory_how="peak resident set of the process",
        mfu=model_flop / (step * 1e-9) / MATRIX,
        mfu_ceiling="the measured matmul fp32 ceiling (181 GFLOP/s)",
        step_flop=model_flop,
        counted_flop=whole.total.flop,
        counted_bytes=whole.total.bytes,
        efficiency=whole.total.efficiency,
        headroom_ns=whole.total.headroom_ns,
        accounting=accounting(total, step),
        coverage=r.Coverage(
            pass_=1.0,
            module=0.962,
            flop=0.998,
            bytes=0.998,
            counters=0.0,
            uncosted=["aten::_local_scalar_dense"],
            text="Of the kernel time 100.0 % has a pass, 96.2 % a module, 99.8 % FLOP, 99.8 % bytes; no counters.",
        ),
        passes=passes,
        families=grouped(rows, lambda row: row.family, total),
        pass_families={
            p: {g.key: g.time_ns for g in grouped([x for x in rows if x.pass_ == p], lambda x: x.family, total)}
            for p in PASSES
        },
        kernels=groups,
        headroom=sorted(groups, key=lambda g: -(g.headroom_ns or 0)),
        tree=whole,
        points=points(groups),
        symbols=symbols() if name != "eager" else [],
        losses=losses(0.0 if ok else 0.21),
        samples_ns=samples(step),
        trace=f"{name}/step.pt.trace.json.gz",
        warnings=["The clock of this machine varied by 9 % during the run."] if name == "eager" else [],
    )


def roofs() -> list[RoofLine]:
    return [
        RoofLine(label="triad, main memory", kind="bandwidth", value=BANDWIDTH, working_set=256 * 2**20),
        RoofLine(label="triad, L2", kind="bandwidth", value=118e9, working_set=768 * 2**10),
        RoofLine(label="matmul fp32", kind="compute", value=MATRIX, resource="matrix_fp32"),
        RoofLine(label="vector fp32", kind="compute", value=VECTOR, resource="vector_fp32"),
    ]


def report(*, wrong: bool = True) -> r.Report:
    """The whole report; without `wrong` it has eager and thunder-llmc only."""
    rows = step_rows()
    eager = backend("eager", rows)
    assert eager.step is not None
    made = [eager, backend("thunder-llmc", with_own_kernels(rows), eager.step.value)]
    speed = made[1].speedup
    assert speed is not None
    verdict = [
        f"thunder-llmc is {speed.value:.2f} × as fast as eager"
        f" (95 % interval {speed.low:.2f} to {speed.high:.2f}) and correct.",
        "In eager matmul takes 66 % of the kernel time, at 76 % of its roof; the optimizer has the largest headroom.",
    ]
    if wrong:
        made.append(backend("thunder-wrong", with_own_kernels(rows), eager.step.value, ok=False))
        verdict.insert(
            0, "thunder-wrong is wrong: its logits differ from the reference by 8.3e-02, so it has no speed-up."
        )
    return r.Report(
        perfkit="0.1.0",
        title="GPT-2 124M: training step",
        source="runs/gpt2",
        created="2025-03-01T12:00:00+00:00",
        command=["perfkit", "run", "gpt2", "--backend", "eager,thunder-llmc", "--steps", "20"],
        verdict=verdict,
        settings=Settings(
            workload="gpt2",
            preset="gpt2",
            batch_size=B,
            sequence_length=T,
            steps=20,
            data="the repository's documentation",
        ),
        workload=WorkloadFacts(title="GPT-2 124M", parameters=PARAMETERS, samples_per_step=N, sample_name="tokens"),
        backends=made,
        roofs=roofs(),
        ceilings={
            "device": "cpu",
            "measured_at": "2025-03-01T11:58:00+00:00",
            "threads": 2,
            "compute": {"matrix_fp32": MATRIX},
        },
        environment={
            "perfkit": "0.1.0",
            "python": "3.12.3",
            "torch": "2.13.0",
            "thunder": "0.2.6",
            "cpu": {"model": "Xeon, 2 cores", "flags": ["avx2", "avx512f"]},
            "threads": 2,
            "os": "Linux 6.8",
        },
        warnings=["The load of this machine was above 1 while timing: the intervals may be too narrow."],
    )


HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[31mred\x07\u202eevil [bold]m[/] | `x` %{y} <b>b</b>"


def hostile() -> r.Report:
    """The report with hostile text wherever text comes from a profile or a user."""
    made = report()
    made.title, made.source = HOSTILE, HOSTILE
    made.verdict, made.warnings = [HOSTILE, *made.verdict], [HOSTILE * 3]
    made.environment = {HOSTILE: {HOSTILE: HOSTILE}}
    for b in made.backends:
        bad = b.kernels[0]
        bad.key, bad.example, bad.shapes, bad.family = HOSTILE, HOSTILE * 100, HOSTILE, HOSTILE
        b.kernels[1].key = "x" * 10_000
        b.points[0] = RooflinePoint(
            label=HOSTILE,
            family=HOSTILE,
            pass_=HOSTILE,
            intensity=1.0,
            flop_rate=1e9,
            time_ns=1e6,
            count=1,
            efficiency=0.5,
            resource=HOSTILE,
            ceiling=HOSTILE,
        )
        b.families[0].key = HOSTILE
        why = r.Reason(name=HOSTILE, label=HOSTILE, text=HOSTILE, remedy=HOSTILE, saving_ns=1e6)
        b.kernels[2].reasons = [why]
        b.findings = [
            r.Finding(
                name=HOSTILE, title=HOSTILE * 20, evidence=HOSTILE * 20, remedy=HOSTILE, time_ns=2e6, saving_ns=1e6,
                share=0.1, kernels=[HOSTILE],
            )
        ]  # fmt: skip
        b.advice = [r.Advice(kernel=HOSTILE, title=HOSTILE, text=HOSTILE * 20, speedup=0.5, scope=HOSTILE)]
        b.missing = [r.Missing(what=HOSTILE, option=HOSTILE * 10, kernels=1, of=2, for_roof=True)]
        b.exposed = [Exposed(name=HOSTILE, kind=HOSTILE, count=1, time_ns=1.0)]
        b.reason = HOSTILE
        b.symbols = [Symbol(name=HOSTILE, kernel=HOSTILE, trace=HOSTILE, count=1)]
        if b.tree:
            b.tree.children[0].name = HOSTILE
    made.backends[1].name = HOSTILE
    return made
