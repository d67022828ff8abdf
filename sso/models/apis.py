"""The tables of APIs, resource servers that accept access tokens of this server (RFC 8707), and of
the tokens that services get for themselves (RFC 6749 §4.4).
"""

from datetime import datetime

from sqlalchemy import JSON, ForeignKey, Index, String, Text, false, text
from sqlalchemy.orm import Mapped, mapped_column

from sso import clock
from sso.extensions import Base, UtcDateTime
from sso.flow import role_claims
from sso.models.clients import Client

ID_PREFIX = "api-"


class Api(Base):
    """An API. `identifier` is the audience of its tokens; `api_id` is its own name here.

    `scopes` has a description for each scope, `translations` the descriptions by language.
    """

    __tablename__ = "apis"

    # With it and a secret, the API authenticates at the introspection endpoint.
    api_id: Mapped[str] = mapped_column(String(48), primary_key=True)
    identifier: Mapped[str] = mapped_column(String(255), unique=True)
    name: Mapped[str] = mapped_column(String(200))
    scopes: Mapped[dict[str, str]] = mapped_column(JSON, default=dict)
    translations: Mapped[dict[str, dict[str, str]]] = mapped_column(JSON, default=dict)
    # Whose members may use it; if empty, everybody may.
    groups: Mapped[list[str]] = mapped_column(JSON, default=list)
    # Whether its tokens carry the user's groups (RFC 9068 §2.2.3.1).
    includes_groups: Mapped[bool] = mapped_column(default=False, server_default=false())
    # Entries as in `flow.role_claims`; its tokens carry the roles that the user has by them.
    roles: Mapped[list[str]] = mapped_column(JSON, default=list, server_default="[]")
    roles_shape: Mapped[str] = mapped_column(
        String(10), default=role_claims.LIST, server_default=role_claims.LIST
    )
    access_token_lifetime: Mapped[int | None]  # seconds
    # Whether clients that no operator registered may request tokens for it.
    agents: Mapped[bool] = mapped_column(default=False, server_default=false())
    secret_digest: Mapped[str | None] = mapped_column(String(80))
    disabled_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now, onupdate=clock.now)
    # Raised by each change, so that of two changes to what was read before, one is refused.
    version: Mapped[int] = mapped_column(
        default=1, server_default="1", onupdate=text("version + 1")
    )

    @property
    def introspection(self) -> bool:
        """Whether it has a secret, with which it introspects its tokens."""
        return self.secret_digest is not None

    @property
    def disabled(self) -> bool:
        return self.disabled_at is not None

    @property
    def named_groups(self) -> list[str]:
        """The groups that decide who may use it, or what its tokens say about roles."""
        return [*self.groups, *role_claims.groups_in(self.roles)]


class FormerApi(Base):
    """The identifier of a deleted API; consents may still name its scopes."""

    __tablename__ = "former_apis"

    identifier: Mapped[str] = mapped_column(String(255), primary_key=True)


class ServiceToken(Base):
    """An access token of a client, without a person: no grant, no session, no refresh token."""

    __tablename__ = "service_tokens"
    # Those of a client are counted, and end with it.
    __table_args__ = (Index("ix_service_tokens_client_id_expires_at", "client_id", "expires_at"),)

    jti: Mapped[str] = mapped_column(String(43), primary_key=True)
    client_id: Mapped[str] = mapped_column(ForeignKey(Client.client_id, ondelete="CASCADE"))
    # The API that it is for.
    audience: Mapped[str] = mapped_column(String(255))
    scope: Mapped[str] = mapped_column(Text)
    access_digest: Mapped[str] = mapped_column(String(80))
    # The key that it is bound to (RFC 9449 §6): its thumbprint.
    dpop_jkt: Mapped[str | None] = mapped_column(String(43))
    issued_at: Mapped[datetime] = mapped_column(UtcDateTime)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    revoked_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
