"""`flask user import`: import people with their passwords from other systems, in batches.

The report has counts, reasons and a few examples of each.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
from sqlalchemy.exc import IntegrityError

from sso import audit
from sso.cli.commands import Failure, json_option, quiet_terminal, slow_passwords_option
from sso.cli.output import print_json, print_line, print_notes, progress_bar
from sso.cli.people import group
from sso.crypto import foreign_hashes
from sso.extensions import db
from sso.imports import reading
from sso.imports.person import FileProblem, Person
from sso.services import importing
from sso.services.importing import MOST_METHODS, Fate, Methods, Outcome, Rules
from sso.store import password_hashes

_MOST_REASONS, _MOST_EXAMPLES, _SHOWN = 50, 100, 5
_OTHER = "other reasons"


@dataclass
class Reasons:
    """How often each reason applied, with the first examples."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[dict[str, str]]] = field(default_factory=dict)

    def add(self, reason: str, outcome: Outcome) -> None:
        if reason not in self.counts and len(self.counts) >= _MOST_REASONS:
            reason = _OTHER
        self.counts[reason] += 1
        examples, person = self.examples.setdefault(reason, []), outcome.person
        if len(examples) < _MOST_EXAMPLES:
            examples.append({"where": person.where, "email": person.email, "detail": person.detail})

    def as_json(self) -> list[dict[str, Any]]:
        return [
            {"reason": reason, "count": count, "examples": self.examples[reason]}
            for reason, count in self.counts.most_common()
        ]

    def lines(self) -> Iterator[str]:
        for reason, count in self.counts.most_common():
            yield f"  {count:,}  {reason}"
            examples = self.examples[reason]
            for example in examples[:_SHOWN]:
                yield f"      {' · '.join(filter(None, example.values()))}"
            if count > _SHOWN:
                yield "      …"


@dataclass
class Report:
    """The result of an import; its size does not grow with the number of people."""

    fates: Counter[Fate] = field(default_factory=Counter)
    reasons: dict[Fate, Reasons] = field(
        default_factory=lambda: {Fate.EXISTS: Reasons(), Fate.SKIPPED: Reasons()}
    )
    left_out: Reasons = field(default_factory=Reasons)
    without_password: int = 0
    too_slow: int = 0
    has_staff: bool = False
    hash_methods: set[str] = field(default_factory=set)
    disabled: int = 0
    unverified: int = 0
    methods: Counter[str] = field(default_factory=Counter)
    groups: Counter[str] = field(default_factory=Counter)

    def add(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            self.fates[outcome.fate] += 1
            if outcome.fate != Fate.IMPORTED:
                self.reasons[outcome.fate].add(outcome.reason, outcome)
                continue
            for name in outcome.left_out:
                self.left_out.add(name, outcome)
            self.has_staff |= outcome.is_kept_from_staff
            person = outcome.person
            self.without_password += person.password_hash is None
            self.disabled += person.disabled
            self.unverified += not person.email_verified
            self.too_slow += outcome.is_too_slow
            self.hash_methods |= {outcome.method} if outcome.method else set()
            if method := foreign_hashes.method_of(person.password_hash):
                self._count(self.methods, method[1:])
            for name in person.groups:
                self._count(self.groups, name)

    def _count(self, counter: Counter[str], name: str) -> None:
        counter[name if name in counter or len(counter) < _MOST_REASONS else _OTHER] += 1

    def as_json(self) -> dict[str, Any]:
        return {
            **{fate: self.fates[fate] for fate in Fate},
            "without_password": self.without_password,
            "too_slow": self.too_slow,
            "disabled": self.disabled,
            "email_not_verified": self.unverified,
            "hashes": dict(self.methods.most_common()),
            "groups": dict(self.groups.most_common()),
            "left_out": self.left_out.as_json(),
            "reasons": {fate: reasons.as_json() for fate, reasons in self.reasons.items()},
        }

    def show(self, is_plan: bool) -> None:
        would = "would be " if is_plan else ""
        print_line(f"{self.fates[Fate.IMPORTED]:,} {would}imported")
        for label, count in (
            ("without a password", self.without_password),
            ("of these because the hash is too slow; see below", self.too_slow),
            ("disabled", self.disabled),
            ("with an email address that is not verified", self.unverified),
        ):
            if count:
                print_line(f"  {count:,}  {label}")
        for title, counter in (("password hashes", self.methods), ("groups", self.groups)):
            if counter:
                names = ", ".join(f"{name} ({n:,})" for name, n in counter.most_common())
                print_line(f"  {title}: {names}")
        for title, reasons in (
            (f"{self.fates[Fate.EXISTS]:,} are there already, and stay as they are",
             self.reasons[Fate.EXISTS]),
            (f"{self.fates[Fate.SKIPPED]:,} {would}skipped", self.reasons[Fate.SKIPPED]),
            (f"{self.left_out.counts.total():,} things {would}left out", self.left_out),
        ):  # fmt: skip
            if reasons.counts:
                print_line(title)
                for line in reasons.lines():
                    print_line(line)


BATCH = 500  # people in one transaction
_TRIES = 3


@group.command("import")
@click.argument("kind", metavar="FORMAT", type=click.Choice([*reading.FORMATS]))
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--plan", "is_plan", is_flag=True, help="Print the report; change nothing.")
@click.option(
    "--drop-passwords",
    is_flag=True,
    help="Import people whose password hash cannot be checked here, without a password.",
)
@click.option("--roles", is_flag=True, help="Turn the source's roles into groups, too.")
@click.option(
    "--allow-admins",
    is_flag=True,
    help="Take over memberships in the groups that administer this server.",
)
@click.option(
    "--source",
    metavar="NAME",
    help="Distinguishes several sources with the same FORMAT. Default: FORMAT.",
)
@slow_passwords_option
@json_option
def import_(
    kind: str, path: Path, is_plan: bool, roles: bool, source: str | None, as_json: bool,
    allow_admins: bool, drop_passwords: bool, slow_passwords: bool,
) -> None:  # fmt: skip
    """Import users with their passwords from FILE.

    FORMAT is csv, keycloak, auth0, django or better-auth. Existing users are
    not changed, so that the command can be repeated after an interruption. No mails are sent.
    """
    source = source or kind
    methods = Methods(password_hashes.foreign_hash_methods(), any_cost=slow_passwords)
    rules = Rules(source, allow_admins, drop_passwords, is_plan, methods)
    report, problem = Report(), None
    label = "Reading" if is_plan else "Importing"
    with quiet_terminal(always=True), progress_bar(label, as_json) as show:
        if path.is_file():
            methods.refuse_slowest(reading.methods(kind, path, MOST_METHODS))
        people = reading.read(kind, path, source=source, roles=roles, report=show)
        try:
            for batch in filter(None, batches(people)):
                report.add(_carry_out(batch, rules))
        except FileProblem as error:
            problem = error
    seconds = foreign_hashes.seconds(
        {*password_hashes.foreign_hash_methods(), *report.hash_methods}
    )
    db.session.rollback()
    if as_json:
        print_json({"applied": not is_plan, "complete": not problem, **report.as_json()})
    else:
        report.show(is_plan)
        if report.has_staff:
            print_line("Groups that administer this server are imported with --allow-admins.")
        if is_plan:
            print_line("Nothing is changed yet.")
    if seconds and not as_json:
        print_notes([
            "Until these users have signed in once, a wrong password costs "
            f"{seconds * 1000:.0f} ms more processor time."
        ])  # fmt: skip
    if problem:
        raise Failure(f"{problem}; nothing after this was read")


def batches(people: Iterator[Person]) -> Iterator[Sequence[Person]]:
    """Yield people in batches, also those before a `FileProblem`, which is raised after them."""
    batch: list[Person] = []
    try:
        for person in people:
            batch.append(person)
            if len(batch) == BATCH:
                yield batch
                batch = []
    except FileProblem:
        yield batch
        raise
    yield batch


def _carry_out(people: Sequence[Person], rules: Rules) -> list[Outcome]:
    """Import some people in one transaction. Commits."""
    actor = audit.operator(by="import")
    for tries_left in reversed(range(_TRIES)):
        try:
            outcomes = importing.add(actor, people, rules)
            db.session.commit()
        except IntegrityError:  # somebody has signed up at this moment
            db.session.rollback()
            if not tries_left:
                raise
        else:
            db.session.expunge_all()
            return outcomes
    raise AssertionError
