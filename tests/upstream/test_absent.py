"""What a provider leaves out is no yes: each claim absent, null, false, and of a wrong type."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
import requests

from sso import clock
from sso.config.upstream.oidc import (
    GitHubProvider,
    GoogleProvider,
    MicrosoftProvider,
    OidcProvider,
)
from sso.process import http_call
from sso.upstream import github, http, id_tokens
from sso.upstream import oidc as upstream_oidc
from sso.upstream.identity import UpstreamIdentity, UpstreamRefused, UpstreamUnavailable
from sso.upstream.oidc import OidcClient
from sso.upstream.remote_cache import RemoteUnavailable
from tests.conftest import Clock
from tests.support.each import each
from tests.support.signing import unsigned
from tests.support.upstreams import Internet, Upstream, answered, provider

ABSENT = object()
ODD: tuple[Any, ...] = (ABSENT, None, False, 0, "", "false", "yes", [], [True], {}, {"a": True})
TENANT = "8eaef023-2b34-4da1-9baa-8bc8c9d6a490"
OTHER = TENANT.replace("8", "9")
PERSONAL = MicrosoftProvider.CONSUMERS


def of(kind: type[OidcProvider], **more: Any) -> OidcProvider:
    return kind(id="x", type="x", client_id="us", client_secret="x", **more)


PLAIN = provider()
GOOGLE, MICROSOFT = of(GoogleProvider), of(MicrosoftProvider, tenant=TENANT)


def without_absent(**claims: Any) -> dict[str, Any]:
    return {name: value for name, value in claims.items() if value is not ABSENT}


@each("verified", [*ODD, True, "true"])
def test_email_verified(verified: object) -> None:
    claims = without_absent(email_verified=verified, hd="example.com")
    says_yes = verified is True or verified == "true"
    assert upstream_oidc.is_email_verified(PLAIN, "a@example.com", claims) == says_yes
    assert upstream_oidc.is_email_verified(GOOGLE, "a@example.com", claims) == says_yes
    # Microsoft's has another meaning; what counts there is another claim.
    assert not upstream_oidc.is_email_verified(MICROSOFT, "a@example.com", claims)


@each("owned", [*ODD, True, 1, "1", "true", "True"])
def test_who_owns_a_domain_at_microsoft(owned: object) -> None:
    claims = without_absent(xms_edov=owned, email_verified=True)
    says_yes = not any(owned is one for one in ODD)
    assert upstream_oidc.is_email_verified(MICROSOFT, "a@example.com", claims) == says_yes


@each(
    "email, hd, is_verified",
    [("a@gmail.com", ABSENT, True), ("A@GMAIL.COM", ABSENT, True), ("a@example.com", ABSENT, False),
     ("a@example.com", "", False), ("a@example.com", None, False), ("a@example.com", "x.y", True),
     ("a@gmail.com.example", ABSENT, False), ("a@notgmail.com", ABSENT, False)],
)  # fmt: skip
def test_addresses_that_google_does_not_own(email: str, hd: object, is_verified: bool) -> None:
    claims = without_absent(email_verified=True, hd=hd)
    assert upstream_oidc.is_email_verified(GOOGLE, email, claims) == is_verified


@each(
    "claim, groups",
    [(ABSENT, set()), (None, set()), ("staff", {"staff"}), (["a", "b"], {"a", "b"}),
     (["a", 7, None], {"a"}), ({"a": 1}, set()), (7, set()), ([], set()), (False, set())],
)  # fmt: skip
def test_groups(claim: object, groups: set[str]) -> None:
    claims = without_absent(groups=claim, _claim_names={"other": "src1"})
    assert upstream_oidc.groups_of(PLAIN, claims) == frozenset(groups)
    there = {**claims, "_claim_names": {"groups": "src1"}}
    is_elsewhere = claim in (ABSENT, None)
    assert upstream_oidc.groups_of(PLAIN, there) == (None if is_elsewhere else frozenset(groups))


@pytest.fixture
def corp(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Upstream:
    made = Upstream()
    monkeypatch.setattr(http_call, "call", Internet(made).call)
    return made


@pytest.fixture
def oidc(corp: Upstream) -> OidcClient:
    return OidcClient(PLAIN)


def is_accepted(oidc: OidcClient, text: str, nonce: str | None = "n") -> bool:
    try:
        id_tokens.verify_id_token(PLAIN, oidc.discovered, text, nonce=nonce, access_token="at")
    except UpstreamRefused:
        return False
    return True


US = "us-at-corp"


@each(
    "claims, is_right",
    [({}, True), ({"at_hash": None}, True), ({"aud": [US]}, True),
     ({"aud": [US, "other"], "azp": US}, True), ({"azp": US}, True), ({"nbf": 1}, True),
     ({"iss": None}, False), ({"iss": ""}, False), ({"iss": ["https://corp.example"]}, False),
     ({"aud": None}, False), ({"aud": ""}, False), ({"aud": []}, False), ({"aud": [[US]]}, False),
     ({"aud": {US: 1}}, False), ({"aud": f"{US} other"}, False), ({"aud": US + "2"}, False),
     ({"aud": [US, "other"]}, False), ({"aud": ["other"], "azp": US}, False),
     ({"azp": "other"}, False), ({"azp": ""}, False), ({"aud": [US, "other"], "azp": [US]}, False),
     ({"exp": None}, False), ({"exp": "9999999999"}, False), ({"exp": True}, False),
     ({"exp": 0}, False), ({"iat": None}, False), ({"iat": 0}, False), ({"iat": "1"}, False),
     ({"nbf": "1"}, False), ({"nonce": None}, False), ({"nonce": ""}, False),
     ({"nonce": ["n"]}, False), ({"sub": None}, False), ({"sub": ""}, False), ({"sub": 7}, False),
     ({"sub": ["1"]}, False), ({"at_hash": ""}, False), ({"at_hash": 7}, False),
     ({"events": {}}, False)],
)  # fmt: skip
def test_an_identity_token(
    corp: Upstream, oidc: OidcClient, claims: dict[str, Any], is_right: bool
) -> None:
    corp.token = claims
    assert is_accepted(oidc, corp.id_token("n", "at")) == is_right


@each(
    "name, seconds, is_right",
    [("iat", -600, True), ("iat", -601, False), ("iat", 60, True), ("iat", 61, False),
     ("nbf", 60, True), ("nbf", 61, False), ("nbf", -601, True), ("exp", -59, True),
     ("exp", -60, False)],
)  # fmt: skip
def test_the_times_of_an_identity_token(
    corp: Upstream, oidc: OidcClient, clock: Clock, name: str, seconds: int, is_right: bool
) -> None:
    """Clocks may differ by a minute, and it is fetched as soon as it is issued."""
    clock.stand_still()
    corp.token = {name: int(clock.now().timestamp()) + seconds}
    assert is_accepted(oidc, corp.id_token("n")) == is_right


@each("typ, is_right", [("JWT", True), ("jwt", True), ("at+jwt", False), ("logout+jwt", False),
                        ("", False), (7, False), (None, True)])  # fmt: skip
def test_the_type_of_an_identity_token(
    corp: Upstream, oidc: OidcClient, typ: Any, is_right: bool
) -> None:
    corp.header = {"typ": typ}
    assert is_accepted(oidc, corp.id_token("n")) == is_right


def test_a_refreshed_token_needs_no_nonce_and_no_signature_is_none(
    corp: Upstream, oidc: OidcClient
) -> None:
    assert is_accepted(oidc, corp.id_token(None), nonce=None)
    assert is_accepted(oidc, corp.id_token("another"), nonce=None)
    assert not is_accepted(oidc, corp.id_token(None))
    now = int(clock.now().timestamp())
    claims = {"iss": corp.issuer, "aud": US, "sub": "1", "iat": now, "exp": now + 60, "nonce": "n"}
    for alg in ("none", "HS256", None):
        assert not is_accepted(oidc, unsigned({"alg": alg, "kid": "k1"}, claims))


LOGOUT: dict[str, Any] = {id_tokens.LOGOUT: {}}


@each(
    "claims, is_right",
    [({}, True), ({"sid": "s"}, True), ({"sub": None, "sid": "s"}, True),
     ({"sub": None}, False), ({"sub": None, "sid": ""}, False), ({"sid": ""}, False),
     ({"sub": ""}, False), ({"sid": 7}, False), ({"sub": 7, "sid": "s"}, False),
     ({"events": None}, False), ({"events": {}}, False), ({"events": [id_tokens.LOGOUT]}, False),
     ({"events": {id_tokens.LOGOUT: True}}, False), ({"events": {"other": {}}}, False),
     ({"events": {**LOGOUT, "other": {}}}, True), ({"jti": None}, False), ({"jti": ""}, False),
     ({"jti": 7}, False), ({"nonce": ""}, False), ({"nonce": "n"}, False), ({"exp": None}, False),
     ({"iat": None}, False), ({"aud": None}, False), ({"iss": None}, False)],
)  # fmt: skip
def test_a_logout_token(
    corp: Upstream, oidc: OidcClient, claims: dict[str, Any], is_right: bool
) -> None:
    try:
        oidc.verify_logout_token(corp.logout_token(**claims))
    except UpstreamRefused:
        assert not is_right
    else:
        assert is_right


@each("typ, is_right", [("logout+jwt", True), ("JWT", True), (None, True), ("at+jwt", False),
                        ("dpop+jwt", False), ("", False), (7, False)])  # fmt: skip
def test_the_type_of_a_logout_token(
    corp: Upstream, oidc: OidcClient, typ: Any, is_right: bool
) -> None:
    payload = corp.logout_token().split(".")[1]
    text = corp.sign(json.loads(base64.urlsafe_b64decode(payload + "==")), typ=typ)
    try:
        oidc.verify_logout_token(text)
    except UpstreamRefused:
        assert not is_right
    else:
        assert is_right


@each("sub, is_right", [("1", True), ("2", False), (ABSENT, False), (None, False), ("", False),
                        (1, False), (["1"], False)])  # fmt: skip
def test_whom_userinfo_is_about(corp: Upstream, sub: object, is_right: bool) -> None:
    """It has to say so (OIDC Core §5.3.2)."""
    corp.token = {"name": None}
    corp.codes["c"] = ("n", "", "https://here/")
    corp.answers["/token"] = answered(
        {"access_token": "at", "token_type": "Bearer", "id_token": corp.id_token("n", "at")}
    )
    corp.answers["/userinfo"] = answered(without_absent(sub=sub, name="D"))
    try:
        identity = OidcClient(PLAIN).complete("https://here/", "c", "v", "n")
    except UpstreamRefused:
        assert not is_right
    else:
        assert is_right
        assert identity.name == "D"
    corp.answers.clear()


@each("recheck, introspects, refresh, asks_with",
      [(None, True, "rt", (None, None)), (600, True, "rt", ("rt", None)),
       (600, False, "rt", ("rt", None)), (600, True, ABSENT, (None, "at")),
       (600, False, ABSENT, (None, None))])  # fmt: skip
def test_what_a_provider_is_asked_again_with(
    corp: Upstream,
    recheck: int | None,
    introspects: bool,
    refresh: object,
    asks_with: tuple[str | None, str | None],
) -> None:
    """No token is kept that is not needed."""
    corp.metadata = {"introspection_endpoint": f"{corp.issuer}/introspect"} if introspects else {}
    client = OidcClient(provider(recheck=recheck))
    token = without_absent(refresh_token=refresh, access_token="at")
    assert client._to_ask_again_with(token) == asks_with


@each("name", ["userinfo_endpoint", "end_session_endpoint", "introspection_endpoint"])
@each("url, is_right", [(ABSENT, True), (None, True), ("https://corp.example/x", True),
                        ("http://127.0.0.1/x", True), ("http://corp.example/x", False),
                        ("", False), (7, False), ("javascript:alert(1)", False),
                        ("file:///x", False)])  # fmt: skip
def test_a_url_that_metadata_may_have(
    corp: Upstream, name: str, url: object, is_right: bool
) -> None:
    """Browsers and this server are sent there."""
    corp.metadata = without_absent(**{name: url})
    try:
        metadata = OidcClient(PLAIN).metadata()
    except UpstreamUnavailable:
        assert not is_right
    else:
        assert is_right
        if url is not ABSENT:
            assert getattr(metadata, name) == url


@each(
    "claims, acr, amr, has_two",
    [({}, (), (), False), ({"acr": "x"}, (), ("mfa",), False), ({"acr": "x"}, ("x",), (), True),
     ({"acr": None}, ("x",), (), False), ({"acr": "y"}, ("x",), ("mfa",), False),
     ({"amr": ["mfa"]}, (), ("mfa",), True), ({"amr": "mfa"}, (), ("mfa",), False),
     ({"amr": ["pwd"]}, (), ("mfa",), False), ({"amr": None}, (), ("mfa",), False),
     ({"amr": [["mfa"], 7]}, (), ("mfa",), False), ({"amr": ["mfa"]}, (), (), False)],
)  # fmt: skip
def test_two_factors_there(
    corp: Upstream, claims: dict[str, Any], acr: tuple[str], amr: tuple[str], has_two: bool
) -> None:
    client = OidcClient(provider(two_factor_acr=acr, two_factor_amr=amr))
    corp.token = claims
    corp.codes["c"] = ("n", "", "https://here/")
    corp.answers["/token"] = answered(
        {"access_token": "at", "token_type": "Bearer", "id_token": corp.id_token("n", "at")}
    )
    assert client.complete("https://here/", "c", "v", "n").has_two_factors == has_two
    corp.answers.clear()


def test_what_userinfo_says_of_the_sign_in_counts_for_nothing(corp: Upstream) -> None:
    """It is about the person, and may be from another sign-in."""
    client = OidcClient(provider(two_factor_acr=("x",), two_factor_amr=("mfa",)))
    corp.token = {"name": None}
    corp.codes["c"] = ("n", "", "https://here/")
    corp.answers["/token"] = answered(
        {"access_token": "at", "token_type": "Bearer", "id_token": corp.id_token("n", "at")}
    )
    corp.answers["/userinfo"] = answered(
        {"sub": "1", "name": "D", "acr": "x", "amr": ["mfa"], "auth_time": 1, "sid": "s"}
    )
    identity = client.complete("https://here/", "c", "v", "n")
    assert identity.name == "D"
    assert (identity.has_two_factors, identity.auth_time, identity.sid) == (False, None, None)
    corp.answers.clear()


@each("hd, is_right", [("example.com", True), (None, False), ("", False), ("other.example", False),
                       (["example.com"], False)])  # fmt: skip
def test_an_organization_at_google(corp: Upstream, hd: Any, is_right: bool) -> None:
    corp.issuer = "https://accounts.google.com"
    corp.client_id = "us"
    google = of(GoogleProvider, hosted_domain="example.com")
    corp.token = {"hd": hd, "name": None}
    corp.answers["/token"] = answered(
        {"access_token": "at", "token_type": "Bearer", "id_token": corp.id_token("n", "at")}
    )
    # Of userinfo it would say nothing about the sign-in.
    corp.answers["/userinfo"] = answered({"sub": "1", "hd": "example.com"})
    try:
        OidcClient(google).complete("https://here/", "c", "v", "n")
    except UpstreamRefused:
        assert not is_right
    else:
        assert is_right
    corp.answers.clear()


@each("active, lets_in", [(True, True), (False, False), (ABSENT, None), (None, None),
                          ("true", None), (1, None), (0, None)])  # fmt: skip
def test_introspection(corp: Upstream, active: object, lets_in: bool | None) -> None:
    corp.metadata = {"introspection_endpoint": f"{corp.issuer}/introspect"}
    client = OidcClient(provider(recheck=600))
    corp.answers["/introspect"] = answered(without_absent(active=active))
    try:
        identity = client.ask_again(corp.issuer, "1", None, "at")
    except UpstreamUnavailable:
        assert lets_in is None
    else:
        assert (identity is not None) == lets_in


def emails(**more: Any) -> Iterator[dict[str, Any]]:
    yield {"email": "other@example.com", "primary": False, "verified": True}
    yield without_absent(**{"email": "a@example.com", "primary": True, "verified": True} | more)


@each("verified", [*ODD, True])
def test_github_has_verified_the_address(verified: object) -> None:
    assert github._primary(list(emails(verified=verified))) == ("a@example.com", verified is True)


@each("primary", [*ODD, True, "true"])
def test_the_primary_address_at_github(primary: object) -> None:
    expected = ("a@example.com", True) if primary is True else (None, False)
    assert github._primary(list(emails(primary=primary))) == expected
    assert github._primary({"message": "Not found"}) == (None, False)


@each(
    "tenant, tid, iss, is_right",
    [(TENANT, TENANT, TENANT, True), (TENANT, TENANT, OTHER, False), (TENANT, OTHER, OTHER, False),
     (TENANT, OTHER, TENANT, False), (TENANT, ABSENT, TENANT, False), (TENANT, TENANT, None, False),
     (TENANT, "", "", False), (TENANT, None, TENANT, False), ("common", TENANT, TENANT, True),
     ("common", TENANT, OTHER, False), ("common", ABSENT, TENANT, False),
     ("common", PERSONAL, PERSONAL, True), ("organizations", TENANT, TENANT, True),
     ("organizations", PERSONAL, PERSONAL, False), ("consumers", PERSONAL, PERSONAL, True),
     ("consumers", TENANT, TENANT, False), ("consumers", PERSONAL, TENANT, False)],
)  # fmt: skip
def test_the_tenant_and_the_issuer_at_microsoft(
    tenant: str, tid: Any, iss: str | None, is_right: bool
) -> None:
    issuer = None if iss is None else f"https://login.microsoftonline.com/{iss}/v2.0"
    claims = without_absent(tid=tid, iss=issuer)
    assert of(MicrosoftProvider, tenant=tenant).accepts_issuer(claims) == is_right
    assert not of(MicrosoftProvider, tenant=tenant).accepts_issuer({**claims, "iss": ABSENT})


def test_a_provider_that_fails_is_left_alone_for_a_while(clock: Clock) -> None:
    """After the third failure it is not asked; once the pause is over, one may try."""
    clock.stand_still()
    caller, calls = http.Caller(PLAIN), []

    def fail() -> None:
        calls.append(1)
        raise OSError("away")

    def ask() -> int:
        with pytest.raises(UpstreamUnavailable):
            caller.run(fail)
        return len(calls)

    assert [ask() for _ in range(http.MAX_FAILURES + 2)] == [1, 2, 3, 3, 3]
    clock.move(seconds=http.PAUSE.total_seconds() - 1)
    assert ask() == 3
    clock.move(seconds=1)
    assert [ask(), ask()] == [4, 4]


LONG = http.MAX_LENGTH


@each(
    "status, length, is_taken",
    [(200, LONG, True), (200, LONG + 1, False), (299, 0, True), (300, 0, False), (302, 0, False),
     (399, 0, False), (400, 0, True)],
)  # fmt: skip
def test_an_answer_that_is_read(
    monkeypatch: pytest.MonkeyPatch, status: int, length: int, is_taken: bool
) -> None:
    """Redirects are not followed, and what is too long is not read."""
    answer = http_call.Answer(status, {}, {}, b"x" * length)
    monkeypatch.setattr(http_call, "call", lambda *_, **__: answer)
    adapter = http.Adapter(True, lambda: 1.0)
    request = requests.Request("GET", "https://corp.example/userinfo").prepare()
    if is_taken:
        response = adapter.send(request)
        assert (response.status_code, len(response.content)) == (status, length)
    else:
        with pytest.raises(ValueError, match="too much"):
            adapter.send(request)


@each(
    "status, length, is_taken",
    [(200, LONG, True), (200, LONG + 1, False), (201, 2, False), (302, 2, False)],
)
def test_a_document_that_is_read(
    monkeypatch: pytest.MonkeyPatch, status: int, length: int, is_taken: bool
) -> None:
    answer = http_call.Answer(status, {}, {}, b"{}".ljust(length))
    monkeypatch.setattr(http_call, "call", lambda *_, **__: answer)
    caller = http.Caller(PLAIN)
    if is_taken:
        assert caller.get_json("https://corp.example/") == {}
    else:
        with pytest.raises(RemoteUnavailable):
            caller.get_json("https://corp.example/")


GITHUB = GitHubProvider(id="github", type="github", client_id="us", client_secret="x")


def at_github(corp: Upstream, person: Any, emails: Any = (), token: Any = None) -> UpstreamIdentity:
    corp.issuer = "https://"
    corp.answers = {
        "github.com/login/oauth/access_token": answered(
            token or {"access_token": "at", "token_type": "bearer"}
        ),
        "api.github.com/user": answered(person),
        "api.github.com/user/emails": answered(emails),
    }
    return github.GitHubClient(GITHUB).complete("https://here/", "c", "v" * 43)


@each("number", [ABSENT, None, 0, -1, True, "7", 7.0, [7], {"id": 7}])
def test_nobody_at_github(corp: Upstream, number: Any) -> None:
    person = without_absent(id=number, login="dana")
    with pytest.raises(UpstreamRefused, match="names nobody"):
        at_github(corp, person)
    with pytest.raises(UpstreamRefused, match="names nobody"):
        at_github(corp, [person])
    assert at_github(corp, {"id": 1, "login": "dana"}).subject == "1"


def test_an_error_of_github_is_cut(corp: Upstream) -> None:
    with pytest.raises(UpstreamRefused) as refused:
        at_github(corp, {}, token={"error": "e" * 81, "error_description": "x"})
    assert str(refused.value).count("e" * 80) == 1
    assert "e" * 81 not in str(refused.value)


@each("status", [201, 202, 204, 403, 404])
def test_only_what_github_has_is_read(corp: Upstream, status: int) -> None:
    client = github.GitHubClient(GITHUB)
    assert at_github(corp, {"id": 7}).subject == "7"
    corp.answers["api.github.com/user"] = answered({"id": 7}, status)
    with pytest.raises(UpstreamUnavailable):
        client.complete("https://here/", "c", "v" * 43)


@each(
    "emails, expected",
    [(None, None), ({"email": "a@b.ch", "primary": True}, None), ("a@b.ch", None), ([None], None),
     (["a@b.ch"], None), ([[{"primary": True}]], None),
     (["x", None, {"email": "a@b.ch", "primary": True}], "a@b.ch"),
     ([{"email": "a" * 320, "primary": True}], "a" * 320),
     ([{"email": "a" * 321, "primary": True}], None), ([{"email": 7, "primary": True}], None)],
)  # fmt: skip
def test_the_addresses_at_github(corp: Upstream, emails: Any, expected: str | None) -> None:
    assert at_github(corp, {"id": 7}, emails).email == expected
