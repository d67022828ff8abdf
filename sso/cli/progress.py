"""A progress bar for work that takes long: on standard error, and only if that is a terminal."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import click

Report = Callable[..., None]  # (done since the last report, total = None)
AFTER = 1.0  # seconds; what is done sooner needs no bar


@contextmanager
def progress_bar(label: str, as_json: bool = False) -> Iterator[Report | None]:
    """Gives the function to report to, or `None` if nobody looks."""
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
