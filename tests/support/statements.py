"""See each SQL statement of an engine, whichever way it is executed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Engine, event

from sso.observability import tracing

Note = Callable[[str, Any], object]


@contextmanager
def watched(engine: Engine, note: Note) -> Iterator[None]:
    """Call `note` with the text and the parameters of each statement, before it is executed."""

    def before(_c: Any, _u: Any, statement: str, parameters: Any, _x: Any, many: bool) -> None:
        note(statement, parameters[0] if many else parameters)

    @contextmanager
    def observe(_: Engine, statement: str, parameters: Any) -> Iterator[None]:
        note(statement, parameters)
        yield

    event.listen(engine, "before_cursor_execute", before)
    tracing.observers.append(observe)
    try:
        yield
    finally:
        tracing.observers.remove(observe)
        event.remove(engine, "before_cursor_execute", before)
