"""Protocol mappers of a Keycloak client, as own claims and roles here.

Claims here have no expression language and no nested names. What cannot be said is a finding.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from sso.flow import attributes, own_claims
from sso.flow.profile_claims import CLAIMS
from sso.flow.role_claims import CLAIM as ROLES
from sso.flow.scopes import ALL_CLAIMS
from sso.imports.findings import Fate, Finding
from sso.imports.keycloak_realm import Realm, Roles
from sso.imports.person import mapping, text
from sso.process.program import COMMAND

_TOKENS = {
    "id.token.claim": own_claims.ID_TOKEN,
    "userinfo.token.claim": own_claims.USERINFO,
    "access.token.claim": own_claims.ACCESS_TOKEN,
}
# What this server sends, too, without being told.
_ALWAYS = frozenset(
    ("oidc-sub-mapper", "oidc-full-name-mapper", "oidc-acr-mapper", "oidc-amr-mapper",
     "oidc-allowed-origins-mapper", "oidc-audience-resolve-mapper", "oidc-nonce-backwards-"
     "compatible-mapper", "oidc-session-state-mapper")
)  # fmt: skip
# Properties and attributes of Keycloak's users, and the claims that have them here.
_PROPERTIES: Mapping[str, str] = {
    "username": "preferred_username", "email": "email", "firstName": "given_name",
    "lastName": "family_name", "emailVerified": "email_verified", "id": "sub",
    **{name: name for name in CLAIMS},
    "phoneNumber": "phone_number", "phoneNumberVerified": "phone_number_verified",
}  # fmt: skip
_TYPES = {
    "string": attributes.STRING, "int": attributes.NUMBER, "long": attributes.NUMBER,
    "boolean": attributes.BOOLEAN,
}  # fmt: skip
_MOST_GROUPS = 150  # that are listed one by one, with their exact names
_ADVICE = f"see: {COMMAND} client preview"


def attribute_name(name: str) -> str:
    """Return the name here of an attribute there: in small letters, with underscores."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return re.sub(r"[^a-z0-9]+", "_", spaced.lower()).strip("_")[:64]


def attributes_read(realm: Realm) -> Iterator[str]:
    """Yield the attributes there of which clients and scopes make claims."""
    for holder in (*realm.clients, *realm.scopes.values()):
        mappers = holder.get("protocolMappers")
        for mapper in map(mapping, mappers if isinstance(mappers, list) else ()):
            yield _texts_of(mapper.get("config")).get("user.attribute", "")


class Claims:
    """The claims of one client, as its mappers are taken one after the other."""

    PROTOCOL = "openid-connect"

    def __init__(self, client_id: str, realm: Realm, roles: Roles) -> None:
        self._client, self._realm, self._roles = client_id, realm, roles
        self.entries: list[str] = []
        self.attributes: dict[str, str] = {}
        self.findings: list[Finding] = []
        self.sends_roles = self.sends_realm_roles = False

    def take_all(self, mappers: Any) -> None:
        """Take mappers of the client itself, or of a scope that it always has."""
        for mapper in map(mapping, mappers if isinstance(mappers, list) else ()):
            protocol = text(mapper.get("protocol")) or self.PROTOCOL
            if protocol == self.PROTOCOL:
                self._take(text(mapper.get("protocolMapper")), text(mapper.get("name")),
                           _texts_of(mapper.get("config")))  # fmt: skip

    def _note(self, fate: Fate, name: str, why: str, remedy: str = "") -> None:
        what = f"mapper {name[:80]}"
        self.findings.append(Finding(fate, "client", self._client[:200], what, why, remedy))

    def _take(self, kind: str, name: str, config: Mapping[str, str]) -> None:
        match kind:
            case _ if kind in _ALWAYS or not kind:
                pass
            case "oidc-usermodel-attribute-mapper" | "oidc-usermodel-property-mapper":
                self._attribute(name, config)
            case "oidc-hardcoded-claim-mapper":
                self._constant(name, config)
            case "oidc-group-membership-mapper":
                self._groups(name, config)
            case "oidc-usermodel-client-role-mapper":
                self._roles_claim(name, config, of_realm=False)
            case "oidc-usermodel-realm-role-mapper":
                self._roles_claim(name, config, of_realm=True)
            case "oidc-audience-mapper":
                audience = (config.get("included.custom.audience")
                            or config.get("included.client.audience", ""))  # fmt: skip
                self._note(
                    Fate.NOT_TAKEN, name, f"the audience {audience[:200]} is an API here",
                    f"{COMMAND} api create, then: {COMMAND} client update {self._client} --add-api "
                    "URI --default-api URI",
                )  # fmt: skip
            case "oidc-sha256-pairwise-sub-mapper":
                self._note(
                    Fate.NOT_TAKEN, name, "the application would get other subjects (sub)",
                    "move the accounts there by email address, or keep this client where it is",
                )  # fmt: skip
            case _ if "script" in kind:
                self._note(
                    Fate.NOT_TAKEN,
                    name,
                    "it is a script; claims here have no programs",
                    "write the result into an attribute: docs/how-to/own-claims.md",
                )
            case _:
                self._note(Fate.NOT_TAKEN, name, f"{kind[:80]} has no counterpart here", _ADVICE)

    def _places(self, config: Mapping[str, str]) -> str:
        return ",".join(place for key, place in _TOKENS.items() if config.get(key) == "true")

    def _claim_name(self, config: Mapping[str, str]) -> str:
        return config.get("claim.name", "").replace("${client_id}", self._client)

    def _attribute(self, name: str, config: Mapping[str, str]) -> None:
        source, claim = config.get("user.attribute", ""), self._claim_name(config)
        if not claim or not self._places(config) or claim == "updated_at":
            return
        if _PROPERTIES.get(source) == claim:
            return  # as the scopes have it
        if claim in ALL_CLAIMS:
            self._note(
                Fate.NOT_TAKEN, name, f"the claim {claim} is made of {source[:60]}, not of what "
                "this server puts there", "set the claim of the people that it concerns",
            )  # fmt: skip
            return
        if source in _PROPERTIES:
            self._note(Fate.NOT_TAKEN, name, f"{source} is the claim {_PROPERTIES[source]} alone",
                       f"let the application read {_PROPERTIES[source]}")  # fmt: skip
            return
        self._from_attribute(name, claim, source, config)

    def _from_attribute(
        self, name: str, claim: str, source: str, config: Mapping[str, str]
    ) -> None:
        kind = _TYPES.get(config.get("jsonType.label", "String").lower() or "string")
        here = attribute_name(source)
        if kind is None or not here or not here[0].isalpha():
            why = f"the attribute {source[:60]} has no type here"
            self._note(Fate.NOT_TAKEN, name, why, _ADVICE)
            return
        if config.get("multivalued") == "true":
            kind = attributes.LIST
        if self._add(name, claim, config, f"attribute:{here}"):
            self.attributes.setdefault(here, kind)

    def _constant(self, name: str, config: Mapping[str, str]) -> None:
        claim, value = self._claim_name(config), config.get("claim.value", "")
        if not claim or not self._places(config):
            return
        label = config.get("jsonType.label", "String").lower()
        source = f"constant:{value}" if label in ("string", "") else f"json:{value}"
        self._add(name, claim, config, source)

    def _groups(self, name: str, config: Mapping[str, str]) -> None:
        claim, is_path = self._claim_name(config), config.get("full.path", "true") == "true"
        if not claim or not self._places(config):
            return
        # Groups with commas are not taken over, and an entry would name another one.
        groups = [group for group in self._realm.groups.values() if "," not in group.name]
        if len(groups) > _MOST_GROUPS:
            if self._add(name, claim, config, "groups:"):
                self._note(Fate.CHANGED, name, "groups have the names that they have here, as in "
                           "teams/red, and those that stand for roles are among them")  # fmt: skip
            return
        added = [
            self._add(name, claim, config, f"group:{group.name},{group.as_claim(is_path)}")
            for group in groups
        ]
        if any(added):
            self._note(
                Fate.CHANGED, name, "the groups of today are listed, one by one",
                f"for a group that is added later: {COMMAND} client update {self._client} "
                f"--add-claim {claim[:80]}=group:NAME,VALUE",
            )  # fmt: skip

    def _roles_claim(self, name: str, config: Mapping[str, str], *, of_realm: bool) -> None:
        claim, client = self._claim_name(config), config.get("usermodel.clientRoleMapping.clientId")
        if not claim or not self._places(config):
            return
        usual = "realm_access.roles" if of_realm else f"resource_access.{self._client}.roles"
        prefix = config.get(
            f"usermodel.{'realm' if of_realm else 'client'}RoleMapping.rolePrefix", ""
        )
        if claim == ROLES and not prefix and client in (None, "", self._client):
            self.sends_realm_roles |= of_realm
            self.sends_roles |= not of_realm
        elif claim == usual:
            pass  # as `_role_entries` says
        else:
            self._note(
                Fate.CHANGED, name, f"roles are the claim {ROLES}, not {claim[:80]}",
                f"let the application read {ROLES}, or use groups: {COMMAND} client update "
                f"{self._client} --add-claim {claim[:80]}=group:NAME,VALUE",
            )  # fmt: skip
            self.sends_realm_roles |= of_realm
            self.sends_roles |= not of_realm

    def _add(self, name: str, claim: str, config: Mapping[str, str], source: str) -> bool:
        if "." in claim:
            self._note(Fate.NOT_TAKEN, name, f"{claim[:80]} is nested; claims here are not")
            return False
        return self._add_entry(name, f"{claim}@{self._places(config)}={source}")

    def _add_entry(self, name: str, entry: str) -> bool:
        [entry] = own_claims.tidy([entry])
        if entry in self.entries:
            return True
        errors = list(own_claims.errors([*self.entries, entry], has_assertions="@" not in entry))
        if errors:
            self._note(Fate.NOT_TAKEN, name, str(errors[-1])[:300])
            return False
        self.entries.append(entry)
        return True


class SamlClaims(Claims):
    """The attributes of a client that speaks SAML."""

    PROTOCOL = "saml"

    def __init__(self, client_id: str, realm: Realm, roles: Roles) -> None:
        super().__init__(client_id, realm, roles)
        self.saml_attributes: list[str] = []

    def _take(self, kind: str, name: str, config: Mapping[str, str]) -> None:
        attribute = config.get("attribute.name") or config.get("friendly.name") or ""
        match kind:
            case "saml-user-property-mapper" | "saml-user-attribute-mapper":
                self._saml_attribute(name, attribute, config.get("user.attribute", ""))
            case "saml-hardcode-attribute-mapper":
                self._own(name, attribute, f"constant:{config.get('attribute.value', '')}")
            case "saml-group-membership-mapper":
                self.saml_attributes.append(f"{attribute or 'member'}=groups")
                self._note(Fate.CHANGED, name, "groups have the names that they have here, and "
                           "those that stand for roles are among them")  # fmt: skip
            case _:
                self._note(Fate.NOT_TAKEN, name, f"{kind[:80]} has no counterpart here",
                           "docs/how-to/saml.md")  # fmt: skip

    def _saml_attribute(self, name: str, attribute: str, source: str) -> None:
        if not attribute or not source:
            return
        if source in _PROPERTIES:
            self.saml_attributes.append(f"{attribute}={_PROPERTIES[source]}")
            return
        here = attribute_name(source)
        if here and here[0].isalpha() and self._own(name, attribute, f"attribute:{here}"):
            self.attributes.setdefault(here, attributes.STRING)

    def _own(self, name: str, attribute: str, source: str) -> bool:
        claim = attribute_name(attribute)
        if not claim or not self._add_entry(name, f"{claim}={source}"):
            return False
        self.saml_attributes.append(f"{attribute}={claim}")
        return True


def _texts_of(config: Any) -> dict[str, str]:
    return {
        key: value for key, value in mapping(config).items() if isinstance(value, str)
    }  # fmt: skip
