"""The queue of mails: those that wait or failed, with the last error; try again, delete.

Neither the text nor the link of a mail is shown: both are made when it is sent.
"""

from collections.abc import Callable, Mapping, Sequence
from urllib.parse import urlsplit

from flask import abort
from flask_babel import gettext
from sqlalchemy import ColumnElement, Select
from werkzeug.wrappers import Response

from sso import context
from sso.config import email_addresses
from sso.config.mail_texts import TEXTS
from sso.endpoints.admin import admin_page, exports, several
from sso.endpoints.admin.actions import Action, Resource
from sso.endpoints.admin.forms import SelectionForm
from sso.endpoints.admin.several import Several
from sso.i18n import N_
from sso.models import Mail
from sso.services import mail_queue
from sso.store import outbox, users

_WAITING, _FAILED = "waiting", "failed"
STATES: dict[str, tuple[str, Callable[[], ColumnElement[bool]]]] = {
    _WAITING: (N_("waiting"), lambda: ~outbox.is_given_up()),
    _FAILED: (N_("failed"), outbox.is_given_up),
}


def subject_of(kind: str) -> str:
    """Return the subject of a kind of mail in the language of the page."""
    if kind not in TEXTS:
        return kind
    service = context.branding().name or urlsplit(context.settings().base_url).netloc
    text: str = gettext(TEXTS[kind].subject)
    return text.format_map({"service": service})


MAIL = Resource[Mail](
    section="emails",
    find=lambda: outbox.find_unsent(admin_page.uuid()) or abort(404),
    title=lambda mail: mail.address,
    actions={
        "resend": Action(
            label=N_("Send it again"),
            question=lambda mail: gettext(
                "The email to %(email)s is tried again at once, with a new link.",
                email=mail.address,
            ),
            done=N_("The email will be sent."),
            run=lambda actor, mail: mail_queue.resend(actor, mail.id),
            applies=outbox.MAILS.can_be_hurried,
        ),
        "delete": Action(
            label=N_("Delete the email"),
            question=lambda mail: gettext(
                "The email to %(email)s is not sent. If it is being sent right now, it may still "
                "arrive.",
                email=mail.address,
            ),
            done=N_("The email was deleted."),
            run=lambda actor, mail: mail_queue.delete(actor, mail.id),
            is_danger=True,
        ),
    },
)
FAILED = Resource[None](
    section="emails",
    find=lambda: None,
    actions={
        "resend-failed": Action(
            label=N_("Send all failed emails again"),
            question=N_("Every email that was given up is tried again at once, with a new link."),
            done=N_("The emails will be sent."),
            run=lambda actor, _: mail_queue.resend_failed(actor),
        )
    },
    results={**MAIL.done_texts, several.DONE: several.SAVED},
)
_SEVERAL = Several(
    resource=MAIL,
    tasks=("resend", "delete"),
    find=lambda ids: outbox.find_all_unsent(several.uuids(ids)),
    line=lambda mail: (str(mail.id), mail.address, subject_of(mail.kind)),
)
ORDERS = admin_page.by_age(outbox.NEWEST_MAILS)
_EXPORTED = ("to", "kind", "state", "attempts", "last_fault", "created", "next_attempt")


def _filters() -> dict[str, str]:
    """Return the filters in the URL."""
    return admin_page.chosen(
        q=_email(admin_page.searched()),
        state=admin_page.choice("state", STATES),
        sort=admin_page.choice("sort", ORDERS),
    )


def _statement(filters: Mapping[str, str]) -> Select[Mail]:
    state = filters.get("state")
    conditions = [STATES[state][1]()] if state else []
    return outbox.unsent_mails(filters.get("q", ""), *conditions)


def export() -> Response:
    """Export the mails that the filters select, as CSV; neither texts nor links."""
    filters = _filters()
    mails = exports.rows(ORDERS[filters.get("sort", "")][1], _statement(filters))
    return exports.send_table("emails", _EXPORTED, map(_line, mails))


def _line(mail: Mail) -> Sequence[object]:
    again = exports.moment(mail.next_attempt_at) if mail.next_attempt_at else ""
    return (
        mail.address, mail.kind, state_of(mail)[0], mail.attempts, mail.last_fault,
        exports.moment(mail.created_at), again,
    )  # fmt: skip


def emails() -> Response:
    """List the mails that wait or have failed; a POST acts on several of them."""
    form, filters = SelectionForm(), _filters()
    if response := _SEVERAL.act(form, filters):
        return response
    order, statement = ORDERS[filters.get("sort", "")][1], _statement(filters)
    listed = order.page(statement, admin_page.cursor(order))
    return FAILED.render(
        "admin/emails.html",
        mails=[(mail, subject_of(mail.kind), *state_of(mail)) for mail in listed.rows],
        people=users.emails(str(mail.user_id) for mail in listed.rows if mail.user_id),
        pages=admin_page.neighbours(listed),
        total=admin_page.total(order, statement),
        filters=filters,
        orders=ORDERS,
        form=form,
        tasks=_SEVERAL.labels,
        export_url=admin_page.url("emails_export", **filters),
        states={name: title for name, (title, _) in STATES.items()},
        may_resend=outbox.MAILS.can_be_hurried,
        has_failed=outbox.has_failed_mails(),
        has_server=context.settings().smtp_url is not None,
    )


def _email(text: str) -> str:
    try:
        return email_addresses.normalized(text) if text else ""
    except ValueError:
        return text


def state_of(mail: Mail) -> tuple[str, str]:
    """Return a label for the state of a mail, and the kind of state."""
    if mail.delivered_at:
        return N_("sent"), "good"
    if mail.next_attempt_at is None:
        # The worker decided that there is nothing to say any more.
        return (N_("given up"), "bad") if mail.last_fault else (N_("not needed any more"), "")
    return (N_("retrying"), "warning") if mail.last_fault else (N_("waiting"), "")


def resend_failed() -> Response:
    """Ask, then have all failed mails tried again."""
    return FAILED.act("resend-failed")


def act() -> Response:
    """Ask, then have a mail tried again, or delete it."""
    return MAIL.act()
