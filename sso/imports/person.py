"""One person of an export."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sso.crypto.foreign_hashes import Refused
from sso.errors import OperatorError
from sso.flow.profile_claims import TEXT_CLAIMS

NO_EMAIL = "there is no email address"
APPS, KEYS, CODES = "authenticator apps", "passkeys and security keys", "recovery codes"
IDENTITIES = "links to other identity providers"
KEYS_OF_OTHERS = f"{KEYS} that somebody else has, too"
LINKS_OF_OTHERS = f"{IDENTITIES} that somebody else has, too"
SHOWN = 100  # characters of an email address in a report
_LONGEST_JSON = 20_000  # characters
ANY_HANDLE = "*"
_MOST = 3000  # characters of a text; every limit for what is stored is lower


class FileProblem(OperatorError):
    """The file cannot be read, or not beyond an error.

    `within`: the problem and its line without the path of the file, if the file is CSV.
    """

    within: str = ""


@dataclass(frozen=True)
class StoredPasskey:
    """A passkey of another server with the same relying party; base64url, as it is stored here.

    `user_handle`: what the authenticator calls the user, unless that is the user's ID;
    `ANY_HANDLE` if the other server has not stored it.
    """

    credential_id: str
    public_key: str
    sign_count: int
    transports: str
    name: str
    user_handle: str = ""


@dataclass
class Factors:
    """Second factors and links of a person, as they are stored here.

    `totp`: the secret in base32. `recovery_codes`: digests. `identities`: the provider's ID here,
    the issuer and the subject. `consents`: scopes by client ID.
    """

    totp: str = ""
    passkeys: list[StoredPasskey] = field(default_factory=list)
    recovery_codes: list[str] = field(default_factory=list)
    identities: list[tuple[str, str, str]] = field(default_factory=list)
    consents: dict[str, list[str]] = field(default_factory=dict)

    def labels(self) -> list[str]:
        """Return a text for each, without the secrets: what was taken once is not taken again."""
        return [
            *(["totp"] if self.totp else ()),
            *(f"passkey {passkey.credential_id[:40]}" for passkey in self.passkeys),
            *(["recovery codes"] if self.recovery_codes else ()),
            *(f"identity {issuer} {subject}" for _, issuer, subject in self.identities),
            *(f"consent {client_id}" for client_id in self.consents),
        ]


@dataclass
class Person:
    """A person of an export; the values are checked when they are imported.

    `where`: the place in the file. `refused`: the reason why the person is not imported; `detail`:
    specific to this person. `attributes`: texts that stand for values.
    `names_attributes`: the file means attributes of this server. `subjects`: names of attributes by
    which applications know people, and which the other server has set, not the person. `lost`: data
    of the export that cannot be imported. `factors`: only a migration takes them.
    """

    where: str
    email: str = ""
    name: str = ""
    source_id: str = ""
    user_id: UUID | None = None
    password_hash: str | None = None
    password_problem: str | None = None
    email_verified: bool = False
    disabled: bool = False
    ends_at: str = ""
    group_ends: dict[str, str] = field(default_factory=dict)
    groups: list[str] = field(default_factory=list)
    claims: dict[str, Any] = field(default_factory=dict)
    attributes: dict[str, str | list[str]] = field(default_factory=dict)
    names_attributes: bool = False
    subjects: set[str] = field(default_factory=set)
    lost: list[str] = field(default_factory=list)
    refused: str | None = None
    detail: str = ""
    factors: Factors = field(default_factory=Factors)

    def take_password(self, make: Callable[[], str | None]) -> None:
        try:
            self.password_hash = make()
        except Refused as error:
            self.password_problem = f"the password: {error}"

    def take_claims(self, entry: dict[str, Any]) -> None:
        """Copy the values that have names of claims."""
        self.claims |= {name: value for name in TEXT_CLAIMS if (value := text(entry.get(name)))}

    def take_names(self, *names: Any, email: Any, username: Any) -> None:
        """Set the first name that is not empty; the user name may be the email address."""
        login = text(username)
        self.email = text(email) or (login if "@" in login else "")
        both = " ".join(filter(None, (self.claims.get(n) for n in ("given_name", "family_name"))))
        candidates = [*map(text, names), both, login, self.email.partition("@")[0]]
        self.name = next(filter(None, candidates), "")
        if not self.email:
            self.refused, self.detail = NO_EMAIL, login[:SHOWN]


def text(value: Any) -> str:
    return value.strip()[:_MOST] if isinstance(value, str) else ""


def exact(value: Any) -> str:
    """Return a text with the spaces around it, for names that differ by them."""
    return value[:_MOST] if isinstance(value, str) else ""


def exact_texts(value: Any) -> list[str]:
    """Return the non-empty texts of a list, with the spaces around them."""
    items = map(exact, value) if isinstance(value, list) else ()
    return [item for item in items if item]


def texts(value: Any) -> list[str]:
    """Return the non-empty texts of a list."""
    items = map(text, value) if isinstance(value, list) else ()
    return [item for item in items if item]


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def json_value(value: Any) -> Any:
    """Parse a text of JSON; `None` if it is something else. Other values stay."""
    plain = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    try:
        return json.loads(plain[:_LONGEST_JSON]) if isinstance(plain, str) else plain
    except (ValueError, RecursionError):
        return None


def flag(value: Any) -> bool:
    """Return a flag; databases without booleans have numbers."""
    return value is True or value == 1
