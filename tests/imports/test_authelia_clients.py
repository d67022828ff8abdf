"""Clients of Authelia's configuration: what becomes of each setting, and of each policy."""

from typing import Any

from sso.imports import authelia_clients
from sso.imports.drafts import Answers, Draft
from tests.support.authelia import SECRET, SECRET_HASH, client
from tests.support.each import each

SLOW = "$2b$14$" + "a" * 21 + "u" + "b" * 31
PEM = """-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEEVs/o5+uQbTjL3chynL4wXgUg2R9
q9UU8I5mEovUf86QZ7kOBIjJwqnzD1omageEHWwHdBO6B+dFabmdT9POxg==
-----END PUBLIC KEY-----"""
GROUP = {"policy": "two_factor", "subject": ["group:dev"]}


def draft(entry: dict[str, Any], answers: Answers | None = None, **oidc: Any) -> Draft:
    [only] = authelia_clients.drafts({"clients": [entry], **oidc}, answers or Answers())
    return only


def lines(of: Draft) -> list[tuple[str, str]]:
    return [(finding.fate.value, finding.what) for finding in of.findings]


def test_a_client_keeps_its_identifier_and_the_hash_of_its_secret() -> None:
    wiki = draft(client("wiki", consent_mode="implicit"))
    assert (wiki.client_id, wiki.secret, wiki.findings) == ("wiki", None, [])
    assert str(wiki.secret_hash).startswith("$pbkdf2-sha512$i=100000$")
    assert wiki.fields == {
        "token_endpoint_auth_method": "any", "require_pkce": False,
        "grant_types": ["authorization_code"], "client_name": "The wiki",
        "redirect_uris": ["https://wiki.example.com/cb"], "scope": "openid profile email groups",
        "id_token_claims": "all", "id_token_signed_response_alg": "RS256", "first_party": True,
        "groups": [], "disabled": False, "require_mfa": False,
    }  # fmt: skip


def test_the_names_of_version_4_37() -> None:
    old = {"id": "wiki", "description": "W", "secret": SECRET, "redirect_uris": ["https://w.ex/cb"],
           "consent_mode": "implicit"}  # fmt: skip
    wiki = draft(old)
    assert wiki.fields is not None
    assert (wiki.client_id, wiki.secret, wiki.fields["client_name"]) == ("wiki", SECRET, "W")


@each(
    "more, answers, secret, has_hash, asks",
    {
        "plain": ({"client_secret": f"$plaintext${SECRET}"}, {}, SECRET, False, ""),
        "short": ({"client_secret": "$plaintext$short"}, {}, None, False, "shorter than 32"),
        "a template": ({"client_secret": '{{ secret "/run/x" }}'}, {}, None, False, "a template"),
        "none": ({"client_secret": "null"}, {}, None, False, "missing"),
        "too slow": ({"client_secret": SLOW}, {}, None, False, "takes more than"),
        "another function": ({"client_secret": "$5$rounds=5000$a$b"}, {}, None, False,
                             "only its hash is stored"),
        "the right answer": ({}, {"wiki": SECRET}, SECRET, False, ""),
        "a wrong answer": ({}, {"wiki": SECRET + "x"}, None, False, "not the one that is stored"),
        "a hash": ({"client_secret": SECRET_HASH}, {}, None, True, ""),
    }.values(),
)  # fmt: skip
def test_secrets(more: Any, answers: Any, secret: Any, has_hash: bool, asks: str) -> None:
    wiki = draft(client("wiki", consent_mode="implicit", **more), Answers(secrets=answers))
    assert (wiki.secret, wiki.secret_hash is not None) == (secret, has_hash)
    why = "".join(finding.why for finding in wiki.findings)
    assert (asks in why, bool(why)) == (True, bool(asks))


@each(
    "more, fields, findings",
    {
        "public": ({"public": "true", "client_secret": ""},
                   {"token_endpoint_auth_method": "none", "require_pkce": True}, []),
        "post": ({"token_endpoint_auth_method": "client_secret_post"},
                 {"token_endpoint_auth_method": "client_secret_post"}, []),
        "secret as a key": ({"token_endpoint_auth_method": "client_secret_jwt"},
                            {"token_endpoint_auth_method": "any"}, [("changed", "authentication")]),
        "keys": ({"token_endpoint_auth_method": "private_key_jwt",
                  "jwks": [{"key": PEM, "key_id": "k"}]},
                 {"token_endpoint_auth_method": "private_key_jwt"}, []),
        "PKCE": ({"require_pkce": "yes"}, {"require_pkce": True}, []),
        "plain PKCE": ({"pkce_challenge_method": "plain"}, {"require_pkce": False},
                       [("not_taken", "PKCE plain")]),
        "refresh": ({"grant_types": ["authorization_code", "refresh_token"],
                     "scopes": ["openid", "offline_access"]},
                    {"grant_types": ["authorization_code", "refresh_token"],
                     "scope": "openid offline_access"}, []),
        "service": ({"grant_types": ["client_credentials"], "redirect_uris": []},
                    {"grant_types": ["client_credentials"], "redirect_uris": []}, []),
        "hybrid": ({"response_types": ["code", "code id_token"]}, {},
                   [("not_taken", "implicit and hybrid flow")]),
        "own scope": ({"scopes": ["openid", "books"]}, {"scope": "openid"},
                      [("not_taken", "scope books")]),
        "one URI": ({"redirect_uris": "https://wiki.example.com/a"},
                    {"redirect_uris": ["https://wiki.example.com/a"]}, []),
        "consent": ({"consent_mode": "explicit"}, {"first_party": False}, [("changed", "consent")]),
        "consent by default": ({"consent_mode": ""}, {"first_party": False},
                               [("changed", "consent")]),
        "pushed": ({"require_pushed_authorization_requests": "true"},
                   {"require_pushed_authorization_requests": True}, []),
        "pairwise": ({"sector_identifier_uri": "https://x.example"}, {},
                     [("not_taken", "pairwise subjects")]),
        "lifespan": ({"lifespan": "short"}, {}, [("not_taken", "lifetimes of its own")]),
        "algorithm": ({"id_token_signed_response_alg": "HS256"},
                      {"id_token_signed_response_alg": "RS256"},
                      [("changed", "algorithm of ID tokens")]),
        "two factors": ({"authorization_policy": "two_factor"}, {"require_mfa": True}, []),
        "two factors by default": ({"authorization_policy": ""}, {"require_mfa": True}, []),
        "nobody": ({"authorization_policy": "deny"}, {"disabled": True}, []),
        "unknown policy": ({"authorization_policy": "nope"}, {"disabled": True},
                           [("question", "policy nope")]),
    }.values(),
)  # fmt: skip
def test_kinds_of_clients(more: Any, fields: Any, findings: Any) -> None:
    wiki = draft(client("wiki", **{"consent_mode": "implicit", **more}))
    assert wiki.fields is not None
    assert {name: wiki.fields[name] for name in fields} == fields
    assert lines(wiki) == findings


@each(
    "policy, fields, findings",
    {
        "a group": ({"default_policy": "deny", "rules": [GROUP]},
                    {"groups": ["dev"], "require_mfa": True, "disabled": False}, []),
        "a group and a person": (
            {"default_policy": "deny",
             "rules": [{"policy": "one_factor", "subject": [["group:dev"], "user:bob"]}]},
            {"groups": ["dev"], "require_mfa": False}, [("not_taken", "policy p")]),
        "two groups together": (
            {"default_policy": "deny",
             "rules": [{"policy": "one_factor", "subject": [["group:a", "group:b"]]}]},
            {"groups": [], "disabled": True}, [("question", "policy p")]),
        "only in a network": (
            {"default_policy": "deny", "rules": [{**GROUP, "networks": ["10.0.0.0/8"]}]},
            {"groups": [], "disabled": True}, [("question", "policy p")]),
        "a group is denied": (
            {"default_policy": "one_factor", "rules": [{"policy": "deny", "subject": "group:x"}]},
            {"disabled": True}, [("question", "policy p")]),
        "denied first": (
            {"default_policy": "deny",
             "rules": [{"policy": "deny", "subject": "user:bob"}, GROUP]},
            {"disabled": True}, [("question", "policy p")]),
        "levels": ({"default_policy": "one_factor", "rules": [GROUP]},
                   {"groups": [], "require_mfa": True, "disabled": False},
                   [("changed", "policy p")]),
        "another level": ({"default_policy": "three_factor"}, {"disabled": True},
                          [("question", "policy p")]),
    }.values(),
)  # fmt: skip
def test_policies(policy: Any, fields: Any, findings: Any) -> None:
    wiki = draft(
        client("wiki", consent_mode="implicit", authorization_policy="p"),
        authorization_policies={"p": policy},
    )
    assert wiki.fields is not None
    assert {name: wiki.fields[name] for name in fields} == fields
    assert lines(wiki) == findings


@each(
    "entry, why",
    {
        "client ID": (client("a b"), "its client ID"),
        "no URI": (client("a", redirect_uris=[]), "none at all"),
        "a template": (client("a", redirect_uris=["https://{{ x }}/cb"]), "no exact redirect URI"),
        "no keys": (client("a", token_endpoint_auth_method="private_key_jwt"), "public keys"),
        "a private key": (client("a", token_endpoint_auth_method="private_key_jwt",
                                 jwks=[{"key": "-----BEGIN PRIVATE KEY-----"}]), "public keys"),
        "no flow": (client("a", grant_types=["implicit"]), "no flow"),
    }.values(),
)  # fmt: skip
def test_clients_that_are_refused(entry: Any, why: str) -> None:
    refused = draft(entry)
    assert refused.fields is None
    [finding] = refused.findings
    assert why in finding.why


def test_redirect_uris_of_the_answers() -> None:
    entry = client("a", redirect_uris=["https://{{ x }}/cb"], consent_mode="implicit")
    taken = draft(entry, Answers(redirect_uris={"a": ["https://a.example/cb"]}))
    assert taken.fields is not None
    assert taken.fields["redirect_uris"] == ["https://a.example/cb"]
