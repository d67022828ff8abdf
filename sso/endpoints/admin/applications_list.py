"""The list of applications: filter, sort, export, and disable or enable several at once."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from flask_babel import gettext
from werkzeug.wrappers import Response

from sso.config.client_fields import AUTHORIZATION_CODE, DEVICE_CODE
from sso.endpoints.admin import access, admin_page, exports
from sso.endpoints.admin.admin_page import Total
from sso.endpoints.admin.applications import APPLICATION
from sso.endpoints.admin.forms import SelectionForm
from sso.endpoints.admin.several import Several
from sso.flow.permissions import Permission
from sso.i18n import N_
from sso.i18n.message import Message
from sso.models import Client
from sso.services import agent_identity
from sso.services.clients import lock_all
from sso.store import client_work, clients

_AGENT = "agent"
KINDS = {
    "web": N_("Web application"),
    "public": N_("Without a secret (browser, desktop, mobile)"),
    "device": N_("Device or command line"),
    "service": N_("Service without a person"),
    "proxy": N_("Behind a proxy"),
    "saml": N_("SAML"),
    _AGENT: N_("Agent"),
}
_ENABLED, _DISABLED = "enabled", "disabled"
STATES = {_ENABLED: N_("enabled"), _DISABLED: N_("disabled")}
_NAME = "name"
SORTS = {"": N_("Newest first"), _NAME: N_("Name")}
_EXPORTED = ("client_id", "name", "kind", "state", "groups", "redirect_uris", "created")


def kind_of(client: Client) -> str:
    """Return the key of the kind that the list shows for a client."""
    grant_types = client.client_metadata.get("grant_types", ())
    if client.is_agent:
        return _AGENT
    if client.is_saml:
        return "saml"
    if client.proxy_urls:
        return "proxy"
    if AUTHORIZATION_CODE not in grant_types:
        return "device" if DEVICE_CODE in grant_types else "service"
    return "public" if client.is_public else "web"


def _chosen(ids: Iterable[str]) -> list[Client]:
    """Return the clients with these IDs that the visitor manages."""
    staff = access.staff()
    clean = [text for text in ids if text.isascii() and text.isprintable()]
    return [client for client in clients.with_ids(clean) if staff.manages(client.client_id)]


def _by_label(client: Client) -> tuple[str, str]:
    return agent_identity.label_of(client).casefold(), client.client_id


_SEVERAL = Several(
    resource=APPLICATION,
    tasks=("disable", "enable"),
    name="application",
    find=_chosen,
    line=lambda client: (
        client.client_id,
        agent_identity.label_of(client),
        f"{gettext(KINDS[kind_of(client)])} · {client.client_id}",
    ),
    none=Message("Choose at least one application."),
    count=N_("Applications that this applies to: %(count)s"),
    lock=lock_all,
)


def _managed() -> frozenset[str] | None:
    """Return the IDs of the clients that the visitor manages; `None` if these are all."""
    return access.staff().rights.clients_for(Permission.APPLICATIONS)


@dataclass(frozen=True)
class Filters:
    """What the URL asks for."""

    text: str
    kind: str
    state: str
    group: str
    sort: str

    @classmethod
    def of_request(cls) -> "Filters":
        return cls(
            admin_page.searched(),
            admin_page.choice("kind", KINDS),
            admin_page.choice("state", STATES),
            admin_page.searched("group"),
            admin_page.choice("sort", SORTS),
        )

    @property
    def query(self) -> dict[str, str]:
        """Return the parameters of the URL."""
        return admin_page.chosen(
            q=self.text, kind=self.kind, state=self.state, group=self.group, sort=self.sort
        )

    @property
    def is_by_columns(self) -> bool:
        """Whether the table's columns decide, so that a page is read by itself."""
        is_whole = _managed() is None
        return is_whole and not (self.text or self.group or self.sort) and self.kind in ("", _AGENT)

    def page(self) -> tuple[Sequence[Client], dict[str, Any], Total]:
        """Return the page that the URL names, the URLs of its neighbours, and the total."""
        if not self.is_by_columns:
            return admin_page.numbered(self._matching())
        order, statement = clients.NEWEST_FIRST, self._statement()
        listed = order.page(statement, admin_page.cursor(order))
        return listed.rows, admin_page.neighbours(listed), admin_page.total(order, statement)

    def every(self) -> Iterator[Client]:
        """Yield the clients of all pages."""
        if self.is_by_columns:
            yield from exports.rows(clients.NEWEST_FIRST, self._statement())
        else:
            yield from exports.whole(self._matching)

    def _statement(self) -> Any:
        is_disabled = self.state == _DISABLED if self.state else None
        return clients.selected(is_disabled=is_disabled, is_agent=self.kind == _AGENT or None)

    def _matching(self) -> list[Client]:
        matching = [
            client
            for client in clients.having(self.text, _managed())
            if (not self.kind or kind_of(client) == self.kind)
            and (not self.state or (client.disabled_at is not None) == (self.state == _DISABLED))
            and (not self.group or self.group in client.named_groups)
        ]
        if self.sort == _NAME:
            return sorted(matching, key=_by_label)
        return sorted(
            matching, key=lambda client: (client.created_at, client.client_id), reverse=True
        )


def applications() -> Response:
    """List all clients, or those that the filters select; a POST acts on several of them."""
    form, filters = SelectionForm(), Filters.of_request()
    if response := _SEVERAL.act(form, filters.query):
        return response
    rows, pages, total = filters.page()
    return APPLICATION.render(
        "admin/applications.html",
        being_deleted=client_work.being_deleted(),
        clients=rows,
        pages=pages,
        total=total,
        filters=filters,
        kinds=KINDS,
        kind_of=kind_of,
        label_of=agent_identity.label_of,
        states=STATES,
        sorts=SORTS,
        form=form,
        tasks=_SEVERAL.labels,
        export_url=admin_page.url("applications_export", **filters.query),
    )


def export() -> Response:
    """Export the applications that the filters select, as CSV."""
    return exports.send_table("applications", _EXPORTED, _lines(Filters.of_request().every()))


def _lines(rows: Iterator[Client]) -> Iterator[Sequence[object]]:
    for client in rows:
        yield (
            client.client_id, agent_identity.label_of(client), kind_of(client),
            _DISABLED if client.disabled_at else _ENABLED, "\n".join(client.groups),
            "\n".join(client.client_metadata.get("redirect_uris", ())),
            exports.moment(client.created_at),
        )  # fmt: skip
