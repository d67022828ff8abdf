"""What becomes of each thing of another server: the lines of a migration's report."""

from dataclasses import dataclass
from enum import StrEnum


class Fate(StrEnum):
    """What becomes of a thing. `KEPT`: it was changed here since, and stays as it is here."""

    TAKEN = "taken"
    CHANGED = "changed"
    KEPT = "kept"
    NOT_TAKEN = "not_taken"
    QUESTION = "question"
    SAME = "same"


@dataclass(frozen=True)
class Finding:
    """One thing. `what`: a part of it, "" for the whole; `why`, and `remedy`: what to do."""

    fate: Fate
    kind: str
    name: str
    what: str = ""
    why: str = ""
    remedy: str = ""
