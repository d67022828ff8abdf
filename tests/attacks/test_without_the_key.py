"""A thief has what a client was given, but not the key that it is bound to (RFC 9449)."""

import pytest
from flask import Flask

from sso.models import User
from tests.support.actors import Browser, RelyingParty
from tests.support.factories import make_client
from tests.support.proofs import DPoP, ath_of


@pytest.fixture
def victim(app: Flask) -> RelyingParty:
    return make_client(app, public=True, redirect_uris=["https://spa.example/cb"])


def test_everything_stolen_at_once(browser: Browser, victim: RelyingParty, user: User) -> None:
    owner, thief = DPoP(), DPoP()
    code = browser.approve(victim, dpop_jkt=owner.jkt).code
    assert victim.exchange(code, thief.header()).status_code == 400
    tokens = victim.exchange(code, owner.header()).get_json()
    access = tokens["access_token"]
    seen = owner.proof("/oauth2/userinfo", token=access)
    assert owner.userinfo(victim, access, proof=seen).status_code == 200

    # The token as Bearer; with the thief's own key; with the owner's proofs for something else.
    assert victim.userinfo(access).status_code == 401
    assert victim.post("/oauth2/userinfo", {"access_token": access}).status_code == 401
    assert thief.userinfo(victim, access).status_code == 401
    for proof in (
        seen,
        owner.proof("/oauth2/userinfo", token="another token"),
        owner.proof("/oauth2/token", ath=ath_of(access)),
        owner.proof("/oauth2/userinfo", token=access, htu="https://api.example/"),
    ):
        assert owner.userinfo(victim, access, proof=proof).status_code == 401
    # The owner's key in a proof that the thief has signed.
    forged = thief.proof(
        "/oauth2/userinfo", token=access, header={"jwk": owner.key.as_dict(private=False)}
    )
    assert owner.userinfo(victim, access, proof=forged).status_code == 401
    for headers in (None, thief.header(), {"DPoP": forged}):
        assert victim.refresh(tokens["refresh_token"], headers).status_code == 400

    # None of this has ended what the owner has.
    assert owner.userinfo(victim, access).status_code == 200
    assert victim.refresh(tokens["refresh_token"], owner.header()).status_code == 200
