"""The modules of the plan "FAPI 2.0 Security Profile Final" about pushed requests and DPoP.

A test a module, named after it, with the errors that the suite takes.
"""

import html
import re
from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask

from sso import clock as sso_clock
from sso.models import User
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, Page, pkce
from tests.support.proofs import LEFT_OUT, DPoP
from tests.support.signing import OTHER_EC, FapiParty, make_fapi_client, public

NONE = "eyJ0eXAiOiJkcG9wK2p3dCIsImFsZyI6Im5vbmUifQ"  # {"typ":"dpop+jwt","alg":"none"}
NO_ALG = "eyJ0eXAiOiJkcG9wK2p3dCJ9"  # {"typ":"dpop+jwt"}
VERIFIER, CHALLENGE = pkce()
PKCE = {"code_challenge": CHALLENGE, "code_challenge_method": "S256"}


@pytest.fixture
def client(app: Flask) -> FapiParty:
    return make_fapi_client(app)


@pytest.fixture
def other(app: Flask, client: FapiParty) -> FapiParty:
    jwks = {"keys": [public(OTHER_EC)]}
    made = make_fapi_client(app, jwks=jwks, redirect_uris=[client.redirect_uri])
    made.key = OTHER_EC
    return made


@pytest.fixture
def key() -> DPoP:
    return DPoP()


def bring(browser: Browser, client: FapiParty, uri: str, **more: str) -> Page:
    return browser.open_authorize({"client_id": client.client_id, "request_uri": uri, **more})


def for_developers(page: Page) -> str:
    """What the page says to them. A reviewer of the suite has to see it on its screenshot."""
    assert page.status == 400
    assert page.is_at_server
    assert '<code dir="ltr">invalid_request_uri</code>' in page.html
    assert "trying again will not help" not in page.html
    found = re.search(r"For the developers of the application</dt><dd[^>]*>([^<]*)<", page.html)
    assert found, page.html
    return html.unescape(found[1])


def push(client: FapiParty, headers: dict[str, str] | None = None, /, **more: str) -> str:
    answer = client.push(headers, **{**PKCE, **more})
    assert answer.status_code == 201
    return str(answer.get_json()["request_uri"])


def allow(browser: Browser) -> Page:
    """Be the user, as far as there is something to do."""
    if "password" in browser.page.fields:
        browser.sign_in()
    if ("decision", "allow") in browser.page.buttons:
        browser.allow()
    return browser.page


def code_of(browser: Browser, client: FapiParty, uri: str) -> str:
    bring(browser, client, uri)
    return allow(browser).code


def refused(answer: Any, *errors: str) -> bool:
    assert answer.mimetype == "application/json"
    error = answer.get_json()["error"]
    return answer.status_code == (401 if error == "invalid_client" else 400) and error in errors


BAD_PROOF = ("invalid_request", "invalid_grant", "invalid_dpop_proof")


def test_happy_flow(browser: Browser, client: FapiParty, user: User, key: DPoP) -> None:
    code = code_of(browser, client, push(client))
    tokens = client.exchange(code, key.header(), code_verifier=VERIFIER).get_json()
    assert tokens["token_type"] == "DPoP"
    assert key.userinfo(client, tokens["access_token"]).get_json()["sub"] == str(user.id)


def test_user_rejects_authentication(browser: Browser, client: FapiParty, user: User) -> None:
    bring(browser, client, push(client))
    browser.sign_in()
    assert browser.deny().error == "access_denied"


def test_access_token_type_header_case_sensitivity(
    app: Flask, browser: Browser, client: FapiParty, user: User, key: DPoP
) -> None:
    code = code_of(browser, client, push(client))
    token = client.exchange(code, key.header(), code_verifier=VERIFIER).get_json()["access_token"]
    for scheme in ("dpop", "DPOP", "DPoP", "dPoP"):
        proof = key.proof("/oauth2/userinfo", token=token)
        headers = {"Authorization": f"{scheme} {token}", "DPoP": proof}
        answer = app.test_client().get(f"{BASE}/oauth2/userinfo", headers=headers, base_url=ORIGIN)
        assert answer.status_code == 200


def with_proofs(browser: Browser, client: FapiParty, key: DPoP, **claims: Any) -> None:
    """The flow, with these claims in each proof."""
    uri = push(client, key.header("/oauth2/par", **claims))
    code = code_of(browser, client, uri)
    answer = client.exchange(code, key.header(**claims), code_verifier=VERIFIER)
    token = answer.get_json()["access_token"]
    assert key.userinfo(client, token, **claims).status_code == 200


def now() -> int:
    return int(sso_clock.now().timestamp())


def test_check_dpop_proof_nbf_exp(
    browser: Browser, client: FapiParty, user: User, key: DPoP
) -> None:
    with_proofs(browser, client, key, nbf=now(), exp=now() + 300)


def test_ensure_dpopproof_with_iat_10seconds_before_succeeds(
    browser: Browser, client: FapiParty, user: User, key: DPoP
) -> None:
    with_proofs(browser, client, key, iat=now() - 10)


def test_ensure_dpopproof_with_iat_10seconds_after_succeeds(
    browser: Browser, client: FapiParty, user: User, key: DPoP
) -> None:
    with_proofs(browser, client, key, iat=now() + 10)


def test_ensure_mismatched_dpop_jkt_fails(client: FapiParty, key: DPoP) -> None:
    answer = client.push(key.header("/oauth2/par"), dpop_jkt=DPoP().jkt, **PKCE)
    assert refused(answer, "invalid_request", "invalid_dpop_proof")


def test_ensure_token_endpoint_fails_with_mismatched_dpop_proof_jkt(
    browser: Browser, client: FapiParty, user: User, key: DPoP
) -> None:
    code = code_of(browser, client, push(client, DPoP().header("/oauth2/par")))
    assert refused(client.exchange(code, key.header(), code_verifier=VERIFIER), *BAD_PROOF)


def test_ensure_token_endpoint_fails_with_mismatched_dpop_jkt(
    browser: Browser, client: FapiParty, user: User, key: DPoP
) -> None:
    code = code_of(browser, client, push(client, dpop_jkt=DPoP().jkt))
    assert refused(client.exchange(code, key.header(), code_verifier=VERIFIER), *BAD_PROOF)


def test_ensure_dpopproof_at_par_endpoint_binding_success(
    browser: Browser, client: FapiParty, user: User, key: DPoP
) -> None:
    code = code_of(browser, client, push(client, key.header("/oauth2/par")))
    assert client.exchange(code, key.header(), code_verifier=VERIFIER).status_code == 200


def test_ensure_dpop_auth_code_binding_success(
    browser: Browser, client: FapiParty, user: User, key: DPoP
) -> None:
    uri = push(client, key.header("/oauth2/par"), dpop_jkt=key.jkt)
    code = code_of(browser, client, uri)
    assert client.exchange(code, key.header(), code_verifier=VERIFIER).status_code == 200


def test_ensure_unsigned_authorization_request_without_using_par_fails(
    browser: Browser, client: FapiParty
) -> None:
    assert browser.authorize(client, **PKCE).error == "invalid_request"


def test_ensure_redirect_uri_in_authorization_request(client: FapiParty) -> None:
    assert refused(client.push(redirect_uri=None, **PKCE), "invalid_request")


def test_ensure_registered_redirect_uri(client: FapiParty) -> None:
    answer = client.push(redirect_uri="https://rp.example/other", **PKCE)
    assert refused(answer, "invalid_request", "invalid_redirect_uri")


def test_ensure_response_type_code_idtoken_fails(client: FapiParty) -> None:
    answer = client.push(response_type="code id_token", **PKCE)
    assert refused(answer, "unsupported_response_type", "unauthorized_client", "invalid_request")


def test_ensure_response_type_token_fails(client: FapiParty) -> None:
    answer = client.push(response_type="token", **PKCE)
    assert refused(answer, "unsupported_response_type", "unauthorized_client", "invalid_request")


def test_ensure_holder_of_key_required(browser: Browser, client: FapiParty, user: User) -> None:
    code = code_of(browser, client, push(client))
    assert refused(client.exchange(code, {}, code_verifier=VERIFIER), *BAD_PROOF)


def test_ensure_authorization_code_is_bound_to_client(
    browser: Browser, client: FapiParty, other: FapiParty, user: User, key: DPoP
) -> None:
    code = code_of(browser, client, push(client))
    answer = other.exchange(code, key.header(), code_verifier=VERIFIER)
    assert refused(answer, "invalid_grant")


def test_attempt_reuse_authorization_code_after_one_second(
    clock: Clock, browser: Browser, client: FapiParty, user: User, key: DPoP
) -> None:
    code = code_of(browser, client, push(client))
    first = client.exchange(code, key.header(), code_verifier=VERIFIER).get_json()
    clock.move(seconds=2)
    again = client.exchange(code, key.header(), code_verifier=VERIFIER)
    assert refused(again, "invalid_grant")
    assert key.userinfo(client, first["access_token"]).status_code == 401


def test_ensure_token_endpoint_fails_with_expired_auth_code(
    clock: Clock, browser: Browser, client: FapiParty, user: User, key: DPoP
) -> None:
    code = code_of(browser, client, push(client))
    clock.move(seconds=61)
    answer = client.exchange(code, key.header(), code_verifier=VERIFIER)
    assert refused(answer, "invalid_grant")


def test_dpop_negative_tests(
    app: Flask, browser: Browser, client: FapiParty, user: User, key: DPoP
) -> None:
    code = code_of(browser, client, push(client))
    token = client.exchange(code, key.header(), code_verifier=VERIFIER).get_json()["access_token"]

    def proof(**more: Any) -> str:
        return key.proof("/oauth2/userinfo", **{"token": token, **more})

    def ask(**more: Any) -> int:
        return int(key.userinfo(client, token, proof=proof(**more)).status_code)

    private = key.key.as_dict(private=True)
    bad: dict[str, Callable[[], str]] = {
        "two": lambda: f"{proof()}, {proof()}",
        "not well-formed": lambda: proof().replace(".", ":"),
        **{
            f"no {name}": lambda name=name: proof(header={name: LEFT_OUT})  # type: ignore[misc]
            for name in ("typ", "jwk")
        },
        **{
            f"no {name}": lambda name=name: proof(**{name: LEFT_OUT})  # type: ignore[misc]
            for name in ("jti", "htm", "htu", "iat")
        },
        "no alg": lambda: NO_ALG + "." + proof().split(".", 1)[1],
        "no ath": lambda: proof(token=None),
        "other typ": lambda: proof(header={"typ": "JWT"}),
        "none": lambda: NONE + "." + proof().split(".")[1] + ".",
        "bad signature": lambda: proof()[:-6] + "AAAAAA",
        "private jwk": lambda: proof(header={"jwk": private}),
        "PUT": lambda: proof(htm="PUT"),
        "other htu": lambda: proof(htu="https://rp.example/"),
        "iat an hour ahead": lambda: proof(iat=now() + 3600),
        "iat an hour ago": lambda: proof(iat=now() - 3600),
        "other ath": lambda: proof(token="other"),
        "other key": lambda: DPoP().proof("/oauth2/userinfo", token=token),
    }
    for name, made in bad.items():
        answer = key.userinfo(client, token, proof=made())
        assert answer.status_code == 401, name
    htu = f"{ORIGIN}{BASE}/oauth2/userinfo"
    good: list[dict[str, Any]] = [
        {"htu": f"{htu}?q=1#f"},
        {"htu": htu.replace("http:", "HTTP:")},
        {"header": {"extra": 1, "kid": "k"}, "extra": {"a": 1}},
        {},
    ]
    for more in good:
        assert ask(**more) == 200, more
    assert [ask(jti="fixed"), ask(jti="fixed")] == [200, 401]
    bare = app.test_client().get(
        f"{BASE}/oauth2/userinfo", headers={"Authorization": f"DPoP {token}"}, base_url=ORIGIN
    )
    assert bare.status_code == 401
    assert client.userinfo(token).status_code == 401
    assert ask() == 200


def test_refresh_token(
    browser: Browser, client: FapiParty, other: FapiParty, user: User, key: DPoP
) -> None:
    code = code_of(browser, client, push(client))
    tokens = client.exchange(code, key.header(), code_verifier=VERIFIER).get_json()
    kept, new = tokens["refresh_token"], DPoP()
    second = client.refresh(kept, new.header()).get_json()
    assert second["refresh_token"] == kept
    assert new.userinfo(client, second["access_token"]).status_code == 200
    # Without a proof, the suite takes no error of DPoP.
    assert refused(client.refresh(kept, {}), "invalid_request", "invalid_grant")
    unauthenticated = {"grant_type": "refresh_token", "refresh_token": kept}
    answer = client.post("/oauth2/token", unauthenticated, headers=key.header())
    assert refused(answer, "invalid_client", "invalid_request", "invalid_grant")
    # What the second client has is of no use to the first.
    browser = Browser(client.app)
    code = code_of(browser, other, push(other, other.dpop.header("/oauth2/par")))
    theirs = other.exchange(code, code_verifier=VERIFIER).get_json()
    assert key.userinfo(client, theirs["access_token"]).status_code == 401
    assert refused(client.refresh(theirs["refresh_token"], key.header()), "invalid_grant")


def test_par_ensure_reused_request_uri_prior_to_auth_completion_succeeds(
    browser: Browser, client: FapiParty, user: User, key: DPoP
) -> None:
    uri = push(client)
    assert bring(browser, client, uri).status == 200
    code = code_of(browser, client, uri)
    assert client.exchange(code, key.header(), code_verifier=VERIFIER).status_code == 200


def test_par_attempt_reuse_request_uri(browser: Browser, client: FapiParty, user: User) -> None:
    uri = push(client)
    assert code_of(browser, client, uri)
    assert for_developers(bring(browser, client, uri)) == (
        "The 'request_uri' was used before, and works once; push the request again."
    )


def test_par_attempt_to_use_expired_request_uri(
    clock: Clock, browser: Browser, client: FapiParty
) -> None:
    answer = client.push(**PKCE).get_json()
    assert 5 <= answer["expires_in"] < 600  # FAPI 2.0 §5.3.2.2
    clock.move(seconds=answer["expires_in"] + 1)
    assert for_developers(bring(browser, client, answer["request_uri"])) == (
        "The 'request_uri' has expired; push the request again."
    )


def test_par_attempt_to_use_request_uri_for_different_client(
    browser: Browser, client: FapiParty, other: FapiParty
) -> None:
    assert for_developers(bring(browser, other, push(client))) == (
        "The 'request_uri' was issued to another client; push the request again."
    )


def test_a_request_uri_that_was_never_issued(browser: Browser, client: FapiParty) -> None:
    uri = "urn:ietf:params:oauth:request_uri:x"
    assert for_developers(bring(browser, client, uri)) == (
        "The 'request_uri' is unknown, or it expired and was deleted; push the request again."
    )


def test_a_request_uri_whose_user_took_too_long(
    clock: Clock, browser: Browser, client: FapiParty, user: User
) -> None:
    bring(browser, client, push(client))
    clock.move(hours=1)
    assert for_developers(browser.sign_in()) == (
        "The 'request_uri' has expired, because the user took too long; push the request again."
    )


def test_a_request_uri_that_another_tab_has_answered(
    browser: Browser, client: FapiParty, user: User
) -> None:
    uri = push(client)
    page = bring(browser, client, uri)
    assert code_of(browser, client, uri)
    assert "was used before" in for_developers(browser.open(page.url))


def test_par_authorization_request_containing_request_uri_form_param(
    client: FapiParty,
) -> None:
    assert refused(client.push(request_uri=push(client), **PKCE), "invalid_request")


def test_par_authorization_request_containing_request_uri(client: FapiParty) -> None:
    answer = client.push(request_uri="urn:ietf:params:oauth:request_uri:x", **PKCE)
    assert refused(answer, "invalid_request", "invalid_request_object")


def test_par_attempt_invalid_http_method(app: Flask, client: FapiParty) -> None:
    form = client.parameters(**PKCE) | client.credentials()
    answer = app.test_client().put(f"{BASE}/oauth2/par", data=form, base_url=ORIGIN)
    assert answer.status_code == 405


def test_par_ensure_pkce_required(client: FapiParty) -> None:
    without = {"code_challenge": None, "code_challenge_method": None}
    assert refused(client.push(**without), "invalid_request")


def test_ensure_pkce_code_verifier_required(
    browser: Browser, client: FapiParty, user: User, key: DPoP
) -> None:
    code = code_of(browser, client, push(client))
    assert refused(client.exchange(code, key.header(), code_verifier=None), "invalid_grant")


def test_incorrect_pkce_code_verifier_rejected(
    browser: Browser, client: FapiParty, user: User, key: DPoP
) -> None:
    code = code_of(browser, client, push(client))
    answer = client.exchange(code, key.header(), code_verifier="w" * 43)
    assert refused(answer, "invalid_grant")


def test_par_plain_pkce_rejected(client: FapiParty) -> None:
    answer = client.push(code_challenge=VERIFIER, code_challenge_method="plain")
    assert refused(answer, "invalid_request")


def test_par_without_duplicate_parameters(browser: Browser, client: FapiParty, user: User) -> None:
    assert code_of(browser, client, push(client))
