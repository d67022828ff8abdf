"""Messages of applications that refuse an assertion of this server: what they mean.

This server does not learn of such a refusal: the operator has the message from the application's
page or log.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from sso import context
from sso.config import urls
from sso.models import Client
from sso.saml import sent

LONGEST = 20_000


class Advice(NamedTuple):
    """What a message means, and what to do. `values`: the values of `facts` to compare."""

    cause: str
    fix: str
    values: tuple[str, ...]


# The words of python3-saml, node-saml, ruby-saml, OpenSAML (Spring, Shibboleth), SimpleSAMLphp and
# mod_auth_mellon. The first that fits counts: some messages name several things.
_TABLE: tuple[tuple[str, Advice], ...] = (
    (
        r"audience",
        Advice(
            "The application expects another audience than its registered entity ID.",
            "Give the application the entity ID that is registered here as its own entity ID, or "
            "audience; or register the one that it expects. Every character counts.",
            ("audience",),
        ),
    ),
    (
        r"not yet valid|no longer valid|expired|clock|timing issue|earlier than|too (old|long ago)"
        r"|notbefore|notonorafter|not on or after|in the (future|past)|timestamp",
        Advice(
            "The clocks of both servers differ, or the answer was posted too late.",
            "Synchronize both clocks, for example by NTP. If they agree, begin again at the "
            "application: a page that was left open, or Back, posts an old answer.",
            ("valid for", "clocks may differ by"),
        ),
    ),
    (
        r"inresponseto|in response to|unsolicited|no (saved|matching) request|replay",
        Advice(
            "The application does not know the request that was answered.",
            "Begin at the application, in one tab. If it happens each time, the application loses "
            "its cookie: it is sent with the POST of the answer only if it has SameSite=None and "
            "Secure, or the application has to keep requests on its server.",
            (),
        ),
    ),
    (
        r"issuer|unknown (idp|identity provider)|no metadata|entity ?id of the idp",
        Advice(
            "The application knows this server by another entity ID.",
            "Give the application this server's entity ID: the URL of its metadata, not the issuer "
            "of OpenID Connect.",
            ("issuer",),
        ),
    ),
    (
        r"name ?id",
        Advice(
            "The application wants another NameID, or another format of it.",
            "Choose the same NameID on both sides, with --name-id of client update.",
            ("NameID",),
        ),
    ),
    (
        r"recipient|destination|was received at|instead of|subject ?confirmation",
        Advice(
            "The answer was sent to another URL than the application believes to have.",
            "Behind a proxy, tell the application its public URL, with https. Register the "
            "assertion consumer service exactly as the application says it in its metadata.",
            ("assertion consumer services",),
        ),
    ),
    (
        r"signature|fingerprint|certificate|establish security|not signed",
        Advice(
            "The application has another certificate of this server than the active one.",
            "Let the application read the metadata again, or give it the certificate there. After "
            "a rotation of the key the old one verifies nothing.",
            ("metadata",),
        ),
    ),
)  # fmt: skip


def advice(message: str) -> Advice | None:
    """Return what a message of an application means; `None` if no known words are in it."""
    text = " ".join(message[:LONGEST].split())
    return next(
        (advice for pattern, advice in _TABLE if re.search(pattern, text, re.IGNORECASE)), None
    )


def facts(client: Client | None) -> Mapping[str, str]:
    """Return what this server says in assertions, for a service provider if one is given."""
    metadata = context.settings().base_url + urls.SAML_METADATA
    common = {
        "issuer": metadata,
        "metadata": metadata,
        "valid for": f"{sent.LIFETIME.total_seconds():.0f} s",
        "clocks may differ by": f"{sent.SKEW.total_seconds():.0f} s",
    }
    if client is None:
        return common
    return common | {
        "audience": str(client.entity_id),
        "assertion consumer services": " ".join(client.acs_urls),
        "NameID": client.saml_name_id,
    }
