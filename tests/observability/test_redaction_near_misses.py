"""Redaction: each kind of secret is hidden, and what only looks like one is left readable."""

import pytest

from sso.observability.redaction import redact

TOKEN = "t" * 43
JWT = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJkYW5hIn0.c2lnbmF0dXJl"
SECRETS = {
    **{f"sso_{kind}_": f"sso_{kind}_{TOKEN}" for kind in ("ac", "rt", "cs", "sid", "ml")},
    "a JWT": JWT,
    "a JWT without its signature": JWT.rsplit(".", 1)[0] + ".",
    "Bearer": "Bearer abcdefghijklmnop",
    "bearer of another spelling": "Bearer  abc~+/=-._abcdefgh",
    "Basic": "Basic Ym9va3M6c2VjcmV0c2VjcmV0",
    "a password in an address": "postgresql+psycopg://sso:secretsecret@db:5432/sso",
    "a query": "/api/auth/new-password?token=secretsecret",
    "a query behind a slash": "/api/auth/?code=secretsecret&state=x",
    "a field of a form": "password=secretsecret&x=y",
    "a field of JSON": '{"client_secret": "secretsecret"}',
    **{
        f"the field {name}": f"{name}: 'secretsecret'"
        for name in (
            "password", "client_secret", "code_verifier", "access_token", "refresh_token",
            "id_token",
        )
    },
}  # fmt: skip
HIDDEN = ("secretsecret", TOKEN, "eyJ", "abcdefgh", "Ym9va3")


@pytest.mark.parametrize("secret", SECRETS.values(), ids=SECRETS.keys())
@pytest.mark.parametrize("around", ["{}", "before {} after", '"{}"', "line\n{}\nline", "({})"])
def test_it_is_hidden(secret: str, around: str) -> None:
    found = redact(around.format(secret))
    assert not any(part in found for part in HIDDEN), found
    assert "…" in found
    for word in ("before", "after", "line"):
        assert (word in found) == (word in around)


def test_what_stays_readable() -> None:
    for text in (
        "sso_rt_ is a prefix",
        "sso_rt_" + "t" * 39,
        "Basic English",
        "Bearer realm",
        "is it? yes",
        "really?",
        "https://login.example.com/api/auth/oauth2/token",
        "the password is not right",
        "the client_secret and the id_token",
        "dana@example.com",
        "eyJ",
        "a.b.c",
    ):
        assert redact(text) == text


def test_all_of_several() -> None:
    text = f"{JWT} sso_ac_{TOKEN} sso_rt_{TOKEN} password=secretsecret"
    assert redact(text).count("…") == 4
