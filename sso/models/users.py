"""The tables of users: accounts, groups, browser sessions, upstream identities, mailed secrets, and
the attributes that the operator has defined.
"""

import unicodedata
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import (
    JSON,
    CheckConstraint,
    ColumnElement,
    ForeignKey,
    Index,
    LargeBinary,
    String,
    Text,
    false,
    text,
)
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import Mapped, mapped_column, validates

from sso import clock
from sso.extensions import Base, UtcDateTime
from sso.flow import attributes, group_ends, moments


class User(Base):
    """A person; `id` is the subject identifier (`sub`, OIDC Core §2) and never changes."""

    __tablename__ = "users"
    # `search_indexes` has the indexes.
    __table_args__ = (CheckConstraint("email = lower(email)", name="email_is_lower_case"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    email: Mapped[str] = mapped_column(String(320), unique=True)
    email_verified: Mapped[bool] = mapped_column(default=False, server_default=false())
    # When the user changed the email address; an operator's change leaves it alone.
    email_changed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    name: Mapped[str] = mapped_column(String(200))
    # The name as it is searched for; set by `_fold_name`.
    name_key: Mapped[str] = mapped_column(String(200), default="", server_default="")
    password_hash: Mapped[str | None] = mapped_column(String(200))
    claims: Mapped[dict[str, Any]] = mapped_column(JSON(none_as_null=True), default=dict)
    # The values of attributes (see `Attribute`) by name.
    attributes: Mapped[dict[str, Any]] = mapped_column(
        JSON(none_as_null=True), default=dict, server_default="{}"
    )
    # Members are found by the index ix_users_groups (PostgreSQL, migration 0015) or the table
    # memberships, which triggers maintain (SQLite, migration 0022).
    stored_groups: Mapped[list[str]] = mapped_column(
        "groups", JSON(none_as_null=True), default=list
    )
    # Who set the values of attributes, by name (`sso.flow.attributes.ORIGINS`); without an entry,
    # nobody knows. Read only where it is shown or changed.
    attribute_origins: Mapped[dict[str, str] | None] = mapped_column(
        JSON(none_as_null=True), deferred=True
    )
    # The ends of memberships by group (`sso.flow.group_ends`), and those that the person was told
    # of or that have passed (`ended_groups`); NULL if none has an end. From an end on, `groups`
    # lacks the group, before the worker removes it. `groups_due_at` is when the worker has to look
    # at them.
    group_ends: Mapped[dict[str, str] | None] = mapped_column(JSON(none_as_null=True))
    group_ends_told: Mapped[dict[str, str] | None] = mapped_column(JSON(none_as_null=True))
    groups_due_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # Set by provisioning clients (RFC 7643 §4.1). Without a user name, it is the email address.
    user_name: Mapped[str | None] = mapped_column(String(320), unique=True, index=True)
    external_id: Mapped[str | None] = mapped_column(String(255), index=True)
    scim_attributes: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    # Incremented to forget all browsers that the user has signed in from (`device_cookie`), and to
    # end sign-ins that wait for their second factor (`mfa.policy`).
    device_version: Mapped[int] = mapped_column(default=0, server_default="0")
    disabled_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # Whether somebody with limits did so: they enable only what one of them disabled.
    disabled_within_limits: Mapped[bool] = mapped_column(default=False, server_default=false())
    # When the account ends: from then on every check refuses it, and the worker disables it, at
    # the same moment in `disabled_at`. `search_indexes` has the index.
    ends_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # When the person was told of this end.
    end_announced_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # When the person last signed in or came back to a session, to the day; NULL if never. It is no
    # change of the account: `version` and `updated_at` stay.
    last_active_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # The version of the terms of service that the person has accepted, and when.
    terms_version: Mapped[str | None] = mapped_column(String(60))
    terms_accepted_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now, onupdate=clock.now)
    # Incremented by each change, so that of two changes based on the same version, one is refused.
    version: Mapped[int] = mapped_column(
        default=1, server_default="1", onupdate=text("version + 1")
    )

    @validates("name")
    def _fold_name(self, _: str, name: str) -> str:
        self.name_key = folded(name)
        return name

    @hybrid_property
    def groups(self) -> list[str]:
        """The names of the groups that the user is in now."""
        return group_ends.present(self.stored_groups or [], self.group_ends, clock.now())

    @groups.inplace.setter
    def _set_groups(self, names: list[str]) -> None:
        """Replace the groups. The ends of memberships that remain stay.

        Those of memberships that have ended stay, too, as told: see `ended_groups`.
        """
        ends, now = self.group_ends or {}, moments.text_of(clock.now())
        ended = {name: end for name, end in ends.items() if name not in names and end <= now}
        self.stored_groups = names
        if ends or self.group_ends_told:
            self.group_ends_told = {**(self.group_ends_told or {}), **ended}
            self.set_group_ends({name: end for name, end in ends.items() if name in names})

    @property
    def ended_groups(self) -> set[str]:
        """The groups in which the membership has ended, by an end that holds: nobody has added the
        user again.
        """
        ends, now = {**(self.group_ends_told or {}), **(self.group_ends or {})}, clock.now()
        text = moments.text_of(now)
        return {name for name, end in ends.items() if end <= text and name not in self.groups}

    @groups.inplace.expression
    @classmethod
    def _groups_expression(cls) -> ColumnElement[list[str]]:
        """The stored groups, whose memberships may have ended a moment ago."""
        return cls.__table__.c.groups

    def end_in(self, group: str) -> datetime | None:
        """Return when the membership of a group ends; `None` if it does not."""
        end = (self.group_ends or {}).get(group)
        return moments.parsed(end) if end else None

    def set_group_ends(self, ends: Mapping[str, str]) -> None:
        """Replace the ends of memberships. What the person was told of is not told again."""
        now, groups = moments.text_of(clock.now()), self.stored_groups or ()
        told = {name: end for name, end in (self.group_ends_told or {}).items()
                if ends.get(name) == end or (name not in groups and end <= now)}  # fmt: skip
        self.group_ends, self.group_ends_told = dict(ends) or None, told or None
        self.groups_due_at = group_ends.next_due(ends, told)

    @property
    def is_disabled(self) -> bool:
        """Whether the user cannot sign in: disabled, or at the end of the account."""
        return self.disabled_at is not None or has_ended(self.ends_at)

    @property
    def is_only_ended(self) -> bool:
        """Whether the account has ended, and nobody has disabled it."""
        return is_only_ended(self.disabled_at, self.ends_at)

    def set_attributes(self, values: Mapping[str, Any], origin: str) -> None:
        """Replace the attributes, and note the origin of those that differ."""
        before = self.attributes
        if attributes.changed(before, values):
            origins = attributes.origins_after(self.attribute_origins or {}, before, values, origin)
            self.attribute_origins = origins or None
        self.attributes = dict(values)

    def get_user_id(self) -> str:
        """Return the subject identifier; Authlib calls this on a resource owner."""
        return str(self.id)


def has_ended(ends_at: datetime | None) -> bool:
    """Return whether an end has been reached; it is the first moment without access."""
    return ends_at is not None and ends_at <= clock.now()


def is_only_ended(disabled_at: datetime | None, ends_at: datetime | None) -> bool:
    """Return whether an account has ended, and only the worker has disabled it, if anybody."""
    return has_ended(ends_at) and disabled_at in (None, ends_at)


def folded(name: str) -> str:
    """Return a name as it is searched for: in small letters, without accents."""
    characters = unicodedata.normalize("NFKD", name.casefold())
    return "".join(char for char in characters if not unicodedata.combining(char))[:200]


class UserPicture(Base):
    """The uploaded picture of a user, apart from the row that is read all the time.

    Its URL has the random `name`, and is the value of the claim `picture`.
    """

    __tablename__ = "user_pictures"

    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(String(43), unique=True)
    data: Mapped[bytes] = mapped_column(LargeBinary)


class BrowserSession(Base):
    """A signed-in browser; `id` is the `sid` claim, and `digest` is of the cookie's secret."""

    __tablename__ = "browser_sessions"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    digest: Mapped[str] = mapped_column(String(80), unique=True)
    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"), index=True)
    auth_time: Mapped[datetime] = mapped_column(UtcDateTime)
    amr: Mapped[str] = mapped_column(String(100))
    acr: Mapped[str] = mapped_column(String(20))
    address: Mapped[str] = mapped_column(String(45), default="")
    browser: Mapped[str] = mapped_column(String(200), default="")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)
    last_seen_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    # The session is not prolonged beyond this moment, however often it is used.
    ends_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # Whether its cookie remains when the browser is closed ("keep me signed in").
    remembered: Mapped[bool] = mapped_column(default=False, server_default=false())
    # Sign-ins and consents up to this moment have satisfied a request that demanded one.
    decisions_used_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # The time of the last second factor; sensitive changes require a recent one.
    second_factor_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # When an emailed code or an operator's link allowed the user to add a first factor.
    enrolment_allowed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class MailToken(Base):
    """A secret in a mail, for one purpose; stored as a digest.

    `user_id` is NULL while there is no user (self sign-up). `bound_to` is a digest of the user's
    email address and password hash: a change of either ends the token.
    """

    __tablename__ = "mail_tokens"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    digest: Mapped[str] = mapped_column(String(80), unique=True)
    purpose: Mapped[str] = mapped_column(String(20))
    user_id: Mapped[UUID | None] = mapped_column(
        ForeignKey(User.id, ondelete="CASCADE"), index=True
    )
    address: Mapped[str] = mapped_column(String(320))
    bound_to: Mapped[str] = mapped_column(String(80))
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)
    expires_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # Wrong guesses of a short code; the secret of a link cannot be guessed.
    failures: Mapped[int] = mapped_column(default=0, server_default="0")


class Group(Base):
    """A group. Users have the names of their groups (`User.groups`), and clients the names of the
    groups that may use them.
    """

    __tablename__ = "groups"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    name: Mapped[str] = mapped_column(String(200), unique=True)
    # The id that a provisioning client uses (RFC 7643 §3.1).
    external_id: Mapped[str | None] = mapped_column(String(255), index=True)
    # Incremented by each change of the row or of its members.
    version: Mapped[int] = mapped_column(default=1, server_default="1")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)


class GroupOwner(Base):
    """A user who may see, invite, add and remove the members of a group in the browser."""

    __tablename__ = "group_owners"

    group_id: Mapped[UUID] = mapped_column(
        ForeignKey(Group.id, ondelete="CASCADE"), primary_key=True
    )
    user_id: Mapped[UUID] = mapped_column(
        ForeignKey(User.id, ondelete="CASCADE"), primary_key=True, index=True
    )
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)


class Identity(Base):
    """An account at a provider that signs a user in. Issuer and subject alone identify it.

    `provider`: the provider's id in the operator's file, which may no longer have it. `email`: the
    email address at the time of linking, so that people recognize the account.
    """

    __tablename__ = "identities"
    __table_args__ = (
        Index("ix_identities_subject", "issuer", "subject", unique=True),
        Index("ix_identities_checked_at", "provider", "checked_at"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"), index=True)
    provider: Mapped[str] = mapped_column(String(32))
    issuer: Mapped[str] = mapped_column(String(500))
    subject: Mapped[str] = mapped_column(String(255))
    email: Mapped[str | None] = mapped_column(String(320))
    linked_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)
    last_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # When a directory was last asked about the person, and when it disabled them: the user was
    # disabled at the same moment.
    checked_at: Mapped[datetime | None] = mapped_column(UtcDateTime, default=clock.now)
    barred_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class UpstreamSession(Base):
    """A sign-in through an identity, and the tokens to ask its provider with later.

    `session_id` is NULL until the sign-in is complete. The tokens are encrypted; without the secret
    key that encrypted them, they count as absent.
    """

    __tablename__ = "upstream_sessions"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    identity_id: Mapped[UUID] = mapped_column(
        ForeignKey(Identity.id, ondelete="CASCADE"), index=True
    )
    session_id: Mapped[UUID | None] = mapped_column(
        ForeignKey(BrowserSession.id, ondelete="CASCADE"), index=True
    )
    # The `sid` of the provider's session (OIDC Back-Channel Logout §2.4).
    sid: Mapped[str | None] = mapped_column(String(255), index=True)
    amr: Mapped[str] = mapped_column(String(100))
    has_two_factors: Mapped[bool] = mapped_column(default=False, server_default=false())
    # When the person last authenticated there, if that was before this sign-in.
    auth_time: Mapped[datetime | None] = mapped_column(UtcDateTime)
    sealed_id_token: Mapped[str | None] = mapped_column(Text)
    sealed_refresh_token: Mapped[str | None] = mapped_column(Text)
    # Stored only if there is no refresh token and the provider has an introspection endpoint.
    sealed_access_token: Mapped[str | None] = mapped_column(Text)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now, index=True)
    # When the provider last confirmed that the person may sign in.
    checked_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now, index=True)


class ImportedHash(Base):
    """A method (`foreign_hashes`) that users' password hashes may have; purged when unused."""

    __tablename__ = "imported_hashes"

    method: Mapped[str] = mapped_column(String(60), primary_key=True)
    imported_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)


class Attribute(Base):
    """The definition of an attribute (see `flow.attributes`)."""

    __tablename__ = "attributes"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    title: Mapped[str] = mapped_column(String(200), default="")
    type: Mapped[str] = mapped_column(String(10))
    # The values of the type choice.
    choices: Mapped[list[str]] = mapped_column(JSON, default=list)
    readers: Mapped[list[str]] = mapped_column(JSON, default=list)
    writers: Mapped[list[str]] = mapped_column(JSON, default=list)
    at_sign_up: Mapped[str] = mapped_column(String(10), default="no", server_default="no")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)
    updated_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now, onupdate=clock.now)
