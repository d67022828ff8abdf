"""The tables. They know the ground floor and nothing above."""

from sso.models.audit_event import AuditChain, AuditEvent
from sso.models.authorization_code import AuthorizationCode
from sso.models.base import Base
from sso.models.client import Client
from sso.models.consent import Consent
from sso.models.grant import Grant
from sso.models.heartbeat import Heartbeat
from sso.models.logout_delivery import LogoutDelivery
from sso.models.mail import Mail
from sso.models.mail_token import MailToken
from sso.models.passkey import Passkey
from sso.models.recovery_code import RecoveryCode
from sso.models.session import BrowserSession
from sso.models.signing_key import KeyState, SigningKey
from sso.models.token import Token
from sso.models.totp_secret import TotpSecret
from sso.models.user import User

__all__ = [
    "AuditChain",
    "AuditEvent",
    "AuthorizationCode",
    "Base",
    "BrowserSession",
    "Client",
    "Consent",
    "Grant",
    "Heartbeat",
    "KeyState",
    "LogoutDelivery",
    "Mail",
    "MailToken",
    "Passkey",
    "RecoveryCode",
    "SigningKey",
    "Token",
    "TotpSecret",
    "User",
]
