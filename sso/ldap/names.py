"""Distinguished names (RFC 4514), to compare what an operator wrote with what a server says."""

import re

_SPLIT = re.compile(r"((?:[^\\,;+]|\\.)*)([,;+]|\Z)", re.DOTALL)
_ESCAPED = re.compile(rb"\\([0-9A-Fa-f]{2}|.)", re.DOTALL)


def is_name(text: str) -> bool:
    """Whether it looks like a distinguished name, and not like the short name of a group."""
    return "=" in text


def normal(name: str) -> str:
    """The same text for each spelling of a name: without case, escapes and needless spaces."""
    parts = []
    for match in _SPLIT.finditer(name):
        attribute, value = _pair(match[1])
        parts.append(f"{attribute}={value!r}" if attribute else "")
        parts.append("+" if match[2] == "+" else ",")
    return "".join(parts).strip(",").casefold()


def first_value(name: str) -> str:
    """The value that a name begins with: usually the short name of what it names."""
    match = _SPLIT.match(name)
    return _pair(match[1])[1] if match else ""


def _pair(text: str) -> tuple[str, str]:
    attribute, _, value = text.partition("=")
    return attribute.strip().lower(), _plain(value)


def _plain(value: str) -> str:
    stripped = value.strip()
    if re.search(r"(?<!\\)(?:\\\\)*\\\Z", stripped):  # an escaped space at the end
        stripped += " "

    def one(match: re.Match[bytes]) -> bytes:
        escaped = match[1]
        return bytes.fromhex(escaped.decode()) if len(escaped) == 2 else escaped

    plain = _ESCAPED.sub(one, stripped.encode("utf-8", "surrogatepass"))
    return re.sub(r"\s+", " ", plain.decode(errors="replace"))
