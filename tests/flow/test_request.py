"""Parsing of an authorization request: whatever comes in, one kind of fault comes out."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sso.flow import request, scopes
from sso.flow.request import PARAMETERS, InvalidRequest, parse

NOW = datetime(2026, 11, 21, tzinfo=UTC)
GOOD = {"client_id": "c", "redirect_uri": "https://c.example/", "state": "s"}
NAMES = st.sampled_from([*scopes.SCOPES, "nonsense", "OPENID", ""])
SCOPE = st.lists(NAMES, max_size=8).map(" ".join)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["userinfo", "id_token", "email", "sub", "acr", "value", "values", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(PARAMETERS), st.text(min_size=1), max_size=8))
def test_any_text_is_a_request_or_a_request_fault(values: dict[str, str]) -> None:
    try:
        found = parse(
            {**values, **GOOD},
            registered_scope="openid email",
            require_pkce=False,
            hinted_subject=None,
            now=NOW,
        )
    except InvalidRequest as fault:
        assert fault.error
        assert fault.description.isascii()
        assert '"' not in fault.description
        return
    assert found.prompt <= {"none", "login", "consent", "select_account"}
    assert found.response_mode in ("query", "form_post")
    assert set(scopes.split(found.scope)) <= {"openid", "email"}


@given(SCOPE, SCOPE)
def test_what_is_granted_is_known_and_registered(asked: str, registered: str) -> None:
    granted = scopes.split(scopes.grantable(asked, registered))
    assert set(granted) <= set(scopes.split(registered)) & set(scopes.SCOPES)
    assert len(set(granted)) == len(granted)
    if scopes.split(asked):
        assert set(granted) <= set(scopes.split(asked))


@given(JSON, SCOPE)
def test_claims_never_go_beyond_the_registered_scope(asked: Any, registered: str) -> None:
    try:
        found = request.parse_claims(json.dumps(asked), registered)
    except request.InvalidClaims:
        return
    allowed = set(scopes.claims_of(scopes.split(registered)))
    assert set(found.userinfo) | set(found.id_token) <= allowed
    assert json.loads(json.dumps(found.stored())) == found.stored()


@pytest.mark.parametrize("text", ["[" * 4000, '{"a":' * 700, "nul", "1e999", '{"userinfo": [1]}'])
def test_claims_that_are_none(text: str) -> None:
    with pytest.raises(request.InvalidClaims):
        request.parse_claims(text, "openid")


@given(st.text())
def test_any_text_is_claims_or_a_claims_fault(text: str) -> None:
    try:
        request.parse_claims(text, "openid")
    except request.InvalidClaims as fault:
        assert str(fault).isascii()


def test_every_claim_belongs_to_a_scope_and_has_words() -> None:
    assert len(set(scopes.ALL_CLAIMS)) == sum(len(s.claims) for s in scopes.SCOPES.values())
    assert all(scope.title for scope in scopes.SCOPES.values())
