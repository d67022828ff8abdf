"""The entries of an application's own claims, and the values that they give."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from sso.flow import own_claims
from sso.flow.own_claims import ACCESS_TOKEN, ID_TOKEN, USERINFO


@dataclass
class Person:
    attributes: dict[str, Any] = field(default_factory=dict)
    groups: list[str] = field(default_factory=list)


VALUES = {"level": 0, "ok": False, "tags": ["a"], "desk": "7"}
DANA = Person(VALUES, ["wiki-admins", "wiki-", "staff", "gold"])


@pytest.mark.parametrize(
    ("entries", "claims"),
    [
        (["x=attribute:desk"], {"x": "7"}),
        (["x=attribute:level"], {"x": 0}),
        (["x=attribute:ok"], {"x": False}),
        (["x=attribute:tags"], {"x": ["a"]}),
        (["x=attribute:gone"], {}),
        (["x=attribute:gone,ok,desk"], {"x": False}),
        (["x=groups:wiki-"], {"x": ["admins"]}),
        (["x=groups:"], {"x": ["wiki-admins", "wiki-", "staff", "gold"]}),
        (["x=groups:none-"], {"x": []}),
        (["x=group:staff,Employee"], {"x": ["Employee"]}),
        (["x=group:staff,a,b"], {"x": ["a,b"]}),
        (["x=group:none,Employee"], {"x": []}),
        (["x=group:none,a", "x=group:gold,b", "x=group:staff,b"], {"x": ["b"]}),
        (["x=constant:a=b:c"], {"x": "a=b:c"}),
        (["x=json:true", 'y=json:{"a": [1]}'], {"x": True, "y": {"a": [1]}}),
        (["x=json:9007199254740991"], {"x": 9007199254740991}),
        (["https://a.example/x=constant:1"], {"https://a.example/x": "1"}),
    ],
    ids=str,
)
def test_the_value_of_each_source(entries: list[str], claims: dict[str, Any]) -> None:
    assert not list(own_claims.errors(entries))
    assert own_claims.tidy(entries) == entries
    assert own_claims.of(entries, DANA, USERINFO) == claims


def test_a_person_without_anything() -> None:
    entries = ["a=attribute:desk", "b=groups:wiki-", "c=group:staff,x"]
    assert own_claims.of(entries, Person(), USERINFO) == {"b": [], "c": []}


def test_each_place_has_its_claims() -> None:
    entries = ["a=constant:1", "b@access_token=constant:2", "c@id_token,userinfo=constant:3"]
    assert own_claims.of(entries, DANA, USERINFO) == {"a": "1", "c": "3"}
    assert own_claims.of(entries, DANA, ID_TOKEN, with_profile=False) == {"c": "3"}
    assert own_claims.of(entries, DANA, ID_TOKEN, with_profile=True) == {"a": "1", "c": "3"}
    assert own_claims.of(entries, DANA, ACCESS_TOKEN, with_profile=False) == {"b": "2"}


@pytest.mark.parametrize("place", own_claims.PLACES)
def test_what_does_not_fit_is_left_out(place: str) -> None:
    room = own_claims.ROOM[place]
    entries = ["small=constant:x", "long=attribute:long", "last=constant:y"]
    last = len('{"last": "y"}')
    fits = room - len('{"small": "x"}{"long": ""}') - last
    for length, present in (
        (fits, ["small", "long", "last"]),
        (fits + 1, ["small", "long"]),
        (fits + last, ["small", "long"]),
        (fits + last + 1, ["small", "last"]),
    ):
        person = Person({"long": "x" * length})
        assert list(own_claims.of(entries, person, place)) == present


IMITATIONS = [
    "sub", "SUB", "Sub", "s.u.b", "s_ub", "iss", "1ss", "lss", "aud", "exp", "nbf", "jti", "azp",
    "client_id", "client-id", "clientid", "cIient_id", "CLIENT_ID", "c1ient_1d", "scope", "sc0pe",
    "email", "Email", "EMAIL", "emai1", "ernail", "emaiI", "email_verified", "emailVerified",
    "email-verified", "groups", "Groups", "gr0ups", "roles", "ROLES", "r0les", "act", "cnf", "sid",
    "id", "ID", "name", "preferred_username", "_claim_names", "phone_number", "updated_at",
]  # fmt: skip
LOOKALIKES = [
    "s\u03c5b",
    "\u0455ub",
    "ema\u0131l",
    "e\u200bmail",
    "\uff53\uff55\uff42",
    "\u202esub",
    "su\u0301b",
]


@pytest.mark.parametrize("name", [*IMITATIONS, *LOOKALIKES], ids=ascii)
@pytest.mark.parametrize("source", ["attribute:desk", "constant:x"])
def test_a_claim_that_imitates_one_of_a_protocol(name: str, source: str) -> None:
    assert list(own_claims.errors([f"{name}={source}"]))


@pytest.mark.parametrize(
    "entry",
    [
        "", "x", "x=", "=constant:y", "x=y", "x=attribute", "x=attribute:", "x=attribute:a,,b",
        "x=attribute:" + ",".join("abcdefghijk"), "x=group:staff", "x=group:staff,",
        "x=group:staff,a\nb", "x=constant:", "x=constant:a\nb", "x=constant: a", "x=json:",
        "x=json:null", "x=json:{", "x=json:NaN", "x=json:1e999", 'x=json:"\\ud800"',
        'x=json:{"a": 1, "a": 2}', "x=json:9007199254740992", "x=json:-9007199254740992",
        "x=json:" + "[" * 990, "x@=constant:y", "x@everywhere=constant:y", "x@id_token,=constant:y",
        "x@ID_TOKEN=constant:y", "x" * 129 + "=constant:y", "x y=constant:y", "x\x00=constant:y",
        "x=constant:" + "y" * 1000, "x=script:1", "x=Attribute:a", "x=groups:" + "y" * 201,
    ],
    ids=lambda entry: ascii(entry)[:30],
)  # fmt: skip
def test_an_entry_that_is_refused(entry: str) -> None:
    assert list(own_claims.errors([entry]))


@pytest.mark.parametrize(
    ("entries", "is_refused"),
    [
        (["x=constant:a", "x=constant:b"], True),
        (["x=constant:a", "X=constant:b"], True),
        (["x=group:a,b", "x=constant:b"], True),
        (["x=group:a,b", "x@userinfo=group:c,d"], True),
        (["x=group:a,b", "x=group:c,d"], False),
        (["x=group:a,b", "X=group:c,d"], True),
        ([f"x{number}=constant:y" for number in range(200)], False),
        ([f"x{number}=constant:y" for number in range(201)], True),
    ],
    ids=lambda value: str(value)[:40],
)
def test_claims_together(entries: list[str], is_refused: bool) -> None:
    assert bool(list(own_claims.errors(entries))) is is_refused


@pytest.mark.parametrize(
    ("entry", "is_refused"),
    [
        ("groups=groups:", False), ("groups@access_token=groups:", False),
        ("groups=groups:wiki-", True), ("groups=group:staff,staff", False),
        ("groups=group:staff,/staff", False), ("groups=group:teams/red,teams/red", False),
        ("groups=group:teams/red,/teams/red", False), ("groups=group:teams/red,red", False),
        ("groups=group:teams/red,/red", True), ("groups=group:teams/red,teams", True),
        ("groups=group:staff,admins", True), ("groups=group:staff,Staff", True),
        ("groups=group:staff,//staff", True), ("groups=group:teams/,/", True),
        ('groups=json:["admins"]', True), ("groups=constant:admins", True),
        ("groups=attribute:desk", True), ("Groups=group:staff,staff", True),
        ("gr0ups=groups:", True), ("roles=groups:", True),
    ],
)  # fmt: skip
def test_the_claim_groups_names_only_groups_of_the_person(entry: str, is_refused: bool) -> None:
    assert bool(list(own_claims.errors([entry]))) is is_refused


@pytest.mark.parametrize(
    ("value", "after"), [("old/red", "new/blue"), ("/old/red", "/new/blue"), ("red", "blue")]
)
def test_a_renamed_group_is_named_in_the_same_form(value: str, after: str) -> None:
    [entry] = own_claims.renamed([f"groups=group:old/red,{value}"], "old/red", "new/blue")
    assert entry == f"groups=group:new/blue,{after}"
    assert not list(own_claims.errors([entry]))


def test_the_own_claim_groups_counts_before_that_of_the_scope() -> None:
    others = {"email": "d@example.com", "groups": ["teams/red"]}
    assert own_claims.joined({"x": 1, "email": "e"}, others) == {"x": 1, **others}
    assert own_claims.joined({"groups": []}, others) == {**others, "groups": []}
    assert own_claims.joined({"groups": ["/teams/red"]}, {}) == {"groups": ["/teams/red"]}


def test_a_service_provider_names_no_places() -> None:
    assert list(own_claims.errors(["x@userinfo=constant:y"], has_assertions=True))
    assert not list(own_claims.errors(["x=constant:y"], has_assertions=True))


def test_entries_are_edited_by_claim() -> None:
    entries = ["x=group:a,b", "x=group:c,d", "y@userinfo=constant:z"]
    assert own_claims.without(entries, ["x"]) == ["y@userinfo=constant:z"]
    assert own_claims.without(entries, ["y"]) == ["x=group:a,b", "x=group:c,d"]
    assert own_claims.without(entries, ["x = group:a,b"]) == entries[1:]
    assert own_claims.renamed(entries, "a", "new") == ["x=group:new,b", *entries[1:]]
    assert own_claims.tidy([" x @ userinfo , id_token = attribute: a , b "]) == [
        "x@userinfo,id_token=attribute:a,b"
    ]


def test_the_origin_of_each_value() -> None:
    entries = ["a=attribute:gone,desk", "b=attribute:gone", "c=groups:wiki-", "d=group:staff,x",
               "d=group:none,y", "e=constant:z"]  # fmt: skip
    assert [
        (origin.name, origin.value, origin.source, origin.names)
        for origin in own_claims.origins(entries, DANA)
    ] == [
        ("a", "7", "attribute", ("desk",)),
        ("b", None, "attribute", ("gone",)),
        ("c", ["admins"], "groups", ("wiki-admins", "wiki-")),
        ("d", ["x"], "group", ("staff",)),
        ("e", "z", "constant", ()),
    ]
