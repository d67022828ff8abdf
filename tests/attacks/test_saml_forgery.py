"""Somebody wants a service provider's people: by forged, wrapped, replayed or huge messages."""

import base64
import copy
import zlib
from collections.abc import Callable
from urllib.parse import quote_plus

import pytest
from flask import Flask
from lxml import etree
from signxml import DigestAlgorithm, SignatureMethod, XMLSigner

from sso import audit
from sso.extensions import db
from sso.saml import bindings, documents, received, xml_signatures
from sso.saml.bindings import WeakAlgorithm, WrongSignature
from sso.saml.documents import NAMESPACES, Malformed
from sso.saml.provider_metadata import certificates
from sso.services import clients
from sso.store import clients as stored_clients
from tests.conftest import Clock
from tests.support.actors import Browser, Page
from tests.support.each import each
from tests.support.events import events
from tests.support.factories import make_user
from tests.support.saml import (
    ACS_URL,
    SSO_URL,
    ServiceProvider,
    authn_request,
    make_service_provider,
    pair,
    post_form,
    query,
    signed_xml,
)

FORM = "application/x-www-form-urlencoded"
EVIL = "https://evil.example/acs"
DS = NAMESPACES["ds"]


@pytest.fixture
def wiki(app: Flask, clock: Clock) -> ServiceProvider:
    make_user(app)
    return make_service_provider(
        app, first_party=True, saml_certificates=pair().certificate, saml_signed_requests=True,
        saml_acs_urls=[ACS_URL, "https://wiki.example/saml/second"],
    )  # fmt: skip


def post(app: Flask, message: bytes | str) -> Page:
    return Browser(app).open(SSO_URL, method="POST", data=post_form(message), content_type=FORM)


def wrapped(variant: int, evil: str = EVIL) -> bytes:
    """A signed request, moved aside for one of an attacker (XSW 1 to 8, made for requests)."""
    signed = etree.fromstring(signed_xml(authn_request(), pair()))
    signature = signed.find(f"{{{DS}}}Signature")
    forged = copy.deepcopy(signed)
    forged.set("AssertionConsumerServiceURL", evil)
    forged.remove(forged.find(f"{{{DS}}}Signature"))
    original = copy.deepcopy(signed)
    bare = copy.deepcopy(signed)
    bare.remove(bare.find(f"{{{DS}}}Signature"))
    if variant != 8:  # 8 keeps the same ID twice
        forged.set("ID", "_forged")
    extensions = etree.SubElement(forged, f"{{{NAMESPACES['samlp']}}}Extensions")
    if variant == 1:  # the signature in the forged one, the original in the signature
        moved = copy.deepcopy(signature)
        moved.append(bare)
        forged.append(moved)
    elif variant == 2:  # a detached signature beside the original
        extensions.append(bare)
        extensions.append(copy.deepcopy(signature))
    elif variant == 3:  # the signed original is a child of the forged one
        forged.insert(0, original)
    elif variant == 4:
        forged.append(original)
    elif variant == 5:  # the signature of the forged one refers to the original at the end
        forged.insert(1, copy.deepcopy(signature))
        forged.append(bare)
    elif variant == 6:  # the original within an Object of the signature
        moved = copy.deepcopy(signature)
        etree.SubElement(moved, f"{{{DS}}}Object").append(bare)
        forged.insert(1, moved)
    elif variant == 7:
        extensions.append(original)
    else:
        forged.insert(1, copy.deepcopy(signature))
        extensions.append(bare)
    return bytes(etree.tostring(forged))


@each("variant", range(1, 9))
def test_a_signature_cannot_be_wrapped(app: Flask, wiki: ServiceProvider, variant: int) -> None:
    page = post(app, wrapped(variant, "https://wiki.example/saml/second"))
    assert page.status == 400
    assert "saml_error" in page.html
    root = etree.fromstring(wrapped(variant))
    with pytest.raises(Malformed):
        xml_signatures.verify(root, certificates(pair().certificate))


def test_the_only_reference_is_to_the_message() -> None:
    """Refused before anything is computed: whatever a library makes of the others (Core §5.4.2)."""
    whole = signed_xml(authn_request(), pair())
    for change in ("another reference", "the document", "no reference", "another ID", "no ID"):
        root = etree.fromstring(whole)
        reference = root.find(f".//{{{DS}}}Reference")
        if change == "another reference":
            reference.addnext(copy.deepcopy(reference))
        elif change == "no reference":
            reference.getparent().remove(reference)
        elif change == "the document":
            reference.set("URI", "")
        elif change == "another ID":
            root.set("ID", "_another")
        else:
            del root.attrib["ID"]
        with pytest.raises(WrongSignature, match="does not cover the message, and nothing else"):
            xml_signatures.verify(root, certificates(pair().certificate))


def test_an_unsigned_request_where_signed_ones_are_required(
    app: Flask, wiki: ServiceProvider
) -> None:
    assert wiki.start(Browser(app)).status == 400
    assert post(app, authn_request()).status == 400
    # Also with half a signature.
    assert Browser(app).open(f"{SSO_URL}?{query(authn_request())}&SigAlg=x").status == 400


def test_a_client_that_must_sign_but_has_no_certificate(
    app: Flask, wiki: ServiceProvider, clock: Clock
) -> None:
    """Services refuse such a registration; a restored database could have it."""
    with app.app_context():
        client = stored_clients.find(wiki.client_id)
        assert client
        metadata = {**client.client_metadata}
        del metadata["saml_certificates"]
        client.set_client_metadata(metadata)
        db.session.commit()
    for signer in (None, pair(), pair("other")):
        assert wiki.start(Browser(app), signed_by=signer).status == 400
    assert post(app, authn_request()).status == 400
    assert post(app, signed_xml(authn_request(), pair())).status == 400


@each("in_query", ["nobody", "wiki", "other"])
@each("enveloped", ["nobody", "wiki", "other"])
def test_two_signatures_have_to_be_right(
    app: Flask, wiki: ServiceProvider, in_query: str, enveloped: str
) -> None:
    """That of the query covers the RelayState, the enveloped one goes with the message."""
    keys = {"nobody": None, "wiki": pair(), "other": pair("other")}
    xml = authn_request()
    if key := keys[enveloped]:
        xml = signed_xml(xml, key).decode()
    page = wiki.start(Browser(app), xml, signed_by=keys[in_query])
    signers = {in_query, enveloped} - {"nobody"}
    assert page.status == (200 if signers == {"wiki"} else 400)


def test_a_signature_that_covers_a_message_of_another_client(
    app: Flask, wiki: ServiceProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Should the library ever verify another part than the one that named the client."""
    make_service_provider(
        app, saml_entity_id="https://crm.example", saml_acs_urls=["https://crm.example/acs"]
    )
    other = etree.fromstring(authn_request("https://crm.example").encode())
    monkeypatch.setattr(xml_signatures, "verify", lambda root, certificates: other)
    page = post(app, signed_xml(authn_request(), pair()))
    assert page.status == 400
    assert "No registered certificate" in page.html
    assert events(app, "saml_refused")[-1]["client"] == wiki.client_id


def test_somebody_elses_key(app: Flask, wiki: ServiceProvider) -> None:
    assert wiki.start(Browser(app), signed_by=pair("other")).status == 400
    page = post(app, signed_xml(authn_request(), pair("other")))
    assert "No registered certificate" in page.html


def test_a_changed_query(app: Flask, wiki: ServiceProvider) -> None:
    signed = query(authn_request(), "x", signed_by=pair())
    browser = Browser(app)
    assert browser.open(f"{SSO_URL}?{signed.replace('RelayState=x', 'RelayState=y')}").status == 400
    other = query(authn_request(AssertionConsumerServiceURL="https://wiki.example/saml/second"))
    tail = signed.partition("&")[2]
    assert browser.open(f"{SSO_URL}?{other}&{tail}").status == 400
    # A parameter twice: which one was signed?
    assert browser.open(f"{SSO_URL}?{other}&{signed}").status == 400


def test_the_key_of_the_message_itself_is_not_trusted(app: Flask, wiki: ServiceProvider) -> None:
    """Its KeyInfo names another certificate, and that is ignored."""
    root = etree.fromstring(signed_xml(authn_request(), pair("other")))
    certificate = root.find(f".//{{{DS}}}X509Certificate")
    own = "".join(pair().certificate.splitlines()[1:-1])
    certificate.text = own
    assert post(app, etree.tostring(root)).status == 400


@each("more", [
    {"signature_algorithm": SignatureMethod.RSA_SHA1},
    {"digest_algorithm": DigestAlgorithm.SHA1},
])  # fmt: skip
def test_a_weak_algorithm(
    app: Flask, wiki: ServiceProvider, monkeypatch: pytest.MonkeyPatch, more: dict[str, object]
) -> None:
    monkeypatch.setattr(XMLSigner, "check_deprecated_methods", lambda _: None)
    page = post(app, signed_xml(authn_request(), pair(), **more))
    assert page.status == 400
    assert "not accepted" in page.html


def test_a_weak_algorithm_in_the_query(app: Flask, wiki: ServiceProvider) -> None:
    for algorithm in ("http://www.w3.org/2000/09/xmldsig#rsa-sha1", "none", ""):
        text = query(authn_request(), signed_by=pair(), algorithm=algorithm)
        assert Browser(app).open(f"{SSO_URL}?{text}").status == 400


def test_hmac_with_the_public_key(app: Flask, wiki: ServiceProvider) -> None:
    """The certificate is public: it must not become the secret of an HMAC."""
    root = etree.fromstring(signed_xml(authn_request(), pair()))
    method = root.find(f".//{{{DS}}}SignatureMethod")
    method.set("Algorithm", "http://www.w3.org/2001/04/xmldsig-more#hmac-sha256")
    with pytest.raises(WeakAlgorithm):
        xml_signatures.verify(root, certificates(pair().certificate))


def test_an_answer_goes_to_no_unregistered_url(app: Flask, clock: Clock) -> None:
    make_user(app)
    wiki = make_service_provider(app, first_party=True)
    for url in (EVIL, ACS_URL + "/", ACS_URL + "?x", ACS_URL.upper(), "https://wiki.example"):
        page = wiki.start(Browser(app), authn_request(AssertionConsumerServiceURL=url))
        assert page.status == 400
        assert "evil.example" not in page.html


def test_a_pending_request_ends_with_its_consumer_service(app: Flask, clock: Clock) -> None:

    make_user(app)
    wiki, browser = make_service_provider(app, first_party=True), Browser(app)
    wiki.start(browser)
    with app.app_context():
        with audit.dry_run():
            clients.change(
                audit.SYSTEM, wiki.client_id, {"saml_acs_urls": ["https://wiki.example/other"]}
            )
        db.session.commit()
    assert browser.sign_in().status == 400


def test_a_request_is_answered_once(app: Flask, clock: Clock) -> None:
    make_user(app)
    wiki, browser = make_service_provider(app, first_party=True), Browser(app)
    xml = authn_request()
    assert wiki.sign_on(browser, xml).status == "Success"
    page = wiki.start(browser, xml)
    assert page.status == 400
    assert "answered before" in page.html
    assert "Open the application to sign in again." in page.html  # who only went back
    assert "trying again will not help" not in page.html


def test_an_encoded_name_hides_from_no_signature(app: Flask, wiki: ServiceProvider) -> None:
    """Nobody adds a RelayState to a signed request, and nothing is looked for in vain."""
    signed = query(authn_request(), signed_by=pair())
    for text in (
        f"{signed}&Relay%53tate=x", signed.replace("SAMLRequest=", "SAML%52equest="),
        signed.replace("SigAlg=", "Sig%41lg="), f"Relay+State=x&{signed}",
    ):  # fmt: skip
        page = Browser(app).open(f"{SSO_URL}?{text}")
        assert page.status == 400, text[:40]
    assert Browser(app).open(f"{SSO_URL}?{signed}").status == 200


def test_a_signed_request_names_its_destination(app: Flask, wiki: ServiceProvider) -> None:
    """Else a message for another server could be shown to this one."""
    xml = authn_request(Destination="")
    assert Browser(app).open(f"{SSO_URL}?{query(xml, signed_by=pair())}").status == 400
    assert post(app, signed_xml(xml, pair())).status == 400


@pytest.mark.parametrize(
    "moment",
    ["0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", "", "0", "2026-13-01T00:00:00Z"],
)
def test_impossible_moments(app: Flask, clock: Clock, moment: str) -> None:
    wiki = make_service_provider(app)
    assert wiki.start(Browser(app), authn_request(IssueInstant=moment)).status == 400


def test_a_damaged_signature_is_a_wrong_one() -> None:
    """Each element of a signed message without its text, its attributes or itself."""
    signed = etree.fromstring(signed_xml(authn_request(), pair()))
    trusted = certificates(pair().certificate)
    for number in range(1, len(list(signed.iter()))):
        for damage in (
            lambda node: node.getparent().remove(node), lambda node: setattr(node, "text", None),
            lambda node: setattr(node, "text", "%"), lambda node: node.attrib.clear(),
            lambda node: setattr(node, "tag", f"{{{DS}}}X509Data"),
        ):  # fmt: skip
            message = copy.deepcopy(signed)
            damage(list(message.iter())[number])
            try:
                root = documents.parse(etree.tostring(message))
                if xml_signatures.is_signed(root):
                    xml_signatures.verify(root, trusted)
            except Malformed:
                continue


def test_an_old_request_is_refused(app: Flask, clock: Clock) -> None:
    wiki, xml = make_service_provider(app), authn_request()
    clock.move(minutes=16)
    assert wiki.start(Browser(app), xml).status == 400


def test_a_request_for_another_server(app: Flask, clock: Clock) -> None:
    wiki = make_service_provider(app)
    xml = authn_request(Destination="https://idp.example/sso")
    assert wiki.start(Browser(app), xml).status == 400


COMMENT = authn_request("https://wiki.example/saml<!-- x -->.evil.example")


@pytest.mark.parametrize("xml", [
    '<!DOCTYPE x [<!ENTITY a "b">]>' + authn_request("&a;"),
    '<!DOCTYPE x SYSTEM "file:///etc/passwd">' + authn_request(),
    '<!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]>' + authn_request("&b;"),
    COMMENT,
    authn_request() + "<!-- after -->",
    "<?xml-stylesheet href='x'?>" + authn_request(),
    authn_request(inside="<x ID='_1'/><y ID='_1'/>"),
    authn_request(inside="<a>" * 60 + "</a>" * 60),
    authn_request(inside="<a/>" * 30_000),
    authn_request("&undefined;"),
    authn_request().replace("<saml:Issuer>", "<saml:Issuer><b/>"),
    authn_request(inside="<saml:Issuer>https://wiki.example/saml</saml:Issuer>"),
    "<x/>", "", "no xml",
])  # fmt: skip
def test_hostile_xml(app: Flask, clock: Clock, xml: str) -> None:
    wiki = make_service_provider(app)
    assert post(app, xml).status == 400
    if len(xml) < 3000:
        assert Browser(app).open(f"{SSO_URL}?{query(xml)}").status == 400
    assert wiki.start(Browser(app)).status == 200


@pytest.mark.parametrize(("bound", "document"), [
    (documents.MAX_DEPTH, lambda size: "<a>" * size + "</a>" * size),
    (documents.MAX_NODES, lambda size: "<a>" + "<b/>" * (size - 1) + "</a>"),
    (documents.MAX_METADATA, lambda size: "<a>" + "x" * (size - 7) + "</a>"),
])  # fmt: skip
def test_how_deep_and_long_a_document_may_be(bound: int, document: Callable[[int], str]) -> None:
    for size in (bound - 1, bound):
        assert documents.parse(document(size).encode(), documents.MAX_METADATA) is not None
    with pytest.raises(Malformed, match=r"too many elements|longer than"):
        documents.parse(document(bound + 1).encode(), documents.MAX_METADATA)


@pytest.mark.parametrize(
    ("first", "second"),
    [("ID", "ID"), ("ID", "Id"), ("id", "ID"), ("xml:id", "ID"), ("xml:id", "xml:id")],
)
def test_two_elements_have_one_id(first: str, second: str) -> None:
    """Whichever attribute a library takes for the ID: it finds one element."""
    document = '<a><b {}="_1"/><c {}="{}"/></a>'
    documents.parse(document.format(first, second, "_2").encode())
    with pytest.raises(Malformed, match=r"the same ID|already defined"):
        documents.parse(document.format(first, second, "_1").encode())


@each("encoding", ["utf-16", "utf-7", "latin-1"])
def test_a_dtd_cannot_hide_in_another_encoding(encoding: str) -> None:
    text = f'<?xml version="1.0" encoding="{encoding}"?><!DOCTYPE x []><x>é</x>'
    with pytest.raises(Malformed):
        documents.parse(text.encode(encoding))


def test_an_entity_is_not_read_from_a_file(tmp_path: object) -> None:
    with pytest.raises(Malformed):
        documents.parse(b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><x>&a;</x>')


def test_a_deflate_bomb(app: Flask, clock: Clock) -> None:
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    bomb = compressor.compress(b" " * 30_000_000)
    bomb += compressor.flush()
    with pytest.raises(Malformed):
        bindings.from_redirect(base64.b64encode(bomb[:20_000]).decode())
    few = zlib.compressobj(9, zlib.DEFLATED, -15)
    small = few.compress(b" " * 3_000_000) + few.flush()
    text = quote_plus(base64.b64encode(small).decode())
    assert Browser(app).open(f"{SSO_URL}?SAMLRequest={text}").status == 400


@each("body", ["", "SAMLRequest=", "SAMLRequest=%00", "SAMLRequest=a&SAMLRequest=b", "x=1"])
def test_bad_forms(app: Flask, clock: Clock, body: str) -> None:
    assert Browser(app).open(f"{SSO_URL}?{body}").status == 400
    page = Browser(app).open(SSO_URL, method="POST", data=body, content_type=FORM)
    assert page.status == 400
    assert Browser(app).open(SSO_URL, method="POST", json={}).status == 400


@pytest.mark.parametrize("state", ["x" * 2001, "a\r\nb", "a\0b"])
def test_a_relay_state_that_cannot_be_returned(app: Flask, clock: Clock, state: str) -> None:
    wiki = make_service_provider(app)
    assert wiki.start(Browser(app), relay_state=state).status == 400


def test_a_relay_state_is_escaped(app: Flask, clock: Clock) -> None:
    make_user(app)
    wiki, browser = make_service_provider(app, first_party=True), Browser(app)
    state = '"><script>alert(1)</script>'
    answer = wiki.sign_on(browser, relay_state=state)
    assert "<script>alert" not in browser.page.html
    assert answer.relay_state is not None


def test_names_are_escaped_in_assertions(app: Flask, clock: Clock) -> None:
    name = 'Eve</saml:AttributeValue><saml:Attribute Name="role">&amp;<!-- -->'
    make_user(app, name=name)
    wiki = make_service_provider(app, first_party=True)
    answer = wiki.sign_on(Browser(app))
    assert answer.attributes["name"] == [name]
    assert "role" not in answer.attributes


def test_the_verified_message_alone_counts() -> None:
    signed = etree.fromstring(signed_xml(authn_request(), pair()))
    verified = xml_signatures.verify(signed, certificates(pair().certificate))
    assert verified.get("ID") == signed.get("ID")
    signed.set("AssertionConsumerServiceURL", EVIL)
    with pytest.raises(WrongSignature):
        xml_signatures.verify(signed, certificates(pair().certificate))


@each("second", ["beside", "inside"])
def test_a_second_signature(second: str) -> None:
    """However right one of them is, something else may read the other one."""
    root = etree.fromstring(signed_xml(authn_request(), pair()))
    signature = root.find(f".//{{{DS}}}Signature")
    if second == "beside":
        signature.addnext(copy.deepcopy(signature))
    else:
        signature.append(copy.deepcopy(signature))
    with pytest.raises(WrongSignature, match="The only signature"):
        xml_signatures.verify(root, certificates(pair().certificate))


def test_a_signature_that_is_no_child_of_the_message() -> None:
    root = etree.fromstring(signed_xml(authn_request(), pair()))
    signature = root.find(f".//{{{DS}}}Signature")
    holder = etree.SubElement(root, f"{{{NAMESPACES['samlp']}}}Extensions")
    holder.append(signature)
    with pytest.raises(WrongSignature, match="The only signature"):
        xml_signatures.verify(root, certificates(pair().certificate))


@each("change", [("Version", None), ("Version", "1.1"), ("Version", ""), ("ID", None), ("ID", "")])
def test_what_each_message_has(change: tuple[str, str | None]) -> None:
    name, value = change
    root = documents.parse(authn_request().encode())
    received.authn_request(root)
    if value is None:
        del root.attrib[name]
    else:
        root.set(name, value)
    with pytest.raises(Malformed):
        received.authn_request(root)


@each("text, means", [("true", True), ("1", True), (" true ", True), ("false", False), ("0", False),
                      ("", False), (None, False), ("TRUE", False)])  # fmt: skip
def test_both_spellings_of_true(text: str | None, means: bool) -> None:
    for name, field in (("ForceAuthn", "is_forced"), ("IsPassive", "is_passive")):
        root = documents.parse(authn_request().encode())
        root.attrib.pop(name, None)
        if text is not None:
            root.set(name, text)
        assert getattr(received.authn_request(root), field) is means


@each(
    "inside, unsupported",
    [
        ("<saml:Subject><saml:NameID>dana</saml:NameID></saml:Subject>", None),
        ("<saml:Subject/>", "a Subject without a NameID"),
        ("<saml:Subject><saml:EncryptedID/></saml:Subject>", "a Subject without a NameID"),
        ("<saml:Subject><saml:NameID> </saml:NameID></saml:Subject>", "a Subject without a NameID"),
    ],
)
def test_a_person_who_cannot_be_read(inside: str, unsupported: str | None) -> None:
    """Somebody else must not be signed in instead."""
    request = received.authn_request(documents.parse(authn_request(inside=inside).encode()))
    assert request.unsupported == unsupported
    assert request.login_hint == (None if unsupported else "dana")


@each("inside", ["<b/>", "dana<b/>", "<b/><b/>", "dana<b/>x"])
def test_a_text_with_elements(inside: str) -> None:
    root = documents.parse(f"<a><b>{inside}</b></a>".encode())
    with pytest.raises(Malformed, match="contains elements"):
        documents.text_of(root, "b")


@each("start", ["<!DOCTYPE a>", "<!DOCTYPE a []>", '<!DOCTYPE a SYSTEM "file:///etc/passwd">'])
def test_a_dtd_without_entities(start: str) -> None:
    with pytest.raises(Malformed):
        documents.parse(f"{start}<a/>".encode())
