"""A realm of a Keycloak export without its people: clients, groups, roles, scopes, settings.

People are read one at a time, from the same files. A realm fits in memory, and its size is bounded.
Roles contain other roles, and groups have roles: `Roles` says which ones a person has in the end.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from sso.imports.files import ITEM, Advance, Place, entries
from sso.imports.person import FileProblem, exact, exact_texts, mapping, text, texts

# The clients that each realm has for Keycloak's own pages and interfaces.
OWN_CLIENTS = frozenset(
    ("account", "account-console", "admin-cli", "broker", "realm-management",
     "security-admin-console")
)  # fmt: skip
OWN_ROLES = frozenset(("offline_access", "uma_authorization"))
DEFAULT_ROLES = "default-roles-"  # then the realm: everybody has this role
MOST: Mapping[str, int] = {
    "clients": 5_000, "groups": 20_000, "roles": 50_000, "client scopes": 1_000,
    "identity providers": 1_000, "components": 1_000,
}  # fmt: skip
_LISTS: Mapping[Place, str] = {
    ("clients", ITEM): "clients", ("groups", ITEM): "groups", ("roles", "realm", ITEM): "roles",
    ("clientScopes", ITEM): "client scopes", ("identityProviders", ITEM): "identity providers",
}  # fmt: skip
KEYS, PROFILE = "org.keycloak.keys.KeyProvider", "org.keycloak.userprofile.UserProfileProvider"
STORAGE = "org.keycloak.storage.UserStorageProvider"
_COMPONENTS = (KEYS, PROFILE, STORAGE)
RP_IDS = {
    "webauthn": "webAuthnPolicyRpId",
    "webauthn-passwordless": "webAuthnPolicyPasswordlessRpId",
}
_SETTINGS = ("defaultSignatureAlgorithm", "keycloakVersion", *RP_IDS.values())


class _Places:
    """The places of a realm's entries, in a file with one realm or a list of realms."""

    def __contains__(self, place: object) -> bool:
        return isinstance(place, tuple) and self.kind_of(place) != ""

    @staticmethod
    def kind_of(place: Place) -> str:
        if place[:1] == (ITEM,):
            place = place[1:]
        if kind := _LISTS.get(place):
            return kind
        match place:
            case ("roles", "client", str(), "[]"):
                return "roles"
            case ("components", str(provider), "[]") if provider in _COMPONENTS:
                return "components"
            case (str(name),) if name == "realm" or name in _SETTINGS:
                return "settings"
        return ""

    def __iter__(self) -> Iterator[Place]:
        return iter(())

    def __len__(self) -> int:
        return 0


class Role(NamedTuple):
    """A role. `client`: the client that has it; "" for a role of the realm."""

    client: str
    name: str


@dataclass
class Group:
    """A group. `name`: what it is called here; `path`: as people's entries name it."""

    name: str
    path: str
    roles: list[Role] = field(default_factory=list)  # also those of the groups above it
    has_attributes: bool = False

    def as_claim(self, is_path: bool) -> str:
        """Return what Keycloak's claims call the group: its path, or its own name."""
        return self.path if is_path else self.path.rpartition("/")[2]


@dataclass
class Realm:
    """What a file says, as it says it, apart from groups and roles."""

    name: str = ""
    settings: dict[str, Any] = field(default_factory=dict)
    clients: list[dict[str, Any]] = field(default_factory=list)
    groups: dict[str, Group] = field(default_factory=dict)  # by path
    group_names: set[str] = field(default_factory=set)
    roles: dict[Role, list[Role]] = field(default_factory=dict)  # with those that it contains
    scopes: dict[str, dict[str, Any]] = field(default_factory=dict)
    providers: list[dict[str, Any]] = field(default_factory=list)
    components: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # by kind

    @property
    def default_role(self) -> Role:
        """The role that everybody has."""
        return Role("", f"{DEFAULT_ROLES}{self.name.lower()}")


def read(paths: Sequence[Path], advance: Advance) -> Realm:
    """Read all but the people. Raises `FileProblem`.

    `paths`: an export in one file, or in one for the realm and others for its people.
    """
    realm, counts = Realm(), Counter[str]()
    names: set[str] = set()
    for path in paths:
        try:
            for place, entry in entries(path, _Places(), advance):
                _take(realm, place, entry, counts, names)
        except _TooMany as error:
            raise FileProblem(f"{path}: {error}") from None
    if not names:
        raise FileProblem("no file has a realm; make one with: kc.sh export --realm NAME --file F")
    if len(names) > 1:
        raise FileProblem(
            f"there are several realms: {', '.join(sorted(names))[:200]}; export and migrate one "
            "after the other"
        )
    realm.name = names.pop()
    return realm


class _TooMany(ValueError):
    """There are more entries of a kind than a realm has."""


def _take(realm: Realm, place: Place, entry: Any, counts: Counter[str], names: set[str]) -> None:
    kind = _Places.kind_of(place)
    if kind == "settings":
        name = str(place[-1])
        if name == "realm":
            names.add(text(entry))
        else:
            realm.settings[name] = entry
        return
    _count(counts, kind)
    content = mapping(entry)
    match kind:
        case "clients":
            realm.clients.append(content)
        case "groups":
            for group in _groups(content, "", "", (), counts):
                # A name may have a slash in it, which the path escapes.
                if group.name in realm.group_names:
                    group.name = group.path.removeprefix("/")
                while group.name in realm.group_names:
                    group.name = f"group:{group.name}"
                realm.group_names.add(group.name)
                realm.groups[group.path] = group
        case "roles":
            client = str(place[-2]) if place[-3:-2] == ("client",) else ""
            realm.roles[Role(client, exact(content.get("name")))] = _contained(content)
        case "client scopes":
            realm.scopes[text(content.get("name"))] = content
        case "identity providers":
            realm.providers.append(content)
        case "components":
            realm.components.setdefault(str(place[-2]), []).append(content)


def _count(counts: Counter[str], kind: str) -> None:
    counts[kind] += 1
    if counts[kind] > MOST[kind]:
        raise _TooMany(f"it has more than {MOST[kind]:,} {kind}, which this command does not take")


def _contained(role: dict[str, Any]) -> list[Role]:
    composites = mapping(role.get("composites"))
    return _roles(composites.get("realm"), composites.get("client"))


def _roles(of_realm: Any, of_clients: Any) -> list[Role]:
    roles = [Role("", name) for name in exact_texts(of_realm)]
    for client, names in mapping(of_clients).items():
        roles += [Role(client, name) for name in exact_texts(names)]
    return roles


def _groups(
    entry: dict[str, Any], above: str, path: str, roles: tuple[Role, ...], counts: Counter[str]
) -> Iterator[Group]:
    """Yield a group and those in it, each with the roles of all groups above it."""
    part = exact(entry.get("name"))
    name = f"{above}/{part}" if above else part
    path = exact(entry.get("path")) or f"{path}/{part}"
    roles = (*roles, *_roles(entry.get("realmRoles"), entry.get("clientRoles")))
    yield Group(name, path, [*roles], bool(mapping(entry.get("attributes"))))
    listed = entry.get("subGroups")
    for inner in map(mapping, listed if isinstance(listed, list) else ()):
        _count(counts, "groups")
        yield from _groups(inner, name, path, roles, counts)


class Roles:
    """Which groups here stand for the roles of a realm, and who has them.

    Two things that Keycloak tells apart never become one group.
    """

    def __init__(self, realm: Realm) -> None:
        self._realm = realm
        self._closures: dict[Role, frozenset[Role]] = {}
        own = {text(client.get("clientId")) for client in realm.clients} - OWN_CLIENTS
        self._own = own | {""}
        self._names: dict[Role, str] = {}
        names = set(realm.group_names)
        for role in sorted(filter(self.is_taken, realm.roles)):
            name = f"{role.client}:{role.name}" if role.client else role.name
            while name in names:
                name = f"role:{name}"
            names.add(name)
            self._names[role] = name
        self._givers: dict[Role, list[str]] = {}
        for group in realm.groups.values():
            for role in self.all_of(group.roles):
                self._givers.setdefault(role, []).append(group.name)

    def is_taken(self, role: Role) -> bool:
        """Return whether a role has a meaning outside of Keycloak."""
        if role.client not in self._own or role == self._realm.default_role:
            return False
        return bool(role.client) or role.name not in OWN_ROLES

    def group_of(self, role: Role) -> str:
        """Return the group whose members have a role."""
        return self._names[role]

    def closure(self, role: Role) -> frozenset[Role]:
        """Return a role with all that it contains, also if roles contain each other."""
        if role not in self._closures:
            reached, waiting = {role}, [role]
            while waiting:
                for inner in self._realm.roles.get(waiting.pop(), ()):
                    if inner not in reached:
                        reached.add(inner)
                        waiting.append(inner)
            self._closures[role] = frozenset(reached)
        return self._closures[role]

    def all_of(self, roles: Iterable[Role]) -> list[Role]:
        """Return these roles with all that they contain, those that are taken, in one order."""
        reached = frozenset[Role]().union(*map(self.closure, roles))
        return sorted(role for role in reached if role in self._names)

    def of_person(self, entry: dict[str, Any]) -> list[str]:
        """Return the groups of a person of the export: own ones, and those that stand for roles.

        Roles of clients that a group of the person gives are left out: the client's roles name
        the group.
        """
        direct = _roles(entry.get("realmRoles"), entry.get("clientRoles"))
        paths = exact_texts(entry.get("groups"))
        groups = [self._realm.groups[path] for path in paths if path in self._realm.groups]
        by_group = [role for group in groups for role in group.roles]
        names = [
            self._realm.groups[path].name if path in self._realm.groups else path.removeprefix("/")
            for path in paths
        ]
        names += [self.group_of(role) for role in self.all_of(direct)]
        names += [self.group_of(role) for role in self.all_of(by_group) if not role.client]
        return list(dict.fromkeys(names))

    def of_client(self, client_id: str) -> list[Role]:
        """Return the roles of a client."""
        return sorted(role for role in self._names if role.client == client_id)

    def of_realm(self) -> list[Role]:
        """Return the roles of the realm itself."""
        return self.of_client("")

    def givers(self, role: Role) -> list[str]:
        """Return the groups whose members have a role: its own, and groups that give it."""
        return [self.group_of(role), *self._givers.get(role, ())]


def administers_keycloak(entry: dict[str, Any]) -> bool:
    """Return whether a person administers Keycloak itself, by a role of their own."""
    return bool(texts(mapping(entry.get("clientRoles")).get("realm-management")))
