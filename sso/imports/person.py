"""One person of an export."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sso.crypto.foreign_hashes import Refused
from sso.errors import OperatorError
from sso.flow.scopes import OPERATOR_CLAIMS

NO_EMAIL = "there is no email address"
# Taken over as texts.
TEXT_CLAIMS = OPERATOR_CLAIMS - {"address", "phone_number_verified"}
APPS, KEYS, CODES = "authenticator apps", "passkeys and security keys", "recovery codes"
IDENTITIES = "links to other identity providers"
SHOWN = 100  # characters of an email address in a report
_MOST = 3000  # characters of a text; every limit for what is stored is lower


class FileProblem(OperatorError):
    """The file cannot be read, or not any further."""


@dataclass
class Person:
    """What an export says of somebody; checked when it is imported.

    `where`: the place in the file. `refused`: why this one is not imported; `detail` is about this
    one alone. `lost`: what of theirs the export has and nobody can take over.
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
    groups: list[str] = field(default_factory=list)
    claims: dict[str, Any] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    refused: str | None = None
    detail: str = ""

    def take_password(self, make: Callable[[], str | None]) -> None:
        try:
            self.password_hash = make()
        except Refused as error:
            self.password_problem = f"the password: {error}"

    def take_claims(self, found: dict[str, Any]) -> None:
        """Texts under the names of claims."""
        self.claims |= {
            name: value for name in TEXT_CLAIMS & found.keys() if (value := text(found[name]))
        }

    def take_names(self, *names: Any, email: Any, username: Any) -> None:
        """The first name that is there; some systems have the email address as the user name."""
        login = text(username)
        self.email = text(email) or (login if "@" in login else "")
        both = " ".join(filter(None, (self.claims.get(n) for n in ("given_name", "family_name"))))
        found = [*map(text, names), both, login, self.email.partition("@")[0]]
        self.name = next(filter(None, found), "")
        if not self.email:
            self.refused, self.detail = NO_EMAIL, login[:SHOWN]


def text(value: Any) -> str:
    return value.strip()[:_MOST] if isinstance(value, str) else ""


def texts(value: Any) -> list[str]:
    """The texts of a list."""
    return [one for each in value if (one := text(each))] if isinstance(value, list) else []


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def flag(value: Any) -> bool:
    """Databases without booleans have numbers."""
    return value is True or value == 1
