"""Identity tokens of an earlier server, which applications still send as hints after the move.

Its keys are not here, so a hint of it proves nothing: it asks for what a request without one gets.
"""

from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask
from joserfc import jws, jwt
from joserfc.jwk import RSAKey

from sso.models import User
from tests.support.actors import ISSUER, Browser, Page, RelyingParty, claims_of
from tests.support.factories import make_client
from tests.support.old_servers import ISSUERS, KEYCLOAK, Application, give_issuer, visit

MakeApp = Callable[..., Flask]
SIGNED_OUT = "https://books.example/signed-out"
KEY = RSAKey.generate_key(2048)


class Move:
    """An application of an earlier server, and what that server has signed."""

    def __init__(self, app: Flask, user: User) -> None:
        self.app, self.user, self.browser = app, user, Browser(app)
        self.client: RelyingParty = make_client(app, post_logout_redirect_uris=[SIGNED_OUT])
        give_issuer(app, self.client, KEYCLOAK)
        self.application = Application(app, self.client, KEYCLOAK)

    def hint(self, kid: Any = "kid of Keycloak", key: RSAKey = KEY, **claims: Any) -> str:
        usual = {"iss": KEYCLOAK, "aud": self.client.client_id, "sub": str(self.user.id),
                 "sid": "7", "typ": "ID", "exp": 1, "iat": 0}  # fmt: skip
        return jwt.encode({"alg": "RS256", "typ": "JWT", "kid": kid}, usual | claims, key)

    def sign_out(self, hint: str) -> Page:
        end = self.application.metadata["end_session_endpoint"]
        query = f"id_token_hint={hint}&post_logout_redirect_uri={SIGNED_OUT}&state=s"
        return visit(self.browser, f"{end}?{query}")

    def authorize(self, hint: str) -> dict[str, str]:
        page = self.browser.authorize(self.client, id_token_hint=hint, prompt="none")
        return page.parameters


@pytest.fixture
def move(make_app: MakeApp, user: User) -> Move:
    return Move(make_app(SSO_ISSUER_ALIASES=ISSUERS[KEYCLOAK]), user)


def test_signing_out_with_it_leads_back(move: Move) -> None:
    assert move.sign_out(move.hint()).url == f"{SIGNED_OUT}?state=s"
    client_id = move.client.client_id
    for audiences in ([client_id, "account"], ["account", client_id]):
        hint = move.hint(aud=audiences, azp=client_id)
        assert move.sign_out(hint).url == f"{SIGNED_OUT}?state=s"


def test_it_ends_no_session_without_asking(move: Move) -> None:
    """Not even with the session's own identifier, which every application of the person has."""
    tokens = move.application.sign_in(move.browser)
    for hint in (move.hint(), move.hint(sid=tokens["sid"])):
        page = move.sign_out(hint)
        assert ("decision", "sign_out") in page.buttons
        assert move.authorize(move.hint()).keys() >= {"code"}
    move.sign_out(move.hint())
    assert move.browser.submit(decision="sign_out").url == f"{SIGNED_OUT}?state=s"
    assert move.authorize(move.hint())["error"] == "login_required"


def test_a_hint_of_another_person_or_client_gives_nothing(move: Move) -> None:
    move.application.sign_in(move.browser)
    other = make_client(move.app).client_id
    assert "code" in move.authorize(move.hint())
    for claims in ({"sub": "6d3a6e4e-0000-4000-8000-000000000000"}, {"sub": None}, {"sub": [1]}):
        assert move.authorize(move.hint(**claims))["error"] == "login_required", claims
    assert move.authorize(move.hint(aud=other))["error"] == "invalid_request"


@pytest.mark.parametrize(
    "claims",
    [{"iss": "https://evil.example/realms/main"}, {"iss": ISSUER}, {"iss": None},
     {"iss": [KEYCLOAK]}, {"aud": None}, {"aud": ["a", "b"]}, {"aud": "\x00"},
     {"aud": ["a"], "azp": 7}],
    ids=str,
)  # fmt: skip
def test_hints_that_no_earlier_server_has_made(move: Move, claims: dict[str, Any]) -> None:
    assert move.sign_out(move.hint(**claims)).status == 400
    move.application.sign_in(move.browser)
    assert move.authorize(move.hint(**claims))["error"] == "invalid_request"


def test_what_names_a_key_of_this_server_has_to_be_signed_by_it(move: Move) -> None:
    """An identity token of this server under the old issuer, with another payload."""
    move.application.sign_in(move.browser)
    token = move.application.session.token["id_token"]
    forged = move.hint(kid=_kid(token), **claims_of(token))
    assert "code" in move.authorize(token)
    assert move.authorize(forged)["error"] == "invalid_request"
    assert move.sign_out(forged).status == 400
    assert move.sign_out(token).url == f"{SIGNED_OUT}?state=s"


def test_without_the_setting_it_is_refused(app: Flask, user: User) -> None:
    client = make_client(app, post_logout_redirect_uris=[SIGNED_OUT])
    claims = {"iss": KEYCLOAK, "aud": client.client_id, "sub": str(user.id)}
    hint = jwt.encode({"alg": "RS256", "typ": "JWT", "kid": "k"}, claims, KEY)
    page = Browser(app).authorize(client, id_token_hint=hint, prompt="none")
    assert page.parameters["error"] == "invalid_request"


def _kid(token: str) -> str:
    return str(jws.extract_compact(token.encode()).headers()["kid"])
