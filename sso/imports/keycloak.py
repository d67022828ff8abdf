"""A realm of Keycloak, as the input of a migration."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from sso.imports import keycloak_clients, keycloak_people, reading
from sso.imports.drafts import Answers
from sso.imports.files import Advance
from sso.imports.findings import Fate, Finding
from sso.imports.keycloak_credentials import Here
from sso.imports.keycloak_people import AttributeNames
from sso.imports.keycloak_realm import STORAGE, Realm, Roles
from sso.imports.person import text
from sso.imports.system import System

KIND = "keycloak"


def system(
    paths: Sequence[Path],
    realm: Realm,
    answers: Answers,
    here: Here,
    advance: Advance,
    most_methods: int,
) -> System:
    """Return what the files say about a realm that was read from them."""
    roles, names = Roles(realm), AttributeNames(realm)
    twins = names.twins()
    version = text(realm.settings.get("keycloakVersion"))
    return System(
        kind=KIND,
        name=realm.name,
        title=f"Realm {realm.name} of Keycloak {version}".rstrip(),
        drafts=list(keycloak_clients.drafts(realm, roles, answers)),
        client_ids={text(client.get("clientId")) for client in realm.clients},
        groups=[group.name for group in realm.groups.values()],
        people=lambda counts: keycloak_people.read(
            paths, roles, KIND, advance, counts, here, names
        ),
        hash_methods=set().union(*map(partial(_methods, most=most_methods), paths)),
        other_groups=[roles.group_of(role) for role in roles.of_realm()],
        definitions=[
            definition for definition in keycloak_people.definitions(realm)
            if definition["name"] not in twins
        ],
        findings=[*_twins(twins), *_findings(realm, roles)],
    )  # fmt: skip


def _twins(twins: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    for name, names in twins.items():
        yield Finding(
            Fate.NOT_TAKEN, "attribute", name, "",
            f"{', '.join(names)[:300]} there would be one attribute here",
            "rename one of them there, with its mappers",
        )  # fmt: skip


def _methods(path: Path, most: int) -> set[str]:
    return reading.methods(KIND, path, most)


def _findings(realm: Realm, roles: Roles) -> Iterator[Finding]:
    for group in realm.groups.values():
        if group.has_attributes:
            yield Finding(
                Fate.NOT_TAKEN, "group", group.name[:200], "attributes", "groups here have none",
                "give the attribute to its members",
            )  # fmt: skip
    for role in roles.of_realm():
        name = roles.group_of(role)
        yield Finding(
            Fate.CHANGED, "role", role.name[:200], "", f"it is the group {name[:200]} here",
        )  # fmt: skip
    for provider in realm.providers:
        alias = text(provider.get("alias"))[:200]
        yield Finding(
            Fate.NOT_TAKEN, "identity provider", alias, "", "it knows the addresses of Keycloak",
            "configure it here, and register the new redirect URI there: docs/how-to/upstream.md",
        )  # fmt: skip
    for component in realm.components.get(STORAGE, ()):
        yield Finding(
            Fate.NOT_TAKEN, "directory", text(component.get("name"))[:200], "",
            "people of a directory have no password in the export",
            "connect the directory: docs/how-to/ldap.md",
        )  # fmt: skip
