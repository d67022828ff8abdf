"""Search filters: the operator's text (RFC 4515), and conditions that carry a person's input.

Input becomes an assertion value of the protocol. It is never put into a text, so there is nothing
to escape, and nothing to inject.
"""

import re

from sso.ldap import messages

_AND, _OR, _NOT, _EQUAL, _SUBSTRINGS = 0xA0, 0xA1, 0xA2, 0xA3, 0xA4
_AT_LEAST, _AT_MOST, _PRESENT, _ALIKE, _EXTENSIBLE = 0xA5, 0xA6, 0x87, 0xA8, 0xA9
_OPERATORS = {">": _AT_LEAST, "<": _AT_MOST, "~": _ALIKE}
_DEEPEST = 20
_ATTRIBUTE = re.compile(r"(?:[A-Za-z][A-Za-z0-9-]*|\d+(?:\.\d+)+)(?:;[A-Za-z0-9-]+)*")
_RULE = re.compile(r"[A-Za-z][A-Za-z0-9-]*|\d+(?:\.\d+)+")
_VALUE = re.compile(r"(?:[^()\\\0]|\\[0-9A-Fa-f]{2})*")
_ESCAPED = re.compile(rb"\\([0-9A-Fa-f]{2})")

# LDAP_MATCHING_RULE_IN_CHAIN of Active Directory: a DN, directly or by nested groups.
IN_CHAIN = "1.2.840.113556.1.4.1941"


def is_attribute(name: str) -> bool:
    """Return whether an attribute may have this name."""
    return _ATTRIBUTE.fullmatch(name) is not None


def equal(attribute: str, value: bytes) -> bytes:
    """Return the filter that an attribute has this value."""
    return messages.encode(
        _EQUAL, messages.text(attribute), messages.encode(messages.OCTETS, value)
    )


def matching(attribute: str, rule: str, value: bytes) -> bytes:
    """Return the filter that an attribute matches this value by a matching rule of the server."""
    parts = ((0x81, rule.encode()), (0x82, attribute.encode()), (0x83, value))
    return messages.encode(_EXTENSIBLE, *(messages.encode(tag, part) for tag, part in parts))


def every(*conditions: bytes) -> bytes:
    """Return the filter that all of these conditions hold."""
    return messages.encode(_AND, *conditions)


def either(*conditions: bytes) -> bytes:
    """Return the filter that one of these conditions holds."""
    return messages.encode(_OR, *conditions)


def parse(text: str) -> bytes:
    """Parse an operator's filter. Raises `ValueError` with what is wrong."""
    parser = _Parser(text.strip())
    encoded = parser.condition(0)
    if parser.at != len(parser.text):
        raise parser.error("nothing may follow the filter")
    return encoded


class _Parser:
    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0

    def error(self, text: str) -> ValueError:
        return ValueError(f"{text} (character {self.at + 1} of the filter)")

    def accept(self, character: str) -> bool:
        is_next = self.text.startswith(character, self.at)
        self.at += len(character) if is_next else 0
        return is_next

    def expect(self, character: str) -> None:
        if not self.accept(character):
            raise self.error(f'"{character}" is missing')

    def condition(self, depth: int) -> bytes:
        if depth > _DEEPEST:
            raise self.error("the parentheses are too deep")
        self.expect("(")
        for character, tag in (("&", _AND), ("|", _OR), ("!", _NOT)):
            if self.accept(character):
                parts = [self.condition(depth + 1)]
                while tag != _NOT and self.text.startswith("(", self.at):
                    parts.append(self.condition(depth + 1))
                encoded = messages.encode(tag, *parts)
                break
        else:
            encoded = self.comparison()
        self.expect(")")
        return encoded

    def comparison(self) -> bytes:
        attribute = self.read(_ATTRIBUTE)
        if self.accept(":"):
            return self.extensible(attribute)
        if not attribute:
            raise self.error("an attribute is missing")
        for character, tag in _OPERATORS.items():
            if self.accept(character + "="):
                return messages.encode(
                    tag, messages.text(attribute), messages.encode(messages.OCTETS, self.value())
                )
        self.expect("=")
        pieces = [_unescaped(piece) for piece in self.read(_VALUE).split("*")]
        if len(pieces) == 1:
            return equal(attribute, pieces[0])
        if pieces == [b"", b""]:
            return messages.encode(_PRESENT, attribute.encode())
        tags = [0x80, *[0x81] * (len(pieces) - 2), 0x82]
        encoded_pieces = [
            messages.encode(tag, piece) for tag, piece in zip(tags, pieces, strict=True) if piece
        ]
        if not encoded_pieces:
            raise self.error("only asterisks are given")
        return messages.encode(
            _SUBSTRINGS,
            messages.text(attribute),
            messages.encode(messages.SEQUENCE, *encoded_pieces),
        )

    def extensible(self, attribute: str) -> bytes:
        by_dn = self.accept("dn:")
        rule = ""
        if not self.accept("="):
            rule = self.read(_RULE)
            self.expect(":=")
        if not rule and not attribute:
            raise self.error("an attribute or a matching rule is missing")
        parts = [(0x81, rule.encode()), (0x82, attribute.encode())]
        encoded = [messages.encode(tag, part) for tag, part in parts if part]
        encoded.append(messages.encode(0x83, self.value()))
        if by_dn:
            encoded.append(messages.encode(0x84, b"\xff"))
        return messages.encode(_EXTENSIBLE, *encoded)

    def value(self) -> bytes:
        text = self.read(_VALUE)
        if "*" in text:
            raise self.error("an asterisk is allowed only after =")
        return _unescaped(text)

    def read(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        self.at = match.end() if match else self.at
        return match[0] if match else ""


def _unescaped(text: str) -> bytes:
    return _ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()), text.encode())
