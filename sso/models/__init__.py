"""The tables. They know the ground floor and nothing above.

Each is loaded when its name is imported from here: a command that lists users has no use for the
others. A table imports those that it refers to.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sso.extensions import Base
    from sso.models.audit_event import AuditChain, AuditEvent
    from sso.models.authorization_code import AuthorizationCode
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

_MODULES = {
    "AuditEvent": "sso.models.audit_event",
    "AuditChain": "sso.models.audit_event",
    "AuthorizationCode": "sso.models.authorization_code",
    "Base": "sso.extensions",
    "Client": "sso.models.client",
    "Consent": "sso.models.consent",
    "Grant": "sso.models.grant",
    "Heartbeat": "sso.models.heartbeat",
    "LogoutDelivery": "sso.models.logout_delivery",
    "Mail": "sso.models.mail",
    "MailToken": "sso.models.mail_token",
    "Passkey": "sso.models.passkey",
    "RecoveryCode": "sso.models.recovery_code",
    "BrowserSession": "sso.models.session",
    "SigningKey": "sso.models.signing_key",
    "KeyState": "sso.models.signing_key",
    "Token": "sso.models.token",
    "TotpSecret": "sso.models.totp_secret",
    "User": "sso.models.user",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def load_all() -> None:
    """Load every table, for anyone who asks the metadata which there are."""
    for module in _MODULES.values():
        import_module(module)
