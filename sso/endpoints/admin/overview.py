"""The overview: users, sign-ins, outboxes, and the findings of the checks.

The chart is an SVG without scripts, and without styles that the policy forbids.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import requests
from flask import request
from werkzeug.wrappers import Response

from sso import clock, context
from sso.audit import rows
from sso.audit.events import Event
from sso.checkup import components, others, public_url, sign_in
from sso.checkup.finding import Finding, Findings, Status, guarded, wrong
from sso.config.settings import read_settings
from sso.database import schema
from sso.endpoints.admin import access, admin_page, audit_trail, caching, people_list
from sso.endpoints.admin.admin_page import MOST_COUNTED, Total
from sso.endpoints.admin.forms import ConfirmForm
from sso.extensions import db
from sso.flow.permissions import STAFF
from sso.i18n import N_
from sso.i18n.message import Message
from sso.models import KeyState
from sso.process import concurrency
from sso.process.program import COMMAND
from sso.services import agent_identity
from sso.store import keys, outbox, provisioning, totals, webhooks
from sso.store.outbox import Outbox
from sso.web import routing

WIDTH, HEIGHT = 700, 160
_LABELS = 5  # of days, below the chart
_GAP = 0.3  # of the width of a day


@dataclass(frozen=True)
class Day:
    """The number of sign-ins and failures on one day (UTC)."""

    day: datetime
    sign_ins: int
    failures: int


@dataclass(frozen=True)
class Bar:
    """A rectangle of the chart. `is_failure`: it shows failures, not sign-ins."""

    x: float
    y: float
    width: float
    height: float
    is_failure: bool


def chart_top(values: Sequence[tuple[int, int]]) -> int:
    """Return the number at the top of the scale: 1, 2 or 5 times a power of ten."""
    most = max((max(pair) for pair in values), default=0)
    step = 1
    while True:
        for factor in (1, 2, 5):
            if factor * step >= most:
                return factor * step
        step *= 10


def bars(values: Sequence[tuple[int, int]]) -> tuple[int, list[Bar]]:
    """Return the top of the scale, and two bars for each pair of values."""
    top, room = chart_top(values), WIDTH / max(len(values), 1)
    width = room * (1 - _GAP) / 2
    return top, [
        Bar(
            round(index * room + room * _GAP / 2 + width * is_failure, 1),
            round(HEIGHT - HEIGHT * value / top, 1),
            round(width, 1),
            round(HEIGHT * value / top, 1),
            is_failure,
        )
        for index, pair in enumerate(values)
        for is_failure, value in zip((False, True), pair, strict=True)
    ]


_DAYS = (14, 90)
_SIGN_INS = (Event.SIGNED_IN,)
_FAILURES = (Event.SIGN_IN_FAILED, Event.SECOND_FACTOR_FAILED)
_MINUTE = timedelta(minutes=1)
_HOUR = timedelta(hours=1)
_FOREVER = timedelta(days=366)
_OWN_ANSWER = 3  # seconds
_NOW = {
    "schema": components.schema,
    "keys": components.signing_key_life,
    "worker": components.worker,
    "webhooks": components.webhooks,
    "provisioning": components.provisioning,
}
_MOST_APPS = 2000  # authenticator apps; `doctor` checks all
_EACH_MINUTE: Mapping[str, Callable[[], Findings]] = {
    "database": components.database,
    "pooler": components.pooler,
    "file modes": lambda: components.file_modes(os.environ, read_settings(os.environ)),
    "mail": components.no_mail_server,
    "secret key": partial(components.secret_key, _MOST_APPS),
    "templates": components.templates,
}
_EACH_HOUR = {"tls": public_url.tls}
_ELSEWHERE = {
    "redis": components.rate_limits,
    "mail": components.mail,
    components.ROLES: components.roles_of_applications,
    others.DIRECTORIES: others.directories,
    others.PROVIDERS: others.providers,
    "tls": public_url.tls,
    "discovery": public_url.metadata,
    "imported passwords": components.imported_passwords,
    public_url.ALIASES: public_url.issuer_aliases,
    "slow bodies": public_url.slow_bodies,
}
STATUSES = {
    Status.OK: N_("in order"),
    Status.WARNING: N_("warning"),
    Status.WRONG: N_("wrong"),
    Status.SKIPPED: N_("not checked"),
}
# The labels of findings, by name.
LABELS = {
    "clock and HTTP Date": N_("Server clock"),
    "clock and database": N_("Database clock"),
    sign_in.NAME: N_("Test sign-in"),
    "cookies": N_("Cookies"),
    "cross-origin": N_("Cross-origin requests (CORS)"),
    "database": N_("Database"),
    public_url.ALIASES: N_("Issuers of earlier servers"),
    others.ACCOUNT: N_("Account"),
    others.DIRECTORIES: N_("Directories (LDAP)"),
    "discovery": N_("Discovery document"),
    "file modes": N_("File permissions"),
    "headers": N_("Response headers"),
    "imported passwords": N_("Imported passwords"),
    "key set": N_("Key set"),
    "keys": N_("Signing keys"),
    "mail": N_("Mail server"),
    "metadata": N_("Server metadata (RFC 8414)"),
    "pooler": N_("Connection pooler"),
    others.PROVIDERS: N_("Sign-in providers"),
    "provisioning": N_("People in applications (SCIM)"),
    "proxy headers": N_("Proxy headers"),
    "redis": N_("Redis"),
    components.ROLES: N_("Roles of administration"),
    "schema": N_("Database schema"),
    "secret key": N_("Secret key"),
    "slow bodies": N_("Slow request bodies"),
    "templates": N_("Templates"),
    "tls": N_("TLS certificate"),
    "webhooks": N_("Webhooks"),
    "worker": N_("Worker"),
    # Of an MCP server, in the order of its steps.
    "call without token": N_("Call without a token"),
    "challenge": N_("Challenge"),
    "resource metadata": N_("Metadata of the MCP server"),
    "resource": N_("Resource"),
    "authorization server": N_("Authorization server"),
    "API": N_("API"),
    "scopes": N_("Scopes"),
    "server metadata": N_("Metadata of this server"),
    "registration": N_("Registration of clients"),
    "client": N_("Client"),
    "person": N_("Person"),
    "authorization": N_("Authorization"),
    "issuer": N_("Issuer in the answer"),
    "token": N_("Token"),
    "audience": N_("Audience of the token"),
    "scope": N_("Scope of the token"),
    "call with token": N_("Call with the token"),
    "foreign tokens": N_("Calls with foreign tokens"),
}
_OUTBOXES: dict[str, Outbox[Any]] = {
    N_("Emails"): outbox.MAILS,
    N_("Logout tokens"): outbox.LOGOUTS,
    N_("Webhooks"): webhooks.outbox,
    N_("People in applications (SCIM)"): provisioning.outbox,
}


def overview() -> Response:
    """Show the overview of administration. Those without all permissions have a short one."""
    if not access.staff().rights.permissions.issuperset(STAFF):
        return admin_page.render("admin/helpdesk.html", "overview")
    findings = _findings()  # first: each check ends the transaction
    findings += caching.cached("hourly", _HOUR, partial(_run, _EACH_HOUR))
    number = _DAYS[request.args.get("days") == str(_DAYS[1])]
    days = _days(number)
    active = (key for key in keys.every_signing_key() if key.state == KeyState.ACTIVE)
    return admin_page.render(
        "admin/overview.html",
        "overview",
        figures=_figures(),
        busiest=_busiest(),
        changes=audit_trail.views(rows.newest_of(_CHANGES, _SHOWN_CHANGES)),
        remedies=_REMEDIES,
        spans=_DAYS,
        days=days,
        labelled=max(1, number // _LABELS),
        picture=bars([(day.sign_ins, day.failures) for day in days]),
        outboxes=[(title, *outbox.waiting()) for title, outbox in _OUTBOXES.items()],
        revision=schema.revision(db.session.connection()),
        worker=outbox.last_beat(outbox.WORKER),
        keys_since=min(filter(None, (key.activated_at for key in active)), default=None),
        findings=[
            finding for finding in findings if finding.status in (Status.WARNING, Status.WRONG)
        ],
        labels=LABELS,
    )


def checks() -> Response:
    """Run all checks, including slow ones; a POST tries a complete sign-in."""
    form = ConfirmForm()
    has_signed_in = form.validate_on_submit()
    if has_signed_in:
        routing.spend(access.staff().user.email)
        findings = list(guarded(sign_in.NAME, _sign_in))
    else:
        findings = _findings()
        db.session.rollback()  # no transaction waits for other servers
        with concurrency.slot_released():
            findings += _run(_ELSEWHERE)
    return admin_page.render(
        "admin/checks.html",
        "overview",
        findings=list(dict.fromkeys(findings)),
        labels=LABELS,
        statuses=STATUSES,
        form=form,
        has_signed_in=has_signed_in,
        command=f"{COMMAND} doctor",
    )


def _sign_in() -> Findings:
    """Try a sign-in as `doctor` does, if the server can answer a second request meanwhile."""
    actor = replace(access.staff().actor, by="doctor")
    own = context.settings().base_url + public_url.DISCOVERY
    db.session.rollback()
    with concurrency.slot_released():
        try:
            requests.get(own, timeout=_OWN_ANSWER, allow_redirects=False)
        except requests.RequestException as error:
            observation = Message(
                "this server did not answer itself (%(reason)s)", reason=type(error).__name__
            )
            hint = Message(
                "check SSO_BASE_URL and the proxy; a server that handles one request at a time "
                "cannot call itself: run %(command)s",
                command=f"{COMMAND} doctor",
            )
            yield wrong(sign_in.NAME, observation, hint)
        else:
            yield from sign_in.code_flow(actor, "doctor-page")


def _findings() -> list[Finding]:
    """Return the findings of checks that contact no server except the database."""
    return [*caching.cached("checks", _MINUTE, partial(_run, _EACH_MINUTE)), *_run(_NOW)]


def _run(checks: Mapping[str, Callable[[], Findings]]) -> list[Finding]:
    return [finding for name, check in checks.items() for finding in guarded(name, check)]


@dataclass(frozen=True)
class Figure:
    """A number, with a link to the list of what it counts."""

    title: str
    total: Total
    link: str


def _figures() -> list[Figure]:
    """Return the totals, up to a minute old."""
    counters: tuple[tuple[str, Callable[[int], int], str], ...] = (
        (N_("People"), totals.people, admin_page.url("people")),
        (
            people_list.ACTIVE_TITLE,
            partial(totals.active_people, people_list.ACTIVE_DAYS),
            admin_page.url("people", state="active"),
        ),
        (
            people_list.FACTOR_TITLE,
            totals.with_second_factor,
            admin_page.url("people", state=people_list.FACTOR_STATE),
        ),
        (N_("Groups"), totals.groups, admin_page.url("groups")),
        (N_("Applications"), totals.clients, admin_page.url("applications")),
        (N_("Sessions"), totals.sessions, admin_page.url("sessions")),
        (N_("Emails waiting"), totals.mails, admin_page.url("emails", state="waiting")),
    )
    return [
        Figure(title, caching.cached(("figure", title), _MINUTE, partial(_total, count)), link)
        for title, count, link in counters
    ]


def _total(count: Callable[[int], int]) -> Total:
    counted = count(MOST_COUNTED)
    return Total(min(counted, MOST_COUNTED), counted > MOST_COUNTED)


_CHANGES = (
    Event.CLIENT_CREATED, Event.CLIENT_CHANGED, Event.CLIENT_DELETED, Event.CLIENT_DISABLED,
    Event.CLIENT_ENABLED, Event.CLIENT_SECRET_ROTATED, Event.CLIENT_OLD_SECRET_ENDED,
    Event.API_CREATED, Event.API_CHANGED, Event.API_DELETED,
    Event.GROUP_CREATED, Event.GROUP_CHANGED, Event.GROUP_DELETED, Event.GROUP_OWNER_ADDED,
    Event.GROUP_OWNER_REMOVED,
    Event.USER_CREATED, Event.USER_INVITED, Event.USER_CHANGED, Event.USER_DISABLED,
    Event.USER_ENABLED, Event.USER_DELETED, Event.FACTORS_RESET, Event.KEY_ROTATED,
    Event.API_TOKEN_CREATED, Event.API_TOKEN_REVOKED,
)  # fmt: skip
_SHOWN_CHANGES, _SHOWN_APPLICATIONS = 8, 5
# Where a finding is put right, by its name.
_REMEDIES = {
    "keys": "keys",
    "mail": "emails",
    "webhooks": "webhooks",
    "provisioning": "applications",
    "secret key": "keys",
    "imported passwords": "people",
    others.PROVIDERS: "providers",
    others.DIRECTORIES: "providers",
    "worker": "settings",
    "schema": "settings",
}


def _busiest() -> list[tuple[str, str, int]]:
    """Return the applications that most people opened in a week: ID, name, and how often."""
    since = clock.now() - timedelta(days=7)
    count = partial(rows.busiest_clients, Event.CODE_ISSUED, since, _SHOWN_APPLICATIONS)
    busiest = caching.cached("busiest", _HOUR, count)
    names = agent_identity.labels({client_id for client_id, _ in busiest})
    return [(each, names[each], count) for each, count in busiest if each in names]


def _days(number: int) -> list[Day]:
    """Return the sign-ins and failures of the last days. Past days are counted once."""
    today = clock.now().replace(hour=0, minute=0, second=0, microsecond=0)
    days = []
    for back in range(number - 1, -1, -1):
        day = today - timedelta(days=back)
        # Events reach the database with a short delay.
        count = partial(rows.counts, (*_SIGN_INS, *_FAILURES), day, day + timedelta(days=1))
        counts = caching.cached(f"{day:%Y-%m-%d}", _MINUTE if back < 2 else _FOREVER, count)
        days.append(Day(day, _sum(counts, _SIGN_INS), _sum(counts, _FAILURES)))
    return days


def _sum(counts: dict[str, int], names: tuple[Event, ...]) -> int:
    return sum(counts.get(name, 0) for name in names)
