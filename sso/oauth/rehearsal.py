"""Requests of an earlier server's access log, compared with what this server would answer.

The registration is asked as the authorization endpoint asks it. Nothing is written, nobody is
called, and no person takes part: what depends on a sign-in is not compared. A log has no bodies, so
of posted requests it knows the address alone. The memory does not grow with the log.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import NamedTuple

from authlib.oauth2.rfc6749.errors import OAuth2Error
from sqlalchemy import Connection

from sso.flow import resources, scopes
from sso.flow.request import PARAMETERS, REPEATABLE
from sso.i18n.message import code_of
from sso.imports.access_logs import LoggedRequest
from sso.oauth import authorization_server, end_session, tokens
from sso.oauth.authlib_request import ProtocolRequest
from sso.oauth.client_addresses import check_issuer
from sso.store import clients
from sso.store.clients import RegisteredClient
from sso.web import parameters, routing
from sso.web.routing import Route

MOST_GROUPS = 1000  # of differences, each with an application, a redirect URI and a reason
MOST_APPLICATIONS = 2000
_MOST_ANSWERS = 10_000  # that are remembered, as most requests of an application are alike
_LONGEST = 300  # characters of a URL that are shown
_ALWAYS_ALLOWED = ("HEAD", "OPTIONS")
# What applications ask of earlier servers, beside the addresses of `config.issuers`: pages that
# only the earlier server's own pages lead to are left out.
_OF_EARLIER_SERVERS = re.compile(
    r"(?:/[^/]+)?/realms/[^/]+/(?:protocol/|\.well-known/|broker/|clients-registrations/|device\b)"
    r"|(?:/[^/]+)?/admin/realms/"
    r"|/application/(?:o|saml)/|/outpost\.goauthentik\.io/"
    r"|/api/(?:oidc|verify|authz)\b"
)
_IDENTIFIER = re.compile(r"(?=[^/]*[0-9])[^/]{16,}|[0-9]+")
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}\Z")
# Parameters that are new in each request. What they are does not matter, only whether they are.
_NEW_EACH_TIME = ("state", "nonce", "login_hint")


class Reason(NamedTuple):
    """Why a request would be answered otherwise; `code` is for programs."""

    code: str
    description: str


class Key(NamedTuple):
    """What differences are grouped by."""

    client_id: str | None  # `None`: the reason is the address, for all clients
    address: str  # the redirect URI, or then the path
    reason: Reason


@dataclass
class Occurrences:
    requests: int
    first_line: int


@dataclass
class Application:
    """The requests that name a client ID."""

    name: str | None  # `None`: nobody has registered it
    requests: int = 0
    different: int = 0


@dataclass
class Rehearsal:
    """The result so far; `add` takes the next request. A request of Flask has to be active."""

    connection: Connection
    applications: dict[str, Application] = field(default_factory=dict)
    differences: dict[Key, Occurrences] = field(default_factory=dict)
    requests: int = 0  # to the earlier server, as far as applications make them
    different: int = 0
    beyond: int = 0  # of the different ones, those whose group is one too many
    refused_before: int = 0
    not_judged: int = 0
    _answers: dict[bytes, Reason | None] = field(default_factory=dict)

    def in_order(self) -> list[tuple[str, Application]]:
        """Return the applications by client ID, those with the most differences first."""
        pairs = self.applications.items()
        return sorted(pairs, key=lambda pair: (-pair[1].different, -pair[1].requests, pair[0]))

    def of(self, client_id: str | None) -> list[tuple[Key, Occurrences]]:
        """Return the differences of an application, or of addresses, the most frequent first."""
        pairs = [pair for pair in self.differences.items() if pair[0].client_id == client_id]
        return sorted(pairs, key=lambda pair: (-pair[1].requests, pair[1].first_line))

    def add(self, request: LoggedRequest, line: int) -> None:
        """Compare the answer to a request of this line."""
        route = routing.at(request.path)
        if route is None or not route.issuers:
            if not _OF_EARLIER_SERVERS.match(request.path):
                return
            route = None
        self.requests += 1
        if request.status >= 400:
            self.refused_before += 1
        elif route is None:
            reason = Reason("no_address", "The server answers at no such address.")
            self._count(Key(None, _IDENTIFIER.sub("…", request.path[:_LONGEST]), reason), line)
        elif request.method not in (*route.methods, *_ALWAYS_ALLOWED):
            reason = Reason("method", f"{request.method} is not allowed there.")
            self._count(Key(None, request.path[:_LONGEST], reason), line)
        elif route.name not in ("authorize", "end_session"):
            self.not_judged += "POST" in route.methods and request.method == "POST"
        elif request.method != "GET" or not request.query:
            self.not_judged += 1
        else:
            self._judge(request, route, line)

    def _judge(self, request: LoggedRequest, route: Route, line: int) -> None:
        """Compare a request of a browser, which has its parameters in the URL."""
        try:
            pairs = parameters.read_pairs(request.query.encode("utf-8", "surrogatepass"))
            names = PARAMETERS if route.name == "authorize" else end_session.PARAMETERS
            values = parameters.single(pairs, names, REPEATABLE)
        except parameters.ParameterFault as error:
            self._count(Key(None, request.path[:_LONGEST], Reason("parameters", str(error))), line)
            return
        hint = (tokens.unverified_claims(values.get("id_token_hint", "")) or {}).get("aud")
        client_id = values.get("client_id") or (hint if isinstance(hint, str) else "")
        client = self._client(client_id)
        application = self._application(client_id, client)
        if route.name == "authorize":
            uri = values.get("redirect_uri", "")
            reason = self._of_authorization(values, client, route.issuers)
        else:
            uri = values.get("post_logout_redirect_uri", "")
            reason = _of_sign_out(values, client, client_id)
        if reason:
            application.different += 1
            self._count(Key(client_id[:_LONGEST], uri[:_LONGEST], reason), line)

    def _of_authorization(
        self, values: Mapping[str, str], client: RegisteredClient | None, issuers: frozenset[str]
    ) -> Reason | None:
        """Return why an authorization request would be refused, or get less than it asks for.

        A hint is of the earlier server, and a signed or pushed request is not judged.
        """
        asked = {name: values[name] for name in PARAMETERS if name in values}
        asked.pop("id_token_hint", None)
        if "request" in asked or "request_uri" in asked:
            self.not_judged += 1
            return None
        alike = {name: _alike(name, value) for name, value in asked.items()}
        digest = sha256(repr((sorted(alike.items()), sorted(issuers))).encode("utf-8", "replace"))
        key = digest.digest()
        if key not in self._answers:
            if len(self._answers) >= _MOST_ANSWERS:
                self._answers.clear()
            self._answers[key] = self._answer(asked, client, issuers)
        return self._answers[key]

    def _answer(
        self, asked: dict[str, str], client: RegisteredClient | None, issuers: frozenset[str]
    ) -> Reason | None:
        try:
            parameters.check_clean(asked, ("client_id", "redirect_uri"))
            if client:
                check_issuer(client, issuers)
            request = ProtocolRequest(asked)
            request.connection, request.client = self.connection, client
            authorization_server().get_consent_grant(request)
        except OAuth2Error as error:
            return _reason(error.get_error_description(), error.error)
        except parameters.ParameterFault as error:
            return Reason("parameters", str(error))
        granted = " ".join(map(resources.scope_of, scopes.split(request.asked.scope)))
        if dropped := scopes.dropped(asked.get("scope"), granted):
            text = f"It goes on without the scopes {dropped[:_LONGEST]}."
            return Reason("scope_dropped", text)
        return None

    def _client(self, client_id: str) -> RegisteredClient | None:
        is_clean = client_id.isascii() and client_id.isprintable()
        return clients.find_enabled(self.connection, client_id) if client_id and is_clean else None

    def _application(self, client_id: str, client: RegisteredClient | None) -> Application:
        """Count a request of an application; those beyond the limit are counted nowhere."""
        client_id, name = client_id[:_LONGEST], client.name if client else None
        application = self.applications.get(client_id) or Application(name)
        if len(self.applications) < MOST_APPLICATIONS:
            self.applications[client_id] = application
        application.requests += 1
        return application

    def _count(self, key: Key, line: int) -> None:
        self.different += 1
        if key in self.differences:
            self.differences[key].requests += 1
        elif len(self.differences) < MOST_GROUPS:
            self.differences[key] = Occurrences(1, line)
        else:
            self.beyond += 1


def _of_sign_out(
    values: Mapping[str, str], client: RegisteredClient | None, client_id: str
) -> Reason | None:
    """Return why a person would not be led back to the application, as far as the log tells."""
    uri = values.get("post_logout_redirect_uri")
    if uri is None and "redirect_uri" in values:
        text = "The parameter 'redirect_uri' is not supported here; post_logout_redirect_uri is."
        return Reason("unsupported_parameter", text)
    problem = end_session.error_of(client, uri, is_named=bool(client_id))
    return _reason(problem, "invalid_request") if problem else None


def _reason(description: str | None, error: str) -> Reason:
    text = description or error
    return Reason(code_of(text) or error, str(text))


def _alike(name: str, value: str) -> str:
    """Return what matters of a value: requests that differ in the rest have the same answer."""
    if name in _NEW_EACH_TIME and value.isprintable() and len(value) < _LONGEST:
        return ""
    if name == "code_challenge" and _CHALLENGE.match(value):
        return ""
    return value
