"""Pictures of people: uploaded, shown to applications by their URL, and ended."""

import io
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from PIL import Image
from sqlalchemy import func, select
from werkzeug.test import TestResponse

from sso import audit
from sso.config import picture_files
from sso.config.picture_files import MAX_BYTES
from sso.extensions import db
from sso.models import User, UserPicture
from sso.process.concurrency import MAX_BODY, MAX_UPLOAD
from sso.ratelimit import limiting
from sso.services import accounts, declared_accounts
from sso.services.declared_accounts import Declaration
from sso.store import users
from tests.conftest import Clock, Statements
from tests.support.actors import BASE, ISSUER, ORIGIN, Browser, Page, RelyingParty
from tests.support.administration import ADMIN, HELPDESK, StaffBrowser, sign_in_staff
from tests.support.events import events
from tests.support.factories import make_user
from tests.support.logos import PAGE

AVATAR = 'class="avatar"'
PATH = f"{ORIGIN}{BASE}/account/picture"
URL = re.compile(rf"{re.escape(ISSUER)}/picture/[A-Za-z0-9_-]{{32}}\.jpg")


def photo(color: str = "red", size: int = 300) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (size, size), color).save(file, "PNG")
    return file.getvalue()


def upload(browser: Browser, data: bytes | None, url: str = PATH, **fields: Any) -> Page:
    form = {"csrf_token": browser.open(url).fields["csrf_token"], "action": "save", **fields}
    body = b"".join(
        f'--b\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{text}\r\n'.encode()
        for name, text in form.items()
    )
    if data is not None:
        disposition = 'form-data; name="picture"; filename="me.html"'
        body += f"--b\r\nContent-Disposition: {disposition}\r\n\r\n".encode() + data + b"\r\n"
    kind = "multipart/form-data; boundary=b"
    return browser.open(url, "POST", data=body + b"--b--\r\n", content_type=kind)


def claim_of(app: Flask, email: str = "dana@example.com") -> str | None:
    with app.app_context():
        user = users.find_by_email(email)
        assert user
        value: str | None = user.claims.get("picture")
        return value


def rows(app: Flask) -> int:
    with app.app_context():
        return db.session.scalar(select(func.count()).select_from(UserPicture)) or 0


def userinfo(browser: Browser, client: RelyingParty) -> dict[str, Any]:
    token = client.exchange(browser.approve(client).code).get_json()["access_token"]
    claims: dict[str, Any] = client.userinfo(token).get_json()
    return claims


def fetch(app: Flask, url: str | None, **headers: str) -> TestResponse:
    assert url
    return app.test_client(use_cookies=False).get(url, base_url=ORIGIN, headers=headers)


@pytest.fixture
def dana(app: Flask, user: User) -> Browser:
    browser = Browser(app)
    browser.sign_in()
    return browser


def test_people_upload_and_remove_their_picture(
    app: Flask, dana: Browser, client: RelyingParty
) -> None:
    assert AVATAR not in dana.open(f"{ORIGIN}{BASE}/account").html
    page = upload(dana, photo())
    assert page.path == f"{BASE}/account"
    assert "Your picture was changed." in page.html
    url = claim_of(app)
    assert url
    assert URL.fullmatch(url)
    assert page.html.count(f'src="{url.removeprefix(ORIGIN)}"') == 2
    assert f">{url}<" not in page.html
    assert fetch(app, url).status_code == 200
    upload(dana, photo("blue"))
    changed = claim_of(app)
    assert changed != url
    assert (fetch(app, url).status_code, fetch(app, changed).status_code) == (404, 200)
    assert rows(app) == 1
    page = upload(dana, None, action="remove")
    assert (claim_of(app), rows(app)) == (None, 0)
    assert fetch(app, changed).status_code == 404
    assert AVATAR not in page.html
    upload(dana, None, action="remove")  # in a second tab
    told = events(app, "profile_changed")
    assert [(event["what"], event["changes"]["picture"]) for event in told] == [
        ("picture", {"before": None, "after": url}),
        ("picture", {"before": url, "after": changed}),
        ("picture", {"before": changed, "after": None}),
    ]


def test_applications_get_its_url(app: Flask, dana: Browser, client: RelyingParty) -> None:
    before = userinfo(dana, client)
    assert "picture" not in before
    upload(dana, photo())
    after = userinfo(dana, client)
    assert after["picture"] == claim_of(app)
    assert after["updated_at"] >= before["updated_at"]
    assert {name for name in after if name not in before} == {"picture"}


def test_its_answer_is_never_a_page(app: Flask, dana: Browser) -> None:
    upload(dana, photo())
    url = claim_of(app)
    answer = fetch(app, url)
    headers = answer.headers
    assert headers["Content-Type"] == "image/jpeg"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Content-Disposition"] == 'inline; filename="picture.jpg"'
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "sandbox" in headers["Content-Security-Policy"]
    assert headers["Cross-Origin-Resource-Policy"] == "cross-origin"
    assert headers["Cache-Control"] == "private, max-age=3600"
    assert "Set-Cookie" not in headers
    assert Image.open(io.BytesIO(answer.data), formats=["JPEG"]).size == (256, 256)
    again = fetch(app, url, **{"If-None-Match": headers["ETag"]})
    assert (again.status_code, again.data) == (304, b"")
    assert fetch(app, url, **{"If-None-Match": '"other"'}).status_code == 200


def test_nothing_else_is_at_its_address(app: Flask, dana: Browser, user: User) -> None:
    upload(dana, photo())
    url = claim_of(app)
    assert url
    name = url.rpartition("/")[2].removesuffix(".jpg")
    for path in (
        name, f"{name}.png", f"{name}.jpg.html", f"{name}.jpg/", f"{name.swapcase()}.jpg",
        f"{name[:-1]}.jpg", f"{name}%00.jpg", "%.jpg", f"{user.id}.jpg", ".jpg", "x" * 5000,
    ):  # fmt: skip
        answer = fetch(app, f"{BASE}/picture/{path}")
        assert answer.status_code == 404, path
        assert answer.headers["Cache-Control"] == "no-store"


def test_it_ends_with_the_account(app: Flask, clock: Clock, dana: Browser, user: User) -> None:
    upload(dana, photo())
    url = claim_of(app)

    def act(**fields: Any) -> int:
        with app.app_context():
            accounts.update(audit.operator(), user.id, **fields)
            db.session.commit()
        return fetch(app, url).status_code

    assert act(disabled=True) == 404
    assert act(disabled=False) == 200
    clock.stand_still()
    end = clock.now() + timedelta(hours=1)
    assert act(ends_at=end.isoformat()) == 200
    clock.move(seconds=3599)
    assert fetch(app, url).status_code == 200
    clock.move(seconds=1)
    assert fetch(app, url).status_code == 404
    assert act(ends_at="") == 200
    with app.app_context():
        found = users.find(user.id)
        assert found
        accounts.delete(audit.operator(), found)
        db.session.commit()
    assert fetch(app, url).status_code == 404
    assert rows(app) == 0


def test_another_value_of_the_claim_ends_it(app: Flask, dana: Browser, user: User) -> None:
    """Set by anyone, in any way."""
    for value in ("https://people.example/dana.png", None):
        upload(dana, photo())
        url = claim_of(app)
        with app.app_context():
            accounts.update(audit.operator(), user.id, name="Dana D.")
            db.session.commit()
        assert fetch(app, url).status_code == 200
        with app.app_context():
            accounts.update(audit.operator(), user.id, claims={"picture": value})
            db.session.commit()
        assert (claim_of(app), rows(app)) == (value, 0)
        assert fetch(app, url).status_code == 404


def test_an_uploaded_one_replaces_the_operators(app: Flask, dana: Browser, user: User) -> None:
    with app.app_context():
        accounts.update(
            audit.operator(), user.id, claims={"picture": "https://people.example/dana.png"}
        )
        db.session.commit()
    # Pages load no images of other servers, and a person removes only what was uploaded.
    assert AVATAR not in dana.open(f"{ORIGIN}{BASE}/account").html
    upload(dana, None, action="remove")
    assert claim_of(app) == "https://people.example/dana.png"
    upload(dana, photo())
    assert URL.fullmatch(claim_of(app) or "")


def test_a_declaration_leaves_it_alone(app: Flask, dana: Browser, user: User) -> None:
    upload(dana, photo())
    url = claim_of(app)

    def apply(claims: dict[str, Any] | None) -> bool:
        with app.app_context():
            plan = declared_accounts.plan([Declaration(email="dana@example.com", claims=claims)])
            assert not plan.errors
            changed = [planned for planned in plan.planned if planned.changes]
            declared_accounts.carry_out(audit.operator(), changed)
            db.session.commit()
            return bool(changed)

    assert not apply(None)
    assert not apply({})
    assert apply({"nickname": "Dee"})
    assert not apply({"nickname": "Dee"})
    assert (claim_of(app), fetch(app, url).status_code) == (url, 200)
    assert apply({"picture": "https://people.example/dana.png"})
    assert (rows(app), fetch(app, url).status_code) == (0, 404)


REFUSED = {
    "a page": (PAGE, "it is neither PNG, JPEG nor WebP"),
    "nothing": (b"", "it is missing; choose one"),
    "a large one": (b"\xff\xd8\xff".ljust(MAX_BYTES + 1, b"&"), "it is larger than 5 MB"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_refused_file_changes_nothing(app: Flask, dana: Browser, kind: str) -> None:
    data, reason = REFUSED[kind]
    page = upload(dana, data)
    assert (page.status, page.path) == (200, f"{BASE}/account/picture")
    assert reason in page.html
    assert "<title>Error:" in page.html
    assert (claim_of(app), rows(app)) == (None, 0)
    assert not events(app, "profile_changed")


def test_only_two_forms_take_large_bodies(app: Flask, dana: Browser) -> None:
    noise = io.BytesIO()
    Image.effect_noise((1500, 1500), 90).save(noise, "PNG")
    data = noise.getvalue()
    assert MAX_BODY < len(data) < MAX_BYTES
    assert data.count(b"&") > 1000
    assert upload(dana, data).path == f"{BASE}/account"
    for path, size, status in (
        (PATH, MAX_UPLOAD + 1, 413),
        (f"{ORIGIN}{BASE}/account", MAX_BODY + 1, 413),
        (f"{ORIGIN}{BASE}/account/email", len(data), 413),
        (f"{ORIGIN}{BASE}/picture/picture", len(data), 413),
    ):
        body = b"x" * size
        answer = dana.http.post(path, data=body, content_type="multipart/form-data; boundary=b")
        assert answer.status_code in (status, 405), path


def test_uploads_need_a_session_and_a_token(app: Flask, dana: Browser, user: User) -> None:
    stranger = Browser(app)
    assert stranger.open(PATH).path == f"{BASE}/sign-in"
    form = {"action": "save", "picture": (io.BytesIO(photo()), "x.png")}
    answer = dana.http.post(PATH, data=form, base_url=ORIGIN, content_type="multipart/form-data")
    assert answer.status_code == 303
    assert len(events(app, "csrf_refused")) == 1
    assert claim_of(app) is None


def test_uploads_are_limited(app: Flask, dana: Browser) -> None:
    with app.test_request_context():
        for _ in range(limiting.PICTURE.account or 0):
            limiting.spend(limiting.PICTURE, "dana@example.com")
    assert upload(dana, photo()).status == 429
    assert upload(dana, None, action="remove").status == 200
    assert len(events(app, "picture_limited")) == 1
    assert claim_of(app) is None


def test_a_disabled_person_uploads_nothing(
    app: Flask, dana: Browser, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Disabled while the picture is read."""
    read = picture_files.read

    def slow(data: bytes) -> picture_files.Picture:
        with app.app_context():
            accounts.update(audit.operator(), user.id, disabled=True)
            db.session.commit()
        return read(data)

    monkeypatch.setattr(picture_files, "read", slow)
    assert upload(dana, photo()).path == f"{BASE}/sign-in"
    assert (claim_of(app), rows(app)) == (None, 0)


def of_person(user: User) -> str:
    return f"{ADMIN}/person/picture?id={user.id}"


@pytest.mark.parametrize("group", ["sso-administrators", HELPDESK])
def test_staff_change_and_remove_it(app: Flask, clock: Clock, user: User, group: str) -> None:
    staff = sign_in_staff(app, group=group)
    assert (
        f"{BASE}/admin/person/picture?id={user.id}"
        in staff.open(f"{ADMIN}/person?id={user.id}").html
    )
    page = upload(staff, PAGE, of_person(user))
    assert "it is neither PNG, JPEG nor WebP" in page.html
    page = upload(staff, photo(), of_person(user))
    assert "The picture was changed." in page.html
    url = claim_of(app)
    assert url
    assert f'src="{url.removeprefix(ORIGIN)}"' in page.html
    assert f'src="{url.removeprefix(ORIGIN)}"' in staff.open(f"{ADMIN}/people").html
    upload(staff, None, of_person(user), action="remove")
    assert (claim_of(app), rows(app)) == (None, 0)
    told = events(app, "user_changed")
    assert [(event["operator"], event["what"]) for event in told] == [
        ("ada@example.com", "picture")
    ] * 2


def test_others_do_not(app: Flask, clock: Clock, dana: Browser, user: User) -> None:
    """Neither people, nor readers, nor the helpdesk of administrators."""
    assert dana.open(of_person(user)).status == 404
    boss = make_user(app, "boss@example.com", groups=["sso-administrators"])
    helper: StaffBrowser = sign_in_staff(app, "helper@example.com", HELPDESK)
    assert helper.open(of_person(boss)).status == 404
    token = helper.open(of_person(user)).fields["csrf_token"]
    form = {"csrf_token": token, "picture": (io.BytesIO(photo()), "x.png")}
    page = helper.open(of_person(boss), "POST", data=form, content_type="multipart/form-data")
    assert page.status == 404
    assert claim_of(app, "boss@example.com") is None


def test_the_bytes_are_read_with_no_user(
    app: Flask,
    dana: Browser,
    client: RelyingParty,
    statements: Callable[[], AbstractContextManager[Statements]],
) -> None:
    upload(dana, photo())
    with statements() as sql:
        assert "picture" in userinfo(dana, client)
        dana.open(f"{ORIGIN}{BASE}/account")
    assert len(sql) > 10
    assert not [text for text in sql if "user_pictures" in text]
