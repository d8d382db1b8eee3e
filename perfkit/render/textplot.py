"""A figure drawn with characters: each series by a sign of its own, axes with the ends of their ranges."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfkit.render.pages.figures import Figure

SIGNS = "●○▲△■□◆◇+×"
HEIGHT = 14
_MARGIN = 11  # columns for the numbers of the y axis


def lines(figure: Figure, width: int) -> list[str]:
    """The figure in lines of at most `width` characters; a sentence when there is nothing to draw."""
    points = [(x, y) for s in figure.series for x, y in zip(s.x, s.y, strict=True) if _drawable(figure, x, y)]
    if not points:
        return [f"{figure.title}: nothing to draw."]
    columns = max(10, width - _MARGIN - 1)
    x_range, y_range = ((min(v), max(v)) for v in zip(*points, strict=True))
    across = _place(*x_range, figure.log_x, columns)
    up = _place(*y_range, figure.log_y, HEIGHT)
    canvas = [[" "] * columns for _ in range(HEIGHT)]
    # The first series is on top: it is drawn last.
    for number, series in reversed(list(enumerate(figure.series))):
        for x, y in zip(series.x, series.y, strict=True):
            if _drawable(figure, x, y):
                if series.line == "dash":  # a level: dotted from end to end
                    canvas[HEIGHT - 1 - up(y)][::4] = SIGNS[number % len(SIGNS)] * len(range(0, columns, 4))
                canvas[HEIGHT - 1 - up(y)][across(x)] = SIGNS[number % len(SIGNS)]
    legend = "  ".join(f"{SIGNS[i % len(SIGNS)]} {s.name}" for i, s in enumerate(figure.series))
    return [f"{figure.title} ({figure.y})", *_framed(canvas, y_range), _foot(figure, x_range, columns), legend]


def sparkline(values: Sequence[float], width: int = 40, low: float | None = None) -> str:
    """`values` as one line of eight heights from `low`, else the least, averaged down to at most `width` characters."""
    known = [v for v in values if math.isfinite(v)]
    if not known:
        return ""
    count = min(width, len(known))
    parts = [known[i * len(known) // count : (i + 1) * len(known) // count] for i in range(count)]
    means = [sum(p) / len(p) for p in parts]
    high, low = max(means), min(means) if low is None else low
    steps = "▁▂▃▄▅▆▇█"
    return "".join(steps[round((m - low) / (high - low) * 7) if high > low else 3] for m in means)


def _drawable(figure: Figure, x: float, y: float) -> bool:
    return math.isfinite(x) and math.isfinite(y) and (x > 0 or not figure.log_x) and (y > 0 or not figure.log_y)


def _place(low: float, high: float, log: bool, cells: int) -> Callable[[float], int]:
    """Return the place of a value among `cells` places, 0 first."""
    scaled = math.log if log else float
    start, span = scaled(low), scaled(high) - scaled(low)
    return lambda value: round((scaled(value) - start) / span * (cells - 1)) if span else cells // 2


def _framed(canvas: list[list[str]], y_range: tuple[float, float]) -> list[str]:
    labels = {0: y_range[1], len(canvas) - 1: y_range[0]}
    return [
        f"{number(labels[row]) if row in labels else '':>{_MARGIN - 1}} ┤{''.join(cells)}".rstrip()
        for row, cells in enumerate(canvas)
    ]


def _foot(figure: Figure, x_range: tuple[float, float], columns: int) -> str:
    low, high = map(number, x_range)
    middle = figure.x.center(max(columns - len(low) - len(high), len(figure.x) + 2))
    return f"{'':>{_MARGIN}}└{low}{middle}{high}"


def number(value: float) -> str:
    """A number in four significant digits, thousands separated."""
    if value == 0:
        return "0"
    if abs(value) >= 1e6 or abs(value) < 1e-3:
        return f"{value:.3g}"
    digits = max(0, 3 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
