"""What finding users and clients by a part of their names has in common."""

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")
MOST = 8  # candidates that are shown


class Match(NamedTuple, Generic[T]):
    """What a text may mean. `is_exact`: it is a whole identifier.

    Anything else may mean another user or client tomorrow.
    """

    found: Sequence[T]
    is_exact: bool = False
