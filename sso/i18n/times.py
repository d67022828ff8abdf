"""Times as people say them, in their time zone.

It is the claim `zoneinfo` of the reader, or else that of the settings. The latter is always named.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal, cast
from zoneinfo import ZoneInfo

from babel import Locale
from babel.dates import (
    format_date,
    format_skeleton,
    format_time,
    format_timedelta,
    get_datetime_format,
)
from flask import Flask, current_app, g
from flask_babel import get_locale, gettext

from sso.i18n.languages import DEFAULT

_SECOND, _MINUTE, _HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
_UNITS: dict[timedelta, Literal["day", "hour", "minute", "second"]] = {
    timedelta(days=1): "day", _HOUR: "hour", _MINUTE: "minute", _SECOND: "second",
}  # fmt: skip
_RELATIVE = timedelta(hours=6)  # longer ago, the time of day says more
_EXTENSION = "sso.times"


@dataclass(frozen=True)
class _Here:
    default: ZoneInfo
    of_account: Callable[[], object]
    now: Callable[[], datetime]


def init_app(
    app: Flask, default: str, of_account: Callable[[], object], now: Callable[[], datetime]
) -> None:
    """Filters for templates. `of_account` returns the claim of the user who is signed in."""
    app.extensions[_EXTENSION] = _Here(checked_zone(default), of_account, now)
    app.jinja_env.filters.update(ago=ago, day=day, moment=moment)


def checked_zone(name: str) -> ZoneInfo:
    """Return a time zone of the IANA database. Raises `ValueError` with the remedy."""
    try:
        return ZoneInfo(name)
    except (LookupError, ValueError, OSError):  # unknown; no name of a file; a folder
        raise ValueError("give a time zone such as Europe/Berlin") from None


def zone_name(text: str) -> str:
    """Check the setting of the time zone."""
    return checked_zone(text).key


def ago(time: datetime) -> str:
    """Such as "2 hours ago" or "yesterday at 14:05"; a time in the future is now."""
    zone, is_own = _of_page()
    now, locale = _here().now(), _locale()
    passed = now - time
    if passed < _MINUTE:
        return str(gettext("just now"))
    if passed < _RELATIVE:
        unit = _MINUTE if passed < _HOUR else _HOUR
        return format_timedelta(
            -(passed - passed % unit),  # Babel would round up
            "minute" if unit == _MINUTE else "hour",
            threshold=60,
            add_direction=True,
            locale=locale,
        )
    local, today = time.astimezone(zone), now.astimezone(zone).date()
    at = format_time(local, "short", locale=locale) + ("" if is_own else f" {_offset(local)}")
    match (today - local.date()).days:
        case 0:
            return str(gettext("today at %(time)s", time=at))
        case 1:
            return str(gettext("yesterday at %(time)s", time=at))
    skeleton = "MMMd" if local.year == today.year else "yMMMd"
    date = format_skeleton(skeleton, local, locale=locale)
    return str(gettext("%(date)s at %(time)s", date=date, time=at))


def duration(seconds: int) -> str:
    """Such as "45 seconds" or "15 minutes", rounded up; without a line break."""
    unit = _SECOND if seconds < 90 else _MINUTE
    text = format_timedelta(
        -(timedelta(seconds=-seconds) // unit) * unit,
        "second" if unit == _SECOND else "minute",
        threshold=1000,
        locale=_locale(),
    )
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def lifetime(seconds: int) -> str:
    """Such as "1 hour", "90 minutes" or "7 days": in the largest unit without a rest."""
    whole = timedelta(seconds=seconds)
    unit = next(unit for unit in _UNITS if not whole % unit)
    text = format_timedelta(whole // unit * unit, _UNITS[unit], threshold=10_000, locale=_locale())
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def day(time: datetime) -> str:
    """A date."""
    return format_date(time.astimezone(_of_page()[0]), "medium", locale=_locale())


def moment(time: datetime, zone: ZoneInfo | None = None) -> str:
    """Date, time and zone, by default that of the page."""
    local, locale = time.astimezone(zone or _of_page()[0]), _locale()
    date = format_date(local, "long", locale=locale)
    at = f"{format_time(local, 'short', locale=locale)} {_offset(local)}"
    return str(get_datetime_format("medium", locale=locale)).format(at, date)


def zone_for(claim: object) -> ZoneInfo:
    """Return the zone of a reader with this claim, which may be any text; else the default."""
    return _zone(claim) or _here().default


def _of_page() -> tuple[ZoneInfo, bool]:
    """Return the time zone of the page, and whether it is the reader's own."""
    if "sso_zone" not in g:
        zone = _zone(_here().of_account())
        g.sso_zone = zone or _here().default, zone is not None
    return cast(tuple[ZoneInfo, bool], g.sso_zone)


def _zone(claim: object) -> ZoneInfo | None:
    try:
        return checked_zone(claim) if isinstance(claim, str) else None
    except ValueError:
        return None


def _here() -> _Here:
    return cast(_Here, current_app.extensions[_EXTENSION])


def _locale() -> Locale:
    return get_locale() or Locale.parse(DEFAULT)


def _offset(local: datetime) -> str:
    """Such as UTC+1, which is the same in every language."""
    offset = local.utcoffset() or timedelta()
    hours, minutes = divmod(abs(offset) // _MINUTE, 60)
    sign = "-" if offset < timedelta() else "+"
    return "UTC" + (f"{sign}{hours}" if offset else "") + (f":{minutes:02}" if minutes else "")
