"""People from other systems: added with their passwords, and never over somebody who is here."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from uuid import UUID, uuid4

from sso import audit, clock, context
from sso.audit import Actor
from sso.audit.events import Event
from sso.crypto import foreign_hashes
from sso.imports.person import Person
from sso.models import User
from sso.services import checks, staff
from sso.services.checks import RegistrationError
from sso.services.imported_passwords import Methods, TooSlow
from sso.store import imported_hashes, named_groups, users

MOST_GROUPS = checks.MAX_GROUPS  # of one person
SAME_EMAIL = "there is a user with this email address"
SAME_ID = "there is a user with this ID, with another email address"
PRIVILEGED = "a group that administers this server (see --allow-admins)"


class Fate(StrEnum):
    """What became of a person."""

    IMPORTED = "imported"
    EXISTS = "exists"
    SKIPPED = "skipped"


@dataclass
class Outcome:
    """`reason`: why not. `left_out`: what was not taken over of somebody who was imported."""

    person: Person
    fate: Fate = Fate.SKIPPED
    reason: str = ""
    left_out: list[str] = field(default_factory=list)
    method: str | None = None
    is_too_slow: bool = False  # imported without the password


@dataclass
class Rules:
    """The operator's options. `source`: the name for the audit trail.

    `methods`: those of earlier hashes, and the decisions on those of the file.
    """

    source: str
    allow_admins: bool = False
    drop_passwords: bool = False
    is_plan: bool = False
    methods: Methods = field(default_factory=lambda: Methods(()))


@audit.acting
def add(actor: Actor, people: Sequence[Person], rules: Rules) -> list[Outcome]:
    """Add those who are not here yet; nobody is mailed. The email addresses are normalized.

    Raises `IntegrityError` if somebody else adds one of them at this moment, and `NotAllowed`.
    """
    staff.require_admin(actor)
    fit = [one for one in people if one.refused is None]
    known = users.known([one.email for one in fit], [one.user_id for one in fit if one.user_id])
    rules.methods.add(imported_hashes.methods())
    outcomes = [_examined(one, known, rules) for one in people]
    if rules.is_plan:
        return outcomes
    added = [_user(one.person) for one in outcomes if one.fate == Fate.IMPORTED]
    users.add_all(added)
    imported_hashes.note({one.method for one in outcomes if one.method})
    named_groups.touch({name for user in added for name in user.groups})
    for user in added:
        audit.event(Event.USER_IMPORTED, by=actor.by, user=user.id, source=rules.source)
    return outcomes


def _examined(
    person: Person,
    known: tuple[Mapping[str, UUID], Collection[UUID]],
    rules: Rules,
) -> Outcome:
    emails, ids = known
    person = replace(person, groups=list(person.groups), claims=dict(person.claims))
    outcome = Outcome(person)
    unfit = person.refused or checks.text_error(checks.NAME, person.name)
    if unfit:
        outcome.reason = unfit
    elif person.email in emails:
        outcome.fate, outcome.reason = Fate.EXISTS, SAME_EMAIL
    elif person.user_id in ids:
        outcome.fate, outcome.reason = Fate.EXISTS, SAME_ID
    elif reason := _password_problem(outcome, rules):
        outcome.reason = reason
    else:
        outcome.fate = Fate.IMPORTED
        _take_groups(outcome, rules)
        for name, value in list(person.claims.items()):
            if checks.claim_errors({name: value}):
                del person.claims[name]
                outcome.left_out.append(f"the claim {name}, which is not valid")
        outcome.left_out += dict.fromkeys(person.lost)
    return outcome


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
        except RegistrationError as error:
            problem, person.password_hash = str(error), None
    if problem and rules.drop_passwords:
        outcome.left_out.append(problem)
        return None
    return problem


def _take_groups(outcome: Outcome, rules: Rules) -> None:
    person, settings = outcome.person, context.settings()
    wanted = list(dict.fromkeys(person.groups))
    person.groups = []
    for name in wanted:
        if checks.group_errors([name], ()):
            outcome.left_out.append("a group whose name is not valid here")
        elif name in (settings.admin_group, settings.helpdesk_group) and not rules.allow_admins:
            outcome.left_out.append(PRIVILEGED)
        elif len(person.groups) == MOST_GROUPS:
            outcome.left_out.append(f"groups after the first {MOST_GROUPS}")
            break
        else:
            person.groups.append(name)


def _user(person: Person) -> User:
    return User(
        id=person.user_id or uuid4(),
        email=person.email,
        email_verified=person.email_verified,
        name=person.name,
        password_hash=person.password_hash,
        claims=person.claims,
        groups=person.groups,
        disabled_at=clock.now() if person.disabled else None,
    )
