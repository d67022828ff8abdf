"""From a stored refusal to its explanation: the first check that knows the cause."""

from sso.explain import proofs, redirects, registrations, requests, tokens
from sso.explain.case import Case, Explanation
from sso.models import Refusal

_CHECKS = (
    registrations.unknown,
    registrations.known_by_now,
    registrations.disabled,
    registrations.wrong_secret,
    registrations.wrong_method,
    registrations.no_authentication,
    registrations.refused_assertion,
    registrations.unread_key_set,
    redirects.unregistered,
    redirects.another_at_the_token_endpoint,
    requests.not_a_member,
    tokens.api,
    tokens.pkce,
    proofs.dpop,
    tokens.narrowed,
    tokens.presented,
    tokens.scope_of_userinfo,
    tokens.no_token,
    tokens.not_its_own,
    requests.dropped_scopes,
    requests.wider_scope,
    proofs.pushed,
    proofs.signed,
    requests.hint,
    requests.parameter,
    requests.silent,
    requests.denied,
    requests.form_without_token,
    requests.wrong_address,
    requests.page,
)


def explain(refusal: Refusal) -> tuple[Case, Explanation]:
    case = Case(refusal)
    for check in _CHECKS:
        if found := check(case):
            return case, found
    return case, requests.anything_else(case)
