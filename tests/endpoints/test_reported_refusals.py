"""Why a request was refused: `flask audit list --client ID` and the log tell the very reason."""

import json
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from werkzeug.test import TestResponse

from sso.audit import writer
from sso.extensions import db
from sso.models import AuditEvent, User
from sso.ratelimit import refusals
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty, pkce
from tests.support.factories import make_client, make_user
from tests.support.scene import Scene

GENERIC_CODE = (
    "The code is unknown, expired or used, it was issued to another client, "
    "or what the user approved with it has ended."
)
GENERIC_REFRESH = "The refresh token is unknown, expired, used or revoked."
GENERIC_CLIENT = "The client is unknown or disabled, or its secret is wrong."
GENERIC_TOKEN = (
    "The access token provided is expired, revoked, malformed, or invalid for other reasons."
)
UNREGISTERED = "The 'redirect_uri' does not match any registered one exactly."
GROUP = "The user is not in a group that may use this client."


class AccessLines(logging.Handler):
    """The lines of requests, as a collector of JSON gets them."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def lines() -> Iterator[AccessLines]:
    handler = AccessLines()
    access = logging.getLogger("sso.access")
    access.addHandler(handler)
    yield handler
    access.removeHandler(handler)


@pytest.fixture
def run(app: Flask) -> Callable[..., Any]:
    def invoke(*arguments: str) -> Any:
        writer.flush(app)
        result = app.test_cli_runner().invoke(args=[*arguments])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout) if "--json" in arguments else result.stdout

    return invoke


def _used_code(s: Scene) -> None:
    code = s.code()
    s.client.exchange(code)
    s.client.exchange(code)


def _reused_code(s: Scene) -> None:
    code = s.code()
    s.client.exchange(code)
    s.clock.move(seconds=30)
    s.client.exchange(code)


def _expired_code(s: Scene) -> None:
    code = s.code()
    s.clock.move(seconds=61)
    s.client.exchange(code)


def _code_of_another(s: Scene) -> None:
    s.other.exchange(s.code())


def _code_after_sign_out(s: Scene) -> None:
    code = s.code()
    s.flask("user", "sign-out", s.user.email)
    s.client.exchange(code)


def _wrong_verifier(s: Scene) -> None:
    code = s.code(code_challenge=pkce()[1], code_challenge_method="S256")
    s.client.exchange(code, code_verifier=pkce()[0])


def _missing_verifier(s: Scene) -> None:
    s.client.exchange(s.code(code_challenge=pkce()[1], code_challenge_method="S256"))


def _expired_previous_secret(s: Scene) -> None:
    s.flask("client", "rotate-secret", s.client.client_id, "--keep-old", "1")
    s.clock.move(hours=2)
    s.client.exchange("x")


def _disabled_client(s: Scene) -> None:
    s.flask("client", "disable", s.client.client_id)
    s.client.exchange("x")


def _disabled_at_authorize(s: Scene) -> None:
    s.flask("client", "disable", s.client.client_id)
    s.browser.authorize(s.client)


def _wrong_method(s: Scene) -> None:
    s.flask("client", "update", s.client.client_id, "--auth-method", "client_secret_basic")
    s.client.exchange("x")


def _expired_refresh(s: Scene) -> None:
    tokens = s.tokens(scope="openid")
    s.clock.move(days=31)
    s.client.refresh(tokens["refresh_token"])


def _revoked_refresh(s: Scene) -> None:
    tokens = s.tokens()
    s.client.revoke(tokens["refresh_token"])
    s.client.refresh(tokens["refresh_token"])


def _reused_refresh(s: Scene) -> None:
    tokens = s.tokens()
    s.client.refresh(tokens["refresh_token"])
    s.clock.move(seconds=30)
    s.client.refresh(tokens["refresh_token"])


def _foreign_refresh(s: Scene) -> None:
    s.other.refresh(s.tokens()["refresh_token"])


def _forbidden_group(s: Scene) -> None:
    s.register(groups=["board"])
    s.browser.authorize(s.client)
    s.browser.sign_in()


def _forbidden_group_silently(s: Scene) -> None:
    s.register(groups=["board"])
    s.browser.sign_in()
    s.browser.authorize(s.client, prompt="none")


def _expired_access(s: Scene) -> None:
    token = s.tokens()["access_token"]
    s.clock.move(hours=2)
    s.client.userinfo(token)


def _revoked_access(s: Scene) -> None:
    token = s.tokens()["access_token"]
    s.client.revoke(token)
    s.client.userinfo(token)


def _access_after_sign_out(s: Scene) -> None:
    token = s.tokens()["access_token"]
    s.flask("user", "sign-out", s.user.email)
    s.client.userinfo(token)


def _access_of_disabled_user(s: Scene) -> None:
    token = s.tokens(scope="openid offline_access")["access_token"]
    with s.app.app_context():  # the command would end the grant as well
        found = db.session.get(User, s.user.id)
        assert found
        found.disabled_at = s.clock.now()
        db.session.commit()
    s.client.userinfo(token)


def _altered_access(s: Scene) -> None:
    s.client.userinfo(s.tokens()["access_token"][:-4] + "AAAA")


def _insufficient_scope(s: Scene) -> None:
    s.register(scope="openid groups")
    s.client.userinfo(s.tokens(scope="groups")["access_token"])


def _unregistered_post_logout(s: Scene) -> None:
    hint = s.tokens()["id_token"]
    s.end_session(id_token_hint=hint, post_logout_redirect_uri="https://books.example/x?secret=1")


# What happens; whose client; the event; error, description and reason; whether the user is known.
OF_CLIENT: dict[str, tuple[Callable[[Scene], Any], str, str, str, str | None, bool]] = {
    "wrong redirect_uri": (
        lambda s: s.browser.authorize(s.client, redirect_uri="https://books.example/no?x=1"),
        "authorization_refused", "invalid_request", UNREGISTERED, None, False),
    "missing state": (
        lambda s: s.browser.authorize(s.client, state=None),
        "authorization_refused", "invalid_request",
        "The parameter 'state' is missing; send a random value and compare it on return.",
        None, False),
    "prompt=none, nobody": (
        lambda s: s.browser.authorize(s.client, prompt="none"),
        "authorization_refused", "login_required",
        "The user has to sign in, and prompt=none forbids it.", None, False),
    "forbidden group": (
        _forbidden_group, "client_forbidden", "access_denied", GROUP, None, True),
    "forbidden group, silently": (
        _forbidden_group_silently, "authorization_refused", "access_denied", GROUP, None, True),
    "no scope of those asked for": (
        lambda s: s.browser.authorize(s.client, scope="groups x"),
        "authorization_refused", "invalid_scope",
        "None of the scopes asked for is known and registered for this client.", None, False),
    "disabled client at authorize": (
        _disabled_at_authorize, "authorization_refused", "invalid_client",
        "No client with this client_id is registered and enabled.", "disabled client", False),
    "code used twice at once": (
        _used_code, "tokens_refused", "invalid_grant", GENERIC_CODE, "used before", True),
    "code used twice": (
        _reused_code, "tokens_refused", "invalid_grant",
        "The code was used before; all that it gave has been revoked.", None, True),
    "code expired": (
        _expired_code, "tokens_refused", "invalid_grant", GENERIC_CODE, "expired", True),
    "code unknown": (
        lambda s: s.client.exchange("sso_ac_x"),
        "tokens_refused", "invalid_grant", GENERIC_CODE, "unknown", False),
    "code after sign-out": (
        _code_after_sign_out, "tokens_refused", "invalid_grant", GENERIC_CODE,
        "its grant has ended: operator", True),
    "wrong code_verifier": (
        _wrong_verifier, "tokens_refused", "invalid_grant",
        "The code_verifier does not fit the code_challenge.", None, True),
    "missing code_verifier": (
        _missing_verifier, "tokens_refused", "invalid_grant",
        "The code_verifier is missing.", None, True),
    "unsupported grant_type": (
        lambda s: s.client.exchange("x", grant_type="password"),
        "tokens_refused", "unsupported_grant_type",
        "The grant_type is not one that this server supports.", None, False),
    "wrong secret": (
        lambda s: s.client.exchange("x", client_secret="wrong"),
        "client_authentication_failed", "invalid_client", GENERIC_CLIENT, "wrong secret", False),
    "expired previous secret": (
        _expired_previous_secret,
        "client_authentication_failed", "invalid_client", GENERIC_CLIENT,
        "a previous secret, which has expired", False),
    "disabled client": (
        _disabled_client, "client_authentication_failed", "invalid_client", GENERIC_CLIENT,
        "disabled client", False),
    "wrong secret at introspection": (
        lambda s: s.client.introspect("x", client_secret="wrong"),
        "client_authentication_failed", "invalid_client", GENERIC_CLIENT, "wrong secret", False),
    "no secret": (
        lambda s: s.client.exchange("x", client_secret=None),
        "client_authentication_failed", "invalid_client",
        "Client authentication is missing: send client_id and client_secret, or a "
        "client_assertion.", None, False),
    "wrong method": (
        _wrong_method, "client_authentication_failed", "invalid_client",
        "The client is registered for client_secret_basic alone.",
        "wrong method: client_secret_post", False),
    "refresh token expired": (
        _expired_refresh, "tokens_refused", "invalid_grant", GENERIC_REFRESH, "expired", True),
    "refresh token revoked": (
        _revoked_refresh, "tokens_refused", "invalid_grant", GENERIC_REFRESH,
        "its grant has ended: revoked", True),
    "refresh token used before": (
        _reused_refresh, "tokens_refused", "invalid_grant",
        "The refresh token was used before; its grant has been revoked.", None, True),
    "refresh with more scope": (
        lambda s: s.client.refresh(s.tokens(scope="openid")["refresh_token"], scope="email"),
        "tokens_refused", "invalid_scope", "The scope goes beyond what was granted.", None, True),
    "introspection of nothing": (
        lambda s: s.client.post("/oauth2/introspect", s.client.credentials()),
        "introspection_refused", "invalid_request", "The parameter 'token' is missing.",
        None, False),
    "revocation of nothing": (
        lambda s: s.client.post("/oauth2/revoke", s.client.credentials()),
        "revocation_refused", "invalid_request", "The parameter 'token' is missing.", None, False),
    "access token expired": (
        _expired_access, "access_token_refused", "invalid_token", GENERIC_TOKEN, "expired", True),
    "access token revoked": (
        _revoked_access, "access_token_refused", "invalid_token", GENERIC_TOKEN, "revoked", True),
    "access token after sign-out": (
        _access_after_sign_out, "access_token_refused", "invalid_token", GENERIC_TOKEN,
        "its grant has ended: operator", True),
    "access token of a disabled user": (
        _access_of_disabled_user, "access_token_refused", "invalid_token", GENERIC_TOKEN,
        "user disabled", True),
    "access token altered": (
        _altered_access, "access_token_refused", "invalid_token", GENERIC_TOKEN, "altered", True),
    "access token without a scope of userinfo": (
        _insufficient_scope, "access_token_refused", "insufficient_scope",
        "The request requires higher privileges than provided by the access token.", None, True),
    "unregistered post_logout_redirect_uri": (
        _unregistered_post_logout, "post_logout_refused", "invalid_request",
        "The 'post_logout_redirect_uri' does not match any registered one exactly.",
        None, False),
    "hint that is none": (
        lambda s: s.end_session(id_token_hint="x", client_id=s.client.client_id),
        "end_session_refused", "invalid_request",
        "The id_token_hint is no identity token of this server, or too old to be verified.",
        None, False),
}  # fmt: skip


@pytest.mark.parametrize("row", OF_CLIENT.values(), ids=OF_CLIENT.keys())
def test_the_reason_stands_in_the_trail_and_in_the_log(
    scene: Scene, lines: AccessLines, run: Callable[..., Any], row: Any
) -> None:
    act, event, error, description, reason, knows_user = row
    act(scene)
    listed = run("audit", "list", "--client", scene.client.client_id, "--json")
    (found,) = [one for one in listed if one["event"] == event]
    fields = found["fields"]
    told = (fields["error"], fields["description"], fields.get("reason"))
    assert told == (error, description, reason)
    assert found["user"] == (str(scene.user.id) if knows_user else None)
    (line,) = [one for one in lines.records if getattr(one, "error", None)]
    assert (line.error, line.description) == (error, description)  # type: ignore[attr-defined]
    assert line.client == scene.client.client_id  # type: ignore[attr-defined]
    assert getattr(line, "reason", None) == reason
    assert json.dumps(description)[1:-1] in line.getMessage()
    assert description in run("audit", "list", "--client", scene.client.client_id)


@pytest.mark.parametrize("act", [_code_of_another, _foreign_refresh])
def test_what_was_issued_to_another_client(
    scene: Scene, run: Callable[..., Any], act: Callable[[Scene], None]
) -> None:
    act(scene)
    (row,) = run("audit", "list", "--client", scene.other.client_id, "--json")
    assert row["event"] == "tokens_refused"
    assert row["fields"]["reason"] == "issued to another client"


def _unknown_client(s: Scene) -> TestResponse:
    return s.client.exchange("x", client_id="nobody")


def _wrong_secret(s: Scene) -> TestResponse:
    return s.client.exchange("x", client_secret="wrong")


def _wrong_secret_of_a_disabled_client(s: Scene) -> TestResponse:
    s.flask("client", "disable", s.other.client_id)
    return s.other.exchange("x")


def _unknown_code(s: Scene) -> TestResponse:
    return s.client.exchange("sso_ac_x")


def _foreign_code(s: Scene) -> TestResponse:
    return s.other.exchange(s.code())


def _expired(s: Scene) -> TestResponse:
    code = s.code()
    s.clock.move(seconds=61)
    return s.client.exchange(code)


def _unknown_token(s: Scene) -> TestResponse:
    return s.client.userinfo("x.eyJqdGkiOiJhIn0.y")


def _garbage_token(s: Scene) -> TestResponse:
    return s.client.userinfo("x")


def _altered_token(s: Scene) -> TestResponse:
    return s.client.userinfo(s.tokens()["access_token"][:-4] + "AAAA")


@pytest.mark.parametrize(
    ("acts", "reasons"),
    [
        (
            (_unknown_client, _wrong_secret, _wrong_secret_of_a_disabled_client),
            ["unknown client", "wrong secret", "disabled client"],
        ),
        (
            (_unknown_code, _foreign_code, _expired),
            ["unknown", "issued to another client", "expired"],
        ),
        (
            (_unknown_token, _garbage_token, _altered_token),
            ["unknown", "not a token of this server", "altered"],
        ),
    ],
)
def test_the_answer_does_not_tell_the_reason(
    scene: Scene, run: Any, acts: Any, reasons: list[str]
) -> None:
    answers = [act(scene) for act in acts]
    assert len({answer.get_data() for answer in answers}) == 1
    assert len({answer.headers.get("WWW-Authenticate") for answer in answers}) == 1
    listed = reversed(run("audit", "list", "--json"))
    assert [e["fields"]["reason"] for e in listed if "reason" in e["fields"]] == reasons


def test_what_succeeds_tells_no_reason(scene: Scene, lines: AccessLines, run: Any) -> None:
    tokens = scene.tokens()
    scene.client.userinfo(tokens["access_token"])
    scene.client.refresh(tokens["refresh_token"])
    scene.client.introspect(tokens["access_token"])
    assert not [one for one in lines.records if hasattr(one, "error") or hasattr(one, "dropped")]
    names = {one["event"] for one in run("audit", "list", "--json")}
    assert not [name for name in names if name.endswith(("refused", "failed", "dropped"))]


def test_the_users_own_no_has_one_event(scene: Scene, lines: AccessLines, run: Any) -> None:
    scene.browser.authorize(scene.client)
    scene.browser.sign_in()
    scene.browser.deny()
    names = [one["event"] for one in run("audit", "list", "--json")]
    assert names == ["consent_denied", "signed_in"]
    (line,) = [one for one in lines.records if hasattr(one, "error")]
    assert line.description == "The user refused."  # type: ignore[attr-defined]


def test_a_dropped_scope_is_told_once(scene: Scene, lines: AccessLines, run: Any) -> None:
    """On the way through sign-in and consent, and at none of the steps again."""
    scene.code(scope="openid groups nonsense email")
    (row,) = run("audit", "list", "--event", "scope_dropped", "--json")
    assert row["client"] == scene.client.client_id
    assert row["fields"]["dropped"] == "groups nonsense"
    (line,) = [one for one in lines.records if hasattr(one, "dropped")]
    assert line.dropped == "groups nonsense"


def test_a_fault_that_drops_no_scope_tells_of_none(scene: Scene, run: Any) -> None:
    scene.browser.authorize(scene.client, scope="openid email", max_age="soon")
    (row,) = run("audit", "list", "--event", "authorization_refused", "--json")
    assert row["fields"]["error"] == "invalid_request"
    assert "dropped" not in row["fields"]


def test_the_address_that_was_sent_is_told_without_its_query(scene: Scene, run: Any) -> None:
    scene.browser.authorize(scene.client, redirect_uri="https://books.example/no?code=1#x")
    (row,) = run("audit", "list", "--client", scene.client.client_id, "--json")
    assert row["fields"]["redirect_uri"] == "https://books.example/no"


# Requests of strangers, who can send them without end; and their event.
OF_STRANGERS: dict[str, tuple[Callable[[Scene], Any], str]] = {
    "unknown client at authorize": (
        lambda s: s.browser.authorize(s.client, client_id=f"nobody\x07{uuid4()}" + "x" * 3000),
        "authorization_refused"),
    "wrong redirect_uri": (
        lambda s: s.browser.authorize(s.client, redirect_uri=f"https://{uuid4()}.example/"),
        "authorization_refused"),
    "prompt=none": (
        lambda s: s.browser.authorize(s.client, prompt="none"), "authorization_refused"),
    "scope": (
        lambda s: s.browser.authorize(s.client, scope=f"openid {uuid4()} {'x' * 3000}"),
        "scope_dropped"),
    "garbage at userinfo": (lambda s: s.client.userinfo("x" * 3000), "access_token_refused"),
    "no secret": (
        lambda s: s.client.exchange("x", client_secret=None), "client_authentication_failed"),
    "no form": (lambda s: s.client.post("/oauth2/token", "{}"), "tokens_refused"),
    "post-logout address": (
        lambda s: s.end_session(client_id=s.client.client_id, post_logout_redirect_uri="x" * 3000),
        "post_logout_refused"),
}  # fmt: skip


@pytest.mark.parametrize("row", OF_STRANGERS.values(), ids=OF_STRANGERS.keys())
def test_strangers_do_not_fill_the_trail(
    scene: Scene, run: Any, row: Any, lines: AccessLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "AN_HOUR", 3)
    act, event = row
    for _ in range(6):
        act(scene)
    names = [one["event"] for one in run("audit", "list", "--json")]
    assert names.count(event) == 3
    assert sum(name.endswith("_limited") for name in names) == 1
    assert len(names) == 4
    with scene.app.app_context():
        for stored in db.session.query(AuditEvent):
            assert len(stored.fields) < 800
    told = [one for one in lines.records if hasattr(one, "error") or hasattr(one, "dropped")]
    assert len(told) >= 6  # the log tells each of them
    assert all(len(one.getMessage()) < 1000 for one in told)
    assert all(one.getMessage().isprintable() for one in told)


def test_many_networks_do_not_fill_the_trail(
    scene: Scene, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "AN_HOUR", 3)
    monkeypatch.setattr(refusals, "EVERYWHERE", 7)
    for number in range(5):
        for _ in range(2):
            scene.client.userinfo("x", environ_overrides={"REMOTE_ADDR": f"203.0.113.{number}"})
    names = [one["event"] for one in run("audit", "list", "--json")]
    assert names.count("access_token_refused") == 7
    assert len(names) == 8


def test_one_network_does_not_hide_the_others(
    scene: Scene, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "AN_HOUR", 3)
    monkeypatch.setattr(refusals, "EVERYWHERE", 7)
    for _ in range(20):
        scene.client.userinfo("x")
    scene.client.userinfo("x", environ_overrides={"REMOTE_ADDR": "203.0.113.7"})
    (newest, *_) = run("audit", "list", "--json")
    assert (newest["event"], newest["address"]) == ("access_token_refused", "203.0.113.7")


def test_a_client_that_proves_itself_is_told_of_always(
    scene: Scene, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "AN_HOUR", 3)
    for _ in range(6):
        scene.client.exchange("x")
    names = [one["event"] for one in run("audit", "list", "--json")]
    assert names == ["tokens_refused"] * 6


def test_what_happens_every_day_hides_no_fault(
    scene: Scene, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Applications ask with prompt=none again and again."""
    monkeypatch.setattr(refusals, "AN_HOUR", 3)
    for _ in range(6):
        scene.browser.authorize(scene.client, prompt="none")
    scene.browser.authorize(scene.client, redirect_uri="https://books.example/no")
    listed = run("audit", "list", "--event", "authorization_refused", "--json")
    assert [one["fields"]["error"] for one in listed] == ["invalid_request"] + 3 * [
        "login_required"
    ]


def get(app: Flask, path: str) -> TestResponse:
    return app.test_client(use_cookies=False).get(path, base_url=ORIGIN)


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/wp-login.php?password=hunter2", "/wp-login.php"),
        (f"{BASE}/oauth2/tokens", f"{BASE}/oauth2/tokens"),
        ("/.well-known/openid-configuration", "/.well-known/openid-configuration"),
        (f"{BASE}/x/eyJhbGciOiJFUzI1NiJ9.{'y' * 40}.{'z' * 40}/y", f"{BASE}/x/…/y"),
        ("/a%0Ab%1B", "/a\nb\x1b"),
        ("/a%3Fcode=1", "/a?…"),
    ],
)
def test_the_path_of_a_404(app: Flask, lines: AccessLines, path: str, shown: str) -> None:
    assert get(app, path).status_code == 404
    (line,) = lines.records
    assert line.path == shown  # type: ignore[attr-defined]
    assert line.getMessage().isprintable()


@pytest.mark.parametrize("path", ["/" + "a" * 8000, "/a" * 4000, "/-eyJ" * 1500, "/a%3F" * 1500])
def test_a_long_path_is_cut(app: Flask, lines: AccessLines, path: str) -> None:
    assert get(app, path).status_code == 404
    (line,) = lines.records
    assert len(line.path) <= 200  # type: ignore[attr-defined]


def test_a_known_address_has_no_path_in_the_log(app: Flask, lines: AccessLines) -> None:
    get(app, f"{BASE}/sign-in")
    assert not hasattr(lines.records[0], "path")


def test_people_are_not_shown_refusals(
    app: Flask, browser: Browser, client: RelyingParty, user: User
) -> None:
    """They are about applications; and who presents a code of mine is told nothing of me."""
    other = make_client(app, name="Other")
    other.exchange(browser.approve(client).code)
    client.userinfo("x")
    writer.flush(app)
    page = browser.open(f"{ORIGIN}{BASE}/account/activity")
    assert "Other" not in page.html
    assert "refused" not in page.html.lower()


def test_a_refusal_without_a_reason_in_words(app: Flask, run: Any) -> None:
    """A missing token is nobody's: the log alone tells of it."""
    make_user(app)
    assert get(app, f"{BASE}/oauth2/userinfo").status_code == 401
    assert run("audit", "list", "--json") == []


def test_fields_are_told_apart(scene: Scene, run: Any) -> None:
    """Nobody makes up a field of the list."""
    uri = 'https://books.example/ reason="the operator agrees" error=none'
    scene.browser.authorize(scene.client, redirect_uri=uri)
    table = run("audit", "list", "--client", scene.client.client_id)
    outside_quotes = re.sub(r'"(\\.|[^"\\])*"', "", table)
    assert " redirect_uri=" in outside_quotes
    assert "reason" not in outside_quotes
