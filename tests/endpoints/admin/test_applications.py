"""Applications are registered, changed and explained in the browser."""

import io
import json
import re

import pytest
from flask import Flask
from joserfc.jwk import ECKey

from sso import audit
from sso.config.client_fields import (
    CLIENT_CREDENTIALS,
    DEVICE_CODE,
    FIELDS,
    JWT_BEARER,
    PANELS,
    TOKEN_EXCHANGE,
)
from sso.endpoints.admin.applications_list import kind_of
from sso.extensions import db
from sso.models import Client
from sso.models.clients import OPEN
from sso.services import checks
from sso.services import clients as services
from sso.store import clients, refusals
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser, Page, RelyingParty
from tests.support.administration import ADMIN, HELPDESK, StaffBrowser, sign_in_staff
from tests.support.assertions import AUDIENCE, CLIENT_THERE, make_asserting
from tests.support.events import events
from tests.support.factories import make_api, make_attribute, make_client, make_user
from tests.support.logos import png
from tests.support.saml import pair

pytestmark = pytest.mark.slow

MARKUP = "<script>alert(1)</script>"


@pytest.fixture
def staff(app: Flask, clock: Clock) -> StaffBrowser:
    return sign_in_staff(app)


def by_name(name: str) -> Client:
    return next(one for one in clients.every() if one.name == name)


def secret_in(page: Page) -> str:
    found = re.search(r"Client secret</dt><dd><code dir=\"ltr\">([^<]+)</code>", page.html)
    assert found, page.html
    return found[1]


def test_it_is_registered_by_hand_and_works(app: Flask, staff: StaffBrowser) -> None:
    staff.open(f"{ADMIN}/application/by-hand")
    done = staff.send(
        client_name="Wiki",
        redirect_uris="https://wiki.example/a\r\nhttps://wiki.example/b\r\n",
        home_url="https://wiki.example/",
    )
    assert "The application is registered." in done.html
    with app.app_context():
        client = by_name("Wiki")
        assert client.redirect_uris == ["https://wiki.example/a", "https://wiki.example/b"]
        assert client.scope == "openid profile email"
        assert client.home_url == "https://wiki.example/"
        assert client.check_client_secret(secret_in(done))
    again = staff.open(f"{ADMIN}/application?id={client.client_id}")
    assert secret_in(done) not in again.html


def test_what_is_wrong_is_said_at_once_and_nothing_is_lost(app: Flask, staff: StaffBrowser) -> None:
    staff.open(f"{ADMIN}/application/by-hand")
    answer = staff.send(
        client_name=MARKUP, redirect_uris="http://wiki.example/a#b", home_url="javascript:1"
    )
    assert answer.status == 200
    assert answer.html.count("<li>") >= 2
    assert MARKUP not in answer.html
    assert "&lt;script&gt;" in answer.html
    with app.app_context():
        assert not clients.every()


def test_a_service_that_trusts_an_issuer(app: Flask, staff: StaffBrowser) -> None:
    api = make_api(app)
    staff.open(f"{ADMIN}/application/by-hand")
    trust = {"trust_issuer": "https://ci.example", "trust_subject": "repo:acme/web:*"}
    fields = {
        "client_name": "Nightly", "redirect_uris": "", "grant_types": "client_credentials",
        "apis": api, "token_endpoint_auth_method": "private_key_jwt", **trust,
    }  # fmt: skip
    assert "anyone" in staff.send(**fields | {"trust_subject": "repo:acme*"}).html
    done = staff.send(**fields)
    assert "The application is registered." in done.html
    with app.app_context():
        client = by_name("Nightly")
        assert (client.trust_issuer, client.trust_subject) == tuple(trust.values())
        assert client.trust_audience is None
        assert client.secret_digest == ""
    staff.open(f"{ADMIN}/application/edit?id={client.client_id}")
    staff.send(trust_subject="repo:acme/web:ref:refs/heads/main", trust_audience="sso")
    with app.app_context():
        client = by_name("Nightly")
        assert client.trust_subject == "repo:acme/web:ref:refs/heads/main"
        assert client.trust_audience == "sso"
    page = staff.open(f"{ADMIN}/application?id={client.client_id}")
    assert "https://ci.example" in page.html
    assert "repo:acme/web:ref:refs/heads/main" in page.html


def test_a_preset_shows_the_setup_with_the_secret_in_place(app: Flask, staff: StaffBrowser) -> None:
    assert "Grafana" in staff.open(f"{ADMIN}/application/new").html
    staff.open(f"{ADMIN}/application/preset?preset=grafana")
    done = staff.send(url="https://grafana.example")
    secret = secret_in(done)
    assert done.html.count(secret) >= 2, "in the configuration, too"
    with app.app_context():
        client = by_name("Grafana")
    setup = staff.open(f"{ADMIN}/application/setup?id={client.client_id}")
    assert "PUT_THE_CLIENT_SECRET_HERE" in setup.html
    assert secret not in setup.html
    with app.app_context():
        key = ECKey.generate_key("P-256").as_dict(private=False)
        changes = {"profile": "fapi2", "jwks": {"keys": [key]}}
        services.change(audit.SYSTEM, client.client_id, changes)
        db.session.commit()
    setup = staff.open(f"{ADMIN}/application/setup?id={client.client_id}")
    assert "no longer fits the preset <bdi>grafana</bdi>" in setup.html
    assert "PUT_THE_CLIENT_SECRET_HERE" not in setup.html


def test_presets_with_keys_are_registered_by_command(staff: StaffBrowser) -> None:
    assert "preset=openid-client-fapi2" not in staff.open(f"{ADMIN}/application/new").html
    url = f"{BASE}/admin/application/preset?preset=openid-client-fapi2"
    assert staff.http.get(url, base_url=ORIGIN).status_code == 404


def test_a_preset_of_an_application_that_speaks_saml(app: Flask, staff: StaffBrowser) -> None:
    page = staff.open(f"{ADMIN}/application/preset?preset=aws-identity-center")
    assert "option_acs_url" in page.fields
    answer = staff.send(option_issuer_url="https://aws.example/sp", option_acs_url="nowhere")
    assert "nowhere" in answer.html
    answer = staff.send(
        option_issuer_url="https://aws.example/sp", option_acs_url="https://aws.example/acs"
    )
    for path in ("metadata", "sso", "slo"):
        assert f"{ORIGIN}{BASE}/saml/{path}" in answer.html
    assert "-----BEGIN CERTIFICATE-----" in answer.html
    with app.app_context():
        client = by_name("AWS IAM Identity Center")
        assert client.entity_id == "https://aws.example/sp"
    setup = staff.open(f"{ADMIN}/application/setup?id={client.client_id}")
    assert "-----BEGIN CERTIFICATE-----" in setup.html


@pytest.mark.parametrize("url", ["", "not a url", "https://user@grafana.example", "ftp://x"])
def test_a_preset_asks_for_what_it_needs(app: Flask, staff: StaffBrowser, url: str) -> None:
    staff.open(f"{ADMIN}/application/preset?preset=grafana")
    answer = staff.send(url=url)
    assert 'id="url-error"' in answer.html
    with app.app_context():
        assert not clients.every()


def test_a_sign_in_is_tried_where_the_application_begins(app: Flask, staff: StaffBrowser) -> None:
    rp = make_client(app, home_url="https://wiki.example/?a=1&b")
    plain = make_client(app, name="Plain")
    link = 'href="https://wiki.example/?a=1&amp;b" target="_blank" rel="noopener noreferrer">Try'
    assert link in staff.open(f"{ADMIN}/application?id={rp.client_id}").html
    assert ">Try" not in staff.open(f"{ADMIN}/application?id={plain.client_id}").html
    with app.app_context():
        services.disable(audit.operator(), rp.client_id)
        db.session.commit()
    assert ">Try" not in staff.open(f"{ADMIN}/application?id={rp.client_id}").html


def test_there_is_no_such_preset(staff: StaffBrowser) -> None:
    for name in ("", "../grafana", "nothing", "x" * 5000, "\0"):
        url = f"{BASE}/admin/application/preset"
        answer = staff.http.get(url, query_string={"preset": name}, base_url=ORIGIN)
        assert answer.status_code == 404


def test_it_is_changed(app: Flask, staff: StaffBrowser, client: RelyingParty) -> None:
    page = staff.open(f"{ADMIN}/application/edit?id={client.client_id}")
    with app.app_context():
        before = clients.find(client.client_id)
        assert before
        metadata = before.client_metadata
    assert all(uri in page.html for uri in metadata["redirect_uris"])
    staff.send(client_name="Renamed", require_mfa="y", groups="staff\nit staff")
    with app.app_context():
        after = clients.find(client.client_id)
        assert after
        assert (after.name, after.require_mfa) == ("Renamed", True)
        assert after.groups == ["staff", "it staff"]
        kept = {
            k: v for k, v in after.client_metadata.items() if k not in ("client_name", "groups")
        }
        assert kept == {k: v for k, v in metadata.items() if k not in ("client_name", "groups")}


def test_how_often_people_are_asked(app: Flask, staff: StaffBrowser) -> None:
    web, native, private = "https://a.example/cb", "http://127.0.0.1/cb", "com.example.a:/cb"
    once, each_time = "People are asked once.", "People are asked each time."
    not_asked = "People are not asked."
    for uris, more, answer in (
        ([web], {"public": False}, once),
        ([web], {"public": True}, once),
        ([web, native], {"public": True}, once),
        ([native, private], {"public": True}, each_time),
        ([native], {"public": True, "first_party": True}, each_time),
        ([native], {"public": False, "first_party": True}, not_asked),
    ):
        client = make_client(app, redirect_uris=uris, **more)
        page = staff.open(f"{ADMIN}/application?id={client.client_id}").html
        assert [text for text in (once, each_time, not_asked) if text in page] == [answer], uris
    with app.app_context():  # nobody vouches for an agent
        row = clients.find(client.client_id)
        assert row
        row.registration = OPEN
        db.session.commit()
    page = staff.open(f"{ADMIN}/application?id={client.client_id}").html
    assert each_time in page
    assert not_asked not in page


def test_two_administrators_who_edit_the_same_application(
    app: Flask, staff: StaffBrowser, client: RelyingParty
) -> None:
    bob = sign_in_staff(app, "bob@example.com")
    for one in (staff, bob):
        one.open(f"{ADMIN}/application/edit?id={client.client_id}")
    bob.send(client_name="By Bob", groups="staff")
    answer = staff.send(client_name="By Ada", home_url="https://ada.example/")
    assert answer.status == 409
    assert "Someone else has changed this" in answer.html
    assert "<bdi>By Bob</bdi>" in answer.html
    with app.app_context():
        found = clients.find(client.client_id)
        assert found
        assert (found.name, found.home_url) == ("By Bob", None)
    # Mine is kept in the fields, theirs where I changed nothing.
    staff.send()
    with app.app_context():
        found = clients.find(client.client_id)
        assert found
        assert (found.name, found.groups) == ("By Ada", ["staff"])
        assert found.home_url == "https://ada.example/"


@pytest.mark.parametrize("seen", ["", "{}", "[]", "null", "{" * 5000, '{"client_name": 1}'])
def test_what_was_seen_can_be_anything(
    app: Flask, staff: StaffBrowser, client: RelyingParty, seen: str
) -> None:
    staff.open(f"{ADMIN}/application/edit?id={client.client_id}")
    staff.send(seen=seen, client_name="Renamed")
    with app.app_context():
        found = clients.find(client.client_id)
        assert found
        assert found.name == "Renamed"


def test_a_seen_value_of_another_type_counts_as_unreadable(
    app: Flask, staff: StaffBrowser, client: RelyingParty
) -> None:
    for name, value in (("groups", 5), ("scope", 5), ("require_mfa", []), ("home_url", [])):
        page = staff.open(f"{ADMIN}/application/edit?id={client.client_id}")
        seen = json.dumps({**json.loads(page.fields["seen"]), name: value})
        assert staff.send(seen=seen, client_name=f"By {name}").status == 200
        with app.app_context():
            found = clients.find(client.client_id)
            assert found
            assert found.name == f"By {name}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            ("jwks", text)
            for text in ("", "no JSON", "[" * 5000, "5", '{"keys": 5}', '{"keys": [5]}')
        ),
        ("redirect_uris", ["\ud800"]),
        ("client_name", "\ud800"),
    ],
    ids=lambda value: ascii(value)[:12],
)
def test_a_seen_value_that_nothing_can_read(
    app: Flask, staff: StaffBrowser, client: RelyingParty, name: str, value: object
) -> None:
    page = staff.open(f"{ADMIN}/application/edit?id={client.client_id}")
    seen = json.dumps({**json.loads(page.fields["seen"]), name: value})
    assert staff.send(seen=seen, client_name="Renamed").status == 200
    with app.app_context():
        assert by_name("Renamed")


def test_a_faulty_form_still_knows_what_was_seen(
    app: Flask, staff: StaffBrowser, client: RelyingParty
) -> None:
    """Else the corrected form would undo what others have changed meanwhile."""
    bob = sign_in_staff(app, "bob@example.com")
    for one in (staff, bob):
        one.open(f"{ADMIN}/application/edit?id={client.client_id}")
    bob.send(home_url="https://bob.example/")
    assert "Nothing was changed" in staff.send(client_name="x" * 3000).html
    assert staff.send(client_name="By Ada").status == 409
    with app.app_context():
        found = clients.find(client.client_id)
        assert found
        assert found.home_url == "https://bob.example/"


@pytest.mark.parametrize("do", ["disable", "delete"])
def test_it_asks_before_it_ends_what_the_application_has(
    app: Flask,
    staff: StaffBrowser,
    browser: Browser,
    client: RelyingParty,
    user: object,
    do: str,
) -> None:
    tokens = client.exchange(browser.approve(client).code).get_json()
    url = f"{ADMIN}/application/act?id={client.client_id}&do={do}"
    question = staff.open(url)
    assert "All access and refresh tokens of this application" in question.html
    assert client.userinfo(tokens["access_token"]).status_code == 200
    staff.send()
    assert client.userinfo(tokens["access_token"]).status_code == 401
    with app.app_context():
        found = clients.find(client.client_id)
        assert (found is None) == (do == "delete")


def test_a_secret_is_rotated(app: Flask, staff: StaffBrowser, client: RelyingParty) -> None:
    staff.open(f"{ADMIN}/application/secret?id={client.client_id}")
    done = staff.send(hours="24")
    with app.app_context():
        found = clients.find(client.client_id)
        assert found
        assert found.check_client_secret(secret_in(done))
        assert found.check_client_secret(client.client_secret)


@pytest.mark.parametrize(("minutes", "is_live"), [(24 * 60 - 1, True), (24 * 60, False)])
def test_an_old_secret_is_shown_with_its_end_and_ended_at_once(
    app: Flask, clock: Clock, staff: StaffBrowser, client: RelyingParty, minutes: int, is_live: bool
) -> None:
    url = f"{ADMIN}/application?id={client.client_id}"
    ending = f"{ADMIN}/application/act?id={client.client_id}&do=end-old-secret"
    assert "Old secret" not in staff.open(url).html
    staff.open(f"{ADMIN}/application/secret?id={client.client_id}")
    assert "Old secret" in staff.send(hours="24").html
    asked = staff.open(ending)
    assert "can use only its new secret" in asked.html
    clock.move(minutes=minutes)
    if not is_live:
        with app.app_context(), pytest.raises(checks.Invalid):
            services.end_old_secret(audit.SYSTEM, client.client_id)
        return
    with app.app_context():
        services.end_old_secret(audit.SYSTEM, client.client_id)
        db.session.commit()
        ended = clients.find(client.client_id)
        assert ended
        assert not ended.check_client_secret(client.client_secret)
        assert ended.old_secret_ends_at is None


def test_the_console_ends_an_old_secret(
    app: Flask, staff: StaffBrowser, client: RelyingParty
) -> None:
    staff.open(f"{ADMIN}/application/secret?id={client.client_id}")
    fresh = secret_in(staff.send(hours="168"))
    staff.open(f"{ADMIN}/application/act?id={client.client_id}&do=end-old-secret")
    page = staff.send()
    assert "The old secret was ended." in page.html
    assert "End the old secret" not in page.html
    with app.app_context():
        ended = clients.find(client.client_id)
        assert ended
        assert not ended.check_client_secret(client.client_secret)
        assert ended.check_client_secret(fresh)
    (event,) = events(app, "client_old_secret_ended")
    assert event["operator"] == "ada@example.com"
    url = f"{BASE}/admin/application/act"
    query = {"id": client.client_id, "do": "end-old-secret"}
    assert staff.http.get(url, query_string=query, base_url=ORIGIN).status_code == 404


def test_logos(app: Flask, staff: StaffBrowser, client: RelyingParty) -> None:
    url = f"{ADMIN}/application/logo?id={client.client_id}"
    page = staff.open(url)
    token = page.fields["csrf_token"]

    def send(data: bytes) -> Page:
        return staff.open(
            url,
            "POST",
            data={"csrf_token": token, "logo": (io.BytesIO(data), "logo.png")},
            content_type="multipart/form-data",
        )

    bad = send(b"<svg onload='alert(1)'></svg>")
    assert 'role="alert"' in bad.html
    for data, is_there in ((png(), True), (b"", False)):
        send(data)
        with app.app_context():
            assert (clients.logo_digest(client.client_id) is not None) == is_there


def test_roles(app: Flask, staff: StaffBrowser, client: RelyingParty) -> None:
    make_user(app, "erin@example.com", groups=["all staff"])
    staff.open(f"{ADMIN}/application/edit?id={client.client_id}")
    page = staff.send(roles="a b=x").html
    assert "is refused: a name has 1 to 64 letters" in page
    staff.send(roles="editor = all staff\nviewer", roles_shape="string")
    page = staff.open(f"{ADMIN}/application?id={client.client_id}").html
    assert "editor=all staff, viewer" in page
    preview = f"{ADMIN}/application/preview?id={client.client_id}&who=erin@example.com"
    page = staff.open(preview).html.replace("<bdi>", "").replace("</bdi>", "")
    assert "by the group all staff" in page
    with app.app_context():
        after = clients.find(client.client_id)
        assert after
        assert (after.roles, after.roles_shape) == (["editor=all staff", "viewer"], "string")


def test_own_claims(app: Flask, staff: StaffBrowser) -> None:
    make_attribute(app, "desk")
    client = make_client(app)
    make_user(app, "erin@example.com", attributes={"desk": MARKUP})
    staff.open(f"{ADMIN}/application/edit?id={client.client_id}")
    page = staff.send(own_claims="sub=attribute:desk").html
    assert "looks like, the claim" in page
    page = staff.send(own_claims="x=attribute:none").html
    assert "there is no attribute" in page
    staff.send(own_claims="room=attribute:desk\r\ntenant@id_token=constant:acme")
    page = staff.open(f"{ADMIN}/application?id={client.client_id}").html
    assert "room=attribute:desk, tenant@id_token=constant:acme" in page
    preview = f"{ADMIN}/application/preview?id={client.client_id}&who=erin@example.com"
    page = staff.open(preview).html
    assert MARKUP not in page
    text = re.sub(r"<[^>]+>|[\u2066-\u2069]", "", page)
    assert "attribute desk (set at the command line) → userinfo" in text
    assert "constant → id_token".replace(" ", "") in page.replace(" ", "")
    with app.app_context():
        after = clients.find(client.client_id)
        assert after
        assert after.own_claims == ["room=attribute:desk", "tenant@id_token=constant:acme"]


def test_identity_assertions(app: Flask, staff: StaffBrowser) -> None:
    """What `--id-jag-audience` and `--id-jag-issuer` set is here, too."""
    make_api(app)
    client = make_asserting(app)
    entry, other = f"{AUDIENCE} {CLIENT_THERE}", "https://mail.example desk read write"
    path = f"{ADMIN}/application/edit?id={client.client_id}"
    assert f">\n{entry}</textarea>" in staff.open(path).html
    page = staff.send(id_jag_audiences=f"{entry}\nhttps://mail.example")
    assert "not an issuer and a client ID, with one space" in page.html
    page = staff.send(
        id_jag_audiences=f"{entry}\n{other}",
        grant_types=["authorization_code", TOKEN_EXCHANGE, JWT_BEARER],
        id_jag_issuers="http://idp.example",
        apis="https://docs.example",
        first_party="y",
    )
    assert "it is not https" in page.html
    page = staff.send(id_jag_issuers="https://idp.example")
    assert "The application was changed." in page.html
    assert f'<dd dir="ltr">{entry} · {other}</dd>' in page.html
    assert '<dd dir="ltr">https://idp.example</dd>' in page.html
    with app.app_context():
        stored = clients.find(client.client_id)
        assert stored
        assert stored.client_metadata["id_jag_audiences"] == [entry, other]
        assert stored.id_jag_issuers == ["https://idp.example"]


def test_preview(app: Flask, staff: StaffBrowser, client: RelyingParty) -> None:
    make_user(app, "dana@example.com", name=MARKUP)
    url = f"{ADMIN}/application/preview?id={client.client_id}"
    page = staff.open(f"{url}&who=dana@example.com")
    assert "dana@example.com" in page.html
    assert MARKUP not in page.html
    assert "No people found." in staff.open(f"{url}&who=nobody").html
    assert "No people found." in staff.open(f"{url}&who=%00%ff").html


def test_a_refused_request_is_explained(
    app: Flask, staff: StaffBrowser, browser: Browser, client: RelyingParty
) -> None:
    refused = browser.authorize(client, redirect_uri="https://evil.example/<b>")
    found = re.search(r'<code dir="ltr">([0-9a-z]{4}-[0-9a-z]{4})</code>', refused.html)
    assert found
    refusals.flush(app)
    page = staff.open(f"{ADMIN}/refusals?q={found[1]}")
    assert "evil.example" in page.html
    assert "<b>" not in page.html
    assert found[1] in staff.open(f"{ADMIN}/refusals").html
    german = {"Accept-Language": "de"}
    for query in ("", f"?q={found[1]}"):
        page = staff.open(f"{ADMIN}/refusals{query}", headers=german)
        assert "Die <bdi>redirect_uri</bdi> ist für den Client nicht registriert." in page.html
        assert "is not registered for the client" not in page.html
    assert found[1] in staff.open(f"{ADMIN}/application?id={client.client_id}").html
    for text in ("zzzz-zzzz", "%00zz", "x" * 3000, "%ff%fe"):
        assert "No refused request has this ID." in staff.open(f"{ADMIN}/refusals?q={text}").html


def test_applications_are_found(app: Flask, staff: StaffBrowser) -> None:
    for name in ("Wiki pages", "Chat", MARKUP):
        make_client(app, name=name)
    page = staff.open(f"{ADMIN}/applications?q=WIKI%20P")  # no identifier has a space
    assert "Wiki pages" in page.html
    assert "Chat" not in page.html
    # By any of their URLs.
    uris = ["https://first.example/cb", "https://second.example/cb"]
    make_client(app, name="Board", redirect_uris=uris, home_url="https://home.example/")
    for text in ("first.example", "SECOND.example", "home.example"):
        page = staff.open(f"{ADMIN}/applications?q={text}")
        assert "Board" in page.html
        assert "Wiki pages" not in page.html
    assert MARKUP not in staff.open(f"{ADMIN}/applications").html


@pytest.mark.parametrize("path", ["applications", "application", "application/by-hand", "refusals"])
def test_the_helpdesk_sees_no_applications(
    app: Flask, clock: Clock, client: RelyingParty, path: str
) -> None:
    helper = sign_in_staff(app, "helper@example.com", HELPDESK)
    assert helper.open(f"{ADMIN}/{path}?id={client.client_id}").status == 404
    assert "Applications" not in helper.open(ADMIN).html


def test_there_is_no_such_application(staff: StaffBrowser) -> None:
    for path in ("", "/act?do=delete", "/edit", "/secret", "/logo", "/preview", "/setup"):
        path, _, query = path.partition("?")
        more = dict([query.split("=")] if query else [])
        for client_id in ("", "nobody", "\0", "é", "x" * 5000, "' OR 1=1 --"):
            url = f"{BASE}/admin/application{path}"
            asked = {"id": client_id, **more}
            answer = staff.http.get(url, query_string=asked, base_url=ORIGIN)
            assert answer.status_code == 404, (path, client_id)


def test_every_change_names_the_administrator(app: Flask, staff: StaffBrowser) -> None:
    staff.open(f"{ADMIN}/application/by-hand")
    staff.send(client_name="Wiki", redirect_uris="https://wiki.example/a")
    with app.app_context():
        client = by_name("Wiki")
    url = f"{ADMIN}/application{{}}id={client.client_id}"
    staff.open(url.format("/edit?"))
    staff.send(client_name="Wiki 2")
    staff.open(url.format("/secret?"))
    staff.send()
    for do in ("disable", "enable", "delete"):
        staff.open(url.format("/act?") + f"&do={do}")
        staff.send()
    names = ("created", "changed", "secret_rotated", "disabled", "enabled", "deleted")
    found = events(app, *(f"client_{name}" for name in names))
    assert [one["name"] for one in found] == [f"client_{name}" for name in names]
    assert {one["operator"] for one in found} == {"ada@example.com"}


def test_another_order_is_no_change(app: Flask, staff: StaffBrowser) -> None:
    scope = "profile email openid"
    made = make_client(app, grant_types=["refresh_token", "authorization_code"], scope=scope)
    staff.open(f"{ADMIN}/application/edit?id={made.client_id}")
    staff.send(client_name="Renamed")
    assert [row["what"] for row in events(app, "client_changed")] == ["client_name"]


def public_key() -> dict[str, object]:
    return {**ECKey.generate_key("P-256").as_dict(private=False)}


def register(staff: StaffBrowser, **fields: object) -> Page:
    staff.open(f"{ADMIN}/application/by-hand")
    usual = {"client_name": "Bank", "redirect_uris": "https://bank.example/callback"}
    return staff.send(**{**usual, **fields})


def test_pkce_is_required_unless_it_is_unticked(app: Flask, staff: StaffBrowser) -> None:
    register(staff)
    register(staff, client_name="Old", require_pkce=[])
    with app.app_context():
        assert by_name("Bank").require_pkce
        assert not by_name("Old").require_pkce


def test_parts_of_the_form_are_folded_unless_they_say_something(
    app: Flask, staff: StaffBrowser
) -> None:
    page = staff.open(f"{ADMIN}/application/by-hand")
    assert page.html.count('<details class="fold">') == len(PANELS)
    refused = register(staff, client_name="", home_url="https://bank.example")
    assert refused.html.count('<details class="fold" open>') == 1
    assert "Start page and sign-out" in refused.html.split('<details class="fold" open>')[1][:60]


def test_every_field_has_a_sentence_of_help(staff: StaffBrowser) -> None:
    page = staff.open(f"{ADMIN}/application/by-hand")
    inputs = [field for field in FIELDS.values() if field.form]
    assert all(field.form and field.form.hint for field in inputs)
    assert all(f'id="{field.name}-hint"' in page.html for field in inputs)


def test_the_profile_turns_on_what_it_needs(app: Flask, staff: StaffBrowser) -> None:
    assert "its public keys are missing" in register(staff, profile="fapi2").html
    done = register(staff, profile="fapi2", jwks=json.dumps(public_key()))
    assert "The application is registered." in done.html
    assert "Client secret" not in done.html
    with app.app_context():
        client = by_name("Bank")
        metadata = client.client_metadata
        assert metadata["token_endpoint_auth_method"] == "private_key_jwt"
        assert metadata["require_pushed_authorization_requests"] is True
        assert metadata["dpop_bound_access_tokens"] is True
        assert metadata["id_token_signed_response_alg"] == "ES256"
    page = staff.open(f"{ADMIN}/application?id={client.client_id}")
    assert "Pushed requests (PAR)" in page.html
    page = staff.open(f"{ADMIN}/application/edit?id={client.client_id}")
    refused = staff.send(dpop_bound_access_tokens=[])
    assert "the profile fapi2 requires Refuse token requests without a DPoP proof" in refused.html


def test_algorithms_and_switches(app: Flask, staff: StaffBrowser) -> None:
    choices = {
        "token_endpoint_auth_method": "private_key_jwt",
        "token_endpoint_auth_signing_alg": "ES256",
        "request_object_signing_alg": "PS256",
        "authorization_signed_response_alg": "ES256",
        "jwks_uri": "https://bank.example/keys",
    }
    switches = ("require_pushed_authorization_requests", "require_dpop_nonce")
    register(staff, **choices, **dict.fromkeys(switches, "y"))
    with app.app_context():
        client = by_name("Bank")
        assert {name: client.client_metadata[name] for name in choices} == choices
        assert all(client.client_metadata[name] is True for name in switches)
        assert "dpop_bound_access_tokens" not in client.client_metadata
    staff.open(f"{ADMIN}/application/edit?id={client.client_id}")
    off: dict[str, object] = {name: [] for name in switches}
    staff.send(**off, request_object_signing_alg="", authorization_signed_response_alg="")
    with app.app_context():
        metadata = by_name("Bank").client_metadata
        assert not any(metadata.get(name) for name in switches)
        assert "request_object_signing_alg" not in metadata
        assert metadata["token_endpoint_auth_signing_alg"] == "ES256"


@pytest.mark.parametrize("text", ["{", "[" * 2000, '{"keys": 1}', '"x"', "7", "null", "{}"])
def test_what_is_no_key_set_is_refused_and_stays_in_the_form(
    app: Flask, staff: StaffBrowser, text: str
) -> None:
    refused = register(staff, token_endpoint_auth_method="private_key_jwt", jwks=text)
    assert refused.status == 200
    assert "The application is registered." not in refused.html
    assert "Bank" in refused.html
    with app.app_context():
        assert not clients.every()


def test_a_private_key_is_refused_and_not_kept(app: Flask, staff: StaffBrowser) -> None:
    key = ECKey.generate_key("P-256").as_dict(private=True)
    fields = {"token_endpoint_auth_method": "private_key_jwt", "jwks": json.dumps(key)}
    assert "private" in register(staff, **fields).html
    with app.app_context():
        assert not clients.every()


def test_a_key_set_is_replaced_and_what_is_unchanged_is_no_change(
    app: Flask, staff: StaffBrowser
) -> None:
    one, two = {**public_key(), "kid": "one"}, {**public_key(), "kid": "two"}
    register(staff, token_endpoint_auth_method="private_key_jwt", jwks=json.dumps(one))
    with app.app_context():
        client_id = by_name("Bank").client_id
    staff.open(f"{ADMIN}/application/edit?id={client_id}")
    staff.send(home_url="https://bank.example/", jwks=json.dumps({"keys": [one]}))
    assert [row["what"] for row in events(app, "client_changed")] == ["home_url"]
    staff.open(f"{ADMIN}/application/edit?id={client_id}")
    with app.app_context():
        services.change(audit.SYSTEM, client_id, {"jwks": {"keys": [two]}})
        db.session.commit()
    answer = staff.send(jwks=json.dumps({"keys": [one, two]}))
    assert answer.status == 409
    assert staff.send().status == 200
    with app.app_context():
        jwks = by_name("Bank").client_metadata["jwks"]
        assert jwks["keys"] == [one, two]


METADATA = (
    '<EntityDescriptor xmlns="urn:oasis:names:tc:SAML:2.0:metadata" entityID="https://wiki.example">'
    '<SPSSODescriptor protocolSupportEnumeration="urn:oasis:names:tc:SAML:2.0:protocol">'
    '<AssertionConsumerService Binding="urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST"'
    ' Location="https://wiki.example/acs" index="0"/></SPSSODescriptor></EntityDescriptor>'
)


def test_saml_by_metadata(app: Flask, staff: StaffBrowser) -> None:
    certificate = pair().certificate
    refused = register(staff, redirect_uris="", saml_metadata="<x>" + MARKUP)
    assert "saml_metadata" in refused.html
    assert MARKUP not in refused.html
    fields = {"redirect_uris": "", "saml_name_id": "email", "saml_signed_requests": "y"}
    done = register(staff, **fields, saml_metadata=METADATA, saml_certificates=certificate)
    assert "The application is registered." in done.html
    with app.app_context():
        client = by_name("Bank")
        assert client.entity_id == "https://wiki.example"
        metadata = client.client_metadata
        assert metadata["saml_acs_urls"] == ["https://wiki.example/acs"]
        assert metadata["saml_certificates"].strip() == certificate.strip()
        assert metadata["saml_name_id"] == "email"
        assert metadata["saml_signed_requests"] is True
    staff.open(f"{ADMIN}/application/edit?id={client.client_id}")
    assert staff.send(client_name="Wiki").status == 200
    assert events(app, "client_changed")[-1]["what"] == "client_name"


KINDS: dict[str, tuple[dict[str, object], str]] = {
    "public": ({"token_endpoint_auth_method": "none"}, "public"),
    "device": ({"redirect_uris": "", "grant_types": ["refresh_token", DEVICE_CODE]}, "device"),
    "service": ({"redirect_uris": "", "grant_types": CLIENT_CREDENTIALS}, "service"),
    "exchange": (
        {"grant_types": ["authorization_code", "refresh_token", TOKEN_EXCHANGE]}, "web",
    ),
    "proxy": ({"redirect_uris": "", "proxy_urls": "https://bank.example"}, "proxy"),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_each_kind_of_the_command_is_registered(app: Flask, staff: StaffBrowser, name: str) -> None:
    fields, kind = KINDS[name]
    done = register(staff, **fields)
    assert "The application is registered." in done.html
    with app.app_context():
        assert kind_of(by_name("Bank")) == kind
