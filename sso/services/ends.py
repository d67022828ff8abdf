"""Ends: the moments from which accounts no longer give access.

They hold without the worker, because every check compares them with the clock. The worker then ends
what is left: sessions, grants and tokens.
"""

from datetime import datetime

from sso import clock
from sso.flow import moments
from sso.i18n.message import Message
from sso.services.checks import Invalid


def read(
    text: str, before: datetime | None = None, *, may_be_past: bool = False
) -> datetime | None:
    """Return the end that an operator gives; "" is none. Raises `Invalid`.

    `before`: the end until now, which may stay although it has passed.
    """
    if not text.strip():
        return None
    try:
        end = moments.parsed(text)
    except ValueError:
        raise Invalid(
            [
                Message(
                    "%(text)s is no time: give a date and a time such as %(example)s; without an "
                    "offset from UTC, it is UTC",
                    text=repr(text[:60]),
                    example="2027-01-31T18:00+01:00",
                )
            ]
        ) from None
    if end <= clock.now() and end != before and not may_be_past:
        raise Invalid([Message("the end %(moment)s is in the past", moment=moments.text_of(end))])
    return end
