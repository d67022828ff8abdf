"""A client of an MCP server: registration, authorization, the token, and the calls with it.

It continues the steps of `mcp_server`. Nobody's password is needed: a temporary user signs in, who
is in the groups of the person to play, and is deleted at the end.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import requests
from authlib.integrations.requests_client import OAuthError
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from sso import context, database
from sso.audit import Actor
from sso.checkup import sign_in
from sso.checkup.finding import Findings, ok, run, skipped, warning
from sso.checkup.mcp_server import (
    CLIENT,
    MCP_SERVER,
    PERSON,
    PROXY,
    THIS_SERVER,
    Fault,
    Server,
    Step,
    bearer_challenge,
    unreachable,
    walk,
)
from sso.checkup.reach import Trouble
from sso.checkup.relying_party import RelyingParty, Request
from sso.checkup.sign_in import (
    PROBE_CALLBACK,
    Browser,
    Busy,
    LeftServer,
    Page,
    Stopped,
    temporary_public_client,
    temporary_user,
)
from sso.config.auth_methods import NO_AUTH_METHOD
from sso.crypto import keys
from sso.extensions import db
from sso.flow import scopes
from sso.i18n.message import Message, Quote
from sso.models import Client, User
from sso.oauth import document_clients
from sso.process.program import COMMAND
from sso.services import agent_identity, agents, client_documents
from sso.store import clients
from sso.upstream.remote_cache import RemoteUnavailable

DEADLINE = 60  # seconds for all requests to this server
_SHOWN = 200
_FORGED = "A" * 16  # of the signature


@dataclass(frozen=True)
class Player:
    """The client and the person to play. `client`: `None` for a temporary one.

    `document`: the URL of a client metadata document, instead of a client. `groups`: of the person;
    `None` if nobody was named.
    """

    client: Client | None = None
    document: str | None = None
    email: str | None = None
    groups: tuple[str, ...] | None = None
    is_disabled: bool = False

    @classmethod
    def of(cls, client: Client | str | None, user: User | None) -> "Player":
        """`client`: a registered one, or the URL of a metadata document."""
        registered = None if isinstance(client, str) else client
        document = client if isinstance(client, str) else None
        if user is None:
            return cls(registered, document)
        groups, is_disabled = tuple(user.groups), user.is_disabled
        return cls(registered, document, user.email, groups, is_disabled)

    @property
    def is_temporary(self) -> bool:
        """Whether the client is a temporary one."""
        return self.client is None and self.document is None


def check(actor: Actor, server: Server, player: Player, user_name: str | None = None) -> Findings:
    """Play a client step by step.

    `user_name`: of the temporary user; with one, only one such check runs at a time.
    """
    with ExitStack() as stack:
        session = Session(actor, server, player, stack, user_name)
        yield from walk([*server.steps(), *session.steps()])


@dataclass
class Session:
    """A client that signs a person in for an MCP server. `stack` ends what is temporary."""

    actor: Actor
    server: Server
    player: Player
    stack: ExitStack
    user_name: str | None
    client_id: str = ""
    redirect_uri: str = PROBE_CALLBACK
    token: str = field(default="", repr=False)
    foreign_token: str = field(default="", repr=False)
    is_confidential: bool = False
    claims: Mapping[str, Any] = field(default_factory=dict)

    def steps(self) -> list[Step]:
        return [
            ("registration", self.registration),
            ("client", self.find_client),
            ("person", self.find_person),
            ("authorization", self.authorize),
            ("audience", self.read_audience),
            ("scope", self.read_scope),
            ("call with token", self.call),
            ("foreign tokens", self.call_with_foreign_tokens),
        ]

    def registration(self) -> Findings:
        """Say how clients that nobody registered get their `client_id`, in their order."""
        name, metadata = "registration", self.server.metadata
        if "S256" not in metadata.get("code_challenge_methods_supported", ()):
            raise Fault(
                PROXY,
                Message("the metadata offers no PKCE with S256, so clients refuse this server"),
                Message("let the proxy pass the metadata on unchanged"),
            )
        ways = []
        if metadata.get("client_id_metadata_document_supported") is True:
            ways.append(Message("by a Client ID Metadata Document"))
        if "registration_endpoint" in metadata:
            ways.append(Message("by open registration"))
        for way in ways:
            yield ok(name, way)
        if ways:
            return
        message = Message("clients have to be registered by hand")
        hint = Message("set SSO_CLIENT_DOCUMENTS=listed, and allow a domain: %(command)s",
                       command=f"{COMMAND} mcp allow DOMAIN")  # fmt: skip
        if self.player.is_temporary:
            yield warning(name, message, hint)
        else:
            yield skipped(name, message)

    def find_client(self) -> Findings:
        """Check that the client may ask for the API, or register a temporary one."""
        client, name = self.player.client, "client"
        if self.player.document is not None:
            yield from self._read_document(self.player.document)
            return
        if client is None:
            manager = temporary_public_client(self.actor, self.server.resource)
            self.client_id = self.stack.enter_context(manager)
            yield ok(name, Message("a temporary one, registered for the API"))
            return
        self.client_id, title = client.client_id, agent_identity.title_of(client)
        if client.disabled_at is not None:
            message = Message("%(name)s is disabled", name=title)
            raise Fault(CLIENT, message, run(f"{COMMAND} client enable {client.client_id}"))
        if not client.redirect_uris:
            message = Message("%(name)s has no redirect URI: nobody signs in to it",
                              name=title)  # fmt: skip
            raise Fault(CLIENT, message, Message("name a client that people sign in to"))
        self.redirect_uri, self.is_confidential = client.redirect_uris[0], not client.is_public
        if client.registration is not None:
            self._require_agents()
        elif self.server.resource not in client.apis:
            message = Message(
                "%(name)s is not registered for the API %(identifier)s",
                name=title,
                identifier=self.server.resource,
            )
            update = f"{COMMAND} client update {client.client_id} --add-api {self.server.resource}"
            raise Fault(THIS_SERVER, message, run(update))
        yield ok(name, Message("%(name)s, registered for the API", name=title))

    def _require_agents(self) -> None:
        """Raise `Fault` unless clients that nobody registered may use the API."""
        api = self.server.api
        if api is not None and not api.agents:
            message = Message("agents may not use the API %(name)s", name=api.name)
            raise Fault(THIS_SERVER, message, run(f"{COMMAND} mcp add {api.identifier}"))

    def _read_document(self, url: str) -> Findings:
        """Read a client metadata document, as this server does when an agent comes with it."""
        if error := client_documents.url_error(url):
            message = Message("its URL cannot identify a client: %(reason)s", reason=error)
            raise Fault(CLIENT, message, Message("publish the document at another URL"))
        authority = client_documents.authority_of(url)
        with database.reading() as connection:
            error = agents.policy_error(connection, authority)
        if error:
            raise Fault(THIS_SERVER, error, run(f"{COMMAND} mcp allow {authority}"))
        self._require_agents()
        stored = clients.find(url)
        is_disabled = stored is not None and stored.disabled_at is not None
        db.session.rollback()
        if is_disabled:
            message = Message("%(name)s is disabled", name=url)
            raise Fault(THIS_SERVER, message, run(f"{COMMAND} client enable {url}"))
        try:
            metadata = document_clients.read(url).metadata
        except RemoteUnavailable as trouble:
            message = Message("its document: %(reason)s", reason=Quote(str(trouble)[:_SHOWN]))
            hint = Message(
                "the document has to be JSON at a public https address, without redirect"
            )
            raise Fault(CLIENT, message, hint) from None
        self.client_id, self.redirect_uri = url, metadata["redirect_uris"][0]
        self.is_confidential = metadata["token_endpoint_auth_method"] != NO_AUTH_METHOD
        yield ok("client", Message("%(name)s describes itself", name=url))

    def find_person(self) -> Findings:
        """Check that the person may use the API."""
        name, player, api = "person", self.player, self.server.api
        assert api is not None
        if player.groups is None:
            who = Message("a temporary user")
            if api.groups:
                who = Message("a temporary user in the group %(group)s", group=api.groups[0])
            yield ok(name, who)
            return
        if player.is_disabled:
            message = Message("%(email)s is disabled", email=player.email)
            raise Fault(PERSON, message, run(f"{COMMAND} user enable {player.email}"))
        lists = [(api.name, api.groups)]
        if player.client is not None:
            lists.append((agent_identity.title_of(player.client), player.client.groups))
        for what, groups in lists:
            if groups and not set(groups) & set(player.groups):
                message = Message(
                    "%(email)s is in none of the groups that may use %(name)s: %(groups)s",
                    email=player.email,
                    name=what,
                    groups=", ".join(groups),
                )
                update = f"{COMMAND} user update {player.email} --add-group {groups[0]}"
                raise Fault(PERSON, message, run(update))
        yield ok(name, Message("a temporary user with the groups of %(email)s", email=player.email))

    @property
    def _groups(self) -> Iterable[str]:
        if self.player.groups is not None:
            return self.player.groups
        groups = self.server.api.groups[:1] if self.server.api else []
        return [*groups, *(self.player.client.groups[:1] if self.player.client else ())]

    def authorize(self) -> Findings:
        """Sign in, consent, and exchange the code: PKCE, `resource`, `state`, `iss`."""
        try:
            manager = temporary_user(
                self.actor,
                self.user_name,
                groups=self._groups,
                has_second_factor=self.player.client is not None and self.player.client.require_mfa,
            )
            person = self.stack.enter_context(manager)
        except Busy:
            message = Message("another check runs")
            raise Fault(THIS_SERVER, message, Message("try again in a minute")) from None
        browser = Browser(context.settings().base_url, self.redirect_uri, DEADLINE)
        party = self._party(browser, self.server.resource, self.server.scope)
        with _explained():
            request = party.request(self.redirect_uri)
            page = browser.open(request.url)
            if "password" in page.fields:
                page = sign_in.submit_password(browser, page, person)
            page = sign_in.allow(browser, page)
            code = self._code(page, party, request)
            yield ok("authorization", Message("sign-in and consent lead back with a code"))
            iss = dict(parse_qsl(urlsplit(page.url).query)).get("iss")
            yield ok("issuer", Message("iss is %(issuer)s", issuer=str(iss)))
            if self.is_confidential:
                yield skipped("token", Message("only the client has its secret or key"))
                return
            self.token = party.exchange(request, code)["access_token"]
        yield ok("token", Message("the code and its verifier were exchanged for a token"))
        if self.player.is_temporary:
            self._get_foreign_token(browser)

    def _party(self, browser: Browser, resource: str, scope: str | None) -> RelyingParty:
        return sign_in.relying_party(
            browser, self.client_id, auth_method="none", resource=resource, scope=scope
        )

    def _code(self, page: Page, party: RelyingParty, request: Request) -> str:
        """Return the code at the redirect URI. Raises `Fault` if something else came."""
        if not page.url.startswith(request.redirect_uri):
            message = Message("a page with status %(status)s came, and no redirect to the client",
                              status=page.status)  # fmt: skip
            raise Fault(THIS_SERVER, message, _EXPLAIN)
        answer = dict(parse_qsl(urlsplit(page.url).query))
        try:
            return party.code(request, answer)
        except OAuthError as error:
            if error.error == "wrong_issuer":
                message = Message("the answer has the wrong iss, so clients refuse it")
                raise Fault(PROXY, message, Message("check SSO_BASE_URL and the proxy")) from None
            text = f"{answer.get('error', error.error)}: {answer.get('error_description', '')}"
            message = Message("the request was refused: %(error)s", error=Quote(text[:_SHOWN]))
            raise Fault(THIS_SERVER, message, _EXPLAIN) from None

    def _get_foreign_token(self, browser: Browser) -> None:
        """Get a token of the same client and person for this server's userinfo."""
        party = self._party(browser, context.settings().issuer, "openid")
        with _explained():
            request = party.request(self.redirect_uri)
            page = sign_in.allow(browser, browser.open(request.url))
            code = self._code(page, party, request)
            self.foreign_token = party.exchange(request, code)["access_token"]

    def read_audience(self) -> Findings:
        """Verify the token as the MCP server has to, and compare its audience."""
        name = "audience"
        if not self.token:
            yield skipped(name, Message("there is no token"))
            return
        try:
            key_set = KeySet.import_key_set(json.loads(context.key_ring().jwks()))
            decoded = jwt.decode(self.token, key_set, algorithms=[keys.ACCESS_TOKEN_ALGORITHM])
        except (JoseError, ValueError):
            message = Message("the token was not signed with the keys of this database")
            hint = Message("give server and commands the same SSO_DATABASE_URL")
            raise Fault(THIS_SERVER, message, hint) from None
        self.claims = decoded.claims
        audience = self.claims.get("aud")
        if audience != self.server.resource:
            message = Message("it is for %(audience)s", audience=str(audience))
            raise Fault(THIS_SERVER, message, _EXPLAIN)
        yield ok(name, Message("aud is %(audience)s", audience=str(audience)))

    def read_scope(self) -> Findings:
        """Compare the scope of the token with the scopes that the client requested."""
        name = "scope"
        if not self.token:
            yield skipped(name, Message("there is no token"))
            return
        granted = str(self.claims.get("scope", ""))
        own = [each for each in scopes.split(self.server.scope) if each not in scopes.SCOPES]
        if missing := [each for each in own if each not in scopes.split(granted)]:
            message = Message("it lacks %(scopes)s", scopes=" ".join(missing))
            hint = Message("register the client for all scopes of the API, or without any scope")
            raise Fault(THIS_SERVER, message, hint)
        yield ok(name, Message("scope is %(scope)s", scope=granted) if granted
                 else Message("it has none"))  # fmt: skip

    def call(self) -> Findings:
        """Call the MCP server with the token: it has to accept it."""
        name = "call with token"
        if not self.token:
            yield skipped(name, Message("there is no token"))
            return
        answer = self.server.call(self.token)
        if not isinstance(answer, Trouble) and answer.status in (400, 404, 405, 406, 415, 422):
            answer = self.server.call_as_earlier_client(self.token)
        if isinstance(answer, Trouble):
            raise unreachable(answer)
        challenge = bearer_challenge(answer)
        said = challenge.parameters if challenge else {}
        if answer.status == 401:
            message = Message(
                "it refuses the token: %(error)s",
                error=Quote(said.get("error_description", said.get("error", "401"))[:_SHOWN]),
            )
            raise Fault(MCP_SERVER, message, self._settings_hint())
        if answer.status == 403:
            raise self._forbidden(said)
        if answer.status >= 500:
            message = Message("it fails with a token: %(status)s", status=answer.status)
            raise Fault(MCP_SERVER, message, Message(
                "check its log; many fail to read the keys at %(url)s", url=_jwks_uri()
            ))  # fmt: skip
        if answer.status >= 300:
            message = Message(
                "it accepts the token, and answers %(status)s to the first request of a client",
                status=answer.status,
            )
            yield warning(name, message, Message("check its log; this is no fault of tokens"))
        else:
            yield ok(name, Message("it answers %(status)s", status=answer.status))

    def _settings_hint(self) -> Message:
        return Message(
            "it has to accept issuer %(issuer)s, audience %(audience)s, algorithm %(algorithm)s, "
            "and keys of %(url)s; its clock must be right; ready lines: %(command)s",
            issuer=context.settings().issuer,
            audience=self.server.resource,
            algorithm=keys.ACCESS_TOKEN_ALGORITHM,
            url=_jwks_uri(),
            command=f"{COMMAND} mcp show {self.server.resource}",
        )

    def _forbidden(self, said: Mapping[str, str]) -> Fault:
        """Return the fault of a server that wants more scopes than it asked for."""
        granted = scopes.split(str(self.claims.get("scope", "")))
        missing = [each for each in scopes.split(said.get("scope")) if each not in granted]
        api = self.server.api
        unknown = [each for each in missing if api and each not in api.scopes]
        if unknown:
            message = Message("it requires scopes that the API lacks here: %(scopes)s",
                              scopes=Quote(" ".join(unknown)[:_SHOWN]))  # fmt: skip
            command = f"{COMMAND} api update {api.api_id if api else ''} --add-scope"
            return Fault(THIS_SERVER, message, run(f"{command} NAME=DESCRIPTION"))
        if missing:
            message = Message(
                "it requires scopes that it did not ask for: %(scopes)s",
                scopes=Quote(" ".join(missing)[:_SHOWN]),
            )
            hint = Message("name them in scopes_supported, or in the challenge of the answer 401")
            return Fault(MCP_SERVER, message, hint)
        text = said.get("error_description", said.get("error", "403"))
        message = Message("it refuses the person or the token: %(error)s",
                          error=Quote(text[:_SHOWN]))  # fmt: skip
        return Fault(MCP_SERVER, message, Message("check what it requires besides scopes"))

    def call_with_foreign_tokens(self) -> Findings:
        """Call with tokens that the MCP server must refuse: of another audience, and forged."""
        name = "foreign tokens"
        if not self.token:
            yield skipped(name, Message("there is no token"))
            return
        header, payload, signature = self.token.split(".")
        forged = f"{header}.{payload}.{_FORGED}{signature[len(_FORGED) :]}"
        self._must_refuse(
            forged,
            Message("it accepts a token with a forged signature: anybody can make one"),
            Message("make it verify signatures with the keys of %(url)s", url=_jwks_uri()),
        )
        if self.foreign_token:
            self._must_refuse(
                self.foreign_token,
                Message("it accepts a token that was issued for something else"),
                Message("make it require the audience %(audience)s", audience=self.server.resource),
            )
        yield ok(name, Message("it refuses forged tokens, and those for another audience")
                 if self.foreign_token else Message("it refuses forged tokens"))  # fmt: skip

    def _must_refuse(self, token: str, message: Message, hint: Message) -> None:
        answer = self.server.call(token)
        if isinstance(answer, Trouble):
            raise unreachable(answer)
        if answer.status not in (401, 403):
            raise Fault(MCP_SERVER, message, hint)


_EXPLAIN = Message("see why: %(command)s", command=f"{COMMAND} explain")


def _jwks_uri() -> str:
    return f"{context.settings().base_url}/oauth2/jwks"


@contextmanager
def _explained() -> Iterator[None]:
    """Turn what goes wrong at this server into a `Fault`."""
    try:
        yield
    except Stopped as stopped:
        raise Fault(THIS_SERVER, stopped.message, stopped.hint) from None
    except LeftServer as error:
        message = Message("a redirect led away, to %(url)s", url=error.args[0])
        hint = Message("let the proxy forward Host, and set SSO_BASE_URL to the URL people use")
        raise Fault(PROXY, message, hint) from None
    except OAuthError as error:
        text = f"{error.error}: {error.description or ''}"
        message = Message("the request was refused: %(error)s", error=Quote(text[:_SHOWN]))
        raise Fault(THIS_SERVER, message, _EXPLAIN) from None
    except (requests.RequestException, ValueError) as error:
        message = Message("the connection failed (%(reason)s)", reason=type(error).__name__)
        hint = Message("start the server, and check SSO_BASE_URL and the proxy")
        raise Fault(PROXY, message, hint) from None
