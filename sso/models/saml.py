"""The tables of SAML: service providers by entity ID, and what they are told of people."""

from uuid import UUID

from sqlalchemy import ForeignKey, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from sso.extensions import Base
from sso.models.clients import Client
from sso.models.grants import Grant
from sso.models.users import User


class SamlServiceProvider(Base):
    """The entity ID of a client that speaks SAML. A request names no client ID."""

    __tablename__ = "saml_service_providers"

    entity_id: Mapped[str] = mapped_column(String(200), primary_key=True)
    client_id: Mapped[str] = mapped_column(
        ForeignKey(Client.client_id, ondelete="CASCADE"), unique=True
    )


class SamlSubject(Base):
    """The persistent identifier of a person at a service provider (Core §8.3.7): random, and
    another one at each service provider.
    """

    __tablename__ = "saml_subjects"

    client_id: Mapped[str] = mapped_column(
        ForeignKey(Client.client_id, ondelete="CASCADE"), primary_key=True
    )
    user_id: Mapped[UUID] = mapped_column(
        ForeignKey(User.id, ondelete="CASCADE"), primary_key=True, index=True
    )
    name_id: Mapped[str] = mapped_column(String(80), unique=True)


class SamlSession(Base):
    """What a service provider was told with a grant, so that sign-out can name it."""

    __tablename__ = "saml_sessions"

    grant_id: Mapped[UUID] = mapped_column(
        ForeignKey(Grant.id, ondelete="CASCADE"), primary_key=True
    )
    name_id: Mapped[str] = mapped_column(Text)
    name_id_format: Mapped[str] = mapped_column(String(100))
