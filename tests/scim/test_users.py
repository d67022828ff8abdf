"""Users by SCIM: what is kept, what ends, and what Entra ID and Okta send."""

from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select

from sso.extensions import db
from sso.models import Mail, User
from tests.scim.conftest import ENTERPRISE, USER, Provisioner, make_token
from tests.support.actors import Browser, RelyingParty
from tests.support.events import events
from tests.support.factories import PASSWORD, make_user
from tests.support.scene import Scene


def row(app: Flask, user_id: str) -> User:
    with app.app_context():
        return {str(one.id): one for one in db.session.scalars(select(User))}[user_id]


def test_what_is_said_comes_back(app: Flask, scim: Provisioner) -> None:
    said = {
        "userName": "Erin@Example.com",
        "externalId": "00u1",
        "name": {"givenName": "Erin", "familyName": "Example", "honorificPrefix": "Dr."},
        "displayName": "Erin E.",
        "nickName": "E",
        "title": "Librarian",
        "locale": "de-CH",
        "timezone": "Europe/Zurich",
        "active": True,
        "emails": [
            {"value": "erin@home.example", "type": "home"},
            {"value": "erin@work.example", "type": "work", "primary": True},
        ],
        "phoneNumbers": [{"value": "+41 44 000 00 00", "type": "mobile"}],
        ENTERPRISE: {"department": "Books", "manager": {"value": "26118915"}},
    }
    made = scim.user(**said)
    assert {name: made[name] for name in said} == said
    assert "password" not in made
    assert scim.get(f"/Users/{made['id']}") == made
    kept = row(app, made["id"])
    assert (kept.email, kept.email_verified, kept.name) == ("erin@work.example", True, "Erin E.")
    assert kept.claims == {
        "given_name": "Erin",
        "family_name": "Example",
        "nickname": "E",
        "locale": "de-CH",
        "zoneinfo": "Europe/Zurich",
        "phone_number": "+41 44 000 00 00",
    }
    (event,) = events(app, "user_created")
    assert (event["by"], event["operator"]) == ("scim", "API token Entra")
    assert event["api_token"]


def test_only_languages_and_time_zones_may_be_anything(app: Flask, scim: Provisioner) -> None:
    """They are kept for the directory alone; other values are refused, not dropped silently."""
    made = scim.user(locale="x" * 60, timezone="W. Europe Standard Time", nickName="E")
    assert (made["locale"], made["timezone"]) == ("x" * 60, "W. Europe Standard Time")
    assert row(app, made["id"]).claims == {"nickname": "E"}
    wrong = {"profileUrl": "javascript:alert(1)"}
    body = {"schemas": [USER], "userName": "frida@example.com", "displayName": "F", **wrong}
    assert scim("POST", "/Users", body).status_code == 400
    operation = {"op": "replace", "value": wrong}
    assert scim.patch(f"/Users/{made['id']}", operation).status_code == 400
    assert row(app, made["id"]).claims == {"nickname": "E"}


def test_no_mail_is_sent_unless_the_token_says_so(app: Flask, scim: Provisioner) -> None:
    scim.user()
    inviting = Provisioner(app, make_token(app, "scim:write", "scim:invite", name="Inviting"))
    inviting.user(userName="frida@example.com")
    inviting.user(userName="gus@example.com", password="a long pass phrase here")
    inviting.user(userName="hal@example.com", active=False)
    with app.app_context():
        mails = db.session.execute(select(Mail.kind, Mail.address)).all()
    assert [tuple(one) for one in mails] == [("invite", "frida@example.com")]


def test_who_is_disabled_or_deleted_is_out_at_once(scene: Scene) -> None:
    scim = Provisioner(scene.app, make_token(scene.app, "scim:write"))
    tokens = scene.tokens()
    users = f"/Users/{scene.user.id}"
    disabled = scim.patch(users, {"op": "Replace", "path": "active", "value": "False"})
    assert disabled.get_json()["active"] is False
    assert scene.client.userinfo(tokens["access_token"]).status_code == 401
    assert scim.patch(users, {"op": "replace", "value": {"active": True}}).status_code == 200
    assert scene.client.refresh(tokens["refresh_token"]).status_code == 400
    assert scim("DELETE", users).status_code == 204
    assert scim("GET", users).status_code == 404


def test_a_password_is_taken_and_never_given(
    app: Flask, scim: Provisioner, client: RelyingParty
) -> None:
    made = scim.user(password="a long pass phrase here")
    browser = Browser(app)
    browser.authorize(client)
    browser.sign_in("erin@example.com", "a long pass phrase here")
    weak = scim.patch(f"/Users/{made['id']}", {"op": "add", "path": "password", "value": "erin"})
    assert (weak.status_code, weak.get_json()["scimType"]) == (400, "invalidValue")
    changed = scim.patch(f"/Users/{made['id']}", {"op": "add", "value": {"password": PASSWORD}})
    assert "password" not in changed.get_json()
    assert [one["user"] for one in events(app, "password_set")] == [made["id"]]
    found = scim("GET", "/Users?filter=password%20eq%20%22x%22")
    assert (found.status_code, found.get_json()["scimType"]) == (400, "invalidFilter")


SENT: list[tuple[list[Any], dict[str, Any]]] = [
    # Entra ID
    ([{"op": "Replace", "path": "active", "value": "False"}], {"active": False}),
    ([{"op": "Add", "path": 'emails[type eq "work"].value', "value": "n@example.com"}],
     {"emails": [{"value": "n@example.com", "type": "work", "primary": True}]}),
    ([{"op": "Replace",
       "value": {"displayName": "N", 'emails[type eq "work"].value': "n@x.ch"}}],
     {"displayName": "N", "emails": [{"value": "n@x.ch", "type": "work", "primary": True}]}),
    ([{"op": "Add", "path": f"{ENTERPRISE}:manager", "value": "2611"}],
     {ENTERPRISE: {"manager": {"value": "2611"}}}),
    ([{"op": "Add", "value": {f"{ENTERPRISE}:department": "Books", "name.givenName": "N"}}],
     {ENTERPRISE: {"department": "Books"}, "name": {"givenName": "N"}}),
    ([{"op": "Add", "path": 'phoneNumbers[type eq "mobile"].value', "value": "1"},
      {"op": "Add", "path": 'phoneNumbers[type eq "work"].value', "value": "2"},
      {"op": "Remove", "path": 'phoneNumbers[type eq "mobile"]'}],
     {"phoneNumbers": [{"value": "2", "type": "work"}]}),
    ([{"op": "Replace", "path": "userName", "value": "new@example.com"}],
     {"userName": "new@example.com",
      "emails": [{"value": "new@example.com", "type": "work", "primary": True}]}),
    # Okta
    ([{"op": "replace", "value": {"active": False}}], {"active": False}),
    ([{"op": "replace", "value": {"id": "x", "nickName": "N"}}], {"nickName": "N"}),
    # Attributes of RFC 7643 that nobody keeps, and others
    ([{"op": "Add", "value": {"favouriteColour": "blue"}}], {"displayName": "Erin"}),
    ([{"op": "Add", "path": "photos.value", "value": "x"}], {"displayName": "Erin"}),
    ([{"op": "Add", "path": "roles", "value": [{"value": "admin"}]}], {"displayName": "Erin"}),
]  # fmt: skip


def test_what_clients_send(scim: Provisioner) -> None:
    for operations, expected in SENT:
        made = scim.user()
        path = f"/Users/{made['id']}"
        answered = scim.patch(path, *operations)
        assert answered.status_code == 200, answered.text
        found = answered.get_json()
        assert {name: found.get(name) for name in expected} == expected
        assert "roles" not in found
        assert scim("DELETE", path).status_code == 204


def test_a_path_that_names_no_attribute_changes_nothing(scim: Provisioner) -> None:
    made, group = scim.user(), scim.group("staff")
    for path, before in ((f"/Users/{made['id']}", made), (f"/Groups/{group['id']}", group)):
        for wrong in ("favouriteColour", "name.colour", "urn:example:User:colour", "name[", "1"):
            for op in ("add", "replace", "remove"):
                value = {} if op == "remove" else {"value": "blue"}
                answer = scim.patch(
                    path,
                    {"op": "replace", "path": "displayName", "value": "Else"},
                    {"op": op, "path": wrong, **value},
                )
                found = (answer.status_code, answer.get_json().get("scimType"))
                assert found == (400, "invalidPath"), (wrong, op, answer.text)
        assert scim.get(path) == before


def test_how_much_is_kept_of_one_person(scim: Provisioner) -> None:
    """Few attributes may be long, too."""
    made = scim.user()
    path = f"/Users/{made['id']}"
    whole = {"schemas": [USER], "userName": made["userName"]}
    for length, status in ((31_000, 200), (33_000, 400)):
        title = "x" * length
        answers = [
            scim("PUT", path, {**whole, "title": title}),
            scim.patch(path, {"op": "replace", "path": "title", "value": title}),
        ]
        assert [answer.status_code for answer in answers] == [status] * 2
    assert "too long" in answers[0].get_json()["detail"]
    assert scim.get(path)["title"] == "x" * 31_000


def test_a_put_replaces_and_leaves_the_state(scim: Provisioner) -> None:
    made = scim.user(nickName="E", title="Librarian")
    path = f"/Users/{made['id']}"
    scim.patch(path, {"op": "replace", "path": "active", "value": False})
    body = {"schemas": [USER], "userName": "erin@example.com", "displayName": "Erin", "groups": []}
    put = scim("PUT", path, body)
    assert put.status_code == 200
    assert {"nickName", "title"}.isdisjoint(put.get_json())
    assert put.get_json()["active"] is False


ABSENT: list[tuple[str, Any]] = [
    ("PUT", {}),
    ("PUT", {"active": None}),
    ("PATCH", [{"op": "remove", "path": "active"}]),
    ("PATCH", [{"op": "replace", "path": "active", "value": None}]),
    ("PATCH", [{"op": "replace", "value": {"active": None}}]),
    ("PATCH", [{"op": "replace", "value": {"displayName": "Else"}}]),
    ("PATCH", [{"op": "add", "path": f"{USER}:nickName", "value": "E"}]),
]


@pytest.mark.parametrize(("method", "said"), ABSENT)
@pytest.mark.parametrize("is_active", [True, False])
def test_active_that_is_absent_is_not_false(
    app: Flask, client: RelyingParty, method: str, said: Any, is_active: bool
) -> None:
    """What nobody says of `active` neither disables nor enables (RFC 7643 §2.5)."""
    scim = Provisioner(app, make_token(app, "scim:write"))
    made = scim.user(password=PASSWORD)
    path = f"/Users/{made['id']}"
    browser = Browser(app)
    browser.authorize(client)
    browser.sign_in("erin@example.com", PASSWORD)
    if not is_active:
        disabled = scim.patch(path, {"op": "replace", "path": "active", "value": False})
        assert disabled.status_code == 200
    before = row(app, made["id"]).disabled_at
    if method == "PUT":
        answer = scim("PUT", path, {"schemas": [USER], "userName": "erin@example.com", **said})
    else:
        answer = scim.patch(path, *said)
    assert answer.status_code == 200, answer.text
    assert row(app, made["id"]).disabled_at == before
    assert (before is None) == is_active
    ended = [one["reason"] for one in events(app, "session_ended")]
    assert ended == ([] if is_active else ["user_disabled"])
    # It is said once more, and then counts.
    for active in (False, True):
        answer = scim.patch(path, {"op": "replace", "path": "active", "value": active})
        assert answer.get_json()["active"] is active
        assert (row(app, made["id"]).disabled_at is None) == active


@pytest.mark.parametrize(("said", "is_active"), [
    ({}, True), ({"active": None}, True), ({"active": True}, True), ({"active": False}, False),
])  # fmt: skip
def test_a_new_user_is_active_unless_false_is_said(
    app: Flask, scim: Provisioner, said: dict[str, Any], is_active: bool
) -> None:
    made = scim.user(**said)
    assert made["active"] is is_active
    assert (row(app, made["id"]).disabled_at is None) == is_active


def test_users_of_before_are_found_and_taken_over(app: Flask, scim: Provisioner) -> None:
    dana = make_user(app, claims={"given_name": "Dana", "website": "https://dana.example"})
    taken = scim("POST", "/Users", {"schemas": [USER], "userName": "DANA@example.com"})
    assert (taken.status_code, taken.get_json()["scimType"]) == (409, "uniqueness")
    (found,) = scim.get("/Users", filter='userName eq "Dana@Example.com"')["Resources"]
    assert (found["id"], found["name"]["givenName"]) == (str(dana.id), "Dana")
    path = f"/Users/{dana.id}"
    assert scim.patch(path, {"op": "add", "path": "externalId", "value": "7"}).status_code == 200
    (found,) = scim.get("/Users", filter='externalId eq "7"')["Resources"]
    assert found["displayName"] == "Dana Demo"
    assert row(app, str(dana.id)).claims["website"] == "https://dana.example"


@pytest.mark.parametrize("name", ["erin@example.com", " ERIN@Example.com ", "dana@example.com"])
def test_a_user_name_of_another_user_is_not_taken_over(
    app: Flask, scim: Provisioner, name: str
) -> None:
    """By PATCH or PUT; Dana has no user name but the email address. One's own may be said again."""
    make_user(app)
    scim.user()
    frida = scim.user(userName="frida@example.com")
    path = f"/Users/{frida['id']}"
    for answer in (
        scim.patch(path, {"op": "replace", "path": "userName", "value": name}),
        scim("PUT", path, {"schemas": [USER], "userName": name, "displayName": "Frida"}),
    ):
        refusal = answer.get_json()
        assert (answer.status_code, refusal["scimType"]) == (409, "uniqueness")
        assert refusal["detail"] == "there is already a user with this userName"
    own = scim.patch(path, {"op": "replace", "path": "userName", "value": "FRIDA@example.com"})
    assert own.get_json()["userName"] == "FRIDA@example.com"


def test_a_name_that_is_changed_elsewhere_is_shown(app: Flask, scim: Provisioner) -> None:
    made = scim.user(displayName="Erin", name={"givenName": "Erin"})
    run = app.test_cli_runner().invoke
    assert run(args=["user", "update", made["id"], "--name", "Erin Else"]).exit_code == 0
    assert scim.get(f"/Users/{made['id']}")["displayName"] == "Erin Else"


def test_an_etag_is_compared(scim: Provisioner) -> None:
    made = scim.user()
    path, first = f"/Users/{made['id']}", made["meta"]["version"]
    rename = {"op": "replace", "path": "displayName", "value": "Else"}
    changed = scim.patch(path, rename, If_Match=first)
    assert changed.headers["ETag"] == changed.get_json()["meta"]["version"] != first
    for answer in (
        scim.patch(path, {**rename, "value": "Late"}, If_Match=first),
        scim("PUT", path, {"schemas": [USER], "userName": "a@b.ch"}, If_Match=first),
        scim("DELETE", path, If_Match=first),
    ):
        assert answer.status_code == 412
    assert scim("GET", path, If_None_Match=changed.headers["ETag"]).status_code == 304
    unchanged = scim.patch(path, rename)
    assert unchanged.headers["ETag"] == changed.headers["ETag"]


def test_pages_are_bounded(app: Flask, scim: Provisioner) -> None:
    for number in range(5):
        make_user(app, f"u{number}@example.com")
    seen = []
    for start in (1, 3, 5):
        page = scim.get("/Users", startIndex=start, count=2)
        assert (page["totalResults"], page["startIndex"]) == (5, start)
        seen += [one["id"] for one in page["Resources"]]
    assert len(set(seen)) == 5
    assert scim.get("/Users", count=0) == {
        "schemas": ["urn:ietf:params:scim:api:messages:2.0:ListResponse"],
        "totalResults": 5, "itemsPerPage": 0, "startIndex": 1, "Resources": [],
    }  # fmt: skip
    assert scim.get("/Users", startIndex=10**30)["Resources"] == []
    assert len(scim.get("/Users", count=10**30, startIndex=-7)["Resources"]) == 5
    (one, *_) = scim.get("/Users", attributes="userName")["Resources"]
    assert one.keys() == {"schemas", "id", "userName"}
    (one, *_) = scim.get("/Users", excludedAttributes="emails,meta")["Resources"]
    assert {"emails", "meta"}.isdisjoint(one)


def test_an_email_that_is_said_goes_before_a_new_user_name(app: Flask, scim: Provisioner) -> None:
    made = scim.user(userName="old@example.com")
    body = {"schemas": [USER], "userName": "new@example.com", "displayName": "Erin"}
    path = f"/Users/{made['id']}"
    said = {**body, "emails": [{"value": "mail@example.com", "primary": True}]}
    assert scim("PUT", path, said).status_code == 200
    assert row(app, made["id"]).email == "mail@example.com"


def test_an_empty_id_is_none(app: Flask, scim: Provisioner) -> None:
    body = {"schemas": [USER], "userName": "erin@example.com", "externalId": ""}
    refused = scim("POST", "/Users", body)
    assert (refused.status_code, refused.get_json()["scimType"]) == (400, "invalidValue")


@pytest.mark.parametrize(
    "written", ["Erin.Example", " erin.example ", "ERIN.EXAMPLE", "\terin.Example"]
)
def test_a_user_name_is_one_however_it_is_written(
    app: Flask, scim: Provisioner, written: str
) -> None:
    """Spaces around it and case do not make another one (RFC 7643 §4.1.1)."""
    emails = [{"value": "erin@example.com", "primary": True}]
    made = scim.user(userName=written, emails=emails)
    assert made["userName"] == written.strip()
    assert row(app, made["id"]).user_name == "erin.example"
    for other in ("erin.example", "Erin.Example", " ERIN.example "):
        again = scim("POST", "/Users", {
            "schemas": [USER], "userName": other, "displayName": "E",
            "emails": [{"value": "other@example.com"}],
        })  # fmt: skip
        assert (again.status_code, again.get_json()["scimType"]) == (409, "uniqueness")
        filtered = scim.get("/Users", filter=f'userName eq "{other.strip()}"')
        assert [user["id"] for user in filtered["Resources"]] == [made["id"]]
