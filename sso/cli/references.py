"""Values by reference: `env:NAME` and `file:PATH` keep secrets out of files and process lists."""

import os
from pathlib import Path


class ReferenceFault(ValueError):
    """The reference leads nowhere; `str()` names it, never its value."""


def resolve(reference: str) -> str:
    """The value that a reference stands for. Raises `ReferenceFault`."""
    kind, _, name = reference.partition(":")
    if kind == "env" and name:
        value = os.environ.get(name, "")
    elif kind == "file" and name:
        try:
            value = Path(name).read_text("utf-8", "surrogateescape").rstrip("\r\n")
        except (OSError, ValueError):
            raise ReferenceFault(f"{reference}: the file cannot be read") from None
    else:
        raise ReferenceFault("it is neither env:NAME nor file:PATH")
    if not value:
        raise ReferenceFault(f"{reference}: it is empty or not there")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ReferenceFault(f"{reference}: it is not valid UTF-8") from None
    return value
