"""The tables of clients: registered applications with RFC 7591 metadata, their logos and origins,
and the domains whose agents are allowed or blocked.

An agent is a client that no operator registered: its client identifier is the URL of a metadata
document, or it has registered itself (RFC 7591).

Logos have a table of their own, because rows of clients are read all the time. A preflight names no
client, so clients are looked up by origin.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from authlib.integrations.sqla_oauth2 import OAuth2ClientMixin
from sqlalchemy import ForeignKey, Index, LargeBinary, String, false, text
from sqlalchemy.orm import Mapped, mapped_column

from sso import clock
from sso.config import urls
from sso.config.auth_methods import ANY_AUTH_METHOD, FAPI2, NO_AUTH_METHOD, has_secret
from sso.crypto import secrets
from sso.extensions import Base, UtcDateTime
from sso.flow import own_claims, role_claims

MAX_CLIENT_ID = 255  # characters; a client identifier may be the URL of a metadata document
DOCUMENT, OPEN = "document", "open"  # registered by nobody: see `Client.registration`
HAS_OWN_CLAIMS = text('clients.client_metadata LIKE \'%"own_claims":["%\'')
HAS_SUBJECT_ATTRIBUTE = text("clients.client_metadata LIKE '%\"subject_attribute\"%'")
HAS_HOME_URL = text("clients.client_metadata LIKE '%\"home_url\"%'")
_SECRET_ENDS = text("secret_expires_at IS NOT NULL")
_IS_AGENT = text("registration IS NOT NULL")


def api_entry(text: str) -> tuple[str, tuple[str, ...] | None]:
    """Return identifier and scopes of an entry `URI` or `URI=SCOPE,…`; `None`: all scopes."""
    identifier, separator, names = text.partition("=")
    return identifier, tuple(filter(None, names.split(","))) if separator else None


class ClientRegistration:
    """The properties of a registration, shared by the row and `RegisteredClient`."""

    if TYPE_CHECKING:
        secret_digest: Any
        secret_expires_at: Any
        previous_secret_digest: Any
        previous_secret_expires_at: Any
        registration: Any

        @property
        def client_metadata(self) -> dict[str, Any]: ...

    @property
    def name(self) -> str:
        return str(self.client_metadata["client_name"])

    @property
    def is_agent(self) -> bool:
        """Whether no operator registered it: it has a metadata document, or registered itself."""
        return self.registration is not None

    @property
    def issuer(self) -> str | None:
        """The issuer of an earlier server that it came from; `None`: this server's own."""
        return self.client_metadata.get("issuer")

    @property
    def groups(self) -> list[str]:
        """The groups whose members may use the client; if empty, everybody may."""
        return list(self.client_metadata.get("groups", []))

    def admits(self, groups: Iterable[str]) -> bool:
        """Return whether a user in these groups may use the client."""
        return not self.groups or not set(self.groups).isdisjoint(groups)

    @property
    def roles(self) -> list[str]:
        """The entries of its roles (see `flow.role_claims`)."""
        entries: list[str] = self.client_metadata.get("roles", [])
        return entries

    @property
    def roles_shape(self) -> str:
        """The shape of its claim `roles`."""
        return str(self.client_metadata.get("roles_shape", role_claims.LIST))

    @property
    def own_claims(self) -> list[str]:
        """The entries of its own claims (see `flow.own_claims`)."""
        entries: list[str] = self.client_metadata.get("own_claims", [])
        return entries

    @property
    def subject_attribute(self) -> str | None:
        """The attribute that has people's subjects for it (see `token_claims.subject`)."""
        return str(self.client_metadata.get("subject_attribute", "")) or None

    @property
    def scim_url(self) -> str | None:
        """The base URL of the SCIM service where its people are provisioned."""
        return str(self.client_metadata.get("scim_url", "")) or None

    @property
    def scim_everyone(self) -> bool:
        """Whether everybody is provisioned there, if everybody may use it."""
        return bool(self.client_metadata.get("scim_everyone"))

    @property
    def scim_groups(self) -> bool:
        """Whether its groups are sent there, too."""
        return bool(self.client_metadata.get("scim_groups"))

    @property
    def scim_delete(self) -> bool:
        """Whether people who lose access are deleted there, and not only deactivated."""
        return bool(self.client_metadata.get("scim_delete"))

    @property
    def scim_attributes(self) -> list[str]:
        """The entries of the attributes that are sent there (see `flow.scim_attributes`)."""
        entries: list[str] = self.client_metadata.get("scim_attributes", [])
        return entries

    @property
    def named_groups(self) -> list[str]:
        """The groups that decide who may use it, or what it learns about people."""
        of_claims = own_claims.groups_in(self.own_claims)
        return [*self.groups, *role_claims.groups_in(self.roles), *of_claims]

    @property
    def apis(self) -> dict[str, tuple[str, ...] | None]:
        """The APIs that it may request, with the scopes of each; `None` stands for all scopes."""
        return dict(api_entry(text) for text in self.client_metadata.get("apis", []))

    @property
    def default_api(self) -> str | None:
        """The API that its tokens are for if it names no resource."""
        return self.client_metadata.get("default_api")

    @property
    def exchange_from(self) -> list[str]:
        """The APIs as which it acts: it may exchange the access tokens that are for them."""
        return list(self.client_metadata.get("exchange_from", []))

    @property
    def id_jag_audiences(self) -> dict[str, tuple[str, tuple[str, ...]]]:
        """The client's ID and scopes at each server that it gets identity assertions for.

        No scopes stand for any.
        """
        entries = (text.split(" ") for text in self.client_metadata.get("id_jag_audiences", []))
        return {issuer: (client_id, tuple(names)) for issuer, client_id, *names in entries}

    @property
    def id_jag_issuers(self) -> list[str]:
        """The issuers whose identity assertions it may present."""
        return list(self.client_metadata.get("id_jag_issuers", []))

    def asks_each_time(self, redirect_uri: str) -> bool:
        """Return whether people are asked for consent each time that they return there.

        Only the redirect URI identifies a public client, and any program on the user's device may
        have the same one (RFC 8252 §8.6). Nobody vouches for an agent, and its document may have
        changed.
        """
        # Behind a proxy, a code is of use in the browser only that asked for it.
        is_on_device = self.is_public and not self.proxy_urls
        return self.is_agent or (is_on_device and urls.is_native(redirect_uri))

    @property
    def always_asks(self) -> bool:
        """Whether that is so at all its redirect URIs."""
        uris = self.client_metadata.get("redirect_uris", ())
        return self.is_agent or (bool(uris) and all(map(self.asks_each_time, uris)))

    @property
    def proxy_urls(self) -> list[str]:
        """The origins where it is reached behind a proxy that asks this server; none if it signs
        people in itself.
        """
        return list(self.client_metadata.get("proxy_urls", ()))

    @property
    def public_paths(self) -> list[str]:
        """The paths that need no sign-in behind the proxy (see `flow.forwarded`)."""
        return list(self.client_metadata.get("public_paths", ()))

    def lists(self, identifier: str) -> bool:
        """Return whether the registration names an API."""
        return identifier in self.apis or identifier in self.exchange_from

    @property
    def home_url(self) -> str | None:
        """The URL that starts the application."""
        return str(self.client_metadata.get("home_url", "")) or None

    @property
    def id_token_has_all_claims(self) -> bool:
        """Whether the identity token has the claims that userinfo would return."""
        return bool(self.client_metadata.get("id_token_claims") == "all")

    @property
    def backchannel_logout_uri(self) -> str | None:
        """The URL that receives logout tokens (Back-Channel Logout 1.0 §2.2)."""
        return str(self.client_metadata.get("backchannel_logout_uri", "")) or None

    @property
    def token_endpoint_auth_method(self) -> str:
        return str(self.client_metadata.get("token_endpoint_auth_method", ANY_AUTH_METHOD))

    @property
    def is_public(self) -> bool:
        """Whether the client has no secret (RFC 6749 §2.1): a native or single-page application."""
        return self.token_endpoint_auth_method == NO_AUTH_METHOD and not self.is_saml

    @property
    def entity_id(self) -> str | None:
        """The entity ID of a SAML service provider."""
        return self.client_metadata.get("saml_entity_id")

    @property
    def is_saml(self) -> bool:
        """Whether the client speaks SAML; then it gets no tokens."""
        return "saml_entity_id" in self.client_metadata

    @property
    def acs_urls(self) -> list[str]:
        """The assertion consumer services of a SAML service provider, the default first."""
        return list(self.client_metadata.get("saml_acs_urls", []))

    @property
    def saml_name_id(self) -> str:
        """Who signs in, for a SAML service provider: "persistent", "email" or a claim."""
        return str(self.client_metadata.get("saml_name_id") or "persistent")

    @property
    def saml_attributes(self) -> list[tuple[str, str]]:
        """The attributes of assertions, each with the claim that it has; empty: all claims."""
        entries = self.client_metadata.get("saml_attributes", [])
        return [(name, claim) for name, _, claim in (text.rpartition("=") for text in entries)]

    @property
    def saml_certificates(self) -> str:
        """The certificates of a SAML service provider, as PEM."""
        return str(self.client_metadata.get("saml_certificates", ""))

    @property
    def saml_logout_url(self) -> str | None:
        """The URL for single logout by redirect."""
        return str(self.client_metadata.get("saml_logout_url", "")) or None

    @property
    def signs_saml_requests(self) -> bool:
        """Whether requests of a SAML service provider have to be signed."""
        return bool(self.client_metadata.get("saml_signed_requests"))

    @property
    def has_secret(self) -> bool:
        """Whether the client authenticates with a client secret."""
        return has_secret(self.token_endpoint_auth_method)

    @property
    def is_fapi2(self) -> bool:
        """Whether the client has to follow the FAPI 2.0 Security Profile."""
        return bool(self.client_metadata.get("profile") == FAPI2)

    @property
    def requires_par(self) -> bool:
        """Whether the client has to push authorization requests (RFC 9126 §6)."""
        return bool(self.client_metadata.get("require_pushed_authorization_requests"))

    @property
    def requires_dpop(self) -> bool:
        """Whether the client's tokens have to be bound to a key (RFC 9449 §5.2)."""
        return bool(self.client_metadata.get("dpop_bound_access_tokens"))

    @property
    def requires_dpop_nonce(self) -> bool:
        """Whether the client's DPoP proofs need a nonce from this server (RFC 9449 §8)."""
        return bool(self.client_metadata.get("require_dpop_nonce"))

    @property
    def authorization_signed_response_alg(self) -> str | None:
        """The algorithm that signs authorization responses (JARM §3)."""
        return self.client_metadata.get("authorization_signed_response_alg")

    @property
    def request_object_signing_alg(self) -> str | None:
        """The algorithm of request objects (RFC 9101 §10.5); `None`: the client may send none."""
        return self.client_metadata.get("request_object_signing_alg")

    @property
    def trust_issuer(self) -> str | None:
        """The issuer whose JWTs authenticate it, in place of a key of its own (RFC 7523 §3)."""
        return self.client_metadata.get("trust_issuer")

    @property
    def trust_subject(self) -> str:
        """The subject that such a JWT needs; `*` stands for any characters."""
        return str(self.client_metadata.get("trust_subject", ""))

    @property
    def trust_audience(self) -> str | None:
        """The audience that such a JWT needs; `None`: the issuer of this server."""
        return self.client_metadata.get("trust_audience")

    @property
    def token_endpoint_auth_signing_alg(self) -> str | None:
        """The algorithm of client assertions; `None`: any of the allowed ones."""
        return self.client_metadata.get("token_endpoint_auth_signing_alg")

    def get_default_redirect_uri(self) -> None:
        """Return `None`: requests have to name the URI (Authlib would take the first)."""

    def check_client_secret(self, client_secret: str) -> bool:
        """Compare with the live secrets, in constant time."""
        current = secrets.matches(client_secret, self.secret_digest) and not self.has_secret_ended
        previous = secrets.matches(client_secret, self.previous_secret_digest or "")
        return current or (previous and self.old_secret_ends_at is not None)

    @property
    def foreign_digests(self) -> list[str]:
        """What stands for the live secrets of which only another server's hash is stored."""
        digests = [] if self.has_secret_ended else [self.secret_digest]
        if self.old_secret_ends_at is not None:
            digests.append(self.previous_secret_digest or "")
        return list(filter(secrets.is_foreign, digests))

    @property
    def has_secret_ended(self) -> bool:
        """Whether the end of the secret has been reached."""
        return self.secret_expires_at is not None and self.secret_expires_at <= clock.now()

    @property
    def old_secret_ends_at(self) -> datetime | None:
        """The end of the secret before the last rotation; `None` if it is not valid any more."""
        expires = self.previous_secret_expires_at
        return expires if expires is not None and clock.now() < expires else None

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        """Check the method at every endpoint (Authlib: only at the token endpoint)."""
        registered = self.token_endpoint_auth_method
        return method == registered or (registered == ANY_AUTH_METHOD and has_secret(method))


class Client(Base, ClientRegistration, OAuth2ClientMixin):
    """An application. Most fields are in Authlib's `client_metadata`; see `client_fields`."""

    __tablename__ = "clients"
    __table_args__ = (
        Index("ix_clients_launchable", "client_id", postgresql_where=HAS_HOME_URL,
              sqlite_where=HAS_HOME_URL),
        Index("ix_clients_own_claims", "client_id", postgresql_where=HAS_OWN_CLAIMS,
              sqlite_where=HAS_OWN_CLAIMS),
        Index("ix_clients_secret_expires_at", "secret_expires_at",
              postgresql_where=_SECRET_ENDS, sqlite_where=_SECRET_ENDS),
        Index("ix_clients_agents", "updated_at", "client_id",
              postgresql_where=_IS_AGENT, sqlite_where=_IS_AGENT),
    )  # fmt: skip

    # Authlib's columns store the secret in clear, and its client_id has no unique constraint.
    client_id: Mapped[str] = mapped_column(String(MAX_CLIENT_ID), primary_key=True)
    client_secret = None
    client_secret_expires_at = None
    client_id_issued_at = None

    secret_digest: Mapped[str] = mapped_column(String(80))  # public clients: "", matches no secret
    # When the secret ends, and when administrators were told.
    secret_expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    secret_end_announced_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    previous_secret_digest: Mapped[str | None] = mapped_column(String(80))
    previous_secret_expires_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    first_party: Mapped[bool] = mapped_column(default=False, server_default=false())
    require_pkce: Mapped[bool] = mapped_column(default=False, server_default=false())
    require_mfa: Mapped[bool] = mapped_column(default=False, server_default=false())
    # How it came here; `None`: an operator registered it.
    registration: Mapped[str | None] = mapped_column(String(10))
    # When its metadata document was read, of a client that has one.
    document_read_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    disabled_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # Whether somebody with limits did so: they enable only what one of them disabled.
    disabled_within_limits: Mapped[bool] = mapped_column(default=False, server_default=false())
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now, onupdate=clock.now)
    # Incremented by each change, so that of two changes based on the same version, one is refused.
    version: Mapped[int] = mapped_column(
        default=1, server_default="1", onupdate=text("version + 1")
    )


class ClientLogo(Base):
    """The logo of an application, and its SHA-256 digest, which is in the logo's URL."""

    __tablename__ = "client_logos"

    client_id: Mapped[str] = mapped_column(
        ForeignKey(Client.client_id, ondelete="CASCADE"), primary_key=True
    )
    digest: Mapped[str] = mapped_column(String(64), index=True)
    media_type: Mapped[str] = mapped_column(String(20))
    data: Mapped[bytes] = mapped_column(LargeBinary)


class ClientOrigin(Base):
    """A web origin of a public client's redirect URIs; loopback origins have no port."""

    __tablename__ = "client_origins"

    client_id: Mapped[str] = mapped_column(
        ForeignKey(Client.client_id, ondelete="CASCADE"), primary_key=True
    )
    origin: Mapped[str] = mapped_column(String(2000), primary_key=True, index=True)


class ClientSecretHash(Base):
    """The hash of a client's secret that another server made; see `store.secret_hashes`.

    `digest` is what the client has in place of a digest. `replaced_by`: the digest that took its
    place when the client used the secret here.
    """

    __tablename__ = "client_secret_hashes"

    client_id: Mapped[str] = mapped_column(
        ForeignKey(Client.client_id, ondelete="CASCADE"), primary_key=True
    )
    digest: Mapped[str] = mapped_column(String(80), primary_key=True)
    hash: Mapped[str] = mapped_column(String(200))
    replaced_by: Mapped[str | None] = mapped_column(String(80))


class ClientWork(Base):
    """What a change of a client has left for the worker (see `store.client_work`).

    `after`: the id of the last grant that was processed. `done` and `total` count grants; the
    worker counts them first.
    """

    __tablename__ = "client_work"

    client_id: Mapped[str] = mapped_column(
        ForeignKey(Client.client_id, ondelete="CASCADE"), primary_key=True
    )
    kind: Mapped[str] = mapped_column(String(10), primary_key=True)
    after: Mapped[UUID | None]
    done: Mapped[int] = mapped_column(default=0)
    total: Mapped[int | None]
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)


ALLOWED, BLOCKED = "allowed", "blocked"


class AgentDomain(Base):
    """A domain of client metadata documents, in lower case, and what operators decided about it.

    An allowed one may have a port: it stands for documents at that port alone.
    """

    __tablename__ = "agent_domains"

    domain: Mapped[str] = mapped_column(String(253), primary_key=True)
    status: Mapped[str] = mapped_column(String(10))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)

    @property
    def has_port(self) -> bool:
        return ":" in self.domain
