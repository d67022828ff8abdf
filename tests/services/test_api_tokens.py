"""API tokens: how many there may be, how long they live, and which are accepted."""

from datetime import timedelta

import pytest
from flask import Flask

from sso import audit
from sso.extensions import db
from sso.flow.refusals import Reason
from sso.models import ApiToken
from sso.services import api_tokens
from sso.services.checks import Invalid
from tests.conftest import Clock

OLGA = audit.Actor("olga")


def create(name: str = "Entra", lives: timedelta = timedelta(days=1)) -> tuple[ApiToken, str]:
    return api_tokens.create(OLGA, name, ["scim:read"], lives)


def test_there_are_only_so_many(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were revoked do not count."""
    monkeypatch.setattr(api_tokens, "MOST", 3)
    with app.app_context():
        tokens = [create(f"token {number}")[0] for number in range(3)]
        with pytest.raises(Invalid, match="3 tokens already"):
            create("one more")
        api_tokens.revoke(OLGA, tokens[0].id)
        create("one more")
        with pytest.raises(Invalid, match="3 tokens already"):
            create("and another")


@pytest.mark.parametrize(
    ("lives", "is_right"),
    [
        (timedelta(seconds=-1), False),
        (timedelta(0), False),
        (timedelta(seconds=1), True),
        (api_tokens.LONGEST_LIFETIME, True),
        (api_tokens.LONGEST_LIFETIME + timedelta(seconds=1), False),
    ],
)
def test_how_long_it_may_live(app: Flask, lives: timedelta, is_right: bool) -> None:
    with app.app_context():
        if is_right:
            assert create(lives=lives)
        else:
            with pytest.raises(Invalid, match="has to expire within"):
                create(lives=lives)


def test_until_when_it_is_accepted(app: Flask, clock: Clock) -> None:
    clock.stand_still()
    with app.app_context():
        token, secret = create(lives=timedelta(hours=1))
        clock.move(seconds=3599)
        assert api_tokens.accept(secret, None).id == token.id
        clock.move(seconds=1)
        with pytest.raises(api_tokens.Refused) as refused:
            api_tokens.accept(secret, None)
        assert refused.value.reason == Reason.EXPIRED


def test_one_that_is_revoked_twice_was_revoked_the_first_time(app: Flask, clock: Clock) -> None:
    with app.app_context():
        token, secret = create()
        revoked_at = api_tokens.revoke(OLGA, token.id).revoked_at
        clock.move(minutes=5)
        assert api_tokens.revoke(OLGA, token.id).revoked_at == revoked_at
        db.session.commit()
        with pytest.raises(api_tokens.Refused) as refused:
            api_tokens.accept(secret, None)
        assert refused.value.reason == Reason.REVOKED
