"""The tables. They know nothing above `crypto`.

A table is loaded when its name is imported from here, with the tables that it refers to: commands
that list users do not wait for Authlib's mixins.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sso.models.api_token import ApiToken as ApiToken
    from sso.models.audit_event import AuditChain as AuditChain
    from sso.models.audit_event import AuditEvent as AuditEvent
    from sso.models.authorization_code import AuthorizationCode as AuthorizationCode
    from sso.models.client import Client as Client
    from sso.models.client_logo import ClientLogo as ClientLogo
    from sso.models.client_origin import ClientOrigin as ClientOrigin
    from sso.models.consent import Consent as Consent
    from sso.models.factors import Passkey as Passkey
    from sso.models.factors import RecoveryCode as RecoveryCode
    from sso.models.factors import TotpSecret as TotpSecret
    from sso.models.grant import Grant as Grant
    from sso.models.group import Group as Group
    from sso.models.identity import Identity as Identity
    from sso.models.identity import UpstreamSession as UpstreamSession
    from sso.models.imported_hash import ImportedHash as ImportedHash
    from sso.models.logout_delivery import LogoutDelivery as LogoutDelivery
    from sso.models.outbox import Heartbeat as Heartbeat
    from sso.models.outbox import Mail as Mail
    from sso.models.pushed_request import PushedRequest as PushedRequest
    from sso.models.refusal import Refusal as Refusal
    from sso.models.signing_key import KeyState as KeyState
    from sso.models.signing_key import SigningKey as SigningKey
    from sso.models.token import Token as Token
    from sso.models.used_once import UsedOnce as UsedOnce
    from sso.models.user import BrowserSession as BrowserSession
    from sso.models.user import MailToken as MailToken
    from sso.models.user import User as User
    from sso.models.webhook import Webhook as Webhook
    from sso.models.webhook import WebhookDelivery as WebhookDelivery

_TABLES = {
    "api_token": ("ApiToken",),
    "audit_event": ("AuditChain", "AuditEvent"),
    "authorization_code": ("AuthorizationCode",),
    "client": ("Client",),
    "client_logo": ("ClientLogo",),
    "client_origin": ("ClientOrigin",),
    "consent": ("Consent",),
    "factors": ("Passkey", "RecoveryCode", "TotpSecret"),
    "grant": ("Grant",),
    "group": ("Group",),
    "imported_hash": ("ImportedHash",),
    "identity": ("Identity", "UpstreamSession"),
    "logout_delivery": ("LogoutDelivery",),
    "outbox": ("Heartbeat", "Mail"),
    "pushed_request": ("PushedRequest",),
    "refusal": ("Refusal",),
    "signing_key": ("KeyState", "SigningKey"),
    "token": ("Token",),
    "used_once": ("UsedOnce",),
    "user": ("BrowserSession", "MailToken", "User"),
    "user_indexes": (),
    "webhook": ("Webhook", "WebhookDelivery"),
}
_MODULES = {name: f"sso.models.{file}" for file, names in _TABLES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def load_all() -> None:
    """Load every table, before `Base.metadata` is asked for all of them."""
    for file in _TABLES:
        import_module(f"sso.models.{file}")
