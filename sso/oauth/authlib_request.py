"""Authlib's view of a request, made from strictly read parameters."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from authlib.oauth2.rfc6749 import OAuth2Request
from authlib.oauth2.rfc6749.errors import InvalidRequestError, OAuth2Error
from authlib.oauth2.rfc6749.requests import OAuth2Payload
from sqlalchemy import Connection

from sso import context
from sso.crypto.client_jwt import ClientKey
from sso.crypto.dpop import Proof
from sso.flow.request import PARAMETERS, AuthorizationRequest
from sso.flow.resources import Apis
from sso.i18n.message import Message
from sso.store import apis as stored_apis
from sso.store.apis import ResourceServer
from sso.store.approvals import PushedUse
from sso.store.clients import RegisteredClient
from sso.store.exchanges import ExchangedToken
from sso.store.grants import LiveGrant
from sso.store.service_tokens import NewServiceToken
from sso.web import parameters, routing


@dataclass
class Examined:
    """What is known of the assertion of a request: the client that it proves, or why not."""

    client_id: str = ""
    client: RegisteredClient | None = None
    failure: OAuth2Error | None = None
    reason: Message | None = None  # for the log and the audit trail
    facts: dict[str, object] = field(default_factory=dict)  # for `flask explain`


class Payload(OAuth2Payload):
    """The parameters. Authlib looks at `data` and `grant_type` many times for each request."""

    __slots__ = ("data", "grant_type")  # in place of Authlib's properties

    def __init__(self, values: dict[str, str]) -> None:
        self.data = values
        self.grant_type = values.get("grant_type")

    @property
    def datalist(self) -> dict[str, list[str]]:
        return {name: [value] for name, value in self.data.items()}


class ProtocolRequest(OAuth2Request):
    """Single-valued, clean parameters; and what the request has led to so far."""

    connection: Connection  # in whose transaction the request is answered

    def __init__(self, values: dict[str, str], form: dict[str, str] | None = None) -> None:
        # The published address, not the one that the Host header makes: Authlib checks that it
        # is https, which behind a proxy only the settings know.
        self.http_request = routing.this_request()
        super().__init__(self.http_request.method, context.settings().base_url)
        self.headers = self.http_request.headers
        self.payload = Payload(values)
        self.form_values = form or {}
        self.used_basic = False
        self.examined: Examined | None = None  # the assertion of the client
        self.foreign_digest: str | None = None  # see `foreign_secrets`; "" if the secret is wrong
        self.keep_changes = False  # commit, although the answer is an error
        self.authorization_request: AuthorizationRequest | None = None
        self.is_pushed = False  # the parameters came from the client's backend (RFC 9126)
        self.is_kept = False  # what was pushed waits for the user
        self.pushed_use: PushedUse | None = None  # of what was pushed, when it is answered
        self.is_used_up = False  # what was pushed, together with the answer
        self.writes_code_alone = False  # and uses what was pushed, but writes nothing else
        self.proof: Proof | None = None  # of a key that the client has (RFC 9449)
        self.live_grant: LiveGrant | None = None  # from which tokens were issued
        self.exchanged_token: ExchangedToken | None = None  # that was issued
        self.service_token: NewServiceToken | None = None  # that the client got for itself
        self.assertion_keys: Callable[[], Sequence[ClientKey]] | None = None  # of its issuer
        self.id_jag_audience: str | None = None  # the server that an assertion was issued for
        self.claimed_client: str | None = None  # before it has proven who it is
        self.details: dict[str, object] = {}  # of a refusal, for the log and the audit trail alone
        self.facts: dict[str, object] = {}  # as well, for `flask explain` alone
        self.error: str | None = None  # of the answer
        self.is_reported = False  # an event of its own reports the refusal
        self.audience: str | None = None  # the API that the access token is for
        self.resource_server: ResourceServer | None = None  # an API, in place of a client

    @property
    def form(self) -> dict[str, str]:
        return self.form_values

    @property
    def args(self) -> dict[str, str]:
        return {}

    @cached_property
    def apis(self) -> Apis:
        """The APIs that the client may use."""
        return stored_apis.of_client(self.connection, self.client)

    @property
    def default_api(self) -> str | None:
        """The API that tokens are for if the client names no resource.

        An agent, which nobody registered, has one if there is exactly one API for agents.
        """
        if self.client.is_agent and len(self.apis) == 1:
            return next(iter(self.apis))
        registered: str | None = self.client.default_api
        return registered

    @property
    def address(self) -> str | None:
        """The IP address that the request came from."""
        address = self.http_request.remote_addr
        return address[:45] if address else None

    @property
    def dpop_jkt(self) -> str | None:
        """The thumbprint of the key that the client has proven to have."""
        return self.proof.thumbprint if self.proof else None

    @property
    def asked(self) -> AuthorizationRequest:
        """The validated authorization request."""
        if self.authorization_request is None:
            raise RuntimeError("the authorization request is not validated yet")
        return self.authorization_request


def form_request(
    once: tuple[str, ...],
    clean: tuple[str, ...] | None = None,
    repeatable: tuple[str, ...] = (),
) -> ProtocolRequest:
    """Return the request of a client's backend, with parameters from the form body only.

    `clean`: those that have to be clean text already; without it, all in `once`. `repeatable`:
    those that may have several values.

    Raises `InvalidRequestError` (RFC 6749 §3.2: POST, form-encoded, nothing repeated).
    """
    http_request = routing.this_request()
    try:
        if parameters.query_pairs(http_request):
            raise parameters.ParameterFault(
                "Parameters belong in the request body, not in its URL."
            )
        form = parameters.single(parameters.form_pairs(http_request), once, repeatable)
        names = once if clean is None else clean
        parameters.check_clean(form, names, exempt=_READ_APART)
    except parameters.ParameterFault as error:
        raise InvalidRequestError(str(error)) from None
    return ProtocolRequest(form, form)


# These may be longer than other parameters; `crypto.client_jwt` bounds and reads them.
_READ_APART = ("client_assertion", "assertion")
CLIENT_FIELDS = ("client_id", "client_secret", "client_assertion", "client_assertion_type")
TOKEN_FIELDS = (
    "grant_type", "code", *CLIENT_FIELDS, "redirect_uri", "code_verifier", "refresh_token", "scope",
    "resource", "device_code", "audience", "subject_token", "subject_token_type", "actor_token",
    "actor_token_type", "requested_token_type", "assertion",
)  # fmt: skip
DEVICE_FIELDS = ("scope", "resource", *CLIENT_FIELDS)
PUSHED_FIELDS = (*PARAMETERS, *CLIENT_FIELDS[1:])
TOKEN_HINT_FIELDS = ("token", "token_type_hint", *CLIENT_FIELDS)
