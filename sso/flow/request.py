"""The authorization request: frozen, validated (OIDC Core §3.1.2.1), with its `claims` (§5.5)."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sso.flow import resources, scopes
from sso.flow.refusals import Cause, describe


class InvalidClaims(ValueError):
    """The parameter is not a claims request; `description` is for the integrator."""

    def __init__(self, description: str) -> None:
        super().__init__(description)
        self.description = description


@dataclass(frozen=True)
class ClaimsRequest:
    """The requested claims: names for userinfo and the identity token, and the special values."""

    userinfo: tuple[str, ...] = ()
    id_token: tuple[str, ...] = ()
    subjects: frozenset[str] = field(default=frozenset())
    acr_asked: bool = False
    acr_values: tuple[str, ...] = ()
    acr_essential: bool = False

    def stored(self) -> dict[str, list[str]]:
        """Return the part that a grant stores: the claims by place."""
        both = {"userinfo": list(self.userinfo), "id_token": list(self.id_token)}
        return {place: names for place, names in both.items() if names}

    def without(self, withheld: frozenset[str]) -> "ClaimsRequest":
        """Return it without the claims of scopes that the user withholds."""
        withheld_claims = set(scopes.claims_of(withheld))
        return replace(
            self,
            userinfo=tuple(name for name in self.userinfo if name not in withheld_claims),
            id_token=tuple(name for name in self.id_token if name not in withheld_claims),
        )

    def scopes_needed(self) -> tuple[str, ...]:
        """Return the scopes whose text on the consent page covers these claims."""
        claims = set(self.userinfo) | set(self.id_token)
        return tuple(
            scope.name
            for scope in scopes.SCOPES.values()
            if scope.name != "openid" and claims & set(scope.claims)
        )


def parse_claims(text: str | None, registered_scope: str) -> ClaimsRequest:
    """Read the parameter; claims beyond the client's registered scope are dropped.

    Unknown members are ignored, as §5.5 demands. Raises `InvalidClaims`.
    """
    if not text:
        return ClaimsRequest()
    try:
        members_by_place = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidClaims(describe(Cause.CLAIMS_NOT_JSON)) from None
    if not isinstance(members_by_place, dict):
        raise InvalidClaims(describe(Cause.CLAIMS_NOT_OBJECT))
    places = {place: _place(members_by_place, place) for place in ("userinfo", "id_token")}
    allowed = set(scopes.claims_of(scopes.split(registered_scope))) - {"sub"}
    acr = places["id_token"].get("acr")
    subjects: frozenset[str] = frozenset()
    for members in places.values():
        if isinstance(members.get("sub"), dict):
            subjects |= frozenset(_values(members["sub"]))
    return ClaimsRequest(
        userinfo=tuple(name for name in places["userinfo"] if name in allowed),
        id_token=tuple(name for name in places["id_token"] if name in allowed),
        subjects=subjects,
        acr_asked="acr" in places["id_token"],
        acr_values=tuple(_values(acr)) if isinstance(acr, dict) else (),
        acr_essential=isinstance(acr, dict) and acr.get("essential") is True,
    )


def _place(members_by_place: dict[str, Any], place: str) -> dict[str, Any]:
    members = members_by_place.get(place)
    if members is None:
        return {}
    if not isinstance(members, dict):
        raise InvalidClaims(f"The member '{place}' of 'claims' is not a JSON object.")
    for member in members.values():
        if member is not None and not isinstance(member, dict):
            raise InvalidClaims(describe(Cause.INVALID_CLAIM))
    return members


def _values(member: dict[str, Any]) -> list[str]:
    listed = member.get("values")
    candidates = [member.get("value"), *(listed if isinstance(listed, list) else [])]
    return [value for value in candidates if isinstance(value, str)]


# Every parameter that is read; none of them may be repeated but `REPEATABLE`.
PARAMETERS = (
    "response_type", "client_id", "redirect_uri", "state", "scope", "code_challenge",
    "code_challenge_method", "nonce", "prompt", "max_age", "login_hint", "id_token_hint",
    "ui_locales", "acr_values", "claims", "response_mode", "display", "request", "request_uri",
    "registration", "dpop_jkt", "resource",
)  # fmt: skip

REPEATABLE = ("resource",)  # RFC 8707 §2
# Characters of what is granted at APIs: the consent page sends it back twice, escaped, in one form.
MAX_SCOPE = 40_000

PROMPTS = frozenset({"none", "login", "consent", "select_account"})
ONE_FACTOR, TWO_FACTORS = "1", "2"
ACR_VALUES = (ONE_FACTOR, TWO_FACTORS)
RESPONSE_MODES = ("query", "form_post")
# Of clients that are registered with an algorithm (JARM §2.3): the answer as one signed JWT.
SIGNED_RESPONSE_MODES = ("jwt", "query.jwt", "form_post.jwt")
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}\Z")
_THUMBPRINT = _CHALLENGE  # both are a SHA-256
_MAX_AGE = re.compile(r"[0-9]{1,9}\Z")
_UNSUPPORTED = {
    "request": "request_not_supported",
    "request_uri": "request_uri_not_supported",
    "registration": "registration_not_supported",
}


class InvalidRequest(ValueError):
    """The request cannot be accepted: a standard error code and a description with the remedy."""

    def __init__(self, error: str, description: str, parameter: str | None = None) -> None:
        super().__init__(description)
        self.error = error
        self.description = description
        self.parameter = parameter


@dataclass(frozen=True)
class AuthorizationRequest:
    """What a client asks for. `asked_at` is when it first arrived (UTC).

    `resumed`: it returns from one of our pages. `signed_in_at`, `consented_at`: when the form of
    that page was submitted for this request. `selected`: the user id that was chosen on the
    select-account page, at `selected_at`. `denied`: the user refused. `turned_away`: a page told
    the user that they may not use the client, and they return to it. `resources`: the APIs that
    the tokens are for, whose scopes are in `scope` (see `flow.resources`). `once`: the user allows
    access for this once, without a refresh token.
    """

    client_id: str
    redirect_uri: str
    state: str
    scope: str
    asked_at: datetime
    response_mode: str = "query"
    nonce: str | None = None
    code_challenge: str | None = None
    dpop_jkt: str | None = None
    prompt: frozenset[str] = frozenset()
    max_age: int | None = None
    login_hint: str | None = None
    hinted_subject: str | None = None
    acr_values: tuple[str, ...] = ()
    claims: ClaimsRequest = field(default_factory=ClaimsRequest)
    resources: tuple[str, ...] = ()
    resumed: bool = False
    signed_in_at: datetime | None = None
    consented_at: datetime | None = None
    selected: str | None = None
    selected_at: datetime | None = None
    denied: bool = False
    turned_away: bool = False
    once: bool = False

    @property
    def names_user(self) -> bool:
        """Whether the client expects a certain user, by a hint or a requested claim."""
        return self.hinted_subject is not None or bool(self.claims.subjects)

    @property
    def scopes_to_consent(self) -> frozenset[str]:
        """The scopes that need consent, including those of single claims."""
        return frozenset(scopes.split(self.scope)) | frozenset(self.claims.scopes_needed())

    @property
    def asks_for_acr(self) -> bool:
        return bool(self.acr_values) or self.claims.acr_asked

    @property
    def needs_two_factors(self) -> bool:
        """Whether the answer must have acr 2 (OIDC Core §5.5.1.1)."""
        acr_values = self.claims.acr_values
        return (
            self.claims.acr_essential and TWO_FACTORS in acr_values and ONE_FACTOR not in acr_values
        )

    @property
    def prefers_two_factors(self) -> bool:
        """Whether acr 2 comes first among the requested values that we know."""
        acr_values = [v for v in (*self.claims.acr_values, *self.acr_values) if v in ACR_VALUES]
        return acr_values[:1] == [TWO_FACTORS]

    def without(self, withheld: frozenset[str]) -> "AuthorizationRequest":
        """Return the request without the scopes that the user withholds and their claims."""
        if not withheld:
            return self
        scope = " ".join(name for name in scopes.split(self.scope) if name not in withheld)
        return replace(self, scope=scope, claims=self.claims.without(withheld))


def parse(
    values: Mapping[str, str],
    *,
    registered_scope: str,
    require_pkce: bool,
    require_state: bool = True,
    signs_responses: bool = False,
    hinted_subject: str | None,
    now: datetime,
    apis: resources.Apis = resources.NO_APIS,
    default_api: str | None = None,
    issuer: str = "",
) -> AuthorizationRequest:
    """Validate everything but client, redirect URI and response type, which are checked before.

    Raises `InvalidRequest` for the first error.
    """
    for name, error in _UNSUPPORTED.items():
        if name in values:
            raise InvalidRequest(error, describe(Cause.UNSUPPORTED_PARAMETER, name=name), name)
    if require_state and "state" not in values:
        raise InvalidRequest("invalid_request", describe(Cause.MISSING_STATE), "state")
    try:
        claims = parse_claims(values.get("claims"), registered_scope)
    except InvalidClaims as error:
        raise InvalidRequest("invalid_request", error.description, "claims") from None
    try:
        identifiers = resources.requested(values.get("resource"), default_api, apis, issuer)
    except resources.InvalidTarget as error:
        raise InvalidRequest("invalid_target", error.description, "resource") from None
    names = resources.grantable(values.get("scope"), identifiers, apis)
    return AuthorizationRequest(
        client_id=values["client_id"],
        redirect_uri=values["redirect_uri"],
        state=values.get("state", ""),
        scope=_scope(values.get("scope"), registered_scope, names),
        asked_at=now,
        response_mode=_response_mode(values, signs_responses),
        nonce=values.get("nonce"),
        code_challenge=_code_challenge(values, require_pkce),
        dpop_jkt=_dpop_jkt(values.get("dpop_jkt")),
        prompt=_prompt(values.get("prompt")),
        max_age=_max_age(values.get("max_age")),
        login_hint=values.get("login_hint"),
        hinted_subject=hinted_subject,
        acr_values=scopes.split(values.get("acr_values")),
        claims=claims,
        resources=identifiers,
    )


def _scope(requested: str | None, registered: str, of_apis: Sequence[str]) -> str:
    scope = scopes.grantable(requested, registered)
    if of_apis and (scope or requested is None or any(map(resources.scope_of, of_apis))):
        names = " ".join([*scopes.split(scope), *of_apis])
        if len(names) > MAX_SCOPE:
            raise InvalidRequest(
                "invalid_scope",
                "The scopes of these resources are too many for one request; name fewer.",
            )
        return names
    if not scope:
        raise InvalidRequest(
            "invalid_scope",
            "None of the scopes asked for is known and registered for this client.",
        )
    return scope


def _response_mode(values: Mapping[str, str], signs_responses: bool) -> str:
    mode = values.get("response_mode", "query")
    description: str | None = None
    modes = RESPONSE_MODES + SIGNED_RESPONSE_MODES if signs_responses else RESPONSE_MODES
    if mode in SIGNED_RESPONSE_MODES and not signs_responses:
        description = describe(Cause.NO_SIGNED_RESPONSES)
    elif mode not in modes:
        description = f"The 'response_mode' is none of {', '.join(modes)}."
    elif mode != "query" and not can_be_posted(values["redirect_uri"], values.get("state", "")):
        needed = "an http or https redirect_uri, and a 'state' of one line of UTF-8"
        description = f"{mode} needs {needed}."
    if description:
        raise InvalidRequest("invalid_request", description, "response_mode")
    return mode


def can_be_posted(redirect_uri: str, state: str) -> bool:
    """Return whether a form, or the JSON of a JWT, can carry the answer there unchanged.

    Posting to another scheme could run a script in this server's origin. Neither can hold bytes
    beyond UTF-8, and browsers rewrite line ends of forms.
    """
    unfit = any("\ud800" <= c <= "\udfff" or c in "\0\r\n" for c in state)
    return redirect_uri.startswith(("https:", "http:")) and not unfit


def _code_challenge(values: Mapping[str, str], required: bool) -> str | None:
    # RFC 7636 §4.3 lets a missing method mean "plain"; RFC 9700 §2.1.1 wants S256.
    challenge, method = values.get("code_challenge"), values.get("code_challenge_method")
    if challenge is None and method is None and not required:
        return None
    if challenge is None:
        description = describe(Cause.MISSING_PARAMETER, name="code_challenge")
        raise InvalidRequest("invalid_request", description, "code_challenge")
    if method != "S256":
        raise InvalidRequest(
            "invalid_request",
            describe(Cause.INVALID_CODE_CHALLENGE_METHOD),
            "code_challenge_method",
        )
    if not _CHALLENGE.match(challenge):
        raise InvalidRequest(
            "invalid_request", describe(Cause.INVALID_CODE_CHALLENGE), "code_challenge"
        )
    return challenge


def _dpop_jkt(text: str | None) -> str | None:
    """Return the thumbprint of the key that the code will be bound to (RFC 9449 §10)."""
    if text is not None and not _THUMBPRINT.match(text):
        raise InvalidRequest("invalid_request", describe(Cause.INVALID_DPOP_JKT), "dpop_jkt")
    return text


def _prompt(text: str | None) -> frozenset[str]:
    prompts = frozenset(scopes.split(text))
    if prompts - PROMPTS:
        raise InvalidRequest("invalid_request", describe(Cause.INVALID_PROMPT), "prompt")
    if "none" in prompts and len(prompts) > 1:
        raise InvalidRequest("invalid_request", describe(Cause.PROMPT_NONE_WITH_OTHERS), "prompt")
    return prompts


def _max_age(text: str | None) -> int | None:
    if text is None:
        return None
    if not _MAX_AGE.match(text):
        raise InvalidRequest("invalid_request", describe(Cause.INVALID_MAX_AGE), "max_age")
    return int(text)
