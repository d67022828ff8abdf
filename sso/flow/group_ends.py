"""Memberships that end: the end of each by the name of its group, as `moments.text_of` has it.

In that format, an earlier moment is a smaller text.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

from sso.flow import moments

Ends = Mapping[str, str]


def present(groups: Sequence[str], ends: Ends | None, now: datetime) -> list[str]:
    """Return the groups without those whose membership has ended; its end is the first moment
    without it.
    """
    if not ends:
        return list(groups)
    text = moments.text_of(now)
    return [name for name in groups if name not in ends or ends[name] > text]


def near(ends: Ends, told: Ends, now: datetime) -> dict[str, str]:
    """Return the ends that people have to be told of now."""
    text, until = moments.text_of(now), moments.text_of(now + moments.NOTICE)
    return {
        name: end for name, end in ends.items() if text < end <= until and told.get(name) != end
    }


def next_due(ends: Ends, told: Ends) -> datetime | None:
    """Return when the worker next tells of one of these ends or carries one out."""
    return min(_due(ends, told), default=None)


def _due(ends: Ends, told: Ends) -> Iterable[datetime]:
    for name, end in ends.items():
        moment = moments.parsed(end)
        yield moment if told.get(name) == end else moment - moments.NOTICE
