"""Filters: what each finds, what is refused, and that nothing else can come of one."""

from datetime import timedelta
from typing import Any

import pytest
from flask import Flask
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scim2_models import InvalidFilterException, ScimFilter

from sso import clock
from sso.extensions import db
from sso.models import Group, User
from sso.scim import filters, resources
from sso.scim.resources import UserResource
from sso.store import scim_resources
from tests.scim.conftest import Provisioner
from tests.support.factories import make_user
from tests.support.statements import watched

NAMES = ["Dana Demo", 'Erin "E" Ö', "100%", "under_score", "back\\slash", "'; --", "O'Neil"]


@pytest.fixture
def people(app: Flask) -> dict[str, str]:
    """Ids by name."""
    return {
        name: str(make_user(app, f"u{number}@example.com", name=name, password=None).id)
        for number, name in enumerate(NAMES)
    }


def found(model: Any, text: str) -> Any:
    return scim_resources.users_where(filters.condition(model, text), 0, 100)[1]


FOUND = [
    ('userName eq "u1@EXAMPLE.com"', 1),
    ('urn:ietf:params:scim:schemas:core:2.0:User:userName eq "u1@example.com"', 1),
    ('userName ne "u1@example.com"', 6),
    ('userName sw "U1" or userName sw "u2"', 2),
    ('emails eq "u1@example.com"', 1),
    ('emails.value ew "example.com"', 7),
    ('emails[type eq "work" and value eq "u1@example.com"]', 1),
    ('emails[type eq "work"].value eq "u1@example.com"', 1),
    ('displayName eq "dana demo"', 1),
    ('displayName co "%"', 1),
    ('displayName co "_"', 1),
    ('displayName co "\\\\"', 1),
    ('displayName co "\\""', 1),
    ('displayName eq "\'; --"', 1),
    ("displayName co \"' OR '1'='1\"", 0),
    ("active eq true", 7),
    ('active eq "False"', 0),
    ("not (active eq true)", 0),
    ("externalId pr", 0),
    ('externalId ne "x"', 7),
    ('not (externalId eq "x")', 7),
    ('not (externalId eq "x" and active eq true)', 7),
    ("not (externalId pr)", 7),
    ("userName pr and (active eq false or active eq true)", 7),
    ('id eq "dana"', 0),
    ('groups.value eq "00000000-0000-4000-8000-000000000000"', 0),
    ('meta.lastModified gt "2020-01-01T00:00:00Z"', 7),
    ('meta.lastModified le "2020-01-01T00:00:00+02:00"', 0),
]


def test_what_a_filter_finds(scim: Provisioner, people: dict[str, str]) -> None:
    for text, count in FOUND:
        assert scim.get("/Users", filter=text)["totalResults"] == count, text


REFUSED = [
    "",
    "userName",
    'userName eq "a',
    "userName eq 7",
    "userName gt 'a'",
    'userName gt "a"',
    'name.givenName eq "x"',
    'title eq "x"',
    "title pr",
    'meta.created gt "2020-01-01T00:00:00Z"',
    'meta.lastModified gt "yesterday"',
    'meta.lastModified gt "9999-12-31T23:59:59-14:00"',
    'meta.lastModified eq "2020-01-01T00:00:00Z"',
    'active eq "maybe"',
    'userName eq "\\u0000"',
    'displayName co "\\ud800"',
    'password eq "x"',
    'password_hash co "a"',
    'userName eq "x"; DROP TABLE users',
    'roles[value eq "x"]',
    'addresses[country eq "x"]',
    'urn:ietf:params:scim:schemas:extension:enterprise:2.0:User:userName eq "x"',
    " or ".join(f'userName eq "{n}"' for n in range(41)),
    " or ".join(f'displayName co "{n}"' for n in range(5)),
    "(" * 300 + 'userName eq "a"' + ")" * 300 + " or" * 300,
    "not (" * 40 + 'userName eq "a"' + ")" * 40,
    f'userName eq "{"a" * 2000}"',
]


def test_what_is_refused(scim: Provisioner) -> None:
    for text in REFUSED:
        answer = scim.client.get(
            "/api/auth/scim/v2/Users", query_string={"filter": text}, headers=scim.headers
        )
        assert (answer.status_code, answer.get_json()["scimType"]) == (400, "invalidFilter"), text
    body = {"filter": "(" * 100_000}
    searched = scim("POST", "/Users/.search", body)
    assert (searched.status_code, searched.get_json()["scimType"]) == (400, "invalidFilter")


VALUES = st.sampled_from([*NAMES, "u1@example.com", "U2@example.com", "e", "%", "_", "\\", ""])
TEXTS = st.sampled_from(["userName", "displayName", "emails.value", "externalId"])
LEAVES = st.one_of(
    st.builds(
        lambda name, operator, value: f"{name} {operator} {ScimFilter.quote(value)}",
        TEXTS, st.sampled_from(["eq", "ne", "co", "sw", "ew"]), VALUES,
    ),
    st.builds(lambda name: f"{name} pr", TEXTS),
    st.sampled_from(["active eq true", "active eq false"]),
)  # fmt: skip
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds("({}) and ({})".format, inner, inner),
        st.builds("({}) or ({})".format, inner, inner),
        st.builds("not ({})".format, inner),
    ),
    max_leaves=4,
)


@pytest.mark.slow
@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=EXPRESSIONS)
def test_it_finds_what_the_library_would(app: Flask, people: dict[str, str], text: str) -> None:
    """The reference implementation looks at each resource; SQL must find the same."""
    with app.app_context():
        everybody = scim_resources.users_where(None, 0, 100)[1]
        expected = ScimFilter[UserResource](text)
        assert {one.id for one in found(User, text)} == {
            one.id for one in everybody if expected.match(resources.user_resource(one, {}))
        }


@pytest.mark.slow
@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(max_size=60) | st.builds("userName eq {}".format, st.text(max_size=30)))
def test_any_text_is_a_condition_or_refused(app: Flask, text: str) -> None:
    with app.app_context():
        try:
            condition = filters.condition(User, text)
        except InvalidFilterException:
            return
        scim_resources.users_where(condition, 0, 1)


def test_values_are_bound(app: Flask) -> None:
    seen: list[str] = []
    with app.app_context(), watched(db.engine, lambda statement, _: seen.append(statement)):
        found(User, 'displayName co "x\' OR 1=1 --" and userName eq "needle"')
    assert seen
    assert not [one for one in seen if "OR 1=1" in one or "needle" in one]


def test_time_is_compared_as_time(app: Flask, people: dict[str, str]) -> None:
    with app.app_context():
        for hours, count in ((-1, 7), (1, 0)):
            moment = (clock.now() + timedelta(hours=hours)).isoformat()
            assert len(found(User, f'meta.lastModified gt "{moment}"')) == count


def is_taken(model: Any, text: str) -> bool:
    try:
        return filters.condition(model, text) is not None
    except InvalidFilterException:
        return False


def test_how_much_a_filter_may_say(app: Flask) -> None:
    """As much as the limits say, and not one more."""
    with app.app_context():
        check_limits()


def check_limits() -> None:
    for length, is_right in ((filters.LONGEST, True), (filters.LONGEST + 1, False)):
        value = "x" * (length - len('userName eq ""'))
        assert is_taken(User, f'userName eq "{value}"') == is_right

    def either(condition: str, count: int) -> str:
        return " or ".join([condition] * count)

    assert is_taken(User, either('userName eq "a"', filters.MOST_COMPARISONS))
    assert not is_taken(User, either('userName eq "a"', filters.MOST_COMPARISONS + 1))
    assert not is_taken(User, either("externalId pr", filters.MOST_COMPARISONS + 1))
    assert is_taken(User, either('displayName co "a"', filters.MOST_SLOW))
    assert not is_taken(User, either('displayName co "a"', filters.MOST_SLOW + 1))
    # There are few groups: reading all of them costs little.
    assert is_taken(Group, either('displayName co "a"', filters.MOST_SLOW + 1))


WHOLE = [
    'displayName co "man"',
    'userName ew "7@example.com"',
    'emails co "xam"',
    'externalId co "x"',
    'not (emails co "xam")',
    'userName eq "u1@example.com" or displayName co "man"',
]
NARROW = [
    'userName eq "u1@example.com" and displayName co "man"',
    'displayName eq "dana demo"',
    'emails sw "u1"',
    'externalId eq "x"',
    "active eq true",  # this one and the following find about everybody
    "userName pr",
    'displayName ne "dana demo"',
    'meta.lastModified gt "2020-01-01T00:00:00Z"',
]


def test_among_many_people_a_filter_needs_an_index(
    scim: Provisioner, people: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`people` are seven. Without an index for text anywhere, others are refused."""
    monkeypatch.setattr("sso.store.scim_resources.has_trigrams", lambda: False)
    for most, refused in ((7, []), (6, WHOLE)):
        monkeypatch.setattr(filters, "MOST_READ", most)
        for text in [*WHOLE, *NARROW]:
            answer = scim.client.get(
                "/api/auth/scim/v2/Users", query_string={"filter": text}, headers=scim.headers
            )
            assert answer.get_json().get("scimType") == ("tooMany" if text in refused else None)
            assert answer.status_code == (400 if text in refused else 200), text


def test_a_part_that_too_many_have_is_refused(
    scim: Provisioner, people: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`emails sw` has an index everywhere; exactly as many as may be read are found."""
    headers = scim.headers
    for email in ("many1@example.com", "many2@example.com", "many3@example.com"):
        assert scim("POST", "/Users", {"userName": email}).status_code == 201
    for text, most, is_refused in (
        ('emails sw "many"', 3, False),
        ('emails sw "many"', 2, True),
        ('emails sw "many1"', 2, False),
        ('emails sw "many" and userName eq "many1@example.com"', 2, False),
        ('emails sw "many" or userName eq "nobody"', 2, True),
    ):
        monkeypatch.setattr(filters, "MOST_READ", most)
        answer = scim.client.get(
            "/api/auth/scim/v2/Users", query_string={"filter": text}, headers=headers
        )
        document = answer.get_json()
        assert document.get("scimType") == ("tooMany" if is_refused else None), text
        assert ("longer part" in document.get("detail", "")) is is_refused


def test_as_long_a_filter_is_searched_for(scim: Provisioner) -> None:
    for length, status in ((filters.LONGEST, 200), (filters.LONGEST + 1, 400)):
        text = 'userName eq "{}"'.format("x" * (length - len('userName eq ""')))
        assert scim("POST", "/Users/.search", {"filter": text}).status_code == status
