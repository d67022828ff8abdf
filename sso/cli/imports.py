"""`flask user import`: people with their passwords from other systems, in batches."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from sqlalchemy.exc import IntegrityError

from sso import audit
from sso.cli.commands import Failure, json_option, quiet_terminal, slow_passwords_option
from sso.cli.import_report import Report
from sso.cli.output import print_json, print_line, print_notes
from sso.cli.people import group
from sso.cli.progress import progress_bar
from sso.crypto import foreign_hashes
from sso.extensions import db
from sso.imports import reading
from sso.imports.person import FileProblem, Person
from sso.services import importing
from sso.services.importing import MOST_METHODS, Methods, Outcome, Rules
from sso.store import imported_hashes

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

    FORMAT is csv, keycloak, auth0, django or better-auth. Users who are there already stay as they
    are, so that it can be run again after an interruption. Nobody is mailed.
    """
    source = source or kind
    methods = Methods(imported_hashes.methods(), any_cost=slow_passwords)
    rules = Rules(source, allow_admins, drop_passwords, is_plan, methods)
    report, problem = Report(), None
    label = "Reading" if is_plan else "Importing"
    with quiet_terminal(always=True), progress_bar(label, as_json) as show:
        if path.is_file():
            methods.refuse_slowest(reading.methods(kind, path, MOST_METHODS))
        people = reading.read(kind, path, source=source, roles=roles, report=show)
        try:
            for batch in filter(None, _batches(people)):
                report.add(_carry_out(batch, rules))
        except FileProblem as error:
            problem = error
    seconds = foreign_hashes.seconds({*imported_hashes.methods(), *report.found})
    db.session.rollback()
    if as_json:
        print_json({"applied": not is_plan, "complete": not problem, **report.as_json()})
    else:
        report.show(is_plan)
        if is_plan:
            print_line("Nothing is changed yet.")
    if seconds and not as_json:
        print_notes([
            "Until these users have signed in once, a wrong password costs "
            f"{seconds * 1000:.0f} ms more processor time."
        ])  # fmt: skip
    if problem:
        raise Failure(f"{problem}; nothing after this was read")


def _batches(people: Iterator[Person]) -> Iterator[Sequence[Person]]:
    """Also those before a place where the file cannot be read; then raises `FileProblem`."""
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
    """One transaction. Commits."""
    actor = audit.operator(by="import")
    for left in reversed(range(_TRIES)):
        try:
            outcomes = importing.add(actor, people, rules)
            db.session.commit()
        except IntegrityError:  # somebody has signed up at this moment
            db.session.rollback()
            if not left:
                raise
        else:
            db.session.expunge_all()
            return outcomes
    raise AssertionError
