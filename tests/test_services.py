"""Every public function of the services: the events it writes, the mails it queues, no commit."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from tempfile import NamedTemporaryFile
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID, uuid4

import pytest
from flask import Flask, current_app
from sqlalchemy import delete, select
from sqlalchemy import event as on

import sso.services
from sso import audit, clock, context, database
from sso.config import images
from sso.config.upstream.oidc import OidcProvider
from sso.crypto import keys
from sso.extensions import db
from sso.flow import attributes as attribute_rules
from sso.flow import moments
from sso.flow.request import AuthorizationRequest
from sso.imports.person import Factors, Person
from sso.mfa import passkeys, policy, totp
from sso.models import (
    Api,
    Attribute,
    AuditEvent,
    BrowserSession,
    Client,
    Grant,
    Identity,
    Mail,
    Passkey,
    ScimResource,
    User,
    Webhook,
    WebhookDelivery,
)
from sso.presets import loader
from sso.presets.installation import install
from sso.process.http_call import PostError
from sso.services import (
    accounts,
    agent_identity,
    agents,
    api_tokens,
    apis,
    attributes,
    authentication,
    branding,
    client_documents,
    clients,
    credentials,
    declared_accounts,
    devices,
    ends,
    group_editing,
    group_owners,
    groups,
    identities,
    importing,
    mail_links,
    mail_queue,
    mcp_servers,
    migrated_factors,
    migrating,
    notifications,
    own_apis,
    pictures,
    preset_clients,
    preview,
    program_secrets,
    provisioning,
    revocation,
    second_factors,
    service_providers,
    sign_in_codes,
    signing_keys,
    subjects,
    terms,
    webhooks,
)
from sso.services.authentication import Browser
from sso.services.changes import ListEdit
from sso.store import clients as stored_clients
from sso.store import devices as stored_devices
from sso.store import factors, named_groups, users
from sso.store import keys as stored_keys
from sso.store import provisioning as stored_scim
from sso.store.clients import RegisteredClient
from sso.store.devices import NewDevice, WaitingDevice
from sso.store.sessions import CurrentSession, ResourceOwner
from sso.upstream.identity import UpstreamIdentity
from tests.support.factories import PASSWORD, make_client, make_user
from tests.support.logos import PNG
from tests.support.processes import SECRET_KEY, free_port
from tests.support.second_factors import code_of

OLGA = audit.Actor("olga")
NEW = "another long password"
PICTURE: Any = SimpleNamespace(data=b"a JPEG")
HERE = Browser("192.0.2.1", "Firefox", is_known=False)
BASE_URL = "https://id.example.com/api/auth"
GRAFANA = install(loader.find("grafana"), "https://grafana.example.com", {})
RENAMED = {"email": {"before": "old@x.org", "after": "dana@example.com"}}
HOOK = "https://hooks.example/sso"
OLD_HASH = "$2b$04$......................7TQ9xFGqhMt4mw2mtGz5Mpr5Ft4VLIi"
CORP = OidcProvider(
    id="corp", type="oidc", name="Corp", issuer="https://corp.example", client_id="us",
    client_secret="x", trust_email=True, sign_up=True, groups={"Engineering": "staff"},
)  # fmt: skip
DANA = UpstreamIdentity(CORP.issuer, "1", "dana@example.com", email_verified=True)
ERIN_THERE = replace(DANA, subject="2", email="erin@example.com", groups=frozenset({"Engineering"}))
API = {"identifier": "https://api.example", "name": "Orders", "scopes": {"read": "Read"}}
METADATA = {"client_name": "Wiki", "redirect_uris": ["https://wiki.example/cb"]}


class World:
    """One person with two sessions, one of them with a grant of one client."""

    def __init__(self, user: User, client: Client) -> None:
        self.user, self.client, self.client_id = user, client, client.client_id
        self.session, self.other = self._session(), self._session()
        self.current = CurrentSession(self.session, user)
        grant = Grant(client_id=client.client_id, user_id=user.id, session_id=self.session.id)
        grant.scope, grant.sid = "openid", str(self.session.id)
        grant.auth_time = self.session.auth_time
        grant.amr, grant.acr = policy.PASSWORD
        db.session.add(grant)
        db.session.flush()

    def _session(self) -> BrowserSession:
        now = clock.now()
        session = BrowserSession(user_id=self.user.id, digest=str(uuid4()), created_at=now)
        session.auth_time = session.last_seen_at = now - timedelta(minutes=2)
        session.ends_at = session.expires_at = now + timedelta(hours=1)
        session.amr, session.acr = policy.PASSWORD
        session.address, session.browser = "192.0.2.1", "Firefox"
        session.remembered = False
        db.session.add(session)
        db.session.flush()
        return session

    @property
    def registered(self) -> RegisteredClient:
        client = stored_clients.find_enabled(database.session_connection(), self.client_id)
        assert client
        return client

    @property
    def owner(self) -> ResourceOwner:
        db.session.flush()
        names = [field.name for field in fields(ResourceOwner)]
        values = {
            name: getattr(self.session, name) for name in names if hasattr(self.session, name)
        }
        return ResourceOwner(
            **{
                **values,
                "session_id": self.session.id,
                "groups": [],
                "locale": None,
                "terms_version": None,
            },
            user_seen=self.user.updated_at,
            consent=None,
        )

    @property
    def device(self) -> WaitingDevice:
        now = clock.now()
        new = NewDevice(
            "digest", "user code", self.client_id, "openid", None, "192.0.2.7", "tv/1", 5, now,
            now + timedelta(minutes=10),
        )  # fmt: skip
        connection = database.session_connection()
        assert stored_devices.add(connection, new)
        device = stored_devices.find_waiting(connection, ["user code"])
        assert device
        return device

    @property
    def asked(self) -> AuthorizationRequest:
        return AuthorizationRequest(self.client_id, "", "", "openid", clock.now())

    @property
    def with_old_secret(self) -> str:
        self.client.previous_secret_expires_at = clock.now() + timedelta(hours=1)
        db.session.flush()
        return self.client_id

    def link(self, purpose: str) -> str:
        """The secret of a link for this purpose."""
        return mail_links.make(purpose, self.user.email, self.user)[1].partition("token=")[2]

    def token(self, purpose: str) -> Any:
        return mail_links.make(purpose, self.user.email, self.user)

    def key(self, state: str) -> str:
        return next(key.kid for key in stored_keys.every_signing_key() if key.state == state)

    def with_totp(self) -> str:
        secret = totp.new_secret()
        assert totp.enrol(self.user.id, secret, code_of(secret))
        return secret

    def with_passkey(self) -> str:
        passkey = Passkey(user_id=self.user.id, credential_id=b"1", public_key=b"2", name="Key")
        passkey.sign_count, passkey.is_synced = 0, False
        db.session.add(passkey)
        db.session.flush()
        return str(passkey.id)

    def installed(self) -> Client:
        """The client as one that was registered from a preset."""
        self.client.set_client_metadata(
            {**self.client.client_metadata, "preset": GRAFANA.described}
        )
        return self.client

    def factors(self) -> factors.Factors:
        return factors.of_user(self.user.id)


class Case(NamedTuple):
    """A call, and what it writes besides `session_ended`; `before` is done first."""

    function: Callable[..., Any]
    call: Callable[[World, Any], Any]
    events: str = ""
    mails: str = ""
    before: Callable[[World], Any] = lambda _: None


def act(function: Callable[..., Any], events: str, mails: str, *given: Any, **named: Any) -> Case:
    """A use case of the user, by one actor; names with a dot lead to the world's."""
    return Case(function, lambda w, _: function(OLGA, *_all(w, given), **named), events, mails)


def plain(function: Callable[..., Any], mails: str, *given: Any, **named: Any) -> Case:
    return Case(function, lambda w, _: function(*_all(w, given), **named), "", mails)


def _all(world: World, given: tuple[Any, ...]) -> list[Any]:
    return [one(world) if inspect.isfunction(one) else one for one in given]


def user(world: World) -> User:
    return world.user


def of(path: str) -> Callable[[World], Any]:
    def find(world: World) -> Any:
        found: Any = world
        for name in path.split("."):
            found = getattr(found, name)
        return found

    return find


def _planned_clients() -> list[migrating.PlannedClient]:
    new = migrating.NewClient("wiki", "Wiki", METADATA)
    return migrating.plan_clients([new], "there", overwrite=False)


def _changed_person(world: World) -> migrating.Update:
    person = Person("user 1", "dana@example.com", "Other", user_id=world.user.id)
    person.email_verified = True
    rules = importing.Rules("there")
    _, [update] = migrating.take_people(OLGA, [person], rules, overwrite=True)
    return update


ERIN = {"email": "erin@example.com", "name": "Erin"}
AGENT = "https://agent.example/client.json"
DOCUMENT = {"client_id": AGENT, "redirect_uris": ["http://127.0.0.1/callback"]}


def with_documents(_: World) -> None:
    settings = context.settings()
    current_app.extensions["sso.settings"] = replace(settings, client_documents="any")


METADATA_OF_PROVIDER = (
    '<EntityDescriptor xmlns="urn:oasis:names:tc:SAML:2.0:metadata" entityID="https://w">'
    '<SPSSODescriptor protocolSupportEnumeration="urn:oasis:names:tc:SAML:2.0:protocol">'
    '<AssertionConsumerService Binding="urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST"'
    ' Location="https://wiki.example/acs" index="0"/></SPSSODescriptor></EntityDescriptor>'
)


def of_provider(_: World) -> str:
    """A file with the metadata of a service provider."""
    with NamedTemporaryFile("w", suffix=".xml", delete=False) as file:
        file.write(METADATA_OF_PROVIDER)
    return file.name


def admitted(_: World) -> None:
    agents.allow(audit.SYSTEM, "agent.example")
    metadata = client_documents.registered(AGENT, DOCUMENT).client_metadata
    db.session.add(Client(client_id=AGENT, secret_digest="", registration="document"))
    db.session.flush()
    client = db.session.get(Client, AGENT)
    assert client is not None
    client.set_client_metadata(metadata)


def ends_after(world: World, time: timedelta) -> None:
    world.user.ends_at = clock.now() + time
    db.session.flush()


def member_until(world: World, time: timedelta) -> None:
    world.user.groups = ["staff"]
    world.user.set_group_ends({"staff": moments.text_of(clock.now() + time)})
    db.session.flush()


def secret_until(world: World, time: timedelta) -> None:
    world.client.secret_expires_at = clock.now() + time
    world.user.groups = [context.settings().admin_group]
    db.session.flush()


CASES = [
    Case(agents.admit, lambda _, __: agents.admit(OLGA, AGENT, {}),
         "agent_admitted", "", with_documents),
    act(agents.register_itself, "agent_registered", "", DOCUMENT),
    act(agents.allow, "agent_domain_allowed", "", "agent.example"),
    act(agents.block, "agent_domain_blocked", "", "agent.example"),
    Case(agents.block, lambda _, __: agents.block(OLGA, "agent.example"),
         "agent_domain_blocked client_disabled", "", admitted),
    Case(agents.remove, lambda _, __: agents.remove(OLGA, "agent.example"),
         "agent_domain_removed", "", admitted),
    plain(agents.policy_error, "", lambda _: database.session_connection(), "agent.example"),
    plain(agents.domains, ""),
    plain(agents.report_new, "", user, of("client_id"), "agent.example", "192.0.2.7",
          lambda _: clock.now()),
    plain(agent_identity.identity_of, "", of("client"), "https://agent.example/callback"),
    plain(agent_identity.claimed_name_of, "", of("client")),
    plain(agent_identity.title_of, "", of("client")),
    plain(agent_identity.label_of, "", of("client")),
    plain(agent_identity.labels, "", lambda w: [w.client_id]),
    plain(agent_identity.described, "", of("client")),
    plain(agent_identity.is_misleading, "", "Books", None),
    plain(client_documents.is_url, "", AGENT),
    plain(client_documents.domain_of, "", AGENT),
    plain(client_documents.authority_of, "", AGENT),
    plain(client_documents.url_error, "", AGENT),
    plain(client_documents.registered, "", AGENT, DOCUMENT),
    plain(client_documents.of_stranger, "", DOCUMENT),
    plain(client_documents.with_policy, "", {}, {}),
    plain(client_documents.scope_of, "", None),
    plain(clients.draft_agent, "", AGENT, METADATA, "open"),
    plain(clients.new_client_id, ""),
    plain(service_providers.certificates, "", Path(__file__)),
    plain(service_providers.imported, "", of_provider),
    plain(service_providers.of_metadata, "", METADATA_OF_PROVIDER.encode(), "a form"),
    act(accounts.create, "user_created", "verify", **ERIN, password=NEW),
    act(accounts.create, "user_created", "", **ERIN, password=NEW, email_verified=True),
    act(accounts.create, "user_created", "invite", **ERIN, is_invited=True),
    act(accounts.create, "user_created", "", **ERIN, password_hash=OLD_HASH, email_verified=True),
    act(accounts.invite, "user_invited", "invite", **ERIN),
    act(credentials.request_sign_up, "sign_up_asked", "sign_up", "erin@example.com"),
    act(accounts.sign_up, "signed_up", "", **ERIN, password_hash="x"),
    act(accounts.update, "user_changed", "", of("user.id"), name="Else", disabled=True),
    act(accounts.update, "user_changed", "email_changed verify", of("user.id"), email="e@x.org"),
    act(accounts.update, "", "", of("user.id"), name="Dana Demo"),
    act(accounts.disable, "user_disabled", "", user),
    act(accounts.enable, "user_enabled", "", user),
    act(accounts.update, "user_changed", "", of("user.id"), ends_at="2099-12-31"),
    Case(accounts.announce_ends, lambda _, __: accounts.announce_ends(OLGA), "",
         "account_ends", lambda w: ends_after(w, timedelta(days=1))),
    Case(accounts.end_due, lambda _, __: accounts.end_due(OLGA), "user_disabled", "",
         lambda w: ends_after(w, timedelta(days=-1))),
    act(accounts.settle, "", "", user),
    Case(accounts.settle, lambda w, _: accounts.settle(OLGA, w.user), "user_changed", "",
         lambda w: member_until(w, timedelta(0))),
    Case(accounts.end_memberships_due, lambda _, __: accounts.end_memberships_due(OLGA),
         "", "memberships_end", lambda w: member_until(w, timedelta(days=1))),
    Case(accounts.end_memberships_due, lambda _, __: accounts.end_memberships_due(OLGA),
         "user_changed", "", lambda w: member_until(w, timedelta(0))),
    plain(ends.read, "", "2099-12-31"),
    act(accounts.choose_language, "language_changed", "", user, "de"),
    act(accounts.choose_language, "", "", user, None),
    act(credentials.rename, "name_changed", "", user, "Dana Else"),
    act(credentials.rename, "", "", user, "Dana Demo"),
    act(accounts.delete, "user_deleted", "", user),
    act(accounts.delete, "user_deleted", "account_deleted", user, is_own=True),
    plain(accounts.described, "", user),
    plain(accounts.fill, "", lambda _: User(claims={}, attributes={}, groups=[]), None,
          email="erin@example.com", name="Erin"),
    plain(accounts.edit, "", user, name="Dana Else"),
    plain(accounts.switch, "", user, {"email": "dana@example.com", "disabled": False}, True, None),
    plain(accounts.owner_of, "", "dana@example.com"),
    act(accounts.take_effect, "user_changed", "email_changed", lambda w: [(w.user, RENAMED)]),
    plain(declared_accounts.meant, "", [declared_accounts.Declaration(email="e@x.org")]),
    plain(declared_accounts.plan, "", [declared_accounts.Declaration(email="e@x.org", name="E")]),
    plain(declared_accounts.require_administrators, "", OLGA, []),
    plain(declared_accounts.hash_passwords, "", lambda _: _planned(**ERIN)),
    Case(declared_accounts.carry_out, lambda _, made: declared_accounts.carry_out(OLGA, made),
         "user_created", "invite", lambda _: _planned(**ERIN)),
    Case(declared_accounts.carry_out, lambda _, made: declared_accounts.carry_out(OLGA, made),
         "user_created", "verify", lambda _: _planned(**ERIN, password=lambda: NEW)),
    Case(declared_accounts.carry_out, lambda _, made: declared_accounts.carry_out(OLGA, made),
         "user_created", "", lambda _: _planned(**ERIN, email_verified=True, password=lambda: NEW)),
    Case(declared_accounts.carry_out, lambda _, made: declared_accounts.carry_out(OLGA, made),
         "user_changed", "email_changed verify",
         lambda w: _planned(email="e@x.org", user_id=w.user.id, disabled=True)),
    plain(importing.accept_hash, "", OLD_HASH),
    act(importing.add, "user_imported", "", [Person("line 2", "erin@example.com", "Erin")],
        importing.Rules("csv")),
    act(importing.examine, "", "", [Person("line 2", "erin@example.com", "Erin")],
        importing.Rules("csv")),
    plain(migrating.plan_clients, "", [migrating.NewClient("wiki", "Wiki", METADATA)], "there",
          overwrite=False),
    act(migrating.take_clients, "client_created", "", lambda _: _planned_clients(), "there"),
    act(migrating.take_people, "user_imported", "", [Person("user 1", "erin@example.com", "Erin")],
        importing.Rules("there"), overwrite=False),
    Case(migrating.change_person, lambda _, made: migrating.change_person(
        OLGA, made, importing.Rules("there")), "user_changed", "", lambda w: _changed_person(w)),
    act(migrated_factors.take, "factor_added", "",
        lambda w: {w.user.id: Factors(totp="NZGTARSVIE2EEUCTIZXHO2SPGVGUI3JQ")}, ()),
    plain(migrated_factors.of_new, "", [Factors()], ()),
    plain(migrating.client_ids, "", "there"),
    plain(migrating.meanings_here, "", ["staff"], "there"),
    plain(migrating.digests, "", Person("user 1", "erin@example.com", "Erin")),
    plain(migrating.group_findings, "", ["a, b"]),
    act(authentication.sign_out, "", "", user),
    act(authentication.end_some, "", "", user, lambda w: [w.session.id]),
    act(credentials.mail_password_reset, "reset_asked", "reset", user),
    act(credentials.invite_again, "user_invited", "invite",
        user)._replace(before=lambda w: setattr(w.user, "password_hash", None)),
    act(api_tokens.create, "api_token_created", "", "HR", ["scim:read"]),
    Case(api_tokens.revoke, lambda _, made: api_tokens.revoke(OLGA, made[0].id),
         "api_token_revoked", "", lambda _: _api_token()),
    Case(api_tokens.accept, lambda _, made: api_tokens.accept(made[1], "192.0.2.1"),
         "", "", lambda _: _api_token()),
    Case(api_tokens.end_of,
         lambda _, made: api_tokens.end_of(OLGA, [made[0].owner_id], "owner_deleted"),
         "api_token_revoked", "", lambda _: _owned_token()),
    Case(api_tokens.actor_of, lambda _, made: api_tokens.actor_of(made[0], "scim"),
         "", "", lambda _: _api_token()),
    Case(api_tokens.allows, lambda _, made: api_tokens.allows(made[0], "scim:read"),
         "", "", lambda _: _api_token()),
    act(credentials.request_password_reset, "reset_asked", "reset", "dana@example.com"),
    act(credentials.set_password, "password_set", "password_changed", user, NEW),
    act(credentials.take_over_password, "password_set", "", user, OLD_HASH),
    act(credentials.change_password, "password_changed", "password_changed",
        user, "x", of("session.id")),
    act(credentials.reset_password, "password_reset", "password_changed", user, "x", "reset"),
    act(credentials.reset_password, "invitation_accepted", "password_changed", user, "x", "invite"),
    act(credentials.request_email_change, "email_change_asked", "change_email email_change_asked",
        user, "e@x.org"),
    act(credentials.change_email, "email_changed", "email_changed", user, "e@x.org"),
    act(credentials.request_verification, "verification_asked", "verify", user),
    act(credentials.verify_email, "email_verified", "", user),
    act(credentials.reset_factors, "factors_reset", "", user),
    act(credentials.reset_factors, "factors_reset", "factor_removed", user)._replace(
        before=World.with_totp),
    act(credentials.make_enrolment_link, "enrolment_link_made", "", user, timedelta(hours=1)),
    act(clients.register, "client_created", "", METADATA),
    plain(own_apis.every, ""),
    plain(own_apis.require_operator, "", OLGA, ["https://api.example.com"]),
    plain(own_apis.client_errors, "", {}, []),
    act(clients.change, "client_changed", "", of("client_id"),
        {"groups": ["x"], "disabled": True}),
    act(clients.change, "", "", of("client_id"), {"client_name": "Books"}),
    act(clients.change, "client_changed", "", of("client_id"),
        {"logo": images.parse(PNG, 1000)}),
    act(clients.change, "", "", of("client_id"), {"logo": images.NO_IMAGE}),
    act(clients.rotate_secret, "client_secret_rotated", "", of("client_id")),
    act(clients.rotate_secret, "client_secret_rotated", "", of("client_id"), timedelta(hours=1)),
    act(clients.limit_secret, "client_changed", "", of("client_id"), "2099-01-01"),
    act(clients.limit_secret, "", "", of("client_id"), ""),
    plain(clients.issued, "", of("client"), "secret"),
    Case(program_secrets.announce_ends, lambda _, __: program_secrets.announce_ends(OLGA),
         "", "client_secrets_end", lambda w: secret_until(w, timedelta(days=1))),
    act(clients.end_old_secret, "client_old_secret_ended", "", of("with_old_secret")),
    plain(clients.lock_all, "", lambda w: [w.client_id]),
    act(clients.disable, "client_disabled", "", of("client_id")),
    act(clients.enable, "client_enabled", "", of("client_id")),
    act(clients.delete, "client_deleted", "", of("client_id")),
    plain(clients.described, "", of("client")),
    plain(clients.plan_registration, "", METADATA, client_id="wiki"),
    plain(clients.plan_change, "", lambda w: stored_clients.detached([w.client_id])[w.client_id],
          {"client_name": "Else"}),
    plain(clients.parsed_registration, "", METADATA),
    plain(clients.replacing_registration, "", lambda w: clients.parsed_registration(METADATA)),
    plain(clients.registration_document, "", of("client")),
    act(apis.register, "api_created", "", API),
    act(mcp_servers.add, "api_created", "", "https://mcp.example.com/mcp"),
    plain(mcp_servers.url_error, "", "https://mcp.example.com/mcp"),
    plain(mcp_servers.every, ""),
    plain(apis.plan_registration, "", API),
    Case(apis.change, lambda _, api: apis.change(OLGA, api.api_id, {"groups": ["x"]}),
         "api_changed", "", lambda _: _api()),
    Case(apis.change, lambda _, api: apis.change(OLGA, api.api_id, API), "", "", lambda _: _api()),
    Case(apis.plan_change, lambda _, api: apis.plan_change(api, {"name": "Else"}),
         "", "", lambda _: _detached_api()),
    Case(apis.rotate_secret, lambda _, api: apis.rotate_secret(OLGA, api.api_id),
         "api_secret_rotated", "", lambda _: _api()),
    Case(apis.disable, lambda _, api: apis.disable(OLGA, api.api_id),
         "api_disabled", "", lambda _: _api()),
    Case(apis.enable, lambda _, api: apis.enable(OLGA, api.api_id),
         "api_enabled", "", lambda _: _api()),
    Case(apis.delete, lambda _, api: apis.delete(OLGA, api.api_id),
         "api_deleted", "", lambda _: _api()),
    Case(apis.described, lambda _, api: apis.described(api), "", "", lambda _: _api()),
    plain(apis.client_errors, "", METADATA),
    plain(apis.declared, "", {}),
    plain(apis.hold, "", [API["identifier"]]),
    plain(apis.tidy_entries, "", [API["identifier"]]),
    plain(apis.edited_entries, "", [], ListEdit()),
    act(preset_clients.connect, "client_created", "", GRAFANA, BASE_URL, {}),
    plain(preset_clients.same_place, "", lambda w: w.installed()),
    plain(preset_clients.installation_of, "", lambda w: w.installed()),
    plain(preset_clients.setup, "", lambda w: w.installed(), GRAFANA, BASE_URL),
    act(revocation.remember_consent, "consent_given", "", of("user.id"), of("client_id"),
        ["openid"], []),
    act(devices.approve, "consent_given device_approved", "device_added", user,
        of("owner"), of("registered"), of("device"), of("asked"), ["openid"], []),
    act(devices.deny, "device_denied", "", user, of("device")),
    act(revocation.deny_consent, "consent_denied", "", of("user.id"), of("client_id")),
    act(revocation.withdraw_consent, "consent_withdrawn", "", of("user.id"), of("client_id")),
    act(revocation.withdraw_agents, "", "", of("user.id")),
    plain(preview.make, "", of("client_id"), user),
    plain(revocation.end_lost_access, "", lambda w: [w.user], lambda w: [w.client]),
    plain(groups.without_members, "", lambda w: ["staff"]),
    plain(groups.not_known, "", lambda w: ["staff"], user),
    act(branding.change, "branding_changed", "", {"name": "Acme"}),
    act(branding.change, "", "", {"name": ""}),
    plain(branding.described, "", None),
    plain(branding.refused, "", "name", "it is empty"),
    act(attributes.define, "attribute_created", "", {"name": "desk", "type": "string"}),
    Case(attributes.change, lambda w, _: attributes.change(OLGA, "level", {"title": "Level"}),
         "attribute_changed", "", lambda _: _attribute()),
    Case(attributes.change, lambda w, _: attributes.change(OLGA, "level", {"type": "number"}),
         "", "", lambda _: _attribute()),
    Case(attributes.delete, lambda w, _: attributes.delete(OLGA, "level"),
         "attribute_deleted", "", lambda _: _attribute()),
    Case(attributes.set_values,
         lambda w, _: attributes.set_values(OLGA, w.user.id, {"level": 3}),
         "user_changed", "", lambda _: _attribute()),
    Case(attributes.set_own,
         lambda w, _: attributes.set_own(OLGA, w.user.id, {"level": 3}),
         "profile_changed", "", lambda _: _attribute()),
    Case(pictures.change, lambda w, _: pictures.change(OLGA, w.user.id, PICTURE),
         "user_changed", ""),
    Case(pictures.change, lambda w, _: pictures.change(OLGA, w.user.id, None), "", ""),
    Case(pictures.set_own, lambda w, _: pictures.set_own(OLGA, w.user.id, PICTURE),
         "profile_changed", ""),
    plain(pictures.is_uploaded, "", {"picture": "https://dana.example/face.jpg"}),
    Case(attributes.described, lambda _, made: attributes.described(made),
         "", "", lambda _: _attribute()),
    plain(attributes.plan_definition, "", {"name": "desk"}),
    Case(attributes.plan_change, lambda _, made: attributes.plan_change(made, {"title": ""}),
         "", "", lambda _: _attribute()),
    plain(attributes.declared, "", {}),
    plain(attributes.definitions, ""),
    plain(attributes.of_texts, "", {"level": "3"}),
    plain(attributes.party_of, "", OLGA, ()),
    plain(attributes.of_provider, "", {"team": "Blue"}),
    plain(attributes.edits_of_provider, "", user, "corp", {"team": "Blue"}),
    plain(attributes.writable, "", None, {}),
    plain(attributes.readable, "", user, attribute_rules.Party.PERSON, {}),
    plain(attributes.origin_text, "", user, "level"),
    plain(attributes.merged, "", {}, {"level": 3}),
    plain(attributes.value_errors, "", {}, {"level": 3}, None),
    plain(attributes.client_errors, "", ["x=attribute:level"], [], has_assertions=False),
    plain(attributes.hold, "", {"level": 3}),
    plain(attributes.names_of, "", {"attributes": {"before": {}, "after": {"level": 3}}}),
    act(group_editing.create, "group_created", "", "staff"),
    Case(group_editing.create,
         lambda w, _: group_editing.create(OLGA, "staff", members=[w.user.id]),
         "group_created user_changed"),
    Case(group_editing.change, lambda _, made: group_editing.change(OLGA, made.id, name="other"),
         "group_changed", "", lambda _: _group()),
    Case(group_editing.change,
         lambda w, made: group_editing.change(OLGA, made.id, added=[w.user.id]),
         "user_changed", "", lambda _: _group()),
    Case(group_editing.delete, lambda _, made: group_editing.delete(OLGA, made.id),
         "group_deleted", "", lambda _: _group()),
    Case(group_owners.change,
         lambda w, made: group_owners.change(OLGA, made.id, added=[w.user.id]),
         "group_owner_added", "", lambda _: _group()),
    Case(group_owners.change,
         lambda w, made: group_owners.change(OLGA, made.id, removed=[w.user.id]),
         "group_owner_removed", "", lambda w: _owned_group(w)),
    Case(group_owners.add_member,
         lambda _, made: group_owners.add_member(OLGA, made.id, **ERIN),
         "user_changed user_invited", "invite", lambda _: _group()),
    Case(group_owners.remove_member,
         lambda w, made: group_owners.remove_member(OLGA, made.id, w.user.id),
         "user_changed", "", lambda w: _group([w.user.id])),
    Case(group_owners.may_manage, lambda _, made: group_owners.may_manage(OLGA, made),
         "", "", lambda _: _group()),
    Case(group_owners.is_staff_of, lambda _, made: group_owners.is_staff_of(OLGA, made),
         "", "", lambda _: _group()),
    plain(group_owners.gives_permissions, "", "staff"),
    plain(group_owners.find, "", OLGA, uuid4()),
    plain(group_owners.managed_by, "", OLGA, lambda _: named_groups.containing("")),
    plain(revocation.session, "", of("session"), "test"),
    plain(revocation.sessions_of_user, "", of("user.id"), "test"),
    plain(revocation.surplus_of_user, "", of("user.id")),
    plain(revocation.everything_of_user, "", of("user.id"), "test"),
    plain(revocation.grants_of_user_and_client, "", of("user.id"), of("client_id"), "test"),
    # One event for each key.
    act(signing_keys.rotate, "key_rotated " * len(keys.ALGORITHMS), "", SECRET_KEY, force=True),
    act(signing_keys.retire, "key_retired", "", lambda w: w.key("next"), SECRET_KEY),
    plain(signing_keys.ensure, "", SECRET_KEY),
    plain(signing_keys.ensure_saml, "", [SECRET_KEY]),
    plain(signing_keys.require_any_open, "", SECRET_KEY),
    act(second_factors.request_emailed_code, "enrolment_code_asked", "enrolment_code", user,
        of("session")),
    act(second_factors.allow_enrolment, "enrolment_allowed", "", user, of("session"), "email"),
    act(second_factors.accept_emailed_code, "enrolment_code_failed", "", user, of("session.id"),
        "12345678"),
    Case(second_factors.allow_by_link,
         lambda w, secret: second_factors.allow_by_link(OLGA, w.user, w.session, secret),
         "enrolment_allowed", "", lambda w: second_factors.remember_link(w.user)),
    plain(second_factors.remember_link, "", user),
    plain(second_factors.make_emailed_code, "", user, of("session.id")),
    plain(second_factors.emailed_code_bond, "", user, of("session.id")),
    plain(notifications.sign_in_code_asked, "sign_in_code", "dana@example.com", UUID(int=1)),
    plain(attributes.asked_at_sign_up, "", user),
    Case(attributes.set_at_sign_up,
         lambda w, _: attributes.set_at_sign_up(OLGA, w.user, {"plan": "gold"}),
         "profile_changed", "", lambda _: attributes.define(
             OLGA, {"name": "plan", "type": "string", "at_sign_up": "required"})),
    plain(terms.missing, "", user),
    act(terms.accept, "terms_accepted", "", user, "2026-11"),
    act(sign_in_codes.request, "sign_in_code_asked", "sign_in_code", "dana@example.com", None),
    Case(sign_in_codes.address_of, lambda _, token: sign_in_codes.address_of(token),
         "", "", lambda w: _sign_in_code(w)[0]),
    plain(sign_in_codes.is_allowed_for, "", user),
    plain(sign_in_codes.may_be_strangers, "", user),
    Case(sign_in_codes.make, lambda w, token: sign_in_codes.make(token, w.user),
         "", "", lambda w: _sign_in_code(w)[0]),
    Case(sign_in_codes.redeem, lambda _, made: sign_in_codes.redeem(OLGA, *made),
         "", "", lambda w: _sign_in_code(w)),
    Case(sign_in_codes.redeem, lambda _, made: sign_in_codes.redeem(OLGA, made[0], "0"),
         "sign_in_failed", "", lambda w: _sign_in_code(w)),
    plain(mail_links.make, "", "verify", "dana@example.com", user),
    plain(mail_links.make_secret, "", "verify", "dana@example.com", user, timedelta(hours=1)),
    plain(mail_links.lifetime, "", "invite"),
    plain(mail_links.find, "", lambda w: w.link("reset"), "reset"),
    Case(mail_links.use, lambda w, _: mail_links.use(w.token("reset")[0], w.user)),
    plain(mail_links.redeem, "", lambda w: w.link("reset"), "reset"),
    plain(mail_links.end_before_factors, "", user),
    plain(second_factors.end_what_was_before, "", user),
    plain(mail_links.bond, "", user),
    act(authentication.verify_password, "sign_in_failed", "", user, "wrong", None),
    act(authentication.verify_password, "", "", user, PASSWORD, None),
    plain(authentication.lock_verified, "", user, PASSWORD, None),
    act(authentication.accept_password, "password_accepted", "second_step_missing",
        user, HERE, None),
    act(authentication.fail_second_factor, "second_factor_failed", "second_step_missing",
        user, "totp", HERE, None),
    act(authentication.begin, "signed_in", "new_browser", user, HERE, policy.PASSWORD, False, None),
    act(authentication.begin, "signed_in", "",
        user, HERE._replace(is_known=True), policy.PASSWORD, False, of("current")),
    act(authentication.step_up, "stepped_up", "", of("current"), policy.OTP),
    plain(authentication.renew, "", of("current")),
    plain(authentication.end_others, "", of("current"), "test"),
    plain(authentication.prolong, "", lambda _: db.session.connection(), of("session.id"),
          of("session.last_seen_at"), of("session.ends_at")),
    Case(second_factors.show,
         lambda w, code: second_factors.show(w.user, "", code, "", ""),
         "", "", lambda w: _codes(w)[0]),
    act(second_factors.record_recovery_code, "recovery_code_used", "recovery_code_used",
        of("user")),
    # The first factor brings recovery codes, which have an event of their own.
    Case(second_factors.add_totp, lambda w, secret: second_factors.add_totp(
            OLGA, w.current, w.factors(), secret, code_of(secret)),
         "factor_added recovery_codes_made", "factor_added", lambda _: totp.new_secret()),
    act(second_factors.add_passkey, "factor_added", "factor_added",
        of("current"), lambda w: w.with_totp() and w.factors(), "Key", "{}", "x"),
    Case(second_factors.rename_passkey, lambda w, passkey: second_factors.rename_passkey(
            OLGA, w.user, w.factors(), passkey, "Phone"),
         "factor_renamed", "", World.with_passkey),
    Case(second_factors.remove_passkey, lambda w, passkey: second_factors.remove_passkey(
            OLGA, w.user, w.factors(), passkey),
         "factor_removed", "factor_removed", World.with_passkey),
    Case(second_factors.remove_totp,
         lambda w, _: second_factors.remove_totp(OLGA, w.user, w.factors()),
         "factor_removed", "factor_removed", World.with_totp),
    Case(second_factors.renew_recovery_codes,
         lambda w, _: second_factors.renew_recovery_codes(OLGA, w.user, w.factors()),
         "recovery_codes_made", "recovery_codes_made", World.with_totp),
    act(identities.resolve, "identity_linked", "identity_added", CORP, DANA),
    act(identities.resolve, "identity_linked signed_up user_changed", "", CORP, ERIN_THERE),
    act(identities.resolve, "", "", CORP, replace(DANA, email_verified=False)),
    act(identities.resolve, "sign_in_failed", "", CORP, DANA)._replace(
        before=lambda w: setattr(w.user, "disabled_at", clock.now())),
    act(identities.link, "identity_linked", "identity_added", user, CORP, DANA),
    Case(identities.unlink, lambda w, known: identities.unlink(OLGA, w.user, known.id),
         "identity_unlinked", "identity_removed", lambda w: _identity(w)),
    Case(identities.remove_identity, lambda w, known: identities.remove_identity(
            OLGA, w.user, known.id, warned=identities.consequences(w.user, known)),
         "identity_unlinked", "identity_removed", lambda w: _identity(w)),
    Case(identities.consequences, lambda w, known: identities.consequences(w.user, known),
         "", "", lambda w: _identity(w)),
    plain(identities.has_other_way_in, "", user),
    Case(identities.is_managed, lambda w, known: identities.is_managed(w.user, known),
         "", "", lambda w: _identity(w)),
    act(identities.take_over_profile, "user_changed", "", CORP, user,
        replace(DANA, groups=frozenset({"Engineering"}))),
    plain(identities.name_of, "", DANA),
    plain(identities.email_of, "", DANA),
    Case(identities.disable_user,
         lambda w, known: identities.disable_user(OLGA, CORP, known, "expired"),
         "user_disabled", "", lambda w: _identity(w)),
    Case(identities.enable_user, lambda w, known: identities.enable_user(OLGA, CORP, DANA),
         "user_enabled", "", lambda w: _barred(w)),
    Case(identities.enable_user, lambda w, known: identities.enable_user(OLGA, CORP, DANA),
         "", "", lambda w: _identity(w)),
    Case(identities.confirm_directory_account, lambda w,
         known: identities.confirm_directory_account(OLGA, CORP, known, DANA),
         "", "", lambda w: _identity(w)),
    plain(identities.directory_of, "", user),
    Case(identities.note_session, lambda w, known: identities.note_session(known, DANA),
         "", "", lambda w: _identity(w)),
    plain(identities.encrypted_token, "", "x"),
    plain(identities.decrypted_token, "", "x"),
    Case(identities.end_sessions,
         lambda w, known: identities.end_sessions(OLGA, CORP.issuer, DANA.subject, None),
         "", "", lambda w: _identity(w)),
    Case(identities.confirm_session,
         lambda w, known: identities.confirm_session(OLGA, CORP, known[0], known[1], None),
         "", "", lambda w: (identities.note_session(_identity(w), DANA), _identity(w))),
    act(authentication.accept_identity, "identity_accepted", "", user, "corp"),
    plain(revocation.some_sessions, "", of("user.id"), lambda w: [w.session.id], "test"),
    plain(webhooks.described, "", lambda _: _webhook()),
    act(webhooks.create, "webhook_created", "", HOOK, lambda w: ["signed_in"]),
    Case(webhooks.change, lambda w, id_: webhooks.change(OLGA, id_, url=f"{HOOK}/2"),
         "webhook_changed", "", lambda _: _webhook().id),
    Case(webhooks.disable, lambda w, id_: webhooks.disable(OLGA, id_),
         "webhook_disabled", "", lambda _: _webhook().id),
    Case(webhooks.enable, lambda w, id_: webhooks.enable(OLGA, id_),
         "webhook_enabled", "", lambda _: _webhook().id),
    Case(webhooks.ping, lambda w, id_: _pinged(id_), "webhook_tested", "",
         lambda _: _webhook(f"http://127.0.0.1:{free_port()}/").id),
    Case(webhooks.retry, lambda w, id_: webhooks.retry(OLGA, id_),
         "webhook_retried", "", lambda _: _given_up()),
    Case(webhooks.delete, lambda w, id_: webhooks.delete(OLGA, id_),
         "webhook_deleted", "", lambda _: _webhook().id),
    plain(webhooks.is_for_commands, "", OLGA, HOOK),
    plain(attributes.unknown_in, "", ["x=attribute:y"], []),
    plain(attributes.subject_errors, "", {"subject_attribute": "y"}, {}),
    plain(subjects.names, ""),
    plain(subjects.lock, "", {"level": 3}),
    plain(subjects.lock_for_client, "", "level"),
    plain(subjects.owners, "", "level", ["3"]),
    plain(subjects.value_errors, "", None, {}, {"level": "3"}),
    plain(subjects.require_distinct, "", []),
    plain(subjects.client_errors, "", "level"),
    plain(provisioning.client_errors, "", {}, {}),
    plain(provisioning.require_may_call, "", OLGA, HOOK),
    plain(provisioning.keep, "", of("client"), ["scim_url"]),
    Case(provisioning.token_of, lambda _, made: provisioning.token_of(stored_scim.every()[0]),
         "", "", lambda w: _receiver(w)),
    Case(provisioning.set_token, lambda w, _: provisioning.set_token(OLGA, w.client_id, "secret"),
         "provisioning_token_changed", "", lambda w: _receiver(w)),
    Case(provisioning.ping, lambda w, _: provisioning.ping(OLGA, w.client),
         "provisioning_tested", "", lambda w: _receiver(w)),
    Case(provisioning.retry, lambda w, made: provisioning.retry(OLGA, made.id),
         "provisioning_retried", "", lambda w: _receiver(w)),
    Case(provisioning.repair, lambda w, _: provisioning.repair(OLGA, w.client_id, [w.user.id]),
         "provisioning_repaired", "", lambda w: _receiver(w)),
    Case(provisioning.note_changes, lambda *_: provisioning.note_changes(),
         "", "", lambda w: _receiver(w)),
    Case(provisioning.scan, lambda *_: provisioning.scan(), "", "", lambda w: _receiver(w)),
    Case(provisioning.is_admitted, lambda w, _: provisioning.is_admitted(w.client, w.user)),
    Case(provisioning.note_sent, lambda _, made: provisioning.note_sent(OLGA, made, "created"),
         "provisioned", "", lambda w: _receiver(w)),
    Case(provisioning.note_given_up, lambda _, made: provisioning.note_given_up(OLGA, made, "x"),
         "provisioning_failed", "", lambda w: _receiver(w)),
    Case(mail_queue.resend, lambda _, id_: mail_queue.resend(OLGA, id_),
         "mail_resent", "", lambda _: _failed_mail()),
    Case(mail_queue.resend_failed, lambda _, __: mail_queue.resend_failed(OLGA),
         "mail_resent", "", lambda _: _failed_mail()),
    Case(mail_queue.delete, lambda _, id_: mail_queue.delete(OLGA, id_),
         "mail_deleted", "", lambda _: _failed_mail()),
    plain(notifications.verify, "verify", user),
    plain(notifications.invited, "invite", user),
    plain(notifications.welcome, "", lambda w: [w.user], lambda w: [w.user]),
    plain(notifications.queue_all, "invite",
          lambda w: notifications.welcome([w.user], [])[0]),
    plain(notifications.queue_all, "verify",
          lambda w: notifications.welcome([], [w.user])[1]),
    plain(notifications.reset_asked, "reset", "dana@example.com"),
    plain(notifications.sign_up_asked, "sign_up", "erin@example.com"),
    plain(notifications.email_change_asked, "change_email email_change_asked", user, "e@x.org"),
    plain(notifications.email_changed, "email_changed", user, "old@x.org"),
    plain(notifications.account_deleted, "account_deleted", user),
    plain(notifications.account_ends, "account_ends", user),
    plain(notifications.memberships_end, "memberships_end", user, ["staff"],
          lambda _: clock.now()),
    plain(notifications.api_tokens_end, "api_tokens_end", user, ["Entra"]),
    plain(notifications.client_secrets_end, "client_secrets_end", user, ["Wiki"]),
    plain(notifications.password_changed, "password_changed", user),
    plain(notifications.new_browser, "new_browser", user, of("session")),
    plain(notifications.device_added, "device_added", user, "Books", "tv/1", "192.0.2.7"),
    plain(notifications.agent_connected, "agent_connected", user, "agent.example", "192.0.2.7"),
    plain(notifications.factor_added, "factor_added", user, "Key"),
    plain(notifications.factor_removed, "factor_removed", user, "Key"),
    plain(notifications.identity_added, "identity_added", user, "Corp", "dana@corp.example"),
    plain(notifications.identity_removed, "identity_removed", user, "Corp", "dana@corp.example"),
    plain(notifications.recovery_codes_made, "recovery_codes_made", user),
    plain(notifications.recovery_code_used, "recovery_code_used", user, 3),
    plain(notifications.second_step_missing, "second_step_missing",
          user, "Firefox", "192.0.2.1", timedelta(0), None),
    plain(notifications.enrolment_code_asked, "enrolment_code", user, of("session.id"), "x"),
]  # fmt: skip
# No use cases: the transaction of a request, and pure checks and comparisons.
APART = {"transaction", "checks", "proxied_clients", "saml_checks", "issuer_checks", "changes",
         "profiles", "roles",
         "api_values"}  # fmt: skip


def _planned(**declared: Any) -> list[declared_accounts.Planned]:
    return declared_accounts.plan([declared_accounts.Declaration(**declared)]).planned


def _identity(world: World) -> Identity:
    with audit.dry_run():
        return identities.link(OLGA, world.user, CORP, DANA)


def _barred(world: World) -> None:
    identity = _identity(world)
    with audit.dry_run():
        identities.disable_user(OLGA, CORP, identity, "expired")


def _api() -> Api:
    with audit.dry_run():
        return apis.register(OLGA, API)[0]


def _detached_api() -> Api:
    db.session.expunge(api := _api())
    return api


def _webhook(url: str = HOOK) -> Webhook:
    with audit.dry_run():
        return webhooks.create(OLGA, url, ["signed_in"])[0]


def _receiver(world: World) -> ScimResource:
    with audit.dry_run():
        fields = {"scim_url": f"http://127.0.0.1:{free_port()}", "scim_everyone": True}
        clients.change(OLGA, world.client_id, fields)
    stored_scim.mark_due(world.client_id, {world.user.id: world.user.email})
    return stored_scim.newest(world.client_id, 1)[0]


def _pinged(webhook_id: UUID) -> None:
    with pytest.raises(PostError):
        webhooks.ping(OLGA, db.session.get_one(Webhook, webhook_id))


def _given_up() -> UUID:
    delivery = WebhookDelivery(webhook_id=_webhook().id, event="signed_in", body="{}")
    db.session.add(delivery)
    db.session.flush()
    delivery.next_attempt_at = None
    return delivery.id


def _failed_mail() -> UUID:
    mail = Mail(kind="reset", address="dana@example.com", last_fault="x")
    db.session.add(mail)
    db.session.flush()
    mail.next_attempt_at = None
    return mail.id


def _api_token() -> Any:
    with audit.dry_run():
        return api_tokens.create(OLGA, "HR", ["scim:read"])


def _owned_token() -> Any:
    with audit.dry_run():
        return api_tokens.create(audit.Actor("olga", user_id=uuid4()), "HR", ["scim:read"])


def _group(members: Sequence[UUID] = ()) -> Any:
    with audit.dry_run():
        return group_editing.create(OLGA, "staff", members=members)


def _owned_group(world: World) -> Any:
    group = _group()
    with audit.dry_run():
        group_owners.change(OLGA, group.id, added=[world.user.id])
    return group


def _attribute() -> Attribute:
    with audit.dry_run():
        fields = {"name": "level", "type": "number", "writers": ["administrator", "person"]}
        return attributes.define(OLGA, fields)


def _sign_in_code(world: World) -> tuple[UUID, str]:
    token_id = sign_in_codes.request(audit.SYSTEM, world.user.email, None)
    db.session.execute(delete(Mail))
    world.user.email_verified = True
    return token_id, sign_in_codes.make(token_id, world.user) or ""


def _codes(world: World) -> list[str]:
    return totp.renew_recovery_codes(world.user.id)


@pytest.fixture
def world(app: Flask, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    client_id = make_client(app).client_id
    user_id = make_user(app).id
    made = SimpleNamespace(name="Key", is_synced=False)
    monkeypatch.setattr(passkeys, "enrol", lambda *_: made)
    with app.app_context():
        found, client = users.find(user_id), db.session.get(Client, client_id)
        assert found is not None
        assert client is not None
        with audit.dry_run():
            yield World(found, client)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.function.__qualname__)
def test_what_it_writes(world: World, case: Case) -> None:
    commits: list[Any] = []
    prepared = case.before(world)
    db.session.commit()
    old = {mail.id for mail in db.session.scalars(select(Mail))}
    commit = commits.append
    on.listen(db.session(), "before_commit", commit)
    recording = audit._dry_run.set(False)
    try:
        case.call(world, prepared)
    finally:
        audit._dry_run.reset(recording)
        on.remove(db.session(), "before_commit", commit)
    assert commits == []
    db.session.commit()
    rows = db.session.scalars(select(AuditEvent).order_by(AuditEvent.at)).all()
    assert sorted(row.name for row in rows if row.name != "session_ended") == case.events.split()
    if case.events:
        assert all('"operator": "olga"' in row.fields for row in rows)
    mails = [mail.kind for mail in db.session.scalars(select(Mail)) if mail.id not in old]
    assert sorted(mails) == case.mails.split()


def test_no_function_is_left_out() -> None:
    path = Path(sso.services.__file__).parent
    names = {module.name for module in iter_modules([str(path)])} - APART
    public = {
        function
        for name in names
        for label, function in vars(import_module(f"sso.services.{name}")).items()
        if inspect.isfunction(function)
        and not label.startswith("_")
        and function.__module__ == f"sso.services.{name}"
    }
    assert public == {case.function for case in CASES}
