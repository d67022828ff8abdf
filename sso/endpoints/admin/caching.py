"""Results that a process keeps for a while, because they are costly to count."""

from collections.abc import Callable, Hashable
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
    results: dict[Hashable, tuple[datetime, Any]]
    results = current_app.extensions.setdefault(_EXTENSION, {})
    now = clock.now()
    if key in results and now - results[key][0] <= lasts:
        return results[key][1]
    result = count()
    if is_kept(result):
        if len(results) >= _MOST:
            results.clear()
        results[key] = (now, result)
    else:
        results.pop(key, None)
    return result
