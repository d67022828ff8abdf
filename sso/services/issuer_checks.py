"""Validation of the issuer that a client's tokens name: which of an earlier server it may have.

The rules of several issuers are in `sso.config.issuers`.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from sso import context
from sso.config.urls import strict_url_error
from sso.i18n.message import Message
from sso.services import saml_checks

_MOST_SHOWN = 5  # issuers


def errors(metadata: Mapping[str, Any], before: Mapping[str, Any]) -> Iterable[Message]:
    """Yield why a client cannot have the issuer of an earlier server.

    `before`: its metadata until now. An issuer that it already has may stay: until the setting
    names it again, the client's tokens have this server's own.
    """
    issuer = metadata.get("issuer")
    if issuer is None or strict_url_error(issuer):
        return
    if saml_checks.is_provider(metadata):
        yield Message("an application that speaks SAML has no issuer of an earlier server")
    elif metadata.get("proxy_urls"):
        yield Message("an application behind a proxy has no issuer of an earlier server")
    elif issuer != before.get("issuer") and issuer not in (aliases := context.settings().aliases):
        listed = [*aliases][:_MOST_SHOWN]
        yield Message(
            "the issuer %(issuer)s is none of SSO_ISSUER_ALIASES (%(listed)s)",
            issuer=repr(issuer[:200]),
            listed=", ".join(listed) + (", …" if len(aliases) > len(listed) else "") or "-",
        )
