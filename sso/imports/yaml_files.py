"""YAML of other systems, read into texts, lists and objects with bounds on its size.

All scalars stay texts, as they are written: `yes`, `0123` and dates mean what the reader of the
format says. Tags mean nothing. An alias counts as often as it is used, with all that it stands for,
so a small file cannot become a large one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from sso.imports.person import FileProblem, text

MOST_BYTES = 64 * 1024 * 1024
MOST_NODES = 3_000_000
DEEPEST = 40
_MERGE = "<<"
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_TEMPLATE = "{{"
_NULL = ("", "~", "null", "Null", "NULL")
_TRUE = ("true", "yes", "on", "y", "1")
_RENDER = "it has template filters; give the file as they make it: authelia config template"


@dataclass(frozen=True)
class Tagged:
    """A value with a tag of the system's own, such as `!Find`; it is not evaluated."""

    tag: str
    value: Any


@dataclass
class _Open:
    """A list or an object that is being read; `key`: of the next value of an object."""

    anchor: str | None
    value: Any
    size: int = 1
    key: str | None = None
    has_key: bool = False
    merged: list[Any] = field(default_factory=list)
    tag: str = ""


class _Fault(ValueError):
    """The content is not accepted; `str()` says why."""


def read(path: Path, *, with_tags: bool = False) -> Any:
    """Return the only document of a file; `None` if it is empty. Raises `FileProblem`.

    `with_tags`: values with a tag of their own are `Tagged`.
    """
    try:
        if path.stat().st_size > MOST_BYTES:
            raise FileProblem(f"{path} has more than {MOST_BYTES} bytes")
        content = path.read_bytes()
    except OSError as error:
        raise FileProblem(f"{path} cannot be read: {error.strerror}") from None
    try:
        return _document(yaml.parse(content.decode("utf-8-sig"), Loader=_LOADER), with_tags)
    except UnicodeDecodeError:
        raise FileProblem(f"{path} is not UTF-8") from None
    except _Fault as error:
        raise FileProblem(f"{path}: {error}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        why = _RENDER if _TEMPLATE.encode() in content else "it is not YAML"
        where = f", line {mark.line + 1}" if mark else ""
        raise FileProblem(f"{path}{where}: {why}") from None
    except (yaml.YAMLError, RecursionError):  # a character that YAML does not have
        raise FileProblem(f"{path}: it is not YAML") from None


def _document(events: Iterator[Any], with_tags: bool) -> Any:
    anchors: dict[str, tuple[Any, int]] = {}
    open_: list[_Open] = []
    document, count = None, 0
    for event in events:
        match type(event).__name__:
            case "DocumentStartEvent":
                count += 1
                if count > 1:
                    raise _Fault("it has several documents")
            case "MappingStartEvent" | "SequenceStartEvent" as kind:
                if len(open_) >= DEEPEST:
                    raise _Fault(f"it has more than {DEEPEST} levels")
                if open_ and isinstance(open_[-1].value, dict) and not open_[-1].has_key:
                    raise _Fault(_RENDER if kind.startswith("M") else "a key is a list")
                container: Any = {} if kind.startswith("M") else []
                open_.append(_Open(event.anchor, container, tag=_tag(event, with_tags)))
            case "MappingEndEvent" | "SequenceEndEvent":
                done = open_.pop()
                _merge(done)
                value = Tagged(done.tag, done.value) if done.tag else done.value
                if done.anchor:
                    anchors[done.anchor] = (value, done.size)
                document = _put(open_, value, done.size, document)
            case "ScalarEvent":
                tag = _tag(event, with_tags)
                scalar = Tagged(tag, event.value) if tag else event.value
                if event.anchor:
                    anchors[event.anchor] = (scalar, 1)
                is_merge = event.value == _MERGE and event.implicit[0]
                document = _put(open_, scalar, 1, document, is_merge=is_merge)
            case "AliasEvent":
                if event.anchor not in anchors:
                    raise _Fault(
                        f"the alias *{event.anchor[:60]} stands for nothing, or for itself"
                    )
                document = _put(open_, *anchors[event.anchor], document)
    return document


def _tag(event: Any, with_tags: bool) -> str:
    """Return a tag of the system's own; "" for those of YAML."""
    tag = event.tag or ""
    return tag if with_tags and tag.startswith("!") and len(tag) > 1 else ""


def _put(open_: list[_Open], value: Any, size: int, document: Any, is_merge: bool = False) -> Any:
    """Add a value to the innermost container; return the document so far."""
    if not open_:
        return value
    container = open_[-1]
    container.size += size
    if container.size > MOST_NODES:
        raise _Fault(f"it has more than {MOST_NODES} values, aliases included")
    if isinstance(container.value, list):
        container.value.append(value)
    elif not container.has_key:
        if not isinstance(value, str):
            raise _Fault("a key is no text")
        container.key, container.has_key = (None if is_merge else value), True
    else:
        if container.key is None:
            container.merged += value if isinstance(value, list) else [value]
        elif container.key in container.value:
            raise _Fault(f"{container.key[:60]!r} is there twice in one object")
        else:
            container.value[container.key] = value
        container.has_key = False
    return document


def _merge(done: _Open) -> None:
    """Add the entries of `<<`; what the object says itself, or an earlier one, wins."""
    for entry in done.merged:
        if not isinstance(entry, dict):
            raise _Fault("<< names what is no object")
        for key, value in entry.items():
            done.value.setdefault(key, value)


def word(value: Any) -> str:
    """Return a text; "" for null, and for what is no text."""
    plain = text(value)
    return "" if plain in _NULL else plain


def is_on(value: Any) -> bool:
    """Return whether a switch is on, in YAML or in JSON."""
    return value is True or text(value).lower() in _TRUE


def listed(value: Any) -> list[Any]:
    """Return a list; one value stands for a list of it."""
    if isinstance(value, list):
        return value
    return [value] if word(value) else []
