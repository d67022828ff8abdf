"""Pages about the server itself: settings, worker, backups, and the test of sign-in providers."""

import json
import os
import platform
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from flask import abort
from flask_babel import gettext
from werkzeug.wrappers import Response

from sso import context
from sso.audit import rows
from sso.audit.events import Event
from sso.checkup import others
from sso.checkup.finding import Finding, guarded
from sso.config.upstream.ldap import LdapProvider
from sso.config.upstream.oidc import GitHubProvider, OidcProvider
from sso.config.upstream.provider import Provider
from sso.database import schema
from sso.endpoints.admin import access, admin_page, caching, overview
from sso.endpoints.admin.forms import ConfirmForm, ProviderTestForm
from sso.extensions import db
from sso.i18n import N_
from sso.models import AuditEvent
from sso.observability import setting_values
from sso.process import concurrency
from sso.process.program import COMMAND
from sso.store import identities, outbox
from sso.web import routing

_SOURCES = {
    setting_values.DEFAULT: N_("default"),
    setting_values.ENVIRONMENT: N_("environment"),
    setting_values.DATABASE: N_("database"),
    setting_values.PROGRAM: N_("chosen at the start"),
}
_TYPES = {"oidc": "OpenID Connect", "google": "Google", "microsoft": "Microsoft",
          "github": "GitHub", "ldap": "LDAP"}  # fmt: skip


def settings() -> Response:
    """Show the settings, secrets hidden, with the state of worker, schema and backups."""
    backup = next(iter(rows.newest(names=[Event.BACKUP_MADE], limit=1)), None)
    chosen = setting_values.in_use(context.settings(), os.environ, context.branding())
    return admin_page.render(
        "admin/settings.html",
        "settings",
        settings=[(setting, _SOURCES.get(setting.source)) for setting in chosen],
        revision=schema.revision(db.session.connection()),
        database=db.engine.dialect.name,
        python=platform.python_version(),
        worker=outbox.last_beat(outbox.WORKER),
        backup=backup,
        backup_size=json.loads(backup.fields).get("bytes") if backup else None,
        command=f"{COMMAND} settings",
        backup_command=f"{COMMAND} backup",
    )


@dataclass(frozen=True)
class ProviderView:
    """A provider as the page shows it."""

    provider: Provider
    kind: str
    place: str

    @property
    def facts(self) -> list[str]:
        """Return what else is set, as texts in the language of the page."""
        provider, facts = self.provider, []
        if provider.domains:
            facts.append(gettext("for %(domains)s", domains=", ".join(provider.domains)))
        if provider.sign_up:
            facts.append(gettext("people without an account get one"))
        if provider.trust_email:
            facts.append(gettext("its email addresses are trusted"))
        if provider.recheck:
            facts.append(gettext("sessions are checked again"))
        return facts


def _view(provider: Provider) -> ProviderView:
    place = ""
    if isinstance(provider, LdapProvider):
        place = ", ".join(map(str, provider.client.servers))
    elif isinstance(provider, OidcProvider):
        place = provider.issuer
    elif isinstance(provider, GitHubProvider):
        place = provider.url
    return ProviderView(provider, _TYPES.get(provider.type, provider.type), place)


_SEARCHED_FAILURES, _SHOWN_FAILURES = 500, 10


@dataclass(frozen=True)
class Failure:
    """A sign-in that a provider refused, or that failed because it did not answer."""

    event: AuditEvent
    reason: str


def _failures() -> dict[str, list[Failure]]:
    """Return the last failures of each provider, newest first, among the newest of all sign-ins.

    Wrong names and passwords of a directory are none: its users mistype them.
    """
    failures: dict[str, list[Failure]] = defaultdict(list)
    for event in rows.newest(names=[Event.SIGN_IN_FAILED], limit=_SEARCHED_FAILURES):
        fields = json.loads(event.fields)
        provider = context.upstreams().find(str(fields.get("method", "")))
        reason = str(fields.get("reason", ""))
        if provider is None:
            continue
        if isinstance(provider, LdapProvider) and not reason.startswith("unavailable"):
            continue
        failures[provider.id].append(Failure(event, reason))
    return failures


def _usage(provider: Provider) -> tuple[int, datetime | None]:
    """Return how many accounts are connected, and the last sign-in, up to a minute old."""
    usage: tuple[int, datetime | None] = caching.cached(
        ("provider", provider.id), timedelta(minutes=1), lambda: identities.usage(provider.id)
    )
    return usage


def _state(last_used: datetime | None, failures: Sequence[Failure]) -> tuple[str, str]:
    """Return a label for the state of a provider, by its last sign-in, and the kind of state."""
    if failures and (last_used is None or failures[0].event.at > last_used):
        return N_("the last sign-in failed"), "warning"
    return (N_("in use"), "good") if last_used else (N_("not used yet"), "")


def providers() -> Response:
    """List the sign-in providers and directories; a POST asks each whether it answers."""
    form, findings = ConfirmForm(), list[Finding]()
    listed = list(context.upstreams())
    if listed and form.validate_on_submit():
        findings = _tested(listed)
    failures = _failures()
    return admin_page.render(
        "admin/providers.html",
        "providers",
        providers=[
            (_view(provider), usage, _state(usage[1], failures[provider.id]),
             failures[provider.id][:1])
            for provider in listed
            for usage in [_usage(provider)]
        ],
        form=form,
        findings=findings,
        labels=overview.LABELS,
        statuses=overview.STATUSES,
        command=f"{COMMAND} doctor",
    )  # fmt: skip


def provider() -> Response:
    """Show a provider with its last failures; a POST tests it, and looks up an account."""
    provider = context.upstreams().find(admin_page.searched("id")) or abort(404)
    form, findings = ProviderTestForm(), list[Finding]()
    if form.validate_on_submit():
        findings = _tested([provider], (form.account.data or "").strip())
    usage, failures = _usage(provider), _failures()[provider.id]
    return admin_page.render(
        "admin/provider.html",
        "providers",
        one=_view(provider),
        people=usage[0],
        last_used=usage[1],
        state=_state(usage[1], failures),
        failures=failures[:_SHOWN_FAILURES],
        is_directory=isinstance(provider, LdapProvider),
        form=form,
        findings=findings,
        labels=overview.LABELS,
        statuses=overview.STATUSES,
        command=f"{COMMAND} doctor --provider {provider.id}",
    )


def _tested(chosen: Sequence[Provider], account: str = "") -> list[Finding]:
    """Test providers and directories, without an open transaction."""
    routing.spend(access.staff().user.email)
    db.session.rollback()  # no transaction waits for other servers
    findings: list[Finding] = []
    with concurrency.slot_released():
        for provider in chosen:
            is_directory = isinstance(provider, LdapProvider)
            name = others.DIRECTORIES if is_directory else others.PROVIDERS
            findings += guarded(name, partial(others.one_provider, provider, account))
    return findings
