"""Files of authentik: a blueprint in YAML, pages of its API, and rows of its tables in JSON.

All become entries of a few kinds. Tags of a blueprint are never evaluated: `!KeyOf` and `!Find`
name another entry, and every other tag stands for a value that is not known.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

from sso.imports import files, yaml_files
from sso.imports.files import ITEM, Advance
from sso.imports.person import FileProblem, mapping, text
from sso.imports.yaml_files import Tagged, is_on, word

MOST_ENTRIES = 2_000_000
_UNUSED = ("avatar", "groups_obj", "roles_obj", "users_obj", "policy_obj", "last_login")


class Kind(Enum):
    """What an entry is: the models of blueprints, and the tables, that have it."""

    USER = ("authentik_core.user",)
    GROUP = ("authentik_core.group",)
    APPLICATION = ("authentik_core.application",)
    PROVIDER = ("authentik_providers_oauth2.oauth2provider",)
    PROVIDER_BASE = ("authentik_core.provider",)
    MAPPING = ("authentik_providers_oauth2.scopemapping",)
    MAPPING_BASE = ("authentik_core.propertymapping",)
    MAPPED = ("authentik_core.provider_property_mappings",)
    BINDING = ("authentik_policies.policybinding",)
    BOUND = ("authentik_policies.policybindingmodel",)
    FLOW = ("authentik_flows.flow",)
    MEMBERSHIP = ("authentik_core.user_ak_groups", "authentik_core.user_groups")
    TOTP = ("authentik_stages_authenticator_totp.totpdevice", "otp_totp.totpdevice")
    STATIC = ("authentik_stages_authenticator_static.staticdevice", "otp_static.staticdevice")
    CODE = ("authentik_stages_authenticator_static.statictoken", "otp_static.statictoken")
    PASSKEY = ("authentik_stages_authenticator_webauthn.webauthndevice",)
    INSTALLATION = ("authentik.install_id",)


_MODELS = {name: kind for kind in Kind for name in kind.value}
_TABLES = {name.replace(".", "_"): kind for name, kind in _MODELS.items()}
# An object of the API is what has all of these keys; the first kind that fits.
_OF_API: Sequence[tuple[Kind, tuple[str, ...]]] = (
    (Kind.USER, ("username", "is_active")),
    (Kind.PROVIDER, ("client_id", "redirect_uris")),
    (Kind.APPLICATION, ("slug", "provider", "meta_launch_url")),
    (Kind.MAPPING, ("scope_name", "expression")),
    (Kind.BINDING, ("target", "order", "policy")),
    (Kind.FLOW, ("slug", "designation")),
    (Kind.GROUP, ("name", "is_superuser")),
)
_KEYS = ("pk", "id", "group_uuid", "provider_ptr_id", "policybindingmodel_ptr_id", "pbm_uuid",
         "propertymapping_ptr_id", "pm_uuid", "flow_uuid", "policy_binding_uuid")  # fmt: skip


@dataclass
class Entry:
    """An object. `key`: its primary key as a text, or a name that no other has."""

    key: str
    values: dict[str, Any]


@dataclass
class Entries:
    """All objects, in their order. `others`: models that are not taken, and how many.

    `is_whole`: one of the files has all objects, so that what it lacks does not exist.
    """

    by_kind: dict[Kind, dict[str, Entry]] = field(default_factory=dict)
    by_name: dict[str, str] = field(default_factory=dict)  # keys by the `id` in a blueprint
    others: Counter[str] = field(default_factory=Counter)
    unknown: int = 0
    is_whole: bool = False
    count: int = 0

    def of(self, kind: Kind) -> list[Entry]:
        return list(self.by_kind.get(kind, {}).values())

    def find(self, kind: Kind, value: Any) -> Entry | None:
        """Return the entry that a reference names."""
        return self.by_kind.get(kind, {}).get(self.key(value))

    def key(self, value: Any) -> str:
        """Return the key that a reference names; "" if that is not known."""
        if not isinstance(value, Tagged):
            return key_of(value)
        if value.tag == "!KeyOf":
            return self.by_name.get(text(value.value), "")
        query = value.value if value.tag == "!Find" and isinstance(value.value, list) else []
        kind = _MODELS.get(text(query[0]).lower()) if len(query) == 2 else None
        condition = query[1] if kind else None
        if kind is None or not isinstance(condition, list) or len(condition) != 2:
            return ""
        name, sought = text(condition[0]), text(condition[1])
        for entry in self.of(kind):
            if sought and text(entry.values.get(name)) == sought:
                return entry.key
        return f"slug:{sought}" if name == "slug" else ""

    @cached_property
    def children(self) -> dict[str, list[str]]:
        """The keys of groups by those of their parents; ask when everything is read."""
        by_parent: dict[str, list[str]] = {}
        for entry in self.of(Kind.GROUP):
            values = entry.values
            for parent in (values.get("parent"), values.get("parent_id"),
                           *listed(values.get("parents"))):  # fmt: skip
                if key := self.key(parent):
                    by_parent.setdefault(key, []).append(entry.key)
        return by_parent

    def add(self, kind: Kind, values: Mapping[str, Any], name: str = "") -> None:
        """Add an object, or what another file says about it."""
        self.count += 1
        if self.count > MOST_ENTRIES:
            raise FileProblem(f"the files have more than {MOST_ENTRIES} entries")
        plain = {key: value for key, value in values.items() if key not in _UNUSED}
        keys = (key_of(plain.get(name)) for name in _KEYS)
        key = next(filter(None, keys), "") or f"{kind.name} {self.count}"
        present = self.by_kind.setdefault(kind, {})
        before = present[key].values if key in present else {}
        present[key] = Entry(key, before | {n: v for n, v in plain.items() if v not in (None, "")})
        if name:
            self.by_name[name] = key


def read(paths: Sequence[Path], advance: Advance) -> Entries:
    """Read files of any of the forms. Raises `FileProblem`."""
    entries = Entries()
    for path in paths:
        if files.is_json(path):
            _read_json(entries, path, advance)
        else:
            _read_blueprint(entries, path)
            advance(path.stat().st_size * 2)
    return entries


def _read_json(entries: Entries, path: Path, advance: Advance) -> None:
    tables: dict[files.Place, Kind] = {(table, ITEM): kind for table, kind in _TABLES.items()}
    for place, value in files.entries(path, {("results", ITEM), (ITEM,), *tables}, advance):
        values = mapping(value)
        if kind := tables.get(place):
            entries.is_whole = True
            entries.add(kind, values)
        elif isinstance(pages := values.get("results"), list):
            for page in pages:
                _add_of_api(entries, mapping(page))
        else:
            _add_of_api(entries, values)


def _add_of_api(entries: Entries, values: Mapping[str, Any]) -> None:
    for kind, keys in _OF_API:
        if all(key in values for key in keys):
            entries.add(kind, values)
            return
    model = text(values.get("meta_model_name"))
    if model:
        entries.others[model] += 1
    else:
        entries.unknown += 1


def _read_blueprint(entries: Entries, path: Path) -> None:
    content = mapping(yaml_files.read(path, with_tags=True))
    if "entries" not in content:
        raise FileProblem(f"{path} is no blueprint: it has no entries")
    labels = mapping(mapping(content.get("metadata")).get("labels"))
    entries.is_whole |= is_on(labels.get("blueprints.goauthentik.io/generated"))
    for entry in map(mapping, _sections(content["entries"])):
        model, state = word(entry.get("model")).lower(), word(entry.get("state"))
        if state == "absent":
            continue
        kind = _MODELS.get(model)
        if kind is None:
            entries.others[model[:100]] += 1
            continue
        values = {**mapping(entry.get("attrs")), **mapping(entry.get("identifiers"))}
        entries.add(kind, _without_nulls(values), word(entry.get("id")))


def _sections(content: Any) -> Iterator[Any]:
    if isinstance(content, dict):
        for section in content.values():
            yield from listed(section)
    else:
        yield from listed(content)


def _without_nulls(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: value for name, value in values.items() if not isinstance(value, str) or word(value)
    }


def key_of(value: Any) -> str:
    """Return a primary key as a text: numbers in JSON are texts in YAML."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(value)[:100] if is_number else text(value)[:100]


def listed(value: Any) -> list[Any]:
    """Return a list; one value stands for a list of it, and nothing for an empty one."""
    if isinstance(value, list):
        return value
    return [] if value in (None, "") else [value]
