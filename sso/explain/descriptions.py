"""What applications are told of a refusal: always in English, and translated where it is a cause.

What is not here is shown as it was sent.
"""

from sso.explain.case import Case
from sso.i18n.message import Message

_MISSING = ("client_id", "code_challenge", "grant_type", "redirect_uri", "token")
_UNSUPPORTED = ("registration", "request", "request_uri")
TEXTS = {
    *(Message("The parameter '%(name)s' is missing.", name=name) for name in _MISSING),
    *(
        Message("The parameter '%(name)s' is not supported; leave it out.", name=name)
        for name in _UNSUPPORTED
    ),
    Message("A claim in 'claims' is neither null nor a JSON object."),
    Message("Another user is signed in than the request names, and prompt=none forbids a sign-in."),
    Message("The 'code_challenge' is not 43 characters of base64url."),
    Message("The 'code_challenge_method' has to be S256."),
    Message("The 'dpop_jkt' is not 43 characters of base64url."),
    Message("The 'max_age' is not a number of seconds."),
    Message("The 'prompt' has a value other than none, login, consent, select_account."),
    Message("The 'prompt' has none together with another value."),
    Message("The access token is sent in two places; use one."),
    Message("The client authenticates in two ways at once; use one (RFC 6749 section 2.3)."),
    Message("The client is registered without an authorization_signed_response_alg."),
    Message("The header and the body name two different clients."),
    Message("The only response_type is code."),
    Message("The parameter 'claims' is not JSON."),
    Message("The parameter 'claims' is not a JSON object."),
    Message("The parameter 'response_type' is missing; send code."),
    Message("The parameter 'state' is missing; send a random value and compare it on return."),
    Message("The required acr was not reached."),
    Message("The sign-in is older than max_age allows, and prompt=none forbids a new one."),
    Message("The user has to choose an account, and prompt=none forbids it."),
    Message("The user has to consent, and prompt=none forbids it."),
    Message("The user has to set up a second factor, and prompt=none forbids it."),
    Message("The user has to show a second factor, and prompt=none forbids it."),
    Message("The user has to sign in again, and prompt=none forbids it."),
    Message("The user has to sign in, and prompt=none forbids it."),
    Message("The user refused."),
    Message("The user withholds every scope that was asked for."),
}
_BY_TEXT: dict[str, Message] = {text: text for text in TEXTS}


def described(case: Case) -> str:
    """The description as a cause."""
    return _BY_TEXT.get(case["description"], case["description"])
