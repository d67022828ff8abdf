"""One function for security events: a line on the log, with no secret in it."""

import json
import logging

from sso import counters

logger = logging.getLogger("sso.audit")


def event(name: str, **fields: object) -> None:
    """Log a security event. Pass ids and reasons; never a secret, a code or a token."""
    counters.event(name)
    shown = {key: str(value)[:200] for key, value in fields.items() if value is not None}
    logger.info("%s %s", name, json.dumps(shown, sort_keys=True))
