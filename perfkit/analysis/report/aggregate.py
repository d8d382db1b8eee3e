"""Rows taken together: by pass, family, kind of kernel call, operator and module.

All sums are one pass over the rows: every quantity of a `Group` is a column of a matrix (groups × quantities), so that
adding groups up, as the tree does, is adding rows of the matrix. What goes by place goes by the lines of the tree: a
kernel that serves several places is divided among them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from perfkit.analysis.results import Excluded, Group
from perfkit.analysis.roofline.excluded import EXCLUDED
from perfkit.analysis.roofline.roof import BOUNDS, DATASHEET, Booleans, Integers, Judged, Reals
from perfkit.columns import Coded, factorize
from perfkit.numbers import first_rows, numbered
from perfkit.profile_names import PASSES
from perfkit.tree.nodes import NO_OPERATOR
from perfkit.tree.places import NOT_PLACED, Places

_QUANTITIES = (
    "count", "time", "flop", "flop_time", "bytes", "bytes_time", "both_flop", "both_bytes",
    "roof", "judged_time", "headroom", "above_time", "above_excess", "helped_time", "fused_time", *EXCLUDED,
)  # fmt: skip
# A group is flagged where rows above their roof take this share of its time, or lift its efficiency by this much: a few
# calls that a clock misread, or one small kernel among many, do not make the sum doubtful.
NOTABLE, LIFT = 0.10, 0.05
NAMED = 8  # kernels above their roof that are named
_AT = {name: i for i, name in enumerate(_QUANTITIES)}
UNKNOWN = "unknown"  # the pass of what is not placed


@dataclass
class LabelledRows:
    """The judged rows of `steps` steps with their labels and places. `families` are the names of the codes.

    Rows with the same place are of the same family.
    """

    judged: Judged
    steps: int
    places: Places
    family_code: Integers
    families: list[str]
    names: Coded | list[str]
    short_names: Coded | list[str]
    shapes: Coded | list[str]
    excluded: dict[str, Booleans] = field(default_factory=dict)

    @cached_property
    def total_ns(self) -> float:
        """Kernel time of all steps."""
        return float(self.judged.time.sum())

    @cached_property
    def passes(self) -> list[str]:
        """The passes that occur, in their order; `UNKNOWN` of what is not placed."""
        names = [UNKNOWN if name == NOT_PLACED else str(name) for name in factorize(self.places.lines["pass"])[1]]
        return sorted(names, key=lambda name: PASSES.index(name) if name in PASSES else len(PASSES))

    @cached_property
    def pass_of_line(self) -> Integers:
        """The pass of each line of `places`, an index into `passes`."""
        code = {name: i for i, name in enumerate(self.passes)}
        names = [UNKNOWN if name == NOT_PLACED else name for name in self.places.lines["pass"]]
        return np.array([code[name] for name in names], dtype=np.int64)

    @cached_property
    def pass_of_row(self) -> Integers:
        """The pass that each row serves most, an index into `passes`."""
        lines = self.places.lines
        largest = np.lexsort((lines["share"], lines["kind"]))
        of_kind = np.zeros(self.places.kinds, np.int64)
        of_kind[lines["kind"].to_numpy(np.int64)[largest]] = self.pass_of_line[largest]
        of_rows: Integers = of_kind[self.places.kind]
        return of_rows

    @cached_property
    def lines(self) -> Reals:
        """The matrix of `sums` over the lines of `places`: parts of kernels, each in the pass that it serves."""
        lines = self.places.of_lines(sums(self, self.places.kind, self.places.kinds))
        time, first = lines[:, _AT["time"]], len(_QUANTITIES)
        lines[:, _AT["fused_time"]] = np.where(self.places.lines["fused"], time, 0.0)
        lines[:, first : first + len(self.passes)] = 0.0
        lines[np.arange(len(lines)), first + self.pass_of_line] = time
        return lines

    @property
    def time_of_lines(self) -> Reals:
        """Kernel time of each line of `places`, of all steps."""
        time: Reals = self.lines[:, _AT["time"]]
        return time

    @cached_property
    def weights(self) -> list[Reals]:
        """Return the part of each row in each of `_QUANTITIES`."""
        return _weights(self)

    @cached_property
    def parted(self) -> list[tuple[Reals, Integers, int]]:
        """Quantities by label: the part of each row, its label's code, and the number of labels.

        Time by pass, roof time by bound and by ceiling, and time above the roof by kernel; −1 adds to none.
        """
        j = self.judged
        roof, named = _where(j.judged, j.roof), np.full(len(j.time), -1, np.int64)
        for place, (_, at) in enumerate(self.above_by_name):
            named[at] = place
        return [
            (j.time, self.pass_of_row, len(self.passes)),
            (roof, j.bound, len(BOUNDS)),
            (roof, j.ceiling, len(j.ceilings)),
            (j.time, named, len(self.above_by_name)),
        ]

    @cached_property
    def above_by_name(self) -> list[tuple[str, Integers]]:
        """Kernels above their roof by short name, each with its rows, the most such time first; the first `NAMED`."""
        at = np.flatnonzero(self.judged.above)
        code, names = factorize([self.short_names[i] for i in at.tolist()])
        time = np.bincount(code, weights=self.judged.time[at], minlength=len(names))
        return [(str(names[i]), at[code == i]) for i in np.argsort(-time, kind="stable")[:NAMED].tolist()]


def sums(rows: LabelledRows, codes: Integers, groups: int) -> Reals:
    """The matrix (groups × quantities); `codes` gives each row's group."""
    fixed = [np.bincount(codes, weights=w, minlength=groups)[:, None] for w in rows.weights]
    return np.concatenate([*fixed, *(_by_part(codes, groups, *parted) for parted in rows.parted)], axis=1)


def _by_part(codes: Integers, groups: int, values: Reals, label: Integers, labels: int) -> Reals:
    """Sums by group and label (groups × labels); a label of −1 counts nowhere."""
    spare = np.where(label < 0, labels, label)  # a column more, which is taken off again
    whole = np.bincount(codes * (labels + 1) + spare, weights=values, minlength=groups * (labels + 1))
    return whole.astype(np.float64, copy=False).reshape(groups, labels + 1)[:, :labels]


def _weights(rows: LabelledRows) -> list[Reals]:
    j = rows.judged
    flop_known, bytes_known, judged = np.isfinite(j.flop), np.isfinite(j.bytes), j.judged
    both = flop_known & bytes_known
    return [
        np.ones(len(j.time)), j.time, _where(flop_known, j.flop), _where(flop_known, j.time),
        _where(bytes_known, j.bytes), _where(bytes_known, j.time), _where(both, j.flop), _where(both, j.bytes),
        _where(judged, j.roof), _where(judged, j.time), _where(judged, j.headroom), _where(j.above, j.time),
        _where(j.above, j.roof - j.time), _where(j.helped, j.time), np.zeros(len(j.time)),
        *(_where(rows.excluded[why], j.time) if why in rows.excluded else np.zeros(len(j.time)) for why in EXCLUDED),
    ]  # fmt: skip


def _where(known: Booleans, values: Reals) -> Reals:
    return np.where(known, values, 0.0)


def group_of(key: str, line: Reals, rows: LabelledRows, **labels: Any) -> Group:
    """The `Group` of one line of the matrix, per step."""
    q = {name: float(line[i]) for name, i in _AT.items()}
    per_step = 1.0 / max(rows.steps, 1)
    first_pass = len(_QUANTITIES)
    first_bound = first_pass + len(rows.passes)
    first_ceiling = first_bound + len(BOUNDS)
    first_name = first_ceiling + len(rows.judged.ceilings)
    by_pass, by_bound, by_ceiling, by_name = np.split(line, [first_bound, first_ceiling, first_name])
    by_pass = by_pass[first_pass:]
    judged = q["judged_time"] > 0
    flop = known_sum(q["flop"] * per_step, q["flop_time"], q["time"])
    moved = known_sum(q["bytes"] * per_step, q["bytes_time"], q["time"])
    return Group(
        key=key,
        count=q["count"] * per_step,
        time_ns=q["time"] * per_step,
        share=_ratio(q["time"], rows.total_ns) or 0.0,
        flop=flop,
        bytes=moved,
        flop_known_ns=q["flop_time"] * per_step,
        bytes_known_ns=q["bytes_time"] * per_step,
        intensity=None if flop is None else _ratio(q["both_flop"], q["both_bytes"]),
        flop_rate=None if flop is None else _ratio(q["flop"] * 1e9, q["flop_time"]),
        bandwidth=None if moved is None else _ratio(q["bytes"] * 1e9, q["bytes_time"]),
        roof_ns=q["roof"] * per_step if judged else None,
        judged_ns=q["judged_time"] * per_step,
        efficiency=_ratio(q["roof"], q["judged_time"]),
        headroom_ns=q["headroom"] * per_step if judged else None,
        bound=BOUNDS[int(np.argmax(by_bound))] if judged and by_bound.any() else "",
        ceiling=rows.judged.ceilings[int(np.argmax(by_ceiling))] if judged and by_ceiling.any() else "",
        datasheet=any(ns > 0 and DATASHEET in rows.judged.ceilings[i] for i, ns in enumerate(by_ceiling.tolist())),
        withheld_ns=sum(q[why] for why in EXCLUDED) * per_step,
        withheld=max(EXCLUDED, key=q.__getitem__) if any(q[why] for why in EXCLUDED) else "",
        above_roof=_doubtful(q),
        above_ns=q["above_time"] * per_step,
        above_kernels=[rows.above_by_name[i][0] for i in np.argsort(-by_name, kind="stable") if by_name[i] > 0],
        helped_ns=q["helped_time"] * per_step,
        fused_ns=q["fused_time"] * per_step,
        passes=tuple(p for p, ns in zip(rows.passes, by_pass, strict=True) if ns > 0),
        **labels,
    )


def _doubtful(q: Mapping[str, float]) -> bool:
    """Return whether rows above their roof weigh enough in a group to make its efficiency wrong."""
    excess = q["above_excess"] >= LIFT * q["judged_time"]
    return q["above_time"] > 0 and (q["above_time"] >= NOTABLE * q["time"] or excess)


def known_sum(amount: float, known_ns: float, time_ns: float) -> float | None:
    """`amount`, a sum over rows that take `known_ns` of `time_ns`; None where it is of none.

    Zeros of some rows do not make a zero of all: copies have no FLOP, and say nothing of the products next to
    them whose FLOP is unknown.
    """
    if not known_ns or (not amount and known_ns < time_ns * (1 - 1e-9)):
        return None
    return amount


def _ratio(above: float, below: float) -> float | None:
    return above / below if below > 0 else None


def by_label(rows: LabelledRows, codes: Integers, labels: Sequence[str]) -> list[Group]:
    """One group a label that occurs, in the order of the labels; `codes` gives each row's label."""
    return _groups(rows, sums(rows, codes, len(labels)), labels)


def by_pass(rows: LabelledRows) -> list[Group]:
    """One group a pass, in their order; none where no row has one."""
    return _of_lines(rows, rows.pass_of_line, rows.passes) if rows.passes != [UNKNOWN] else []


def by_operator(rows: LabelledRows) -> list[Group]:
    """One group a logical operator, the longest first; none where no row has one."""
    operators = rows.places.lines["operator"]
    if not operators.notna().any():
        return []
    code, names = operators.fillna(NO_OPERATOR).factorize()
    return sorted(_of_lines(rows, code, list(map(str, names))), key=lambda group: -group.time_ns)


def _of_lines(rows: LabelledRows, codes: Integers, labels: Sequence[str]) -> list[Group]:
    matrix = np.zeros((len(labels), rows.lines.shape[1]))
    np.add.at(matrix, codes, rows.lines)
    return _groups(rows, matrix, labels)


def _groups(rows: LabelledRows, matrix: Reals, labels: Sequence[str]) -> list[Group]:
    return [group_of(label, line, rows) for label, line in zip(labels, matrix, strict=True) if line[0] > 0]


def by_kind_of_call(rows: LabelledRows) -> tuple[list[Group], Integers]:
    """One group a kernel name and shapes, largest time first, and for each row the index of its group."""
    name, shape = factorize(rows.names)[0], factorize(rows.shapes)[0]
    used, codes = numbered(name * (len(rows.names) + 1) + shape)
    first = first_rows(codes, len(used))
    matrix = sums(rows, codes, len(first))
    order = np.argsort(-matrix[:, _AT["time"]], kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    groups = [_call_group(rows, matrix[g], int(first[g])) for g in order.tolist()]
    return groups, rank[codes]


def _call_group(rows: LabelledRows, line: Reals, example: int) -> Group:
    labels = {
        "family": rows.families[int(rows.family_code[example])],
        "shapes": rows.shapes[example],
        "example": rows.names[example],
    }
    return group_of(rows.short_names[example], line, rows, **labels)


def excluded(rows: LabelledRows) -> list[Excluded]:
    """Return the number of rows that are not judged, and their time, by reason."""
    found = []
    for why, mask in rows.excluded.items():
        if mask.any():
            ns = float(rows.judged.time[mask].sum())
            per_step = 1.0 / max(rows.steps, 1)
            found.append(Excluded(why, float(mask.sum()) * per_step, ns * per_step, _ratio(ns, rows.total_ns) or 0.0))
    return found


def largest_headroom(groups: Sequence[Group]) -> list[Group]:
    """Groups that have headroom, largest first."""
    judged = [g for g in groups if g.headroom_ns]
    return sorted(judged, key=lambda g: -(g.headroom_ns or 0.0))


def pass_by_family(rows: LabelledRows) -> dict[str, dict[str, float]]:
    """Pass → family → ns a step, only what occurs, each in the order of its labels."""
    family = rows.family_code[rows.places.first][rows.places.lines["kind"].to_numpy(np.int64)]
    codes = rows.pass_of_line * len(rows.families) + family
    total = np.bincount(codes, weights=rows.time_of_lines, minlength=len(rows.passes) * len(rows.families))
    table = total.reshape(len(rows.passes), len(rows.families)) / max(rows.steps, 1)
    return {
        name: {f: float(ns) for f, ns in zip(rows.families, line, strict=True) if ns > 0}
        for name, line in zip(rows.passes, table, strict=True)
        if line.any()
    }
