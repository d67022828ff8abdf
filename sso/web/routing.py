"""The properties of a route, and the Flask extensions and templates of its pages.

The table of all routes is `endpoints.routes`. Each route belongs to one of three blueprints.
`pages` are for people: they have the session cookie, CSRF protection, and errors as pages. `admin`
are the pages of administration: for signed-in users without the role they do not exist. `protocol`
is for programs: no cookies, and errors as JSON.

The operator's own blocks of templates come before those that are built in.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import cast

from flask import Blueprint, Flask, Request, abort, current_app, g, request
from flask.globals import request_ctx
from flask_login import LoginManager
from flask_wtf import CSRFProtect
from flask_wtf.csrf import CSRFError
from jinja2 import ChoiceLoader, DictLoader, PrefixLoader
from werkzeug.datastructures import ImmutableMultiDict
from werkzeug.formparser import FormDataParser
from werkzeug.routing import BaseConverter
from werkzeug.sansio.http import parse_cookie
from werkzeug.utils import cached_property
from werkzeug.wrappers import Response

from sso.audit.events import Event
from sso.config import overrides
from sso.config.overrides import Overrides
from sso.config.settings import Settings
from sso.errors import SettingsError
from sso.flow import permissions
from sso.flow.permissions import Needs, Rights
from sso.process import concurrency
from sso.ratelimit import limiting
from sso.web import forms

login_manager = LoginManager()
csrf = CSRFProtect()


PAGES, ADMIN, PROTOCOL = "pages", "admin", "protocol"
GET, POST, BOTH = ("GET",), ("POST",), ("GET", "POST")
ANY = ("GET", "POST", "PUT", "PATCH", "DELETE")
# Envoy asks with the method of the request, which may be one of WebDAV.
EVERY = (
    *(*ANY, "OPTIONS", "PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK"),
    *("REPORT", "SEARCH"),
)
ANY_ORIGIN, REGISTERED_ORIGINS = "any", "registered"
_EXTENSION = "sso.routes"


@dataclass(frozen=True)
class Route:
    """One row of the table.

    `path`: `{base}` in it is the path of SSO_BASE_URL. `max_age`: seconds for which anyone may
    cache a 200; without it nothing is stored. `cors`: which other origins may read the answer
    (`REGISTERED_ORIGINS`: those of public clients). `quiet`: a 200 is not logged. `has_csrf`: a
    POST needs a token; protocol routes never do. `sign_in_back`: where `@login_required` leads back
    to after the sign-in (see `page.after_sign_in`). `refused`: the audit event of a refused OAuth
    request. `guessing`, `flooding`: the limits of tries, for each account or client. `needs`: the
    permissions of which one opens an admin page. `limited`: those of them that open it also where
    they hold only for some groups or applications, since the page asks for which. `issuers`: of an
    address of earlier servers, the issuers that it is of (see `config.issuers`).
    """

    path: str
    name: str
    view: Callable[..., Response]
    methods: tuple[str, ...] = BOTH
    blueprint: str = PAGES
    max_age: int | None = None
    cors: str | None = None
    quiet: bool = False
    has_csrf: bool = True
    sign_in_back: str | None = None
    refused: Event = Event.AUTHORIZATION_REFUSED
    guessing: limiting.Guessing | None = None
    flooding: limiting.Flooding | None = None
    needs: Needs = permissions.NONE
    limited: Needs = permissions.NONE
    issuers: frozenset[str] = frozenset()

    @property
    def label(self) -> str:
        """Return the name of the route in metrics."""
        if self.issuers:
            return f"alias.{self.name}"
        group = "sso" if self.path.startswith("{base}") else "root"
        return f"{group}.{self.name.removeprefix('root_')}"


class RoutedRequest(Request):
    """Flask's request, which finds its route once, and writes no upload to the disk."""

    @property  # type: ignore[misc]  # nothing sets it
    def max_content_length(self) -> int:  # type: ignore[override]  # for the same reason
        return concurrency.max_body(self.path)

    def make_form_data_parser(self) -> FormDataParser:
        parser = super().make_form_data_parser()
        parser.stream_factory = _in_memory
        return parser

    @cached_property
    def route(self) -> Route | None:
        table, path = _table(), self.path
        if route := table.by_path.get(path):
            return route
        return next((route for begin, route in table.below if path.startswith(begin)), None)

    @cached_property
    def cookies(self) -> ImmutableMultiDict[str, str]:
        """The cookies. Werkzeug compares every header's name for them: 6 % of forward auth."""
        header = self.environ.get("HTTP_COOKIE", "")
        return cast(
            "ImmutableMultiDict[str, str]", parse_cookie(header, cls=self.dict_storage_class)
        )


def _in_memory(*_: object, **_named: object) -> BytesIO:
    return BytesIO()


@dataclass
class _Table:
    by_path: dict[str, Route] = field(default_factory=dict)
    # Routes with a variable, and the path before it.
    below: list[tuple[str, Route]] = field(default_factory=list)
    admin_pages: dict[str, Route] = field(default_factory=dict)  # by name
    by_last_segment: dict[str, str] = field(default_factory=dict)
    # An unknown path below one of these is answered as JSON.
    protocol_prefixes: tuple[str, ...] = ()


class Rest(BaseConverter):
    """The rest of a path, which may be empty or begin with another slash."""

    part_isolating = False
    regex = ".*?"
    weight = 300


def register(app: Flask, routes: Iterable[Route]) -> None:
    """Register the routes with their blueprints."""
    settings: Settings = app.extensions["sso.settings"]
    blueprints = {name: Blueprint(name, __name__) for name in (PAGES, ADMIN, PROTOCOL)}
    table = app.extensions[_EXTENSION] = _Table()
    app.request_class = RoutedRequest
    app.url_map.converters["rest"] = Rest
    app.url_map.merge_slashes = False  # a redirect would tell outsiders that there is a page
    for route in routes:
        path = route.path.format(base=settings.base_path)
        if path in table.by_path:
            if route.issuers:
                issuer = min(route.issuers)
                fault = f"{issuer} would answer at {path}, which is an address of this server"
                raise SettingsError([f"SSO_ISSUER_ALIASES: {fault}"])
            continue  # without a base path, both homes are one
        before, variable, _ = path.partition("<")
        if variable:
            table.below.append((before, route))
        else:
            table.by_path[path] = route
        is_sought = (not variable and "/oauth2/" in path) or route.name == "discovery"
        if is_sought and not route.issuers:
            table.by_last_segment[path.rpartition("/")[2]] = path
        if route.blueprint == ADMIN:
            table.admin_pages[route.name] = route
        # One route of each name is the one that pages link to.
        endpoint = f"{route.name}_{len(table.by_path)}" if route.issuers else route.name
        blueprints[route.blueprint].add_url_rule(path, endpoint, route.view, methods=route.methods)
    blueprints[ADMIN].before_request(_require_admission)
    for name in (PAGES, ADMIN):
        blueprints[name].before_request(_check_csrf_token)
    for blueprint in blueprints.values():
        app.register_blueprint(blueprint)
    routes_by_path = [*table.by_path.items(), *table.below]
    table.protocol_prefixes = tuple(_protocol_prefixes(routes_by_path, settings.base_path))


def is_page(path: str) -> bool:
    """Return whether this path is exactly that of a page."""
    route = _table().by_path.get(path)
    return route is not None and route.blueprint == PAGES and "GET" in route.methods


def this_request() -> RoutedRequest:
    """Return the request with its route, and not Flask's proxy, which costs at each attribute."""
    # The proxy's documented method, without looking an attribute up through it; Flask types it as
    # what it stands for.
    request: RoutedRequest = request_ctx._get_current_object().request  # type: ignore[attr-defined]
    return request


def current() -> Route | None:
    """Return the route of this request, even if it does not allow the method."""
    return this_request().route


def at(path: str) -> Route | None:
    """Return the route of another path."""
    return _table().by_path.get(path)


def may_open(name: str, rights: Rights) -> bool:
    """Return whether these rights open an admin page, given by its name."""
    route = _table().admin_pages[name]
    return not (
        rights.permissions.isdisjoint(route.needs) and rights.limited.isdisjoint(route.limited)
    )


def admit(visitor: object) -> None:
    """Allow this request to open admin pages; the visitor is stored in `g.sso_admitted`."""
    g.sso_admitted = visitor


def enter(account: str) -> limiting.Attempt:
    """Begin an attempt. Raises `TooManyAttempts` while the route's limit requires a wait."""
    return limiting.enter(_guessing(), account)


def ask(account: str) -> tuple[limiting.Attempt, int]:
    """Begin an attempt like `enter`, but return the seconds to wait; 0 if it is allowed."""
    return limiting.ask(_guessing(), account)


def spend(account: str) -> None:
    """Count one request. Raises `TooManyAttempts` when the route's budget is used up."""
    route = current()
    assert route is not None
    assert route.flooding is not None
    limiting.spend(route.flooding, account)


def is_protocol() -> bool:
    """Return whether this request comes from a program.

    This also works for paths without a route, and before the request is matched.
    """
    request = this_request()
    if route := request.route:
        return route.blueprint == PROTOCOL
    return request.path.startswith(_table().protocol_prefixes)


def intended_path() -> str | None:
    """Return the OAuth endpoint with the same last segment as an unknown path, or `None`."""
    last = request.path.rstrip("/").lower().rpartition("/")[2]
    return _table().by_last_segment.get(last.removesuffix(".json"))


def _require_admission() -> None:
    if g.get("sso_admitted") is None:
        abort(404)


def _check_csrf_token() -> None:
    route = current()
    is_admin = route is not None and route.blueprint == ADMIN
    if is_admin and forms.is_carried():
        forms.show_again()
    elif route is None or route.has_csrf:
        try:
            csrf.protect()
        except CSRFError:
            if not is_admin:
                raise
            forms.show_again()  # opened before another tab confirmed who the person is


def _protocol_prefixes(routes: list[tuple[str, Route]], base_path: str) -> Iterable[str]:
    """Yield each protocol path, or its first segment if no page has the same one."""

    def first_segment(path: str) -> str:
        base = base_path if path.startswith(f"{base_path}/") else ""
        return f"{base}/" + path.removeprefix(base).split("/")[1]

    of_pages = {first_segment(path) for path, route in routes if route.blueprint != PROTOCOL}
    for path, route in routes:
        if route.blueprint == PROTOCOL:
            segment = first_segment(path)
            yield path if segment in of_pages else segment


def _guessing() -> limiting.Guessing:
    route = current()
    assert route is not None
    assert route.guessing is not None
    return route.guessing


def _table() -> _Table:
    table: _Table = current_app.extensions[_EXTENSION]
    return table


def init_templates(app: Flask) -> None:
    """Load the operator's templates; later changes need a restart."""
    settings: Settings = app.extensions["sso.settings"]
    folder = settings.templates_dir
    own = overrides.read(Path(folder)) if folder else Overrides()
    app.extensions["sso.overrides"] = own
    built_in = app.jinja_env.loader
    assert built_in
    # An operator's template extends the built-in one by its name below sso/.
    app.jinja_env.loader = ChoiceLoader(
        [DictLoader(own.templates), PrefixLoader({"sso": built_in}), built_in]
    )
