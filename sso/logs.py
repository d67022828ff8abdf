"""Logging: what must never reach the log does not."""

import logging

from flask import Flask


def configure(app: Flask) -> None:
    """Our own lines at INFO; Authlib's debug lines, which print live tokens, never."""
    logging.getLogger("authlib").setLevel(logging.INFO)
    logger = logging.getLogger("sso")
    logger.setLevel(logging.INFO)
    if not logging.getLogger().handlers and not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
        logger.addHandler(handler)
