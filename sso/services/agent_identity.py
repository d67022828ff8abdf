"""How an agent is named to people: what is verified about it, and the name that it claims.

Nobody vouches for an agent. Its domain is verified if its metadata document is there, for one port
of that host; a client that registered itself has nothing verified. Anybody can claim any name, so a
claimed name is always marked as such, and one that could be mistaken for somebody else's is not
shown.
"""

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from flask_babel import gettext

from sso.config import urls
from sso.models.clients import DOCUMENT
from sso.services import client_documents
from sso.store import clients

# Invisible, private, unassigned or pictorial: a check mark could pass for one of this page.
_UNFIT = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Sk", "So", "Zl", "Zp"})
_LETTERS = frozenset({"Ll", "Lm", "Lo", "Lt", "Lu"})
# Scripts that one word may mix (Unicode TS 39 §5.2, "highly restrictive").
_MIXED = frozenset(
    {"LATIN", "CJK", "HIRAGANA", "KATAKANA", "BOPOMOFO", "HANGUL", "KATAKANA-HIRAGANA"}
)
_DOTS = str.maketrans(dict.fromkeys("\u3002\uff0e\uff61\u2024\u00b7\u2022\u30fb\u0701\u0702", "."))
_DOMAIN = re.compile(r"(?:[^\W_](?:[\w-]*[^\W_])?\.)+[^\W\d_]{2,}(?::\d+)?")


class Registration(Protocol):
    """A client, from the table or from its document."""

    @property
    def client_id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def registration(self) -> str | None: ...


@dataclass(frozen=True)
class AgentIdentity:
    """What is known about an agent.

    `domain`: where its metadata document is, with the port unless that is 443; `None` if it
    registered itself. `name`: what it calls itself; `None` if that could be mistaken for somebody
    else's. `is_local`: the answer goes to a program on the device of the user, and any program
    there could pretend to be this agent.
    """

    domain: str | None
    name: str | None
    is_local: bool


def identity_of(client: Registration, redirect_uri: str) -> AgentIdentity:
    """Return what is known about an agent that asks for an answer at a redirect URI."""
    return AgentIdentity(_domain_of(client), claimed_name_of(client), urls.is_native(redirect_uri))


def claimed_name_of(client: Registration) -> str | None:
    """Return what an agent calls itself; `None` if that could be mistaken for somebody else's."""
    return None if is_misleading(client.name, _domain_of(client)) else client.name


def title_of(client: Registration) -> str:
    """Return the name of a client for people: of an agent its domain, never what it claims."""
    if client.registration is None:
        return client.name
    return _domain_of(client) or gettext("an unverified application")


def label_of(client: Registration) -> str:
    """Return the name of a client for operators, who have to tell all clients apart.

    Of an agent it is its domain, or its client ID if nothing about it is verified.
    """
    if client.registration is None:
        return client.name
    return _domain_of(client) or client.client_id


def labels(client_ids: Iterable[str]) -> dict[str, str]:
    """Return the names of clients for operators by client ID, without clients that are deleted."""
    return {client.client_id: label_of(client) for client in clients.with_ids(client_ids)}


def described(client: Registration) -> str:
    """Return the name of a client for a command: of an agent what is verified, and its claim."""
    if client.registration is None:
        return client.name
    name = claimed_name_of(client)
    title = _domain_of(client) or "unverified"
    return f"{title}, calls itself {name}" if name else title


def _domain_of(client: Registration) -> str | None:
    is_verified = client.registration == DOCUMENT
    return client_documents.authority_of(client.client_id) if is_verified else None


def is_misleading(name: str, domain: str | None) -> bool:
    """Return whether a claimed name could be mistaken for somebody else's.

    It could if it has a domain, or port, other than `domain`, mixes scripts within a word, or has
    characters that are invisible or pictures.
    """
    normal = unicodedata.normalize("NFKC", name)
    if any(unicodedata.category(character) in _UNFIT for character in name + normal):
        return True
    for match in _DOMAIN.finditer(normal.translate(_DOTS).casefold()):
        if match[0] != domain:
            return True
    return any(len(_scripts_in(word)) > 1 for word in re.split(r"[\W\d_]+", normal))


def _scripts_in(word: str) -> set[str]:
    """Return the scripts of the letters of a word; those that may be mixed count as one."""
    letters = (letter for letter in word if unicodedata.category(letter) in _LETTERS)
    scripts = {unicodedata.name(letter, "?").split()[0] for letter in letters}
    return scripts - _MIXED | ({"LATIN"} if scripts & _MIXED else set())
