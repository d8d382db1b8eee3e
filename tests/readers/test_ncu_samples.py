"""Real reports, found through PERFKIT_SAMPLES: figures worked out by hand, ceilings of the boards, damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfkit.errors import InputError
from perfkit.readers import read
from perfkit.readers.ncu import child, container, traffic
from perfkit.table import KernelTable

pytest.importorskip("ncu_report", reason="ncu-report is not installed")
GH200 = "gh200-full-2025.1-3kernels"


def table(samples: Path, name: str) -> KernelTable:
    found = read(samples / "ncu" / f"{name}.ncu-rep")
    assert isinstance(found, KernelTable)
    return found


def test_the_worked_example(samples: Path) -> None:
    from perfkit.analysis.report.analyse import analyse_table

    made = table(samples, GH200)
    row = made.frame.iloc[1]
    flop = made.flop[1]
    own = made.facts["kernels"][1]["ceilings"]
    seconds = row["duration_ns"] / 1e9
    assert (row["short_name"], flop) == ("silu_kernel_non_strided", 335_544_320)
    assert row["dram_bytes"] / seconds / own["memory"] == pytest.approx(0.834, abs=5e-4)
    assert flop / seconds / own["vector_fp32"] == pytest.approx(0.045, abs=5e-4)
    assert flop / row["dram_bytes"] == pytest.approx(0.653, abs=5e-4)
    report = analyse_table(made, None, GH200).backends[0]
    assert report.headroom[0].key.startswith("distribution") and report.kernels[0].key.startswith("silu")


@pytest.mark.parametrize(
    ("name", "fp32", "dram"),
    [
        ("t4-full-2024.2-1kernel", (2.77, 8.14, 8.1), (297, 320, 320)),
        ("a100-full-2025.1-3kernels", (15.1, 19.5, 19.5), (1555, 1555, 1555)),
        ("h100pcie-full-2025.1-3kernels", (32.2, 51.2, 51.2), (2039, 2039, 2039)),
        (GH200, (49.0, 66.9, 66.9), (4022, 4023, 4023)),
    ],
)
def test_ceilings(samples: Path, name: str, fp32: tuple[float, ...], dram: tuple[float, ...]) -> None:
    facts = table(samples, name).facts
    row = 1 if name == GH200 else 0
    for resource, unit, expected in (("vector_fp32", 1e12, fp32), ("memory", 1e9, dram)):
        found = (
            facts["row_ceilings"][resource][row] if facts["row_ceilings"][resource] else None,
            facts["max_clock_ceilings"][resource],
            facts["ceilings"]["datasheet"][resource],
        )
        assert [v / unit for v in found] == pytest.approx(expected, rel=0.011)


@pytest.mark.parametrize(
    "name", [GH200, "a100-full-2025.1-3kernels", "h100pcie-full-2025.1-3kernels", "t4-full-2024.2-1kernel"]
)
def test_what_a_basic_report_gives_equals_the_counters(samples: Path, name: str) -> None:
    path = samples / "ncu" / f"{name}.ncu-rep"
    for result in child.read_results(path, container.check(path)):
        counted = float(traffic.columns(result)["dram_bytes"])
        del result.values["dram__bytes.sum.peak_sustained"]
        assert traffic.by_share(result) == pytest.approx(counted, rel=2e-3)


def test_a_report_of_single_metrics_says_what_is_missing(samples: Path) -> None:
    made = table(samples, "gh200-metricsonly-2025.1-3kernels")
    options = {line["what"]: line["option"] for line in made.facts["missing"]}
    assert options["the duration"] == "--metrics gpu__time_duration.sum"
    assert options["DRAM traffic"] == "--section SpeedOfLight" and len(made) == 3
    assert made.frame["duration_ns"].isna().all() and made.frame["registers"].notna().all()


def test_a_basic_report_still_has_a_roof(samples: Path) -> None:
    for name in ("gh200-basic-2025.1-2kernels", "rtx3050-basic-2025.1-1kernel", "gtx1660ti-basic-2022.4-4kernels"):
        made = table(samples, name)
        assert made.frame["dram_bytes"].notna().all() and set(made.frame["dram_origin"]) == {"derived"}
        assert all(rate for rate in made.facts["row_ceilings"]["memory"])
    made = table(samples, "gh200-rooflinechart-2025.1-3kernels")
    assert made.flop[1] == pytest.approx(335_544_320, rel=2e-3)


def test_every_damaged_report_gets_a_sentence(samples: Path) -> None:
    files = sorted((samples / "ncu" / "damaged").iterdir())
    assert len(files) == 6
    for path in files:
        with pytest.raises(InputError) as caught:
            read(path)
        assert "empty" in str(caught.value) or "damaged" in str(caught.value)


def test_a_report_without_a_kernel_is_noticed(samples: Path, tmp_path: Path) -> None:
    """Bytes of the last result replaced: the container is whole, the kernel is not."""
    data = bytearray((samples / "ncu" / f"{GH200}.ncu-rep").read_bytes())
    data[-800_000:] = bytes(800_000)
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(data)
    with pytest.raises(InputError, match="damaged"):
        read(path)


def test_half_precision_that_is_not_counted_is_unknown(samples: Path) -> None:
    """A report of fp16 kernels without the counters of fp16 work said "FLOP 100 %"."""
    from perfkit.analysis.report.analyse import analyse_table

    for name, known in (("a100-full-2025.1-3kernels", 0.0), ("t4-full-2024.2-1kernel", 1.0)):
        assert analyse_table(table(samples, name), None, name).backends[0].coverage.flop == known
