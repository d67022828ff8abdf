"""The browser_sessions table: sign-ins, stored on the server."""

from datetime import datetime
from uuid import UUID, uuid4

from sqlalchemy import ForeignKey, String, false
from sqlalchemy.orm import Mapped, mapped_column

from sso import clock
from sso.extensions import Base, UtcDateTime
from sso.models.user import User


class BrowserSession(Base):
    """One sign-in of one browser; `id` is the `sid` claim, the cookie's secret is a digest."""

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
    # However often it is used, it is not prolonged beyond this moment.
    ends_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # Whether its cookie outlives the browser's window ("keep me signed in").
    remembered: Mapped[bool] = mapped_column(default=False, server_default=false())
    # Sign-ins and consents up to this moment have satisfied a request that demanded one.
    decisions_used_until: Mapped[datetime | None] = mapped_column(UtcDateTime)
    ended_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # When a second factor was last shown in it; sensitive changes ask for a recent one.
    second_factor_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
    # When an emailed code or an operator's link allowed it to add a first factor.
    enrolment_allowed_at: Mapped[datetime | None] = mapped_column(UtcDateTime)
