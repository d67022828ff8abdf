"""Explanations depend on codes: not on sentences, but where a row has no code."""

from collections.abc import Mapping
from typing import Any

import pytest

from sso.flow import refusals as sentences
from sso.ratelimit import refusals
from tests.explain.test_assertions import *  # noqa: F403 (to run them again)
from tests.explain.test_causes import (  # noqa: F401
    test_a_disabled_client,
    test_a_disabled_user,
    test_a_group_that_is_missing,
    test_a_request_that_was_not_pushed,
    test_a_session_that_has_ended,
    test_a_wrong_method,
    test_access_tokens,
    test_codes,
    test_credentials_that_are_swapped,
    test_dpop,
    test_pushed_requests,
    test_refresh_tokens,
    test_two_step_verification,
    test_verifiers,
    test_wrong_secrets,
)

_CODES = {"code", "reason_code", "jwt", "fault", "end_reason", "name"}


@pytest.fixture(params=("reworded", "stored without codes"), autouse=True)
def refusals_differ(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "reworded":
        for table, codes in (("SENTENCES", sentences.Cause), ("REASONS", sentences.Reason)):
            reworded = {code: f"reworded, {code.name}" for code in codes}
            monkeypatch.setattr(sentences, table, reworded)
    else:
        as_json = refusals._as_json

        def without_codes(details: Mapping[str, Any]) -> str:
            kept = {name: value for name, value in details.items() if name not in _CODES}
            return as_json(kept)

        monkeypatch.setattr(refusals, "_as_json", without_codes)
