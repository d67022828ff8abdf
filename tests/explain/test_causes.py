"""Every cause by a real request: what `flask explain` says of it, and the command that it gives."""

import json
import re
import shlex
from base64 import b64encode
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from flask import Flask

from sso import clock as sso_clock
from sso.extensions import db
from sso.models import User
from sso.store import clients
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty, claims_of, pkce
from tests.support.events import events
from tests.support.explaining import Explain
from tests.support.factories import make_client
from tests.support.proofs import DPoP
from tests.support.scene import Scene

CALLBACK = "https://books.example/callback"
NO_COMMAND = None


def command_in(text: str) -> str | None:
    """The command that can be run as it is: alone on an indented line."""
    found = [line.strip() for line in text.splitlines() if line.startswith("  flask ")]
    assert len(found) <= 1
    return found[0] if found else None


def run(app: Flask, command: str) -> None:
    """Run it as a shell would."""
    program, *arguments = shlex.split(command)
    assert program == "flask"
    result = app.test_cli_runner().invoke(args=arguments)
    assert result.exit_code == 0, result.output


# ---- redirect_uri ----

# What is sent; what is said; whether a command registers it.
REDIRECTS = {
    "trailing slash": (CALLBACK + "/", "it has a trailing slash, the other has", True),
    "path": ("https://books.example/oidc/cb", "the path is /oidc/cb, not /callback", True),
    "case": ("https://books.example/Callback", "the path differs in upper and lower case", True),
    "encoding": ("https://books.example/callb%61ck", "differs in percent-encoding", True),
    "default port": ("https://books.example:443/callback", "although it is the default", True),
    "quotes": ("https://books.example/it's/callback", "the path is /it's/callback", True),
    "scheme": ("http://books.example/callback", "the scheme is http, not https", False),
    "port": ("https://books.example:8443/callback", "it has the port 8443", False),
    "host": ("https://evil.example/callback", "the host is evil.example", False),
    "subdomain": ("https://x.books.example/callback", "the host is x.books.example", False),
    "user": ("https://books.example@evil.example/callback", "the host is evil.example", False),
    "query": (CALLBACK + "?next=/x", "it has a query (?next=…)", False),
    "fragment": (CALLBACK + "#x", "it has a fragment", False),
    "space": (CALLBACK + " ", "it has spaces before or after it", False),
    "other letters": ("https://böoks.example/callback", "the host is b\\xf6oks.example", False),
    "no URL": ("callback", "the scheme is missing", False),
    "script": ("javascript:alert(1)", "the scheme is javascript", False),
}  # fmt: skip


@pytest.mark.parametrize("row", REDIRECTS.values(), ids=REDIRECTS.keys())
def test_a_redirect_uri(
    app: Flask, browser: Browser, client: RelyingParty, explain: Explain, row: Any
) -> None:
    sent, difference, is_registrable = row
    page = browser.authorize(client, redirect_uri=sent)
    assert page.status == 400
    text = explain(page)
    assert "The redirect_uri is not registered for the client" in text
    assert difference in text
    assert f"Books ({client.client_id})" in text
    marked = re.search(r"  received +(.*)\n( *)(\^[\^ ]*)\n  registered now +(.*)\n", text)
    assert marked
    assert marked[4] == CALLBACK
    command = command_in(text)
    assert bool(command) is is_registrable
    if command is None:
        return
    run(app, command)
    assert browser.authorize(client, redirect_uri=sent).path.endswith("/sign-in")
    assert "It is registered now." in explain(page)


def test_the_caret_stands_where_it_differs(
    browser: Browser, client: RelyingParty, explain: Explain
) -> None:
    text = explain(browser.authorize(client, redirect_uri=CALLBACK + "/"))
    lines = text.splitlines()
    received = next(line for line in lines if line.startswith("  received"))
    assert lines[lines.index(received) + 1] == " " * (len(received) - 1) + "^"


def test_localhost_and_its_number(app: Flask, browser: Browser, explain: Explain) -> None:
    client = make_client(app, redirect_uris=["http://127.0.0.1:3000/cb"])
    page = browser.authorize(client, redirect_uri="http://localhost:3000/cb")
    text = explain(page)
    assert "it says localhost, not 127.0.0.1, and the texts are compared" in text
    run(app, str(command_in(text)))
    assert "It is registered now." in explain(page)


def test_the_nearest_of_several(app: Flask, browser: Browser, explain: Explain) -> None:
    uris = ["https://a.example/cb", "https://b.example/cb", "https://b.example/other"]
    client = make_client(app, redirect_uris=uris)
    text = explain(browser.authorize(client, redirect_uri="https://b.example/cb/"))
    assert "registered now  https://b.example/cb\n" in text


def test_a_query_that_is_registered(app: Flask, browser: Browser, explain: Explain) -> None:
    client = make_client(app, redirect_uris=["https://b.example/cb?tenant=1"])
    text = explain(browser.authorize(client, redirect_uri="https://b.example/cb?tenant=2"))
    assert "a value in the query differs" in text
    text = explain(browser.authorize(client, redirect_uri="https://b.example/cb/?tenant=1"))
    assert "nearest one: it has a trailing slash, the other has none." in text
    assert command_in(text) is None


def test_the_address_of_another_client(
    app: Flask, browser: Browser, client: RelyingParty, explain: Explain
) -> None:
    other = make_client(app, name="Mail", redirect_uris=["https://mail.example/cb"])
    text = explain(browser.authorize(client, redirect_uri="https://mail.example/cb"))
    assert f"It is registered for Mail ({other.client_id})." in text
    assert command_in(text) is None


def test_a_redirect_uri_at_the_token_endpoint(
    app: Flask, browser: Browser, user: User, explain: Explain
) -> None:
    client = make_client(app, redirect_uris=[CALLBACK, CALLBACK + "/"])
    answer = client.exchange(browser.approve(client).code, redirect_uri=CALLBACK + "/")
    text = explain(answer)
    assert "of the authorization request: it has a trailing slash, the other has none." in text
    assert f"authorization request  {CALLBACK}\n" in text
    assert command_in(text) is None


def test_a_post_logout_redirect_uri(app: Flask, browser: Browser, explain: Explain) -> None:
    client = make_client(app, post_logout_redirect_uris=["https://books.example/bye"])

    def leave(uri: str) -> Any:
        query = urlencode({"client_id": client.client_id, "post_logout_redirect_uri": uri})
        return browser.open(f"{ORIGIN}{BASE}/oauth2/end-session?{query}")

    page = leave("https://books.example/bye/")
    text = explain(page)
    assert "The post_logout_redirect_uri is not registered for the client" in text
    assert "it has a trailing slash" in text
    command = command_in(text)
    assert command
    assert "--add-post-logout-redirect-uri https://books.example/bye/" in command
    run(app, command)
    assert leave("https://books.example/bye/").url == "https://books.example/bye/"
    assert command_in(explain(leave("https://evil.example/bye"))) is None
    without = make_client(app, name="None", redirect_uris=["https://none.example/cb"])
    client = without
    text = explain(leave("https://none.example/"))
    assert "which has none" in text
    assert command_in(text)


# ---- clients, and how they prove themselves ----


@pytest.mark.parametrize("change", [str.swapcase, lambda text: text[:-1], lambda text: text + "="])
def test_a_client_id_that_is_nearly_right(
    browser: Browser, client: RelyingParty, explain: Explain, change: Callable[[str], str]
) -> None:
    wrong = change(client.client_id)
    for answer in (
        browser.authorize(client, client_id=wrong),
        client.exchange("x", client_id=wrong),
    ):
        text = explain(answer)
        assert "No client has this client_id. The nearest one is that of Books" in text
        assert f"set its client_id to {client.client_id}." in text


def test_a_client_id_that_nobody_has(
    app: Flask, browser: Browser, client: RelyingParty, explain: Explain
) -> None:
    assert "flask client list" in explain(browser.authorize(client, client_id="zzz"))
    text = explain(browser.authorize(client, client_id="books"))
    assert (
        f"it is the name of one.\n\nSet the client_id of the application to {client.client_id}"
        in text
    )
    page = browser.authorize(client)
    run(app, f"flask client delete {client.client_id} --yes")
    page = browser.authorize(client)
    assert "the client was deleted at" in explain(page)


def test_credentials_that_are_swapped(app: Flask, client: RelyingParty, explain: Explain) -> None:
    swapped = {"client_id": client.client_secret, "client_secret": client.client_id}
    answer = client.exchange("x", **swapped)
    text = explain(answer)
    assert "The client_id was sent as the secret" in text
    assert "Books" in text
    (found,) = explain.json("--limit", "1")
    assert client.client_secret not in json.dumps(found)


@pytest.mark.parametrize("client_id", ["", "unknown"])
def test_a_secret_without_its_client_id_is_in_no_trail(
    app: Flask, client: RelyingParty, client_id: str
) -> None:
    pair = b64encode(f"{client_id}:{client.client_secret}".encode()).decode()
    form = {"grant_type": "authorization_code", "code": "x"}
    answer = client.post("/oauth2/token", form, headers={"Authorization": f"Basic {pair}"})
    assert answer.get_json()["error"] == "invalid_client"
    (event,) = events(app, "client_authentication_failed")
    assert (event.get("client") or "") == client_id
    assert client.client_secret not in json.dumps(event)


def test_a_secret_as_the_client_id(
    browser: Browser, client: RelyingParty, explain: Explain
) -> None:
    text = explain(browser.authorize(client, client_id=client.client_secret))
    assert "The client_id is a client secret." in text
    assert client.client_secret[8:] not in text


def test_a_disabled_client(
    app: Flask, browser: Browser, client: RelyingParty, explain: Explain
) -> None:
    run(app, f"flask client disable {client.client_id}")
    answers = [browser.authorize(client), client.exchange("x")]
    for answer in answers:
        text = explain(answer)
        assert "has been disabled since" in text
        assert command_in(text) == f"flask client enable {client.client_id}"
    run(app, str(command_in(text)))
    assert "It is enabled now." in explain(answers[0])


def test_wrong_secrets(app: Flask, client: RelyingParty, explain: Explain, clock: Clock) -> None:
    assert "The client secret is wrong." in explain(client.exchange("x", client_secret="wrong"))
    quoted = client.exchange("x", client_secret=f'"{client.client_secret}"')
    assert "is right, but it stands in quotes" in explain(quoted)
    run(app, f"flask client rotate-secret {client.client_id} --keep-old 1")
    clock.move(hours=2)
    text = explain(client.exchange("x"))
    assert "the one before the last rotation, and ended at 2026-11-21 13:00 UTC" in text
    run(app, str(command_in(text)))
    text = explain(client.exchange("x", client_secret="wrong"))
    assert "it was last rotated at 2026-11-21 14:00 UTC" in text
    bodies = [client.exchange("x", client_secret=s).get_data() for s in ("wrong", '"x"')]
    assert bodies[0] == bodies[1] == quoted.get_data()  # the client is not told


def test_a_wrong_method(app: Flask, client: RelyingParty, explain: Explain) -> None:
    run(app, f"flask client update {client.client_id} --auth-method client_secret_basic")
    answer = client.exchange("x")
    text = explain(answer)
    assert "by client_secret_post; the client is registered for client_secret_basic alone" in text
    run(app, str(command_in(text)))
    assert client.exchange("x").get_json()["error"] == "invalid_grant"
    assert "It is now." in explain(answer)


def test_no_secret(client: RelyingParty, explain: Explain) -> None:
    text = explain(client.exchange("x", client_secret=None))
    assert "Client authentication is missing" in text


# ---- codes and verifiers ----


def verifiers(scene: Scene, kind: str) -> Any:
    verifier, challenge = pkce()
    asked = {"code_challenge": challenge, "code_challenge_method": "S256"}
    if kind == "no challenge":
        return scene.client.exchange(scene.code(), code_verifier=verifier)
    sent = {"no verifier": None, "plain": challenge, "wrong": pkce()[0]}[kind]
    return scene.client.exchange(scene.code(**asked), code_verifier=sent)


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        ("no verifier", "The code_verifier is missing"),
        ("plain", "the application does plain PKCE"),
        ("wrong", "does not belong to the code_challenge"),
        ("no challenge", "the authorization request had no code_challenge"),
    ],
)
def test_verifiers(scene: Scene, explain: Explain, kind: str, cause: str) -> None:
    assert cause in explain(verifiers(scene, kind))


@pytest.mark.parametrize("more", [{"code_challenge_method": "plain"}, {}])
def test_plain_pkce(browser: Browser, client: RelyingParty, explain: Explain, more: Any) -> None:
    browser.authorize(client, code_challenge=pkce()[1], **more)
    text = explain(browser.history[-1])
    assert "The 'code_challenge_method' has to be S256." in text
    assert ("Received: plain" in text) == bool(more)
    assert "from plain to S256" in text


def test_codes(scene: Scene, explain: Explain) -> None:
    client, other = scene.client, scene.other
    code = scene.code()
    text = explain(other.exchange(code))
    assert f"The code was issued to Books ({client.client_id})." in text
    assert f"client    Other ({other.client_id})" in text
    client.exchange(code)
    text = explain(client.exchange(code))
    assert "The code was used before, at 2026-11-21 12:00:00 UTC.\n" in text
    scene.clock.move(seconds=30)
    text = explain(client.exchange(code))
    assert "UTC. Everything issued with it was revoked." in text
    code = scene.code()
    scene.clock.move(seconds=75)
    text = explain(client.exchange(code))
    assert "The code had expired 15 s before." in text
    assert "A code lives 60 s (SSO_AUTHORIZATION_CODE_LIFETIME)" in text
    assert "No such code is stored here" in explain(client.exchange("sso_ac_x"))
    code = scene.code()
    scene.flask("user", "sign-out", scene.user.email)
    assert "has ended: an operator signed the user out." in explain(client.exchange(code))


# ---- refresh and access tokens ----


def test_refresh_tokens(scene: Scene, explain: Explain) -> None:
    client = scene.client
    first = scene.tokens()["refresh_token"]
    assert "was issued to Books" in explain(scene.other.refresh(first))
    second = client.refresh(first).get_json()["refresh_token"]
    scene.clock.move(seconds=30)
    text = explain(client.refresh(first))
    assert "The refresh token was used before, at 2026-11-21 12:00:00 UTC. Everything" in text
    text = explain(client.refresh(second))
    assert "has ended: a refresh token was used twice." in text
    token = scene.tokens()["refresh_token"]
    scene.clock.move(days=31)
    assert "The refresh token had expired 24 h before." in explain(client.refresh(token))
    token = scene.tokens(scope="openid")["refresh_token"]
    text = explain(client.refresh(token, scope="openid email"))
    assert "The refresh asks for openid email; granted was openid." in text


def test_a_session_that_has_ended(scene: Scene, explain: Explain) -> None:
    token = scene.tokens()["refresh_token"]
    scene.clock.move(days=15)  # by its age
    text = explain(scene.client.refresh(token))
    assert "The browser session in which this was approved has ended" in text
    assert command_in(text) == (
        f"flask client update {scene.client.client_id} --add-scope offline_access"
    )


def test_access_tokens(scene: Scene, explain: Explain) -> None:
    client = scene.client
    assert "The request has no access token." in explain(client.userinfo(None))
    assert "This server did not issue the access token." in explain(client.userinfo("x"))
    tokens = scene.tokens()
    token = tokens["access_token"]
    assert "its text has been changed" in explain(client.userinfo(token[:-4] + "AAAA"))
    text = explain(client.userinfo(tokens["id_token"]))
    assert "not the id_token" in text
    scene.register(scope="openid groups")
    groups = scene.tokens(scope="groups")["access_token"]
    text = explain(client.userinfo(groups))
    assert "has the scope groups; userinfo needs one of openid profile email" in text
    scene.register(scope="groups")
    text = explain(client.userinfo(groups))
    assert command_in(text) == f"flask client update {client.client_id} --add-scope openid"
    scene.clock.move(hours=2)
    text = explain(client.userinfo(token))
    assert "The access token had expired 60 min before." in text


def test_a_narrower_token(scene: Scene, explain: Explain) -> None:
    """Its own scope is told, not that of its grant."""
    scene.register(scope="openid groups")
    refresh = scene.tokens(scope="openid groups")["refresh_token"]
    narrower = scene.client.refresh(refresh, scope="groups").get_json()["access_token"]
    assert "has the scope groups;" in explain(scene.client.userinfo(narrower))


def test_a_disabled_user(scene: Scene, explain: Explain) -> None:
    token = scene.tokens(scope="openid")["access_token"]
    with scene.app.app_context():  # the command would end the grant as well
        found = db.session.get(User, scene.user.id)
        assert found
        found.disabled_at = sso_clock.now()
        db.session.commit()
    answer = scene.client.userinfo(token)
    text = explain(answer)
    assert "is of dana@example.com, who is disabled" in text
    run(scene.app, str(command_in(text)))
    assert "dana@example.com was disabled, and is enabled now." in explain(answer)


# ---- people ----


@pytest.mark.parametrize("where", ["page", "silently", "refresh", "userinfo"])
def test_a_group_that_is_missing(scene: Scene, explain: Explain, where: str) -> None:
    tokens = scene.tokens() if where in ("refresh", "userinfo") else {}
    scene.register(groups=["board", "staff"])
    answer: Any
    if where == "page":
        scene.browser.authorize(scene.client)
        answer = scene.browser.sign_in()
    elif where == "silently":
        scene.browser.sign_in()
        scene.browser.authorize(scene.client, prompt="none")
        answer = scene.browser.history[-1]
    elif where == "refresh":
        answer = scene.client.refresh(tokens["refresh_token"])
    else:
        answer = scene.client.userinfo(tokens["access_token"])
    text = explain(answer)
    assert "dana@example.com is in none of the groups that may use the client: board, staff" in text
    assert command_in(text) == "flask user update dana@example.com --add-group board"
    run(scene.app, str(command_in(text)))
    assert "may use it now" in explain(answer)


@pytest.mark.parametrize("where", ["authorize", "refresh", "userinfo"])
def test_two_step_verification(scene: Scene, explain: Explain, where: str) -> None:
    tokens = scene.tokens()
    scene.flask("client", "update", scene.client.client_id, "--require-mfa")
    answer: Any
    if where == "authorize":
        scene.browser.authorize(scene.client, prompt="none")
        text = explain(scene.browser.history[-1])
        assert "The client is registered with --require-mfa." in text
        return
    if where == "refresh":
        answer = scene.client.refresh(tokens["refresh_token"])
    else:
        answer = scene.client.userinfo(tokens["access_token"])
    assert "requires two-step verification, and the user signed in without it" in explain(answer)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"prompt": "none"}, "without prompt=none"),
        ({"prompt": "everything"}, "Received: everything"),
        ({"max_age": "soon"}, "Received: soon"),
        ({"state": None}, "random state"),
        ({"response_type": "token"}, "response_type=code"),
        ({"response_mode": "fragment"}, "Received: fragment"),
        ({"request": "x"}, "'request' is not supported"),
    ],
)
def test_parameters(
    browser: Browser, client: RelyingParty, explain: Explain, more: Any, words: str
) -> None:
    browser.authorize(client, **more)
    text = explain(browser.history[-1])
    assert words in text
    assert "answer    303" in text


def test_a_repeated_parameter(browser: Browser, client: RelyingParty, explain: Explain) -> None:
    query = urlencode(client.parameters()) + "&scope=openid"
    page = browser.open(f"{ORIGIN}{BASE}/oauth2/authorize?{query}")
    text = explain(page)
    assert "The parameter 'scope' is repeated." in text
    assert f"Books ({client.client_id})" in text


def test_another_node_explains_it(
    make_app: Callable[..., Flask], browser: Browser, client: RelyingParty, explain: Explain
) -> None:
    page = browser.authorize(client, redirect_uri=CALLBACK + "/")
    assert "trailing slash" in explain(page)
    assert Explain(make_app())(page) == explain(page)


def test_the_person_said_no(
    browser: Browser, client: RelyingParty, user: User, explain: Explain
) -> None:
    browser.authorize(client)
    browser.sign_in()
    browser.deny()
    assert "it was the person's decision" in explain(browser.history[-1])


# ---- scopes ----


def test_scopes(scene: Scene, explain: Explain) -> None:
    browser, client = scene.browser, scene.client
    browser.authorize(client, scope="openid groups nonsense phone")
    text = explain(browser.history[-2])  # the first of two answers: on to the sign-in page
    assert "Some of the scopes asked for are not granted: groups phone not registered" in text
    assert "nonsense unknown to this server" in text
    run(scene.app, str(command_in(text)))
    with scene.app.app_context():
        found = clients.find(client.client_id)
        assert found
        assert found.scope == "openid profile email groups phone"
    browser.authorize(client, scope="nonsense address")
    text = explain(browser.history[-1])
    assert "None of the scopes asked for can be granted: address not registered" in text
    assert command_in(text) == f"flask client update {client.client_id} --add-scope address"


# ---- hints ----


def test_hints(scene: Scene, explain: Explain, make_app: Callable[..., Flask]) -> None:
    browser, client = scene.browser, scene.client
    hint = scene.tokens()["id_token"]
    keys = scene.app.extensions["sso.keys"]

    def ask(token: str) -> str:
        browser.authorize(client, id_token_hint=token)
        at_authorize = explain(browser.history[-1])
        query = urlencode({"client_id": client.client_id, "id_token_hint": token})
        page = browser.open(f"{ORIGIN}{BASE}/oauth2/end-session?{query}")
        if page.status == 400:
            cause = next(line for line in at_authorize.splitlines() if line.startswith("The id_"))
            assert cause in explain(page)
        return at_authorize

    assert "it is no JWT" in ask("x")
    assert "cannot be verified: its text has been changed" in ask(hint[:-4] + "AAAA")
    foreign = keys.sign({**claims_of(hint), "iss": "https://id.example"}, "RS256", "JWT")
    assert f"is of the issuer https://id.example, not {ORIGIN}{BASE}." in ask(foreign)
    other = keys.sign({**claims_of(hint), "aud": "another"}, "RS256", "JWT")
    assert "was issued to another client, another." in ask(other)
    later = int((sso_clock.now() + timedelta(minutes=10)).timestamp())
    future = keys.sign({**claims_of(hint), "iat": later}, "RS256", "JWT")[:-4] + "AAAA"
    assert "was issued 600 s in the future: the clocks of the servers differ" in ask(future)


# ---- forms and addresses ----


def post_form(app: Flask, **more: Any) -> Any:
    data = {"email": "dana@example.com", "password": "x"}
    return app.test_client().post(f"{BASE}/sign-in", data=data, **more)


def test_a_form_by_http(make_app: Callable[..., Flask]) -> None:
    app = make_app(SSO_BASE_URL="https://login.example/api/auth")
    explain = Explain(app)
    text = explain(post_form(app, base_url="http://login.example"))
    assert "The page was opened by http, where browsers do not send the cookie." in text
    assert "X-Forwarded-Proto" in text
    text = explain(post_form(app, base_url="https://other.example"))
    assert "The page was opened at other.example; SSO_BASE_URL is https://login.example" in text
    assert "host      other.example, not login.example" in text
    framed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "iframe"}
    text = explain(post_form(app, base_url="https://login.example", headers=framed))
    assert "within a page of another site" in text
    text = explain(post_form(app, base_url="https://login.example"))
    assert "The browser sent no cookie" in text


def test_an_old_form(app: Flask, browser: Browser, user: User, explain: Explain) -> None:
    browser.sign_in()
    answer = browser.http.post(f"{BASE}/account", data={"action": "x"}, base_url=ORIGIN)
    assert "older than the present sign-in" in explain(answer)


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/oauth2/token", "/oauth2/token"),
        ("/authorize", "/oauth2/authorize"),
        (f"{BASE}/oauth2/userinfo/", "/oauth2/userinfo"),
        (f"{BASE}/token", "/oauth2/token"),
        ("/.well-known/openid-configuration", "/.well-known/openid-configuration"),
        ("/x/jwks.json", "/oauth2/jwks"),
    ],
)
def test_an_address_that_is_nearly_right(
    app: Flask, explain: Explain, path: str, meant: str
) -> None:
    text = explain(app.test_client().get(path, base_url="http://sso.example:8000"))
    assert f"There is nothing at http://sso.example:8000{path}." in text
    assert f"It looks like {ORIGIN}{BASE}{meant}." in text
    assert f"Set the issuer of the application to {ORIGIN}{BASE}" in text


def test_an_address_that_programs_try_is_not_kept(app: Flask, explain: Explain) -> None:
    answer = app.test_client().get("/wp-login.php", base_url=ORIGIN)
    error = explain.run(answer.headers["X-Request-ID"], code=1)
    assert "no refused request has the id" in error


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/sign-in?resume=x", "The page had been open for too long"),
        ("/new-password?token=x", "The link from a mail was used"),
    ],
)
def test_pages_about_themselves(
    app: Flask, browser: Browser, explain: Explain, path: str, words: str
) -> None:
    page = browser.open(f"{ORIGIN}{BASE}{path}")
    assert words in explain(page)


def test_an_error_of_the_server(
    app: Flask, explain: Explain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sso.endpoints.page.render", lambda *_, **__: 1 / 0)
    answer = app.test_client().get(f"{BASE}/sign-in", base_url=ORIGIN)
    assert answer.status_code == 500
    assert "The server failed." in explain(answer)


def test_too_many_tries(app: Flask, client: RelyingParty, explain: Explain, clock: Clock) -> None:
    for _ in range(30):
        answer = client.exchange("x", client_secret="wrong")
    assert answer.status_code == 429
    assert "There were too many attempts" in explain(answer)


def test_a_body_that_is_no_form(client: RelyingParty, explain: Explain) -> None:
    answer = client.post("/oauth2/token", json.dumps({"grant_type": "authorization_code"}))
    assert "is not application/x-www-form-urlencoded" in explain(answer)


def test_introspection_of_what_is_not_its_own(scene: Scene, explain: Explain) -> None:
    answer = scene.other.introspect(scene.tokens()["access_token"])
    assert "is not one of this client's" in explain(answer)


def test_pushed_requests(
    clock: Clock, browser: Browser, client: RelyingParty, user: User, explain: Explain
) -> None:
    first, second = (client.push().get_json()["request_uri"] for _ in range(2))
    query = {"client_id": client.client_id, "request_uri": first}
    browser.open_authorize(query)
    browser.sign_in()
    assert browser.allow().code
    assert "already sent back" in explain(browser.open_authorize(query))
    clock.move(seconds=61)
    page = browser.open_authorize({**query, "request_uri": second})
    assert "pushed more than 60 s before" in explain(page)
    assert "without a request_uri among them" in explain(client.push(request_uri=second))
    page = browser.open_authorize({**query, "request_uri": second + "x"})
    assert "No such request was pushed" in explain(page)


def test_a_request_that_was_not_pushed(app: Flask, browser: Browser, explain: Explain) -> None:
    client = make_client(app, require_pushed_authorization_requests=True)
    browser.authorize(client)
    assert "--no-require-par" in explain(browser.history[-1])


def test_dpop(
    app: Flask, browser: Browser, client: RelyingParty, user: User, explain: Explain
) -> None:
    key, code = DPoP(), browser.approve(client).code
    proxied = client.exchange(code, key.header(htu="http://10.0.0.1:8000/oauth2/token?x=1"))
    text = explain(proxied)
    assert "The DPoP proof was made for another URL." in text
    assert "http://10.0.0.1:8000/oauth2/token" in text
    assert f"{ORIGIN}{BASE}/oauth2/token" in text
    assert "more than a minute off" in explain(client.exchange(code, key.header(iat=1)))
    assert "Update the application" in explain(client.exchange(code, key.header(htm="GET")))
    bound = client.exchange(code, key.header()).get_json()["access_token"]
    assert "more than a minute off" in explain(key.userinfo(client, bound, iat=1))
    assert "came as an ordinary bearer token" in explain(client.userinfo(bound))
    assert "keep its key" in explain(DPoP().userinfo(client, bound))
    bearer = client.exchange(browser.approve(client).code).get_json()["access_token"]
    assert "with the scheme DPoP" in explain(key.userinfo(client, bearer))
    update = ("client", "update", client.client_id)
    app.test_cli_runner().invoke(args=[*update, "--require-dpop"])
    assert "and refresh the token" in explain(client.userinfo(bearer))
    app.test_cli_runner().invoke(args=[*update, "--no-require-dpop"])
    jkt = client.push(key.header("/oauth2/par"), dpop_jkt="A" * 43)
    assert "leave dpop_jkt out" in explain(jkt)
    strict = make_client(app, dpop_bound_access_tokens=True)
    assert "--require-dpop" in explain(strict.exchange("x"))
    used = key.header(jti="1")
    assert client.exchange(browser.approve(client).code, used).status_code == 200
    assert "was used before" in explain(client.exchange(browser.approve(client).code, used))
    code = browser.approve(client, dpop_jkt=key.jkt).code
    assert "keep one key" in explain(client.exchange(code, DPoP().header()))
