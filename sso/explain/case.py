"""The input and the result of a check."""

import json
import shlex
from collections.abc import Collection
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from sso import context
from sso.config.settings import Settings
from sso.config.urls import marks, url_differences
from sso.explain import uncoded
from sso.flow.refusals import Cause, Reason, describe
from sso.i18n import N_
from sso.i18n.message import Message, joined
from sso.models import Client, Refusal, User
from sso.observability.redaction import HIDDEN, redact_url
from sso.process.program import COMMAND
from sso.store import clients, users

_ANOTHER = Message("another application")
EXPECTED, REGISTERED = Message("expected"), Message("registered now")


@dataclass(frozen=True)
class Comparison:
    """A received value and the expected one."""

    name: str
    received: str
    expected_label: Message
    expected: str
    differences: list[Message]
    marks: str


@dataclass(frozen=True)
class Explanation:
    """The cause of a refusal and its fix. `command`: a command that fixes it, ready to run.

    `cause` is a `Message`, or the description that was sent to the application.
    """

    cause: str
    fix: Message
    command: str | None = None
    comparison: Comparison | None = None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Case:
    """A refusal, with the current state of its client and its user.

    `among`: the IDs of the clients that the reader may know of, unless these are all.
    """

    def __init__(self, refusal: Refusal, among: Collection[str] | None = None) -> None:
        self.refusal, self.among = refusal, among
        self.details: dict[str, Any] = json.loads(refusal.details)
        self._facts = {**uncoded.facts_of(self.details), **self.details}
        # A newer version may have stored codes that this one does not know.
        self.cause = Cause(self["code"]) if self["code"] in set(Cause) else None
        self.reason = Reason(self["reason_code"]) if self["reason_code"] in set(Reason) else None

    def __getitem__(self, name: str) -> str:
        """Return a detail as text; empty if there is none."""
        value = self._facts.get(name)
        return "" if value is None else str(value)

    def moment(self, name: str) -> datetime | None:
        return datetime.fromisoformat(self[name]) if self[name] else None

    @cached_property
    def client(self) -> Client | None:
        return clients.find(self.refusal.client_id) if self.refusal.client_id else None

    @cached_property
    def user(self) -> User | None:
        return users.find(self.refusal.user_id) if self.refusal.user_id else None

    @property
    def settings(self) -> Settings:
        return context.settings()

    @property
    def issuer(self) -> str:
        """The issuer that the client of the refusal knows."""
        return self.settings.issuer_of(self.client) if self.client else self.settings.issuer

    def sees(self, client_id: str) -> bool:
        """Return whether the reader may know of a client."""
        return self.among is None or client_id in self.among

    @property
    def issued_to(self) -> str:
        """Name the client that a code or a token was issued to."""
        client_id = self["issued_to"]
        if not self.sees(client_id):
            return _ANOTHER
        owner = clients.find(client_id)
        return named(owner) if owner else client_id

    def update(self, *options: str) -> str | None:
        """Return the command that updates the client with these options."""
        return self.command("client", "update", *options)

    def command(self, group: str, verb: str, *options: str) -> str | None:
        client = self.client
        return command(group, verb, client.client_id, *options) if client else None


def command(*arguments: str) -> str:
    return shlex.join([COMMAND, *arguments])


def sentences(*parts: Message) -> Message:
    return joined(N_("%(one)s %(other)s"), parts)


def moment(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"


def named(client: Client) -> str:
    """Name a client by what is verified: an agent by its client ID alone."""
    return client.client_id if client.is_agent else f"{client.name} ({client.client_id})"


def compared(name: str, received: str, label: Message, expected: str) -> Comparison:
    """Compare two URLs. Characters outside ASCII are escaped, because letters may look alike."""
    received, expected = (
        HIDDEN.join(part.encode("ascii", "backslashreplace").decode() for part in url.split(HIDDEN))
        for url in (received, expected)
    )
    redacted_url = redacted_like(expected, received)
    differences = [difference.message for difference in url_differences(received, redacted_url)]
    return Comparison(name, received, label, expected, differences, marks(received, redacted_url))


def redacted_like(expected: str, received: str) -> str:
    """Redact the expected URL if the stored one is redacted, so that they can be compared."""
    return redact_url(expected) if HIDDEN in received else expected


def described(case: Case) -> str:
    """Return the description as a cause: a `Message` if its code is known."""
    if case.cause is None:
        return case["description"]
    return describe(case.cause, name=case["name"], resource=case["resource"])
