"""The parts of a preset. Their types say how `config.tables` reads the file."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from sso.config.auth_methods import PRIVATE_KEY_JWT, has_secret
from sso.errors import OperatorError


@dataclass(frozen=True)
class Registration:
    """The client's registration; texts are templates."""

    redirect_uris: tuple[str, ...]
    scope: str
    auth_method: str
    require_pkce: bool
    id_token_claims: str
    post_logout_redirect_uris: tuple[str, ...] = ()
    backchannel_logout_uri: str | None = None
    id_token_alg: str = "RS256"  # noqa: S105 (no password)
    public: bool = False
    home_url: str | None = None
    profile: str | None = None
    proxy_urls: tuple[str, ...] = ()
    entity_id: str | None = None
    acs_urls: tuple[str, ...] = ()
    logout_url: str | None = None
    name_id: str | None = None
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Option:
    """A value that differs between installations; without a default it is required.

    `example`: such a value, where not any text is one. `is_origin`: it is a scheme, a host and
    perhaps a port.
    """

    help: str
    default: str | None = None
    example: str | None = None
    choices: tuple[str, ...] = ()
    is_origin: bool = False


@dataclass(frozen=True)
class Block:
    """A part of the application's configuration. `title`, `where` and `text` are templates."""

    title: str
    kind: str
    text: str
    where: str = ""
    alternative: str | None = None
    language: str = "text"


@dataclass(frozen=True)
class Note:
    text: str


@dataclass(frozen=True)
class Source:
    """Where a fact comes from: the application's documentation or code."""

    fact: str
    url: str


@dataclass(frozen=True)
class Preset:
    """An application. `url` is an example; `None`: the application has no URL of its own.

    `preparation`: the commands that make its keys, before it is registered.
    """

    name: str
    title: str
    summary: str
    homepage: str
    version: str
    looked_up: date
    test: str
    registration: Registration
    setup: tuple[Block, ...]
    sources: tuple[Source, ...]
    aliases: tuple[str, ...] = ()
    url: str | None = None
    preparation: str = ""
    requires: tuple[str, ...] = ()
    options: Mapping[str, Option] = dataclasses.field(default_factory=dict)
    notes: tuple[Note, ...] = ()

    @property
    def has_secret(self) -> bool:
        return has_secret(self.registration.auth_method)

    @property
    def is_saml(self) -> bool:
        return self.registration.entity_id is not None

    @property
    def has_keys(self) -> bool:
        return self.registration.auth_method == PRIVATE_KEY_JWT

    @property
    def alternatives(self) -> list[str]:
        """The ways to set it up, of which one is enough."""
        return list(dict.fromkeys(block.alternative for block in self.setup if block.alternative))


class PresetError(OperatorError, ValueError):
    """`errors` has one line for each reason."""

    def __init__(self, errors: Sequence[str]) -> None:
        super().__init__("; ".join(errors))
        self.errors = list(errors)
