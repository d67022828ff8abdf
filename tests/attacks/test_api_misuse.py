"""Programs that want more from the API than their token gives, or that burn its time."""

import json
import time
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from flask import Flask
from sqlalchemy import event, select

from sso import audit
from sso.extensions import db
from sso.models import Group, User
from sso.ratelimit import limiting
from sso.services import api_tokens
from sso.store import keys, users
from tests.conftest import Clock
from tests.scim.conftest import GROUP, PATCH, USER, Provisioner, make_token, scim
from tests.support.actors import BASE
from tests.support.events import events
from tests.support.factories import make_user

__all__ = ["scim"]
ADMINS = "sso-administrators"


def test_without_a_token(app: Flask) -> None:
    for headers in ({}, {"Authorization": "Basic eDp5"}, {"Authorization": "Bearer "}):
        answer = app.test_client().get(f"{BASE}/scim/v2/Users", headers=headers)
        assert answer.status_code == 401
        assert answer.headers["WWW-Authenticate"] == 'Bearer realm="sso"'
        assert answer.content_type == "application/scim+json"
        assert answer.get_json()["status"] == "401"


def test_after_its_end(app: Flask, clock: Clock) -> None:
    clock.stand_still()
    secret = make_token(app, "scim:read")
    scim = Provisioner(app, secret)
    clock.move(days=364, hours=23, minutes=59)
    assert scim("GET", "/Users").status_code == 200
    clock.move(minutes=1)
    expired = scim("GET", "/Users")
    with app.app_context():
        api_tokens.revoke(audit.SYSTEM, keys.every_api_token()[0].id)
        db.session.commit()
    revoked = scim("GET", "/Users")
    unknown = Provisioner(app, "sso_api_" + "x" * 43)("GET", "/Users")
    for answer in (expired, revoked, unknown):
        assert answer.status_code == 401
        assert 'error="invalid_token"' in answer.headers["WWW-Authenticate"]
        assert answer.get_json() == unknown.get_json()  # no stranger learns why
    noted = events(app, "api_token_refused")  # of one moment
    assert sorted(one["reason"] for one in noted) == ["expired", "revoked", "unknown"]
    assert secret not in str(noted)


def test_outside_its_scope(app: Flask) -> None:
    reading = Provisioner(app, make_token(app, "scim:read"))
    other = Provisioner(app, make_token(app, "clients:write", name="Clients"))
    dana = make_user(app)
    body = {"schemas": [USER], "userName": "x@example.com"}
    for answer, scope in (
        (reading("POST", "/Users", body), "scim:write"),
        (reading("DELETE", f"/Users/{dana.id}"), "scim:write"),
        (reading.patch(f"/Users/{dana.id}", {"op": "remove", "path": "title"}), "scim:write"),
        (reading("POST", "/Users/.search/../x", body), "scim:write"),
        (other("GET", "/Users"), "scim:read"),
        (other("POST", "/Users/.search", {"count": 1}), "scim:read"),
    ):
        assert answer.status_code == 403
        challenge = answer.headers["WWW-Authenticate"]
        assert 'error="insufficient_scope"' in challenge
        assert f'scope="{scope}"' in challenge
    assert reading("POST", "/Users/.search", {"count": 1}).status_code == 200


def test_in_a_url(app: Flask) -> None:
    secret = make_token(app, "scim:read")
    for query in (f"access_token={secret}", f"filter={secret}"):
        for headers in ({}, {"Authorization": f"Bearer {secret}"}):
            answer = app.test_client().get(f"{BASE}/scim/v2/Users?{query}", headers=headers)
            assert answer.status_code == 400
            assert "revoke" in answer.get_json()["detail"]
    assert secret not in str(events(app, "api_token_refused"))


def test_failures_are_limited_and_nobody_is_shut_out(app: Flask) -> None:
    wrong, right = Provisioner(app, "sso_api_x"), Provisioner(app, make_token(app, "scim:read"))
    codes = [wrong("GET", "/Users").status_code for _ in range(30)]
    assert codes[:20] == [401] * 20
    assert 429 in codes
    assert "Retry-After" in wrong("GET", "/Users").headers
    assert right("GET", "/Users").status_code == 200


def test_rights_are_not_given(app: Flask, scim: Provisioner) -> None:
    """Nobody becomes an administrator by a token that may only provision."""
    boss, dana = make_user(app, "boss@example.com", groups=[ADMINS]), make_user(app)
    staff = scim.group("staff", str(dana.id))
    admins = scim.get("/Groups", filter=f'displayName eq "{ADMINS}"')["Resources"][0]
    member = [{"value": str(dana.id)}]
    path, group = f"/Users/{boss.id}", {"schemas": [GROUP], "displayName": ADMINS}
    for answer in (
        scim.patch(f"/Groups/{admins['id']}", {"op": "add", "path": "members", "value": member}),
        scim("PUT", f"/Groups/{admins['id']}", {**group, "members": member}),
        scim("DELETE", f"/Groups/{admins['id']}"),
        scim("POST", "/Groups", {**group, "displayName": "sso-helpdesk", "members": member}),
        scim.patch(f"/Groups/{staff['id']}", {"op": "replace", "value": {"displayName": ADMINS}}),
        scim("PUT", f"/Groups/{staff['id']}", group),
        # Nor by the account of one.
        scim.patch(path, {"op": "replace", "path": "password", "value": "a long pass phrase"}),
        scim.patch(path, {"op": "replace", "path": "userName", "value": "me@example.com"}),
        scim.patch(path, {"op": "replace", "path": "active", "value": False}),
        scim("PUT", path, {"schemas": [USER], "userName": "me@example.com"}),
        scim("DELETE", path),
    ):
        assert answer.status_code == 403, answer.text
        assert "scim:privileged" in answer.get_json()["detail"]
    with app.app_context():
        found = users.find(dana.id)
        assert found is not None
        assert found.groups == ["staff"]
    more = ("scim:write", "scim:privileged")
    trusted = Provisioner(app, make_token(app, *more, name="Trusted"))
    # One administrator has to remain, no matter who asks.
    gone = {"op": "replace", "path": "active", "value": False}
    for answer in (trusted("DELETE", path), trusted.patch(path, gone),
                   trusted("DELETE", f"/Groups/{admins['id']}")):  # fmt: skip
        assert answer.status_code == 403
        assert "last administrator" in answer.get_json()["detail"]
    added = {"op": "add", "path": "members", "value": member}
    assert trusted.patch(f"/Groups/{admins['id']}", added).status_code == 204


ROLES = [ADMINS, "sso-helpdesk"]


def rows(app: Flask) -> list[Any]:
    """Everything of users and groups that a program could change."""
    with app.app_context():
        people = [
            (one.email, one.name, one.groups, one.claims, one.password_hash, one.disabled_at,
             one.user_name, one.external_id, one.scim_attributes, one.version)
            for one in db.session.scalars(select(User).order_by(User.email))
        ]  # fmt: skip
        return [people, [(one.name, one.external_id, one.version) for one in all_groups()]]


def all_groups() -> list[Group]:
    return list(db.session.scalars(select(Group).order_by(Group.name)))


@pytest.mark.parametrize("is_disabled", [False, True])
@pytest.mark.parametrize("role", ROLES)
def test_each_verb_on_somebody_who_administers(
    app: Flask, scim: Provisioner, role: str, is_disabled: bool
) -> None:
    make_user(app, "other@example.com", groups=[ADMINS])
    boss = make_user(app, "boss@example.com", groups=[role], disabled=is_disabled)
    path, whole = f"/Users/{boss.id}", {"schemas": [USER], "userName": "boss@example.com"}
    attempts: list[tuple[str, Any]] = [
        ("PUT", whole),
        ("PUT", {**whole, "password": "a long pass phrase"}),
        ("PUT", {**whole, "active": is_disabled}),
        ("DELETE", None),
    ]
    for name, value in {
        "password": "a long pass phrase",
        "userName": "me@example.com",
        "emails": [{"value": "me@example.com"}],
        "active": is_disabled,
        "displayName": "Me",
        "externalId": "7",
        "nickName": "Me",
        "title": "Me",
    }.items():
        for op in ("add", "replace"):
            attempts.append(("PATCH", many(1, op=op, path=name, value=value)))
            attempts.append(("PATCH", many(1, op=op, value={name: value})))
        attempts.append(("PATCH", many(1, op="remove", path=name)))
    before = rows(app)
    for method, body in attempts:
        answer = scim(method, path, body)
        is_required = '"remove"' in json.dumps(body) and answer.status_code == 400
        assert answer.status_code == 403 or is_required, (method, body, answer.text)
        assert "scim:privileged" in answer.text or is_required
    assert rows(app) == before
    trusted = Provisioner(app, make_token(app, "scim:write", "scim:privileged", name="Trusted"))
    for method, body in attempts:
        answer = trusted(method, path, body)
        assert answer.status_code != 403, (method, body, answer.text)
        if method == "DELETE":
            break


@pytest.mark.parametrize("role", ROLES)
def test_groups_of_somebody_who_administers(app: Flask, scim: Provisioner, role: str) -> None:
    """Nobody becomes or stops being privileged, and no group of theirs changes."""
    make_user(app, "other@example.com", groups=[ADMINS])
    trusted = Provisioner(app, make_token(app, "scim:write", "scim:privileged", name="Trusted"))
    boss, dana = str(make_user(app, "boss@example.com").id), str(make_user(app).id)
    team, empty = trusted.group("team", boss, dana)["id"], scim.group("empty")["id"]
    held = scim.get("/Groups", filter=f'displayName eq "{role}"')["Resources"]
    if held:
        own = held[0]["id"]
        joined = trusted.patch(f"/Groups/{own}", {"op": "add", "path": "members",
                                                  "value": [{"value": boss}]})  # fmt: skip
        assert joined.status_code == 204
    else:
        own = trusted.group(role, boss)["id"]
    one, other = [{"value": boss}], [{"value": dana}]
    named = {"schemas": [GROUP], "displayName": "team"}
    attempts: list[tuple[str, str, Any]] = [
        ("POST", "/Groups", {**named, "displayName": "new", "members": one}),
        ("POST", "/Groups", {**named, "displayName": "new", "members": other + one}),
        ("POST", "/Groups", {**named, "displayName": role}),
        ("PUT", f"/Groups/{empty}", {**named, "displayName": "empty", "members": one}),
        ("PUT", f"/Groups/{empty}", {**named, "displayName": role}),
        ("PUT", f"/Groups/{team}", {**named, "members": other}),
        ("PUT", f"/Groups/{team}", {**named, "members": []}),
        ("PUT", f"/Groups/{team}", {**named, "displayName": "crew"}),
        ("PUT", f"/Groups/{own}", {**named, "displayName": role, "externalId": "7"}),
        ("PUT", f"/Groups/{own}", {**named, "displayName": "crew"}),
        ("DELETE", f"/Groups/{team}", None),
        ("DELETE", f"/Groups/{own}", None),
    ]
    chosen = f'members[value eq "{boss}"]'
    for group, operation in (
        (empty, {"op": "add", "path": "members", "value": one}),
        (empty, {"op": "add", "path": "members", "value": other + one}),
        (empty, {"op": "add", "value": {"members": one}}),
        (empty, {"op": "replace", "path": "members", "value": one}),
        (empty, {"op": "replace", "value": {"members": one}}),
        (empty, {"op": "replace", "value": {"displayName": role}}),
        (empty, {"op": "replace", "path": "displayName", "value": role}),
        (team, {"op": "remove", "path": "members"}),
        (team, {"op": "remove", "path": "members", "value": one}),
        (team, {"op": "remove", "path": chosen}),
        (team, {"op": "replace", "path": "members", "value": other}),
        (team, {"op": "replace", "value": {"members": other}}),
        (team, {"op": "replace", "path": "displayName", "value": "crew"}),
        (own, {"op": "replace", "path": "displayName", "value": "crew"}),
        (own, {"op": "add", "path": "externalId", "value": "7"}),
        (own, {"op": "add", "path": "members", "value": other}),
        (own, {"op": "remove", "path": chosen}),
        (own, {"op": "remove", "path": "members"}),
    ):
        attempts.append(("PATCH", f"/Groups/{group}", many(1, **operation)))
    before = rows(app)
    for method, path, body in attempts:
        answer = scim(method, path, body)
        assert answer.status_code == 403, (method, path, body, answer.text)
        assert "scim:privileged" in answer.get_json()["detail"]
    assert rows(app) == before
    # The others of a group they are in may come and go.
    for method, path, body, status in (
        ("PUT", f"/Groups/{team}", {**named, "members": one}, 200),
        ("PATCH", f"/Groups/{team}", many(1, op="add", path="members", value=other + one), 204),
        ("PATCH", f"/Groups/{team}", many(1, op="remove", path="members", value=other), 204),
        ("PATCH", f"/Groups/{team}", many(1, op="add", path="externalId", value="7"), 204),
        ("PATCH", f"/Groups/{empty}", many(1, op="replace", value={"displayName": "e"}), 204),
        ("DELETE", f"/Groups/{empty}", None, 204),
    ):
        answer = scim(method, path, body)
        assert answer.status_code == status, answer.text
    assert trusted("DELETE", f"/Groups/{team}").status_code == 204


def test_what_no_client_sets(app: Flask, scim: Provisioner) -> None:
    """Mass assignment: columns, claims and read-only attributes."""
    gid = scim.group("staff")["id"]
    dana = make_user(app)
    before = scim.get(f"/Users/{dana.id}")
    made = scim.user(
        id=str(dana.id),
        groups=[{"value": gid}],
        meta={"version": 'W/"99"', "created": "2000-01-01T00:00:00Z"},
        email_verified=False, passwordHash="x", password_hash="x", claims={"website": "x"},
        disabled_at="2020-01-01", device_version=7, version=99,
    )  # fmt: skip
    assert made["id"] != str(dana.id)
    assert "groups" not in made
    assert made["meta"]["version"] == 'W/"1"'
    with app.app_context():
        (row,) = [one for one in users.every() if one.email == "erin@example.com"]
        assert (row.claims, row.groups, row.password_hash, row.device_version) == ({}, [], None, 0)
        assert row.scim_attributes is not None
        assert set(row.scim_attributes) == {"displayName", "emails"}
    for operation in (
        {"op": "replace", "path": "id", "value": str(dana.id)},
        {"op": "add", "path": "groups", "value": [{"value": gid}]},
        {"op": "replace", "path": "meta.version", "value": "1"},
    ):
        assert scim.patch(f"/Users/{made['id']}", operation).status_code == 400
    assert scim.get(f"/Users/{dana.id}") == before


def test_ids_of_others(app: Flask, scim: Provisioner) -> None:
    gid, uid = scim.group("staff")["id"], make_user(app).id
    for path in (f"/Users/{gid}", f"/Groups/{uid}", f"/Users/{uuid4()}", "/Users/%00",
                 "/Users/1' OR '1'='1", f"/Users/{uid}/groups", "/Tokens/1"):  # fmt: skip
        for method in ("GET", "DELETE"):
            assert scim(method, path).status_code in (404, 405), path


def test_two_users_of_one_name(app: Flask, scim: Provisioner) -> None:
    scim.user()
    second = scim.user(userName="frida@example.com")
    for answer in (
        scim("POST", "/Users", {"schemas": [USER], "userName": "ERIN@example.com "}),
        scim.patch(f"/Users/{second['id']}",
                   {"op": "replace", "path": "userName", "value": "erin@example.com"}),
        scim.patch(f"/Users/{second['id']}", {"op": "replace", "path": "emails",
                   "value": [{"value": "erin@example.com"}]}),
    ):  # fmt: skip
        assert (answer.status_code, answer.get_json()["scimType"]) == (409, "uniqueness")


def deep(depth: int) -> bytes:
    return b'{"schemas":' + b"[" * depth + b"]" * depth + b"}"


BODIES = [
    b"",
    b"{",
    b"[]",
    b"null",
    b"\xff\xfe",
    b'{"schemas": null}',
    b'{"schemas": ["x"], "Operations": {}}',
    deep(50_000),
    json.dumps({"schemas": [PATCH], "Operations": [{"op": "add"}]}).encode(),
    json.dumps({"schemas": [PATCH], "Operations": [{"op": "burn", "path": "x"}]}).encode(),
    json.dumps({"schemas": [PATCH], "Operations": [7, None]}).encode(),
    json.dumps(
        {"schemas": [PATCH], "Operations": [{"op": "add", "path": ["x"], "value": 1}]}
    ).encode(),
]


def test_bodies_that_are_none(app: Flask, scim: Provisioner) -> None:
    dana = make_user(app)
    for body in BODIES:
        for method, path in (("POST", "/Users"), ("PATCH", f"/Users/{dana.id}"),
                             ("PUT", f"/Users/{dana.id}"), ("POST", "/Users/.search"),
                             ("POST", "/Groups")):  # fmt: skip
            answer = scim(method, path, body)
            expected = (200, 400) if path.endswith(".search") else (400,)
            assert answer.status_code in expected, (method, path, body[:80], answer.text)


def many(count: int, **operation: Any) -> dict[str, Any]:
    return {"schemas": [PATCH], "Operations": [operation] * count}


class Held:
    """The longest CPU time for which a transaction has held the lock for writing on SQLite."""

    def __init__(self, app: Flask) -> None:
        self.longest, self._since = 0.0, None  # type: float, float | None
        with app.app_context():
            engine = db.engine
        event.listen(engine, "before_cursor_execute", self._begin)
        event.listen(engine, "commit", self._end)
        event.listen(engine, "rollback", self._end)

    def _begin(self, _c: Any, _u: Any, statement: str, *_: Any) -> None:
        if self._since is None and statement.lstrip()[:6].upper() in ("INSERT", "UPDATE", "DELETE"):
            self._since = time.thread_time()

    def _end(self, _: Any) -> None:
        if self._since is not None:
            self.longest = max(self.longest, time.thread_time() - self._since)
            self._since = None


def listed(ids: list[str]) -> list[dict[str, str]]:
    return [{"value": one} for one in ids]


@pytest.mark.slow
def test_nobody_waits_long_for_the_lock(app: Flask, scim: Provisioner) -> None:
    """Too many values are counted before a row is locked; 5,000 members are one bulk."""
    with app.app_context():
        people = [User(email=f"m{n}@x.ch", name="M", groups=[], claims={}) for n in range(5000)]
        db.session.add_all(people)
        db.session.commit()
        ids = [str(one.id) for one in people]
    dana = make_user(app)
    user = f"/Users/{dana.id}"
    scim.get("/ServiceProviderConfig")
    held = Held(app)
    emails = [{"value": f"{n}@x.ch"} for n in range(9500)]
    split = {f'emails[type eq "{n}"].display': "x" for n in range(99)}
    nested = {"name": {f"x{n}": n for n in range(2000)}}
    parts = [emails[start : start + 100] for start in range(0, 9500, 100)]
    strange = [{"value": one, **{f"x{n}": n for n in range(40)}} for one in ids[:100]]
    whole = {"schemas": [GROUP], "displayName": "big"}
    too_much: list[tuple[str, Any]] = [
        (user, [{"op": "add", "path": "emails", "value": emails}]),
        (user, [{"OP": "add", "PATH": "emails", "VALUE": emails}]),
        (user, [{"op": "add", "value": {"emails": emails}}]),
        (user, [{"op": "remove", "path": "emails", "value": emails}]),
        (user, [{"op": "add", "path": "emails", "value": one} for one in parts]),
        (user, [{"op": "add", "path": "emails", "value": one[:20]} for one in parts]),
        (user, [{"op": "add", "value": split}] * 50),
        (user, [{"op": "add", "value": split}] * 2),
        (user, [{"op": "add", "value": nested}]),
        (user, [{"op": "add", "path": "title", "value": "x"}] * 101),
    ]
    made = scim.group("big")
    group = f"/Groups/{made['id']}"
    too_much += [
        (group, [{"op": "add", "path": "members", "value": strange}]),
        (group, [{"op": "add", "path": "members", "value": [{"value": [{}]}]}]),
        (group, [{"op": "add", "path": "members", "value": listed(["x"] * 5001)}]),
        (group, [{"op": "add", "path": "members", "value": listed(["x"] * 51)}] * 100),
        (group, [{"op": "add", "value": {f"x{n}": n for n in range(90)}}] * 30),
        (group, [{"op": "replace", "path": "externalId", "value": "x"}] * 101),
    ]
    for path, operations in too_much:
        held.longest, began = 0.0, time.thread_time()
        answer = scim.patch(path, *operations)
        assert answer.status_code == 400, str(operations)[:100]
        assert time.thread_time() - began < 1, str(operations)[:100]
        assert held.longest < 0.05, (held.longest, str(operations)[:100])
    for method, path, body in (
        ("POST", "/Users", {"schemas": [USER] * 4000, "userName": "a@x.ch"}),
        ("PUT", user, {"schemas": [USER], "userName": "a@x.ch", "emails": emails}),
        ("PUT", user, {"schemas": [USER], "userName": "a@x.ch", **nested}),
        ("PUT", group, {**whole, "members": listed(["x"] * 5001)}),
        ("POST", "/Groups", {**whole, "members": strange}),
    ):
        held.longest = 0.0
        assert scim(method, path, body).status_code == 400
        assert held.longest < 0.05, (held.longest, str(body)[:100])
    bulk: list[tuple[str, str, Any, int]] = [
        ("PUT", group, {**whole, "members": listed(ids)}, 200),
        ("PATCH", group, many(1, op="replace", path="members", value=listed(ids[:2500])), 204),
        ("PATCH", group, many(1, op="add", path="members", value=listed(ids[2500:])), 204),
        ("PATCH", group, many(100, op="remove", path=f'members[value eq "{uuid4()}" or '
                              f'value eq "{uuid4()}"]'), 204),
        ("PATCH", group, many(1, op="replace", value={"displayName": "bigger"}), 204),
        ("PATCH", group, many(1, op="add", value={"members": listed(ids[:100])}), 204),
        ("DELETE", group, None, 204),
    ]  # fmt: skip
    for method, path, body, status in bulk:
        held.longest = 0.0
        answer = scim(method, path, body)
        assert answer.status_code == status, answer.text[:300]
        assert held.longest < 8, (held.longest, method, str(body)[:100])


def test_a_token_has_a_budget(app: Flask, monkeypatch: pytest.MonkeyPatch) -> None:
    """A long request counts for several, at every API; another token is not limited by it."""
    rule = limiting.API_REQUESTS
    monkeypatch.setattr(limiting, "API_REQUESTS", replace(rule, most=10))
    scim = Provisioner(app, make_token(app, "scim:write", "clients:read"))
    other = Provisioner(app, make_token(app, "scim:read", name="Other"))
    for _ in range(7):
        assert scim("GET", "/Users").status_code == 200
    members = [{"value": str(uuid4())} for _ in range(40)]
    body = {"schemas": [GROUP], "displayName": "staff"}
    assert scim("POST", "/Groups", {**body, "members": members}).status_code == 400  # 1 + 2
    for _ in range(3):
        limited = scim("POST", "/Groups", body)
        assert limited.status_code == 429
        assert 0 < int(limited.headers["Retry-After"]) <= rule.seconds
        assert limited.content_type == "application/scim+json"
        assert limited.get_json()["status"] == "429"
    registrations = app.test_client().get(f"{BASE}/oauth2/register", headers=scim.headers)
    assert registrations.status_code == 429
    assert "Retry-After" in registrations.headers
    assert other("GET", "/Users").status_code == 200
    (noted,) = events(app, "api_requests_limited")
    with app.app_context():
        ids = {one.name: str(one.id) for one in keys.every_api_token()}
    assert noted["api_token"] == ids["Entra"]


@pytest.mark.slow
def test_nothing_burns_time(app: Flask, scim: Provisioner) -> None:
    """Each within a second or two, though it is as long as a request may be."""
    dana = make_user(app)
    user, group = f"/Users/{dana.id}", f"/Groups/{scim.group('staff')['id']}"
    scim.get("/ServiceProviderConfig")
    emails = [{"value": f"{n}@x.ch"} for n in range(5000)]
    names = ",".join(f"name.x{n}" for n in range(800))
    attempts: list[tuple[str, str, Any, tuple[int, ...]]] = [
        ("POST", "/Users", b" " * 300_000, (413,)),
        ("POST", "/Users", {"schemas": [USER], "userName": "a@b.ch", "emails": emails}, (400,)),
        ("POST", "/Users", {"userName": "a@b.ch", "title": "x" * 200_000}, (400,)),
        ("POST", "/Users", {"schemas": [USER], "userName": "a" * 250_000}, (400,)),
        ("POST", "/Users", {f"x{n}": n for n in range(15_000)}, (400,)),
        ("PATCH", user, many(100, op="add", path="emails", value=emails[:40]), (400,)),
        ("PATCH", user, many(5000, op="add", path="title", value="x"), (400,)),
        ("PATCH", user, many(2, op="add", path="emails[" + "(" * 100_000, value="x"), (400,)),
        ("PATCH", user, {"schemas": [PATCH], "Operations": [
            {"op": "add", "value": {f"x{n}[": 1 for n in range(9000)}}]}, (400,)),
        ("PATCH", group, many(1000, op="remove", path='members[value eq "x"]'), (400,)),
        ("PATCH", group, many(1000, op="add", path="members", value=[{"value": str(dana.id)}]),
         (204,)),
        ("PATCH", group, many(900, op="replace", value={"displayName": "x"}), (400,)),
        ("PATCH", group, many(1, op="add", path="members",
                              value=[{"value": str(uuid4())} for _ in range(4500)]), (400,)),
        ("PATCH", group, many(1, op="remove", path="members",
                              value=[{"value": str(uuid4())} for _ in range(4500)]), (204,)),
        ("GET", f"/Users?attributes={names}", None, (400,)),
        ("POST", "/Users/.search", {"attributes": ["name.x"] * 20_000}, (400,)),
        ("POST", "/Users/.search", {"sortBy": "(" * 200_000}, (400, 501)),
        ("POST", "/Users/.search", {"filter": "not (" * 40_000}, (400,)),
    ]  # fmt: skip
    for method, path, body, expected in attempts:
        began = time.process_time()
        answer = scim(method, path, body)
        spent = time.process_time() - began
        what = (method, path[:60], str(body)[:80], answer.text[:300])
        assert answer.status_code in expected, what
        assert spent < 2, (spent, what)


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "members", "value": {"value": str(uuid4())}},
        {"op": "remove", "path": f'members[value eq "{uuid4()}"]'},
    ],
)
def test_members_that_are_named_one_by_one_count_too(
    app: Flask, monkeypatch: pytest.MonkeyPatch, operation: dict[str, Any]
) -> None:
    monkeypatch.setattr(limiting, "API_REQUESTS", replace(limiting.API_REQUESTS, most=10))
    scim = Provisioner(app, make_token(app, "scim:write"))
    body = {
        "schemas": ["urn:ietf:params:scim:api:messages:2.0:PatchOp"],
        "Operations": [operation] * 200,
    }
    assert scim("PATCH", f"/Groups/{uuid4()}", body).status_code == 429
