"""Moments as operators write them: ISO 8601, in UTC unless the text names another offset."""

from datetime import UTC, datetime, timedelta

NOTICE = timedelta(days=7)  # people are told so long before an end
# Any time zone can show what lies between, and its text has a year of four digits.
_EARLIEST, _LATEST = datetime(1900, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)


def parsed(text: str) -> datetime:
    """Return the moment that a text says, in whole seconds. Raises `ValueError`.

    A date alone is its beginning. A name of a time zone is refused: in the hour that a change of
    daylight saving repeats, it would say two moments. Years are those from 1900 to 9999, without
    the last day.
    """
    moment = datetime.fromisoformat(text.strip())
    try:
        utc = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except OverflowError:  # before the year 1, or after 9999
        raise ValueError(text) from None
    if not _EARLIEST <= utc <= _LATEST:
        raise ValueError(text)
    return utc.replace(microsecond=0)


def text_of(moment: datetime | None) -> str:
    """Return a moment as `parsed` reads it, in UTC; "" if there is none."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if moment else ""
