"""Pages about the server itself: settings, worker, backups, and sign-in providers. Read only."""

import os
import platform
from dataclasses import dataclass

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
from sso.endpoints.admin import access, admin_page, audit_trail, overview
from sso.endpoints.admin.forms import ConfirmForm
from sso.extensions import db
from sso.i18n import N_
from sso.observability import setting_values
from sso.process import concurrency
from sso.process.program import COMMAND
from sso.store import outbox
from sso.web import routing

_SOURCES = {
    setting_values.DEFAULT: N_("default"),
    setting_values.ENVIRONMENT: N_("environment"),
    setting_values.PROGRAM: N_("chosen at the start"),
}
_TYPES = {"oidc": "OpenID Connect", "google": "Google", "microsoft": "Microsoft",
          "github": "GitHub", "ldap": "LDAP"}  # fmt: skip


def settings() -> Response:
    """Show the settings, secrets hidden, with the state of worker, schema and backups."""
    chosen = setting_values.in_use(context.settings(), os.environ)
    return admin_page.render(
        "admin/settings.html",
        "settings",
        settings=[(setting, _SOURCES.get(setting.source)) for setting in chosen],
        revision=schema.revision(db.session.connection()),
        database=db.engine.dialect.name,
        python=platform.python_version(),
        worker=outbox.last_beat(outbox.WORKER),
        backups=audit_trail.views(rows.newest(names=[Event.BACKUP_MADE], limit=1)),
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


def providers() -> Response:
    """List the sign-in providers and directories; a POST asks each whether it answers."""
    form = ConfirmForm()
    findings: list[Finding] = []
    listed = [_view(provider) for provider in context.upstreams()]
    if listed and form.validate_on_submit():
        routing.spend(access.staff().user.email)
        db.session.rollback()  # no transaction waits for other servers
        with concurrency.slot_released():
            for name, check in ((others.PROVIDERS, others.providers),
                                (others.DIRECTORIES, others.directories)):  # fmt: skip
                findings += guarded(name, check)
    return admin_page.render(
        "admin/providers.html",
        "providers",
        providers=listed,
        form=form,
        findings=[each for each in findings if each.status.value != "skipped"],
        labels=overview.LABELS,
        statuses=overview.STATUSES,
        command=f"{COMMAND} doctor",
    )
