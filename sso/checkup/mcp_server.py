"""An MCP server as its clients see it, until they ask for authorization.

Each step does what a client does (Model Context Protocol of 2026-07-28, "Authorization"), and says
what it saw. The first fault ends the walk: it names the party that has to act.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from sso import context
from sso.checkup import reach
from sso.checkup.finding import Finding, Findings, Status, ok, run, skipped, warning
from sso.checkup.reach import Trouble
from sso.config import urls
from sso.extensions import db
from sso.flow import resources, scopes
from sso.i18n.message import Message, Quote
from sso.mcp import configurations, protected_resources
from sso.mcp.protected_resources import Challenge
from sso.models import Api
from sso.process.http_call import Answer
from sso.process.program import COMMAND
from sso.store import apis

MCP_SERVER, THIS_SERVER = Message("the MCP server"), Message("this server")
PROXY, CLIENT = Message("the proxy in front of this server"), Message("the client")
PERSON = Message("the person's rights here")
MAX_DOCUMENT = 64 * 1024  # bytes
_SHOWN = 200  # characters of what another server says
_VERSION, _EARLIER_VERSION = "2026-07-28", "2025-06-18"
_KINDS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
_ABOUT_US = {"name": "doctor", "version": "1"}
_META = "io.modelcontextprotocol"


class Fault(Exception):
    """A client cannot go on. `party` has to act; `hint` says how."""

    def __init__(self, party: Message, message: Message, hint: Message) -> None:
        super().__init__(message)
        self.party, self.message, self.hint = party, message, hint

    def finding(self, name: str) -> Finding:
        return Finding(name, Status.WRONG, self.message, self.hint, self.party)


Step = tuple[str, Callable[[], Findings]]


def walk(steps: Iterable[Step]) -> Findings:
    """Run the steps in their order until a fault; the steps after it are skipped."""
    is_possible = True
    for name, step in steps:
        if not is_possible:
            yield skipped(name, Message("fix the above first"))
            continue
        try:
            yield from step()
        except Fault as fault:
            is_possible = False
            yield fault.finding(name)


@dataclass
class Server:
    """An MCP server, and what a client knows of it so far.

    `allows_private`: addresses that are not public may be called, too. Only a person who could
    call them anyway, from this machine, may allow it.
    """

    url: str
    allows_private: bool = False
    challenge: Challenge | None = None
    document: Mapping[str, Any] = field(default_factory=dict)
    resource: str = ""
    api: Api | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def steps(self) -> list[Step]:
        return [
            ("call without token", self.call_without_token),
            ("challenge", self.read_challenge),
            ("resource metadata", self.find_document),
            ("resource", self.compare_resource),
            ("authorization server", self.find_issuer),
            ("API", self.find_api),
            ("scopes", self.compare_scopes),
            ("server metadata", self.find_metadata),
        ]

    @property
    def scope(self) -> str | None:
        """The scopes that a client requests: those of the challenge, or else of the document."""
        named = self.challenge.parameters.get("scope") if self.challenge else None
        if named:
            return named
        supported = self.document.get("scopes_supported")
        return " ".join(map(str, supported)) if isinstance(supported, list) else None

    def fetch(self, method: str, url: str, **options: Any) -> Answer | Trouble:
        return reach.fetch(method, url, only_public=not self._may_be_private(url), **options)

    def _may_be_private(self, url: str) -> bool:
        """Return whether a URL may lead to a private address.

        The document of a stranger names URLs, too: they do not lead into the operator's network.
        """
        origin = protected_resources.origin(url)
        if origin == protected_resources.origin(context.settings().base_url):
            return True
        is_local = urls.is_loopback(urlsplit(self.url).hostname)
        return self.allows_private and (is_local or origin == protected_resources.origin(self.url))

    def call(self, token: str | None = None) -> Answer | Trouble:
        """Send the first request of a client of today, and read the head of the answer."""
        meta = {
            f"{_META}/protocolVersion": _VERSION,
            f"{_META}/clientInfo": _ABOUT_US,
            f"{_META}/clientCapabilities": {},
        }
        return self._post("server/discover", {"_meta": meta}, token, _VERSION)

    def call_as_earlier_client(self, token: str) -> Answer | Trouble:
        """Send the first request of clients before 2026-07-28; end the session that it began."""
        parameters = {
            "protocolVersion": _EARLIER_VERSION,
            "capabilities": {},
            "clientInfo": _ABOUT_US,
        }
        answer = self._post("initialize", parameters, token, None)
        if isinstance(answer, Answer) and (session := answer.headers.get("mcp-session-id")):
            headers = {"Mcp-Session-Id": session, "Authorization": f"Bearer {token}"}
            self.fetch("DELETE", self.url, headers=headers)
        return answer

    def _post(
        self, method: str, parameters: object, token: str | None, version: str | None
    ) -> Answer | Trouble:
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": parameters}
        headers = {**_KINDS, "Mcp-Method": method}
        if version:
            headers["MCP-Protocol-Version"] = version
        if token:
            headers["Authorization"] = f"Bearer {token}"
        return self.fetch("POST", self.url, body=json.dumps(message).encode(), headers=headers)

    def call_without_token(self) -> Findings:
        """Call the server as a client that has no token yet: the answer has to be 401."""
        answer = self.call()
        if isinstance(answer, Trouble):
            raise unreachable(answer)
        if answer.status != 401:
            raise _not_401(self.url, answer)
        self.challenge = bearer_challenge(answer)
        yield ok("call without token", Message("%(url)s answers 401", url=self.url))

    def read_challenge(self) -> Findings:
        """Read the URL of the metadata from the challenge (RFC 9728 §5.1)."""
        name = "challenge"
        if self.challenge is None:
            hint = Message(
                'answer 401 with: WWW-Authenticate: Bearer resource_metadata="%(url)s"',
                url=protected_resources.metadata_url(self.url),
            )
            message = Message("there is no Bearer challenge in WWW-Authenticate")
            yield warning(name, message, hint)
            return
        url = self._named_url
        if url is None:
            hint = Message(
                'add resource_metadata="%(url)s"; clients look at the well-known places until then',
                url=protected_resources.metadata_url(self.url),
            )
            yield warning(name, Message("it names no resource_metadata"), hint)
            return
        if not _is_url(url):
            raise Fault(
                MCP_SERVER,
                Message("resource_metadata is not a URL: %(text)s", text=Quote(url[:_SHOWN])),
                Message("name %(url)s", url=protected_resources.metadata_url(self.url)),
            )
        yield ok(name, Message("it names %(url)s", url=Quote(url[:_SHOWN])))

    @property
    def _named_url(self) -> str | None:
        return self.challenge.parameters.get("resource_metadata") if self.challenge else None

    def find_document(self) -> Findings:
        """Read the protected resource metadata where the challenge says, or at its usual places."""
        name, named = "resource metadata", self._named_url
        if named is not None:
            self.document = self._read(named)
            yield ok(name, Message("%(url)s answers", url=Quote(named[:_SHOWN])))
        first_fault = None
        for url in protected_resources.metadata_urls(self.url):
            if url == named:
                continue
            try:
                document = self._read(url)
            except Fault as fault:
                first_fault = first_fault or fault
                yield self._absent(name, url, fault)
            else:
                self.document = self.document or document
                yield ok(name, Message("%(url)s answers", url=url))
        if not self.document:
            assert first_fault is not None
            raise Fault(
                MCP_SERVER,
                Message("it publishes no protected resource metadata (RFC 9728)"),
                self._publish(),
            )

    def _absent(self, name: str, url: str, fault: Fault) -> Finding:
        """Report a well-known place without a document, which few clients need."""
        is_root = url != protected_resources.metadata_url(self.url)
        if self.document and is_root:
            return skipped(name, Message("%(url)s has none, and need not", url=url))
        return warning(name, fault.message, self._publish())

    def _publish(self) -> Message:
        """Return the hint how to publish the document."""
        place = protected_resources.metadata_url(self.url)
        api = registered(resources.normalized(self.url))
        if api is None:
            return Message("publish it at %(url)s", url=place)
        return Message(
            "publish it at %(url)s, or let the proxy there forward that path to %(document)s",
            url=place,
            document=configurations.document_url(api, context.settings()),
        )

    def _read(self, url: str) -> dict[str, Any]:
        """Read a protected resource metadata document. Raises `Fault`."""
        answer = self.fetch(
            "GET", url, headers={"Accept": "application/json"}, read=MAX_DOCUMENT + 1
        )
        quoted = Quote(url[:_SHOWN])
        if isinstance(answer, Trouble):
            message = Message(
                "%(url)s: %(trouble)s", url=quoted, trouble=Quote(answer.message[:_SHOWN])
            )
            raise Fault(MCP_SERVER, message, Message("let clients reach that URL"))
        if answer.status == 401:
            message = Message("%(url)s asks for a token itself", url=quoted)
            raise Fault(
                MCP_SERVER, message, Message("publish the document for everybody, without a token")
            )
        if answer.status != 200:
            message = Message("%(url)s answers %(status)s", url=quoted, status=answer.status)
            raise Fault(MCP_SERVER, message, self._publish())
        document = json_object(answer)
        if document is None:
            message = Message("%(url)s answers 200, but not with a JSON object", url=quoted)
            raise Fault(MCP_SERVER, message, self._publish())
        return document

    def compare_resource(self) -> Findings:
        """Compare the document's `resource` with the URL that was called (RFC 9728 §3.3)."""
        name, resource = "resource", self.document.get("resource")
        if not isinstance(resource, str) or not _is_url(resource):
            raise Fault(
                MCP_SERVER,
                Message("the document has no URL as resource"),
                Message("set resource to %(url)s", url=self.url),
            )
        self.resource = resources.normalized(resource)
        quoted = Quote(resource[:_SHOWN])
        if self.resource == resources.normalized(self.url):
            yield ok(name, Message("it is %(url)s", url=quoted))
        elif self.resource.rstrip("/") == self.url.rstrip("/"):
            message = Message(
                "it is %(resource)s, and clients call %(url)s: they differ in a slash at the end",
                resource=quoted,
                url=self.url,
            )
            hint = Message("use one of the two everywhere; strict clients refuse the document")
            yield warning(name, message, hint)
        elif _covers(resource, self.url):
            yield ok(name, Message("it is %(url)s, which covers the URL", url=quoted))
        else:
            raise Fault(
                MCP_SERVER,
                Message(
                    "the document is for %(resource)s, but clients call %(url)s and refuse it",
                    resource=quoted,
                    url=self.url,
                ),
                Message("set the public URL of the MCP server to %(url)s", url=self.url),
            )

    def find_issuer(self) -> Findings:
        """Find this server among the document's authorization servers, character by character."""
        name, issuer = "authorization server", context.settings().issuer
        servers = self.document.get("authorization_servers")
        listed = [str(each) for each in servers] if isinstance(servers, list) else []
        hint = Message("set authorization_servers to %(list)s", list=json.dumps([issuer]))
        if not listed:
            raise Fault(MCP_SERVER, Message("the document names no authorization server"), hint)
        if issuer not in listed:
            quoted = Quote(", ".join(listed)[:_SHOWN])
            near = any(each.rstrip("/") == issuer.rstrip("/") for each in listed)
            message = (
                Message(
                    "the document names %(servers)s, with a slash too many: clients compare it "
                    "with the issuer %(issuer)s character by character",
                    servers=quoted,
                    issuer=issuer,
                )
                if near
                else Message(
                    "the document names %(servers)s, and not this server, whose issuer is "
                    "%(issuer)s",
                    servers=quoted,
                    issuer=issuer,
                )
            )
            raise Fault(MCP_SERVER, message, hint)
        if len(listed) > 1:
            message = Message(
                "it names others, too, and clients may choose one of them: %(servers)s",
                servers=Quote(", ".join(each for each in listed if each != issuer)[:_SHOWN]),
            )
            yield warning(name, message, hint)
        else:
            yield ok(name, Message("it is this server, %(issuer)s", issuer=issuer))

    def find_api(self) -> Findings:
        """Find the API whose identifier is the resource."""
        self.api = api = registered(self.resource)
        if api is None:
            message = Message(
                "no API with the identifier %(identifier)s is registered",
                identifier=Quote(self.resource[:_SHOWN]),
            )
            raise Fault(THIS_SERVER, message, run(f"{COMMAND} mcp add {self.resource[:_SHOWN]}"))
        if api.disabled:
            message = Message("the API %(name)s is disabled", name=api.name)
            raise Fault(THIS_SERVER, message, run(f"{COMMAND} api enable {api.api_id}"))
        yield ok("API", Message("it is registered as %(name)s", name=api.name))

    def compare_scopes(self) -> Findings:
        """Compare the scopes that clients are told to request with those of the API."""
        name, api = "scopes", self.api
        assert api is not None
        requested = scopes.split(self.scope)
        unknown = [each for each in requested if each not in {*api.scopes, *scopes.SCOPES}]
        if unknown:
            message = Message(
                "the MCP server asks for scopes that the API lacks here: %(scopes)s",
                scopes=Quote(" ".join(unknown)[:_SHOWN]),
            )
            hint = Message(
                "register them: %(command)s; or correct them at the MCP server",
                command=f"{COMMAND} api update {api.api_id} --add-scope NAME=DESCRIPTION",
            )
            raise Fault(THIS_SERVER, message, hint)
        if "offline_access" in requested:
            message = Message(
                "the MCP server asks for offline_access, which is the client's choice"
            )
            yield warning(name, message, Message("remove it there"))
        elif requested:
            yield ok(name, Message("clients request %(scopes)s", scopes=" ".join(requested)))
        elif api.scopes:
            message = Message("none are named, so clients get all: %(scopes)s",
                              scopes=" ".join(api.scopes))  # fmt: skip
            yield ok(name, message)
        else:
            yield ok(name, Message("the API has none"))

    def find_metadata(self) -> Findings:
        """Read this server's metadata at each place where clients look, in their order."""
        name, issuer = "server metadata", context.settings().issuer
        for url in protected_resources.authorization_server_urls(issuer):
            answer = self.fetch(
                "GET", url, headers={"Accept": "application/json"}, read=MAX_DOCUMENT + 1
            )
            hint = Message(
                "let the proxy pass %(path)s on to this server, unchanged", path=urlsplit(url).path
            )
            if isinstance(answer, Trouble):
                message = Message(
                    "%(url)s: %(trouble)s", url=url, trouble=Quote(answer.message[:_SHOWN])
                )
                yield warning(name, message, hint)
                continue
            document = json_object(answer) if answer.status == 200 else None
            if document is not None and document.get("issuer") == issuer:
                self.metadata = self.metadata or document
                yield ok(name, Message("%(url)s answers", url=url))
            elif 200 <= answer.status < 300:  # clients take it
                message = Message("%(url)s answers, but not with the issuer's metadata", url=url)
                raise Fault(PROXY, message, hint)
            else:
                message = Message("%(url)s answers %(status)s", url=url, status=answer.status)
                yield warning(name, message, hint)
        if not self.metadata:
            message = Message("clients cannot read this server's metadata")
            raise Fault(PROXY, message, Message("check SSO_BASE_URL and the proxy"))


def registered(identifier: str) -> Api | None:
    """Return the API with this identifier, and leave no transaction open for later calls."""
    api = apis.find(identifier)
    if api is not None:
        db.session.expunge(api)
    db.session.rollback()
    return api


def bearer_challenge(answer: Answer) -> Challenge | None:
    """Return the Bearer challenge of an answer; `None` if there is none."""
    header = answer.headers.get("www-authenticate", "")
    return next(
        (each for each in protected_resources.challenges(header) if each.scheme == "bearer"), None
    )


def unreachable(trouble: Trouble) -> Fault:
    """Return the fault of an MCP server that does not answer."""
    return Fault(
        MCP_SERVER,
        Message("it does not answer: %(trouble)s", trouble=Quote(trouble.message[:_SHOWN])),
        Message("%(hint)s", hint=Quote(trouble.hint)),
    )


def _not_401(url: str, answer: Answer) -> Fault:
    """Return what is wrong with an answer to a request without a token."""
    status = answer.status
    if 200 <= status < 300:
        message = Message(
            "it answers %(status)s without a token: anybody can use it", status=status
        )
        hint = Message(
            "make it verify access tokens; ready lines: %(command)s",
            command=f"{COMMAND} mcp show {url}",
        )
    elif 300 <= status < 400:
        target = Quote(answer.headers.get("location", "")[:_SHOWN])
        message = Message("it redirects to %(url)s, and clients do not follow", url=target)
        hint = Message("give clients that URL, and register it, or let it answer here")
    elif status == 403:
        message = Message("it answers 403 without a token; clients ask for one only after 401")
        hint = Message("answer 401 to requests without a token; a firewall may answer, too")
    elif status in (404, 405, 410):
        message = Message("there is no MCP server at this URL: %(status)s", status=status)
        hint = Message("check the path; many MCP servers have /mcp")
    elif status in (400, 421):
        message = Message("it refuses the request before it asks for a token: %(status)s",
                          status=status)  # fmt: skip
        hint = Message("allow the host name of the URL in its protection against DNS rebinding")
    else:
        message = Message("it answers %(status)s instead of 401", status=status)
        hint = Message("check its log, and the proxy in front of it")
    return Fault(MCP_SERVER, message, hint)


def json_object(answer: Answer) -> dict[str, Any] | None:
    """Parse the JSON object of an answer; `None` if it is none, or longer than is read."""
    try:
        document = json.loads(answer.body) if len(answer.body) <= MAX_DOCUMENT else None
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in ("https", "http") and bool(parts.hostname) and text.isprintable()


def _covers(resource: str, url: str) -> bool:
    """Return whether a resource is a parent of a URL, as clients accept it."""
    if protected_resources.origin(resource) != protected_resources.origin(url):
        return False
    parent = urlsplit(resource).path.rstrip("/") + "/"
    return f"{urlsplit(url).path.rstrip('/')}/".startswith(parent)
