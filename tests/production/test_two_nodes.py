"""nginx in front of two nodes, PostgreSQL and Redis behind: no node is missed."""

import json
import signal
import socket
import ssl
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

import pytest
import requests
from joserfc import jwt
from joserfc.jwk import KeySet
from requests.adapters import HTTPAdapter

from sso.extensions import db
from tests.production.audit import audit
from tests.production.expected import Customer, Expected
from tests.production.nginx import Inner, Nginx
from tests.production.people import (
    CALLBACK,
    EMAIL,
    PASSWORD,
    Person,
    Unfinished,
    picture_form,
)
from tests.production.seeding import a_person, application, migrate
from tests.support.actors import _Forms
from tests.support.processes import wait_for
from tests.support.proofs import DPoP
from tests.support.servers import Node, Postgresql, Redis
from tests.support.signing import ASSERTION_TYPE, EC, public, sign


class Site(NamedTuple):
    """What an operator runs, and somebody who uses it."""

    front: Nginx
    one: Node
    two: Node
    known: Person

    def person(self) -> Person:
        """A new browser, which reaches a node through nginx."""
        return Person(self.known.base_url, self.known.client_id, self.known.client_secret)


@pytest.fixture(scope="module")
def site(
    cluster: Postgresql, folder: Path, stack: ExitStack, make_node: Callable[..., Node]
) -> Site:
    redis = Redis(folder / "redis")
    stack.callback(redis.stop)
    redis.start()
    environ = {
        "SSO_DATABASE_URL": cluster.url,
        "SSO_REDIS_URL": redis.url,
        "SSO_TRUSTED_PROXIES": "1",
        "SSO_REFRESH_TOKEN_LEEWAY": "600",
    }
    one, two = make_node(1, **environ), make_node(1, **environ)
    front = Nginx(folder / "nginx", (one.port, two.port))
    stack.callback(front.stop)
    for node in (one, two):
        node.base_url = node.environ["SSO_BASE_URL"] = f"{front.origin}/api/auth"
    migrate(one)
    known = a_person(one)
    for node in (one, two):
        node.start()
    front.start()
    return Site(front, one, two, known)


@pytest.fixture(autouse=True)
def _trust(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(site.front.certificate))
    for node in (site.one, site.two):
        if not node.is_listening():
            node.start()
    # nginx asks nobody for a moment after both were away.
    wait_for(lambda: requests.get(f"{site.front.origin}/readyz", timeout=20).ok, "nginx")


def test_the_configuration_is_valid(site: Site) -> None:
    checked = site.front.check()
    assert checked.returncode == 0, checked.stderr
    assert "warn" not in checked.stderr


SECRET = "a-secret-in-a-query"


def test_no_query_is_logged(site: Site) -> None:
    """Neither of what is answered, nor of what goes wrong, nor the Referer's."""
    front, headers = site.front, {"Referer": f"https://localhost/x?token={SECRET}"}
    path = f"/api/auth/new-password?token={SECRET}"
    told = [requests.get(front.origin + path, headers=headers, timeout=20).status_code]
    told.append(
        requests.post(
            front.origin + path, data="x" * 300_000, headers=headers, timeout=20
        ).status_code
    )
    plain = f"http://localhost:{front.plain_port}{path}"
    told.append(requests.get(plain, allow_redirects=False, timeout=20).status_code)
    told.append(requests.get(f"{front.origin}/readyz?{SECRET}", timeout=20).status_code)
    for node in (site.one, site.two):
        node.stop()
    told.append(requests.get(front.origin + path, headers=headers, timeout=20).status_code)
    assert told == [410, 413, 308, 200, 503]
    last = time.monotonic() + 10  # nginx writes a line after it has answered
    log = ""
    while log.count("/api/auth/new-password HTTP/1.1") < 4 and time.monotonic() < last:
        log = (front.folder / "access.log").read_text()
    assert log.count("/api/auth/new-password HTTP/1.1") == 4, log
    assert '"GET /readyz HTTP/1.1" 200 ' in log
    everything = [*front.folder.glob("*.log"), front.folder / "output"]
    assert [one.name for one in everything if SECRET in one.read_text()] == []


def raw(front: Nginx, port: int, host: str, *, encrypted: bool, sni: str | None = None) -> bytes:
    """The answer to a request for this host."""
    trusting = ssl.create_default_context(cafile=str(front.certificate))
    trusting.check_hostname = False
    with socket.create_connection(("127.0.0.1", port), timeout=20) as plain:
        connection = trusting.wrap_socket(plain, server_hostname=sni) if encrypted else plain
        with connection:
            line = (
                f"GET /api/auth/oauth2/jwks HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
            )
            connection.sendall(line.encode())
            found = b""
            while data := connection.recv(4096):
                found += data
            return found


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "localhost.evil.example", "x", ""])
def test_other_hosts_get_no_answer(site: Site, host: str) -> None:
    front = site.front
    for port, encrypted in ((front.plain_port, False), (front.port, True)):
        found = raw(front, port, host, encrypted=encrypted, sni="localhost")
        assert b"Location" not in found
        assert b"keys" not in found
        if host:  # nginx itself answers an empty one with 400
            assert found == b""
    if host:
        with pytest.raises(ssl.SSLError):
            raw(front, front.port, host, encrypted=True, sni=host)


def test_the_host_is_answered_and_led_to_https(site: Site) -> None:
    front = site.front
    found = raw(front, front.plain_port, "LOCALHOST:80", encrypted=False)
    assert b"Location: https://localhost/api/auth/oauth2/jwks\r\n" in found
    assert b"keys" in raw(front, front.port, "localhost", encrypted=True, sni="localhost")


@pytest.mark.parametrize(
    ("path", "size", "status"),
    [
        ("account/picture", 5 * 1024 * 1024, 400),  # read whole, and without a cookie
        ("account/picture", 7 * 1024 * 1024, 413),
        ("admin/person/picture", 5 * 1024 * 1024, 404),  # of ours: nobody is signed in
        ("account", 5 * 1024 * 1024, 413),
    ],
)
def test_large_bodies_pass_where_pictures_are_uploaded(
    site: Site, path: str, size: int, status: int
) -> None:
    response = requests.post(
        f"{site.front.origin}/api/auth/{path}",
        data=picture_form(size),
        headers={"Content-Type": "multipart/form-data; boundary=b"},
        verify=str(site.front.certificate),
        allow_redirects=False,
        timeout=20,
    )
    assert response.status_code == status


def test_sign_in_on_one_node_and_go_on_at_the_other(site: Site) -> None:
    """Each step at a node that has not seen the one before."""
    person = site.person()
    site.two.stop()
    code = retried(person.authorize)  # nginx finds out
    site.two.start()
    site.one.stop(signal.SIGKILL)
    tokens = patient(lambda: person.exchange(code))
    assert tokens.status_code == 200, tokens.text
    assert person.authorize()  # the session is known here, too
    site.one.start()
    site.two.stop()
    renewed = patient(lambda: person.refresh(tokens.json()["refresh_token"]))
    assert renewed.status_code == 200, renewed.text
    assert person.userinfo(renewed.json()["access_token"]).status_code == 200


def test_a_proof_and_a_pushed_request_work_once_on_both_nodes(site: Site) -> None:
    person, key = site.person(), DPoP()
    nodes = [f"{node.origin}/api/auth" for node in (site.one, site.two)] * 4

    def proof(path: str, **more: Any) -> dict[str, str]:
        return key.header(path, htu=person.base_url + path, **more)

    codes = [person.authorize() for _ in nodes]
    same = proof("/oauth2/token")
    form = {
        "grant_type": "authorization_code", "redirect_uri": CALLBACK,
        "client_id": person.client_id, "client_secret": person.client_secret,
    }  # fmt: skip
    with ThreadPoolExecutor(len(nodes)) as pool:
        answers = list(pool.map(
            lambda node, code: requests.post(
                f"{node}/oauth2/token", data={**form, "code": code}, headers=same, timeout=60
            ),
            nodes, codes,
        ))  # fmt: skip
    assert sorted(one.status_code for one in answers) == [200] + [400] * 7
    [token] = [one.json()["access_token"] for one in answers if one.ok]
    headers = {"Authorization": f"DPoP {token}", **proof("/oauth2/userinfo", token=token)}
    with ThreadPoolExecutor(len(nodes)) as pool:
        told = list(pool.map(
            lambda node: requests.get(f"{node}/oauth2/userinfo", headers=headers, timeout=60),
            nodes,
        ))  # fmt: skip
    assert sorted(one.status_code for one in told) == [200] + [401] * 7

    request = {
        **form, "response_type": "code", "state": "st4te", "scope": "openid profile email",
    }  # fmt: skip
    pushed = requests.post(f"{nodes[0]}/oauth2/par", data=request, timeout=60).json()["request_uri"]
    query = {"client_id": person.client_id, "request_uri": pushed}
    url = f"{person.base_url}/oauth2/authorize"
    assert person.go_on("GET", url, params=query)
    with pytest.raises(Unfinished) as again:
        person.go_on("GET", url, params=query)
    assert "invalid_request_uri" in again.value.answer.text


def test_an_assertion_works_once_on_both_nodes(site: Site, tmp_path: Path) -> None:
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [public(EC)]}))
    own = ("--auth-method", "private_key_jwt", "--jwks", str(tmp_path / "jwks.json"))
    client_id = site.one.register("Bank", "https://bank.example/cb", *own)["client_id"]
    base_url, now = site.one.base_url, int(time.time())
    claims = {"iss": client_id, "sub": client_id, "aud": base_url, "iat": now, "exp": now + 60}
    for number in range(3):
        assertion = sign({**claims, "jti": str(number)})
        form = {
            "token": "t",
            "client_assertion": assertion,
            "client_assertion_type": ASSERTION_TYPE,
        }

        def ask(_: int, form: dict[str, str] = form) -> int:
            return requests.post(f"{base_url}/oauth2/introspect", form, timeout=20).status_code

        with ThreadPoolExecutor(8) as pool:
            first, *others = sorted(pool.map(ask, range(8)))
        assert first == 200
        assert set(others) <= {401, 429}  # many failures are limited


def test_a_node_dies_while_somebody_types_the_password(site: Site) -> None:
    person = site.person()
    site.two.stop()
    query = {
        "response_type": "code", "client_id": person.client_id, "state": "st4te",
        "redirect_uri": "http://127.0.0.1:9/callback",
    }  # fmt: skip
    url = f"{person.base_url}/oauth2/authorize"
    page = patient(lambda: person.browser.get(url, params=query, timeout=20))
    forms = _Forms()
    forms.feed(page.text)
    site.two.start()
    site.one.stop(signal.SIGKILL)
    form = {**forms.fields, "email": EMAIL, "password": PASSWORD}
    code = retried(lambda: person.go_on("POST", page.url, data=form))
    assert person.exchange(code).status_code == 200


def test_keys_are_rotated_and_nobody_meets_an_unknown_one(site: Site) -> None:
    """At any moment, what either node signs is verified with the key set of either."""
    person = site.person()
    kids: dict[str, set[str]] = {"before": set(), "after": set()}

    def sign_and_verify() -> str:
        answer = person.exchange(person.authorize())
        identity = answer.json()["id_token"]
        for node in (site.one, site.two):
            published = requests.get(f"{node.origin}/api/auth/oauth2/jwks", timeout=20).json()
            found = jwt.decode(identity, KeySet.import_key_set(published), algorithms=["RS256"])
        assert person.userinfo(answer.json()["access_token"]).status_code == 200
        return str(found.header["kid"])

    retried(person.authorize)
    kids["before"] = {sign_and_verify() for _ in range(4)}
    assert len(kids["before"]) == 1
    old = person.exchange(person.authorize()).json()["access_token"]
    rotated = json.loads(site.one.flask("key", "rotate", "--force", "--json"))
    assert rotated

    def everywhere() -> bool:
        """Both nodes, one after the other, use the new key."""
        kids["after"] = {sign_and_verify() for _ in range(4)}
        return not kids["before"] & kids["after"]

    wait_for(everywhere, "the new key at both nodes", seconds=25)
    assert len(kids["after"]) == 1
    assert person.userinfo(old).status_code == 200


def test_nodes_die_under_load(site: Site) -> None:
    """What a person meets is mended by trying again; what was answered is in the database."""
    stop, expectations = Event(), []

    def serve(number: int) -> None:
        expectations.append(Customer(site.person(), [site.known.base_url], stop, number).run())

    threads = [Thread(target=serve, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        site.one.stop(signal.SIGKILL)
        site.one.start()
        site.two.stop()  # gracefully, as at an upgrade
        site.two.start()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    whole = Expected()
    for expected in expectations:
        whole.merge(expected)
    app = application(site.one)
    found = audit(app, whole, site.person())
    with app.app_context():
        db.engine.dispose()
    assert found.wrong == []
    assert found.figures["token responses seen by clients"] > 0


def test_without_any_node_the_answer_is_503(site: Site) -> None:
    for node in (site.one, site.two):
        node.stop()
    person = site.person()
    answer = person.refresh("whatever")
    assert answer.status_code == 503
    assert answer.headers["Retry-After"]
    assert answer.json()["error"] == "temporarily_unavailable"


class From(HTTPAdapter):
    """Speaks from another address of this machine."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, source_address=("127.0.0.9", 0), **kwargs)


FORGED = {
    "X-Forwarded-For": "6.6.6.6",
    "X-Forwarded-Proto": "http",
    "X-Forwarded-Host": "evil.example",
    "X-Forwarded-Prefix": "/evil",
}


def test_addresses_behind_one_proxy(site: Site) -> None:
    """The log has the client's own address, whatever it says of itself."""
    sign_in_from_elsewhere(site.person())
    log = site.one.log + site.two.log
    assert '"address": "127.0.0.9"' in log
    assert "6.6.6.6" not in log


def test_addresses_behind_two_proxies(
    site: Site,
    cluster: Postgresql,
    folder: Path,
    stack: ExitStack,
    make_node: Callable[..., Node],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = make_node(1, SSO_DATABASE_URL=cluster.url, SSO_TRUSTED_PROXIES="2")
    inner = Inner(folder / "inner", node.port)
    front = Nginx(folder / "front", (inner.port, inner.port))
    node.base_url = node.environ["SSO_BASE_URL"] = f"{front.origin}/api/auth"
    node.start()
    for proxy in (inner, front):
        stack.callback(proxy.stop)
        proxy.start()
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(front.certificate))
    person = site.person()
    person.base_url = node.base_url
    sign_in_from_elsewhere(person)
    assert '"address": "127.0.0.9"' in node.log
    assert "6.6.6.6" not in node.log


def sign_in_from_elsewhere(person: Person) -> None:
    person.browser.mount("https://", From())
    person.browser.headers.update(FORGED)
    assert retried(person.authorize)


def retried(act: Callable[[], str]) -> str:
    """What a person does who sees that the service cannot be used at the moment."""
    for _ in range(10):
        try:
            return act()
        except Unfinished as unfinished:
            away(unfinished.answer)
    return act()


def patient(ask: Callable[[], requests.Response]) -> requests.Response:
    """What an application's backend does. nginx leaves a node alone for 2 s after a fault."""
    for _ in range(10):
        answer = ask()
        if answer.status_code != 503:
            return answer
        away(answer)
    return ask()


def away(answer: requests.Response) -> None:
    """A 503 says when to try again; half of that is soon enough for a test."""
    assert answer.status_code == 503, answer.text
    time.sleep(float(answer.headers["Retry-After"]) / 2)
