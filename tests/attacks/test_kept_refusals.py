"""The attacker is refused, again and again: what is kept of it for `flask explain`.

It holds no secrets, has a size that it never exceeds, and gives the operator who reads it nothing
to run that helps the attacker.
"""

import base64
import json
import re
import shlex
from collections.abc import Callable
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from flask import Flask

from sso import clock
from sso.extensions import db
from sso.models import Refusal, User
from sso.ratelimit import refusals as noting
from sso.store import refusals
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty, pkce
from tests.support.explaining import Explain
from tests.support.factories import PASSWORD, make_client
from tests.support.scene import Scene

CALLBACK = "https://books.example/callback"


def rows(app: Flask) -> list[Refusal]:
    refusals.flush(app)
    with app.app_context():
        return list(db.session.query(Refusal).order_by(Refusal.at))


def columns(app: Flask) -> str:
    """Everything that is kept, as one text."""
    names = Refusal.__table__.columns.keys()
    return "\n".join(str(getattr(row, name)) for row in rows(app) for name in names)


def test_no_secret_is_kept(scene: Scene, explain: Explain) -> None:
    app, client, browser = scene.app, scene.client, scene.browser
    secrets: list[str] = [client.client_secret, scene.other.client_secret, PASSWORD]

    def sent(value: str) -> str:
        secrets.append(value)
        return value

    verifier, challenge = pkce()
    asked = {"code_challenge": challenge, "code_challenge_method": "S256"}
    code = sent(scene.code(**asked))
    client.exchange(code, code_verifier=sent(pkce()[0]))
    client.exchange(code, code_verifier=sent(verifier), redirect_uri=f"{CALLBACK}?code={code}")
    scene.other.exchange(code, code_verifier=verifier)
    tokens = client.exchange(code, code_verifier=verifier).get_json()
    for name in ("access_token", "refresh_token", "id_token"):
        sent(tokens[name])
        sent(tokens[name].split(".")[-1])  # a signature
    scene.clock.move(seconds=30)
    client.exchange(code, code_verifier=verifier)
    scene.other.refresh(tokens["refresh_token"])
    client.refresh(tokens["refresh_token"])
    client.userinfo(tokens["access_token"])
    client.userinfo(tokens["access_token"][:-4] + "AAAA")
    client.userinfo(tokens["id_token"])
    scene.other.introspect(tokens["access_token"])
    client.post("/oauth2/introspect", {"token": tokens["refresh_token"], "client_secret": "x"})
    # Credentials in wrong places.
    wrong = sent("hunter2-hunter2-hunter2")
    client.exchange("x", client_secret=wrong)
    client.exchange("x", client_id=client.client_secret, client_secret=client.client_id)
    client.exchange("x", client_id=wrong, client_secret=client.client_id)  # not one of ours
    client.post("/oauth2/token", {"grant_type": "x"}, headers=client.basic(wrong))
    client.post(f"/oauth2/token?client_secret={client.client_secret}", client.credentials())
    client.post(f"/oauth2/userinfo?access_token={tokens['access_token']}", {})
    client.post("/oauth2/token", json.dumps({**client.credentials(), "password": PASSWORD}))
    # In addresses, states, hints and paths.
    state, nonce = sent("st4te-of-this-person"), sent("n0nce-of-this-person")
    for uri in (
        f"{CALLBACK}?code={code}&state={state}",
        f"{CALLBACK}?{code}",
        f"{CALLBACK}#access_token={tokens['access_token']}",
        f"https://dana:{quote(PASSWORD)}@books.example/callback",
        f"https://books.example/{tokens['id_token']}/callback",
        # Nothing of these looks like a secret; their places alone tell.
        f"{CALLBACK}#{sent('fragment-of-this-person')}",
        f"https://{sent('user-info-of-this-person')}@books.example/callback",
    ):
        browser.authorize(client, redirect_uri=uri, state=state, nonce=nonce)
        query = urlencode({"client_id": client.client_id, "post_logout_redirect_uri": uri})
        browser.open(f"{ORIGIN}{BASE}/oauth2/end-session?{query}")
    browser.authorize(client, id_token_hint=tokens["id_token"] + "x", state=state)
    browser.authorize(client, client_id=client.client_secret, state=state)
    browser.authorize(client, prompt="login everything", login_hint=sent("dana-hint"), state=state)
    browser.open(f"{ORIGIN}{BASE}/token?code={code}")
    browser.open(f"{ORIGIN}{BASE}/{tokens['refresh_token']}/token")
    browser.open(f"{ORIGIN}{BASE}/{sent('segment-' + 'k3' * 20)}/token")
    link = sent("sso_ml_" + "y" * 43)
    browser.open(f"{ORIGIN}{BASE}/new-password?token={link}")
    form = {"email": "dana@example.com", "password": PASSWORD}
    Browser(app).http.post(f"{BASE}/sign-in", data=form, base_url=ORIGIN)

    kept = columns(app)
    assert len(rows(app)) > 25
    for secret in secrets:
        for spelling in (
            secret,
            quote(secret, safe=""),
            base64.b64encode(secret.encode()).decode(),
        ):
            assert spelling not in kept, secret
        assert secret[:24] not in kept or len(secret) < 24, secret
    for row in explain.json("--limit", "1000"):  # and they are all explained
        assert row["cause"]
        assert row["fix"]


@pytest.mark.parametrize(
    "long", ["x" * 4000, "é" * 4000, "\U0001f600" * 2000, "%" * 4000, "//" * 2000]
)
def test_long_values_are_cut(
    app: Flask, browser: Browser, client: RelyingParty, explain: Explain, long: str
) -> None:
    http = app.test_client(use_cookies=False)
    for name in ("client_id", "redirect_uri", "scope", "prompt", "max_age", "response_mode",
                 "response_type", "state", "id_token_hint", "code_challenge_method"):  # fmt: skip
        query = urlencode(client.parameters(**{name: long}))
        http.get(f"{BASE}/oauth2/authorize?{query}", base_url=ORIGIN)
    query = urlencode({"client_id": client.client_id, "post_logout_redirect_uri": long})
    http.get(f"{BASE}/oauth2/end-session?{query}", base_url=ORIGIN)
    for field in ("client_id", "client_secret", "grant_type", "code", "redirect_uri", "scope"):
        form = {"grant_type": "authorization_code", **client.credentials(), field: long}
        client.post("/oauth2/token", form)
    client.userinfo("x" * 4000)
    kept = rows(app)
    assert len(kept) >= 10
    for row in kept:
        assert len(row.details.encode()) <= noting._LONGEST_DETAILS
        json.loads(row.details)
    assert len(explain.json("--limit", "1000")) == len(kept)


def test_a_row_of_many_long_values() -> None:
    details = {f"name {number}": "\U0001f600" * 1000 for number in range(100)}
    text = noting._as_json({"error": "invalid_request", **details})
    assert len(text.encode()) <= noting._LONGEST_DETAILS
    assert json.loads(text)["error"] == "invalid_request"


@pytest.mark.slow
def test_a_network_displaces_its_own_rows_alone(
    app: Flask, client: RelyingParty, explain: Explain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much it is allowed to write, and whichever client it names."""
    monkeypatch.setattr(noting, "AN_HOUR", 10_000)
    mine = client.userinfo("x", environ_overrides={"REMOTE_ADDR": "198.51.100.1"})
    proven = client.exchange("x")
    http = app.test_client(use_cookies=False)
    for _ in range(3 * refusals.KEPT):
        from_there: Any = {"REMOTE_ADDR": "203.0.113.9"}
        client.userinfo("x", environ_overrides=from_there)
        query = urlencode(client.parameters(redirect_uri="https://evil.example/"))
        http.get(f"{BASE}/oauth2/authorize?{query}", environ_overrides=from_there)
        http.get(f"{BASE}/nothing/token", environ_overrides=from_there)
    kept = rows(app)
    assert len(kept) == 3 * refusals.KEPT + 2
    assert "did not issue the access token" in explain(mine)
    assert "No such code" in explain(proven)


@pytest.mark.slow
def test_no_number_of_networks_displaces_what_clients_left(
    app: Flask, client: RelyingParty, explain: Explain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(noting, "AN_HOUR", 10_000)
    monkeypatch.setattr(noting, "EVERYWHERE", 100_000)
    monkeypatch.setattr(noting, "BUCKETS", 2)
    proven = client.exchange("x")
    for number in range(5 * refusals.KEPT):
        client.userinfo("x", environ_overrides={"REMOTE_ADDR": f"203.0.113.{number % 250}"})
    assert len(rows(app)) == 2 * refusals.KEPT + 1
    assert "No such code" in explain(proven)


def test_a_wide_network_is_one(app: Flask, client: RelyingParty) -> None:
    """A customer with a /48 has 65 536 networks; they share their places."""
    for number in range(20):
        address = f"2001:db8:1:{number:x}::1"
        client.userinfo("x", environ_overrides={"REMOTE_ADDR": address})
    assert len({row.bucket for row in rows(app)}) == 1


def test_the_table_has_a_greatest_size(app: Flask) -> None:
    """What the documentation says of it."""
    most = 2 * noting.BUCKETS * refusals.KEPT
    assert most == 25_600
    assert most * noting._LONGEST_DETAILS < 128 * 1024 * 1024


@pytest.mark.slow
def test_unknown_addresses_do_not_fill_it(app: Flask, client: RelyingParty) -> None:
    http = app.test_client(use_cookies=False)
    for number in range(300):
        http.get(f"/wp-{number}.php", base_url=ORIGIN)
    assert rows(app) == []


@pytest.mark.parametrize(
    "uri",
    [
        "https://evil.example/callback",
        "https://books.example.evil.example/callback",
        "https://books.example@evil.example/callback",
        "https://books.example:8443/callback",
        "https://books.example\\@evil.example/callback",
        "https://bóoks.example/callback",
        "https://books.example/callback?next=https://evil.example",
        "https://books.example/callback/../admin",
        "https://books.example/callback/%2E%2e/admin",
        "https://books.example/callback\n  flask user delete dana@example.com --yes",
        "https://books.example/callback'; rm -rf /; '#",
        "http://books.example/callback",
        "com.evil:/callback",
        "http://127.0.0.1/callback",
        "javascript://books.example/%0aalert(1)",
    ],
)
def test_no_command_helps_the_attacker(
    browser: Browser, client: RelyingParty, explain: Explain, uri: str
) -> None:
    """Nothing is printed that would register an address of the attacker's."""
    page = browser.authorize(client, redirect_uri=uri)
    refusals.flush(client.app)
    request_id = browser.history[-1].headers["X-Request-ID"]
    text = explain.run(request_id)
    assert not [line for line in text.splitlines() if line.startswith("  flask")]
    assert page.status == 400
    assert json.loads(explain.run(request_id, "--json"))["command"] is None


@pytest.mark.parametrize("path", ["/redirect", "/~mallory/callback", "/uploads/x.html"])
def test_another_path_comes_with_a_warning(
    browser: Browser, client: RelyingParty, explain: Explain, path: str
) -> None:
    """A page of the same host that redirects anywhere, or holds what strangers upload, answers."""
    found = explain.json(
        _id(browser.authorize(client, redirect_uri=f"https://books.example{path}"))
    )
    assert found["command"]
    assert "Anyone can send such a request." in found["fix"]


@pytest.mark.parametrize(
    "path", ["/it's/$(id)/`id`", "/a&b;c", "/(callback)", "/!history", "/*", "/~root", "/-x"]
)
def test_commands_are_quoted_for_the_shell(
    browser: Browser, client: RelyingParty, explain: Explain, path: str
) -> None:
    uri = f"https://books.example{path}"
    found = explain.json(_id(browser.authorize(client, redirect_uri=uri)))
    if found["command"]:
        assert shlex.split(found["command"])[-1] == uri


def test_so_are_email_addresses(scene: Scene, explain: Explain) -> None:
    """RFC 5322 allows backticks and pipes before the @, and with sign-up strangers choose them."""
    email = "x`id`|sh@evil.example"
    token = scene.tokens(scope="openid")["access_token"]
    with scene.app.app_context():  # the command would end the grant as well
        found = db.session.get(User, scene.user.id)
        assert found
        found.email, found.disabled_at = email, clock.now()
        db.session.commit()
    command = explain.json(_id(scene.client.userinfo(token)))["command"]
    assert shlex.split(command) == ["flask", "user", "enable", email]
    assert "`" not in command.replace(shlex.quote(email), "")


def test_naming_a_public_client_proves_nothing(
    app: Flask, client: RelyingParty, explain: Explain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What strangers present in its name does not displace what authenticated clients left."""
    monkeypatch.setattr(noting, "BUCKETS", 1)
    public = make_client(app, redirect_uris=["com.example.app:/cb"], public=True)
    proven = _id(client.revoke("x"))
    for _ in range(refusals.KEPT + 1):
        public.revoke("x")
    assert "not one of this client's" in explain.run(proven)


@pytest.mark.parametrize("text", ["\x1b[2Jx", "\u202ex", "\u2028x", "x\r\nid  forged", "\u200bx"])
def test_nothing_drives_the_terminal(
    app: Flask, browser: Browser, client: RelyingParty, explain: Explain, text: str
) -> None:
    for more in ({"redirect_uri": CALLBACK + text}, {"scope": f"openid {text}"}, {"prompt": text},
                 {"client_id": text}):  # fmt: skip
        browser.authorize(client, **more)
    browser.http.get(f"/{quote(text)}/token", base_url=ORIGIN)
    browser.http.get(f"{BASE}/oauth2/userinfo", headers={"Host": "sso.example"}, base_url=ORIGIN)
    printed = explain.run("--limit", "100") + "".join(
        explain.run(row["id"]) for row in explain.json("--limit", "100")
    )
    assert len(printed) > 500
    assert not set(printed) & set("\x1b\u202e\u2028\r\u200b")
    assert not [line for line in printed.splitlines() if line.startswith("id  forged")]


def _id(answer: Any) -> str:
    return str(answer.headers["X-Request-ID"])


def test_an_id_of_the_attackers_choice(
    app: Flask, browser: Browser, client: RelyingParty, explain: Explain
) -> None:
    """Somebody else's: both are shown, the first one first. One like an option is not taken."""
    mine = _id(browser.authorize(client, redirect_uri=CALLBACK + "/"))
    client.userinfo("x", environ_overrides={"HTTP_X_REQUEST_ID": mine})
    text = explain.run(mine)
    assert "Several requests have this id: a request may bring its own." in text
    assert text.index("trailing slash") < text.index("did not issue the access token")
    found = explain.json(mine)
    assert "redirect_uri" in found["cause"]
    assert len(found["more"]) == 1
    for given in ("--client-all", "-hhhhhhhh", "$(reboot)1", "x" * 65, "../../etc/x"):
        answer = client.userinfo("x", environ_overrides={"HTTP_X_REQUEST_ID": given})
        assert _id(answer) != given


def test_the_answer_gives_nothing_away(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    """Two clients that are refused for different reasons get the same, but for the id."""
    make_client(app, name="Other")
    pages = []
    for client_id in ("nobody", client.client_id):
        if client_id == client.client_id:
            app.test_cli_runner().invoke(args=["client", "disable", client_id])
        page = browser.authorize(client, client_id=client_id)
        html = page.html.replace(_id(page), "").replace(client_id, "")
        # The form of the languages leads back to this address, which names the client.
        pages.append(re.sub(r'name="(csrf_token|back)" value="[^"]+"', "", html))
    assert pages[0] == pages[1]


def test_redis_or_not_what_is_kept_is_budgeted(
    make_app: Callable[..., Flask], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many of a kind from one network as there are audit events of it; others are not hidden."""
    monkeypatch.setattr(noting, "AN_HOUR", 5)
    app = make_app()
    client = make_client(app)
    http = app.test_client(use_cookies=False)
    for _ in range(20):
        client.userinfo("x")
        client.userinfo(None)
        http.get("/nothing/token", base_url=ORIGIN)
    names = [row.name for row in rows(app)]
    assert names.count("access_token_refused") == 5
    assert names.count("error") == 5
