"""`flask explain` as a command: by id, by the beginning of one, or the latest."""

import json
import re

import pytest
from flask import Flask

from sso.web import access_log
from tests.conftest import Clock
from tests.support.actors import Browser, RelyingParty
from tests.support.explaining import Explain
from tests.support.factories import make_client


def test_an_id_can_be_read_out() -> None:
    made = [access_log.make_id() for _ in range(1000)]
    assert len(set(made)) == 1000
    digits = "".join(made).replace("-", "")
    assert all(re.fullmatch(r"[0-9a-z]{4}-[0-9a-z]{4}", one) for one in made)
    assert set(digits) == set("0123456789abcdefghjkmnpqrstvwxyz")


def test_however_it_is_written_down(
    browser: Browser, client: RelyingParty, explain: Explain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_log, "make_id", lambda: "70k1-v9xq")
    browser.authorize(client, client_id="nobody")
    for spelling in (
        "70k1-v9xq",
        "70K1-V9XQ",
        "7okl-v9xq",
        "70k1v9xq",
        "70k1 v9xq",
        "70k1",
        "70K1v",
    ):
        assert "No client has this client_id" in explain.run(spelling)


def test_one_that_is_not_there(browser: Browser, client: RelyingParty, explain: Explain) -> None:
    browser.authorize(client, client_id="nobody")
    for wrong in ("zzzz-zzzz", "", "7", "%", "____", "é" * 100, "\x1b[2J", "'; --"):
        error = explain.run(wrong, code=1)
        assert "no refused request has the id" in error
        assert "\x1b" not in error
        assert error.count("\n") == 1


def test_several_that_begin_so(
    browser: Browser, client: RelyingParty, explain: Explain, monkeypatch: pytest.MonkeyPatch
) -> None:
    for made in ("70k1-aaaa", "70k1-bbbb"):
        monkeypatch.setattr(access_log, "make_id", lambda made=made: made)
        browser.authorize(client, client_id="nobody")
    text = explain.run("70k1")
    assert text.startswith("Several ids begin with 70k1.\n")
    assert text.index("70k1-aaaa") < text.index("70k1-bbbb")
    assert [one["id"] for one in explain.json("70k1")["more"]] == ["70k1-bbbb"]


def test_an_id_of_a_proxy(browser: Browser, client: RelyingParty, explain: Explain) -> None:
    given = "4F1c2d3e9a8b7c6d4f1c2d3e9a8b7c6d"
    answer = client.userinfo("x", environ_overrides={"HTTP_X_REQUEST_ID": given})
    assert answer.headers["X-Request-ID"] == given
    for spelling in (given, given[:8], given.lower()[:8]):
        assert f"id        {given}" in explain.run(spelling)


def test_the_latest(
    app: Flask, browser: Browser, client: RelyingParty, explain: Explain, clock: Clock
) -> None:
    other = make_client(app, name="Mail")
    page = browser.authorize(client, redirect_uri=client.redirect_uri + "/")
    clock.move(minutes=1)
    other.exchange("x", client_secret="wrong")
    clock.move(minutes=1)
    browser.authorize(client, client_id="nobody")
    text = explain.run()
    heading, *lines = text.splitlines()
    assert heading.split() == ["ID", "TIME", "CLIENT", "ENDPOINT", "CAUSE"]
    words = [re.split(r" {2,}", line)[1:] for line in lines]
    assert words == [
        ["2026-11-21 12:02:00", "nobody", "authorize", "No client has this client_id."],
        ["2026-11-21 12:01:00", "Mail", "token", "The client secret is wrong."],
        ["2026-11-21 12:00:00", "Books", "authorize",
         "The redirect_uri is not registered for the client. Compared with the nearest one: "
         "it has a trailing slash, the other has none."],
    ]  # fmt: skip
    assert len(explain.run("--limit", "2").splitlines()) == 3
    for named in (client.client_id, "Books"):
        (line,) = explain.run("--client", named).splitlines()[1:]
        assert line.startswith(page.headers["X-Request-ID"])
    assert "there is no client nobody" in explain.run("--client", "nobody", code=1)
    assert [one["client"] and one["client"]["name"] for one in explain.json()] == [
        None, "Mail", "Books",
    ]  # fmt: skip


def test_nothing_was_refused(explain: Explain) -> None:
    assert explain.run().split() == ["ID", "TIME", "CLIENT", "ENDPOINT", "CAUSE"]
    assert explain.json() == []


def test_as_json(browser: Browser, client: RelyingParty, explain: Explain, clock: Clock) -> None:
    page = browser.authorize(client, redirect_uri=client.redirect_uri + "/")
    request_id = page.headers["X-Request-ID"]
    found = json.loads(explain.run(request_id, "--json"))
    details = found.pop("details")
    assert details["redirect_uri"] == client.redirect_uri + "/"
    assert found == {
        "id": request_id,
        "time": "2026-11-21T12:00:00Z",
        "event": "authorization_refused",
        "endpoint": "authorize",
        "client": {"client_id": client.client_id, "name": "Books"},
        "user": None,
        "status": 400,
        "error": "invalid_request",
        "description": "The 'redirect_uri' does not match any registered one exactly.",
        "address": "127.0.0.1",
        "cause": "The redirect_uri is not registered for the client. Compared with the nearest "
        "one: it has a trailing slash, the other has none.",
        "fix": "Make the application send the registered redirect_uri, or register what it sends:",
        "command": f"flask client update {client.client_id} --add-redirect-uri "
        "https://books.example/callback/",
        "comparison": {
            "name": "redirect_uri",
            "received": "https://books.example/callback/",
            "expected_label": "registered now",
            "expected": "https://books.example/callback",
            "differences": ["it has a trailing slash, the other has none"],
            "marks": " " * 30 + "^",
        },
    }


def test_the_options(explain: Explain) -> None:
    assert "Invalid value for '--limit'" in explain.run("--limit", "0", code=2)
    assert "--client" in explain.run("--help")
