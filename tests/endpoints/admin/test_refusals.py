"""What is refused in the administration is said in the language of the reader."""

from html import unescape
from uuid import uuid4

import pytest
from flask import Flask

from sso.models import User
from sso.store import users
from tests.support.administration import ADMIN, HELPDESK, sign_in_staff
from tests.support.factories import make_user

pytestmark = pytest.mark.slow


def test_the_helpdesk_reads_its_language(app: Flask) -> None:
    make_user(app, "dana@example.com")
    helper = sign_in_staff(app, "hedy@example.com", HELPDESK)
    helper.http.environ_base["HTTP_ACCEPT_LANGUAGE"] = "de"
    helper.open(f"{ADMIN}/person/invite")
    page = helper.submit(email="dana@example.com", name="Dana")
    words = "Es gibt schon ein Konto mit der E-Mail-Adresse <bdi>dana@example.com</bdi>"
    assert f"<li>{words}</li>" in page.html
    assert 'lang="en"' not in page.html


def test_a_person_who_is_deleted_at_this_moment_is_not_found(
    app: Flask, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = sign_in_staff(app)
    ada.open(f"{ADMIN}/groups")
    ada.submit(name="board")
    monkeypatch.setattr(users, "find_by_email", lambda _: User(id=uuid4()))
    page = ada.submit(email="dana@example.com")
    assert (page.status, "There is no person" in page.html) == (200, True)


def test_administrators_read_their_language(app: Flask) -> None:
    ada = sign_in_staff(app)
    ada.http.environ_base["HTTP_ACCEPT_LANGUAGE"] = "ar"
    ada.open(f"{ADMIN}/application/by-hand")
    page = ada.send(client_name="", redirect_uris="http://wiki.example/<b>")
    assert "اسم التطبيق فارغ" in page.html
    refused = "عنوان إعادة التوجيه <bdi>&#39;http://wiki.example/&lt;b&gt;&#39;</bdi> مرفوض: "
    assert refused in page.html
    ada.http.environ_base["HTTP_ACCEPT_LANGUAGE"] = "de"
    for path, values, words in (
        ("groups", {"name": "sso-administrators"}, "Es gibt schon eine Gruppe mit dem Namen"),
        ("keys/rotate", {}, "Die Schlüssel wurden gewechselt."),
        ("keys/rotate", {}, "Die nächsten Schlüssel sind zu neu"),
        ("application/preset?preset=grafana", {"url": "https://a.example/?b"}, "alles ab ? weg"),
        ("application/preset?preset=grafana", {"url": ""}, "Das wird gebraucht."),
        ("api-token/new", {"name": "a", "scopes": "%<b>"}, "%<b>"),
    ):
        ada.open(f"{ADMIN}/{path}")
        page = ada.send(**values)
        assert page.status == 200, path
        assert words in unescape(page.html), path
        assert "it has a" not in page.html
        assert "<b>" not in page.html
