"""Many cases in one test, where each is too small to be a test of its own."""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest


def each(names: str, cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Like `pytest.mark.parametrize`, in one test that names every case that fails.

    What a fixture gives is the same for all cases: they must not change it.
    """
    parts, listed = [name.strip() for name in names.split(",")], list(cases)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @wraps(test)
        def run(*args: Any, **fixtures: Any) -> None:
            faults = []
            for case in listed:
                values = [case] if len(parts) == 1 else list(case)
                try:
                    test(*args, **fixtures, **dict(zip(parts, values, strict=True)))
                except (Exception, pytest.fail.Exception) as fault:
                    fault.add_note(f"{names} = {case!r}")
                    faults.append(fault)
            if faults:
                raise BaseExceptionGroup(f"{len(faults)} of {len(listed)} cases", faults)

        signature = inspect.signature(test)
        left = [one for name, one in signature.parameters.items() if name not in parts]
        run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return run

    return decorate
