"""Asks providers whether the people whom they have signed in may still sign in."""

from datetime import timedelta

from sso import audit, clock, context
from sso.config.upstream.oidc import OidcProvider
from sso.extensions import db
from sso.services import identities as linking
from sso.store import identities
from sso.upstream import oidc
from sso.upstream.identity import UpstreamUnavailable

BATCH = 20  # of a provider at a time
MOST_TROUBLES = 3  # then the provider is left alone until the next time


def recheck_due() -> int:
    """Check the sessions whose time has come; commits. Returns how many were checked."""
    return sum(
        _recheck(provider, provider.recheck)
        for provider in context.upstreams()
        if provider.recheck and isinstance(provider, OidcProvider)
    )


def _recheck(provider: OidcProvider, seconds: int) -> int:
    before, checked, troubles = clock.now() - timedelta(seconds=seconds), 0, 0
    for session, identity in identities.due(provider.id, before, BATCH):
        seen = session.checked_at
        if not identities.claim_check(session.id, seen, clock.now()):
            db.session.commit()
            continue  # another worker does it
        db.session.commit()  # no transaction waits for the provider
        checked += 1
        refresh_token = linking.decrypted_token(session.sealed_refresh_token)
        access_token = linking.decrypted_token(session.sealed_access_token)
        if not (refresh_token or access_token):
            continue  # the provider gave none: it cannot be asked
        who, client = (identity.issuer, identity.subject), oidc.oidc_client(provider)
        try:
            found = client.ask_again(*who, refresh_token, access_token)
        except UpstreamUnavailable:
            identities.claim_check(session.id, None, seen)
            db.session.commit()
            troubles += 1
            if troubles == MOST_TROUBLES:
                break
        else:
            linking.confirm_session(audit.SYSTEM, provider, session, identity, found)
            db.session.commit()
    return checked
