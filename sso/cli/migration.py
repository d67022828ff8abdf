"""Take over what was read of another server: clients in one transaction, people in batches.

A plan writes nothing, and locks nothing.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from functools import wraps
from pathlib import Path
from typing import Any

import click
from sqlalchemy.exc import IntegrityError

from sso import audit, database
from sso.cli.commands import (
    Failure,
    json_option,
    quiet_terminal,
    resolve,
    slow_passwords_option,
)
from sso.cli.imports import Report, batches
from sso.cli.output import print_json, print_line, print_notes, progress_bar
from sso.errors import OperatorError
from sso.extensions import db
from sso.flow import own_claims
from sso.flow.attributes import MOST as MOST_DEFINITIONS
from sso.flow.attributes import Party
from sso.imports import databases
from sso.imports.databases import Source
from sso.imports.drafts import NEW_CLIENT_ID, Answers, Draft
from sso.imports.files import Advance
from sso.imports.findings import Fate, Finding
from sso.imports.person import APPS, CODES, IDENTITIES, KEYS, FileProblem, Person
from sso.imports.system import System
from sso.services import attributes, migrating
from sso.services.checks import Invalid
from sso.services.importing import Fate as ImportFate
from sso.services.importing import Methods, Outcome, Rules
from sso.services.migrating import Kept, NewClient, PlannedClient, Update
from sso.store import password_hashes

_TRIES = 3
CONSENTS = "consents"
_MOST_UPDATES = 100  # that the report names
_SIGNS = {
    Fate.TAKEN: "+", Fate.CHANGED: "~", Fate.KEPT: "=", Fate.NOT_TAKEN: "-", Fate.QUESTION: "?",
    Fate.SAME: " ",
}  # fmt: skip
_TITLES = {
    Fate.TAKEN: "taken", Fate.CHANGED: "changed there since", Fate.SAME: "as before",
    Fate.KEPT: "kept as here", Fate.NOT_TAKEN: "not taken",
}  # fmt: skip
# The kinds of things in the report, beside clients and people.
_PLURALS = {
    "group": "Groups", "role": "Roles", "attribute": "Attributes",
    "identity provider": "Identity providers", "directory": "Directories", "subject": "Subjects",
    "server": "The server",
}  # fmt: skip


@dataclass(frozen=True)
class Choices:
    """The options that all systems share."""

    is_plan: bool
    redirect_uris: tuple[str, ...]
    secrets: tuple[str, ...]
    short_secrets: bool
    issuer: str | None
    overwrite: bool
    allow_admins: bool
    drop_passwords: bool
    source: str | None
    slow_passwords: bool
    as_json: bool

    def answers(self) -> Answers:
        """Return what the operator said about clients."""
        secrets = _by_client(self.secrets, "--secret")
        return Answers(
            _by_client(self.redirect_uris, "--redirect-uri"),
            {name: resolve(values[-1]) for name, values in secrets.items()},
            self.short_secrets,
            self.issuer,
        )


@dataclass
class Migration:
    """What the command found, and did."""

    system: System
    source: str
    is_plan: bool
    clients: list[PlannedClient] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    definitions: list[dict[str, Any]] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    people: Report = field(default_factory=Report)
    updates: Counter[Fate] = field(default_factory=Counter)
    updated: list[dict[str, str]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    factors: Counter[str] = field(default_factory=Counter)  # of people who are new

    def add(self, outcomes: Sequence[Outcome], updates: Iterable[Update]) -> None:
        self.people.add(outcomes)
        for outcome in outcomes:
            if outcome.fate is ImportFate.IMPORTED:
                factors = outcome.factors
                self.factors[APPS] += bool(factors.totp)
                self.factors[KEYS] += len(factors.passkeys)
                self.factors[CODES] += bool(factors.recovery_codes)
                self.factors[IDENTITIES] += len(factors.identities)
                self.factors[CONSENTS] += len(factors.consents)
        for update in updates:
            self.updates[update.fate] += 1
            if len(self.updated) < _MOST_UPDATES:
                person = update.person
                self.updated.append(
                    {"email": person.email, "fate": update.fate.value, "why": update.why}
                )

    def client_ids(self) -> set[str]:
        """Return the IDs of the clients that this run takes."""
        others = (Fate.NOT_TAKEN, Fate.KEPT)
        return {client.new.client_id for client in self.clients if client.fate not in others}


def options(command: Any) -> Any:
    """Add files and the options that all systems share, which the command gets as `Choices`."""
    return _FILES(_with_choices(command))


def database_options(command: Any) -> Any:
    """Add a database, which the command gets as `database`, and the same options."""
    return _DATABASE(_with_choices(command))


def _with_choices(command: Any) -> Any:

    @wraps(command)
    def with_choices(**values: Any) -> Any:
        names = [field_.name for field_ in fields(Choices)]
        return command(Choices(**{name: values.pop(name) for name in names}), **values)

    for add in reversed(_OPTIONS):
        with_choices = add(with_choices)
    return with_choices


class _Source(click.ParamType[Any]):
    """A file of SQLite, or a URL of PostgreSQL, which `env:NAME` keeps out of the arguments."""

    name = "source"

    def convert(self, value: Any, _parameter: Any, _context: Any) -> Source:
        try:
            is_reference = str(value).startswith("env:")
            return databases.parsed(resolve(value) if is_reference else str(value))
        except FileProblem as error:
            raise Failure(str(error)) from None


_FILES = click.argument(
    "paths", metavar="FILE…", type=click.Path(path_type=Path, dir_okay=False), nargs=-1,
    required=True,
)  # fmt: skip
_DATABASE = click.argument("database", metavar="FILE|URL", type=_Source())
_OPTIONS: Sequence[Any] = (
    click.option("--plan", "is_plan", is_flag=True, help="Print the report; change nothing."),
    click.option(
        "--redirect-uri", "redirect_uris", metavar="CLIENT=URI", multiple=True,
        help="An exact redirect URI of a client, in place of its wildcards.",
    ),
    click.option(
        "--secret", "secrets", metavar="CLIENT=env:NAME", multiple=True,
        help="The secret of a client that the export does not have; or CLIENT=file:PATH.",
    ),
    click.option(
        "--short-secrets", is_flag=True,
        help="Take secrets of fewer than 32 characters, too, which must be random.",
    ),
    click.option(
        "--issuer", metavar="URL",
        help="The issuer of the realm, which the clients keep; see SSO_ISSUER_ALIASES.",
    ),
    click.option(
        "--overwrite", is_flag=True, help="Also take what was changed, added or deleted here."
    ),
    click.option(
        "--allow-admins", is_flag=True,
        help="Take over memberships in the groups that administer this server.",
    ),
    click.option(
        "--drop-passwords", is_flag=True,
        help="Take people whose password hash cannot be checked here, without a password.",
    ),
    click.option(
        "--source", metavar="NAME",
        help="Distinguishes several servers of one kind. Default: the realm, or none.",
    ),
    slow_passwords_option,
    json_option,
)  # fmt: skip


def run(
    choices: Choices, sources: Sequence[Source], read: Callable[[Advance, Answers], System]
) -> None:
    """Read a system, compare it with what is here, and take it over unless it is a plan.

    `read` raises `FileProblem`.
    """
    answers = choices.answers()
    paths = [source for source in sources if isinstance(source, Path)]
    _require_files(paths)
    problem = None
    with quiet_terminal(always=True), progress_bar("Reading", choices.as_json) as show:
        system = read(_advance(paths, show), answers)
        source = f"{system.kind}:{choices.source or system.name}"[:100]
        migration = Migration(system, source, choices.is_plan)
        _require_clients(system, answers)
        methods = Methods(password_hashes.foreign_hash_methods(), any_cost=choices.slow_passwords)
        methods.refuse_slowest(system.hash_methods)
        rules = Rules(
            source, choices.allow_admins, choices.drop_passwords, choices.is_plan, methods
        )
        _plan_clients(migration, choices.overwrite)
        rules.subjects = {
            (client.new.fields or {}).get("subject_attribute") or "" for client in migration.clients
        } - {""}
        rules.client_ids = migration.client_ids() | migrating.client_ids(source)
        if not choices.is_plan:
            migrating.take_clients(
                audit.operator(by="migrate"), migration.clients, source,
                migration.definitions, migration.groups,
            )  # fmt: skip
            db.session.commit()
        try:
            with _definitions(migration):
                for batch in filter(None, batches(system.people(migration.counts))):
                    migration.add(*_carry_out(batch, rules, choices.overwrite))
        except FileProblem as error:
            problem = error
    db.session.rollback()
    _print(migration, choices.as_json, complete=not problem)
    if problem:
        raise Failure(f"{problem}; nothing after this was read")


def _by_client(options: Sequence[str], flag: str) -> dict[str, list[str]]:
    """Return the values of CLIENT=VALUE options. A client ID may have = in it; a value may, too."""
    by_client: dict[str, list[str]] = {}
    for option in options:
        client_id, separator, value = option.partition("=")
        if not separator or not client_id or not value:
            raise click.UsageError(f"{flag} {option!r} is not CLIENT=VALUE")
        by_client.setdefault(client_id, []).append(value)
    return by_client


def _require_files(paths: Sequence[Path]) -> None:
    for path in paths:
        if not path.is_file():  # a pipe cannot be read twice
            raise Failure(f"{path} cannot be read: there is no such file")


def _require_clients(system: System, answers: Answers) -> None:
    names = answers.redirect_uris.keys() | answers.secrets.keys()
    if unknown := sorted(names - set(system.client_ids)):
        raise Failure(f"the export has no client {', '.join(unknown)[:200]}")


def _advance(paths: Sequence[Path], show: Any) -> Advance:
    total = sum(path.stat().st_size for path in paths) * 2 or None

    def advance(done: int) -> None:
        if show:
            show(done, total)

    return advance


def _plan_clients(migration: Migration, overwrite: bool) -> None:
    """Compare the system with what is here, in one snapshot."""
    drafts = migration.system.drafts
    with database.session_snapshot():
        refused = _plan_definitions(migration, drafts)
        new = []
        client_ids: set[str] = set()
        for draft in drafts:
            if draft.fields is not None and draft.client_id in client_ids:
                draft.refuse("another client there has the same ID", NEW_CLIENT_ID)
            client_ids.add(draft.client_id)
            migration.findings += draft.findings
            if draft.fields is None:
                continue
            for entry in list(draft.fields.get("own_claims", ())):
                if lacking := own_claims.attributes_in([entry]) & refused:
                    draft.fields["own_claims"].remove(entry)
                    migration.findings.append(Finding(
                        Fate.NOT_TAKEN, "client", draft.name, f"claim {entry[:80]}",
                        f"the attribute {', '.join(lacking)} is not defined",
                    ))  # fmt: skip
            new.append(NewClient(
                draft.client_id, draft.name, draft.fields, draft.secret, draft.secret_hash
            ))  # fmt: skip
        with _definitions(migration):
            migration.clients = migrating.plan_clients(new, migration.source, overwrite=overwrite)
    for client in migration.clients:
        migration.findings += client.findings
    _plan_groups(migration)
    migration.findings += migration.system.findings


def _plan_definitions(migration: Migration, drafts: Sequence[Draft]) -> set[str]:
    """Plan the attributes that people or claims need; return those that cannot be defined."""
    existing, refused = attributes.definitions(), set[str]()
    needed: dict[str, dict[str, Any]] = {}
    for definition in migration.system.definitions:
        needed.setdefault(definition["name"], definition)
    for draft in drafts:
        for name, kind in draft.attributes.items():
            needed.setdefault(name, {"name": name, "type": kind})
    for name, definition in needed.items():
        if name in existing:
            if Party.PERSON in definition.get("writers", ()) and (
                Party.PERSON not in existing[name].writers
            ):
                migration.findings.append(Finding(
                    Fate.CHANGED, "attribute", name, "",
                    "people change it themselves there, and not here; their values are taken",
                    "if something here depends on it, rename it there, with its mappers",
                ))  # fmt: skip
            continue
        try:
            attributes.plan_definition(definition)
            if len(existing) + len(migration.definitions) >= MOST_DEFINITIONS:
                raise Invalid([f"there are {MOST_DEFINITIONS} attributes"])
        except Invalid as error:
            refused.add(name)
            why = "; ".join(map(str, error.errors))[:300]
            migration.findings.append(Finding(Fate.NOT_TAKEN, "attribute", name, "", why))
        else:
            migration.definitions.append(definition)
            migration.findings.append(Finding(Fate.TAKEN, "attribute", name))
    return refused


@contextmanager
def _definitions(migration: Migration) -> Iterator[None]:
    """Accept the attributes that the migration defines, also in a plan, which defines none."""
    planned: Mapping[str, Any] = {
        definition["name"]: attributes.plan_definition(definition)
        for definition in migration.definitions
    }
    with attributes.declared(planned):
        yield


def _plan_groups(migration: Migration) -> None:
    names = migration.system.groups
    all_names = [*names, *migration.system.other_groups]
    findings = migrating.group_findings(all_names)
    refused = {finding.name for finding in findings}
    migration.findings += [*findings, *migrating.meanings_here(all_names, migration.source)]
    migration.groups = [name for name in names if name[:200] not in refused]


def _carry_out(
    people: Sequence[Person], rules: Rules, overwrite: bool
) -> tuple[list[Outcome], list[Update]]:
    """Take some people in one transaction, and then each change in one of its own. Commits."""
    actor = audit.operator(by="migrate")
    for tries_left in reversed(range(_TRIES)):
        try:
            outcomes, updates = migrating.take_people(actor, people, rules, overwrite=overwrite)
            db.session.commit()
            break
        except IntegrityError:  # somebody has signed up at this moment
            db.session.rollback()
            if not tries_left:
                raise
    for update in updates if not rules.is_plan else ():
        if update.fate is Fate.CHANGED:
            _change(actor, update, rules)
    db.session.expunge_all()
    return outcomes, updates


def _change(actor: audit.Actor, update: Update, rules: Rules) -> None:
    """Change a person, or say why that cannot be. Commits."""
    try:
        migrating.change_person(actor, update, rules)
        db.session.commit()
    except Kept as error:
        db.session.rollback()
        update.fate, update.why = Fate.KEPT, str(error)
    except OperatorError as error:
        db.session.rollback()
        update.fate, update.why = Fate.NOT_TAKEN, str(error)[:300]


def _print(migration: Migration, as_json: bool, *, complete: bool) -> None:
    if as_json:
        print_json(_as_json(migration, complete))
        return
    print_line(migration.system.title)
    _print_clients(migration)
    for kind in _PLURALS:
        _print_findings(kind, [f for f in migration.findings if f.kind == kind])
    print_line()
    print_line("People")
    migration.people.show(migration.is_plan)
    would = "would be " if migration.is_plan else ""
    for fate, label in (
        (Fate.CHANGED, f"changed there since, and {would}changed here"),
        (Fate.KEPT, "changed there, but also here: kept as here (see --overwrite)"),
        (Fate.NOT_TAKEN, "changed there, but refused here"),
    ):
        if migration.updates[fate]:
            print_line(f"{migration.updates[fate]:,} {label}")
            some = [person for person in migration.updated if person["fate"] == fate.value]
            for person in some[:5]:
                print_line(f"      {' · '.join(filter(None, (person['email'], person['why'])))}")
    would = "would be taken" if migration.is_plan else "taken"
    for label, count in migration.factors.items():
        if count:
            print_line(f"{count:,} {label} {would}")
    for label, count in sorted(migration.counts.items()):
        if count:
            print_line(f"{count:,} {label}")
    questions = sum(finding.fate is Fate.QUESTION for finding in migration.findings)
    if questions:
        print_notes([f"{questions} questions are open: see the lines with ?"])
    if migration.is_plan:
        print_line("Nothing is changed yet.")


def _print_clients(migration: Migration) -> None:
    fates = _fates(migration)
    print_line()
    counts = Counter(fates.values())
    total = ", ".join(f"{counts[fate]} {title}" for fate, title in _TITLES.items() if counts[fate])
    print_line(f"Clients: {total or 'none'}")
    edits = {client.new.name: client for client in migration.clients}
    for name, fate in fates.items():
        findings = [f for f in migration.findings if f.kind == "client" and f.name == name]
        print_line(f"{_SIGNS[fate]} {name}")
        for field_ in edits[name].edits if name in edits else ():
            print_line(f"    ~ {field_}: {str(edits[name].edits[field_])[:200]}")
        _print_lines(findings)


def _fates(migration: Migration) -> dict[str, Fate]:
    fates = {client.new.name: client.fate for client in migration.clients}
    fates |= dict.fromkeys(
        (f.name for f in migration.findings
         if f.kind == "client" and f.fate is Fate.NOT_TAKEN and not f.what),
        Fate.NOT_TAKEN,
    )  # fmt: skip
    return dict(sorted(fates.items()))


def _print_findings(kind: str, findings: Collection[Finding]) -> None:
    if not findings:
        return
    print_line()
    print_line(_PLURALS[kind])
    for finding in findings:
        print_line(f"{_SIGNS[finding.fate]} {finding.name}")
        _print_lines([finding])


def _print_lines(findings: Iterable[Finding]) -> None:
    for finding in findings:
        texts = ": ".join(filter(None, (finding.what, finding.why)))
        line = "; ".join(filter(None, (texts, finding.remedy)))
        if line:
            print_line(f"    {_SIGNS[finding.fate]} {line}")


def _as_json(migration: Migration, complete: bool) -> dict[str, Any]:
    return {
        "applied": not migration.is_plan,
        "complete": complete,
        "realm": migration.system.name,
        "clients": {name: fate.value for name, fate in _fates(migration).items()},
        "groups": migration.groups,
        "findings": [asdict(finding) for finding in migration.findings],
        "people": {
            **migration.people.as_json(),
            "updates": {fate.value: count for fate, count in migration.updates.items()},
            "updated": migration.updated,
            "counts": {label: count for label, count in migration.counts.items() if count},
            "factors": {label: count for label, count in migration.factors.items() if count},
        },
    }
