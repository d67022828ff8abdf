"""`flask export --format keycloak`: people, groups, roles and clients as a realm of Keycloak.

Keycloak reads the file with `kc.sh import`. A client that would admit more people there than here
is disabled in the file, and the report says what Keycloak cannot express.
"""

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO
from uuid import UUID

import click

from sso import audit, database
from sso.audit.events import Event
from sso.cli.commands import write_private
from sso.cli.output import print_json, print_line
from sso.config.auth_methods import NO_AUTH_METHOD, PRIVATE_KEY_JWT
from sso.config.client_fields import (
    AUTHORIZATION_CODE,
    CLIENT_CREDENTIALS,
    DEVICE_CODE,
    REFRESH_TOKEN,
)
from sso.crypto import foreign_hashes
from sso.extensions import db
from sso.flow import attributes, own_claims, role_claims
from sso.imports.findings import Fate, Finding
from sso.imports.keycloak_realm import OWN_CLIENTS
from sso.mfa import totp
from sso.models import Client, User
from sso.services import attributes as defined
from sso.services import clients
from sso.store import apis, factors, named_groups, users
from sso.store import clients as stored_clients

_BATCH = 500
_REALM = re.compile(r"[A-Za-z0-9_-]{1,100}")
# Where Keycloak has a claim under another name.
_ATTRIBUTES = {
    "middle_name": "middleName", "phone_number": "phoneNumber",
    "phone_number_verified": "phoneNumberVerified",
}  # fmt: skip
_ADDRESS = {"street_address": "street"}
_OWN = ("given_name", "family_name", "preferred_username")  # properties there
_SCOPES = {"profile": "profile", "email": "email", "address": "address", "phone": "phone"}
_BASIC = ("basic", "acr", "web-origins")
_TYPES = {attributes.NUMBER: "long", attributes.BOOLEAN: "boolean"}
_SERVICE = "service-account-"  # how Keycloak names the accounts of clients
PASSWORDS = "passwords whose hash Keycloak cannot check: these people reset them there"
PASSKEYS = "passkeys: people add new ones"
CODES = "people with recovery codes, which they make again"
APPS = "authenticator apps that SSO_SECRET_KEY does not decrypt"
ACTIONS = "people who set up an authenticator app at the first sign-in, in place of a lost factor"
LINKS = "links to sign-in providers: people link them again"
ENDS = "accounts that end later: Keycloak keeps them until somebody disables them"
MEMBERSHIPS = "memberships that end later: Keycloak keeps them until somebody ends them"
NAMES = "people whose user name is their email address there: another account has their name"
APIS = "APIs: set up audiences and client scopes there"


@dataclass
class Result:
    """What the file has, and what it lacks. `lost`: of people, by what it is."""

    people: int = 0
    clients: int = 0
    groups: int = 0
    findings: list[Finding] = field(default_factory=list)
    lost: Counter[str] = field(default_factory=Counter)

    def note(self, client: Client, fate: Fate, what: str, why: str, remedy: str = "") -> None:
        """Add what becomes of a part of a client."""
        self.findings.append(Finding(fate, "client", client.client_id, what, why, remedy))

    def lines(self) -> Iterator[str]:
        """Yield the report."""
        yield f"{self.people:,} people, {self.groups:,} groups, {self.clients:,} clients"
        for label, count in sorted(self.lost.items()):
            if count:
                yield f"{count:,} {label}"
        for finding in self.findings:
            texts = ": ".join(filter(None, (finding.name, finding.what, finding.why)))
            yield "; ".join(filter(None, (texts, finding.remedy)))

    def as_json(self) -> dict[str, Any]:
        return {
            "people": self.people, "groups": self.groups, "clients": self.clients,
            "lost": {label: count for label, count in self.lost.items() if count},
            "findings": [asdict(finding) for finding in self.findings],
        }  # fmt: skip


def run(path: Path | None, realm: str, as_json: bool) -> None:
    """Write a realm to the file, and print the report. Raises `UsageError` and `Failure`."""
    if path is None:
        raise click.UsageError("--format keycloak needs FILE: it has password hashes and secrets")
    if not _REALM.fullmatch(realm) or realm.lower() == "master":
        raise click.UsageError("a realm is 1 to 100 letters, digits, _ or -, and not master")
    results: list[Result] = []
    with database.session_snapshot():
        write_private(path, lambda file: results.append(write(file, realm)))
    [result] = results
    audit.event(Event.EXPORTED, file=path, format="keycloak")
    db.session.commit()
    if as_json:
        print_json(result.as_json())
    else:
        for line in result.lines():
            print_line(line)


def write(file: TextIO, realm: str) -> Result:
    """Write a realm to a file, people a batch at a time."""
    result = Result()
    rows = [row for row in stored_clients.every() if not row.is_agent]
    roles: dict[str, list[tuple[str, str | None]]] = {
        row.client_id: [role_claims.split(entry) for entry in row.roles] for row in rows
    }
    groups = _Groups(roles)
    exported = [entry for row in rows if (entry := _client(row, groups, result))]
    kept = {str(entry["clientId"]) for entry in exported}
    result.clients, result.groups = len(exported), groups.count
    result.lost[APIS] = len(apis.every())
    result.findings += groups.findings
    head = {
        "realm": realm, "enabled": True, "sslRequired": "external",
        "roles": {"client": {
            client_id: [{"name": name} for name in dict.fromkeys(name for name, _ in pairs)]
            for client_id, pairs in roles.items() if pairs and client_id in kept
        }},
        "groups": groups.tree(kept), "clients": exported, "components": _profile(),
    }  # fmt: skip
    text = json.dumps(head, indent=1)
    file.write(f'{text.removesuffix("}").rstrip()},\n "users": [')
    for number, person in enumerate(_people(realm, groups, kept, result)):
        file.write(f"{',' if number else ''}\n{json.dumps(person)}")
    file.write("\n]}\n")
    return result


class _Groups:
    """All groups as a tree, with the roles of clients that each gives.

    Members of a group of Keycloak have the roles of the groups above it. Here they do not, so that
    members get roles themselves where a group below would inherit more than it gives.
    """

    def __init__(self, roles: Mapping[str, Sequence[tuple[str, str | None]]]) -> None:
        self.findings: list[Finding] = []
        self._gives: dict[str, set[tuple[str, str]]] = {}
        for client_id, pairs in roles.items():
            for role, group in pairs:
                if group is not None:
                    self._gives.setdefault(group, set()).add((client_id, role))
        # As `migrate keycloak` names the group of those who have a role themselves.
        self._of_role = {
            name for name, pairs in self._gives.items()
            if [name] == [f"{client_id}:{role}" for client_id, role in pairs]
        }  # fmt: skip
        names = sorted((named_groups.names() | self._gives.keys()) - self._of_role)
        self._direct = self._of_role | {
            above for name in names for above in _above(name)
            if not self._gives.get(above, set()) <= self._gives.get(name, set())
        }  # fmt: skip
        self._paths: dict[str, list[str]] = {}
        taken = {name.partition("/")[0] for name in names if not _is_odd(name)}
        for name in names:
            self._paths[name] = self._odd_path(name, taken) if _is_odd(name) else name.split("/")

    def _odd_path(self, name: str, taken: set[str]) -> list[str]:
        plain = name.replace("/", "_")
        while plain in taken:
            plain += "_"
        taken.add(plain)
        self.findings.append(Finding(
            Fate.CHANGED, "group", name, "", f"it is {plain} there, because of its slashes",
        ))  # fmt: skip
        return [plain]

    @property
    def count(self) -> int:
        return len(self._paths)

    @property
    def has_paths(self) -> bool:
        """Whether a group is inside another one there."""
        return any(len(path) > 1 for path in self._paths.values())

    def tree(self, clients: Collection[str]) -> list[dict[str, Any]]:
        """Return the groups, with the roles of these clients."""
        roots: dict[str, dict[str, Any]] = {}
        for name, path in self._paths.items():
            siblings = roots
            for part in path:
                node = siblings.setdefault(part, {"roles": {}, "inner": {}})
                siblings = node["inner"]
            if name not in self._direct:
                node["roles"] = _by_client(self._gives.get(name, ()), clients)
        return _tree(roots)

    def of_person(self, names: Iterable[str]) -> list[str]:
        """Return the paths of the groups of a person."""
        return ["/" + "/".join(self._paths[name]) for name in names if name in self._paths]

    def roles_of_person(
        self, names: Iterable[str], clients: Collection[str]
    ) -> dict[str, list[str]]:
        """Return the roles that the person has there without a group."""
        pairs = {pair for name in names if name in self._direct
                 for pair in self._gives.get(name, ())}  # fmt: skip
        return _by_client(pairs, clients)


def _is_odd(name: str) -> bool:
    """Return whether a name with slashes is no path."""
    return "" in name.split("/")


def _above(name: str) -> Iterator[str]:
    """Yield the names of the groups above one."""
    while "/" in name and not _is_odd(name):
        name = name.rpartition("/")[0]
        yield name


def _by_client(pairs: Iterable[tuple[str, str]], clients: Collection[str]) -> dict[str, list[str]]:
    roles: dict[str, list[str]] = {}
    for client_id, role in sorted(pairs):
        if client_id in clients:
            roles.setdefault(client_id, []).append(role)
    return roles


def _tree(nodes: Mapping[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"name": name, "clientRoles": node["roles"], "subGroups": _tree(node["inner"])}
        for name, node in nodes.items()
    ]


def _people(
    realm: str, groups: _Groups, clients: Collection[str], result: Result
) -> Iterator[dict[str, Any]]:
    taken: set[str] = set()
    after: UUID | None = None
    while rows := users.batch(after, _BATCH):
        after = rows[-1].id
        held = factors.exported([row.id for row in rows])
        result.lost[PASSKEYS] += sum(held.passkeys.values())
        result.lost[CODES] += len(held.with_codes)
        result.lost[LINKS] += held.identities
        for user in rows:
            result.people += 1
            result.lost[ENDS] += user.ends_at is not None and not user.is_disabled
            result.lost[MEMBERSHIPS] += len({*(user.group_ends or ())} & {*user.groups})
            credentials, actions = _credentials(user, held, result)
            yield {
                **_person(user, taken, result), "credentials": credentials,
                "requiredActions": actions, "groups": groups.of_person(user.groups),
                "realmRoles": [f"default-roles-{realm.lower()}"],
                "clientRoles": groups.roles_of_person(user.groups, clients),
            }  # fmt: skip


def _credentials(
    user: User, held: factors.Exported, result: Result
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the credentials of a person, and what Keycloak has them do at the first sign-in."""
    credentials: list[dict[str, Any]] = []
    actions: list[str] = []
    if user.password_hash and (hashed := foreign_hashes.to_keycloak(user.password_hash)):
        credentials.append(_credential("password", *hashed))
    elif user.password_hash:
        result.lost[PASSWORDS] += 1
        actions.append("UPDATE_PASSWORD")
    sealed = held.sealed_apps.get(user.id)
    if sealed is not None and (secret := totp.opened(user.id, sealed)):
        credentials.append(_credential("otp", {"value": secret}, {
            "subType": "totp", "digits": 6, "counter": 0, "period": totp.STEP,
            "algorithm": "HmacSHA1", "secretEncoding": "BASE32",
        }))  # fmt: skip
    elif sealed is not None or user.id in held.passkeys:
        # Who had a second factor must not be left with a password alone.
        result.lost[APPS] += sealed is not None
        result.lost[ACTIONS] += 1
        actions.append("CONFIGURE_TOTP")
    return credentials, actions


def _person(user: User, taken: set[str], result: Result) -> dict[str, Any]:
    first, last = _names(user)
    return {
        "id": str(user.id), "username": _user_name(user, taken, result), "email": user.email,
        "emailVerified": user.email_verified, "enabled": not user.is_disabled,
        "firstName": first, "lastName": last,
        "createdTimestamp": int(user.created_at.timestamp() * 1000),
        "attributes": _attributes(user),
    }  # fmt: skip


def _credential(kind: str, secret: dict[str, Any], data: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "secretData": json.dumps(secret), "credentialData": json.dumps(data)}


def _user_name(user: User, taken: set[str], result: Result) -> str:
    """Return the user name that applications get, unless another account has it there: Keycloak
    signs people in by it, so it may not be somebody's email address either.
    """
    name = str(user.claims.get("preferred_username") or user.user_name or "").strip().lower()
    if name in ("", user.email):
        return user.email
    if len(name) > 255 or "@" in name or name.startswith(_SERVICE) or name in taken:
        result.lost[NAMES] += 1
        return user.email
    taken.add(name)
    return name


def _names(user: User) -> tuple[str, str]:
    first, last = (str(user.claims.get(name) or "") for name in ("given_name", "family_name"))
    if first or last:
        return first, last
    first, _, last = user.name.rpartition(" ")
    return (first, last) if first else (last, "")


def _attributes(user: User) -> dict[str, list[str]]:
    values: dict[str, list[str]] = {}
    for name, value in user.claims.items():
        if name == "address" and isinstance(value, dict):
            values |= {_ADDRESS.get(part) or part: [str(text)] for part, text in value.items()}
        elif name not in _OWN:
            values[_ATTRIBUTES.get(name, name)] = [attributes.text_of(value)]
    for name, value in user.attributes.items():
        listed = value if isinstance(value, list) else [value]
        values[name] = [attributes.text_of(item) for item in listed]
    return values


def _profile() -> dict[str, Any]:
    """Return the profile of people: Keycloak ignores attributes that it does not name."""
    usual = [
        {"name": name, "permissions": {"view": ["admin", "user"], "edit": ["admin", "user"]}}
        for name in ("username", "email", "firstName", "lastName")
    ]
    own = [
        {
            "name": row.name, "multivalued": row.type == attributes.LIST,
            "permissions": {
                "view": ["admin", *(["user"] if attributes.Party.PERSON in row.readers else [])],
                "edit": ["admin", *(["user"] if attributes.Party.PERSON in row.writers else [])],
            },
        }
        for row in defined.definitions().values()
    ]  # fmt: skip
    # People cannot edit the others.
    profile = {"attributes": [*usual, *own], "unmanagedAttributePolicy": "ADMIN_EDIT"}
    return {
        "org.keycloak.userprofile.UserProfileProvider": [{
            "providerId": "declarative-user-profile",
            "config": {"kc.user.profile.config": [json.dumps(profile)]},
        }]
    }  # fmt: skip


def _client(row: Client, groups: _Groups, result: Result) -> dict[str, Any] | None:
    """Return a client; `None` if it cannot be one there."""
    fields = clients.described(row)
    if row.client_id in OWN_CLIENTS:
        result.note(row, Fate.NOT_TAKEN, "", "Keycloak has a client of its own with this ID",
                    "register it there with another one")  # fmt: skip
        return None
    if fields.get("saml_entity_id") or fields.get("proxy_urls"):
        kind = "a service provider of SAML" if fields.get("saml_entity_id") else "behind a proxy"
        result.note(row, Fate.NOT_TAKEN, "", f"it is {kind}", "register it there")
        return None
    method = fields.get("token_endpoint_auth_method")
    is_public, has_key = method == NO_AUTH_METHOD, method == PRIVATE_KEY_JWT
    grants = fields.get("grant_types") or [AUTHORIZATION_CODE]
    entry = {
        "clientId": row.client_id, "name": row.name, "protocol": "openid-connect",
        "enabled": not fields["disabled"], "publicClient": is_public,
        "clientAuthenticatorType": "client-jwt" if has_key else "client-secret",
        "redirectUris": fields.get("redirect_uris") or [], "webOrigins": ["+"],
        "baseUrl": fields.get("home_url") or "", "fullScopeAllowed": True,
        "consentRequired": not fields.get("first_party"),
        "standardFlowEnabled": AUTHORIZATION_CODE in grants,
        "serviceAccountsEnabled": CLIENT_CREDENTIALS in grants and not is_public,
        "implicitFlowEnabled": False, "directAccessGrantsEnabled": False,
        "attributes": _client_attributes(fields, grants),
        **_client_scopes(str(fields.get("scope") or "")),
        "protocolMappers": _mappers(row, fields, groups, result),
    }  # fmt: skip
    if not is_public and not has_key:
        result.note(row, Fate.CHANGED, "secret", "this server has its digest alone, and Keycloak "
                    "makes a new one", "set there the one that the application has")  # fmt: skip
    _switch_off(row, fields, entry, result)
    return entry


def _switch_off(
    row: Client, fields: Mapping[str, Any], entry: dict[str, Any], result: Result
) -> None:
    """Disable a client that would admit more people there, or ask less of them."""
    for name, why in (
        ("groups", "only members of its groups may use it, which takes a sign-in flow there"),
        ("require_mfa", "it requires a second factor, which takes a sign-in flow there"),
        ("trust_issuer", "it signs in with tokens of another issuer"),
        ("exchange_from", "it exchanges tokens of people"),
    ):
        if fields.get(name):
            entry["enabled"] = False
            result.note(row, Fate.CHANGED, name, f"{why}, so it is disabled in the file",
                        "enable it there when that is settled")  # fmt: skip


def _client_attributes(fields: Mapping[str, Any], grants: Sequence[str]) -> dict[str, str]:
    after = fields.get("post_logout_redirect_uris") or []
    values: dict[str, Any] = {
        "post.logout.redirect.uris": "##".join(after) or "-",
        "backchannel.logout.url": fields.get("backchannel_logout_uri"),
        "backchannel.logout.session.required": bool(fields.get("backchannel_logout_uri")),
        "pkce.code.challenge.method": "S256" if fields.get("require_pkce") else None,
        "id.token.signed.response.alg": fields.get("id_token_signed_response_alg"),
        "use.refresh.tokens": REFRESH_TOKEN in grants,
        "oauth2.device.authorization.grant.enabled": DEVICE_CODE in grants,
        "require.pushed.authorization.requests":
            fields.get("require_pushed_authorization_requests"),
        "dpop.bound.access.tokens": fields.get("dpop_bound_access_tokens"),
        "use.jwks.url": bool(fields.get("jwks_uri")), "jwks.url": fields.get("jwks_uri"),
        "use.jwks.string": True if fields.get("jwks") else None,
        "jwks.string": json.dumps(fields["jwks"]) if fields.get("jwks") else None,
        "token.endpoint.auth.signing.alg": fields.get("token_endpoint_auth_signing_alg"),
    }  # fmt: skip
    return {
        name: attributes.text_of(value) for name, value in values.items() if value is not None
    }  # fmt: skip


def _client_scopes(scope: str) -> dict[str, list[str]]:
    names = scope.split()
    offline = ["offline_access"] if "offline_access" in names else []
    default = [there for here, there in _SCOPES.items() if here in names]
    return {"defaultClientScopes": [*_BASIC, *default], "optionalClientScopes": offline}


def _mapper(name: str, kind: str, places: Sequence[str], **config: str) -> dict[str, Any]:
    tokens = {
        "id.token.claim": own_claims.ID_TOKEN, "userinfo.token.claim": own_claims.USERINFO,
        "access.token.claim": own_claims.ACCESS_TOKEN,
    }  # fmt: skip
    return {
        "name": name, "protocol": "openid-connect", "protocolMapper": kind,
        "config": {
            "claim.name": name.replace(".", "\\."),
            **{key: str(place in places).lower() for key, place in tokens.items()},
            **{key.replace("__", "."): value for key, value in config.items()},
        },
    }  # fmt: skip


def _mappers(
    row: Client, fields: Mapping[str, Any], groups: _Groups, result: Result
) -> list[dict[str, Any]]:
    """Return what makes the claims of an application there."""
    usual = [own_claims.USERINFO]
    if row.id_token_has_all_claims:
        usual.append(own_claims.ID_TOKEN)
    mappers: dict[str, dict[str, Any]] = {}
    if own_claims.GROUPS_CLAIM in str(fields.get("scope") or "").split():
        mappers[own_claims.GROUPS_CLAIM] = _groups_mapper(
            own_claims.GROUPS_CLAIM, usual, is_path=groups.has_paths
        )
        if groups.has_paths:
            result.note(row, Fate.CHANGED, "claim groups", "groups are paths there, as in "
                        "/teams/red", "check what it compares")  # fmt: skip
    if row.roles:
        mappers[role_claims.CLAIM] = _mapper(
            role_claims.CLAIM, "oidc-usermodel-client-role-mapper", usual, multivalued="true",
            jsonType__label="String", usermodel__clientRoleMapping__clientId=row.client_id,
        )  # fmt: skip
        if row.roles_shape != role_claims.LIST:
            result.note(row, Fate.CHANGED, "claim roles", "it is a list there")
    types = {name: definition.type for name, definition in defined.definitions().items()}
    lost: dict[str, None] = {}
    listed: dict[str, None] = {}
    for entry in row.own_claims:
        claim = own_claims.parsed(entry)
        if mapper := _own_mapper(claim, sorted(claim.places or usual), types, groups):
            mappers[claim.name] = mapper
            listed |= {claim.name: None} if claim.source == "group" else {}
        else:
            lost[claim.name] = None
    for name in lost:
        mappers.pop(name, None)
        result.note(row, Fate.NOT_TAKEN, f"claim {name[:80]}", "it has no mapper there")
    for name in listed.keys() - lost.keys():
        result.note(row, Fate.CHANGED, f"claim {name[:80]}", "it has all groups of the person "
                    "there, and not the listed ones alone")  # fmt: skip
    return list(mappers.values())


def _groups_mapper(name: str, places: Sequence[str], *, is_path: bool) -> dict[str, Any]:
    return _mapper(name, "oidc-group-membership-mapper", places, full__path=str(is_path).lower())


def _own_mapper(
    claim: own_claims.OwnClaim, places: Sequence[str], types: Mapping[str, str], groups: _Groups
) -> dict[str, Any] | None:
    match claim.source:
        case "attribute" if len(claim.names) == 1:
            kind = types.get(claim.names[0], attributes.STRING)
            return _mapper(
                claim.name, "oidc-usermodel-attribute-mapper", places,
                user__attribute=claim.names[0], jsonType__label=_TYPES.get(kind, "String"),
                multivalued=str(kind == attributes.LIST).lower(),
            )  # fmt: skip
        case "constant":
            return _mapper(claim.name, "oidc-hardcoded-claim-mapper", places,
                           claim__value=str(claim.value), jsonType__label="String")  # fmt: skip
        case "json":
            text = json.dumps(claim.value)
            return _mapper(claim.name, "oidc-hardcoded-claim-mapper", places,
                           claim__value=text, jsonType__label="JSON")  # fmt: skip
        case "groups" if claim.names == ("",):
            return _groups_mapper(claim.name, places, is_path=groups.has_paths)
        case "group" if claim.value == f"/{claim.names[0]}":
            return _groups_mapper(claim.name, places, is_path=True)
        case "group" if claim.value == claim.names[0].rpartition("/")[2]:
            return _groups_mapper(claim.name, places, is_path=False)
    return None
