"""The sources of the documentation site: docs/, with the parts that are generated from the code.

Writes them to build/docs, and the configuration to build/zensical.toml; scripts/docs builds both.
A page says where a generated part goes:

    <!-- generated: settings -->
    What readers of the repository see instead.
    <!-- end -->
"""

import inspect
import json
import os
import re
import shutil
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click
import tomli_w
from prometheus_client import Counter
from prometheus_client.metrics import MetricWrapperBase

from sso import command_line
from sso.audit.events import Event
from sso.config.api_fields import FIELDS as API_FIELDS
from sso.config.client_fields import FIXED, IN_API
from sso.config.fields import Field, Kind
from sso.config.settings import DEFAULT_BASE_URL, SETTINGS
from sso.config.tables import REQUIRED, fields_of
from sso.config.upstream.ldap import LdapProvider
from sso.endpoints import openapi
from sso.endpoints.routes import ROUTES
from sso.flow.permissions import (
    ADMIN,
    HELPDESK,
    LIMITABLE,
    LIMITABLE_TO_APPLICATIONS,
    MEANINGS,
    OWNER,
    ROLES,
    STAFF,
    Permission,
)
from sso.flow.profile_claims import CLAIMS
from sso.flow.scopes import SCOPES
from sso.metrics.exporter import Counters
from sso.metrics.gauges import GAUGES
from sso.presets import preset_pages
from sso.web.routing import PROTOCOL

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build"
# Pages of the site that are not in docs/.
ELSEWHERE = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security-policy.md",
}
_TYPES = {
    str: "text", int: "number", bool: "true or false", list: "list of texts", dict: "object",
}  # fmt: skip
APPLICATIONS = "applications"  # its pages are made of the presets
_PART = re.compile(r"<!-- generated: (\w+) -->\n.*?<!-- end -->", re.DOTALL)
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")


def write(build: Path) -> None:
    """Everything that Zensical reads."""
    shutil.rmtree(build / "docs", ignore_errors=True)
    for source in sources():
        target = build / "docs" / site_path(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(page(source))
    preset_pages.write(build / "docs" / APPLICATIONS)
    shutil.copytree(ROOT / "docs" / "assets", build / "docs" / "assets")
    document = json.dumps(openapi.document(DEFAULT_BASE_URL), indent=2)
    (build / "docs" / "assets" / "openapi.json").write_text(document)
    shutil.copy(ROOT / "sso" / "static" / "favicon.svg", build / "docs" / "assets")
    config = tomllib.loads((ROOT / "zensical.toml").read_text())
    listed = [{one.title: f"{APPLICATIONS}/{one.name}.md"} for one in preset_pages.presets()]
    config["project"]["nav"].insert(-1, {"Applications": [f"{APPLICATIONS}/index.md", *listed]})
    (build / "zensical.toml").write_text(tomli_w.dumps(config))


def sources() -> list[str]:
    """The pages, by their paths in the repository."""
    found = (path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md"))
    return [*sorted(found), *ELSEWHERE]


def site_path(source: str) -> str:
    """Where a page of the repository is on the site."""
    return ELSEWHERE.get(source) or source.removeprefix("docs/")


def page(source: str) -> str:
    """A page as the site shows it."""
    text = _PART.sub(lambda part: PARTS[part[1]](), (ROOT / source).read_text())
    here = os.path.dirname(source)  # noqa: PTH120 (as os.path.normpath, which pathlib lacks)

    def link(found: re.Match[str]) -> str:
        target = os.path.normpath(os.path.join(here, found[1]))  # noqa: PTH118
        return os.path.relpath(site_path(target), os.path.dirname(site_path(source)) or ".")  # noqa: PTH120

    return _LINK.sub(link, text)


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def code(text: object) -> str:
    return f"`{text}`"


def settings() -> str:
    rows = (
        (code(one.name), "none" if one.default is None else code(one.default), one.meaning)
        for one in SETTINGS
    )
    return table(("variable", "default", "meaning"), rows)


def ldap_keys() -> str:
    rows = []
    for one in fields_of(LdapProvider):
        name = f"`{one.name}_file` or `{one.name}_env`" if one.secret else code(one.name)
        default = "required" if one.default is REQUIRED else ""
        if not default and one.default not in (None, "", (), {}):
            default = code(str(one.default).lower())
        rows.append((name, default, one.meaning))
    return table(("key", "default", "meaning"), rows)


def urls() -> str:
    kinds = (("For applications", True), ("Pages", False))
    return "\n\n".join(
        f"## {title}\n\n" + table(("URL", "methods", "purpose"), _routes(protocol))
        for title, protocol in kinds
    )


def permissions() -> str:
    """What each permission allows, and which roles and pages of administration it belongs to."""
    rows = [
        (
            code(permission),
            MEANINGS[permission],
            *("yes" if permission in ROLES[role] else "" for role in (ADMIN, HELPDESK, OWNER)),
            _bounds(permission),
            ", ".join(
                code(route.path.removeprefix("{base}"))
                for route in ROUTES
                if permission in route.needs and route.needs != STAFF
            ),
        )
        for permission in Permission
    ]
    roles = ("administrators", "helpdesk", "owners of groups", "can be limited")
    return table(("permission", "allows to", *roles, "pages"), rows)


def _bounds(permission: Permission) -> str:
    """Return what the permission can be limited to."""
    if permission in LIMITABLE:
        return "to groups"
    return "to applications" if permission in LIMITABLE_TO_APPLICATIONS else ""


def _routes(protocol: bool) -> Iterator[tuple[str, str, str]]:
    for route in ROUTES:
        is_protocol = route.blueprint == PROTOCOL or not route.has_csrf
        if is_protocol == protocol:
            summary = (route.view.__doc__ or "").partition("\n\n")[0]
            yield code(route.path), ", ".join(route.methods), " ".join(summary.split())


def api() -> str:
    """The operations of the OpenAPI document, which the site has, too."""
    rows = (
        (f"{code(method.upper())} {code(path)}", one["summary"], code(one["description"][16:-1]))
        for path, methods in openapi.document(DEFAULT_BASE_URL)["paths"].items()
        for method, one in methods.items()
    )
    link = "The same as [OpenAPI document](../assets/openapi.json)."
    return f"{table(('operation', 'what', 'scope'), rows)}\n\n{link}"


def client_fields() -> str:
    """The fields of a registration by API."""
    return _fields((*IN_API, *FIXED))


def api_fields() -> str:
    """The fields of an API."""
    return _fields(API_FIELDS.values())


def _fields(fields: Iterable[Field]) -> str:
    rows = []
    for field in fields:
        default = "" if field.default is None else code(json.dumps(field.default))
        rule = "required" if field.is_required else "read-only" if field.is_fixed else default
        choices = ", ".join(map(code, field.choices)) if field.kind is Kind.CHOICE else ""
        meaning = f"{field.meaning} One of {choices}." if choices else field.meaning
        rows.append((code(field.name), _TYPES[field.json_type], rule, meaning))
    return table(("field", "type", "default", "meaning"), rows)


def scopes() -> str:
    rows = (
        (code(scope.name), ", ".join(map(code, scope.claims)) or "none")
        for scope in SCOPES.values()
    )
    return table(("scope", "claims"), rows)


def operator_claims() -> str:
    return ", ".join(code(claim) for claim in sorted(CLAIMS))


def limited_events() -> str:
    return ", ".join(code(event) for event in Event if event.endswith("_limited"))


def applications() -> str:
    links = (f"[{one.title}](../{APPLICATIONS}/{one.name}.md)" for one in preset_pages.presets())
    return f"There is a page about each: {', '.join(links)}."


def metrics() -> str:
    """The counters, whose labels prometheus_client keeps to itself, and the gauges."""
    rows = []
    for one in vars(Counters()).values():
        if isinstance(one, MetricWrapperBase):
            name = f"{one._name}_total" if isinstance(one, Counter) else one._name
            rows.append((name, one._type, one._labelnames, one._documentation))
    rows += [(gauge.name, "gauge", gauge.labels, gauge.meaning) for gauge in GAUGES]
    return table(
        ("metric", "type", "labels", "meaning"),
        ((code(name), str(kind), ", ".join(map(code, labels)), text)
         for name, kind, labels, text in rows),
    )  # fmt: skip


def commands() -> str:
    return "\n\n".join(_commands())


def _commands() -> Iterator[str]:
    root = click.Context(click.Group("flask"), info_name="flask")
    for name, command in sorted(top_level().items()):
        if isinstance(command, click.Group):
            context = click.Context(command, info_name=name, parent=root)
            yield f"## flask {name}\n\n{_help(command)}"
            for child in command.list_commands(context):
                if not command.commands[child].hidden:
                    yield _command(command.commands[child], context, child, "###")
        else:
            yield _command(command, root, name, "##")


def top_level() -> dict[str, click.Command]:
    """The commands and groups below `flask` that are ours."""
    found: dict[str, click.Command] = {}
    for name, (summary, commands) in command_line.GROUPS.items():
        lazy: dict[str, click.Command]
        lazy = {one: command_line.Lazy(one, *line) for one, line in commands.items()}
        found[name] = click.Group(name, commands=lazy, help=summary)
    for name, (summary, target) in command_line.COMMANDS.items():
        found[name] = command_line.Lazy(name, summary, target)
    for entry in (
        command_line.settings_command, command_line.demo_command, command_line.doctor_command
    ):  # fmt: skip
        found[entry.name or ""] = entry
    return {name: loaded(one) for name, one in found.items()}


def loaded(command: click.Command) -> click.Command:
    return command.load() if isinstance(command, command_line.Lazy) else command


def _command(command: click.Command, parent: click.Context, name: str, level: str) -> str:
    command = loaded(command)
    context = click.Context(command, info_name=name, parent=parent)
    options = [
        (code(record[0]), record[1])
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option) and (record := parameter.get_help_record(context))
    ]
    usage = " ".join((context.command_path, *command.collect_usage_pieces(context)))
    parts = [f"{level} {context.command_path}", _help(command), f"```text\n{usage}\n```"]
    return "\n\n".join([*parts, table(("option", "meaning"), options)])


def _help(command: click.Command) -> str:
    """The help, without click's mark for paragraphs that are not wrapped."""
    return inspect.cleandoc(command.help or "").replace("\b\n", "")


PARTS: dict[str, Callable[[], str]] = {
    "api": api,
    "applications": applications,
    "client_fields": client_fields,
    "api_fields": api_fields,
    "commands": commands,
    "ldap_keys": ldap_keys,
    "limited_events": limited_events,
    "metrics": metrics,
    "operator_claims": operator_claims,
    "permissions": permissions,
    "scopes": scopes,
    "settings": settings,
    "urls": urls,
}

if __name__ == "__main__":
    write(BUILD)
