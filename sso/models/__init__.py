"""The tables. They import nothing above `crypto`.

A table is loaded when its name is imported from here, with the tables that it refers to: a command
that lists users does not load Authlib's mixins.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sso.models.apis import Api as Api
    from sso.models.apis import FormerApi as FormerApi
    from sso.models.apis import ServiceToken as ServiceToken
    from sso.models.branding import StoredBranding as StoredBranding
    from sso.models.clients import AgentDomain as AgentDomain
    from sso.models.clients import Client as Client
    from sso.models.clients import ClientLogo as ClientLogo
    from sso.models.clients import ClientOrigin as ClientOrigin
    from sso.models.clients import ClientSecretHash as ClientSecretHash
    from sso.models.clients import ClientWork as ClientWork
    from sso.models.factors import Passkey as Passkey
    from sso.models.factors import RecoveryCode as RecoveryCode
    from sso.models.factors import TotpSecret as TotpSecret
    from sso.models.grants import AuthorizationCode as AuthorizationCode
    from sso.models.grants import Consent as Consent
    from sso.models.grants import DeviceCode as DeviceCode
    from sso.models.grants import Grant as Grant
    from sso.models.grants import PushedRequest as PushedRequest
    from sso.models.grants import Token as Token
    from sso.models.grants import UsedOnce as UsedOnce
    from sso.models.grants import WaitingSignIn as WaitingSignIn
    from sso.models.keys import ApiToken as ApiToken
    from sso.models.keys import KeyState as KeyState
    from sso.models.keys import SigningKey as SigningKey
    from sso.models.outbox import Heartbeat as Heartbeat
    from sso.models.outbox import LogoutDelivery as LogoutDelivery
    from sso.models.outbox import Mail as Mail
    from sso.models.outbox import Webhook as Webhook
    from sso.models.outbox import WebhookDelivery as WebhookDelivery
    from sso.models.provisioning import ScimChange as ScimChange
    from sso.models.provisioning import ScimDelivery as ScimDelivery
    from sso.models.provisioning import ScimReceiver as ScimReceiver
    from sso.models.provisioning import ScimResource as ScimResource
    from sso.models.records import AuditChain as AuditChain
    from sso.models.records import AuditEvent as AuditEvent
    from sso.models.records import Migrated as Migrated
    from sso.models.records import Refusal as Refusal
    from sso.models.saml import SamlServiceProvider as SamlServiceProvider
    from sso.models.saml import SamlSession as SamlSession
    from sso.models.saml import SamlSubject as SamlSubject
    from sso.models.users import Attribute as Attribute
    from sso.models.users import BrowserSession as BrowserSession
    from sso.models.users import Group as Group
    from sso.models.users import GroupOwner as GroupOwner
    from sso.models.users import Identity as Identity
    from sso.models.users import ImportedHash as ImportedHash
    from sso.models.users import MailToken as MailToken
    from sso.models.users import UpstreamSession as UpstreamSession
    from sso.models.users import User as User
    from sso.models.users import UserPicture as UserPicture

_TABLES = {
    "apis": ("Api", "FormerApi", "ServiceToken"),
    "branding": ("StoredBranding",),
    "clients": (
        "AgentDomain",
        "Client",
        "ClientLogo",
        "ClientOrigin",
        "ClientSecretHash",
        "ClientWork",
    ),
    "factors": ("Passkey", "RecoveryCode", "TotpSecret"),
    "grants": (
        "AuthorizationCode",
        "Consent",
        "DeviceCode",
        "Grant",
        "PushedRequest",
        "Token",
        "UsedOnce",
        "WaitingSignIn",
    ),
    "keys": ("ApiToken", "KeyState", "SigningKey"),
    "outbox": ("Heartbeat", "LogoutDelivery", "Mail", "Webhook", "WebhookDelivery"),
    "provisioning": ("ScimChange", "ScimDelivery", "ScimReceiver", "ScimResource"),
    "records": ("AuditChain", "AuditEvent", "Migrated", "Refusal"),
    "saml": ("SamlServiceProvider", "SamlSession", "SamlSubject"),
    "search_indexes": (),
    "users": (
        "Attribute",
        "BrowserSession",
        "Group",
        "GroupOwner",
        "Identity",
        "ImportedHash",
        "MailToken",
        "UpstreamSession",
        "User",
        "UserPicture",
    ),
}
_MODULES = {name: f"sso.models.{file}" for file, names in _TABLES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def load_all() -> None:
    """Load every table, so that `Base.metadata` has them all."""
    for file in _TABLES:
        import_module(f"sso.models.{file}")
