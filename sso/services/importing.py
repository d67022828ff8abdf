"""People from other systems: added with their passwords, and never over somebody who is here.

Password hashes that were made elsewhere are accepted up to a bound: a wrong password of anybody
costs as much as a check by every method that imported hashes have. So their number is bounded, and
what they cost together, measured on this machine.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

from sso import audit
from sso.audit import Actor
from sso.audit.events import Event
from sso.crypto import foreign_hashes, passwords
from sso.flow import moments
from sso.flow.attributes import IMPORT, Party
from sso.imports.person import SHOWN, Factors, Person
from sso.models import User
from sso.services import attributes, checks, ends, roles, subjects
from sso.services.checks import Invalid
from sso.store import named_groups, password_hashes, users

MOST_METHODS = 64  # all sign-ins read them; old Django sites have about 20
MOST_SECONDS = 1.0  # of CPU time for each wrong password
TOO_MANY = (
    f"users already have hashes by argon2 or scrypt with {foreign_hashes.MOST_MEMORY_HARD} other "
    "sets of parameters; each makes every wrong password take longer"
)


class TooSlow(Invalid):
    """With this hash, every wrong password would take too long."""

    def __init__(self, method: str) -> None:
        super().__init__([
            f"the password hash {method[1:]} is too slow: every wrong password of anybody would "
            f"take more than {MOST_SECONDS:g} s of processor time (see --slow-passwords)"
        ])  # fmt: skip


class Methods:
    """The methods of hashes that were imported or are being imported.

    `any_cost`: the operator accepts that wrong passwords take long.
    """

    def __init__(self, methods: Iterable[str], *, any_cost: bool = False) -> None:
        self._all, self._any_cost = set(methods), any_cost
        self._too_slow: set[str] = set()

    def accept(self, text: str) -> tuple[str | None, str | None]:
        """Return the hash to store for one of another system, and its method; see `admit`.

        The hash is `None` if the user has no password. Raises `Invalid` for a hash that
        cannot be checked here.
        """
        try:
            stored = foreign_hashes.from_text(text)
        except foreign_hashes.Refused as error:
            raise Invalid([str(error)]) from None
        return stored, self.admit(foreign_hashes.method_of(stored))

    def admit(self, method: str | None) -> str | None:
        """Count a method and return it, or `None` if it is the one that this server uses.

        Raises `TooSlow`, and `Invalid` if there are too many methods.
        """
        if method in (None, passwords.own_method()):
            return None
        if method in self._all:
            return method
        if method in self._too_slow:
            raise TooSlow(method)
        hard = sum(map(foreign_hashes.is_memory_hard, (*self._all, method)))
        if foreign_hashes.is_memory_hard(method) and hard > foreign_hashes.MOST_MEMORY_HARD:
            raise Invalid([TOO_MANY])
        if len(self._all) >= MOST_METHODS:
            raise Invalid([f"users already have hashes of {MOST_METHODS} other costs"])
        if not self._any_cost and self._is_too_slow(method):
            self._too_slow.add(method)
            raise TooSlow(method)
        self._all.add(method)
        return method

    def refuse_slowest(self, methods: Collection[str]) -> None:
        """Refuse the slowest methods of a whole file, whatever their order in it."""
        trial = Methods(self._all, any_cost=self._any_cost)
        for method in sorted(methods, key=lambda one: (foreign_hashes.seconds([one]), one)):
            with suppress(Invalid):
                trial.admit(method)
        self._too_slow |= trial._too_slow

    def add(self, methods: Iterable[str]) -> None:
        """Count methods that were already admitted."""
        self._all.update(methods)

    def _is_too_slow(self, method: str) -> bool:
        before, after = foreign_hashes.seconds(self._all), foreign_hashes.seconds(
            [*self._all, method]
        )  # fmt: skip
        return after > before and after > MOST_SECONDS


def accept_hash(text: str) -> str | None:
    """Return the hash to store for one of another system; see `Methods.accept`."""
    stored, method = Methods(password_hashes.foreign_hash_methods()).accept(text)
    if method:
        password_hashes.note_foreign_hashes([method])
    return stored


MOST_GROUPS = checks.MAX_GROUPS  # of one person
SAME_EMAIL = "there is a user with this email address"
SAME_ID = "there is a user with this ID, with another email address"
BAD_END = "ends_at is no time, or in the past of a user who is not disabled"
BAD_GROUP_END = "group_ends has no time for a group, or one in the past"
NO_MEMBER = "the end of a membership in a group that the person is not in"
UNDEFINED = "attributes that are not defined here"
OF_SUBJECTS = "attributes by which applications know people, and which people could name there"
SAME_SUBJECT = "an application would take two people for one: they have the same subject"
PRIVILEGED = "a group that administers this server"


class Fate(StrEnum):
    """What became of a person."""

    IMPORTED = "imported"
    EXISTS = "exists"
    SKIPPED = "skipped"


@dataclass
class Outcome:
    """`reason`: why not. `left_out`: what was not taken over of somebody who was imported.

    `factors`: those that were taken over; only a migration takes them.
    """

    person: Person
    fate: Fate = Fate.SKIPPED
    reason: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    factors: Factors = field(default_factory=Factors)
    ends_at: datetime | None = None
    group_ends: dict[str, str] = field(default_factory=dict)
    method: str | None = None
    is_too_slow: bool = False  # imported without the password
    is_kept_from_staff: bool = False  # imported without a group that administers


@dataclass
class Rules:
    """The operator's options. `source`: the name for the audit trail.

    `methods`: those of earlier hashes, and the decisions on those of the file. `client_ids`: of the
    clients that come from there, in a migration. `subjects`: the attributes by which these know
    people; `subjects_of_file`: hashes of the values so far, with the places of their people.
    """

    source: str
    allow_admins: bool = False
    drop_passwords: bool = False
    is_plan: bool = False
    methods: Methods = field(default_factory=lambda: Methods(()))
    client_ids: Collection[str] = ()
    subjects: Collection[str] = ()
    subjects_of_file: dict[int, str] = field(default_factory=dict)


@audit.acting
def add(actor: Actor, people: Sequence[Person], rules: Rules) -> list[Outcome]:
    """Add those who are not here yet; nobody is mailed. The email addresses are normalized.

    Raises `IntegrityError` if somebody else adds one of them at this moment, and `NotAllowed`.
    """
    fit = [person for person in people if person.refused is None]
    user_ids = [person.user_id for person in fit if person.user_id]
    existing = users.existing([person.email for person in fit], user_ids)
    outcomes = _all_examined(actor, people, existing, rules)
    if rules.is_plan:
        return outcomes
    added = [_user(outcome) for outcome in outcomes if outcome.fate == Fate.IMPORTED]
    users.add_all(added)
    password_hashes.note_foreign_hashes({outcome.method for outcome in outcomes if outcome.method})
    named_groups.touch({name for user in added for name in user.groups})
    for user in added:
        audit.event(Event.USER_IMPORTED, by=actor.by, user=user.id, source=rules.source)
    return outcomes


def examine(actor: Actor, people: Sequence[Person], rules: Rules) -> list[Outcome]:
    """Return what `add` would make of people if none of them were here. Writes nothing."""
    return _all_examined(actor, people, ({}, ()), rules)


def _all_examined(
    actor: Actor,
    people: Sequence[Person],
    existing: tuple[Mapping[str, UUID], Collection[UUID]],
    rules: Rules,
) -> list[Outcome]:
    rules.methods.add(password_hashes.foreign_hash_methods())
    has_attributes = any(person.attributes for person in people if person.refused is None)
    attributes.hold(has_attributes and not rules.is_plan)
    names = {*rules.subjects, *subjects.names()} if has_attributes else set[str]()
    if not rules.is_plan:
        subjects.lock(names)
    with attributes.declared({}) if has_attributes else nullcontext():
        party = attributes.party_of(actor, ())
        outcomes = [_examined(person, existing, rules, party, names) for person in people]
    _refuse_same_subjects(outcomes, names, rules)
    return outcomes


def _refuse_same_subjects(
    outcomes: Sequence[Outcome], names: Collection[str], rules: Rules
) -> None:
    """Refuse whom an application would take for somebody of the file, or of here."""
    for name in sorted(names):
        having = [
            outcome for outcome in outcomes
            if outcome.fate is Fate.IMPORTED and name in outcome.attributes
        ]  # fmt: skip
        owners = subjects.owners(name, {str(outcome.attributes[name]) for outcome in having})
        for outcome in having:
            value = str(outcome.attributes[name])
            mark = hash((name, value))
            others = owners.get(value, set()) - {outcome.person.user_id}
            first = rules.subjects_of_file.setdefault(mark, outcome.person.where)
            if others or first != outcome.person.where:
                outcome.fate, outcome.reason = Fate.SKIPPED, SAME_SUBJECT
                outcome.person.detail = f"{name}={value}"[:SHOWN]


def _examined(
    person: Person,
    existing: tuple[Mapping[str, UUID], Collection[UUID]],
    rules: Rules,
    party: Party | None,
    subject_names: Collection[str],
) -> Outcome:
    emails, ids = existing
    person = replace(person, groups=list(person.groups), claims=dict(person.claims))
    outcome = Outcome(person)
    unfit = person.refused or checks.text_error(checks.NAME, person.name)
    if unfit:
        outcome.reason = unfit
    elif person.email in emails:
        outcome.fate, outcome.reason = Fate.EXISTS, SAME_EMAIL
    elif person.user_id in ids:
        outcome.fate, outcome.reason = Fate.EXISTS, SAME_ID
    elif reason := _take_end(outcome) or _password_problem(outcome, rules):
        outcome.reason = reason
    else:
        outcome.fate = Fate.IMPORTED
        _take_groups(outcome, rules)
        if outcome.group_ends.keys() - {*person.groups}:
            outcome.left_out.append(NO_MEMBER)
        for name, value in list(person.claims.items()):
            if checks.claim_errors({name: value}):
                del person.claims[name]
                outcome.left_out.append(f"the claim {name}, which is not valid")
        if person.attributes:
            _take_attributes(outcome, party, subject_names)
        outcome.left_out += dict.fromkeys(person.lost)
    return outcome


def _take_end(outcome: Outcome) -> str | None:
    """Read when the account and its memberships end. Returns why the person cannot be imported."""
    person = outcome.person
    try:
        outcome.ends_at = ends.read(person.ends_at, may_be_past=person.disabled)
    except Invalid:
        person.detail = person.ends_at[:SHOWN]
        return BAD_END
    for name, text in person.group_ends.items():
        try:
            end = ends.read(text)
        except Invalid:
            end = None
        if end is None:
            person.detail = f"{name}={text}"[:SHOWN]
            return BAD_GROUP_END
        outcome.group_ends[name] = moments.text_of(end)
    return None


def _take_attributes(outcome: Outcome, party: Party | None, subject_names: Collection[str]) -> None:
    """Put the values in place of the texts, and leave out those that are refused."""
    texts, defined = outcome.person.attributes, attributes.definitions()
    if not outcome.person.names_attributes:
        if texts.keys() - defined.keys():
            outcome.left_out.append(UNDEFINED)
        foreign = {*subject_names} - outcome.person.subjects
        if texts.keys() & foreign:
            outcome.left_out.append(OF_SUBJECTS)
        texts = {name: text for name, text in texts.items() if name in defined.keys() - foreign}
    for name, value in attributes.of_texts(texts).items():
        after = attributes.merged(outcome.attributes, {name: value})
        if errors := attributes.value_errors(outcome.attributes, after, party):
            outcome.left_out += errors
        else:
            outcome.attributes = after


def _password_problem(outcome: Outcome, rules: Rules) -> str | None:
    """Notes the method. Returns why the person cannot be imported."""
    person = outcome.person
    problem = person.password_problem
    if person.password_hash:
        try:
            outcome.method = rules.methods.admit(foreign_hashes.method_of(person.password_hash))
        except TooSlow as error:
            person.password_hash, outcome.is_too_slow = None, True
            outcome.left_out.append(str(error))
        except Invalid as error:
            problem, person.password_hash = str(error), None
    if problem and rules.drop_passwords:
        outcome.left_out.append(problem)
        return None
    return problem


def _take_groups(outcome: Outcome, rules: Rules) -> None:
    person, privileged = outcome.person, roles.groups_with_permissions()
    names = list(dict.fromkeys(person.groups))
    person.groups = []
    for name in names:
        if checks.group_errors([name], ()):
            outcome.left_out.append("a group whose name is not valid here")
        elif name in privileged and not rules.allow_admins:
            outcome.left_out.append(PRIVILEGED)
            outcome.is_kept_from_staff = True
        elif len(person.groups) == MOST_GROUPS:
            outcome.left_out.append(f"groups after the first {MOST_GROUPS}")
            break
        else:
            person.groups.append(name)


def _user(outcome: Outcome) -> User:
    person = outcome.person
    user = User(
        id=person.user_id or uuid4(),
        email=person.email,
        email_verified=person.email_verified,
        name=person.name,
        password_hash=person.password_hash,
        claims=person.claims,
        attributes={},
        groups=person.groups,
        ends_at=outcome.ends_at,
    )
    user.set_attributes(outcome.attributes, IMPORT)
    lasting = {name: end for name, end in outcome.group_ends.items() if name in person.groups}
    user.set_group_ends(lasting)
    users.set_disabled(user, person.disabled)
    return user
