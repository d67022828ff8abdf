"""Single sign-on for service providers of SAML."""

from datetime import timedelta

import pytest
from flask import Flask

from sso import audit
from sso.extensions import db
from sso.presets import installation, loader
from sso.saml.documents import EMAIL, PERSISTENT, UNSPECIFIED, timestamp
from sso.services import clients, preset_clients
from sso.services.checks import Invalid
from tests.conftest import Clock
from tests.support.actors import BASE, ORIGIN, Browser
from tests.support.events import events
from tests.support.factories import make_attribute, make_user
from tests.support.saml import (
    ACS_URL,
    ENTITY_ID,
    SSO_URL,
    ServiceProvider,
    authn_request,
    make_service_provider,
    pair,
    post_form,
    query,
    signed_xml,
)

MFA = "https://refeds.org/profile/mfa"
PASSWORD = "urn:oasis:names:tc:SAML:2.0:ac:classes:PasswordProtectedTransport"
FORM = "application/x-www-form-urlencoded"


def context(*names: str, comparison: str = "exact") -> str:
    refs = "".join(f"<saml:AuthnContextClassRef>{name}</saml:AuthnContextClassRef>"
                   for name in names)  # fmt: skip
    return (
        f'<samlp:RequestedAuthnContext Comparison="{comparison}">{refs}'
        "</samlp:RequestedAuthnContext>"
    )


def test_a_person_signs_in(app: Flask, clock: Clock) -> None:
    user = make_user(app)
    wiki, browser = make_service_provider(app), Browser(app)
    answer = wiki.sign_on(browser, relay_state="/page?x=1&y=ü")
    assert (answer.action, answer.relay_state) == (ACS_URL, "/page?x=1&y=ü")
    assert answer.status == "Success"
    assert answer.text(".//saml:Audience") == ENTITY_ID
    assert answer.attributes["email"] == ["dana@example.com"]
    assert answer.attributes["sub"] == [str(user.id)]
    name_id = answer.root.find(".//{*}NameID")
    assert name_id.get("Format") == PERSISTENT
    assert len(name_id.text) >= 32
    assert answer.text(".//saml:AuthnContextClassRef") == PASSWORD
    assert events(app, "saml_assertion_issued")[0]["client"] == wiki.client_id
    assert answer.root.find(".//{*}Assertion/{*}Signature") is not None
    # The next request needs nobody.
    again = wiki.read(wiki.start(browser))
    assert again.name_id == answer.name_id


def test_an_application_of_a_preset(app: Flask, clock: Clock) -> None:
    """It is told what its preset says, under the certificate that was printed for it."""
    make_user(app, email_verified=True, claims={"given_name": "Dana"})
    preset = loader.load("zoom")
    with app.app_context():
        zoom = installation.install(preset, "https://acme.zoom.us", {})
        client, _ = preset_clients.connect(audit.SYSTEM, zoom, f"{ORIGIN}{BASE}", {})
        (block,) = preset_clients.setup(client, zoom, f"{ORIGIN}{BASE}")
        db.session.commit()
        provider = ServiceProvider(app, client.client_id, str(client.entity_id), client.acs_urls[0])
    answer = provider.sign_on(Browser(app))
    assert answer.action == "https://acme.zoom.us/saml/SSO"
    assert answer.text(".//saml:Audience") == "acme.zoom.us"
    assert answer.name_id == "dana@example.com"
    assert answer.attributes == {"email": ["dana@example.com"], "firstName": ["Dana"]}
    assert f"Issuer (IDP Entity ID): {answer.text('saml:Issuer')}\n" in block.text
    certificate = str(answer.text(".//ds:X509Certificate"))
    assert "".join(certificate.split()) in "".join(block.text.split())


def test_a_service_provider_that_is_deleted_meanwhile(app: Flask, clock: Clock) -> None:
    """While the person is at the sign-in page."""
    make_user(app)
    wiki, browser = make_service_provider(app), Browser(app)
    assert "password" in wiki.start(browser).fields
    with app.app_context():
        clients.delete(audit.SYSTEM, wiki.client_id)
        db.session.commit()
    assert browser.sign_in().status == 400
    assert wiki.start(browser).status == 400


def test_identifiers_of_two_service_providers_cannot_be_linked(app: Flask, clock: Clock) -> None:
    make_user(app)
    browser, wiki = Browser(app), make_service_provider(app)
    other = make_service_provider(
        app, saml_entity_id="https://crm.example", saml_acs_urls=["https://crm.example/acs"]
    )
    answers = [wiki.sign_on(browser), other.sign_on(browser)]
    assert answers[0].name_id != answers[1].name_id
    indexes = [one.root.find(".//{*}AuthnStatement").get("SessionIndex") for one in answers]
    assert indexes[0] != indexes[1]


def test_a_request_is_posted(app: Flask, clock: Clock) -> None:
    make_user(app)
    wiki, browser = make_service_provider(app), Browser(app)
    browser.sign_in()
    body = post_form(authn_request(), RelayState="x")
    page = browser.open(SSO_URL, method="POST", data=body, content_type=FORM)
    if ("decision", "allow") in page.buttons:
        page = browser.allow()
    answer = wiki.read(page)
    assert (answer.status, answer.relay_state) == ("Success", "x")


def test_a_signed_request_by_redirect_and_by_post(app: Flask, clock: Clock) -> None:
    make_user(app)
    wiki = make_service_provider(
        app, first_party=True, saml_certificates=pair().certificate, saml_signed_requests=True
    )
    browser = Browser(app)
    assert wiki.sign_on(browser, signed_by=pair(), relay_state="x").status == "Success"
    body = post_form(signed_xml(authn_request(), pair()))
    page = browser.open(SSO_URL, method="POST", data=body, content_type=FORM)
    assert wiki.read(page).status == "Success"


@pytest.mark.parametrize("signer", [None, "sp", "other"])
@pytest.mark.parametrize("binding", ["redirect", "post"])
def test_a_signature_that_nothing_verifies_is_not_asked_for(
    app: Flask, clock: Clock, binding: str, signer: str | None
) -> None:
    """Many service providers sign; without their certificate registered, that proves nothing."""
    make_user(app)
    wiki, browser = make_service_provider(app, first_party=True), Browser(app)
    by = pair(signer) if signer else None
    if binding == "redirect":
        assert wiki.sign_on(browser, signed_by=by).status == "Success"
        return
    browser.sign_in()
    body = post_form(signed_xml(authn_request(), by) if by else authn_request())
    page = browser.open(SSO_URL, method="POST", data=body, content_type=FORM)
    assert wiki.read(page).status == "Success"


@pytest.mark.parametrize(("name_id", "is_verified", "expected"), [
    ("email", True, ("dana@example.com", EMAIL)),
    ("preferred_username", False, ("dana", UNSPECIFIED)),  # says nothing of the address
])  # fmt: skip
def test_name_ids(
    app: Flask, clock: Clock, name_id: str, is_verified: bool, expected: tuple[str, str]
) -> None:
    make_user(app, email_verified=is_verified, claims={"preferred_username": "dana"})
    wiki = make_service_provider(app, saml_name_id=name_id, first_party=True)
    answer = wiki.sign_on(Browser(app))
    element = answer.root.find(".//{*}NameID")
    assert (element.text, element.get("Format")) == expected


def test_an_unverified_address_names_nobody(app: Flask, clock: Clock) -> None:
    make_user(app, email_verified=False)
    wiki = make_service_provider(app, saml_name_id="email", first_party=True)
    answer = wiki.sign_on(Browser(app))
    assert answer.status == "UnknownPrincipal"
    assert answer.root.find(".//{*}Assertion") is None


def test_another_name_id_format_is_refused(app: Flask, clock: Clock) -> None:
    make_user(app)
    wiki = make_service_provider(app)
    xml = authn_request(inside=f'<samlp:NameIDPolicy Format="{EMAIL}"/>')
    assert wiki.read(wiki.start(Browser(app), xml)).status == "InvalidNameIDPolicy"


def test_attributes_are_mapped(app: Flask, clock: Clock) -> None:
    make_user(app, groups=["staff", "wiki"])
    wiki = make_service_provider(
        app, first_party=True, scope="openid email groups",
        saml_attributes=["urn:oid:0.9.2342.19200300.100.1.3=email", "role=groups", "who=name"],
    )  # fmt: skip
    answer = wiki.sign_on(Browser(app))
    assert answer.attributes == {
        "urn:oid:0.9.2342.19200300.100.1.3": ["dana@example.com"],
        "role": ["staff", "wiki"],  # the name needs the scope profile
    }
    formats = {one.get("Name"): one.get("NameFormat").rpartition(":")[2]
               for one in answer.root.iterfind(".//{*}Attribute")}  # fmt: skip
    assert formats == {"urn:oid:0.9.2342.19200300.100.1.3": "uri", "role": "basic"}


def test_own_claims_are_attributes(app: Flask, clock: Clock) -> None:
    make_attribute(app, "desk", "number")
    make_attribute(app, "ok", "boolean")
    make_user(app, groups=["staff", "wiki-a"], attributes={"desk": 7, "ok": False})
    own = ["desk=attribute:desk", "ok=attribute:ok", "gone=attribute:ok,desk",
           "teams=groups:wiki-", "tenant=constant:acme"]  # fmt: skip
    wiki = make_service_provider(app, first_party=True, scope="openid", own_claims=own)
    sent = wiki.sign_on(Browser(app)).attributes
    assert {name: sent[name] for name in ("desk", "ok", "teams", "tenant")} == {
        "desk": ["7"], "ok": ["false"], "teams": ["a"], "tenant": ["acme"],
    }  # fmt: skip
    mapped = make_service_provider(
        app, saml_entity_id="https://other.example", first_party=True, own_claims=own,
        saml_attributes=["urn:oid:1.2=desk"],
    )  # fmt: skip
    assert mapped.sign_on(Browser(app)).attributes == {"urn:oid:1.2": ["7"]}
    with pytest.raises(Invalid, match="not NAME=CLAIM"):
        make_service_provider(app, saml_attributes=["x=desk"])
    with pytest.raises(Invalid, match="name no places"):
        make_service_provider(app, own_claims=["tenant@id_token=constant:acme"])


@pytest.mark.parametrize("character", ["\ufffe", "\uffff"])
def test_what_xml_cannot_have_is_replaced(app: Flask, clock: Clock, character: str) -> None:
    make_attribute(app, "desk")
    name = f"Da{character}na"
    make_user(app, name=name, attributes={"desk": name})
    own = ["desk=attribute:desk", f"tenant=constant:{name}", 'limits=json:{"a": "\\ufffe"}']
    wiki = make_service_provider(app, first_party=True, scope="openid profile", own_claims=own)
    sent = wiki.sign_on(Browser(app)).attributes
    assert {name: sent[name] for name in ("desk", "tenant", "limits", "name")} == {
        "desk": ["Da\ufffdna"], "tenant": ["Da\ufffdna"], "limits": ['{"a": "\ufffd"}'],
        "name": ["Da\ufffdna"],
    }  # fmt: skip


def test_a_name_that_xml_cannot_have_names_nobody(app: Flask, clock: Clock) -> None:
    make_user(app, claims={"nickname": "da\ufffena"})
    wiki = make_service_provider(
        app, saml_name_id="nickname", first_party=True, scope="openid profile"
    )
    assert wiki.sign_on(Browser(app)).status == "UnknownPrincipal"


def test_what_a_person_withholds_is_not_sent(app: Flask, clock: Clock) -> None:
    make_user(app)
    wiki, browser = make_service_provider(app), Browser(app)
    wiki.start(browser)
    browser.sign_in()
    fields = {name: value for name, value in browser.page.fields.items() if name != "scope_email"}
    page = browser.open(browser.page.action or browser.page.url, method="POST",
                        data={**fields, "decision": "allow"})  # fmt: skip
    assert "email" not in wiki.read(page).attributes


def test_a_person_denies(app: Flask, clock: Clock) -> None:
    make_user(app)
    wiki, browser = make_service_provider(app), Browser(app)
    wiki.start(browser)
    browser.sign_in()
    answer = wiki.read(browser.deny())
    assert answer.status == "RequestDenied"
    assert answer.root.get("InResponseTo")


def test_who_is_in_no_group_gets_no_assertion(app: Flask, clock: Clock) -> None:
    make_user(app)
    wiki, browser = make_service_provider(app, groups=["staff"]), Browser(app)
    wiki.start(browser)
    page = browser.sign_in()
    assert page.status == 403
    back = page.html.split('href="')
    url = next(one.partition('"')[0] for one in back if "oauth2/authorize?resume=" in one)
    assert wiki.read(browser.open(url.replace("&amp;", "&"))).status == "RequestDenied"


def test_a_passive_request_shows_no_page(app: Flask, clock: Clock) -> None:
    make_user(app)
    wiki, browser = make_service_provider(app), Browser(app)
    passive = authn_request(IsPassive="true")
    assert wiki.read(wiki.start(browser, passive)).status == "NoPassive"
    browser.sign_in()
    assert wiki.read(wiki.start(browser, authn_request(IsPassive="true"))).status == "NoPassive"
    wiki.sign_on(browser)
    assert wiki.read(wiki.start(browser, authn_request(IsPassive="true"))).status == "Success"


def test_a_passive_request_that_is_forced_shows_no_page_either(app: Flask, clock: Clock) -> None:
    """It wants a new sign-in, which nobody can give unseen (Core §3.4.1)."""
    make_user(app)
    wiki, browser = make_service_provider(app, first_party=True), Browser(app)
    wiki.sign_on(browser)
    both = authn_request(IsPassive="true", ForceAuthn="true")
    assert wiki.read(wiki.start(Browser(app), both)).status == "NoPassive"


@pytest.mark.parametrize(
    ("index", "is_taken"), [(None, True), ("0", True), ("1", False), ("x", False), ("-1", False)]
)
def test_the_index_of_a_consumer_service(
    app: Flask, clock: Clock, index: str | None, is_taken: bool
) -> None:
    """What metadata numbered otherwise is not known here: the URL has to be sent."""
    make_user(app)
    urls = ["https://wiki.example/saml/acs", "https://wiki.example/saml/second"]
    wiki = make_service_provider(app, first_party=True, saml_acs_urls=urls)
    more = {"AssertionConsumerServiceIndex": index or "", "AssertionConsumerServiceURL": ""}
    page = wiki.start(Browser(app), authn_request(**more))
    assert ("password" in page.fields) is is_taken
    if not is_taken:
        assert "AssertionConsumerServiceIndex" in page.html


def test_a_forced_request_asks_for_the_password_once(app: Flask, clock: Clock) -> None:
    make_user(app)
    wiki, browser = make_service_provider(app, first_party=True), Browser(app)
    before = wiki.sign_on(browser)
    clock.move(minutes=1)
    page = wiki.start(browser, authn_request(ForceAuthn="true"))
    assert "password" in page.fields
    answer = wiki.read(browser.sign_in())
    instants = [one.root.find(".//{*}AuthnStatement").get("AuthnInstant")
                for one in (before, answer)]  # fmt: skip
    assert instants[0] < instants[1]


@pytest.mark.parametrize(("inside", "expected"), [
    (context(PASSWORD), PASSWORD),
    (context("urn:oasis:names:tc:SAML:2.0:ac:classes:Password"),
     "urn:oasis:names:tc:SAML:2.0:ac:classes:Password"),
    (context(PASSWORD, comparison="minimum"), PASSWORD),
    (context("urn:example:smartcard", PASSWORD), PASSWORD),
    (context(PASSWORD, comparison="maximum"), PASSWORD),
    (context(PASSWORD, MFA, comparison="maximum"), PASSWORD),
    (context(PASSWORD, MFA, comparison="minimum"), PASSWORD),
])  # fmt: skip
def test_authentication_contexts(app: Flask, clock: Clock, inside: str, expected: str) -> None:
    make_user(app)
    wiki = make_service_provider(app, first_party=True)
    answer = wiki.sign_on(Browser(app), authn_request(inside=inside))
    assert answer.text(".//saml:AuthnContextClassRef") == expected


def test_a_second_factor_is_asked_for(app: Flask, clock: Clock) -> None:
    make_user(app)
    wiki, browser = make_service_provider(app, first_party=True), Browser(app)
    wiki.start(browser, authn_request(inside=context(MFA)))
    assert "/account/factors" in browser.sign_in().url
    for inside in (context(MFA, comparison="minimum"), context(PASSWORD, comparison="better")):
        assert "/account/factors" in wiki.start(browser, authn_request(inside=inside)).url


def test_an_unknown_context_is_refused(app: Flask, clock: Clock) -> None:
    make_user(app)
    wiki = make_service_provider(app)
    for inside in (
        context("urn:example:smartcard"),
        context("urn:example:smartcard", comparison="maximum"),
        context("urn:example:smartcard", comparison="better"),
        context(MFA, comparison="better"),  # nothing is
        context(PASSWORD, MFA, comparison="better"),
    ):
        page = wiki.start(Browser(app), authn_request(inside=inside))
        assert wiki.read(page).status == "NoAuthnContext"


def test_another_binding_is_named_as_unsupported(app: Flask, clock: Clock) -> None:
    wiki = make_service_provider(app)
    artifact = "urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Artifact"
    answer = wiki.read(wiki.start(Browser(app), authn_request(ProtocolBinding=artifact)))
    assert answer.status == "RequestUnsupported"
    assert "HTTP-Artifact" in (answer.text(".//samlp:StatusMessage") or "")


def test_without_a_service_provider_there_is_no_metadata(app: Flask, clock: Clock) -> None:
    path = f"{BASE}/saml/metadata"
    assert app.test_client().get(path, base_url=ORIGIN).status_code == 404
    make_service_provider(app)
    response = app.test_client().get(path, base_url=ORIGIN)
    assert response.status_code == 200
    assert response.mimetype == "application/samlmetadata+xml"
    text = response.get_data(as_text=True)
    assert f'entityID="{ORIGIN}{path}"' in text
    assert text.count("<ds:X509Certificate>") == 2  # of the active key, and of the next one


def test_the_request_of_a_disabled_client_is_refused(app: Flask, clock: Clock) -> None:
    wiki = make_service_provider(app, disabled=True)
    assert wiki.start(Browser(app)).status == 400


def test_nobody_gets_tokens_as_a_service_provider(app: Flask, clock: Clock) -> None:
    make_user(app)
    wiki, browser = make_service_provider(app), Browser(app)
    page = browser.open(
        f"{ORIGIN}{BASE}/oauth2/authorize?response_type=code&client_id={wiki.client_id}"
        f"&redirect_uri={ACS_URL}&state=x"
    )
    assert page.status == 400
    form = {"grant_type": "client_credentials", "client_id": wiki.client_id}
    answer = app.test_client().post(f"{BASE}/oauth2/token", data=form, base_url=ORIGIN)
    assert answer.status_code in (400, 401)


def test_clocks_that_differ_are_named(app: Flask, clock: Clock) -> None:
    wiki = make_service_provider(app)
    for delta in (timedelta(hours=-1), timedelta(minutes=6)):
        xml = authn_request(IssueInstant=timestamp(clock.now() + delta))
        page = wiki.start(Browser(app), xml)
        assert page.status == 400
        assert "clocks" in page.html
        assert "Open the application to sign in again. If that does not help" in page.html
        assert "trying again will not help" not in page.html
    assert query(authn_request()).startswith("SAMLRequest=")
