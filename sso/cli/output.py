"""The output of commands: tables for people, JSON for scripts, both safe for a terminal.

Slow commands have a progress bar on standard error, if that is a terminal.
"""

import json
import shutil
import sys
import textwrap
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from sso.services.changes import Differences


_WIDEST = 48


def print_json(value: object) -> None:
    """Print a JSON value in ASCII, which is safe in all locales and terminals."""
    click.echo(json.dumps(value, indent=2))


def print_once(
    view: Mapping[str, object], fields: Sequence[str], advice: str, as_json: bool
) -> None:
    """Print these fields of a new object, with its secret, and advice about the secret."""
    if as_json:
        print_json(view)
    else:
        print_record([(name, view[name]) for name in fields])
        print_line(advice)


def print_line(text: str = "") -> None:
    """Print one line; characters that the encoding lacks are escaped."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    click.echo(harmless(text).encode(encoding, "backslashreplace").decode(encoding))


def print_paragraph(text: str, bullet: str = "") -> None:
    """Print text in lines that fit the terminal, after a bullet."""
    width = min(shutil.get_terminal_size().columns, 100)
    for line in textwrap.wrap(
        text, width, initial_indent=bullet, subsequent_indent=" " * len(bullet),
        break_long_words=False, break_on_hyphens=False,
    ):  # fmt: skip
        print_line(line)


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence[object]], *, whole_last: bool = False
) -> None:
    """Print aligned columns. Long cells are cut, except in the first column, which has ids.

    `whole_last`: the last column is not cut either.
    """
    whole = (0, len(headings) - 1) if whole_last else (0,)
    cells = [
        [_cell(value, cut=column not in whole) for column, value in enumerate(row)]
        for row in (headings, *rows)
    ]
    widths = [max(_width(row[column]) for row in cells) for column in range(len(headings))]
    for row in cells:
        line = "  ".join(
            text + " " * (width - _width(text)) for text, width in zip(row, widths, strict=True)
        )
        print_line(line.rstrip())
    if len(cells) == 1:
        click.echo("(nothing to list)", err=True)


def print_record(pairs: Iterable[tuple[str, object]]) -> None:
    """Print a name and its value on each line, uncut; each item of a list on its own line."""
    listed = list(pairs)
    width = max(len(name) for name, _ in listed)
    for name, value in listed:
        values = value if isinstance(value, list) else [value]
        for number, single in enumerate(values or ["-"]):
            label = name if number == 0 else ""
            print_line(f"{label:{width}}  {_cell(single)}".rstrip())


def print_changes(changes: "Differences", notes: Iterable[str], as_json: bool) -> None:
    """Print what changed, unless with --json; print notes on standard error."""
    print_notes(notes)
    if as_json:
        return
    print_line()
    if not changes:
        print_line("Nothing changed.")
    for line in change_lines(changes):
        print_line(line)


def print_notes(notes: Iterable[str]) -> None:
    """Print notes for the operator on standard error."""
    for note in notes:
        click.echo(harmless(note), err=True)


def change_lines(changes: "Differences") -> Iterator[str]:
    """Yield a line for each value that was added, removed or changed."""
    for name, field in changes.items():
        items = [("added", item) for item in field.get("added", ())]
        items += [("removed", item) for item in field.get("removed", ())]
        yield from (f"{name}: {verb} {item}" for verb, item in items)
        if not items:
            yield f"{name}: {_text(field['before'])} -> {_text(field['after'])}"


def harmless(text: str) -> str:
    """Escape control, format and separator characters, so that names cannot control a terminal."""
    return "".join(_escape(char) if _is_unsafe(char) else char for char in text)


def iso(moment: datetime | None) -> str | None:
    """Return a time for JSON (RFC 3339, UTC)."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if moment else None


def _is_unsafe(char: str) -> bool:
    category = unicodedata.category(char)
    return category[0] == "C" or category in ("Zl", "Zp")


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode()


def _cell(value: object, cut: bool = False) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else str(value)
    text = harmless(text)
    return text[: _WIDEST - 1] + "…" if cut and len(text) > _WIDEST else text


def _width(text: str) -> int:
    """Count columns on a terminal: wide characters of East Asia take two, combining ones none."""
    return sum(
        0
        if unicodedata.category(char) in ("Mn", "Me")
        else 2
        if unicodedata.east_asian_width(char) in "WF"
        else 1
        for char in text
    )


def _text(value: Any) -> str:
    if value is None or value in ("", [], {}):
        return "-"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


ProgressReport = Callable[..., None]  # (done since the last report, total = None)
AFTER = 1.0  # seconds without a bar


@contextmanager
def progress_bar(label: str, as_json: bool = False) -> Iterator[ProgressReport | None]:
    """Yield the function that reports progress, or `None` if there is no terminal."""
    if as_json or not sys.stderr or not sys.stderr.isatty():
        yield None
        return
    shown_from, waiting = time.monotonic() + AFTER, 0
    with ExitStack() as stack:
        bar = click.progressbar((_ for _ in ()), label=label, file=sys.stderr)

        def report(done: int, total: int | None = None) -> None:
            nonlocal waiting
            waiting += done
            if not bar.entered:
                if time.monotonic() < shown_from:
                    return
                bar.length = total
                stack.enter_context(bar)
            bar.length, bar.show_pos = total, total is None
            bar.update(waiting)
            waiting = 0

        yield report
