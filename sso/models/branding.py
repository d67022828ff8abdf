"""The table of the stored branding, apart from others so that `flask settings` loads little."""

from typing import Any

from sqlalchemy import JSON, Integer, LargeBinary, String
from sqlalchemy.orm import Mapped, mapped_column

from sso.extensions import Base


class StoredBranding(Base):
    """The one row with the branding that administration has set; see `config.branding`.

    `fields`: the texts by name. `logo_digest` is the SHA-256 digest of the logo.
    """

    __tablename__ = "branding"

    id: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    fields: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)
    logo_type: Mapped[str | None] = mapped_column(String(20))
    logo_digest: Mapped[str | None] = mapped_column(String(64))
    # Only read if the digest is another one than before.
    logo: Mapped[bytes | None] = mapped_column(LargeBinary, deferred=True)
