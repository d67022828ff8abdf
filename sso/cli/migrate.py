"""`flask migrate`: take over another server's realm, again and again until the evening of the move.

The clients are written in one transaction, people in batches. A plan writes nothing, and locks
nothing.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
from sqlalchemy.exc import IntegrityError

from sso import audit, context, database
from sso.cli.commands import (
    Failure,
    Group,
    json_option,
    named_texts,
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
from sso.imports import keycloak_clients, keycloak_people, keycloak_realm, reading
from sso.imports.files import Advance
from sso.imports.findings import Fate, Finding
from sso.imports.keycloak_clients import Answers
from sso.imports.keycloak_credentials import Here
from sso.imports.keycloak_realm import RP_IDS, STORAGE, Realm, Roles
from sso.imports.person import (
    APPS,
    CODES,
    IDENTITIES,
    KEYS,
    FileProblem,
    Person,
    text,
)
from sso.mfa import passkeys
from sso.process.program import COMMAND
from sso.services import attributes, migrating
from sso.services.checks import Invalid
from sso.services.importing import MOST_METHODS, Methods, Outcome, Rules
from sso.services.importing import Fate as ImportFate
from sso.services.migrating import Kept, NewClient, PlannedClient, Update
from sso.store import users

group = Group("migrate")
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


@dataclass
class Migration:
    """What the command found, and did."""

    realm: Realm
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
                factors = outcome.person.factors
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

    def refused(self) -> set[str]:
        """Return the names of clients that are not taken at all."""
        return {f.name for f in self.findings if f.fate is Fate.NOT_TAKEN and not f.what}


@group.command("keycloak")
@click.argument(
    "paths", metavar="FILE…", type=click.Path(path_type=Path, dir_okay=False), nargs=-1,
    required=True,
)  # fmt: skip
@click.option("--plan", "is_plan", is_flag=True, help="Print the report; change nothing.")
@click.option(
    "--redirect-uri", "redirect_uris", metavar="CLIENT=URI", multiple=True,
    help="An exact redirect URI of a client, in place of its wildcards.",
)  # fmt: skip
@click.option(
    "--secret", "secrets", metavar="CLIENT=env:NAME", multiple=True,
    help="The secret of a client that the export does not have; or CLIENT=file:PATH.",
)  # fmt: skip
@click.option(
    "--short-secrets", is_flag=True,
    help="Take secrets of fewer than 32 characters, too, which must be random.",
)  # fmt: skip
@click.option(
    "--rp-id", metavar="HOST",
    help="The host name of Keycloak, to which its passkeys are bound; they are taken if this "
    "server has the same.",
)  # fmt: skip
@click.option(
    "--provider", "providers", metavar="ALIAS=ID", multiple=True,
    help="The sign-in provider here that an identity provider there is, to take people's links.",
)  # fmt: skip
@click.option(
    "--issuer", metavar="URL",
    help="The issuer of the realm, which the clients keep; see SSO_ISSUER_ALIASES.",
)  # fmt: skip
@click.option(
    "--overwrite", is_flag=True, help="Also take what was changed, added or deleted here."
)
@click.option(
    "--allow-admins", is_flag=True,
    help="Take over memberships in the groups that administer this server.",
)  # fmt: skip
@click.option(
    "--drop-passwords", is_flag=True,
    help="Take people whose password hash cannot be checked here, without a password.",
)  # fmt: skip
@click.option(
    "--source", metavar="NAME",
    help="Distinguishes several realms. Default: the name of the realm.",
)  # fmt: skip
@slow_passwords_option
@json_option
def keycloak(
    paths: tuple[Path, ...], is_plan: bool, redirect_uris: tuple[str, ...],
    secrets: tuple[str, ...], short_secrets: bool, rp_id: str | None, providers: tuple[str, ...],
    issuer: str | None, overwrite: bool, allow_admins: bool, drop_passwords: bool,
    source: str | None, slow_passwords: bool, as_json: bool,
) -> None:  # fmt: skip
    """Take over clients, groups, roles and people of a Keycloak realm.

    FILE is what `kc.sh export` writes; several, if it wrote several. The command can be repeated:
    it brings what changed there since, and does not overwrite what changed here.
    """
    answers = Answers(
        _by_client(redirect_uris, "--redirect-uri"),
        {name: resolve(values[-1]) for name, values in _by_client(secrets, "--secret").items()},
        short_secrets,
        issuer,
    )
    _require_files(paths)
    problem = None
    with quiet_terminal(always=True), progress_bar("Reading", as_json) as show:
        advance = _advance(paths, show)
        realm = keycloak_realm.read(paths, advance)
        roles = Roles(realm)
        migration = Migration(realm, f"keycloak:{source or realm.name}"[:100], is_plan)
        _require_clients(realm, answers)
        methods = Methods(users.foreign_hash_methods(), any_cost=slow_passwords)
        methods.refuse_slowest(
            {m for path in paths for m in reading.methods("keycloak", path, MOST_METHODS)}
        )
        rules = Rules(migration.source, allow_admins, drop_passwords, is_plan, methods)
        _plan_clients(migration, roles, answers, overwrite)
        if not is_plan:
            migrating.take_clients(
                audit.operator(by="migrate"), migration.clients, rules.source,
                migration.definitions, migration.groups,
            )  # fmt: skip
            db.session.commit()
        here = _here(realm, rp_id, named_texts(providers, "provider"))
        people = keycloak_people.read(paths, roles, "keycloak", advance, migration.counts, here)
        try:
            with _definitions(migration):
                for batch in filter(None, batches(people)):
                    migration.add(*_carry_out(batch, rules, overwrite))
        except FileProblem as error:
            problem = error
    db.session.rollback()
    _print(migration, as_json, complete=not problem)
    if problem:
        raise Failure(f"{problem}; nothing after this was read")


def _here(realm: Realm, rp_id: str | None, providers: Mapping[str, str]) -> Here:
    """Return which factors can be taken. Raises `Failure` for an unknown provider."""
    own = passkeys.rp_id().lower()
    hosts = {kind: text(realm.settings.get(name)) or rp_id or "" for kind, name in RP_IDS.items()}
    return Here(
        {kind: bool(own) and host.lower() == own for kind, host in hosts.items()},
        {alias: _provider(realm, alias, name) for alias, name in providers.items()},
    )


def _provider(realm: Realm, alias: str, name: str) -> tuple[str, str]:
    if alias not in {text(provider.get("alias")) for provider in realm.providers}:
        raise Failure(f"the realm has no identity provider {alias}")
    provider = context.upstreams().find(name)
    issuer = getattr(provider, "issuer", None)
    if provider is None or not issuer or not provider.REDIRECTS:
        raise Failure(f"there is no OpenID Connect provider {name} here; see: {COMMAND} settings")
    return provider.id, str(issuer)


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


def _require_clients(realm: Realm, answers: Answers) -> None:
    names = {text(client.get("clientId")) for client in realm.clients}
    unknown = sorted((answers.redirect_uris.keys() | answers.secrets.keys()) - names)
    if unknown:
        raise Failure(f"the realm has no client {', '.join(unknown)[:200]}")


def _advance(paths: Sequence[Path], show: Any) -> Advance:
    total = sum(path.stat().st_size for path in paths) * 2

    def advance(done: int) -> None:
        if show:
            show(done, total)

    return advance


def _plan_clients(migration: Migration, roles: Roles, answers: Answers, overwrite: bool) -> None:
    """Compare the realm with what is here, in one snapshot."""
    drafts = list(keycloak_clients.drafts(migration.realm, roles, answers))
    with database.session_snapshot():
        refused = _plan_definitions(migration, drafts)
        new = []
        for draft in drafts:
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
            new.append(NewClient(draft.client_id, draft.name, draft.fields, draft.secret))
        with _definitions(migration):
            migration.clients = migrating.plan_clients(new, migration.source, overwrite=overwrite)
    for client in migration.clients:
        migration.findings += client.findings
    _plan_groups(migration, roles)
    _note_the_rest(migration.realm, migration.findings)


def _plan_definitions(migration: Migration, drafts: Sequence[keycloak_clients.Draft]) -> set[str]:
    """Plan the attributes that people or claims need; return those that cannot be defined."""
    existing, refused = attributes.definitions(), set[str]()
    needed: dict[str, dict[str, Any]] = {}
    for definition in keycloak_people.definitions(migration.realm):
        needed.setdefault(definition["name"], definition)
    for draft in drafts:
        for name, kind in draft.attributes.items():
            needed.setdefault(name, {"name": name, "type": kind})
    for name, definition in needed.items():
        if name in existing:
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


def _plan_groups(migration: Migration, roles: Roles) -> None:
    names = [group.name for group in migration.realm.groups.values()]
    of_roles = [roles.group_of(role) for role in roles.of_realm()]
    findings = migrating.group_findings([*names, *of_roles])
    refused = {finding.name for finding in findings}
    migration.findings += findings
    migration.groups = [name for name in names if name[:200] not in refused]
    for group_ in migration.realm.groups.values():
        if group_.has_attributes:
            migration.findings.append(Finding(
                Fate.NOT_TAKEN, "group", group_.name[:200], "attributes", "groups here have none",
                "give the attribute to its members",
            ))  # fmt: skip
    for role in roles.of_realm():
        name = roles.group_of(role)
        migration.findings.append(Finding(
            Fate.CHANGED, "role", role.name[:200], "", f"it is the group {name[:200]} here",
        ))  # fmt: skip


def _note_the_rest(realm: Realm, findings: list[Finding]) -> None:
    for provider in realm.providers:
        alias = text(provider.get("alias"))[:200]
        findings.append(Finding(
            Fate.NOT_TAKEN, "identity provider", alias, "", "it knows the addresses of Keycloak",
            "configure it here, and register the new redirect URI there: docs/how-to/upstream.md",
        ))  # fmt: skip
    for component in realm.components.get(STORAGE, ()):
        findings.append(Finding(
            Fate.NOT_TAKEN, "directory", text(component.get("name"))[:200], "",
            "people of a directory have no password in the export",
            "connect the directory: docs/how-to/ldap.md",
        ))  # fmt: skip


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
            _change(actor, update, rules.source)
    db.session.expunge_all()
    return outcomes, updates


def _change(actor: audit.Actor, update: Update, source: str) -> None:
    """Change a person, or say why that cannot be. Commits."""
    try:
        migrating.change_person(actor, update, source)
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
    version = text(migration.realm.settings.get("keycloakVersion"))
    print_line(f"Realm {migration.realm.name} of Keycloak {version}".rstrip())
    _print_clients(migration)
    for kind in ("group", "role", "attribute", "identity provider", "directory"):
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
    print_line(f"{kind.capitalize()}s" if kind != "directory" else "Directories")
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
        "realm": migration.realm.name,
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
