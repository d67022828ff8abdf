"""The import of people from CSV: a preview, and then exactly what it showed.

The rows are sent twice. The page that shows the plan has its digest; if the plan is another one
when it is confirmed, because of other rows or of what has changed here meanwhile, it is shown
again, and nothing is imported.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy.exc import IntegrityError
from werkzeug.wrappers import Response

from sso.audit import Actor
from sso.endpoints.admin import access, admin_page
from sso.endpoints.admin.admin_page import Refusal
from sso.endpoints.admin.forms import MOST_CSV, ImportForm
from sso.endpoints.admin.people import PERSON
from sso.extensions import db
from sso.i18n.message import Message
from sso.imports import reading
from sso.imports.person import FileProblem, Person
from sso.process.program import COMMAND
from sso.services import importing
from sso.services.checks import Invalid
from sso.services.importing import Fate, Outcome, Rules

MOST = 500  # people, in one transaction
_SOURCE = "csv"


class _HasPasswords(Invalid):
    """The rows have passwords, which the page does not send back."""

    def __init__(self) -> None:
        super().__init__([
            Message("Paste the rows without passwords. Only the command imports these.")
        ])  # fmt: skip


def people_import() -> Response:
    """Preview people in CSV, and import them after that."""
    form = ImportForm()
    outcomes: Sequence[Outcome] = ()
    digest_before, is_stale = form.plan.data or "", False
    with Refusal() as refusal:
        try:
            form.take_file()
        except ValueError:
            raise Invalid([Message("The file is not text in UTF-8.")]) from None
        if form.validate_on_submit():
            try:
                people = _read(form.csv.data or "")
            except _HasPasswords:
                form.csv.data = ""
                raise
            outcomes = importing.add(_actor(), people, Rules(_SOURCE, is_plan=True))
            form.plan.data = _digest(outcomes)
            is_confirmed = digest_before == form.plan.data and bool(_added(outcomes))
            if is_confirmed and _carry_out(outcomes, people):
                return PERSON.done("imported")
            is_stale = is_confirmed or digest_before not in ("", form.plan.data)
        elif len(form.csv.data or "") > MOST_CSV:
            form.csv.data = ""  # it may have passwords, and nobody edits so much here
    return admin_page.form_page(
        "admin/people_import.html",
        "people",
        form,
        refusal,
        outcomes=outcomes,
        added=_added(outcomes),
        is_stale=is_stale,
        most=MOST,
        command=f"{COMMAND} user import",
    )


def _carry_out(planned: Sequence[Outcome], people: Sequence[Person]) -> bool:
    """Import the people if that is still what was planned; else change nothing."""
    try:
        outcomes = importing.add(_actor(), people, Rules(_SOURCE))
    except IntegrityError:  # somebody has signed up at this moment
        db.session.rollback()
        return False
    if _digest(outcomes) != _digest(planned):
        db.session.rollback()
        return False
    return True


def _actor() -> Actor:
    return replace(access.staff().actor, by="import")


def _read(text: str) -> list[Person]:
    """Return the people in CSV. Raises `Invalid`, for passwords too."""
    people: list[Person] = []
    with TemporaryDirectory() as folder:
        path = Path(folder) / "people.csv"
        path.write_text(text.lstrip(), encoding="utf-8", errors="replace", newline="")
        try:
            for person in reading.read("csv", path, source=_SOURCE, roles=False, report=None):
                if len(people) == MOST:
                    raise Invalid([Message("At most %(most)d people at once.", most=MOST)])
                if person.password_hash or person.password_problem:
                    raise _HasPasswords
                people.append(person)
        except FileProblem as error:
            if "password" in text.partition("\n")[0].lower():  # a column of another name
                raise _HasPasswords from None
            if not error.within:  # of the temporary file, not of the rows
                raise
            raise Invalid([error.within]) from None
    if not people:
        raise Invalid([Message("There are no rows below the names of the columns.")])
    return people


def _added(outcomes: Sequence[Outcome]) -> int:
    return sum(outcome.fate is Fate.IMPORTED for outcome in outcomes)


def _digest(outcomes: Sequence[Outcome]) -> str:
    """Return the digest of a plan: of all that its preview shows and its import writes."""
    plan = [
        [
            outcome.person.email, outcome.person.name, str(outcome.person.user_id or ""),
            outcome.person.groups, outcome.person.claims, outcome.person.email_verified,
            outcome.person.disabled, outcome.attributes, outcome.fate.value, outcome.reason,
            outcome.left_out,
        ]
        for outcome in outcomes
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()
