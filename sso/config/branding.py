"""Checks of the settings that say whose server it is."""

import unicodedata
from pathlib import Path

from sso.config import images
from sso.config.urls import strict_url_error

MAX_NAME = 60  # an authenticator app cuts what is longer
MAX_LOGO = 256 * 1024
_JOINERS = "\u200c\u200d"  # Persian and emoji need them


def name(text: str) -> str:
    """One line of visible text. It stands on pages, in a header of mails and in other programs."""
    if len(text) > MAX_NAME:
        raise ValueError(f"it is longer than {MAX_NAME} characters; shorten it")
    if any(_is_invisible(char) for char in text):
        raise ValueError("it has invisible characters, such as marks of direction; remove them")
    if not text.strip():
        raise ValueError("it is empty; give a name, or leave the setting off")
    return text.strip()


def _is_invisible(char: str) -> bool:
    category = unicodedata.category(char)
    return (category[0] == "C" and char not in _JOINERS) or category in ("Zl", "Zp")


def logo_file(text: str) -> str:
    images.read(Path(text), MAX_LOGO)
    return text


def page_url(text: str) -> str:
    error = strict_url_error(text)
    if error or not text.startswith("https://"):
        raise ValueError(f"{error or 'it is not https'}; give a URL such as https://example.com/…")
    return text
