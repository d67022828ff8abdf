"""Filters that write a text as a value of a file format. One that a format cannot hold is refused.

Line breaks and invisible characters never come here (see `installation.text_problem`).
"""

import json
import re
import shlex
from collections.abc import Callable, Mapping
from typing import Any
from xml.sax.saxutils import escape

from sso.i18n.message import Message

_BARE = re.compile(r"[A-Za-z0-9_./:@+,-]+")


class Unquotable(ValueError):
    """The format has no way to write this text that all its readers understand."""


def _unless(pattern: str, value: str, file_format: Message) -> None:
    if found := re.search(pattern, value):
        raise Unquotable(
            Message(
                "%(value)s cannot be written in %(format)s because of %(sign)s",
                value=repr(value),
                format=file_format,
                sign=repr(found[0]),
            )
        )


def quote_json(value: Any) -> str:
    """Also for YAML, TOML and JavaScript; TOML knows no surrogate pairs, so text stays as it is."""
    return json.dumps(value, ensure_ascii=False)


def quote_php(value: str) -> str:
    """Also for Ruby: neither expands anything between apostrophes."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def quote_python(value: Any) -> str:
    return repr(value)


def quote_hcl(value: str) -> str:
    """JSON, but for Terraform's templates."""
    return quote_json(value).replace("${", "$${").replace("%{", "%%{")


def quote_apache(value: str) -> str:
    """Apache expands variables in quotes, too."""
    _unless(r"[$%]\{", value, Message("an Apache configuration"))
    return quote_json(value)


def quote_ini(value: str) -> str:
    """Readers differ in what they unescape and expand; none of that is in what is let through."""
    _unless(r'["\\`]|%\(|\$(__\w+)?\{', value, Message("an INI file"))
    is_bare = re.fullmatch(r"[\w.(\[][^;#]*", value) and value == value.strip()
    return value if is_bare else f'"{value}"'


def quote_env(value: str) -> str:
    """For shells, systemd, Docker Compose and dotenv libraries alike."""
    if _BARE.fullmatch(value):
        return value
    _unless(r"\\", value, Message("an environment file"))
    if "'" not in value:
        return f"'{value}'"
    _unless(r'["$`]', value, Message("an environment file, together with an apostrophe,"))
    return f'"{value}"'


def quote_xml(value: str) -> str:
    return escape(value, {'"': "&quot;", "'": "&apos;"})


FILTERS: Mapping[str, Callable[[Any], str]] = {
    "json": quote_json,
    "shell": shlex.quote,
    "php": quote_php,
    "python": quote_python,
    "hcl": quote_hcl,
    "apache": quote_apache,
    "ini": quote_ini,
    "env": quote_env,
    "xml": quote_xml,
}
