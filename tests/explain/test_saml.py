"""Every refusal of a SAML message: what `flask explain` says, and the command that it gives."""

import json

import pytest
from flask import Flask

from sso import audit
from sso.extensions import db
from sso.services import clients
from tests.conftest import Clock
from tests.support.actors import Browser
from tests.support.each import each
from tests.support.explaining import Explain
from tests.support.factories import make_client, make_user
from tests.support.saml import (
    ACS_URL,
    ENTITY_ID,
    ServiceProvider,
    authn_request,
    make_service_provider,
    pair,
)

EMAIL = "urn:oasis:names:tc:SAML:1.1:nameid-format:emailAddress"
CONTEXT = (
    "<samlp:RequestedAuthnContext><saml:AuthnContextClassRef>urn:x</saml:AuthnContextClassRef>"
    "</samlp:RequestedAuthnContext>"
)


@pytest.fixture
def wiki(app: Flask, clock: Clock) -> ServiceProvider:
    make_user(app)
    return make_service_provider(app, first_party=True, saml_certificates=pair().certificate)


def test_entity_ids(app: Flask, browser: Browser, wiki: ServiceProvider, explain: Explain) -> None:
    for issuer in ("https://wiki.example/saml/", "urn:x", "[", "http://[", "x" * 900, "ä:\t"):
        page = wiki.start(browser, authn_request(issuer))
        text = explain(page)
        assert "No service provider with this entity ID is registered." in text
        assert "https://wiki.example/saml" in text or ":" not in issuer or "[" in issuer
    with app.app_context():
        clients.disable(audit.SYSTEM, wiki.client_id)
        db.session.commit()
    text = explain(wiki.start(browser))
    assert f"client enable {wiki.client_id}" in text
    with app.app_context():
        clients.enable(audit.SYSTEM, wiki.client_id)
        db.session.commit()
    assert "It is registered now." in explain(browser.page)


def test_consumer_services(
    app: Flask, browser: Browser, wiki: ServiceProvider, explain: Explain
) -> None:
    other = "https://wiki.example/saml/acs/"
    page = wiki.start(browser, authn_request(AssertionConsumerServiceURL=other))
    text = explain(page)
    assert "AssertionConsumerServiceURL" in text
    command = f"client update {wiki.client_id} --add-acs-url {other}"
    assert command in text
    result = app.test_cli_runner().invoke(args=command.split())
    assert result.exit_code == 0, result.output
    assert "It is registered now." in explain(page)
    assert wiki.start(browser, authn_request(AssertionConsumerServiceURL=other)).status == 200


@each("more, text", [
    ({"IssueInstant": "2020-01-01T00:00:00Z"}, "by NTP"),
    ({"Destination": "https://other.example/sso"}, "https://other.example/sso"),
    ({"Version": "1.1"}, "not of SAML 2.0"),
    ({"inside": CONTEXT}, "https://refeds.org/profile/mfa"),
    ({"ProtocolBinding": "urn:x"}, "the binding urn:x"),
    ({"inside": f'<samlp:NameIDPolicy Format="{EMAIL}"/>'}, "--name-id email"),
])  # fmt: skip
def test_requests(
    browser: Browser, wiki: ServiceProvider, explain: Explain, more: dict[str, str], text: str
) -> None:
    wiki.start(browser, authn_request(**more))
    assert text in explain(browser.page)


def test_signatures(app: Flask, browser: Browser, wiki: ServiceProvider, explain: Explain) -> None:
    page = wiki.start(browser, signed_by=pair("other"))
    assert "read its metadata again" in explain(page)
    fields = {"saml_metadata_expires": "2020-01-01T00:00:00Z", "saml_signed_requests": True}
    with app.app_context():
        clients.change(audit.SYSTEM, wiki.client_id, fields)
        db.session.commit()
    text = explain(wiki.start(browser, signed_by=pair("other")))
    assert "has expired on 2020-01-01" in text
    assert "sign its requests" in explain(wiki.start(browser))


def test_people(app: Flask, browser: Browser, explain: Explain, clock: Clock) -> None:
    make_user(app, email_verified=False)
    wiki = make_service_provider(app, first_party=True, saml_name_id="email")
    assert wiki.sign_on(browser).status == "UnknownPrincipal"
    text = explain(browser.page)
    assert "no value for the NameID, which is email" in text
    assert f"client update {wiki.client_id} --name-id persistent" in text
    xml = authn_request()
    with app.app_context():
        clients.change(audit.SYSTEM, wiki.client_id, {"saml_name_id": None})
        db.session.commit()
    assert wiki.sign_on(browser, xml).status == "Success"
    assert "begin again at the application" in explain(wiki.start(browser, xml))


@each("message, words, value", [
    # python3-saml
    ("https://wiki.example/saml is not a valid audience for this Response", "audience", ENTITY_ID),
    ("Could not validate timestamp: not yet valid. Check system clock.", "NTP", "300 s"),
    ("The response was received at http://wiki/acs instead of https://wiki/acs", "proxy", ACS_URL),
    ("Invalid issuer in the Assertion/Response (expected x, got y)", "entity ID", "saml/metadata"),
    ("Signature validation failed. SAML Response rejected", "certificate", "saml/metadata"),
    ("The InResponseTo of the Response: _1, does not match the ID of the AuthnRequest sent by the "
     "SP: _2", "SameSite=None", ""),
    # node-saml
    ("SAML assertion audience mismatch. Expected: a Received: b", "audience", ENTITY_ID),
    ("SAML assertion expired: clocks skewed too much", "NTP", "120 s"),
    ("Unknown SAML issuer. Expected: a Received: b", "entity ID", "saml/metadata"),
    # ruby-saml
    ("Invalid Audience. The audience a, did not match the expected audience b", "audience", ""),
    ("Current time is on or after NotOnOrAfter condition", "NTP", ""),
    ("Fingerprint mismatch", "certificate", ""),
    # OpenSAML and Shibboleth
    ("None of the audiences within Assertion '_1' matched the list of valid audiences", "entity ID",
     ENTITY_ID),
    ("Message expired, was issued too long ago.", "NTP", ""),
    ("Unable to establish security of incoming assertion.", "certificate", ""),
    ("SSO provider does not support the requested NameID format", "--name-id", "persistent"),
    # SimpleSAMLphp
    ("This SP [a] is not a valid audience for the assertion.\nCandidates: [b]", "audience", ""),
])  # fmt: skip
def test_messages_of_applications(
    app: Flask, wiki: ServiceProvider, explain: Explain, message: str, words: str, value: str
) -> None:
    """This server hears nothing of them: they are pasted."""
    text = " ".join(explain.run("--message", message, "--client", wiki.client_id).split())
    assert words in text
    assert value in text
    answer = explain.json("--message", message)
    assert words in f"{answer['cause']} {answer['fix']}"


def test_a_message_that_nobody_knows(app: Flask, wiki: ServiceProvider, explain: Explain) -> None:
    for message in ("Something went wrong", "", " \n", "x" * 100_000):
        text = explain.run("--message", message, code=1)
        assert "no words that are known" in " ".join(text.split())
    assert "two questions" in explain.run("--message", "audience", "abcd-efgh", code=2)
    assert "no client" in explain.run("--message", "audience", "--client", "nobody", code=1)
    other = make_client(app)
    text = explain.run("--message", "audience", "--client", other.client_id, code=1)
    assert "does not speak SAML" in text
    assert "--client ID" in explain.run("--message", "audience")


def test_a_preview(app: Flask, browser: Browser, clock: Clock) -> None:
    """It equals what the sign-on then gives."""
    user_id = str(make_user(app, groups=["staff"]).id)
    wiki = make_service_provider(
        app, first_party=True, scope="openid email groups", saml_name_id="email",
        saml_attributes=["mail=email", "role=groups", "phone=phone_number"],
    )  # fmt: skip
    args = ["client", "preview", wiki.client_id, "--user", user_id]
    result = app.test_cli_runner().invoke(args=[*args, "--json"])
    assertion = json.loads(result.stdout)["assertion"]
    answer = wiki.sign_on(browser)
    assert assertion["attributes"] == answer.attributes
    assert assertion["name_id"] == answer.name_id
    text = app.test_cli_runner().invoke(args=args).stdout
    assert "NameID (email)" in text
    assert "Access token" not in text
