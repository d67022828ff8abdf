"""The refusals that a person means by an error ID, which was read out or copied in part."""

import re
from collections.abc import Sequence

from sso.models import Refusal
from sso.store import refusals

_AT_ONCE = 10
_SHORTEST = 4  # of the beginning of an ID
# What a person reads out for a digit (Crockford's base 32).
_MISREAD = str.maketrans("ilo", "110")


def find(request_id: str) -> Sequence[Refusal]:
    """The refusals of requests with this ID, or else with one that begins so, oldest first."""
    ours = re.sub(r"[\s-]", "", request_id.lower()).translate(_MISREAD)
    spellings = dict.fromkeys((request_id, f"{ours[:4]}-{ours[4:]}"))
    for by_beginning in (False, True) if len(ours) >= _SHORTEST else (False,):
        for spelling in spellings:
            found = refusals.find(spelling, by_beginning=by_beginning, limit=_AT_ONCE)
            if found:
                return found
    return []
