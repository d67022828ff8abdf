"""Workload identity: JWTs of Kubernetes, GitHub Actions and GitLab CI in place of a secret."""

import hmac
import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from flask import Flask
from joserfc.util import urlsafe_b64decode, urlsafe_b64encode
from werkzeug.test import TestResponse

from sso import audit
from sso.extensions import db
from sso.oauth import key_sets, workload_identity
from sso.process import addresses
from sso.services import clients
from sso.store import redemption
from tests.conftest import Clock
from tests.support import platforms
from tests.support.actors import ISSUER, claims_of
from tests.support.events import events
from tests.support.platforms import DISCOVERY, KEY_SET, Platform, of_github, of_kubernetes
from tests.support.services import API, Service, make_resource_server, make_service
from tests.support.signing import (
    ASSERTION_TYPE,
    EC,
    KEYS,
    RSA,
    KeyedParty,
    public,
    sign,
    unsigned,
)

PATTERN = "system:serviceaccount:reports:*"
SHAPES: dict[str, tuple[str, Callable[..., dict[str, Any]], dict[str, Any]]] = {
    "Kubernetes": (PATTERN, of_kubernetes, {}),
    "GitHub": ("repo:octo-org/octo-repo:environment:production", of_github, {"typ": "JWT"}),
    "GitLab": (
        "project_path:my-group/my-project:ref_type:branch:ref:*",
        platforms.of_gitlab,
        {"typ": "JWT"},
    ),
}


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Platform]:
    """An issuer on this machine, whose address counts as public, and whose certificate is good."""
    monkeypatch.setattr(addresses, "forbidden", lambda *_: None)
    monkeypatch.setenv("SSL_CERT_FILE", str(platforms.certificate(tmp_path)))
    with platforms.serving(tmp_path) as platform:
        yield platform


def make(app: Flask, platform: Platform, subject: str = PATTERN, **more: Any) -> Service:
    make_resource_server(app)
    return make_workload(app, platform.issuer, subject, **more)


def make_workload(app: Flask, issuer: str, subject: str = PATTERN, **more: Any) -> Service:
    given = {"trust_issuer": issuer, "trust_subject": subject, "default_api": API, **more}
    service = make_service(app, **given)
    assert service.client_secret == ""
    return service


@pytest.fixture
def service(app: Flask, platform: Platform) -> Service:
    return make(app, platform)


def ask(service: Service, jwt: str, **more: str | None) -> TestResponse:
    return service.ask(client_assertion_type=ASSERTION_TYPE, client_assertion=jwt, **more)


def refused(answer: TestResponse, words: str, status: int = 401) -> bool:
    body = answer.get_json()
    error = "invalid_client" if status == 401 else "temporarily_unavailable"
    assert (answer.status_code, body["error"]) == (status, error), body
    assert words in body["error_description"], body
    return True


def distrusted(service: Service, answer: TestResponse, words: str) -> bool:
    """Return whether the answer does not say what is wrong, and the audit trail does."""
    refused(answer, "it is not one of an issuer and a workload that the client trusts")
    *_, event = events(service.app, "client_authentication_failed")
    assert words in event["reason"], event
    return True


@pytest.mark.parametrize("shape", SHAPES)
def test_a_workload_gets_a_token(app: Flask, platform: Platform, shape: str) -> None:
    subject, claims, header = SHAPES[shape]
    service = make(app, platform, subject)
    answer = ask(service, platform.jwt(claims(), **header))
    assert answer.status_code == 200, answer.text
    token = answer.get_json()["access_token"]
    assert claims_of(token)["sub"] == service.client_id
    assert platform.asked == [DISCOVERY, KEY_SET]
    again = ask(service, platform.jwt(claims(), **header))
    assert again.status_code == 200
    assert platform.asked == [DISCOVERY, KEY_SET]  # they are kept
    form = {"client_assertion_type": ASSERTION_TYPE, "client_id": service.client_id}
    assertion = platform.jwt(claims(), **header)
    found = service.post(
        "/oauth2/introspect", {**form, "client_assertion": assertion, "token": token}
    )
    assert found.get_json()["active"] is True


@pytest.mark.parametrize("alg", ["RS256", "PS256", "ES256", "EdDSA"])
def test_algorithms(app: Flask, platform: Platform, alg: str) -> None:
    service, key = make(app, platform), KEYS[alg]
    platform.key_set = {"keys": [public(key, "a")]}
    claims = {"iss": platform.issuer, **of_kubernetes()}
    assert ask(service, sign(claims, key, alg=alg, kid="a")).status_code == 200


def test_a_subject_that_is_called_as_the_client(
    app: Flask, platform: Platform, service: Service
) -> None:
    """The issuer names the workload by its client ID, and still speaks for it."""
    with app.app_context():
        clients.change(audit.SYSTEM, service.client_id, {"trust_subject": service.client_id})
        db.session.commit()
    assert ask(service, platform.jwt(of_kubernetes(sub=service.client_id))).status_code == 200
    assert distrusted(service, ask(service, platform.jwt(of_kubernetes())), "its sub")


def test_an_audience_of_its_own(app: Flask, platform: Platform) -> None:
    service = make(app, platform, trust_audience="sso")
    right: tuple[Any, ...] = ("sso", ["sso"])
    for audience in right:
        assert ask(service, platform.jwt(of_kubernetes(aud=audience))).status_code == 200
    for audience in (ISSUER, "SSO", ["sso", "sso2"], ["sso", "sso"], [], None, {"sso": 1}, "sso "):
        assert refused(ask(service, platform.jwt(of_kubernetes(aud=audience))), "its aud")


@pytest.mark.parametrize("trusted", ['"sso"', "b\\c", "bücher"])
def test_an_audience_that_no_description_can_name(
    app: Flask, platform: Platform, trusted: str
) -> None:
    service = make(app, platform, trust_audience=trusted)
    assert refused(ask(service, platform.jwt(of_kubernetes())), "its aud has to be the audience")
    assert ask(service, platform.jwt(of_kubernetes(aud=trusted))).status_code == 200


SUB = "system:serviceaccount:reports:nightly"


@pytest.mark.parametrize(
    "claims",
    [
        {"sub": SUB.upper()},
        {"sub": SUB.replace("reports", "Reports")},
        {"sub": SUB.replace("reports", "report")},
        {"sub": SUB.replace("reports", "reports2")},
        {"sub": "x" + SUB},
        {"sub": " " + SUB},
        {"sub": "system:serviceaccount:reports"},
        {"sub": "system:serviceaccount:reports:"[:-1]},
        {"sub": ""},
        {"sub": None},
        {"sub": 7},
        {"sub": [SUB]},
    ],
)
def test_subjects_that_nearly_fit(
    platform: Platform, service: Service, claims: dict[str, Any]
) -> None:
    answer = ask(service, platform.jwt(of_kubernetes(**claims)))
    assert distrusted(service, answer, "its sub is not one")


@pytest.mark.parametrize(
    "change",
    [
        str.upper,
        lambda issuer: issuer + "/",
        lambda issuer: issuer[:-1],
        lambda issuer: issuer + "0",
        lambda issuer: issuer.replace("https", "http"),
        lambda issuer: issuer.removeprefix("https://"),
        lambda issuer: issuer + "/.well-known/openid-configuration",
        lambda issuer: [issuer],
        lambda _: None,
        lambda _: ISSUER,
    ],
)
def test_issuers_that_nearly_fit(
    platform: Platform, service: Service, change: Callable[[str], Any]
) -> None:
    jwt = platform.jwt(of_kubernetes(iss=change(platform.issuer)))
    assert distrusted(service, ask(service, jwt), "its iss is not the issuer")


@pytest.mark.parametrize(
    "audience",
    [
        ISSUER + "/",
        ISSUER.upper(),
        ISSUER[:-1],
        ISSUER + "/oauth2/token",
        [ISSUER, "https://kubernetes.default.svc"],
        [[ISSUER]],
        ["*"],
        None,
    ],
)
def test_audiences_that_nearly_fit(platform: Platform, service: Service, audience: Any) -> None:
    assert refused(ask(service, platform.jwt(of_kubernetes(aud=audience))), "its aud has to be")


def test_times(clock: Clock, platform: Platform, service: Service) -> None:
    clock.stand_still()
    now = int(clock.now().timestamp())
    for claims, words in (
        ({"exp": now}, "it has expired"),
        ({"exp": now - 1}, "it has expired"),
        ({"exp": None}, "it has no exp"),
        ({"exp": str(now + 60)}, "its exp is not a number"),
        ({"exp": now + 24 * 3600 + 46}, "more than 24 hours ahead"),
        ({"nbf": now + 46}, "its nbf is in the future"),
        ({"iat": now + 46}, "its iat is in the future"),
    ):
        assert refused(ask(service, platform.jwt(of_kubernetes(**claims))), words)
    for claims in ({"exp": now + 1}, {"iat": now - 80_000}, {"iat": None, "nbf": None}):
        assert ask(service, platform.jwt(of_kubernetes(**claims))).status_code == 200


@pytest.mark.parametrize("with_jti", [True, False])
def test_it_counts_once(platform: Platform, service: Service, with_jti: bool) -> None:
    """Also in another spelling of the same signature, where there is no jti."""
    claims = of_kubernetes() if with_jti else of_kubernetes(jti=None)
    jwt = platform.jwt(claims)
    assert ask(service, jwt).status_code == 200
    for again in (jwt, jwt[:-1] + chr(ord(jwt[-1]) + 1)):
        answer = ask(service, again)
        assert answer.status_code == 401
    if with_jti:
        assert refused(ask(service, platform.jwt(claims)), "it was used before")


def test_another_signature_of_the_same_token(platform: Platform, service: Service) -> None:
    """Anyone can make a second signature of an ECDSA one: s, and the order of the curve less s."""
    platform.key_set = {"keys": [public(EC)]}
    claims = {"iss": platform.issuer, **of_kubernetes(jti=None)}
    del claims["jti"]
    jwt = sign(claims, EC)
    assert ask(service, jwt).status_code == 200
    text, _, signature = jwt.rpartition(".")
    raw = urlsafe_b64decode(signature.encode())
    order = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
    s = order - int.from_bytes(raw[32:])
    twin = urlsafe_b64encode(raw[:32] + s.to_bytes(32)).decode()
    assert refused(ask(service, f"{text}.{twin}"), "it was used before")


@pytest.mark.parametrize("jti", ["", 7, "j" * 256, None, ["a"]])
def test_an_identifier_that_is_none(platform: Platform, service: Service, jti: Any) -> None:
    claims = {"iss": platform.issuer, **of_kubernetes(), "jti": jti}
    assert refused(ask(service, sign(claims, RSA, alg="RS256")), "its jti is not a text")


def test_few_at_a_time(
    platform: Platform, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redemption, "KEPT_ONCE", 1)
    assert ask(service, platform.jwt(of_kubernetes())).status_code == 200
    assert refused(ask(service, platform.jwt(of_kubernetes())), "too many assertions")


def test_a_token_counts_once_at_all_clients(
    app: Flask, platform: Platform, service: Service
) -> None:
    """A JWT that somebody saw at one client gets nothing at another that trusts the workload."""
    other, jwt = make_workload(app, platform.issuer), platform.jwt(of_kubernetes())
    assert ask(service, jwt).status_code == 200
    assert refused(ask(other, jwt), "it was used before")
    assert ask(other, platform.jwt(of_kubernetes())).status_code == 200


def test_a_stranger_does_not_learn_whom_a_client_trusts(
    app: Flask, platform: Platform, service: Service
) -> None:
    """Near misses in each part have one answer, and the keys are read before anything else."""
    other = "https://other.example"
    jwts = [
        platform.jwt(of_kubernetes(sub="system:serviceaccount:billing:nightly")),
        platform.jwt(of_kubernetes(iss=other)),
        sign({"iss": platform.issuer, **of_kubernetes()}, EC, kid="k1"),
        sign({"iss": other, **of_kubernetes()}, EC, kid="k1"),
        sign({"iss": other, **of_kubernetes(aud="x")}, EC, kid="k1"),
        sign({**of_kubernetes(exp=1), "iss": other, "sub": "x"}, EC, kid="k1"),
    ]
    answers = {ask(service, jwt).text for jwt in jwts}
    assert len(answers) == 1
    assert platform.asked == [DISCOVERY, KEY_SET]


def test_another_clients_trust(app: Flask, platform: Platform, service: Service) -> None:
    """The request names the client: what another one trusts does not count."""
    other = make_workload(app, platform.issuer, "system:serviceaccount:billing:*")
    jwt = platform.jwt(of_kubernetes())
    assert distrusted(other, ask(other, jwt), "its sub is not one")
    keyless = make_service(app, default_api=API)
    keyless.client_secret = ""
    assert refused(ask(keyless, jwt), "its iss and sub are not the client_id")
    assert refused(ask(service, jwt, client_id=None), "its iss and sub are not the client_id")
    assert refused(ask(service, jwt, client_id="unknown"), "its iss and sub are not")
    assert ask(service, jwt).status_code == 200


def test_keys_of_the_platform_speak_for_workloads_alone(
    app: Flask, platform: Platform, service: Service
) -> None:
    """A JWT of the platform that poses as the client's own assertion is refused."""
    claims = of_kubernetes(iss=service.client_id, sub=service.client_id, aud=ISSUER)
    answer = ask(service, platform.jwt(claims))
    assert refused(answer, "its iss is not the issuer")


@pytest.mark.parametrize("kid", ["k2", "K1", "", None])
def test_keys_that_it_does_not_have(platform: Platform, service: Service, kid: str | None) -> None:
    answer = ask(service, platform.jwt(of_kubernetes(), kid=kid))
    if kid is None:
        assert answer.status_code == 200  # RFC 7515 §4.1.4: it is optional
    else:
        assert distrusted(service, answer, "not signed with a key of the trusted issuer")


def test_algorithm_confusion(platform: Platform, service: Service) -> None:
    claims = {"iss": platform.issuer, **of_kubernetes()}
    for alg in ("none", "None", "NONE", "", None):
        header = {"alg": alg, "kid": "k1"}
        assert refused(ask(service, unsigned(header, claims)), "its alg is none of")
    pem = RSA.public_key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    for alg in ("HS256", "HS384", "HS512"):
        text = unsigned({"alg": alg, "kid": "k1"}, claims).rpartition(".")[0]
        mac = hmac.digest(pem, text.encode(), "sha256")
        forged = f"{text}.{urlsafe_b64encode(mac).decode()}"
        assert refused(ask(service, forged), "its alg is none of")
    for alg in ("RS384", "RS512", "ES384", "ES512"):
        assert refused(ask(service, unsigned({"alg": alg}, claims)), "its alg is none of")
    own_key = sign(claims, EC, jwk=public(EC), kid=None)
    words = "not signed with a key of the trusted issuer"
    assert distrusted(service, ask(service, own_key), words)


@pytest.mark.parametrize("typ", ["at+jwt", "logout+jwt", "dpop+jwt", "JOSE"])
def test_types_of_other_tokens(platform: Platform, service: Service, typ: str) -> None:
    assert refused(ask(service, platform.jwt(of_kubernetes(), typ=typ)), "its typ is not")


def redirect(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(302)
    handler.send_header("Location", KEY_SET)
    handler.end_headers()


def huge(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    with suppress(OSError):
        handler.wfile.write(b" " * (key_sets.MAX_LENGTH + 1))


def slow(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    with suppress(OSError):
        for _ in range(40):
            handler.wfile.write(b" ")
            time.sleep(0.02)


@pytest.mark.parametrize("path", [DISCOVERY, KEY_SET])
@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (redirect, "it answered 302"),
        (huge, "it is longer than"),
        (slow, "it did not answer in time"),
    ],
)
def test_documents_that_cannot_be_read(
    app: Flask, platform: Platform, service: Service, monkeypatch: pytest.MonkeyPatch,
    path: str, reply: Callable[[BaseHTTPRequestHandler], None], words: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(key_sets, "SECONDS", 0.3)
    platform.replies[path] = reply
    answer = ask(service, platform.jwt(of_kubernetes()))
    text = "The keys of the issuer that the client trusts could not be read"
    assert refused(answer, f"{text}: {words}")
    assert platform.issuer not in answer.text
    asked = len(platform.asked)
    assert refused(ask(service, platform.jwt(of_kubernetes())), words)
    assert len(platform.asked) == asked  # strangers cannot make us ask again and again
    told = events(app, "client_authentication_failed")
    assert words in told[0]["reason"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"issuer": "https://other.example"}, "names another issuer"),
        ({"issuer": None}, "names another issuer"),
        ({"jwks_uri": None}, "not a public https URL"),
        ({"jwks_uri": "http://127.0.0.1/keys"}, "not a public https URL"),
        ({"jwks_uri": ["https://a.example"]}, "not a public https URL"),
        ({"jwks_uri": "file:///etc/passwd"}, "not a public https URL"),
    ],
)
def test_metadata_that_does_not_fit(
    platform: Platform, service: Service, change: dict[str, Any], words: str
) -> None:
    platform.metadata |= change
    assert refused(ask(service, platform.jwt(of_kubernetes())), words)
    assert platform.asked == [DISCOVERY]


def test_metadata_may_not_lead_to_private_addresses(
    platform: Platform, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_private = ("10.0.0.1", "169.254.169.254")
    monkeypatch.setattr(
        addresses, "forbidden", lambda address, _: "private" if str(address) in is_private else None
    )
    platform.metadata["jwks_uri"] = "https://169.254.169.254/keys"
    assert refused(ask(service, platform.jwt(of_kubernetes())), "not a public https URL")


def test_an_issuer_with_a_path(app: Flask, platform: Platform) -> None:
    """Its metadata are under its path; a slash at the end is left out (OIDC Discovery §4)."""
    make_resource_server(app)
    for path in ("/id/ABC", "/id/DEF/"):
        issuer = platform.issuer + path
        service = make_workload(app, issuer)
        where = f"{path.removesuffix('/')}{DISCOVERY}"

        def reply(handler: BaseHTTPRequestHandler, issuer: str = issuer) -> None:
            handler.send_response(200)
            handler.end_headers()
            document = {**platform.metadata, "issuer": issuer}
            handler.wfile.write(json.dumps(document).encode())

        platform.replies[where] = reply
        jwt = platform.jwt(of_kubernetes(iss=issuer))
        assert ask(service, jwt).status_code == 200
        assert where in platform.asked


def test_keys_that_are_registered(app: Flask) -> None:
    """Of a cluster that this server does not reach; nothing is read then."""
    make_resource_server(app)
    issuer = "https://kubernetes.default.svc.cluster.local"
    service = make_workload(app, issuer, jwks={"keys": [public(RSA)]})
    jwt = sign({"iss": issuer, **of_kubernetes()}, RSA, alg="RS256")
    assert ask(service, jwt).status_code == 200
    other = sign({"iss": issuer, **of_kubernetes()}, EC)
    words = "not signed with a key of the trusted issuer"
    assert distrusted(service, ask(service, other), words)


def test_registered_keys_are_those_of_the_issuer(app: Flask) -> None:
    """A program that signs with one of them in the client's own name is refused."""
    make_resource_server(app)
    issuer = "https://kubernetes.default.svc.cluster.local"
    service = make_workload(app, issuer, jwks={"keys": [public(RSA)]})
    keyed = KeyedParty(app, service.client_id, "", "", None, RSA, "RS256")
    for client_id in (None, service.client_id):
        answer = ask(service, keyed.assertion(), client_id=client_id)
        assert refused(answer, "its iss is not the issuer that the client trusts")
    with app.app_context():  # the near miss: without the issuer, they are its own
        clients.change(audit.SYSTEM, service.client_id, {"trust_issuer": None})
        db.session.commit()
    assert ask(service, keyed.assertion()).status_code == 200


def test_it_has_no_secret(app: Flask, platform: Platform, service: Service) -> None:
    run = app.test_cli_runner().invoke
    rotated = run(args=["client", "rotate-secret", service.client_id])
    assert rotated.exit_code != 0
    assert service.ask(client_secret="x").status_code == 401
    assert service.ask().status_code == 401
    with app.app_context():
        clients.change(audit.SYSTEM, service.client_id, {"disabled": True})
        db.session.commit()
    assert ask(service, platform.jwt(of_kubernetes())).status_code == 401


KEY = {"jwks": {"keys": [public(RSA)]}}
TRUST = {"trust_issuer": "https://ci.example", "trust_subject": "job:*"}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"trust_issuer": "https://ci.example"}, "trust-issuer needs --trust-subject"),
        ({"trust_subject": "job:*"}, "needs --trust-issuer"),
        ({"trust_audience": "sso"}, "needs --trust-issuer"),
        ({**TRUST, "trust_subject": "*"}, "begins with"),
        ({**TRUST, "trust_subject": "*:main"}, "begins with"),
        ({**TRUST, "trust_subject": "repo:*"}, "no whole owner"),
        ({**TRUST, "trust_subject": "repo:acme*:ref:refs/heads/main"}, "no whole owner"),
        ({**TRUST, "trust_subject": "project_path:acme*/web:*"}, "no whole owner"),
        ({**TRUST, "trust_subject": "r*"}, "no whole owner"),
        ({**TRUST, "trust_subject": ""}, "is empty"),
        ({**TRUST, "trust_subject": "a" * 201}, "is longer"),
        ({**TRUST, "trust_subject": "a\nb"}, "control characters"),
        ({**TRUST, "trust_issuer": "http://ci.example"}, "it is not https"),
        ({**TRUST, "trust_issuer": "https://ci.example?x=1"}, "it has a query"),
        ({**TRUST, "trust_issuer": "https://ci.example#x"}, "it has a fragment"),
        ({**TRUST, "trust_issuer": "https://10.0.0.1"}, "private address"),
        ({**TRUST, "trust_issuer": "ci.example"}, "the trusted issuer"),
        ({**TRUST, "auth_method": "client_secret_basic"}, "needs --auth-method private_key_jwt"),
        ({**TRUST, **KEY, "request_object_signing_alg": "RS256"}, "request_object_signing_alg"),
        ({**TRUST, "token_endpoint_auth_signing_alg": "RS256"}, "token_endpoint_auth_signing_alg"),
        ({**TRUST, **KEY, "jwks_uri": "https://ci.example/keys"}, "both a key set and a JWKS URL"),
        ({**TRUST, "profile": "fapi2"}, "a key of the client itself"),
    ],
)
def test_what_is_not_registered(app: Flask, fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make_service(app, apis=[], **fields)


def test_commands(app: Flask) -> None:
    make_resource_server(app)
    run = app.test_cli_runner().invoke
    made = run(
        args=["client", "create", "--name", "Deploy", "--service", "--api", API,
              "--trust-issuer", "https://token.actions.githubusercontent.com",
              "--trust-subject", "repo:octo-org/octo-repo:*", "--json"]
    )  # fmt: skip
    assert made.exit_code == 0, made.output
    client = json.loads(made.stdout)
    arguments = ["client", "create", "--name", "B", "--service", "--api", API, "--trust-issuer"]
    text = run(args=[*arguments, "https://ci.example", "--trust-subject", "job:1"]).output
    assert "It has no secret: JWTs of https://ci.example authenticate it." in text
    assert "client_secret" not in client
    assert client["token_endpoint_auth_method"] == "private_key_jwt"
    assert client["trust_subject"] == "repo:octo-org/octo-repo:*"
    client_id = client["client_id"]
    update = ["client", "update", client_id]
    assert run(args=[*update, "--trust-audience", "sso"]).exit_code == 0
    assert run(args=[*update, "--no-trust-audience"]).exit_code == 0
    refused = run(args=[*update, "--no-trust-issuer"])
    assert "its public keys are missing" in refused.output
    changed = run(args=[*update, "--no-trust-issuer", "--auth-method", "any", "--json"])
    assert changed.exit_code == 0, changed.output
    assert not [name for name in json.loads(changed.stdout) if "trust" in name]
    shown = run(args=["client", "show", client_id, "--json"]).output
    assert "trust_" not in shown
    again = run(args=[*update, "--trust-issuer", "https://ci.example", "--trust-subject", "j:*"])
    assert again.exit_code == 0, again.output


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        ("a", "a", True),
        ("a", "A", False),
        ("a", "ab", False),
        ("a*", "a", True),
        ("a*", "ab:c/d", True),
        ("a*c", "abc", True),
        ("a*c", "ac", True),
        ("a*c", "acb", False),
        ("ab*ba", "aba", False),
        ("ab*ba", "abba", True),
        ("a*b*c", "a--b--c", True),
        ("a*b*c", "a--c--b", False),
        ("a**c", "abc", True),
        ("a.c", "abc", False),
        ("a[bc]", "ab", False),
        ("a?", "ab", False),
        ("a*", "a\nb", True),
        ("", "", True),
        ("", "a", False),
    ],
)
def test_patterns(pattern: str, text: str, fits: bool) -> None:
    assert workload_identity.matches(pattern, text) is fits


def test_patterns_take_no_time() -> None:
    """What makes a regular expression run for hours."""
    pattern, text = "a" + "*a" * 99 + "b", "a" * 16_000
    began = time.perf_counter()
    assert not workload_identity.matches(pattern, text)
    assert time.perf_counter() - began < 0.5
