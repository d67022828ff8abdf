"""All modules of the plan "FAPI 2.0 Security Profile Final", and which test stands for each.

Variants: private_key_jwt, DPoP, plain FAPI, OpenID Connect, unsigned requests.
"""

from types import ModuleType

import pytest

from tests.conformance import test_fapi2_clients_and_requests as mine
from tests.conformance import test_fapi2_par_and_dpop as pushed

MODULES = [
    "discovery-end-point-verification",
    "happy-flow",
    "user-rejects-authentication",
    "ensure-authorization-request-without-state-success",
    "ensure-authorization-request-without-nonce-success",
    "ensure-authorization-request-with-64-char-nonce-success",
    "ensure-other-scope-order-succeeds",
    "test-claims-parameter-identity-claims",
    "access-token-type-header-case-sensitivity",
    "check-dpop-proof-nbf-exp",
    "ensure-dpopproof-with-iat-10seconds-before-succeeds",
    "ensure-dpopproof-with-iat-10seconds-after-succeeds",
    "ensure-mismatched-dpop-jkt-fails",
    "ensure-token-endpoint-fails-with-mismatched-dpop-proof-jkt",
    "ensure-token-endpoint-fails-with-mismatched-dpop-jkt",
    "ensure-dpopproof-at-par-endpoint-binding-success",
    "ensure-dpop-auth-code-binding-success",
    "ensure-different-nonce-inside-and-outside-request-object",
    "ensure-different-state-inside-and-outside-request-object",
    "ensure-authorization-request-with-long-nonce",
    "ensure-authorization-request-with-long-state",
    "state-only-outside-request-object-not-used",
    "ensure-request-object-without-redirect-uri-fails",
    "plain-fapi-tolerate-unregistered-redirect-uri",
    "ensure-unsigned-authorization-request-without-using-par-fails",
    "ensure-redirect-uri-in-authorization-request",
    "ensure-response-type-code-idtoken-fails",
    "ensure-response-type-token-fails",
    "ensure-client-id-in-token-endpoint",
    "ensure-holder-of-key-required",
    "ensure-authorization-code-is-bound-to-client",
    "attempt-reuse-authorization-code-after-one-second",
    "ensure-token-endpoint-fails-with-expired-auth-code",
    "ensure-signed-client-assertion-with-RS256-fails",
    "ensure-client-assertion-in-token-endpoint",
    "ensure-client-assertion-with-exp-is-5-minutes-in-past-fails",
    "ensure-client-assertion-with-wrong-aud-fails",
    "ensure-client-assertion-with-no-sub-fails",
    "dpop-negative-tests",
    "refresh-token",
    "par-ensure-reused-request-uri-prior-to-auth-completion-succeeds",
    "par-attempt-reuse-request_uri",
    "par-attempt-to-use-expired-request_uri",
    "par-ensure-jwt-client-assertions-nbf-8-seconds-in-the-future-is-accepted",
    "par-ensure-jwt-client-assertions-nbf-over-60-seconds-in-the-future-fails",
    "par-attempt-to-use-request_uri-for-different-client",
    "par-authorization-request-containing-request_uri-form-param",
    "par-attempt-invalid-http-method",
    "par-ensure-pkce-required",
    "ensure-pkce-code-verifier-required",
    "incorrect-pkce-code-verifier-rejected",
    "par-plain-pkce-rejected",
    "par-without-duplicate-parameters",
    "par-test-array-as-audience-fails",
    "par-test-par-endpoint-url-as-audience-fails",
    "par-test-token-endpoint-url-as-audience-fails",
]
SAME = "test_ensure_different_nonce_and_state_inside_and_outside"
NAMED_OTHERWISE = {
    "ensure-different-nonce-inside-and-outside-request-object": SAME,
    "ensure-different-state-inside-and-outside-request-object": SAME,
}


def name_of(module: str) -> str:
    name = f"test_{module.replace('-', '_').lower()}"
    return NAMED_OTHERWISE.get(module, name)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_has_a_test(module: str) -> None:
    files: tuple[ModuleType, ...] = (mine, pushed)
    assert any(hasattr(file, name_of(module)) for file in files)


def test_the_plan_is_whole() -> None:
    assert len(MODULES) == len(set(MODULES)) == 56
