"""Applications that know people by the subjects of an earlier server."""

import json
import secrets
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from flask import Flask
from sqlalchemy import select
from sqlalchemy.orm import joinedload

from sso import audit
from sso.extensions import db
from sso.jobs.logout_delivery import logout_token
from sso.models import Client, LogoutDelivery, User
from sso.services import accounts, attributes, clients, revocation
from sso.services.changes import ListEdit
from sso.services.checks import Invalid
from tests.support import keycloak
from tests.support.actors import BASE, Browser, RelyingParty, claims_of
from tests.support.each import each
from tests.support.factories import make_api, make_attribute, make_client, make_user

OLGA = audit.Actor("olga")
SECRET = "s" * 40
UID = "5f2c" * 16
OUT = "https://books.example/out"
SIGNED_OUT = "https://books.example/bye"
DOCS = "https://docs.example"


@pytest.fixture
def user(app: Flask) -> User:
    make_attribute(app, "former_subject", writers=["administrator"])
    return make_user(app, attributes={"former_subject": UID})


@pytest.fixture
def books(app: Flask, user: User) -> RelyingParty:
    make_api(app, DOCS)
    return make_client(
        app, subject_attribute="former_subject", backchannel_logout_uri=OUT, apis=[DOCS],
        post_logout_redirect_uris=[SIGNED_OUT], id_token_claims="all",
    )  # fmt: skip


def tokens_of(browser: Browser, client: RelyingParty, **more: Any) -> dict[str, Any]:
    tokens: dict[str, Any] = client.exchange(browser.approve(client, **more).code).get_json()
    return tokens


def give(app: Flask, user: User, value: str | None) -> None:
    with app.app_context():
        accounts.update(OLGA, user.id, attributes={"former_subject": value})
        db.session.commit()


def test_the_application_gets_it_everywhere(
    app: Flask, browser: Browser, books: RelyingParty, user: User
) -> None:
    tokens = tokens_of(browser, books, scope="openid profile offline_access", prompt="consent")
    assert [claims_of(tokens[name])["sub"] for name in ("id_token", "access_token")] == [UID, UID]
    profile = books.userinfo(tokens["access_token"]).get_json()
    assert (profile["sub"], profile["id"]) == (UID, str(user.id))
    assert books.introspect(tokens["access_token"]).get_json()["sub"] == UID
    renewed = books.refresh(tokens["refresh_token"]).get_json()
    assert claims_of(renewed["id_token"])["sub"] == UID
    other = tokens_of(browser, make_client(app))
    assert claims_of(other["id_token"])["sub"] == str(user.id)
    with app.app_context():
        revocation.everything_of_user(user.id, "signed out")
        [delivery] = db.session.scalars(
            select(LogoutDelivery).options(joinedload(LogoutDelivery.client))
        ).all()
        claims = claims_of(logout_token(delivery))
        assert (claims["sub"], delivery.sub) == (UID, str(user.id))


@each("value", {"none": None, "too long": "x" * 256, "the client's own ID": "books"}.values())
def test_people_without_one_have_their_id(
    app: Flask, browser: Browser, user: User, value: str | None
) -> None:
    with app.app_context():
        if db.session.get(Client, "books") is None:
            clients.register(
                OLGA, {"client_name": "B", "redirect_uris": ["https://b.example/cb"],
                       "subject_attribute": "former_subject"},
                client_id="books", secret=SECRET,
            )  # fmt: skip
            db.session.commit()
    give(app, user, value)
    books = RelyingParty(app, "books", SECRET, "https://b.example/cb")
    tokens = tokens_of(browser, books)
    assert claims_of(tokens["id_token"])["sub"] == str(user.id)
    assert claims_of(tokens["access_token"])["sub"] == str(user.id)


def test_hints_name_the_user_by_either(
    app: Flask, browser: Browser, books: RelyingParty, user: User
) -> None:
    hint = tokens_of(browser, books)["id_token"]
    assert browser.authorize(books, prompt="none", id_token_hint=hint).code
    asked_claims = '{"id_token": {"sub": {"value": "%s"}}}'
    for name in (UID, str(user.id)):
        assert browser.authorize(books, prompt="none", claims=asked_claims % name).code
    page = browser.authorize(books, prompt="none", claims=asked_claims % ("5f2d" * 16))
    assert page.parameters["error"] == "login_required"
    give(app, user, "somebody else")
    page = browser.authorize(books, prompt="none", id_token_hint=hint)
    assert page.parameters["error"] == "login_required"
    give(app, user, UID)
    query = {"id_token_hint": hint, "post_logout_redirect_uri": SIGNED_OUT}
    assert browser.open(f"{BASE}/oauth2/end-session?{urlencode(query)}").url == SIGNED_OUT


@each(
    "name, more",
    {
        "of the person": ("of_person", {"writers": ["person"]}),
        "of the helpdesk": ("of_helpdesk", {"writers": ["helpdesk", "administrator"]}),
        "of programs": ("of_scim", {"writers": ["scim"]}),
        "of providers": ("of_upstream", {"writers": ["upstream"]}),
        "asked for": ("asked", {"writers": [], "at_sign_up": "optional"}),
        "a list": ("listed", {"type": "list", "writers": []}),
    }.values(),
)
def test_attributes_that_others_can_change_are_refused(
    app: Flask, user: User, name: str, more: Any
) -> None:
    make_attribute(app, name, **more)
    with app.app_context(), pytest.raises(Invalid, match="only administrators"):
        clients.register(OLGA, {"client_name": "B", "redirect_uris": ["https://b.example/cb"],
                                "subject_attribute": name})  # fmt: skip


def test_the_attribute_stays_as_long_as_an_application_needs_it(
    app: Flask, books: RelyingParty
) -> None:
    writers = {"writers": ListEdit(added=("person",))}
    with app.app_context():
        with pytest.raises(Invalid, match="only administrators"):
            attributes.change(OLGA, "former_subject", {}, lists=writers)
        db.session.rollback()
        with pytest.raises(Invalid, match=books.client_id):
            attributes.delete(OLGA, "former_subject")
        db.session.rollback()
        with pytest.raises(Invalid, match="there is no attribute"):
            clients.change(OLGA, books.client_id, {"subject_attribute": "gone"})
        db.session.rollback()
        clients.change(OLGA, books.client_id, {"subject_attribute": None})
        attributes.change(OLGA, "former_subject", {}, lists=writers)
        attributes.delete(OLGA, "former_subject")


def test_who_manages_people_does_not_make_them_somebody_else(
    app: Flask, books: RelyingParty, user: User
) -> None:
    """Not even with all permissions: these may be limited to a few people."""
    admin = make_user(app, "admin@example.com")
    actor = audit.Actor(admin.email, user_id=admin.id)
    with app.app_context():
        for value in ("somebody else", None):
            with pytest.raises(Invalid, match="cannot be changed here"):
                accounts.update(actor, user.id, attributes={"former_subject": value})
            db.session.rollback()
        with pytest.raises(Invalid, match="cannot be changed here"):
            accounts.create(
                actor, email="new@example.com", name="New", attributes={"former_subject": UID}
            )
        db.session.rollback()
        clients.change(OLGA, books.client_id, {"subject_attribute": None})
        accounts.update(actor, user.id, attributes={"former_subject": "free"})
        assert db.session.get_one(User, user.id).attributes == {"former_subject": "free"}


TWICE = "two people would be"


def test_no_two_people_have_one_subject(app: Flask, books: RelyingParty, user: User) -> None:
    """Neither the value of another person, nor the ID of one who is known by it."""
    erin, fay = make_user(app, "erin@example.com"), make_user(app, "fay@example.com")
    for value in (UID, str(user.id), str(fay.id)):
        with app.app_context(), pytest.raises(Invalid, match=TWICE):
            accounts.update(OLGA, erin.id, attributes={"former_subject": value})
        with app.app_context(), pytest.raises(Invalid, match=TWICE):
            accounts.create(
                OLGA, email="new@example.com", name="New", attributes={"former_subject": value}
            )
    for own in (str(erin.id), UID + "x", UID.upper(), None):
        give(app, erin, own)
    give(app, user, UID)  # as before


def test_no_application_gets_an_attribute_that_two_people_share(app: Flask, user: User) -> None:
    erin = make_user(app, "erin@example.com", attributes={"former_subject": UID})
    fields = {"client_name": "B", "redirect_uris": ["https://b.example/cb"]}
    named = {"subject_attribute": "former_subject"}
    with app.app_context():
        client, _ = clients.register(OLGA, fields)
        client_id = client.client_id
        db.session.commit()
        for value in (UID, str(user.id)):
            accounts.update(OLGA, erin.id, attributes={"former_subject": value})
            db.session.commit()
            with pytest.raises(Invalid, match=TWICE):
                clients.register(OLGA, fields | named)
            db.session.rollback()
            with pytest.raises(Invalid, match=TWICE):
                clients.change(OLGA, client_id, named)
            db.session.rollback()
        accounts.update(OLGA, erin.id, attributes={"former_subject": str(erin.id)})
        clients.change(OLGA, client_id, named)


def test_a_declaration_gives_nobody_the_subject_of_another(
    app: Flask, books: RelyingParty, user: User, tmp_path: Path
) -> None:
    path = tmp_path / "people.toml"
    entry = '[[users]]\nemail = "{}@example.com"\nname = "N"\nattributes.former_subject = "{}"\n'
    for people in ((("erin", UID),), (("erin", "x"), ("fay", "x")), (("erin", str(user.id)),)):
        path.write_text("format = 1\n" + "".join(entry.format(*person) for person in people))
        done = app.test_cli_runner().invoke(args=["apply", str(path), "--yes"])
        assert done.exit_code == 1, done.output
        assert TWICE in done.stderr
    path.write_text("format = 1\n" + entry.format("erin", "x") + entry.format("fay", "y"))
    done = app.test_cli_runner().invoke(args=["apply", str(path), "--yes"])
    assert done.exit_code == 0, done.output


@each(
    "first, second, imported",
    {
        "of somebody here": (UID, "y", 1), "twice in the file": ("z", "z", 1),
        "others": ("a", "b", 2), "none": ("", "", 2),
    }.values(),
)  # fmt: skip
def test_an_import_gives_nobody_the_subject_of_another(
    first: str, second: str, imported: int, app: Flask, books: RelyingParty, user: User,
    tmp_path: Path,
) -> None:  # fmt: skip
    path = tmp_path / "people.csv"
    name = secrets.token_hex(4)
    path.write_text(
        "email,name,attribute.former_subject\n"
        f"{name}1@example.com,N,{first}\n{name}2@example.com,N,{second}\n"
    )
    reports = []
    for more in (["--plan"], []):
        done = app.test_cli_runner().invoke(
            args=["user", "import", "csv", str(path), "--json", *more]
        )
        assert done.exit_code == 0, done.output
        reports.append(json.loads(done.stdout) | {"applied": True})
    assert reports[0] == reports[1]
    assert (reports[1]["imported"], reports[1]["skipped"]) == (imported, 2 - imported)


def test_an_export_names_no_subjects_by_attributes_of_people(
    app: Flask, books: RelyingParty, user: User, tmp_path: Path
) -> None:
    """Where another server lets people name attributes, one may bear the name of this one."""
    path = tmp_path / "realm.json"
    mallory = keycloak.user("mallory", attributes={"former_subject": ["of the boss"]})
    path.write_text(json.dumps(keycloak.realm(users=[mallory])))
    done = app.test_cli_runner().invoke(args=["migrate", "keycloak", str(path)])
    assert done.exit_code == 0, done.output
    assert "attributes by which applications know people" in done.stdout
    with app.app_context():
        [attributes_of] = db.session.scalars(
            select(User.attributes).where(User.email == "mallory@example.com")
        )
        assert attributes_of == {}
