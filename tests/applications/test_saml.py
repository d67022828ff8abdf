"""Real service providers: Debian's Apache with mod_auth_mellon, python3-saml and passport-saml."""

import base64
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from flask import Flask
from lxml import etree

from sso import create_app, database
from sso.oauth import saml
from sso.saml import xml_signatures
from sso.saml.documents import NAMESPACES
from tests.applications.conftest import DANA
from tests.applications.proxies import Person
from tests.applications.proxies import server as server
from tests.applications.software import node, node_program, python
from tests.applications.test_apache import MODULES
from tests.applications.test_apis import running
from tests.support.processes import Server, free_port, require
from tests.support.saml import pair

PROGRAMS = Path(__file__).parent / "programs"
CALLBACK = "http://127.0.0.1:9/callback"
APACHE_MODULES = ("mpm_event", "authn_core", "authz_core", "authz_user", "dir", "headers",
                  "auth_mellon")  # fmt: skip
APACHE = """ServerRoot {folder}
PidFile {folder}/pid
Mutex file:{folder}
Listen 127.0.0.1:{port}
ServerName 127.0.0.1:{port}
ErrorLog /dev/stderr
User www-data
Group www-data
DocumentRoot {folder}/site
<Location />
    MellonEnable info
    MellonEndpointPath /mellon
    MellonSPMetadataFile {folder}/sp.xml
    MellonSPPrivateKeyFile {folder}/sp.key
    MellonSPCertFile {folder}/sp.pem
    MellonIdPMetadataFile {folder}/idp.xml
    MellonVariable mellon-{port}
    MellonMergeEnvVars On ","
    Require all granted
</Location>
<Location /index.html>
    MellonEnable auth
    Require valid-user
    Header always set X-Name-Id "%{{MELLON_NAME_ID}}e"
    Header always set X-Email "%{{MELLON_email}}e"
    Header always set X-Groups "%{{MELLON_groups}}e"
</Location>
"""
METADATA = """<EntityDescriptor xmlns="urn:oasis:names:tc:SAML:2.0:metadata" entityID="{url}/metadata">
<SPSSODescriptor AuthnRequestsSigned="true" WantAssertionsSigned="true"
 protocolSupportEnumeration="urn:oasis:names:tc:SAML:2.0:protocol">
<KeyDescriptor use="signing"><KeyInfo xmlns="http://www.w3.org/2000/09/xmldsig#"><X509Data>
<X509Certificate>{certificate}</X509Certificate></X509Data></KeyInfo></KeyDescriptor>
<SingleLogoutService Binding="urn:oasis:names:tc:SAML:2.0:bindings:HTTP-Redirect"
 Location="{url}/mellon/logout"/>
<NameIDFormat>urn:oasis:names:tc:SAML:2.0:nameid-format:persistent</NameIDFormat>
<AssertionConsumerService index="0" isDefault="true"
 Binding="urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST" Location="{url}/mellon/postResponse"/>
</SPSSODescriptor></EntityDescriptor>"""  # noqa: E501  # one line of XML that has no other break


@dataclass
class ServiceProvider:
    """A service provider that runs. `home`: names who is in; `logout`: ends the session."""

    url: str
    home: str
    logout: str

    def identity(self, answer: requests.Response) -> dict[str, Any]:
        """Return what the service provider knows about the person."""
        if "X-Name-Id" in answer.headers:
            values = answer.headers
            groups = values["X-Groups"].split(",")
            return {"name_id": values["X-Name-Id"], "email": values["X-Email"], "groups": groups}
        shown = answer.json()

        def as_list(value: Any) -> list[str]:
            return value if isinstance(value, list) else [value]

        attributes = {name: as_list(value) for name, value in shown["attributes"].items()}
        [email] = attributes["email"]
        return {"name_id": shown["name_id"], "email": email, "groups": attributes["groups"]}

    def sign_in(self, person: Person) -> dict[str, Any]:
        answer = person.follow(self.open(person), until="name_id")
        return self.identity(answer)

    def open(self, person: Person) -> requests.Response:
        return person.http.get(self.url + self.home, allow_redirects=False, timeout=20)

    def has_session(self, person: Person) -> bool:
        answer = self.open(person)
        assert answer.status_code in (200, 302, 303), answer.text
        return answer.status_code == 200


def keys(folder: Path, server: Server) -> str:
    """Write the service provider's key and what it knows of ours; return its certificate."""
    own = pair()
    key = own.key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
    (folder / "sp.key").write_bytes(key)
    (folder / "sp.pem").write_text(own.certificate)
    metadata = requests.get(f"{server.base_url}/saml/metadata", timeout=20).text
    (folder / "idp.xml").write_text(metadata)
    return own.certificate


def register(server: Server, file: Path, *options: str) -> None:
    server.flask(
        "client", "create", "--saml", "--name", file.parent.name, "--metadata", str(file),
        "--first-party", "--scope", "openid profile email groups", "--require-signed", *options,
    )  # fmt: skip


@contextmanager
def mellon(_: Path, server: Server) -> Iterator[ServiceProvider]:
    apache = require("Apache", shutil.which("apache2", path="/usr/sbin"))
    require("mod_auth_mellon", shutil.which("mod_auth_mellon.so", mode=0, path=MODULES))
    with TemporaryDirectory(prefix="mellon") as place:  # www-data may not read pytest's
        folder, port = Path(place), free_port()
        url = f"http://127.0.0.1:{port}"
        certificate = "".join(keys(folder, server).splitlines()[1:-1])
        (folder / "sp.xml").write_text(METADATA.format(url=url, certificate=certificate))
        (folder / "site").mkdir()
        (folder / "site/index.html").write_text("name_id")
        (folder / "site/out").write_text("you are out")
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755)
        modules = [f"LoadModule {n}_module {MODULES}/mod_{n}.so\n" for n in APACHE_MODULES]
        file = folder / "apache2.conf"
        file.write_text("".join(modules) + APACHE.format(folder=folder, port=port))
        register(server, folder / "sp.xml")
        command: list[Path | str] = [apache, "-D", "FOREGROUND", "-f", file]
        with running(command, folder, port, APACHE_RUN_DIR=place):
            yield ServiceProvider(url, "/index.html", f"/mellon/logout?ReturnTo={url}/out")


def flask(folder: Path, server: Server) -> AbstractContextManager[ServiceProvider]:
    program = [python("python3-saml") / "bin/python", PROGRAMS / "saml_flask.py"]
    return _program(folder, server, [*program])


def passport(folder: Path, server: Server) -> AbstractContextManager[ServiceProvider]:
    (folder / "node_modules").symlink_to(node("saml") / "node_modules")
    shutil.copy(PROGRAMS / "saml_passport.mjs", folder)
    return _program(folder, server, [node_program(), folder / "saml_passport.mjs"])


@contextmanager
def _program(folder: Path, server: Server, command: list[Path | str]) -> Iterator[ServiceProvider]:
    keys(folder, server)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with running(command, folder, port, IDP=str(folder / "idp.xml")):
        (folder / "sp.xml").write_text(requests.get(f"{url}/metadata", timeout=20).text)
        # passport-saml's metadata names no single logout by redirect, though it does it.
        register(server, folder / "sp.xml", "--slo-url", f"{url}/sls")
        yield ServiceProvider(url, "/", "/logout")


KINDS: dict[str, Callable[[Path, Server], AbstractContextManager[ServiceProvider]]] = {
    "mellon": mellon,
    "python3-saml": flask,
    "passport-saml": passport,
}


@pytest.fixture(scope="module")
def speaking(server: Server) -> Server:
    """The server, which has metadata since the first registration."""
    place = ("--entity-id", "https://first.example", "--acs-url", "https://first.example/acs")
    server.flask("client", "create", "--name", "First", *place)
    return server


@pytest.fixture(scope="module", params=list(KINDS))
def provider(
    request: pytest.FixtureRequest, speaking: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServiceProvider]:
    with KINDS[request.param](tmp_path_factory.mktemp(request.param), speaking) as provider:
        yield provider


@pytest.fixture(scope="module")
def issuer(server: Server) -> Flask:
    """The server in this process: it signs what it would not send."""
    settings = {k: v for k, v in server.environ.items() if k.startswith("SSO_")}
    return create_app(settings, server.folder)


@dataclass
class OpenID:
    """An application that speaks OpenID Connect, and its token of a person."""

    server: Server
    token: str

    def is_live(self) -> bool:
        headers = {"Authorization": f"Bearer {self.token}"}
        url = f"{self.server.base_url}/oauth2/userinfo"
        status = requests.get(url, headers=headers, timeout=20).status_code
        assert status in (200, 401)
        return status == 200


@pytest.fixture(scope="module")
def client(server: Server) -> dict[str, Any]:
    return server.register("Notes", CALLBACK, "--first-party")


def openid(server: Server, client: dict[str, Any], person: Person) -> OpenID:
    """Sign in to an OpenID Connect application with the session that is there."""
    query = {"response_type": "code", "client_id": client["client_id"], "scope": "openid",
             "redirect_uri": CALLBACK, "state": "x"}  # fmt: skip
    url = f"{server.base_url}/oauth2/authorize"
    answer = person.http.get(url, params=query, allow_redirects=False, timeout=20)
    assert answer.headers["Location"].startswith(f"{CALLBACK}?code="), answer.headers
    [code] = parse_qs(urlsplit(answer.headers["Location"]).query)["code"]
    tokens = requests.post(
        f"{server.base_url}/oauth2/token",
        data={"grant_type": "authorization_code", "code": code, "redirect_uri": CALLBACK},
        auth=(client["client_id"], client["client_secret"]),
        timeout=20,
    ).json()
    return OpenID(server, tokens["access_token"])


def test_one_sign_out_for_both(
    provider: ServiceProvider, server: Server, client: dict[str, Any]
) -> None:
    person = Person(provider)
    identity = provider.sign_in(person)
    assert (identity["email"], identity["groups"]) == (DANA.email, ["staff"])
    assert re.fullmatch(r"[\w-]{20,}", identity["name_id"])
    notes = openid(server, client, person)
    assert (provider.has_session(person), notes.is_live()) == (True, True)

    leave = person.http.get(provider.url + provider.logout, allow_redirects=False, timeout=20)
    person.follow(leave, until="you are out")
    assert (provider.has_session(person), notes.is_live()) == (False, False)
    answer = person.follow(provider.open(person), until='type="password"')
    assert answer.url.startswith(server.base_url)

    # And the other way: it begins at the server, and the browser goes to the service provider.
    again = provider.sign_in(person)
    assert again == identity
    notes = openid(server, client, person)
    leave = person.http.get(f"{server.base_url}/sign-out", timeout=20)
    person.follow(leave, until="On a shared computer")
    assert (provider.has_session(person), notes.is_live()) == (False, False)


def message(provider: ServiceProvider, person: Person) -> tuple[str, dict[str, str]]:
    """Return where the server's answer is posted, and the fields of its form."""
    page = person.follow(provider.open(person), until='name="SAMLResponse"').text
    [action] = re.findall(r'<form[^>]* action="(http[^"]*)"', page)
    fields = dict(re.findall(r'name="(SAMLResponse|RelayState)" value="([^"]*)"', page))
    assert "SAMLResponse" in fields, page
    return unescape(action), {name: unescape(value) for name, value in fields.items()}


def signed_again(issuer: Flask, response: str, audience: str | None = None, key: Any = None) -> str:
    """Return a response with another audience, signed by the server's key, or by another one."""
    root = etree.fromstring(base64.b64decode(response))
    for signature in root.findall(".//ds:Signature", NAMESPACES):
        signature.getparent().remove(signature)
    assertion = root.find("saml:Assertion", NAMESPACES)
    if audience:
        assertion.find(".//saml:Audience", NAMESPACES).text = audience
    with issuer.app_context(), database.connection() as connection:
        own = saml.signing_key(connection)
    private = key or own.private
    root.replace(assertion, xml_signatures.sign(assertion, private, own.certificate))
    root = xml_signatures.sign(root, private, own.certificate)
    return base64.b64encode(etree.tostring(root)).decode()


def test_an_assertion_for_another(provider: ServiceProvider, issuer: Flask) -> None:
    person = Person(provider)
    another = rsa.generate_private_key(65537, 2048)
    attempts: list[dict[str, Any]] = [{"audience": "https://other.example"}, {"key": another}, {}]
    for change in attempts:
        url, fields = message(provider, person)
        fields["SAMLResponse"] = signed_again(issuer, fields["SAMLResponse"], **change)
        answer = person.http.post(url, fields, allow_redirects=False, timeout=20)
        if change:
            assert answer.status_code >= 400, (change, answer.text)
            assert not provider.has_session(person)
        else:
            assert answer.status_code in (302, 303), answer.text
            assert provider.has_session(person)
