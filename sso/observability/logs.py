"""Logging: one line per record, for people or for programs, without secrets."""

import json
import logging
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from flask import Flask, g, has_request_context

from sso.config.settings import Settings
from sso.observability.redaction import redact

TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"
# These write cleaned values only, or, in place of a mail server, mails that are meant to be read.
_AS_IT_IS = frozenset({"sso.access", "sso.audit", "sso.mail"})
# These characters could begin a forged line.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_COMMON = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class TextFormatter(logging.Formatter):
    """For people: one line, and below it a traceback if there is one."""

    _second: tuple[int, str] = (0, "")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        seconds = int(record.created)
        if self._second[0] != seconds:  # formatted once a second instead of for each line
            self._second = seconds, super().formatTime(record)[:-4]
        return f"{self._second[1]},{int(record.msecs):03}"

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        request_id = _request_id()
        return f"{text} [{request_id}]" if request_id else text

    def formatMessage(self, record: logging.LogRecord) -> str:
        if record.name not in _AS_IT_IS:
            record.message = clean(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        return _clean_traceback(super().formatException(ei))


class JsonFormatter(logging.Formatter):
    """For programs: one JSON object a line, with the fields of `extra`."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": message if record.name in _AS_IT_IS else redact(message),
        }
        if request_id := _request_id():
            line["request_id"] = request_id
        for name, value in vars(record).items():
            if name not in _COMMON:
                line[name] = redact(value) if isinstance(value, str) else value
        if record.exc_info:
            line["exception"] = redact(self.formatException(record.exc_info))
        return json.dumps(line, default=lambda value: redact(str(value)))


_OURS = (TextFormatter, JsonFormatter)


def configure(app: Flask) -> None:
    """Log our own lines at INFO, and never Authlib's debug lines, which contain live tokens."""
    settings: Settings = app.extensions["sso.settings"]
    logging.getLogger("authlib").setLevel(logging.INFO)
    logging.getLogger("sso").setLevel(logging.INFO)
    root = logging.getLogger()
    handlers = [handler for handler in root.handlers if isinstance(handler.formatter, _OURS)]
    if not root.handlers:  # otherwise somebody else has configured logging
        handlers = [logging.StreamHandler()]
        root.addHandler(handlers[0])
    # Costly for each line, and in no line of ours or gunicorn's (which has %(process)d).
    logging.logMultiprocessing = logging.logThreads = False
    # Nor does any name the line of code; this is how Python's logging HOWTO turns it off.
    logging._srcfile = None
    for handler in handlers:
        is_json = settings.log_format == "json"
        handler.setFormatter(JsonFormatter() if is_json else TextFormatter(TEXT))


def for_gunicorn(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return gunicorn's setting `logconfig_dict`, so that its own lines are JSON, too."""
    if environ.get("SSO_LOG_FORMAT") != "json":
        return {}
    return {
        "formatters": {"generic": {"()": JsonFormatter}},
        "root": {"level": "WARNING", "handlers": ["error_console"]},
        "loggers": {"gunicorn.error": {"level": "INFO", "handlers": [], "propagate": True}},
    }


def for_granian() -> dict[str, Any]:
    """Return granian's `log_dictconfig`, so that its lines go to the handlers of `configure`."""
    loggers = {"_granian": {"handlers": [], "propagate": True}}
    return {"formatters": {}, "handlers": {}, "loggers": loggers}


class CleanFilter(logging.Filter):
    """Make records safe for any formatter, since gunicorn's own does not escape them."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = clean(record.getMessage()), None
        if record.exc_info and not record.exc_text:
            record.exc_text = _clean_traceback(_PLAIN.formatException(record.exc_info))
        return True


_PLAIN = logging.Formatter()


def clean(message: str) -> str:
    """Return the message on one line, without secrets, with control characters escaped."""
    return _CONTROLS.sub(lambda match: repr(match[0])[1:-1], redact(message))


def _clean_traceback(text: str) -> str:
    """Indent the lines: the text of an exception may look like a log line."""
    return "\n    ".join(map(clean, redact(text).split("\n")))


def _request_id() -> str | None:
    return g.get("sso_request_id") if has_request_context() else None
