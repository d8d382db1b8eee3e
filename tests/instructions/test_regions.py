"""Regions of kernels: files by hand, and the header compiled for a GPU that this machine need not have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perfkit.cli.parts.output import json_of
from perfkit.cli.parts.regions import show
from perfkit.errors import InputError, RunFailed, Unavailable
from perfkit.instructions import regions
from perfkit.kernels.cuda import nvrtc
from perfkit.kernels.cuda.build import INCLUDE
from perfkit.render.page import render_text
from perfkit.render.pages import regions as rendered
from tests.support.regions import TICK, row, uneven, written


def test_regions_are_summed_by_warps_and_by_multiprocessors(tmp_path: Path) -> None:
    short = [row("load", 2, 0, 0, 100, launch=2)]
    launch, records = regions.read(written(tmp_path / "k.regions", uneven() + short, count=12))
    assert (launch.launches, launch.multiprocessors, launch.lost) == (2, 4, 3)
    assert launch.span_ns == pytest.approx(46_000, rel=2e-3) and launch.tick_ns % TICK == 0
    compute, load = launch.regions
    assert (compute.name, compute.records, load.name, load.records) == ("compute", 4, "load", 4)
    assert compute.warp_ns == pytest.approx(98_000, rel=2e-3) and compute.share == pytest.approx(98 / 118, rel=1e-6)
    # Warps overlap: a multiprocessor is in a region as long as any of its warps is.
    assert (compute.least_ns, compute.most_ns) == pytest.approx((10_000, 40_000), rel=2e-3)
    assert compute.sm_ns == pytest.approx(25_000, rel=2e-3) and compute.most_sm == 1
    assert load.sm_ns == pytest.approx(5000, rel=2e-3)
    last, _ = launch.by_sm
    assert (last.sm, last.blocks, last.warps) == (1, 1, 2) and last.busy_ns == pytest.approx(45_000, rel=2e-3)
    assert launch.idle_tail == pytest.approx(15 / 46, rel=5e-3)
    page = rendered.page("k.regions", launch, records)
    text = render_text(page)
    assert "compute is uneven: multiprocessor 1 is in it for" in text and "3 records of regions did not fit" in text
    stack = page.sections[2].figures[0]
    width = stack.series[0].x[1] - stack.series[0].x[0]
    assert sum(stack.series[0].y) * width * 1e3 == pytest.approx(98_000, rel=5e-3)


def test_a_coarse_timer_is_said(tmp_path: Path) -> None:
    rows = [row("all", sm, 0, 0, 1500) for sm in range(4)]
    launch, records = regions.read(written(tmp_path / "k.regions", rows))
    assert "ticks every 1.47 µs" in rendered.page("k", launch, records).warnings[0]


def test_inspect_shows_a_file_and_writes_a_page_and_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path / "k.regions", uneven())
    show(file, None, None, json_of(True))
    assert json.loads(capsys.readouterr().out)["regions"][0]["name"] == "compute"
    for name, part in (("k.html", "Warps by region over time"), ("k.json", '"traceEvents"')):
        show(file, tmp_path / name, None, None)
        assert part in (tmp_path / name).read_text()
    assert "Regions by the time of their warps" in capsys.readouterr().out
    events = json.loads((tmp_path / "k.json").read_text())["traceEvents"]
    assert sum(one["dur"] for one in events if one.get("name") == "load") == pytest.approx(20, rel=2e-3)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda raw: raw[:20], "damaged"),
        (lambda raw: raw[:-5], "damaged"),
        (lambda raw: raw[:8] + b"\x07" + raw[9:], "another version"),
        (lambda raw: raw[:32], "holds no regions"),
        (lambda raw: raw[:32] + b"\xff" * 64, "damaged"),
        (lambda raw: raw[:24] + bytes(8) + raw[32:], "damaged"),
    ],
)  # fmt: skip
def test_damage_is_said(tmp_path: Path, damage: object, says: str) -> None:
    file = written(tmp_path / "k.regions", uneven())
    file.write_bytes(damage(file.read_bytes()))  # type: ignore[operator]
    with pytest.raises(InputError, match=says):
        regions.read(file)


KERNEL = """
#include <perfkit/profile.cuh>
extern "C" __global__ void scale(float* x) {
    PERFKIT_BEGIN(load);
    float value = x[threadIdx.x];
    PERFKIT_END(load);
    PERFKIT_BEGIN(store_the_result);
    x[threadIdx.x] = 2.0f * value;
    PERFKIT_END(store_the_result);
}
"""


def test_the_header_leaves_nothing_in_a_kernel_unless_it_is_on() -> None:
    try:
        nvrtc.library()
    except Unavailable as error:
        pytest.skip(error.message)
    headers = {"perfkit/profile.cuh": (INCLUDE / "perfkit/profile.cuh").read_text()}
    bare = "\n".join(line for line in KERNEL.splitlines() if "PERFKIT" not in line and "#include" not in line)

    def cubin(text: str, *options: str) -> bytes:
        return nvrtc.compile_source(text, "scale.cu", headers, ["--gpu-architecture=sm_90", *options], []).cubin

    assert cubin(KERNEL) == cubin(bare)
    on = cubin(KERNEL, "-DPERFKIT_PROFILE")
    assert b"perfkit_regions" in on and b"perfkit_regions" not in cubin(KERNEL)
    with pytest.raises(RunFailed, match="at most 16 letters"):
        cubin(KERNEL.replace("store_the_result", "store_all_of_the_result"), "-DPERFKIT_PROFILE")
