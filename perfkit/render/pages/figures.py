"""A figure as data: what the page of a browser, a terminal and Markdown draw."""

from __future__ import annotations

import msgspec


class Series(msgspec.Struct, kw_only=True):
    """One line of a figure, with intervals [low, high] where known; `line` is solid, dash (a level), points or
    stack (an area on top of those before it)."""

    name: str
    x: list[float]
    y: list[float]
    low: list[float] = []
    high: list[float] = []
    line: str = "solid"


class Figure(msgspec.Struct, kw_only=True):
    """Series over common axes, in the units that the titles name; `log_x`, `log_y` for logarithmic axes.

    `x_ticks` are the places that are marked on the axis, as the sizes that were run; none: where a round number is.
    """

    title: str
    x: str
    y: str
    series: list[Series]
    log_x: bool = False
    log_y: bool = False
    x_ticks: list[float] = []
