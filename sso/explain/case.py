"""What the checks look at, and what they answer.

Applications are told the description of a refusal in English. Where it is shown as a cause, it is
translated, if it is in `DESCRIPTIONS`.
"""

import json
import shlex
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from sso import context
from sso.config.settings import Settings
from sso.config.urls import marks, url_differences
from sso.i18n import N_
from sso.i18n.message import Message, joined
from sso.models import Client, Refusal, User
from sso.observability.redaction import HIDDEN, redact_url
from sso.process.program import COMMAND
from sso.store import clients, users

EXPECTED, REGISTERED = Message("expected"), Message("registered now")


@dataclass(frozen=True)
class Comparison:
    """What was received, and beside it what it should have been."""

    name: str
    received: str
    expected_label: Message
    expected: str
    differences: list[Message]
    marks: str


@dataclass(frozen=True)
class Explanation:
    """`command` fixes it, and can be run as it is; without one, `fix` says where to change what.

    `cause` is a `Message`, or the description that the application was sent.
    """

    cause: str
    fix: Message
    command: str | None = None
    comparison: Comparison | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Case:
    """A refusal, and what is known now of its client and user."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        self.details: dict[str, Any] = json.loads(refusal.details)

    def __getitem__(self, name: str) -> str:
        """A detail as text; empty if there is none."""
        value = self.details.get(name)
        return "" if value is None else str(value)

    def moment(self, name: str) -> datetime | None:
        return datetime.fromisoformat(self[name]) if self[name] else None

    @property
    def reason(self) -> str:
        return self["reason"]

    @cached_property
    def client(self) -> Client | None:
        return clients.find(self.refusal.client_id) if self.refusal.client_id else None

    @cached_property
    def user(self) -> User | None:
        return users.find(self.refusal.user_id) if self.refusal.user_id else None

    @property
    def settings(self) -> Settings:
        return context.settings()

    def update(self, *options: str) -> str | None:
        """The command that changes the client so."""
        return self.command("client", "update", *options)

    def command(self, group: str, verb: str, *options: str) -> str | None:
        client = self.client
        return command(group, verb, client.client_id, *options) if client else None


def command(*words: str) -> str:
    return shlex.join([COMMAND, *words])


def sentences(*parts: Message) -> Message:
    return joined(N_("%(one)s %(other)s"), parts)


def moment(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"


def named(client: Client) -> str:
    return f"{client.name} ({client.client_id})"


def compared(name: str, received: str, label: Message, expected: str) -> Comparison:
    """Of two URLs. What is not ASCII is shown as escapes: letters may look alike."""
    received, expected = (
        HIDDEN.join(part.encode("ascii", "backslashreplace").decode() for part in url.split(HIDDEN))
        for url in (received, expected)
    )
    kept = kept_of(expected, received)
    found = [one.message for one in url_differences(received, kept)]
    return Comparison(name, received, label, expected, found, marks(received, kept))


def kept_of(expected: str, received: str) -> str:
    """What would have been kept of the expected URL, if something of the received one is hidden."""
    return redact_url(expected) if HIDDEN in received else expected


_MISSING = ("client_id", "code_challenge", "grant_type", "redirect_uri", "token")
_UNSUPPORTED = ("registration", "request", "request_uri")
DESCRIPTIONS = {
    *(Message("The parameter '%(name)s' is missing.", name=name) for name in _MISSING),
    *(
        Message("The parameter '%(name)s' is not supported; leave it out.", name=name)
        for name in _UNSUPPORTED
    ),
    Message("A claim in 'claims' is neither null nor a JSON object."),
    Message("Another user is signed in than the request names, and prompt=none forbids a sign-in."),
    Message("The 'code_challenge' is not 43 characters of base64url."),
    Message("The 'code_challenge_method' has to be S256."),
    Message("The 'dpop_jkt' is not 43 characters of base64url."),
    Message("The 'max_age' is not a number of seconds."),
    Message("The 'prompt' has a value other than none, login, consent, select_account."),
    Message("The 'prompt' has none together with another value."),
    Message("The access token is sent in two places; use one."),
    Message("The client authenticates in two ways at once; use one (RFC 6749 section 2.3)."),
    Message("The client is registered without an authorization_signed_response_alg."),
    Message("The header and the body name two different clients."),
    Message("The only response_type is code."),
    Message("The parameter 'claims' is not JSON."),
    Message("The parameter 'claims' is not a JSON object."),
    Message("The parameter 'response_type' is missing; send code."),
    Message("The parameter 'state' is missing; send a random value and compare it on return."),
    Message("The required acr was not reached."),
    Message("The sign-in is older than max_age allows, and prompt=none forbids a new one."),
    Message("The user has to choose an account, and prompt=none forbids it."),
    Message("The user has to consent, and prompt=none forbids it."),
    Message("The user has to set up a second factor, and prompt=none forbids it."),
    Message("The user has to show a second factor, and prompt=none forbids it."),
    Message("The user has to sign in again, and prompt=none forbids it."),
    Message("The user has to sign in, and prompt=none forbids it."),
    Message("The user refused."),
    Message("The user withholds every scope that was asked for."),
}
_BY_TEXT: dict[str, Message] = {text: text for text in DESCRIPTIONS}


def described(case: Case) -> str:
    """The description as a cause."""
    return _BY_TEXT.get(case["description"], case["description"])
