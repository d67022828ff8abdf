"""Results that a process keeps for a while, because they are costly to count."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from flask import current_app

from sso import clock

_EXTENSION = "sso.admin.cached"
_MOST = 500  # results; strangers cannot open these pages


def cached(
    key: Hashable,
    lasts: timedelta,
    count: Callable[[], Any],
    is_kept: Callable[[Any], bool] = lambda _: True,
) -> Any:
    """Return a result that this process has kept, or count again if it is older than `lasts`.

    `is_kept`: returns whether a result is to be kept at all.
    """
    return cached_each({key: key}, lasts, lambda _: {key: count()}, is_kept)[key]


def cached_each(
    keys: Mapping[Hashable, Hashable],
    lasts: timedelta,
    count: Callable[[Sequence[Any]], Mapping[Any, Any]],
    is_kept: Callable[[Any], bool] = lambda _: True,
) -> dict[Any, Any]:
    """Do as `cached` for several things, each with its key: those to count are counted together."""
    results: dict[Hashable, tuple[datetime, Any]]
    results = current_app.extensions.setdefault(_EXTENSION, {})
    now = clock.now()
    counted = {
        thing: results[key][1]
        for thing, key in keys.items()
        if key in results and now - results[key][0] <= lasts
    }
    if missing := [thing for thing in keys if thing not in counted]:
        for thing, result in count(missing).items():
            counted[thing] = result
            if is_kept(result):
                if len(results) >= _MOST:
                    results.clear()
                results[keys[thing]] = (now, result)
            else:
                results.pop(keys[thing], None)
    return counted
