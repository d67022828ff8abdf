"""Clients and people of another server, taken over again and again until the evening of the move.

What was taken is recorded. So a later migration tells three states apart: what the other server
said then, what it says now, and what is here. It brings what changed there, touches nothing else,
and does not overwrite what changed here, unless the operator says so.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sso import audit
from sso.audit import Actor
from sso.config.client_fields import FIELDS
from sso.crypto import secrets
from sso.errors import OperatorError
from sso.extensions import db
from sso.flow.attributes import IMPORT
from sso.imports.findings import Fate, Finding
from sso.imports.person import Person
from sso.models import Client
from sso.services import (
    accounts,
    attributes,
    checks,
    clients,
    credentials,
    importing,
    migrated_factors,
    roles,
    second_factors,
)
from sso.services.changes import ListEdit
from sso.services.checks import Invalid
from sso.services.importing import Outcome, Rules
from sso.store import clients as stored_clients
from sso.store import factors, migrated, named_groups, password_hashes, secret_hashes, users
from sso.store import groups as memberships
from sso.store.migrated import CLIENT, USER

_SECRET = "secret"  # noqa: S105 (a name: its digest, among the fields that were taken)
_LEFT = ("client_id", "logo", "preset")  # which a migration does not bring


@dataclass
class NewClient:
    """A client of the other server as it would be registered here.

    `secret`: `None` if the export does not have it; `secret_hash`: if it has only a hash; `name`:
    what the other server calls the client.
    """

    client_id: str
    name: str
    fields: Mapping[str, Any]
    secret: str | None = None
    secret_hash: str | None = None

    @property
    def secret_digest(self) -> str | None:
        """What is stored of its secret."""
        if self.secret_hash is not None:
            return secrets.digest_of_foreign_secret(self.secret_hash)
        return secrets.digest(self.secret) if self.secret is not None else None


@dataclass
class PlannedClient:
    """What becomes of a client. `edits`: the fields to write; `before`: what they are now.

    `taken`: what is recorded.
    """

    new: NewClient
    fate: Fate
    is_new: bool = False
    edits: dict[str, Any] = field(default_factory=dict)
    before: dict[str, Any] = field(default_factory=dict)
    has_new_secret: bool = False
    taken: dict[str, Any] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def note(self, fate: Fate, what: str, why: str, remedy: str = "") -> None:
        self.findings.append(Finding(fate, "client", self.new.name, what, why, remedy))


TAKEN_BEFORE = "taken over before"
CHANGED_TOO = "changed there and here"
_OF_STAFF = "administers this server: to take changes of administrators, --allow-admins"
_OVERWRITE = "to take it from there: --overwrite"


def client_ids(source: str) -> set[str]:
    """Return the IDs of the clients that came from a source."""
    return migrated.keys(CLIENT, source)


def plan_clients(new: Sequence[NewClient], source: str, *, overwrite: bool) -> list[PlannedClient]:
    """Compare clients with those that are here; writes nothing, locks nothing."""
    ids = [client.client_id for client in new]
    rows, taken = stored_clients.detached(ids), migrated.taken(CLIENT, source, ids)
    originals = secret_hashes.originals(ids)
    for row in rows.values():
        row.secret_digest = originals.get((row.client_id, row.secret_digest), row.secret_digest)
    return [
        _planned(client, rows.get(client.client_id), taken.get(client.client_id), overwrite)
        for client in new
    ]


def _planned(
    new: NewClient, row: Client | None, taken: dict[str, Any] | None, overwrite: bool
) -> PlannedClient:
    try:
        fields = clients.plan_registration(
            new.fields, client_id=new.client_id, secret=new.secret, secret_hash=new.secret_hash
        )
    except Invalid as error:
        planned = PlannedClient(new, Fate.NOT_TAKEN)
        planned.note(Fate.NOT_TAKEN, "", "; ".join(map(str, error.errors))[:500])
        return planned
    planned = PlannedClient(new, Fate.TAKEN)
    planned.taken = {name: value for name, value in fields.items() if name not in _LEFT}
    if new.secret_digest is not None:
        planned.taken[_SECRET] = new.secret_digest
    if row is None and (taken is None or overwrite):
        planned.is_new = True
    elif row is None:
        planned.fate = Fate.KEPT
        planned.note(Fate.KEPT, "", "it was deleted here since", _OVERWRITE)
    elif taken is None and not overwrite:
        planned.fate = Fate.KEPT
        planned.note(Fate.KEPT, "", "there is a client with this ID, not from there", _OVERWRITE)
    else:
        _compare(planned, row, taken or {}, overwrite)
    return planned


def _compare(
    planned: PlannedClient, row: Client, taken: Mapping[str, Any], overwrite: bool
) -> None:
    """Find the fields that changed there since, and those that changed here, too."""
    here, there = {**clients.described(row), _SECRET: row.secret_digest}, planned.taken
    names = [name for name in {**taken, **there} if name not in _LEFT]
    for name in names:
        if name == _SECRET and name not in there:
            continue
        value = _comparable(there.get(name))
        if value == _comparable(here.get(name)):
            continue
        is_news = value != _comparable(taken.get(name))
        is_changed_here = _comparable(here.get(name)) != _comparable(taken.get(name))
        if overwrite or (is_news and not is_changed_here):
            planned.before[name] = here.get(name)
            planned.edits[name] = there.get(name)
        elif is_news:
            planned.note(
                Fate.KEPT, name, "it changed there and here: " + _both(name, here, there),
                _OVERWRITE,
            )  # fmt: skip
            there[name] = taken.get(name)
    planned.fate = Fate.CHANGED if planned.edits else Fate.SAME
    planned.has_new_secret = planned.edits.pop(_SECRET, None) is not None
    planned.before.pop(_SECRET, None)
    try:
        secret, secret_hash = _secret_of(planned)
        clients.plan_change(row, planned.edits, secret=secret, secret_hash=secret_hash)
    except Invalid as error:
        planned.fate, planned.edits, planned.has_new_secret = Fate.NOT_TAKEN, {}, False
        planned.taken = dict(taken)
        planned.note(Fate.NOT_TAKEN, "", "; ".join(map(str, error.errors))[:500])


def _secret_of(client: PlannedClient) -> tuple[str | None, str | None]:
    """Return the new secret and its hash, of which one is there; neither if it is not new."""
    return (client.new.secret, client.new.secret_hash) if client.has_new_secret else (None, None)


def _both(name: str, here: Mapping[str, Any], there: Mapping[str, Any]) -> str:
    if name == _SECRET:
        return "the secrets differ"
    return f"{str(there.get(name))[:100]} there, {str(here.get(name))[:100]} here"


def _comparable(value: Any) -> Any:
    """An empty list is the same as none, and so is a switch that is off."""
    return None if value in ([], {}, "", False) else value


@audit.acting
def take_clients(
    actor: Actor,
    planned: Sequence[PlannedClient],
    source: str,
    definitions: Iterable[Mapping[str, Any]] = (),
    groups: Collection[str] = (),
) -> None:
    """Define attributes, create groups, and write clients as planned.

    Raises `Changed` and `IntegrityError` if somebody else changes one of them at this moment.
    """
    for definition in definitions:
        attributes.define(actor, definition)
    written = [client for client in planned if client.is_new or client.edits]
    clients.lock_all(client.new.client_id for client in written)
    for client in sorted(planned, key=lambda client: client.new.client_id):
        new = client.new
        if client.is_new:
            clients.register(
                actor, new.fields, client_id=new.client_id, secret=new.secret,
                secret_hash=new.secret_hash,
            )  # fmt: skip
        elif client.edits or client.has_new_secret:
            secret, secret_hash = _secret_of(client)
            clients.change(
                actor, new.client_id, _removable(client.edits), secret=secret,
                secret_hash=secret_hash, expected=client.before,
            )  # fmt: skip
    named_groups.ensure(groups)
    kept = (Fate.NOT_TAKEN, Fate.KEPT)
    migrated.note(
        CLIENT,
        source,
        [(client.new.client_id, client.taken) for client in planned if client.fate not in kept],
    )


def _removable(edits: Mapping[str, Any]) -> dict[str, Any]:
    """Return edits in which a list or a switch that is gone has its default."""
    return {
        name: FIELDS[name].default if value is None and not FIELDS[name].is_removable else value
        for name, value in edits.items()
    }


class Kept(OperatorError):
    """The person was changed here at this moment, and is kept."""

    def __init__(self) -> None:
        super().__init__(CHANGED_TOO)


@dataclass
class Update:
    """A person who was taken before, and changed there since.

    `fate`: CHANGED if `change_person` takes that, KEPT if the person changed here, too, or was
    deleted here, NOT_TAKEN if it is refused here. `outcome`: what the export says, as it is taken;
    `version`: of the user who was compared with it; `factors`: labels of those taken before.
    """

    person: Person
    fate: Fate
    why: str = ""
    outcome: Outcome | None = None
    version: int | None = None
    has_new_password: bool = False
    factors: Sequence[str] = ()


@audit.acting
def take_people(
    actor: Actor, people: Sequence[Person], rules: Rules, *, overwrite: bool
) -> tuple[list[Outcome], list[Update]]:
    """Add those who are not here yet; return what became of them, and who changed there since.

    Nobody is mailed. Raises `IntegrityError` if somebody else adds one of them at this moment, and
    `NotAllowed`.
    """
    ids = {person.user_id: person for person in people if person.user_id and not person.refused}
    taken = migrated.taken(USER, rules.source, [str(user_id) for user_id in ids])
    _, present = users.existing([], ids)
    updates: list[Update] = []
    new = []
    for person in people:
        was_taken = person.refused is None and str(person.user_id) in taken
        if was_taken and person.user_id not in present and not overwrite:
            updates.append(Update(person, Fate.KEPT, "was deleted here since"))
        else:
            new.append(person)
    outcomes = importing.add(actor, new, rules)
    for outcome in outcomes:
        if outcome.fate is importing.Fate.EXISTS and str(outcome.person.user_id) in taken:
            outcome.reason = TAKEN_BEFORE
    imported = [
        outcome for outcome in outcomes
        if outcome.fate is importing.Fate.IMPORTED and outcome.person.user_id
    ]  # fmt: skip
    fit = migrated_factors.of_new((o.person.factors for o in imported), rules.client_ids)
    for outcome, (taken_factors, lost) in zip(imported, fit, strict=True):
        outcome.factors = taken_factors
        outcome.left_out += lost
    candidates = [
        person for user_id, person in ids.items()
        if user_id in present and (overwrite or str(user_id) in taken)
    ]  # fmt: skip
    updates += _changed(actor, candidates, taken, rules, overwrite)
    if not rules.is_plan:
        db.session.flush()
        by_user = {o.person.user_id: o.factors for o in imported if o.person.user_id}
        migrated_factors.take(actor, by_user, rules.client_ids)
        _record([ids[user_id] for user_id in by_user], rules.source)
    return outcomes, updates


def _record(people: Sequence[Person], source: str, before: Iterable[str] = ()) -> None:
    """Record people of an export, each with the version that is here now.

    `before`: labels of factors that were taken earlier. An export without them forgets none: they
    may have been removed here, and come back in the next one.
    """
    db.session.flush()
    versions = migrated.versions([person.user_id for person in people if person.user_id])
    records = [
        (
            str(person.user_id),
            {
                **digests(person),
                "version": versions[person.user_id],
                "factors": list(dict.fromkeys([*person.factors.labels(), *before])),
            },
        )
        for person in people
        if person.user_id in versions
    ]
    migrated.note(USER, source, records)


def _changed(
    actor: Actor,
    people: Sequence[Person],
    taken: Mapping[str, Mapping[str, Any]],
    rules: Rules,
    overwrite: bool,
) -> list[Update]:
    """Return who changed there since.

    Those who administer this server are kept without `allow_admins`: who can write the export
    would sign in as them.
    """
    news = [
        person for person in people
        if not _is_same(digests(person), taken.get(str(person.user_id), {}))
    ]  # fmt: skip
    if not news:
        return []
    user_ids = [person.user_id for person in news if person.user_id]
    versions = migrated.versions(user_ids)
    owners, _ = users.existing([person.email for person in news], ())
    present = () if rules.allow_admins else memberships.users(user_ids)
    staff = {user.id for user in present if roles.rights_of(user.groups)}
    updates = []
    for person, outcome in zip(news, importing.examine(actor, news, rules), strict=True):
        assert person.user_id
        record, version = taken.get(str(person.user_id), {}), versions.get(person.user_id)
        has_new_password = digests(person)["password"] != record.get("password")
        update = Update(person, Fate.CHANGED, "", outcome, version, has_new_password)
        update.factors = record.get("factors", ())
        if outcome.fate is not importing.Fate.IMPORTED:
            update.fate, update.why = Fate.NOT_TAKEN, outcome.reason
        elif person.user_id in staff:
            update.fate, update.why = Fate.KEPT, _OF_STAFF
        elif version != record.get("version") and not overwrite:
            update.fate, update.why = Fate.KEPT, CHANGED_TOO
        elif owners.get(person.email, person.user_id) != person.user_id:
            update.fate, update.why = Fate.NOT_TAKEN, importing.SAME_EMAIL
        updates.append(update)
    return updates


@audit.acting
def change_person(actor: Actor, update: Update, rules: Rules) -> None:
    """Change a person here as the export says, in a transaction of this person alone.

    The first second factor ends all sessions and grants that the person has here. Nobody is mailed,
    except who gets another email address. Raises `Invalid`, `NotAllowed`, and
    `Kept` if the person was changed or deleted here since the comparison.
    """
    outcome, user_id = update.outcome, update.person.user_id
    assert outcome
    assert user_id
    person = outcome.person
    user = users.lock_any(user_id)
    if user is None or user.version != update.version:
        raise Kept
    claims = {**dict.fromkeys(user.claims), **person.claims}
    values = {**dict.fromkeys(user.attributes), **outcome.attributes}
    accounts.update(
        actor,
        user_id,
        email=person.email,
        email_verified=person.email_verified,
        name=person.name,
        disabled=person.disabled,
        memberships=ListEdit(whole=tuple(person.groups)),
        claims=claims,
        attributes=values,
        origin=IMPORT,
    )
    if person.password_hash and update.has_new_password:
        password_hashes.note_foreign_hashes({outcome.method} if outcome.method else set())
        credentials.take_over_password(actor, user, person.password_hash)
    had_factors = bool(factors.of_user(user_id))
    migrated_factors.take(
        actor, {user_id: update.person.factors}, rules.client_ids, {user_id: update.factors}
    )
    if not had_factors and factors.of_user(user_id):
        second_factors.end_what_was_before(user)
    _record([update.person], rules.source, update.factors)


def digests(person: Person) -> dict[str, str]:
    """Return digests of a person of an export, and of the password hash alone."""
    content = [
        person.email, person.name, person.email_verified, person.disabled, person.groups,
        person.claims, person.attributes, person.password_hash, person.factors.labels(),
        person.factors.totp, person.factors.recovery_codes,
    ]  # fmt: skip
    whole = json.dumps(content, sort_keys=True, default=str)
    return {"person": _digest(whole), "password": _digest(person.password_hash or "")}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _is_same(now: Mapping[str, str], record: Mapping[str, Any]) -> bool:
    return all(record.get(name) == value for name, value in now.items())


def meanings_here(names: Iterable[str], source: str) -> list[Finding]:
    """Return a finding for each group that already means something to applications here.

    `source`: whose own applications do not count.
    """
    own, sought = client_ids(source), {*names}
    users_of: dict[str, list[str]] = {}
    for client in stored_clients.every():
        for name in sought & {*client.named_groups} if client.client_id not in own else ():
            users_of.setdefault(name, []).append(client.client_id)
    return [
        Finding(Fate.CHANGED, "group", name[:200], "",
                f"applications here know a group of this name: {', '.join(listed)[:200]}",
                "rename it there before the evening if other people are meant")
        for name, listed in sorted(users_of.items())
    ]  # fmt: skip


def group_findings(names: Iterable[str]) -> list[Finding]:
    """Return a finding for each group whose name is refused here."""
    return [
        Finding(Fate.NOT_TAKEN, "group", name[:200], "", str(error),
                "rename it there before the evening; its members come without it")
        for name in names
        for error in checks.group_errors([name], ())
    ]  # fmt: skip
