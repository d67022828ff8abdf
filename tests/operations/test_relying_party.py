"""The relying party of the demo and the checks: what it accepts of a server."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

import pytest
from authlib.integrations.requests_client import OAuthError
from joserfc.errors import JoseError
from requests import HTTPError, PreparedRequest, RequestException, Response
from requests.adapters import HTTPAdapter

from sso.checkup import sign_in as sign_in_steps
from sso.checkup.finding import Findings
from sso.checkup.relying_party import RelyingParty
from sso.checkup.sign_in import ProbePerson
from tests.support.signing import OTHER_EC
from tests.support.upstreams import Upstream, answered

CALLBACK = "https://wiki.example/callback"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Upstream:
    """A server that only exists in this process."""
    upstream = Upstream()

    def send(_adapter: HTTPAdapter, sent: PreparedRequest, **_options: Any) -> Response:
        body = sent.body.encode() if isinstance(sent.body, str) else sent.body
        headers = {str(name): str(value) for name, value in sent.headers.items()}
        answer = upstream.call(str(sent.method), str(sent.url), body, headers)
        response = Response()
        response.status_code, response.url, response.request = answer.status, str(sent.url), sent
        response.headers.update(answer.headers)
        response._content = answer.body
        return response

    monkeypatch.setattr(HTTPAdapter, "send", send)
    return upstream


@pytest.fixture
def party(server: Upstream) -> RelyingParty:
    return RelyingParty(server.issuer, server.client_id, "s3cret")


def sign_in(server: Upstream, party: RelyingParty, **answer: str | None) -> Mapping[str, Any]:
    """Sign in, with this answer at the callback, and return the profile."""
    request = party.request(CALLBACK)
    url = server.authorize(request.url, **answer)
    token = party.exchange(request, party.code(request, dict(parse_qsl(urlsplit(url).query))))
    identity = party.identity(token, request.nonce)
    return party.profile(token, identity["sub"])


def test_a_sign_in(server: Upstream, party: RelyingParty) -> None:
    assert sign_in(server, party)["email"] == "dana@example.com"
    (form,) = server.sent_to("/token")
    assert form["redirect_uri"] == CALLBACK
    assert (form["client_id"], form["client_secret"]) == (server.client_id, "s3cret")


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        ({"state": "another"}, "mismatching_state"),
        ({"state": None}, "mismatching_state"),
        ({"iss": "https://evil.example"}, "wrong_issuer"),
        ({"iss": None}, "wrong_issuer"),
        ({"code": None}, "missing_code"),
        ({"code": None, "error": "access_denied"}, "access_denied"),
        ({"code": "another"}, "invalid_grant"),
    ],
)
def test_a_wrong_answer(
    server: Upstream, party: RelyingParty, answer: dict[str, str | None], code: str
) -> None:
    with pytest.raises(OAuthError) as caught:
        sign_in(server, party, **answer)
    assert caught.value.error == code


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://evil.example"},
        {"aud": "another-client"},
        {"nonce": "another"},
        {"nonce": None},
        {"exp": 1},
        {"at_hash": "another"},
        {"sub": None},
    ],
    ids=str,
)
def test_a_wrong_identity_token(
    server: Upstream, party: RelyingParty, claims: dict[str, object]
) -> None:
    server.token = claims
    with pytest.raises(JoseError):
        sign_in(server, party)


def test_an_identity_token_of_another_key(server: Upstream, party: RelyingParty) -> None:
    server.answers["/jwks"] = answered({"keys": [{**OTHER_EC.as_dict(private=False), "kid": "k1"}]})
    with pytest.raises(JoseError):
        sign_in(server, party)


@pytest.mark.parametrize(
    ("path", "body", "code"),
    [
        ("/userinfo", {"sub": "2"}, "wrong_subject"),
        ("/token", {"access_token": "at", "token_type": "Bearer"}, "missing_id_token"),
        ("/.well-known/openid-configuration", {"issuer": "https://evil.example"}, "wrong_issuer"),
    ],
)
def test_another_document(
    server: Upstream, party: RelyingParty, path: str, body: object, code: str
) -> None:
    server.answers[path] = answered(body)
    with pytest.raises(OAuthError) as caught:
        sign_in(server, party)
    assert caught.value.error == code


@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/jwks", "/userinfo"])
@pytest.mark.parametrize(("body", "status"), [({}, 302), ({}, 503), ([], 200)])
def test_no_document(
    server: Upstream, party: RelyingParty, path: str, body: object, status: int
) -> None:
    server.answers[path] = answered(body, status)
    with pytest.raises(RequestException):
        sign_in(server, party)


def test_metadata_that_was_refused_is_read_again(server: Upstream, party: RelyingParty) -> None:
    server.answers["/.well-known/openid-configuration"] = answered({}, 503)
    with pytest.raises(HTTPError):
        sign_in(server, party)
    server.answers.clear()
    assert sign_in(server, party)


def test_a_refresh_without_a_token(party: RelyingParty) -> None:
    with pytest.raises(OAuthError, match="missing_token"):
        party.refresh({"access_token": "at"})


def test_a_pushed_request(server: Upstream, party: RelyingParty) -> None:
    pushed: dict[str, str] = {}

    def push(parameters: Mapping[str, str]) -> str:
        pushed.update(parameters)
        return "urn:x"

    request = party.request(CALLBACK, push)
    query = {"client_id": server.client_id, "request_uri": "urn:x"}
    assert dict(parse_qsl(urlsplit(request.url).query)) == query
    assert (pushed["state"], pushed["nonce"]) == (request.state, request.nonce)
    assert pushed["redirect_uri"] == CALLBACK


@pytest.mark.parametrize(
    "claims",
    [{"iss": "https://evil.example"}, {"aud": "x"}, {"exp": 1}, {"jti": None}, {"events": {}},
     {"nonce": "x"}, {"sub": None}],
    ids=str,
)  # fmt: skip
def test_a_logout_token(server: Upstream, party: RelyingParty, claims: dict[str, object]) -> None:
    assert party.verify_logout_token(server.logout_token())["sub"] == "1"
    with pytest.raises(JoseError):
        party.verify_logout_token(server.logout_token(**claims))
    with pytest.raises(JoseError):
        party.verify_logout_token(server.id_token(None))


DANA = ProbePerson(uuid4(), "doctor@example.com", "", None)


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("", {}, 200, "sign-in, consent, tokens, userinfo, refresh and revocation work"),
        ("/token", {"error": "x"}, 400, "authorization_code: /token answers 400"),
        ("/token", {}, 302, "authorization_code: /token answers 302"),
        ("/token", {}, 503, "authorization_code: /token answers 503"),
        ("/jwks", {"keys": []}, 200, "the identity token does not verify"),
        ("/userinfo", {}, 401, "userinfo answers 401"),
        ("/revoke", {}, 404, "token management: /revoke answers 404"),
        ("/introspect", {"active": True}, 200, "a revoked access token is still valid"),
    ],
)
def test_what_the_checks_say_of_it(
    server: Upstream, path: str, body: object, status: int, message: str
) -> None:
    server.says["sub"] = str(DANA.user_id)
    server.metadata = {
        f"{name}_endpoint": f"{server.issuer}/{path}"
        for name, path in (("revocation", "revoke"), ("introspection", "introspect"))
    }
    server.answers = {"/revoke": answered({}), "/introspect": answered({"active": False})}
    browser = sign_in_steps.Browser(server.issuer, CALLBACK)
    party = sign_in_steps.relying_party(browser, server.client_id, "s3cret")
    request = party.request(CALLBACK)
    page = sign_in_steps.Page(server.authorize(request.url))
    code = sign_in_steps.code_of(page, party, request)
    server.answers[path] = answered(body, status)

    def walk() -> Findings:
        yield sign_in_steps._tokens(browser, party, request, code, DANA)

    (finding,) = sign_in_steps.explained("code flow", walk)
    assert finding.seen == message
