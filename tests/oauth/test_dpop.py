"""DPoP (RFC 9449) at the token endpoint, at pushed authorization requests and at userinfo."""

from dataclasses import replace

import pytest
from flask import Flask
from sqlalchemy import select

from sso.extensions import db
from sso.models import Client, User
from sso.oauth import dpop
from sso.store import redemption
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty, claims_of
from tests.support.events import events
from tests.support.factories import make_client
from tests.support.proofs import DPoP


@pytest.fixture
def public(app: Flask) -> RelyingParty:
    return make_client(app, public=True, redirect_uris=["https://spa.example/cb"])


def require_nonces(app: Flask) -> None:
    settings = app.extensions["sso.settings"]
    app.extensions["sso.settings"] = replace(settings, dpop_nonce="required")


def set_metadata(app: Flask, client: RelyingParty, **more: object) -> None:
    with app.app_context():
        row = db.session.scalars(select(Client).where(Client.client_id == client.client_id)).one()
        row.set_client_metadata({**row.client_metadata, **more})
        db.session.commit()


RARER = [pytest.param(alg, marks=pytest.mark.slow) for alg in ("PS256", "EdDSA", "Ed25519")]


@pytest.mark.parametrize("alg", ["ES256", *RARER])
def test_tokens_are_bound_to_the_key(
    app: Flask, browser: Browser, client: RelyingParty, user: User, alg: str
) -> None:
    key = DPoP(alg)
    answer = client.exchange(browser.approve(client).code, key.header())
    assert answer.status_code == 200
    tokens = answer.get_json()
    assert tokens["token_type"] == "DPoP"
    assert claims_of(tokens["access_token"])["cnf"] == {"jkt": key.jkt}
    described = client.introspect(tokens["access_token"]).get_json()
    assert described["token_type"] == "DPoP"
    assert described["cnf"] == {"jkt": key.jkt}
    assert "cnf" not in client.introspect(tokens["refresh_token"]).get_json()
    assert key.userinfo(client, tokens["access_token"]).get_json()["email"] == user.email
    assert "DPoP-Nonce" not in answer.headers


def test_without_a_proof_nothing_changes(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    tokens = client.exchange(browser.approve(client).code).get_json()
    assert tokens["token_type"] == "Bearer"
    assert "cnf" not in claims_of(tokens["access_token"])
    assert "cnf" not in client.introspect(tokens["access_token"]).get_json()


def test_a_bound_token_is_no_bearer_token(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    token = client.exchange(browser.approve(client).code, DPoP().header()).get_json()[
        "access_token"
    ]
    refused = client.userinfo(token)
    assert refused.status_code == 401
    assert refused.get_json()["error"] == "invalid_token"
    challenge = refused.headers["WWW-Authenticate"]
    assert challenge.startswith('DPoP realm="sso", algs="PS256 ES256 EdDSA Ed25519", error="inv')
    posted = client.post("/oauth2/userinfo", {"access_token": token})
    assert posted.status_code == 401


def test_a_bearer_token_is_no_bound_token(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    token = client.exchange(browser.approve(client).code).get_json()["access_token"]
    refused = DPoP().userinfo(client, token)
    assert refused.status_code == 401
    assert refused.headers["WWW-Authenticate"].startswith("DPoP ")


def test_userinfo_names_both_schemes(app: Flask) -> None:
    answer = app.test_client().get(f"{BASE}/oauth2/userinfo", base_url=ORIGIN)
    assert answer.headers.getlist("WWW-Authenticate") == [
        'Bearer realm="sso"',
        'DPoP realm="sso", algs="PS256 ES256 EdDSA Ed25519"',
    ]


def test_proofs_that_userinfo_refuses(
    clock: Clock, app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    key = DPoP()
    token = client.exchange(browser.approve(client).code, key.header()).get_json()["access_token"]
    other = client.exchange(browser.approve(client).code, key.header()).get_json()["access_token"]
    bad = {
        "htm": key.proof("/oauth2/userinfo", token=token, htm="POST"),
        "htu": key.proof("/oauth2/token", token=token, htm="GET"),
        "ath": key.proof("/oauth2/userinfo", token=other),
        "no ath": key.proof("/oauth2/userinfo"),
        "two": key.proof("/oauth2/userinfo", token=token) + "," + key.proof("/oauth2/userinfo"),
    }
    for name, proof in bad.items():
        answer = key.userinfo(client, token, proof=proof)
        assert answer.status_code == 401, name
        assert answer.get_json()["error"] == "invalid_dpop_proof", name
        assert 'error="invalid_dpop_proof"' in answer.headers["WWW-Authenticate"]
        words = "more than one DPoP header" if name == "two" else name.removeprefix("no ")
        assert words in answer.get_json()["error_description"]
    for seconds, status in ((30, 200), (-30, 200), (300, 401), (-300, 401)):
        iat = clock.now().timestamp() + seconds
        assert key.userinfo(client, token, iat=iat).status_code == status, seconds
    stranger = DPoP()
    refused = stranger.userinfo(client, token)
    assert (refused.status_code, refused.get_json()["error"]) == (401, "invalid_token")
    without = app.test_client().get(
        f"{BASE}/oauth2/userinfo", headers={"Authorization": f"DPoP {token}"}, base_url=ORIGIN
    )
    assert (without.status_code, without.get_json()["error"]) == (401, "invalid_dpop_proof")
    assert key.userinfo(client, token).status_code == 200
    assert events(app, "access_token_refused")[-1]["client"] == client.client_id


def test_a_proof_works_once(browser: Browser, client: RelyingParty, user: User) -> None:
    key = DPoP()
    first, second = (browser.approve(client).code for _ in range(2))
    header = key.header()
    tokens = client.exchange(first, header).get_json()
    again = client.exchange(second, header)
    assert again.status_code == 400
    assert again.get_json()["error"] == "invalid_dpop_proof"
    assert client.exchange(second, key.header()).status_code == 200  # it was not used up
    proof = key.proof("/oauth2/userinfo", token=tokens["access_token"])
    answers = [key.userinfo(client, tokens["access_token"], proof=proof) for _ in range(2)]
    assert [one.status_code for one in answers] == [200, 401]


def test_another_key_may_use_the_same_jti(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    for _ in range(2):
        code = browser.approve(client).code
        assert client.exchange(code, DPoP().header(jti="1")).status_code == 200


def test_a_refused_request_does_not_use_the_proof_up(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    header, code = DPoP().header(), browser.approve(client).code
    assert client.exchange(code, header, redirect_uri="https://evil.example/").status_code == 400
    assert client.exchange(code, header).status_code == 200


def test_the_address_comes_from_the_settings(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    key, code = DPoP(), browser.approve(client).code
    host = {"Host": "evil.example", "X-Forwarded-Host": "evil.example"}
    proof = key.header(htu=f"http://evil.example{BASE}/oauth2/token")
    assert client.exchange(code, {**host, **proof}).status_code == 400
    url = f"{ORIGIN}{BASE}/oauth2/token"
    for htu in (f"{BASE}/oauth2/token", url + "/", "x", url.replace("//", "//u@"),
                url + "?" + "x" * 2000, url.replace("http:", "https:"),
                url.replace("127.0.0.1", "localhost")):  # fmt: skip
        refused = client.exchange(code, key.header(htu=htu))
        assert (refused.status_code, refused.get_json()["error"]) == (400, "invalid_dpop_proof")
    spelled = url.replace("http:", "HTTP:").replace("oauth2", "oauth%32") + "?x=1#y"
    assert client.exchange(browser.approve(client).code, key.header(htu=spelled)).status_code == 200
    assert client.exchange(code, {**host, **key.header()}).status_code == 200


def test_a_client_that_has_to_prove_its_key(app: Flask, browser: Browser, user: User) -> None:
    client = make_client(app, dpop_bound_access_tokens=True)
    code = browser.approve(client).code
    refused = client.exchange(code)
    assert (refused.status_code, refused.get_json()["error"]) == (400, "invalid_request")
    assert "The header DPoP is missing" in refused.get_json()["error_description"]
    tokens = client.exchange(code, DPoP().header()).get_json()
    assert client.refresh(tokens["refresh_token"]).status_code == 400
    assert client.refresh(tokens["refresh_token"], DPoP().header()).status_code == 200


def test_the_requirement_reaches_older_tokens(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    tokens = client.exchange(browser.approve(client).code).get_json()
    set_metadata(app, client, dpop_bound_access_tokens=True)
    assert client.userinfo(tokens["access_token"]).status_code == 401
    assert client.introspect(tokens["access_token"]).get_json() == {"active": False}
    assert client.introspect(tokens["refresh_token"]).get_json()["active"]  # with a proof
    bound = client.refresh(tokens["refresh_token"], DPoP().header())
    assert bound.get_json()["token_type"] == "DPoP"


def test_a_confidential_client_may_change_its_key(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    tokens = client.exchange(browser.approve(client).code, DPoP().header()).get_json()
    other = DPoP()
    refreshed = client.refresh(tokens["refresh_token"], other.header()).get_json()
    assert claims_of(refreshed["access_token"])["cnf"] == {"jkt": other.jkt}
    assert other.userinfo(client, refreshed["access_token"]).status_code == 200


def test_a_public_clients_refresh_token_is_bound_to_its_key(
    app: Flask, browser: Browser, public: RelyingParty, user: User
) -> None:
    key, thief = DPoP(), DPoP()
    tokens = public.exchange(browser.approve(public).code, key.header()).get_json()
    for headers in (None, thief.header()):
        refused = public.refresh(tokens["refresh_token"], headers)
        assert (refused.status_code, refused.get_json()["error"]) == (400, "invalid_grant")
    # The thief has ended nothing, neither at first nor within the leeway.
    second = public.refresh(tokens["refresh_token"], key.header()).get_json()
    assert public.refresh(tokens["refresh_token"], thief.header()).status_code == 400
    assert key.userinfo(public, second["access_token"]).status_code == 200
    third = public.refresh(second["refresh_token"], key.header())
    assert third.get_json()["token_type"] == "DPoP"
    # With the key, an old one is a reuse that ends the grant.
    assert public.refresh(second["refresh_token"], key.header()).status_code == 400
    assert public.refresh(third.get_json()["refresh_token"], key.header()).status_code == 400
    assert len(events(app, "refresh_token_reused")) == 1


def test_a_public_client_begins_to_use_a_key(
    browser: Browser, public: RelyingParty, user: User
) -> None:
    tokens = public.exchange(browser.approve(public).code).get_json()
    key = DPoP()
    bound = public.refresh(tokens["refresh_token"], key.header()).get_json()
    assert public.refresh(bound["refresh_token"]).status_code == 400
    assert public.refresh(bound["refresh_token"], key.header()).status_code == 200


def test_dpop_jkt_binds_the_code(browser: Browser, client: RelyingParty, user: User) -> None:
    key = DPoP()
    code = browser.approve(client, dpop_jkt=key.jkt).code
    for headers in (None, DPoP().header()):
        refused = client.exchange(code, headers)
        assert (refused.status_code, refused.get_json()["error"]) == (400, "invalid_grant")
    assert client.exchange(code, key.header()).status_code == 200  # nobody has used it up


def test_a_bad_dpop_jkt(browser: Browser, client: RelyingParty) -> None:
    for bad in ("x", "A" * 44, "A" * 42 + "="):
        assert browser.authorize(client, dpop_jkt=bad).error == "invalid_request"


def push(browser: Browser, client: RelyingParty, key: DPoP, **more: str) -> str:
    answer = client.push(key.header("/oauth2/par"), **more)
    assert answer.status_code == 201
    query = {"client_id": client.client_id, "request_uri": answer.get_json()["request_uri"]}
    browser.open_authorize(query)
    if "password" in browser.page.fields:
        browser.sign_in()
    return browser.allow().code if browser.page.is_at_server else browser.page.code


def test_the_proof_of_a_pushed_request_binds_the_code(
    browser: Browser, client: RelyingParty, user: User
) -> None:
    key = DPoP()
    code = push(browser, client, key)
    assert client.exchange(code, DPoP().header()).get_json()["error"] == "invalid_grant"
    assert client.exchange(code, key.header()).status_code == 200
    code = push(browser, client, key, dpop_jkt=key.jkt)
    assert client.exchange(code, key.header()).status_code == 200


def test_proofs_that_pushing_refuses(app: Flask, client: RelyingParty) -> None:
    key = DPoP()
    other = client.push(key.header("/oauth2/par"), dpop_jkt=DPoP().jkt)
    assert (other.status_code, other.get_json()["error"]) == (400, "invalid_dpop_proof")
    wrong = client.push(key.header("/oauth2/token"))
    assert (wrong.status_code, wrong.get_json()["error"]) == (400, "invalid_dpop_proof")
    header = key.header("/oauth2/par")
    assert [client.push(header).status_code for _ in range(2)] == [201, 400]
    # Only token requests need one (RFC 9449 §5.2).
    strict = make_client(app, dpop_bound_access_tokens=True)
    assert strict.push().status_code == 201


def test_nonces(
    clock: Clock, app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    key, code = DPoP(), browser.approve(client).code
    set_metadata(app, client, require_dpop_nonce=True)
    refused = client.exchange(code, key.header())
    assert (refused.status_code, refused.get_json()["error"]) == (400, "use_dpop_nonce")
    nonce = refused.headers["DPoP-Nonce"]
    answer = client.exchange(code, key.header(nonce=nonce))
    assert answer.status_code == 200
    assert "DPoP-Nonce" not in answer.headers  # it is the newest
    token = answer.get_json()["access_token"]
    refused = key.userinfo(client, token)
    assert (refused.status_code, refused.get_json()["error"]) == (401, "use_dpop_nonce")
    assert 'error="use_dpop_nonce"' in refused.headers["WWW-Authenticate"]
    assert refused.headers["DPoP-Nonce"] == nonce
    # The nonce shows that the proof is new, whatever the clock of the client.
    slow = key.proof("/oauth2/userinfo", token=token, nonce=nonce, iat=1)
    assert [key.userinfo(client, token, proof=slow).status_code for _ in range(2)] == [200, 401]
    clock.move(seconds=90)
    assert key.userinfo(client, token, proof=slow).status_code == 401
    old = key.userinfo(client, token, nonce=nonce)
    assert old.status_code == 200
    assert old.headers["DPoP-Nonce"] != nonce
    clock.move(minutes=3)
    assert key.userinfo(client, token, nonce=nonce).get_json()["error"] == "use_dpop_nonce"
    assert client.push(key.header("/oauth2/par")).get_json()["error"] == "use_dpop_nonce"
    for bad in ("x", "", "é", 5, ["x"]):
        answer = key.userinfo(client, token, nonce=bad)
        assert answer.get_json()["error"] in ("use_dpop_nonce", "invalid_dpop_proof"), bad


def test_the_setting_demands_nonces_of_all(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    require_nonces(app)
    key, code = DPoP(), browser.approve(client).code
    refused = client.exchange(code, key.header())
    assert refused.get_json()["error"] == "use_dpop_nonce"
    nonce = refused.headers["DPoP-Nonce"]
    assert client.exchange(code, key.header(nonce=nonce)).status_code == 200


def test_the_previous_secret_key_still_counts(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    require_nonces(app)
    key, code = DPoP(), browser.approve(client).code
    nonce = client.exchange(code, key.header()).headers["DPoP-Nonce"]
    settings = app.extensions["sso.settings"]
    app.extensions["sso.settings"] = replace(
        settings,
        secret_key="a new secret key of enough length 12",
        secret_key_previous=settings.secret_key,
    )
    assert client.exchange(code, key.header(nonce=nonce)).status_code == 200


def test_scripts_may_use_it(app: Flask, browser: Browser, public: RelyingParty, user: User) -> None:
    http, origin = app.test_client(), {"Origin": "https://spa.example"}
    for path in ("token", "par", "userinfo"):
        preflight = http.options(
            f"{BASE}/oauth2/{path}",
            headers={**origin, "Access-Control-Request-Method": "POST",
                     "Access-Control-Request-Headers": "dpop"},
            base_url=ORIGIN,
        )  # fmt: skip
        assert "DPoP" in preflight.headers["Access-Control-Allow-Headers"]
        assert "DPoP-Nonce" in preflight.headers["Access-Control-Expose-Headers"]


def test_the_server_says_so(app: Flask) -> None:
    document = app.test_client().get(f"{BASE}/.well-known/openid-configuration").get_json()
    assert document["dpop_signing_alg_values_supported"] == ["PS256", "ES256", "EdDSA", "Ed25519"]


def test_too_many_proofs_of_one_key(
    app: Flask, browser: Browser, client: RelyingParty, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redemption, "KEPT_ONCE", 1)
    monkeypatch.setattr(dpop, "_SHARDS", 1)
    key = DPoP()
    token = client.exchange(browser.approve(client).code, key.header()).get_json()["access_token"]
    answer = key.userinfo(client, token)
    assert answer.status_code == 429
    assert int(answer.headers["Retry-After"]) > 0
