"""The table of APIs: resource servers that accept access tokens of this server (RFC 8707)."""

from datetime import datetime

from sqlalchemy import JSON, String, false, text
from sqlalchemy.orm import Mapped, mapped_column

from sso import clock
from sso.extensions import Base, UtcDateTime
from sso.flow import role_claims

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
