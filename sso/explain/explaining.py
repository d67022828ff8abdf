"""From a stored refusal to its explanation: the first check that knows the cause."""

from sso.explain import (
    access,
    client_keys,
    pages,
    proofs,
    redirects,
    registrations,
    requests,
    tokens,
)
from sso.explain.case import Case, Explanation
from sso.models import Refusal

_CHECKS = (
    registrations.unknown,
    registrations.known_by_now,
    registrations.disabled,
    registrations.wrong_secret,
    registrations.wrong_method,
    registrations.no_authentication,
    client_keys.refused_assertion,
    client_keys.unread_key_set,
    redirects.unregistered,
    redirects.another_at_the_token_endpoint,
    requests.not_a_member,
    access.api,
    proofs.pkce,
    proofs.dpop,
    tokens.narrowed,
    tokens.presented,
    access.scope_of_userinfo,
    access.no_token,
    access.not_its_own,
    requests.dropped_scopes,
    requests.wider_scope,
    proofs.pushed,
    proofs.signed,
    requests.hint,
    requests.parameter,
    requests.silent,
    requests.denied,
    pages.form_without_token,
    pages.wrong_address,
    pages.page,
)


def explain(refusal: Refusal) -> tuple[Case, Explanation]:
    case = Case(refusal)
    for check in _CHECKS:
        if found := check(case):
            return case, found
    return case, pages.anything_else(case)
