"""Real service providers: Debian's Apache with mod_auth_mellon and with Shibboleth, python3-saml,
pysaml2, passport-saml and Spring Security.
"""

import base64
import re
import shutil
import subprocess
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
from tests.applications.software import java, node, node_program, python, stop
from tests.applications.test_apache import MODULES
from tests.applications.test_apis import large, running
from tests.support.processes import Server, free_port, require, wait_for
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
SHIBBOLETH_MODULES = ("mpm_event", "authn_core", "authz_core", "authz_user", "dir", "headers",
                      "shib")  # fmt: skip
SHIBBOLETH_APACHE = """ServerRoot {folder}
PidFile {folder}/pid
Mutex file:{folder}
Listen 127.0.0.1:{port}
ServerName 127.0.0.1:{port}
ErrorLog /dev/stderr
User www-data
Group www-data
DocumentRoot {folder}/site
ShibConfig {folder}/shibboleth2.xml
<Location />
    AuthType shibboleth
    ShibRequestSetting requireSession 0
    Require shibboleth
</Location>
<Location /index.html>
    ShibRequestSetting requireSession 1
    Require valid-user
    Header always set X-Name-Id "%{{name_id}}e"
    Header always set X-Email "%{{email}}e"
    Header always set X-Groups "%{{groups}}e"
</Location>
"""
SHIBBOLETH = """<SPConfig xmlns="urn:mace:shibboleth:3.0:native:sp:config" clockSkew="60">
<OutOfProcess logger="{folder}/logger"/><InProcess logger="{folder}/logger"/>
<UnixListener address="{folder}/listener"/>
<ApplicationDefaults entityID="{url}/metadata" REMOTE_USER="name_id" signing="true">
<Sessions lifetime="28800" timeout="3600" relayState="ss:mem" checkAddress="false"
 handlerSSL="false" cookieProps="; path=/; HttpOnly" redirectLimit="exact">
<SSO entityID="{idp}">SAML2</SSO><Logout>SAML2 Local</Logout>
<Handler type="MetadataGenerator" Location="/Metadata" signing="false"/>
</Sessions>
<MetadataProvider type="XML" path="{folder}/idp.xml"/>
<AttributeExtractor type="XML" path="{folder}/map.xml"/>
<AttributeFilter type="XML" path="/etc/shibboleth/attribute-policy.xml"/>
<CredentialResolver type="File" key="{folder}/sp.key" certificate="{folder}/sp.pem"/>
</ApplicationDefaults>
<SecurityPolicyProvider type="XML" path="/etc/shibboleth/security-policy.xml"/>
<ProtocolProvider type="XML" reloadChanges="false" path="/etc/shibboleth/protocols.xml"/>
</SPConfig>"""
SHIBBOLETH_MAP = """<Attributes xmlns="urn:mace:shibboleth:2.0:attribute-map">
<Attribute name="urn:oasis:names:tc:SAML:2.0:nameid-format:persistent" id="name_id">
<AttributeDecoder xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"
 xsi:type="NameIDAttributeDecoder" formatter="$Name"/></Attribute>
<Attribute name="email" nameFormat="urn:oasis:names:tc:SAML:2.0:attrname-format:basic" id="email"/>
<Attribute name="groups" nameFormat="urn:oasis:names:tc:SAML:2.0:attrname-format:basic"
 id="groups"/>
</Attributes>"""
SHIBBOLETH_LOGGER = """log4j.rootCategory=WARN, console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.layout=org.apache.log4j.BasicLayout
"""


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
        return person.http.get(self.url + self.home, allow_redirects=False, timeout=60)

    def has_session(self, person: Person) -> bool:
        answer = self.open(person)
        assert answer.status_code in (200, 302, 303), answer.text
        return answer.status_code == 200


def keys(folder: Path, server: Server) -> str:
    """Write the service provider's key and what it knows of ours; return its certificate."""
    own = pair()
    key = own.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "sp.key").write_bytes(key)
    (folder / "sp.pem").write_text(own.certificate)
    metadata = requests.get(f"{server.base_url}/saml/metadata", timeout=60).text
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


@contextmanager
def shibboleth(_: Path, server: Server) -> Iterator[ServiceProvider]:
    """Apache with mod_shib, and its daemon, which keeps the sessions."""
    apache = require("Apache", shutil.which("apache2", path="/usr/sbin"))
    require("mod_shib", shutil.which("mod_shib.so", mode=0, path=MODULES))
    daemon = require("shibd", shutil.which("shibd", path="/usr/sbin"))
    with TemporaryDirectory(prefix="shibboleth") as place:  # www-data may not read pytest's
        folder, port = Path(place), free_port()
        url = f"http://127.0.0.1:{port}"
        keys(folder, server)
        names = {"folder": folder, "port": port, "url": url,
                 "idp": f"{server.base_url}/saml/metadata"}  # fmt: skip
        modules = [f"LoadModule {n}_module {MODULES}/mod_{n}.so\n"
                   for n in SHIBBOLETH_MODULES if n != "shib"]  # fmt: skip
        modules.append(f"LoadModule mod_shib {MODULES}/mod_shib.so\n")
        (folder / "apache2.conf").write_text("".join(modules) + SHIBBOLETH_APACHE.format(**names))
        (folder / "shibboleth2.xml").write_text(SHIBBOLETH.format(**names))
        (folder / "map.xml").write_text(SHIBBOLETH_MAP)
        (folder / "logger").write_text(SHIBBOLETH_LOGGER)
        for part in ("site", "web", "shibd"):
            (folder / part).mkdir()
        (folder / "site/index.html").write_text("name_id")
        (folder / "site/out").write_text("you are out")
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o755)
        environ = {"APACHE_RUN_DIR": place}
        with (
            background([daemon, "-F", "-f", "-c", folder / "shibboleth2.xml", "-p",
                        folder / "shibd.pid"], folder / "shibd", folder / "listener"),
            running([apache, "-D", "FOREGROUND", "-f", folder / "apache2.conf"],
                    folder / "web", port, **environ),
        ):  # fmt: skip
            metadata = requests.get(f"{url}/Shibboleth.sso/Metadata", timeout=60)
            (folder / "sp.xml").write_text(metadata.text)
            register(server, folder / "sp.xml")
            yield ServiceProvider(url, "/index.html", f"/Shibboleth.sso/Logout?return={url}/out")


@contextmanager
def background(command: list[Path | str], folder: Path, socket: Path) -> Iterator[None]:
    """Start a daemon, wait for its socket, stop it in the end."""
    log = folder / "output"
    with log.open("w") as output:
        process = subprocess.Popen(
            command, cwd=folder, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        wait_for(socket.exists, str(command[0]))
        yield
    except BaseException as error:
        error.add_note(log.read_text()[-4000:])
        raise
    finally:
        stop(process)


def flask(folder: Path, server: Server) -> AbstractContextManager[ServiceProvider]:
    program = [python("python3-saml") / "bin/python", PROGRAMS / "saml_flask.py"]
    return _program(folder, server, [*program])


def pysaml2(folder: Path, server: Server) -> AbstractContextManager[ServiceProvider]:
    require("xmlsec1", shutil.which("xmlsec1"))
    program = [python("pysaml2") / "bin/python", PROGRAMS / "saml_pysaml2.py"]
    return _program(folder, server, [*program])


def passport(folder: Path, server: Server) -> AbstractContextManager[ServiceProvider]:
    (folder / "node_modules").symlink_to(node("saml") / "node_modules")
    shutil.copy(PROGRAMS / "saml_passport.mjs", folder)
    return _program(folder, server, [node_program(), folder / "saml_passport.mjs"])


def spring(folder: Path, server: Server) -> AbstractContextManager[ServiceProvider]:
    program = java("saml-spring", PROGRAMS / "saml_spring.xml", PROGRAMS / "SamlSpring.java")
    runtime = require("Java", shutil.which("java"))
    return _program(
        folder, server, [runtime, "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-jar", program],
        metadata="/saml2/service-provider-metadata/sso", slo="/logout/saml2/slo", leave="/leave",
    )  # fmt: skip


@contextmanager
def _program(
    folder: Path,
    server: Server,
    command: list[Path | str],
    metadata: str = "/metadata",
    slo: str = "/sls",
    leave: str = "/logout",
) -> Iterator[ServiceProvider]:
    keys(folder, server)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with running(command, folder, port, IDP=str(folder / "idp.xml")):
        (folder / "sp.xml").write_text(requests.get(url + metadata, timeout=60).text)
        # passport-saml's metadata names no single logout by redirect, though it does it.
        register(server, folder / "sp.xml", "--slo-url", url + slo)
        yield ServiceProvider(url, "/", leave)


KINDS: dict[str, Callable[[Path, Server], AbstractContextManager[ServiceProvider]]] = {
    "mellon": mellon,
    "shibboleth": shibboleth,
    "python3-saml": flask,
    "pysaml2": pysaml2,
    "passport-saml": passport,
    "spring-security": spring,
}
MARKS = {
    "spring-security": large,
    "python3-saml": pytest.mark.exhaustive,
    "passport-saml": pytest.mark.exhaustive,
}


@pytest.fixture(scope="module")
def speaking(server: Server) -> Server:
    """The server, which has metadata since the first registration."""
    place = ("--entity-id", "https://first.example", "--acs-url", "https://first.example/acs")
    server.flask("client", "create", "--name", "First", *place)
    return server


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=MARKS.get(name, ())) for name in KINDS],
)
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
        status = requests.get(url, headers=headers, timeout=60).status_code
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
    answer = person.http.get(url, params=query, allow_redirects=False, timeout=60)
    assert answer.headers["Location"].startswith(f"{CALLBACK}?code="), answer.headers
    [code] = parse_qs(urlsplit(answer.headers["Location"]).query)["code"]
    tokens = requests.post(
        f"{server.base_url}/oauth2/token",
        data={"grant_type": "authorization_code", "code": code, "redirect_uri": CALLBACK},
        auth=(client["client_id"], client["client_secret"]),
        timeout=60,
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

    leave = person.http.get(provider.url + provider.logout, allow_redirects=False, timeout=60)
    person.follow(leave, until="you are out")
    assert (provider.has_session(person), notes.is_live()) == (False, False)
    answer = person.follow(provider.open(person), until='type="password"')
    assert answer.url.startswith(server.base_url)

    # And the other way: it begins at the server, and the browser goes to the service provider.
    again = provider.sign_in(person)
    assert again == identity
    notes = openid(server, client, person)
    leave = person.http.get(f"{server.base_url}/sign-out", timeout=60)
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
        answer = person.http.post(url, fields, allow_redirects=False, timeout=60)
        if change:
            assert answer.status_code >= 400, (change, answer.text)
            assert not provider.has_session(person)
        else:
            assert answer.status_code in (302, 303), answer.text
            assert provider.has_session(person)
