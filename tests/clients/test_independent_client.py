"""Authlib's own client against real gunicorn with two workers: nothing of ours in between."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import urljoin

import pytest
import requests
from authlib.integrations.requests_client import OAuth2Session
from joserfc import jwt
from joserfc.jwk import KeySet

from tests.support.actors import _Forms
from tests.support.processes import Server

CALLBACK = "http://127.0.0.1:9/callback"
PASSWORD = "correct horse battery"
MANY = 100


@pytest.fixture(scope="module")
def registered(server: Server) -> dict[str, Any]:
    """A client and a user, made with the command line."""
    user = ["user", "create", "--email", "dana@example.com", "--name", "Dana"]
    server.flask(*user, "--password-stdin", stdin=PASSWORD + "\n")
    made = server.flask("client", "create", "--name", "Books", "--redirect-uri", CALLBACK, "--json")
    client: dict[str, Any] = json.loads(made)
    return client


@pytest.fixture
def session(registered: dict[str, Any]) -> OAuth2Session:
    return OAuth2Session(
        registered["client_id"],
        registered["client_secret"],
        scope="openid profile email",
        redirect_uri=CALLBACK,
        code_challenge_method="S256",
    )


def sign_in_and_allow(url: str, callback: str = CALLBACK) -> str:
    """Be the person with the browser; gives the address at the client where it ends."""
    browser = requests.Session()
    method, data = "GET", None
    for _ in range(12):
        answer = browser.request(method, url, data=data, allow_redirects=False, timeout=60)
        method, data = "GET", None
        if answer.is_redirect:
            url = urljoin(url, answer.headers["Location"])
            if url.startswith(callback):
                return url
            continue
        assert answer.status_code == 200, answer.text
        forms = _Forms()
        forms.feed(answer.text)
        method, data = "POST", dict(forms.fields)
        if "password" in data:
            data |= {"email": "dana@example.com", "password": PASSWORD}
        else:
            data["decision"] = "allow"
    raise AssertionError("the browser did not arrive")


def approved(server: Server, session: OAuth2Session, verifier: str) -> str:
    url, _ = session.create_authorization_url(
        f"{server.base_url}/oauth2/authorize", code_verifier=verifier, nonce="n0nce"
    )
    return sign_in_and_allow(url)


def test_the_whole_flow(server: Server, session: OAuth2Session) -> None:
    discovery = f"{server.base_url}/.well-known/openid-configuration"
    metadata = requests.get(discovery, timeout=60).json()
    verifier = "v" * 43
    arrived = approved(server, session, verifier)
    token = session.fetch_token(
        metadata["token_endpoint"], authorization_response=arrived, code_verifier=verifier
    )
    keys = KeySet.import_key_set(requests.get(metadata["jwks_uri"], timeout=60).json())
    identity = jwt.decode(token["id_token"], keys, algorithms=["RS256"])
    assert identity.claims["iss"] == metadata["issuer"] == server.base_url
    assert identity.claims["aud"] == session.client_id
    assert identity.claims["nonce"] == "n0nce"
    access = jwt.decode(token["access_token"], keys, algorithms=["ES256"])
    assert access.header["typ"] == "at+jwt"
    profile = session.get(metadata["userinfo_endpoint"]).json()
    assert profile["sub"] == identity.claims["sub"] == access.claims["sub"]
    assert profile["email"] == "dana@example.com"
    renewed = session.refresh_token(metadata["token_endpoint"])
    assert renewed["refresh_token"] != token["refresh_token"]


@pytest.mark.parametrize(
    ("uri", "used"),
    [
        ("http://127.0.0.1/cb", "http://127.0.0.1:49152/cb"),
        ("com.example.app:/cb", "com.example.app:/cb"),
        ("https://app.example/cb", "https://app.example/cb"),
    ],
)
def test_a_client_without_a_secret(
    server: Server, registered: dict[str, Any], uri: str, used: str
) -> None:
    public = OAuth2Session(
        server.register("App", uri, "--public")["client_id"],
        scope="openid email",
        redirect_uri=used,
        code_challenge_method="S256",
        token_endpoint_auth_method="none",
        revocation_endpoint_auth_method="none",
    )
    base, verifier = f"{server.base_url}/oauth2", "p" * 43
    url, _ = public.create_authorization_url(f"{base}/authorize", code_verifier=verifier)
    arrived = sign_in_and_allow(url, used)
    first = public.fetch_token(
        f"{base}/token", authorization_response=arrived, code_verifier=verifier
    )
    assert public.get(f"{base}/userinfo").json()["email"] == "dana@example.com"
    second = public.refresh_token(f"{base}/token")
    assert second["refresh_token"] != first["refresh_token"]
    assert public.get(f"{base}/userinfo").status_code == 200
    assert public.revoke_token(f"{base}/revoke", second["refresh_token"]).status_code == 200
    assert requests.get(
        f"{base}/userinfo",
        headers={"Authorization": f"Bearer {second['access_token']}"},
        timeout=60,
    ).status_code == 401  # fmt: skip


def at_once(server: Server, form: dict[str, str]) -> list[requests.Response]:
    """The same token request, many times at the same instant, on several workers."""

    def post(_: int) -> requests.Response:
        return requests.post(f"{server.base_url}/oauth2/token", data=form, timeout=60)

    with ThreadPoolExecutor(25) as pool:
        return list(pool.map(post, range(MANY)))


def test_one_code_a_hundred_times_at_once(
    server: Server, session: OAuth2Session, registered: dict[str, Any]
) -> None:
    verifier = "w" * 43
    arrived = approved(server, session, verifier)
    form = {
        "grant_type": "authorization_code",
        "code": dict(part.split("=") for part in arrived.split("?")[1].split("&"))["code"],
        "redirect_uri": CALLBACK,
        "client_id": registered["client_id"],
        "client_secret": registered["client_secret"],
        "code_verifier": verifier,
    }
    answers = at_once(server, form)
    assert Counter(answer.status_code for answer in answers) == {200: 1, 400: MANY - 1}
    refused = [answer.json()["error"] for answer in answers if answer.status_code == 400]
    assert set(refused) == {"invalid_grant"}


def test_one_refresh_token_a_hundred_times_at_once(
    server: Server, session: OAuth2Session, registered: dict[str, Any]
) -> None:
    verifier = "x" * 43
    arrived = approved(server, session, verifier)
    token = session.fetch_token(
        f"{server.base_url}/oauth2/token", authorization_response=arrived, code_verifier=verifier
    )
    form = {
        "grant_type": "refresh_token",
        "refresh_token": token["refresh_token"],
        "client_id": registered["client_id"],
        "client_secret": registered["client_secret"],
    }
    answers = at_once(server, form)
    assert Counter(answer.status_code for answer in answers) == {200: MANY}
    assert len({answer.json()["refresh_token"] for answer in answers}) == 1
    assert len({answer.json()["access_token"] for answer in answers}) == MANY


def test_without_leeway_one_refresh_wins(server: Server, registered: dict[str, Any]) -> None:
    """A second server on the same database, strict: one success, and then the family is gone."""
    folder = server.folder / "strict"
    folder.mkdir()
    names = ("SSO_DATABASE_URL", "SSO_SECRET_KEY")
    environ: dict[str, Any] = {name: server.environ[name] for name in names}
    with Server(folder, SSO_REFRESH_TOKEN_LEEWAY="0", **environ).running() as strict:
        session = OAuth2Session(
            registered["client_id"],
            registered["client_secret"],
            scope="openid",
            redirect_uri=CALLBACK,
            code_challenge_method="S256",
        )
        verifier = "y" * 43
        token = session.fetch_token(
            f"{strict.base_url}/oauth2/token",
            authorization_response=approved(strict, session, verifier),
            code_verifier=verifier,
        )
        form = {
            "grant_type": "refresh_token",
            "refresh_token": token["refresh_token"],
            "client_id": registered["client_id"],
            "client_secret": registered["client_secret"],
        }
        answers = at_once(strict, form)
        assert Counter(answer.status_code for answer in answers) == {200: 1, 400: MANY - 1}
        winner = next(answer.json() for answer in answers if answer.status_code == 200)
        header = {"Authorization": f"Bearer {winner['access_token']}"}
        userinfo = f"{strict.base_url}/oauth2/userinfo"
        assert requests.get(userinfo, headers=header, timeout=60).status_code == 401


def test_long_request_lines_are_accepted(server: Server, registered: dict[str, Any]) -> None:
    base = f"/api/auth/oauth2/authorize?client_id={registered['client_id']}&state="
    line = base + "s" * (8190 - len(f"GET {base} HTTP/1.1\r\n"))
    answer = requests.get(server.origin + line, allow_redirects=False, timeout=60)
    assert answer.status_code == 400
    assert "redirect_uri" in answer.text
