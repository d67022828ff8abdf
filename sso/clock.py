"""The only reader of time. Everything is UTC; tests move it."""

from datetime import UTC, datetime


def _system() -> datetime:
    return datetime.now(UTC)


source = _system


def now() -> datetime:
    """The present moment, aware, UTC."""
    return source()


def timestamp(moment: datetime) -> int:
    """Whole seconds since 1970 (RFC 7519 §2 NumericDate)."""
    return int(moment.timestamp())
