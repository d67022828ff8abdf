"""Bars for the overview, as numbers for an SVG: no script, and no style that a policy forbids."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

WIDTH, HEIGHT = 700, 160
_GAP = 0.3  # of the room that a day has


@dataclass(frozen=True)
class Day:
    """How often people signed in, and failed to, on one day (UTC)."""

    day: datetime
    sign_ins: int
    failures: int


@dataclass(frozen=True)
class Bar:
    """A rectangle; `is_failure`: of the second kind."""

    x: float
    y: float
    width: float
    height: float
    is_failure: bool


def top_of(values: Sequence[tuple[int, int]]) -> int:
    """The number at the top of the scale: 1, 2 or 5 times a power of ten."""
    most = max((max(pair) for pair in values), default=0)
    step = 1
    while True:
        for factor in (1, 2, 5):
            if factor * step >= most:
                return factor * step
        step *= 10


def bars(values: Sequence[tuple[int, int]]) -> tuple[int, list[Bar]]:
    """The top of the scale, and two bars for each pair of values."""
    top, room = top_of(values), WIDTH / max(len(values), 1)
    width = room * (1 - _GAP) / 2
    return top, [
        Bar(
            round(index * room + room * _GAP / 2 + width * is_failure, 1),
            round(HEIGHT - HEIGHT * value / top, 1),
            round(width, 1),
            round(HEIGHT * value / top, 1),
            is_failure,
        )
        for index, pair in enumerate(values)
        for is_failure, value in zip((False, True), pair, strict=True)
    ]
