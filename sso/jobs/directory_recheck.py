"""Asks directories again about people who are signed in, at the interval `recheck`."""

import logging
from datetime import timedelta

from sso import audit, clock, context
from sso.config.upstream.ldap import LdapProvider
from sso.extensions import db
from sso.ldap.directory import NotAllowed
from sso.services import identities as linking
from sso.store import identities
from sso.upstream import ldap
from sso.upstream.identity import UpstreamIdentity, UpstreamUnavailable

logger = logging.getLogger("sso.jobs")
BATCH = 20  # people in one conversation


def recheck_due() -> int:
    """One conversation with each directory; commits. Returns about how many people it was."""
    return sum(_recheck(one) for one in context.upstreams() if isinstance(one, LdapProvider))


def _recheck(provider: LdapProvider) -> int:
    before = clock.now() - timedelta(seconds=provider.recheck or 0)
    due = {one.subject: one.id for one in identities.due_people(provider.id, before, BATCH)}
    db.session.rollback()  # no transaction waits for somebody else's server
    if not due:
        return 0
    try:
        answers = ldap.look_up(provider, due)
    except UpstreamUnavailable as error:
        # Who is signed in stays so: an outage there must not become one of everything here.
        logger.warning("directory %s cannot be asked again: %s", provider.id, error)
        return 0
    for subject, identity_id in due.items():
        identities.note_check(identity_id, clock.now())
        answer = answers.get(subject)
        identity = identities.find(provider.issuer, subject)
        if identity and isinstance(answer, NotAllowed):
            linking.shut_out(audit.SYSTEM, provider, identity, answer.reason)
        elif identity and isinstance(answer, UpstreamIdentity):
            linking.confirm_directory_account(audit.SYSTEM, provider, identity, answer)
        db.session.commit()
    return len(due)
