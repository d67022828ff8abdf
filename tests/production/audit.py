"""Compare what clients saw with what the database holds: nothing lost, nothing twice."""

import time
from collections import Counter
from dataclasses import dataclass, field
from uuid import UUID

from flask import Flask
from sqlalchemy import select

from sso.crypto import secrets
from sso.extensions import db
from sso.models import AuthorizationCode, Grant, Token
from tests.production.expected import Expected, Family, jti_of
from tests.production.people import Person


@dataclass
class Audit:
    """Figures, and everything that should not be; `wrong` is empty when all is well."""

    figures: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def expect(self, right: bool, what: str) -> None:
        if not right:
            self.wrong.append(what)


def audit(app: Flask, expected: Expected, person: Person) -> Audit:
    """Read the whole database, then ask the service, which must be running."""
    found = Audit()
    found.wrong += expected.faults
    with app.app_context():
        tokens = {token.jti: token for token in db.session.scalars(select(Token))}
        grants = {grant.id: grant for grant in db.session.scalars(select(Grant))}
        codes = {code.digest: code for code in db.session.scalars(select(AuthorizationCode))}
    by_digest = {token.refresh_digest: token for token in tokens.values() if token.refresh_digest}
    found.figures.update(codes=len(codes), grants=len(grants), token_responses=len(tokens))

    for family in expected.families:
        _compare(found, family, codes, tokens, by_digest, grants)
    _single_use(found, codes, tokens)
    for family in expected.families:
        _ask(found, family, person)
    return found


def _compare(
    found: Audit,
    family: Family,
    codes: dict[str, AuthorizationCode],
    tokens: dict[str, Token],
    by_digest: dict[str, Token],
    grants: dict[UUID, Grant],
) -> None:
    """Every answer of 200 stands in the database."""
    code = codes.get(secrets.digest(family.code))
    found.expect(code is not None, "lost: a code that was answered")
    if code is None:
        return
    found.figures["codes seen by clients"] += 1
    found.expect(family.answered <= 1, "twice: a code was exchanged more than once")
    found.expect(not family.answered or code.used_at is not None, "lost: the use of a code")
    for response in family.tokens:
        found.figures["token responses seen by clients"] += 1
        row = tokens.get(jti_of(response["access_token"]))
        found.expect(row is not None, "lost: an access token")
        found.expect(row is None or row.grant_id == code.grant_id, "mixed up: a token's grant")
        refresh = by_digest.get(secrets.digest(response["refresh_token"]))
        found.expect(refresh is not None, "lost: a refresh token")
    for old in family.refreshed:
        found.figures["refreshes seen by clients"] += 1
        used = by_digest.get(secrets.digest(old))
        found.expect(used is not None and used.refresh_used_at is not None, "lost: a refresh")
        found.expect(len(family.successors[old]) == 1, "twice: two successors of one token")
    if family.revoked:
        found.figures["revocations seen by clients"] += 1
        found.expect(grants[code.grant_id].ended_at is not None, "lost: a revocation")
    if family.alive:
        found.expect(grants[code.grant_id].ended_at is None, "ended: a grant that nobody ended")


def _single_use(
    found: Audit, codes: dict[str, AuthorizationCode], tokens: dict[str, Token]
) -> None:
    """A used code gave one refresh token, a used refresh token one more; nothing else gave any."""
    refresh_tokens: Counter[object] = Counter()
    uses: Counter[object] = Counter()
    for token in tokens.values():
        refresh_tokens[token.grant_id] += token.refresh_digest is not None
        uses[token.grant_id] += token.refresh_used_at is not None
    for code in codes.values():
        wanted = uses[code.grant_id] + (code.used_at is not None)
        found.expect(refresh_tokens[code.grant_id] == wanted, "half done: tokens and their uses")


def _ask(found: Audit, family: Family, person: Person) -> None:
    """The service says the same as the database."""
    if not family.tokens:
        return
    token = family.tokens[-1]
    if family.revoked:
        status = _status(person, token["access_token"])
        found.expect(status == 401, f"a revoked token gets {status}")
    elif family.alive:
        status = _status(person, token["access_token"])
        found.expect(status == 200, f"a live token gets {status}")


def _status(person: Person, access_token: str) -> int:
    """nginx may leave nodes alone for a moment that were away."""
    for _ in range(100):
        status = person.userinfo(access_token).status_code
        if status != 503:
            return status
        time.sleep(0.1)
    return 503
