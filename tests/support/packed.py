"""Files of `tests/fixtures/ncu`, which are kept packed: reports by xz (a third of gzip's size), pages by gzip."""

from __future__ import annotations

import gzip
import lzma

from tests.conftest import ROOT

_FOLDER = ROOT / "tests" / "fixtures" / "ncu"


def ncu_file(name: str) -> bytes:
    """The content of the file of that name, such as kernels-full.ncu-rep or kernels-full.raw.csv."""
    if name.endswith(".ncu-rep"):
        return lzma.decompress((_FOLDER / f"{name}.xz").read_bytes())
    return gzip.decompress((_FOLDER / f"{name}.gz").read_bytes())
