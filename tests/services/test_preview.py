"""A preview equals what a sign-in then gives, for any user, registration and request."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import uuid4

import pytest
from flask import Flask
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from sso import audit
from sso.crypto import keys
from sso.extensions import db
from sso.flow.profile_claims import CLAIMS
from sso.flow.scopes import ALL_CLAIMS, SCOPES
from sso.flow.token_claims import Reason
from sso.mfa import totp
from sso.models import User
from sso.services import preview, revocation
from sso.services.preview import Preview, Stop
from sso.store import clients, users
from tests.conftest import Clock
from tests.support.actors import Browser, Page, RelyingParty, claims_of, header_of
from tests.support.factories import PASSWORD, make_client, make_user
from tests.support.second_factors import code_of, scan

# What is of one issue alone.
VOLATILE = {"iat", "exp", "auth_time", "sid", "jti", "at_hash"}
GROUPS = ("staff", "board")
SPECIAL = {
    **dict.fromkeys(("profile", "picture", "website"), "https://their.example/"),
    "birthdate": "1990-01-31",
    "zoneinfo": "Europe/Berlin",
    "locale": "de",
    "address": {"locality": "Delft"},
    "phone_number_verified": True,
}


class Case(NamedTuple):
    """A user, a registration, what was consented to before, and a request."""

    user: Mapping[str, Any]
    has_totp: bool
    client: Mapping[str, Any]
    allowed: frozenset[str]
    declined: frozenset[str]
    request: Mapping[str, str]
    user_disabled: bool = False


def some(names: Any, least: int = 0) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(sorted(names)), unique=True, min_size=least)


registrations = st.fixed_dictionaries(
    {
        "scope": some(SCOPES, 1).map(" ".join),
        "id_token_claims": st.sampled_from(["standard", "all"]),
        "id_token_alg": st.sampled_from(keys.ALGORITHMS),
        "groups": st.sampled_from([[], [], ["staff"], ["staff", "board"]]),
        "first_party": st.booleans(),
        "require_mfa": st.booleans(),
        "disabled": st.sampled_from([False] * 9 + [True]),
        "public": st.booleans(),
        "redirect_uris": st.sampled_from([["https://books.example/cb"], ["http://127.0.0.1/cb"]]),
    }
)
people = st.fixed_dictionaries(
    {
        "email_verified": st.booleans(),
        "groups": some(GROUPS),
        "claims": some(CLAIMS).map(
            lambda names: {name: SPECIAL.get(name, f"their {name}") for name in names}
        ),
    }
)
claims_requests = st.fixed_dictionaries(
    {}, optional={place: some(ALL_CLAIMS) for place in ("userinfo", "id_token")}
).map(lambda asked: {place: dict.fromkeys(names) for place, names in asked.items()})
requests = st.fixed_dictionaries(
    {},
    optional={
        "scope": some({*SCOPES, "nonsense"}, 1).map(" ".join),
        "claims": claims_requests.map(json.dumps),
    },
)  # fmt: skip
cases = st.builds(
    Case,
    people,
    st.booleans(),
    registrations,
    some(SCOPES).map(frozenset),
    some(SCOPES.keys() - {"openid"}).map(frozenset),
    requests,
    st.sampled_from([False] * 9 + [True]),
)
PLAIN = {"scope": "openid profile email"}
NOBODY = {"email_verified": False, "groups": [], "claims": {}}
EVERYTHING = " ".join(SCOPES)


@pytest.mark.slow
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(case=cases)
@example(case=Case(NOBODY, False, PLAIN, frozenset(), frozenset(), {}))
@example(case=Case(NOBODY, False, {**PLAIN, "require_mfa": True}, frozenset(), frozenset(), {}))
@example(case=Case(NOBODY, True, {**PLAIN, "first_party": True}, frozenset(), frozenset(), {}))
@example(case=Case(NOBODY, False, PLAIN, frozenset({"openid"}), frozenset({"email"}), {}))
@example(
    case=Case(
        NOBODY,
        False,
        {**PLAIN, "public": True, "redirect_uris": ["http://127.0.0.1/cb"], "first_party": True},
        frozenset({"openid", "profile"}),
        frozenset({"email"}),
        {},
    )
)
@example(case=Case(NOBODY, False, {"scope": "email"}, frozenset(), frozenset({"email"}), {}))
@example(
    case=Case(
        NOBODY,
        False,
        {"scope": EVERYTHING},
        frozenset(),
        frozenset({"address"}),
        {"scope": "address", "claims": '{"userinfo": {"birthdate": null}}'},
    )
)
@example(case=Case(NOBODY, False, {**PLAIN, "groups": ["staff"]}, frozenset(), frozenset(), {}))
@example(case=Case(NOBODY, False, {"scope": "groups address"}, frozenset(), frozenset(), {}))
@example(
    case=Case(
        {**NOBODY, "groups": ["board"]},
        False,
        {"scope": EVERYTHING, "id_token_claims": "all", "id_token_alg": "EdDSA"},
        frozenset(),
        frozenset(),
        {"scope": "openid groups nonsense", "claims": '{"userinfo": {"email": null}}'},
    )
)
def test_it_equals_a_real_sign_in(app: Flask, clock: Clock, case: Case) -> None:
    user, secret = person(app, case)
    client = make_client(app, **case.client)
    with app.app_context():
        if case.allowed or case.declined:
            revocation.remember_consent(
                audit.USER,
                user.id,
                client.client_id,
                sorted(case.allowed - case.declined),
                sorted(case.declined),
            )
            db.session.commit()
    clock.move(minutes=1)  # a code of the authenticator app counts once
    found = previewed(app, client, user, case.request)
    browser = Browser(app)
    page = sign_in(browser, client, user, secret, found, case.request)
    if found.stops:
        assert_stopped(found.stops, page)
        return
    assert bool(found.consent) == (("decision", "allow") in page.buttons)
    if found.consent:
        offered = set(page.fields["offered"].split())
        assert offered == set(found.consent)
        page = browser.allow()
    tokens = client.exchange(page.code).get_json()
    userinfo = client.userinfo(tokens["access_token"])
    assert found.tokens is not None
    assert found.scope == tokens["scope"]
    assert_equal(found.tokens.access_token, tokens["access_token"])
    assert (found.tokens.id_token is None) == ("id_token" not in tokens)
    if found.tokens.id_token:
        assert_equal(found.tokens.id_token, tokens["id_token"])
    assert found.tokens.userinfo == (userinfo.get_json() if userinfo.status_code == 200 else None)
    assert userinfo.status_code in (200, 403)
    assert_explained(found, case.request)


def person(app: Flask, case: Case) -> tuple[User, str | None]:
    email = f"{uuid4().hex}@example.com"
    user = make_user(app, email, disabled=case.user_disabled, **case.user)
    if not case.has_totp:
        return user, None
    with app.app_context():
        secret = totp.new_secret()
        assert totp.enrol(user.id, secret, code_of(secret))
        db.session.commit()
    return user, secret


def previewed(app: Flask, client: RelyingParty, user: User, request: Mapping[str, str]) -> Preview:
    with app.app_context():
        found = users.find(user.id)
        assert found is not None
        made = preview.make(client.client_id, found, **request)
        assert not db.session.new
        assert not db.session.dirty
        return made


def sign_in(
    browser: Browser,
    client: RelyingParty,
    user: User,
    secret: str | None,
    found: Preview,
    request: Mapping[str, str],
) -> Page:
    """Up to the consent page, the client, or a page that says no."""
    page = browser.authorize(client, **{"scope": None, **request})
    if "password" not in page.fields:
        return page
    page = browser.sign_in(user.email, PASSWORD)
    if secret and "code" in page.fields:
        page = browser.submit(code=code_of(secret))
    must_enrol = page.path.endswith("/account/factors")
    assert found.stops or must_enrol == found.enrols
    if must_enrol:
        page = browser.open(page.url.replace("/account/factors", "/account/factors/totp"))
        page = browser.submit(code=code_of(scan(page)))
        onward = page.html.split('class="button primary" href="')[1].split('"')[0]
        page = browser.open(onward)
    if found.stops and ("decision", "allow") in page.buttons:
        page = browser.allow()
    return page


def assert_stopped(stops: tuple[Stop, ...], page: Page) -> None:
    """The page is that of one of the reasons; the server says the first that it meets."""
    if Stop.CLIENT_DISABLED in stops:
        assert page.status == 400
    elif Stop.INVALID_SCOPE in stops:
        assert page.error == "invalid_scope"
    elif Stop.USER_DISABLED in stops:
        assert "password" in page.fields
    elif Stop.NOT_A_MEMBER in stops:
        assert page.status == 403
    else:
        assert stops == (Stop.ALL_WITHHELD,)
        assert page.error == "access_denied"


def assert_equal(token: preview.Token, issued: str) -> None:
    claims = claims_of(issued)
    assert token.header == header_of(issued)
    assert token.claims.keys() == claims.keys()
    assert {k: v for k, v in token.claims.items() if k not in VOLATILE} == {
        k: v for k, v in claims.items() if k not in VOLATILE
    }
    for name in VOLATILE & claims.keys():
        assert isinstance(claims[name], type(token.claims[name]))
    assert token.claims["exp"] - token.claims["iat"] == claims["exp"] - claims["iat"]
    assert token.claims["auth_time"] <= token.claims["iat"]


def assert_explained(found: Preview, request: Mapping[str, str]) -> None:
    """Each missing claim has its reason, and no other claim has one."""
    assert found.tokens is not None
    places = {
        "userinfo": found.tokens.userinfo,
        "id_token": found.tokens.id_token and found.tokens.id_token.claims,
    }
    for place, claims in places.items():
        if claims is not None:
            missing = {one.claim for one in found.missing if place in one.places}
            assert missing == set(ALL_CLAIMS) - claims.keys()
    for one in found.missing:
        is_registered = one.scope in found.client.scope.split()
        assert is_registered != (one.reason is Reason.NOT_REGISTERED)
        assert (one.reason is Reason.NO_VALUE) <= (one.scope in found.scope.split())
        if one.reason is Reason.NOT_REQUESTED:
            assert one.scope not in request["scope"].split()
        if one.reason is Reason.WITHHELD:
            assert one.scope not in found.scope.split()


def test_every_hindrance_at_once(app: Flask) -> None:
    user = make_user(app, disabled=True, password=None)
    client = make_client(app, disabled=True, groups=["staff"])
    found = previewed(app, client, user, {})
    assert found.stops == (
        Stop.CLIENT_DISABLED, Stop.USER_DISABLED, Stop.CANNOT_SIGN_IN, Stop.NOT_A_MEMBER,
    )  # fmt: skip
    assert found.tokens is None


def test_it_reads_the_registration_of_today(app: Flask, client: RelyingParty, user: User) -> None:
    with app.app_context():
        row = clients.find(client.client_id)
        assert row is not None
        row.set_client_metadata({**row.client_metadata, "scope": "openid"})
        db.session.commit()
    assert previewed(app, client, user, {}).scope == "openid"
