"""Find a stored refusal by its error ID, and explain it by the first check that applies."""

import re
from collections.abc import Collection, Sequence

from sso.explain import (
    agents,
    apis,
    clients,
    devices,
    identity_assertions,
    pages,
    proofs,
    redirects,
    requests,
    saml,
    services,
    tokens,
)
from sso.explain.case import Case, Explanation
from sso.models import Refusal
from sso.store import refusals

_CHECKS = (
    services.credentials_of_api,
    agents.document,
    saml.unknown_entity,
    saml.unregistered_acs,
    saml.refused,
    clients.unknown,
    clients.known_by_now,
    clients.wrong_issuer,
    clients.moved,
    clients.disabled,
    clients.wrong_secret,
    clients.wrong_method,
    clients.no_authentication,
    clients.public,
    services.distrusted,
    clients.refused_assertion,
    clients.unread_key_set,
    redirects.unregistered,
    redirects.another_at_the_token_endpoint,
    identity_assertions.grant_not_registered,
    identity_assertions.not_issued,
    identity_assertions.not_taken,
    apis.refused,
    requests.not_a_member,
    services.at_own_api,
    clients.api_token,
    services.without_api,
    services.without_scope,
    services.at_userinfo,
    proofs.pkce,
    proofs.dpop,
    devices.user_code,
    devices.polling,
    devices.not_registered,
    tokens.narrowed,
    tokens.presented,
    clients.scope_of_userinfo,
    clients.no_token,
    services.of_another_api,
    clients.not_its_own,
    requests.dropped_scopes,
    requests.wider_scope,
    proofs.pushed,
    proofs.signed,
    requests.hint,
    requests.parameter,
    requests.silent,
    requests.denied,
    pages.form_without_token,
    pages.wrong_path,
    pages.page,
)


def explain(refusal: Refusal, among: Collection[str] | None = None) -> tuple[Case, Explanation]:
    """Return a refusal with its explanation. `among`: see `Case`."""
    case = Case(refusal, among)
    for check in _CHECKS:
        if explanation := check(case):
            return case, explanation
    return case, pages.anything_else(case)


_AT_ONCE = 10
_SHORTEST = 4  # characters of the beginning of an ID
# Letters that people confuse with digits (Crockford's base 32).
_MISREAD = str.maketrans("ilo", "110")


def find_refusals(request_id: str) -> Sequence[Refusal]:
    """Return the refusals with this ID, or else with this beginning, oldest first."""
    normalized = re.sub(r"[\s-]", "", request_id.lower()).translate(_MISREAD)
    spellings = dict.fromkeys((request_id, f"{normalized[:4]}-{normalized[4:]}"))
    for by_beginning in (False, True) if len(normalized) >= _SHORTEST else (False,):
        for spelling in spellings:
            matches = refusals.find(spelling, by_beginning=by_beginning, limit=_AT_ONCE)
            if matches:
                return matches
    return []
