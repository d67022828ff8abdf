"""Why the protocol refuses requests: codes for programs, and the sentences that people read.

The codes are stored with a refusal (see `ratelimit.refusals`), and `flask explain` asks for them.
So a code never changes. A sentence may be reworded: nothing compares it.
"""

from enum import StrEnum

from sso.i18n import N_
from sso.i18n.message import Message


class Cause(StrEnum):
    """What is wrong, as the application is told."""

    ACR_NOT_REACHED = "acr_not_reached"
    ACTOR_TOKEN = "actor_token"  # noqa: S105 (no secret)
    ALL_SCOPES_WITHHELD = "all_scopes_withheld"
    API_WITHHELD = "api_withheld"
    ANOTHER_USER = "another_user"
    ASSERTION_REFUSED = "assertion_refused"
    AUTHORIZATION_PENDING = "authorization_pending"
    CLAIMS_NOT_JSON = "claims_not_json"
    CLAIMS_NOT_OBJECT = "claims_not_object"
    CLIENT_DOCUMENT = "client_document"
    DENIED = "denied"
    DEVICE_CODE_EXPIRED = "device_code_expired"
    INVALID_CLAIM = "invalid_claim"
    INVALID_CODE_CHALLENGE = "invalid_code_challenge"
    INVALID_CODE_CHALLENGE_METHOD = "invalid_code_challenge_method"
    INVALID_DPOP_JKT = "invalid_dpop_jkt"
    INVALID_MAX_AGE = "invalid_max_age"
    INVALID_PROMPT = "invalid_prompt"
    ISSUER_UNREAD = "issuer_unread"
    MISSING_CLIENT_AUTHENTICATION = "missing_client_authentication"
    MISSING_PARAMETER = "missing_parameter"
    MISSING_RESPONSE_TYPE = "missing_response_type"
    MISSING_STATE = "missing_state"
    MOVED = "moved"
    MUST_ACCEPT_TERMS = "must_accept_terms"
    MUST_CONSENT = "must_consent"
    MUST_SELECT_ACCOUNT = "must_select_account"
    MUST_SET_UP_FACTOR = "must_set_up_factor"
    MUST_SHOW_FACTOR = "must_show_factor"
    MUST_SIGN_IN = "must_sign_in"
    MUST_SIGN_IN_AGAIN = "must_sign_in_again"
    NO_API_OF_SERVICE = "no_api_of_service"
    NO_ID_JAG_AUDIENCE = "no_id_jag_audience"
    NO_LONGER_A_MEMBER = "no_longer_a_member"
    NO_LONGER_EXCHANGING = "no_longer_exchanging"
    NO_SCOPE_OF_API = "no_scope_of_api"
    NO_SIGNED_RESPONSES = "no_signed_responses"
    NO_TARGET = "no_target"
    NOT_A_MEMBER = "not_a_member"
    NOT_A_MEMBER_OF_API = "not_a_member_of_api"
    NOT_AVAILABLE = "not_available"
    NOT_PUSHED = "not_pushed"
    NOT_SIGNED = "not_signed"
    NOTHING_LEFT = "nothing_left"
    ONE_FACTOR = "one_factor"
    PROMPT_NONE_WITH_OTHERS = "prompt_none_with_others"
    PUBLIC_CLIENT = "public_client"
    RESOURCE_NOT_APPROVED = "resource_not_approved"
    RESOURCE_NOT_ASSERTED = "resource_not_asserted"
    RESOURCE_WITHDRAWN = "resource_withdrawn"
    SAML_CLOCK = "saml_clock"
    SAML_INVALID_SIGNATURE = "saml_invalid_signature"
    SAML_MALFORMED = "saml_malformed"
    SAML_METADATA_EXPIRED = "saml_metadata_expired"
    SAML_NAME_ID_MISSING = "saml_name_id_missing"
    SAML_NAME_ID_POLICY = "saml_name_id_policy"
    SAML_NO_AUTHN_CONTEXT = "saml_no_authn_context"
    SAML_NOT_SIGNED = "saml_not_signed"
    SAML_UNKNOWN_ENTITY = "saml_unknown_entity"
    SAML_UNREGISTERED_ACS = "saml_unregistered_acs"
    SAML_UNSUPPORTED = "saml_unsupported"
    SAML_USED_BEFORE = "saml_used_before"
    SAML_WEAK_ALGORITHM = "saml_weak_algorithm"
    SAML_WRONG_DESTINATION = "saml_wrong_destination"
    SESSION_ENDED = "session_ended"
    SIGN_IN_TOO_OLD = "sign_in_too_old"
    SLOW_DOWN = "slow_down"
    SCOPE_NOT_ASSERTED = "scope_not_asserted"
    SCOPE_NOT_AT_AUDIENCE = "scope_not_at_audience"
    SUBJECT_NO_ID_TOKEN = "subject_no_id_token"  # noqa: S105 (no secret)
    SUBJECT_OF_SERVICE = "subject_of_service"
    SUBJECT_REFUSED = "subject_refused"
    SUBJECT_UNBOUND = "subject_unbound"
    TOO_MANY_ACTORS = "too_many_actors"
    TOO_MANY_ASSERTIONS = "too_many_assertions"
    TOO_MANY_RESOURCES = "too_many_resources"
    TWO_ACCESS_TOKENS = "two_access_tokens"
    TWO_AUTHENTICATIONS = "two_authentications"
    TWO_CLIENTS = "two_clients"
    TWO_TARGETS = "two_targets"
    UNKNOWN_RESOURCE = "unknown_resource"
    UNREADABLE_RESOURCE = "unreadable_resource"
    UNKNOWN_SUBJECT = "unknown_subject"
    UNREGISTERED_POST_LOGOUT_URI = "unregistered_post_logout_uri"
    UNSUPPORTED_PARAMETER = "unsupported_parameter"
    UNSUPPORTED_RESPONSE_TYPE = "unsupported_response_type"
    UNSUPPORTED_TOKEN_TYPE = "unsupported_token_type"  # noqa: S105 (no secret)
    WRONG_AUDIENCE = "wrong_audience"
    WRONG_ISSUER = "wrong_issuer"


# Those with N_ are shown to operators as they are, in their language.
SENTENCES: dict[Cause, str] = {
    Cause.ACR_NOT_REACHED: N_("The required acr was not reached."),
    Cause.ACTOR_TOKEN: N_(
        "An 'actor_token' is not supported; the client that exchanges a token is the actor."
    ),
    Cause.ALL_SCOPES_WITHHELD: N_("The user withholds every scope that was asked for."),
    Cause.API_WITHHELD: N_(
        "The user withholds everything at the resource %(resource)s, which the request is for."
    ),
    Cause.ANOTHER_USER: N_(
        "Another user is signed in than the request names, and prompt=none forbids a sign-in."
    ),
    Cause.ASSERTION_REFUSED: "The assertion is refused: %(fault)s.",
    Cause.AUTHORIZATION_PENDING: "The user has not answered yet; ask again after the interval.",
    Cause.CLAIMS_NOT_JSON: N_("The parameter 'claims' is not JSON."),
    Cause.CLAIMS_NOT_OBJECT: N_("The parameter 'claims' is not a JSON object."),
    Cause.CLIENT_DOCUMENT: N_(
        "The client metadata document at the client_id cannot be used: %(reason)s."
    ),
    Cause.DENIED: N_("The user refused."),
    Cause.DEVICE_CODE_EXPIRED: "The device code has expired; request a new one.",
    Cause.INVALID_CLAIM: N_("A claim in 'claims' is neither null nor a JSON object."),
    Cause.INVALID_CODE_CHALLENGE: N_("The 'code_challenge' is not 43 characters of base64url."),
    Cause.INVALID_CODE_CHALLENGE_METHOD: N_("The 'code_challenge_method' has to be S256."),
    Cause.INVALID_DPOP_JKT: N_("The 'dpop_jkt' is not 43 characters of base64url."),
    Cause.INVALID_MAX_AGE: N_("The 'max_age' is not a number of seconds."),
    Cause.INVALID_PROMPT: N_(
        "The 'prompt' has a value other than none, login, consent, select_account."
    ),
    Cause.ISSUER_UNREAD: "The keys of the assertion's issuer could not be read: %(fault)s.",
    Cause.MISSING_CLIENT_AUTHENTICATION: (
        "Client authentication is missing: send client_id and client_secret, or a client_assertion."
    ),
    Cause.MISSING_PARAMETER: N_("The parameter '%(name)s' is missing."),
    Cause.MISSING_RESPONSE_TYPE: N_("The parameter 'response_type' is missing; send code."),
    Cause.MISSING_STATE: N_(
        "The parameter 'state' is missing; send a random value and compare it on return."
    ),
    Cause.MOVED: (
        "The access token is of an issuer that its client has been moved from; get a new token."
    ),
    Cause.MUST_ACCEPT_TERMS: N_(
        "The user has to accept the terms of service, and prompt=none forbids it."
    ),
    Cause.MUST_CONSENT: N_("The user has to consent, and prompt=none forbids it."),
    Cause.MUST_SELECT_ACCOUNT: N_("The user has to choose an account, and prompt=none forbids it."),
    Cause.MUST_SET_UP_FACTOR: N_(
        "The user has to set up a second factor, and prompt=none forbids it."
    ),
    Cause.MUST_SHOW_FACTOR: N_("The user has to show a second factor, and prompt=none forbids it."),
    Cause.MUST_SIGN_IN: N_("The user has to sign in, and prompt=none forbids it."),
    Cause.MUST_SIGN_IN_AGAIN: N_("The user has to sign in again, and prompt=none forbids it."),
    Cause.NO_API_OF_SERVICE: N_(
        "A service needs an API: name one that the client is registered for in 'resource', or "
        "register a default API."
    ),
    Cause.NO_ID_JAG_AUDIENCE: N_(
        "The client is not registered for identity assertions with the audience %(resource)s."
    ),
    Cause.NO_LONGER_A_MEMBER: "The user is in none of the groups that may use this client.",
    Cause.NO_LONGER_EXCHANGING: (
        "A client that acts with the token is disabled, or may not exchange tokens any more."
    ),
    Cause.NO_SCOPE_OF_API: N_(
        "None of the scopes asked for is registered for the client at the API %(resource)s."
    ),
    Cause.NO_SIGNED_RESPONSES: N_(
        "The client is registered without an authorization_signed_response_alg."
    ),
    Cause.NO_TARGET: N_(
        "A token is exchanged for one of an API: name it in 'resource', or register a default one."
    ),
    Cause.NOT_A_MEMBER: "The user is not in a group that may use this client.",
    Cause.NOT_A_MEMBER_OF_API: "The user is not in a group that may use the API %(resource)s.",
    Cause.NOT_AVAILABLE: N_(
        "The scope goes beyond what this token can be exchanged for at the API %(resource)s."
    ),
    Cause.NOT_PUSHED: (
        "This client has to push its authorization requests to /oauth2/par, and to send the "
        "request_uri from there (RFC 9126)."
    ),
    Cause.NOT_SIGNED: "This client has to sign its authorization requests (RFC 9101).",
    Cause.NOTHING_LEFT: "No scope that was granted is allowed any more.",
    Cause.ONE_FACTOR: (
        "This client requires two-step verification, and the user signed in without it."
    ),
    Cause.PROMPT_NONE_WITH_OTHERS: N_("The 'prompt' has none together with another value."),
    Cause.PUBLIC_CLIENT: "The client is public; this endpoint needs client authentication.",
    Cause.RESOURCE_NOT_ASSERTED: N_(
        "The resource %(resource)s is not among those that the assertion is for."
    ),
    Cause.RESOURCE_NOT_APPROVED: N_(
        "The resource %(resource)s is not among those that the user approved."
    ),
    Cause.RESOURCE_WITHDRAWN: N_(
        "The client may no longer use the resource %(resource)s, or its user may not."
    ),
    Cause.SAML_CLOCK: N_(
        "The request was issued at %(sent)s, and it is %(now)s here: the clocks differ, or the "
        "request is old."
    ),
    Cause.SAML_INVALID_SIGNATURE: N_(
        "No registered certificate of the service provider verifies the signature."
    ),
    Cause.SAML_MALFORMED: N_("The SAML message cannot be read: %(fault)s"),
    Cause.SAML_METADATA_EXPIRED: N_(
        "No registered certificate verifies the signature, and the metadata that it came from has "
        "expired on %(expired)s."
    ),
    Cause.SAML_NAME_ID_MISSING: N_(
        "The user has no value for the NameID, which is %(name_id)s here; only a verified email "
        "address counts."
    ),
    Cause.SAML_NAME_ID_POLICY: N_(
        "The service provider asks for the NameID format %(sent)s; registered is %(name_id)s."
    ),
    Cause.SAML_NO_AUTHN_CONTEXT: N_("None of the requested authentication contexts is known."),
    Cause.SAML_NOT_SIGNED: N_("The service provider is registered to sign its requests."),
    Cause.SAML_UNKNOWN_ENTITY: N_(
        "No service provider with this entity ID is registered and enabled."
    ),
    Cause.SAML_UNREGISTERED_ACS: N_(
        "The AssertionConsumerServiceURL does not match any registered one exactly."
    ),
    Cause.SAML_UNSUPPORTED: N_("The request needs what is not supported: %(what)s."),
    Cause.SAML_USED_BEFORE: N_("This request was answered before; begin again."),
    Cause.SAML_WEAK_ALGORITHM: N_(
        "The signature is of an algorithm that is not accepted; use RSA or ECDSA with SHA-256."
    ),
    Cause.SAML_WRONG_DESTINATION: N_(
        "The message is for another address: its Destination is %(sent)s, not %(expected)s."
    ),
    Cause.SESSION_ENDED: "The sign-in in which this was granted has ended.",
    Cause.SIGN_IN_TOO_OLD: N_(
        "The sign-in is older than max_age allows, and prompt=none forbids a new one."
    ),
    Cause.SLOW_DOWN: (
        "The device polls too often; wait 5 seconds longer before this and each further request."
    ),
    Cause.SCOPE_NOT_ASSERTED: N_("The scope goes beyond that of the assertion."),
    Cause.SCOPE_NOT_AT_AUDIENCE: N_(
        "The scope goes beyond what the client may request at this audience."
    ),
    Cause.SUBJECT_NO_ID_TOKEN: N_(
        "The subject_token is no valid identity token of this server for this client, or what the "
        "user approved has ended."
    ),
    Cause.SUBJECT_OF_SERVICE: N_(
        "The subject_token is of a service. Only the token of a person can be exchanged; a service "
        "gets its own with grant_type=client_credentials."
    ),
    Cause.SUBJECT_REFUSED: N_(
        "The subject_token is no live access token of this server, or this client may not "
        "exchange it."
    ),
    Cause.SUBJECT_UNBOUND: (
        "The subject_token is not bound to a key, which the client that it was issued to requires "
        "by now."
    ),
    Cause.TOO_MANY_ACTORS: N_(
        "The subject_token has been exchanged three times already; that is the limit."
    ),
    Cause.TOO_MANY_ASSERTIONS: N_(
        "The client has presented too many assertions; wait until some have expired."
    ),
    Cause.TOO_MANY_RESOURCES: N_("The request names more than 10 resources."),
    Cause.TWO_ACCESS_TOKENS: N_("The access token is sent in two places; use one."),
    Cause.TWO_AUTHENTICATIONS: N_(
        "The client authenticates in two ways at once; use one (RFC 6749 section 2.3)."
    ),
    Cause.TWO_CLIENTS: N_("The header and the body name two different clients."),
    Cause.TWO_TARGETS: N_("The parameters 'resource' and 'audience' name different APIs."),
    Cause.UNKNOWN_RESOURCE: N_(
        "The resource %(resource)s is not an API that this client is registered for."
    ),
    Cause.UNREADABLE_RESOURCE: N_("The 'resource' is not a URI."),
    Cause.UNKNOWN_SUBJECT: "No user here has linked the account that the assertion is about.",
    Cause.UNREGISTERED_POST_LOGOUT_URI: (
        "The 'post_logout_redirect_uri' does not match any registered one exactly."
    ),
    Cause.UNSUPPORTED_PARAMETER: N_("The parameter '%(name)s' is not supported; leave it out."),
    Cause.UNSUPPORTED_RESPONSE_TYPE: N_("The only response_type is code."),
    Cause.UNSUPPORTED_TOKEN_TYPE: N_(
        "The only '%(name)s' is urn:ietf:params:oauth:token-type:access_token."
    ),
    Cause.WRONG_AUDIENCE: "The access token is for another audience: %(resource)s.",
    Cause.WRONG_ISSUER: (
        "The client belongs to the issuer %(name)s, and this is an address of %(other)s."
    ),
}


class Reason(StrEnum):
    """What is wrong, as only operators learn it: the answer to a stranger does not tell."""

    ALTERED = "altered"
    API_DISABLED = "api_disabled"
    API_ELSEWHERE = "api_elsewhere"
    ASSERTION = "assertion"
    CLIENT_DISABLED = "client_disabled"
    CLIENT_DOCUMENT = "client_document"
    ENDED_SECRET = "ended_secret"  # noqa: S105 (no secret)
    EXPIRED = "expired"
    EXPIRED_SECRET = "expired_secret"  # noqa: S105 (no secret)
    GRANT_ENDED = "grant_ended"
    ISSUED_TO_ANOTHER = "issued_to_another"
    KEY_SET = "key_set"
    NO_ADMINISTRATOR = "no_administrator"
    NOT_A_PARTY = "not_a_party"
    NOT_OURS = "not_ours"
    OF_SERVICE = "of_service"
    QUOTED_SECRET = "quoted_secret"  # noqa: S105 (no secret)
    REVOKED = "revoked"
    SESSION_ENDED = "session_ended"
    SWAPPED = "swapped"
    TOKEN_IN_URL = "token_in_url"  # noqa: S105 (no secret)
    TOKEN_OF_DISABLED_CLIENT = "token_of_disabled_client"  # noqa: S105 (no secret)
    UNKNOWN = "unknown"
    UNKNOWN_CLIENT = "unknown_client"
    USED_BEFORE = "used_before"
    USER_DISABLED = "user_disabled"
    WAITED_TOO_LONG = "waited_too_long"
    WITHOUT_SCOPE = "without_scope"
    WRONG_METHOD = "wrong_method"
    WRONG_SECRET = "wrong_secret"  # noqa: S105 (no secret)
    WRONG_SECRET_OF_API = "wrong_secret_of_api"  # noqa: S105 (no secret)


# As the log and the audit trail say it.
REASONS: dict[Reason, str] = {
    Reason.ALTERED: "altered",
    Reason.API_DISABLED: "disabled API",
    Reason.API_ELSEWHERE: "the credentials of an API, which can only introspect",
    Reason.ASSERTION: "assertion: %(fault)s",
    Reason.CLIENT_DISABLED: "disabled client",
    Reason.CLIENT_DOCUMENT: "client metadata document: %(fault)s",
    Reason.ENDED_SECRET: "the right secret, which has ended",
    Reason.EXPIRED: "expired",
    Reason.EXPIRED_SECRET: "a previous secret, which has expired",
    Reason.GRANT_ENDED: "its grant has ended: %(end_reason)s",
    Reason.ISSUED_TO_ANOTHER: "issued to another client",
    Reason.KEY_SET: "key set: %(fault)s",
    Reason.NO_ADMINISTRATOR: "owner",
    Reason.NOT_A_PARTY: "issued to another client, and for no API as which this client acts",
    Reason.NOT_OURS: "not a token of this server",
    Reason.OF_SERVICE: "issued to a service",
    Reason.QUOTED_SECRET: "the right secret, in quotes or between spaces",
    Reason.REVOKED: "revoked",
    Reason.SESSION_ENDED: "session ended",
    Reason.SWAPPED: "client_id and client_secret are swapped",
    Reason.TOKEN_IN_URL: "in the URL",
    Reason.TOKEN_OF_DISABLED_CLIENT: "client disabled",
    Reason.UNKNOWN: "unknown",
    Reason.UNKNOWN_CLIENT: "unknown client",
    Reason.USED_BEFORE: "used before",
    Reason.USER_DISABLED: "user disabled",
    Reason.WAITED_TOO_LONG: "waited too long",
    Reason.WITHOUT_SCOPE: "without %(scope)s",
    Reason.WRONG_METHOD: "wrong method: %(method)s",
    Reason.WRONG_SECRET: "wrong secret",
    Reason.WRONG_SECRET_OF_API: "wrong secret of an API",
}


class KeyFault(StrEnum):
    """What is wrong with the key of a request; other faults are named after a claim of the proof.

    The values are those that have been stored since DPoP was introduced.
    """

    ANOTHER_KEY = "another key"
    BOUND_CODE = "code"
    BOUND_REFRESH_TOKEN = "refresh token"  # noqa: S105 (no secret)
    BOUND_SUBJECT_TOKEN = "subject token"  # noqa: S105 (no secret)
    DPOP_JKT = "dpop_jkt"
    MISSING = "missing"
    NO_LONGER_ENOUGH = "unbound by now"
    NONCE = "nonce"
    NOT_BOUND = "not bound"
    SENT_AS_BEARER = "as bearer"


class SubjectFault(StrEnum):
    """What is wrong with the subject token of a request for an identity assertion."""

    ANOTHER_CLIENT = "another client"
    ENDED = "ended"
    EXPIRED = "expired"
    INVALID = "invalid"
    TYPE = "type"


class PkceFault(StrEnum):
    """What is wrong with a code_verifier. The values have always been stored like this."""

    CHALLENGE_AS_VERIFIER = "challenge as verifier"
    NO_CHALLENGE = "no challenge"
    NO_VERIFIER = "no verifier"
    WRONG_VERIFIER = "wrong verifier"


def describe(cause: Cause, **variables: str) -> Message:
    """Return what an application is told about a cause."""
    return Message(SENTENCES[cause], code=cause, **variables)


def because(reason: Reason, **variables: str) -> Message:
    """Return what the log and the audit trail say about a reason."""
    return Message(REASONS[reason], code=reason, **variables)


def plain(text: str) -> str:
    """Return a text with the characters that an error description may have (RFC 6749 §5.2)."""
    text = text.replace("§", "section ").replace('"', "'").replace("…", "...")
    return "".join(c if " " <= c <= "~" and c != "\\" else "?" for c in text)
