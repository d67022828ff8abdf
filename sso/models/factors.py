"""The tables of second factors: passkeys, authenticator apps, recovery codes."""

from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy import BigInteger, ForeignKey, String, Text, false
from sqlalchemy.orm import Mapped, mapped_column

from sso import clock
from sso.extensions import Base, UtcDateTime
from sso.models.users import User


class Passkey(Base):
    """A credential (WebAuthn Level 3 §4). Its private key never leaves the authenticator."""

    __tablename__ = "passkeys"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"), index=True)
    name: Mapped[str] = mapped_column(String(60))
    # base64url; an id has up to 1023 bytes.
    credential_id: Mapped[str] = mapped_column(String(1364), unique=True)
    public_key: Mapped[str] = mapped_column(Text)  # COSE, base64url
    # The name of the user at the server where it was registered, base64url; `None`: the ID here;
    # "*": a server that has not stored it (`ANY_HANDLE`).
    user_handle: Mapped[str | None] = mapped_column(String(100))
    transports: Mapped[str] = mapped_column(String(100), default="", server_default="")
    sign_count: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    # Whether it can be copied to other devices (the BE flag), and so is not bound to hardware.
    is_synced: Mapped[bool] = mapped_column(default=False, server_default=false())
    # The time of the newest answered challenge: answers to it, and to older ones, are refused.
    challenged_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)
    last_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class TotpSecret(Base):
    """A user's shared secret (RFC 6238), encrypted, and the last accepted time step."""

    __tablename__ = "totp_secrets"

    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"), primary_key=True)
    sealed_secret: Mapped[str] = mapped_column(Text)
    last_step: Mapped[int] = mapped_column(BigInteger, default=0, server_default="0")
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)
    last_used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)


class RecoveryCode(Base):
    """A recovery code of a user, as a digest."""

    __tablename__ = "recovery_codes"

    user_id: Mapped[UUID] = mapped_column(ForeignKey(User.id, ondelete="CASCADE"), primary_key=True)
    digest: Mapped[str] = mapped_column(String(80), primary_key=True)
    created_at: Mapped[datetime] = mapped_column(UtcDateTime, default=clock.now)
    used_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
