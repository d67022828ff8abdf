"""Realms of Keycloak: what becomes of each kind of client, mapper, role and group."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sso.imports import keycloak_clients, keycloak_people, keycloak_realm
from sso.imports.drafts import Answers, Draft
from sso.imports.findings import Fate
from sso.imports.keycloak_credentials import Here
from sso.imports.keycloak_people import AttributeNames
from sso.imports.keycloak_realm import Realm, Role, Roles
from sso.imports.person import FileProblem, Person
from tests.support.each import each
from tests.support.keycloak import SECRET, client, group, mapper, realm, user


def read(folder: Path, content: Any, name: str = "realm.json") -> Realm:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return keycloak_realm.read([path], lambda _: None)


def drafts(folder: Path, content: Any, answers: Answers | None = None) -> dict[str, Draft]:
    of = read(folder, content)
    return {d.name: d for d in keycloak_clients.drafts(of, Roles(of), answers or Answers())}


def draft(folder: Path, entry: dict[str, Any], answers: Answers | None = None) -> Draft:
    [only] = drafts(folder, realm(clients=[client("account"), entry]), answers).values()
    return only


def people(folder: Path, content: dict[str, Any]) -> list[Person]:
    of = read(folder, content)
    return list(keycloak_people.read(
        [folder / "realm.json"], Roles(of), "keycloak", lambda _: None, Counter(), Here(),
        AttributeNames(of),
    ))  # fmt: skip


def lines(of: Draft) -> list[tuple[str, str]]:
    return [(finding.fate.value, finding.what) for finding in of.findings]


def test_a_confidential_client_keeps_its_identifier_and_secret(tmp_path: Path) -> None:
    wiki = draft(tmp_path, client("wiki", {
        "post.logout.redirect.uris": "+##https://wiki.example.com/bye",
        "backchannel.logout.url": "https://wiki.example.com/logout",
        "pkce.code.challenge.method": "S256",
    }, name="The wiki", baseUrl="/start", rootUrl="https://wiki.example.com"))  # fmt: skip
    assert (wiki.client_id, wiki.secret, wiki.findings) == ("wiki", SECRET, [])
    assert wiki.fields == {
        "client_name": "The wiki",
        "redirect_uris": ["https://wiki.example.com/cb"],
        "post_logout_redirect_uris": ["https://wiki.example.com/cb", "https://wiki.example.com/bye"],
        "backchannel_logout_uri": "https://wiki.example.com/logout",
        "home_url": "https://wiki.example.com/start",
        "scope": "openid profile email address phone offline_access",
        "token_endpoint_auth_method": "any", "require_pkce": True, "first_party": True,
        "grant_types": ["authorization_code", "refresh_token"], "disabled": False,
        "id_token_claims": "all", "id_token_signed_response_alg": "RS256", "own_claims": [],
        "roles": [],
    }  # fmt: skip


@each(
    "entry, fields, findings",
    {
        "public": (client("c", {"pkce.code.challenge.method": "S256"}, publicClient=True),
                   {"token_endpoint_auth_method": "none", "require_pkce": True}, []),
        "public, without PKCE": (client("c", publicClient=True), {"require_pkce": True},
                                 [("changed", "PKCE")]),
        "service": (client("c", serviceAccountsEnabled=True, standardFlowEnabled=False,
                           redirectUris=[]),
                    {"grant_types": ["client_credentials"], "redirect_uris": []}, []),
        "device": (client("c", {"oauth2.device.authorization.grant.enabled": "true"},
                          publicClient=True, standardFlowEnabled=False),
                   {"grant_types": ["urn:ietf:params:oauth:grant-type:device_code",
                                    "refresh_token"]}, []),
        "device flow off": (client("c", {"oauth2.device.authorization.grant.enabled": "false"}),
                            {"grant_types": ["authorization_code", "refresh_token"]}, []),
        "no refresh tokens": (client("c", {"use.refresh.tokens": "false"}),
                              {"grant_types": ["authorization_code"]}, []),
        "consent": (client("c", consentRequired=True), {"first_party": False}, []),
        "disabled": (client("c", enabled=False), {"disabled": True}, []),
        "enabled by default": ({k: v for k, v in client("c").items() if k != "enabled"},
                               {"disabled": False}, []),
        "keys at a URL": (client("c", {"use.jwks.url": "true", "jwks.url": "https://c.example/k",
                                       "token.endpoint.auth.signing.alg": "ES256"},
                                 clientAuthenticatorType="client-jwt"),
                          {"token_endpoint_auth_method": "private_key_jwt",
                           "jwks_uri": "https://c.example/k",
                           "token_endpoint_auth_signing_alg": "ES256"}, []),
        "keys in the export": (client("c", {"use.jwks.string": "true", "use.jwks.url": "false",
                                            "jwks.string": '{"keys": [{"kty": "EC"}]}'},
                                      clientAuthenticatorType="client-jwt"),
                               {"jwks": {"keys": [{"kty": "EC"}]}}, []),
        "secret as a key": (client("c", clientAuthenticatorType="client-secret-jwt"),
                            {"token_endpoint_auth_method": "any"}, [("changed", "authentication")]),
        "algorithm": (client("c", {"id.token.signed.response.alg": "PS256"}),
                      {"id_token_signed_response_alg": "PS256"}, []),
        "HS256": (client("c", {"id.token.signed.response.alg": "HS256"}),
                  {"id_token_signed_response_alg": "RS256"},
                  [("changed", "algorithm of ID tokens")]),
        "pushed, DPoP": (client("c", {"require.pushed.authorization.requests": "true",
                                      "dpop.bound.access.tokens": "true"}),
                         {"require_pushed_authorization_requests": True,
                          "dpop_bound_access_tokens": True}, []),
        "no post-logout": (client("c", {"post.logout.redirect.uris": "-"}),
                           {"post_logout_redirect_uris": []}, []),
        "implicit": (client("c", implicitFlowEnabled=True), {},
                     [("not_taken", "implicit and hybrid flow")]),
        "passwords": (client("c", directAccessGrantsEnabled=True), {},
                      [("not_taken", "password grant")]),
        "lifetimes": (client("c", {"access.token.lifespan": "600"}), {},
                      [("not_taken", "lifetimes of its own")]),
        "any origin": (client("c", webOrigins=["*"]), {}, [("changed", "web origins")]),
        "its own origin": (client("c", webOrigins=["https://c.example.com"]), {}, []),
        "another origin": (client("c", webOrigins=["https://other.example"]), {},
                           [("not_taken", "web origin")]),
        "front-channel": (client("c", {"frontchannel.logout.url": "https://c.example/l"}), {},
                          [("not_taken", "front-channel logout")]),
        "plain http": (client("c", redirectUris=["http://c.example/cb", "https://c.example/cb"]),
                       {"redirect_uris": ["https://c.example/cb"]},
                       [("not_taken", "redirect URI")]),
        "named by a variable": (client("c", name="${client_c}"), {"client_name": "c"}, []),
    }.values(),
)  # fmt: skip
def test_kinds_of_clients(
    entry: dict[str, Any], fields: dict[str, Any], findings: list[tuple[str, str]], tmp_path: Path
) -> None:
    one = draft(tmp_path, entry)
    assert one.fields is not None
    assert {name: one.fields[name] for name in fields} == fields
    assert lines(one) == findings


@each(
    "entry, why",
    {
        "bearer-only": (client("c", bearerOnly=True), "only checks tokens"),
        "X.509": (client("c", clientAuthenticatorType="client-x509"), "client-x509"),
        "another protocol": (client("c", protocol="docker-v2"), "docker-v2"),
        "no flow": (client("c", standardFlowEnabled=False), "no flow"),
        "no key": (client("c", clientAuthenticatorType="client-jwt"), "public keys"),
        "broken key": (client("c", {"jwt.credential.certificate": "AAAA"},
                              clientAuthenticatorType="client-jwt"), "cannot be read"),
        "broken keys": (client("c", {"use.jwks.string": "true", "jwks.string": "[1"},
                               clientAuthenticatorType="client-jwt"), "cannot be read"),
        "a URL": (client("https://c.example"), "client ID"),
        "a long name": (client("c" * 49), "client ID"),
        "an option": (client("-c"), "client ID"),
        "only wildcards": (client("c", redirectUris=["https://c.example/*"]), "https://c.example/*"),
        "everywhere": (client("c", redirectUris=["*"]), "no exact redirect URI"),
        "nowhere": (client("c", redirectUris=[]), "none at all"),
    }.values(),
)  # fmt: skip
def test_clients_that_are_not_taken(entry: dict[str, Any], why: str, tmp_path: Path) -> None:
    one = draft(tmp_path, entry)
    [finding] = one.findings
    assert one.fields is None
    assert (finding.fate, finding.what) == (Fate.NOT_TAKEN, "")
    assert why in finding.why


def test_wildcards_are_asked_about_until_they_are_answered(tmp_path: Path) -> None:
    uris = ["https://c.example/*", "https://c.example/cb", "/relative"]
    wild = client("c", {"post.logout.redirect.uris": "https://c.example/*"}, redirectUris=uris)
    asked = draft(tmp_path, wild)
    assert lines(asked) == [
        ("question", "redirect URI"), ("question", "redirect URI"),
        ("question", "post-logout redirect URI"),
    ]  # fmt: skip
    assert asked.fields
    assert asked.fields["redirect_uris"] == ["https://c.example/cb"]
    answered = draft(tmp_path, wild, Answers({"c": ["https://c.example/other"]}))
    assert lines(answered) == [("question", "post-logout redirect URI")]
    assert answered.fields
    assert answered.fields["redirect_uris"] == ["https://c.example/cb", "https://c.example/other"]


def test_no_answer_smuggles_a_wildcard(tmp_path: Path) -> None:
    one = draft(tmp_path, client("c", redirectUris=[]), Answers({"c": ["https://c.example/*"]}))
    assert one.fields is None


@each(
    "secret, answers, taken",
    {
        "masked": ("**********", Answers(), None),
        "in a vault": ("${vault.wiki}", Answers(), None),
        "absent": (None, Answers(), None),
        "empty": ("", Answers(), None),
        "31 characters": (SECRET[1:], Answers(), None),
        "32 characters": (SECRET, Answers(), SECRET),
        "short, accepted": ("short", Answers(short_secrets=True), "short"),
        "masked, given": ("**********", Answers(secrets={"c": SECRET}), SECRET),
        "masked, short ones accepted": ("**********", Answers(short_secrets=True), None),
        "in a vault, short ones accepted": ("${vault.wiki}", Answers(short_secrets=True), None),
        "given, but short": (SECRET, Answers(secrets={"c": "short"}), None),
    }.values(),
)  # fmt: skip
def test_secrets(secret: str | None, answers: Answers, taken: str | None, tmp_path: Path) -> None:
    one = draft(tmp_path, client("c", secret=secret), answers)
    assert one.fields is not None
    assert one.secret == taken
    assert [finding.fate for finding in one.findings] == ([] if taken else [Fate.QUESTION])
    assert not any((secret or "-" * 9) in f.why for f in one.findings if secret)


USER_ATTRIBUTE = "oidc-usermodel-attribute-mapper"


@each(
    "mappers, own_claims, findings",
    {
        "attribute": ([mapper(USER_ATTRIBUTE, user__attribute="costCenter", claim__name="cc")],
                      ["cc@id_token,userinfo,access_token=attribute:cost_center"], []),
        "one token": ([mapper(USER_ATTRIBUTE, user__attribute="x", claim__name="cc",
                              access__token__claim="false", userinfo__token__claim="false")],
                      ["cc@id_token=attribute:x"], []),
        "no token": ([mapper(USER_ATTRIBUTE, user__attribute="x", claim__name="cc",
                             id__token__claim="false", access__token__claim="false",
                             userinfo__token__claim="false")], [], []),
        "standard": ([mapper(USER_ATTRIBUTE, user__attribute="locale", claim__name="locale"),
                      mapper("oidc-usermodel-property-mapper", user__attribute="username",
                             claim__name="preferred_username")], [], []),
        "another source of a standard claim": (
            [mapper(USER_ATTRIBUTE, user__attribute="upn", claim__name="email")],
            [], ["not_taken"]),
        "property under another name": (
            [mapper("oidc-usermodel-property-mapper", user__attribute="username",
                    claim__name="login")], [], ["not_taken"]),
        "constant": ([mapper("oidc-hardcoded-claim-mapper", claim__name="tenant",
                             claim__value="acme")],
                     ["tenant@id_token,userinfo,access_token=constant:acme"], []),
        "number": ([mapper("oidc-hardcoded-claim-mapper", claim__name="level", claim__value="3",
                           jsonType__label="int")],
                   ["level@id_token,userinfo,access_token=json:3"], []),
        "nested": ([mapper("oidc-hardcoded-claim-mapper", claim__name="a.b", claim__value="1")],
                   [], ["not_taken"]),
        "of the protocol": ([mapper("oidc-hardcoded-claim-mapper", claim__name="iss",
                                    claim__value="https://evil.example")], [], ["not_taken"]),
        "script": ([mapper("script-roles.js", claim__name="x")], [], ["not_taken"]),
        "pairwise": ([mapper("oidc-sha256-pairwise-sub-mapper")], [], ["not_taken"]),
        "audience": ([mapper("oidc-audience-mapper", included__custom__audience="https://a.example")],
                     [], ["not_taken"]),
        "groups": ([mapper("oidc-group-membership-mapper", claim__name="groups")],
                   ["groups@id_token,userinfo,access_token=group:staff,/staff",
                    "groups@id_token,userinfo,access_token=group:teams,/teams",
                    "groups@id_token,userinfo,access_token=group:teams/red,/teams/red"],
                   ["changed"]),
        "groups by their own names": (
            [mapper("oidc-group-membership-mapper", claim__name="groups", full__path="false")],
            ["groups@id_token,userinfo,access_token=group:staff,staff",
             "groups@id_token,userinfo,access_token=group:teams,teams",
             "groups@id_token,userinfo,access_token=group:teams/red,red"], ["changed"]),
        "groups of something else": (
            [mapper("oidc-hardcoded-claim-mapper", claim__name="groups", claim__value="/admins")],
            [], ["not_taken"]),
        "groups under another name": (
            [mapper("oidc-group-membership-mapper", claim__name="teams", full__path="true")],
            ["teams@id_token,userinfo,access_token=group:staff,/staff",
             "teams@id_token,userinfo,access_token=group:teams,/teams",
             "teams@id_token,userinfo,access_token=group:teams/red,/teams/red"], ["changed"]),
        "groups without paths": (
            [mapper("oidc-group-membership-mapper", claim__name="teams", full__path="false")],
            ["teams@id_token,userinfo,access_token=group:staff,staff",
             "teams@id_token,userinfo,access_token=group:teams,teams",
             "teams@id_token,userinfo,access_token=group:teams/red,red"], ["changed"]),
        "no mapper": (None, [], []), "no list": ("x", [], []), "no object": ([1, None], [], []),
        "no settings": ([{"protocolMapper": USER_ATTRIBUTE}], [], []),
    }.values(),
)  # fmt: skip
def test_mappers(mappers: Any, own_claims: list[str], findings: list[str], tmp_path: Path) -> None:
    groups = [group("staff"), group("staff, all"), group("teams", group("red", above="/teams"))]
    content = realm(clients=[client("c", protocolMappers=mappers)], groups=groups)
    [one] = drafts(tmp_path, content).values()
    assert one.fields is not None
    assert one.fields["own_claims"] == own_claims
    assert [finding.fate.value for finding in one.findings] == findings


def test_mappers_of_a_default_scope_count_and_those_of_an_optional_one_are_named(
    tmp_path: Path,
) -> None:
    constant = mapper("oidc-hardcoded-claim-mapper", claim__name="tenant", claim__value="acme")
    other = mapper("oidc-hardcoded-claim-mapper", claim__name="never", claim__value="acme")
    content = realm(
        clients=[client("c", defaultClientScopes=["profile", "acme"],
                        optionalClientScopes=["extra", "groups"])],
        clientScopes=[
            {"name": "acme", "protocol": "openid-connect", "protocolMappers": [constant]},
            {"name": "extra", "protocol": "openid-connect", "protocolMappers": [other]},
        ],
    )  # fmt: skip
    [one] = drafts(tmp_path, content).values()
    assert one.fields
    assert one.fields["own_claims"] == ["tenant@id_token,userinfo,access_token=constant:acme"]
    assert one.fields["scope"] == "openid profile groups"
    assert lines(one) == [("changed", "optional scope groups"),
                          ("not_taken", "optional scope extra")]  # fmt: skip
    default = client("c", defaultClientScopes=["profile", "groups"])
    [one] = drafts(tmp_path, realm(clients=[default])).values()
    assert lines(one) == []


@pytest.mark.parametrize("count", [150, 151])
def test_more_groups_than_are_listed(tmp_path: Path, count: int) -> None:
    """Then the claim has all groups, by their names here."""
    mappers = [mapper("oidc-group-membership-mapper", claim__name="groups")]
    groups = [group(f"g{number}") for number in range(count)]
    content = realm(clients=[client("c", protocolMappers=mappers)], groups=groups)
    [one] = drafts(tmp_path, content).values()
    assert one.fields
    head = "groups@id_token,userinfo,access_token="
    listed = [f"{head}group:g{number},/g{number}" for number in range(count)]
    assert one.fields["own_claims"] == (listed if count == 150 else [f"{head}groups:"])
    assert lines(one) == [("changed", "mapper a mapper")]


ROLES = realm(
    clients=[client("wiki"), client("account")],
    groups=[
        group("teams", group("red", above="/teams", clientRoles={"wiki": ["editor"]}),
              realmRoles=["staff"]),
        group("staff"),
        group("営業"),
    ],
    roles={
        "realm": [
            {"name": "default-roles-acme", "composite": True,
             "composites": {"realm": ["offline_access", "member"], "client": {"wiki": ["reader"]}}},
            {"name": "offline_access"}, {"name": "member"}, {"name": "staff"},
            # They contain each other.
            {"name": "a", "composites": {"realm": ["b"]}},
            {"name": "b", "composites": {"realm": ["a"], "client": {"wiki": ["editor"]}}},
        ],
        "client": {
            "wiki": [{"name": "editor", "composites": {"client": {"wiki": ["reader"]}}},
                     {"name": "reader"}],
            "account": [{"name": "view-profile"}],
        },
    },
    users=[
        user("dana", groups=["/teams/red"]),
        user("erin", realmRoles=["a"], clientRoles={"account": ["view-profile"]}),
        user("fred", clientRoles={"wiki": ["editor"]}, groups=["/営業", "/gone"]),
    ],
)  # fmt: skip


@each(
    "attributes, claims",
    [
        ({"phoneNumber": ["+31 15"], "phoneNumberVerified": ["true"], "middleName": ["M."]},
         {"phone_number": "+31 15", "phone_number_verified": True, "middle_name": "M."}),
        ({"phoneNumber": ["+31 15"], "phoneNumberVerified": ["no"]}, {"phone_number": "+31 15"}),
        ({"phoneNumberVerified": ["true"]}, {}),
        ({"phoneNumber": ["1"], "phone_number": ["2"]}, {"phone_number": "1"}),
        ({"street": ["1 Mill Lane", "2"], "locality": ["Delft"], "country": [""]},
         {"address": {"street_address": "1 Mill Lane", "locality": "Delft"}}),
        ({"street": 7, "locality": None}, {}),
    ],
)  # fmt: skip
def test_attributes_of_the_scopes_phone_and_address_are_claims(
    attributes: dict[str, Any], claims: dict[str, Any], tmp_path: Path
) -> None:
    [person] = people(tmp_path, realm(users=[user("dana", attributes=attributes)]))
    names = {"preferred_username", "given_name", "family_name"}
    assert {name: value for name, value in person.claims.items() if name not in names} == claims


def test_roles_and_groups_become_groups_that_are_never_mixed_up(tmp_path: Path) -> None:
    dana, erin, fred = people(tmp_path, ROLES)
    # The role staff is not the group staff, and default roles belong to everybody who has them.
    assert dana.groups == ["teams/red", "member", "wiki:reader", "role:staff"]
    assert erin.groups == ["a", "b", "wiki:editor", "wiki:reader"]
    assert fred.groups == ["営業", "gone", "member", "wiki:editor", "wiki:reader"]


def test_roles_of_a_client_name_the_groups_that_give_them(tmp_path: Path) -> None:
    wiki = drafts(tmp_path, ROLES)["wiki"]
    assert wiki.fields
    assert wiki.fields["roles"] == [
        "editor=wiki:editor", "editor=teams/red", "reader=wiki:reader", "reader=teams/red"
    ]  # fmt: skip
    assert lines(wiki) == [("changed", "roles")]


def test_a_role_named_like_the_group_of_another_gets_a_group_of_its_own(tmp_path: Path) -> None:
    content = realm(
        clients=[client("wiki")],
        roles={"realm": [{"name": "wiki:editor"}], "client": {"wiki": [{"name": "editor"}]}},
    )
    roles = Roles(read(tmp_path, content))
    names = {roles.group_of(Role("", "wiki:editor")), roles.group_of(Role("wiki", "editor"))}
    assert names == {"wiki:editor", "role:wiki:editor"}


def test_groups_whose_names_have_slashes_stay_apart(tmp_path: Path) -> None:
    nested = group("a", group("b", above="/a"))
    flat = {**group("a/b"), "path": "/a~/b"}
    of = read(tmp_path, realm(groups=[nested, flat]))
    assert {g.path: g.name for g in of.groups.values()} == {
        "/a": "a", "/a/b": "a/b", "/a~/b": "a~/b",
    }  # fmt: skip


def test_a_service_provider(tmp_path: Path) -> None:
    saml = client("https://sp.example/metadata", {
        "saml_assertion_consumer_url_post": "https://sp.example/acs",
        "saml_single_logout_service_url_redirect": "https://sp.example/slo",
        "saml_name_id_format": "email", "saml.client.signature": "true",
    }, protocol="saml", redirectUris=["https://sp.example/acs", "https://sp.example/*"],
        protocolMappers=[
            {"name": "mail", "protocol": "saml", "protocolMapper": "saml-user-property-mapper",
             "config": {"user.attribute": "email", "attribute.name": "mail"}},
            {"name": "cc", "protocol": "saml", "protocolMapper": "saml-user-attribute-mapper",
             "config": {"user.attribute": "costCenter", "attribute.name": "urn:cc"}},
        ])  # fmt: skip
    one = draft(tmp_path, saml)
    assert one.fields
    assert one.fields["saml_entity_id"] == "https://sp.example/metadata"
    assert one.fields["saml_acs_urls"] == ["https://sp.example/acs"]
    assert one.fields["saml_logout_url"] == "https://sp.example/slo"
    assert one.fields["saml_name_id"] == "email"
    assert one.fields["saml_attributes"] == ["mail=email", "urn:cc=urn_cc"]
    assert one.fields["own_claims"] == ["urn_cc=attribute:cost_center"]
    assert one.attributes == {"cost_center": "string"}
    assert lines(one) == [
        ("question", "redirect URI"), ("question", "signed requests"), ("changed", "metadata")
    ]  # fmt: skip
    assert one.client_id == draft(tmp_path, saml).client_id  # the same one each time


@each(
    "content, why",
    {
        "truncated": (json.dumps(realm(clients=[client("c")]))[:-40], "not JSON"),
        "empty": ("", "not JSON"),
        "no realm": ("{}", "kc.sh export"),
        "a list of nothing": ("[]", "kc.sh export"),
        "no object": ("3", "kc.sh export"),
        "two realms": (json.dumps([realm(), realm(realm="other")]), "acme, other"),
        "not UTF-8": ('{"realm": "\\ud800', "not JSON"),
        "a long text": (json.dumps(realm(displayName="x" * 3_000_000)), "a text of more than"),
        "a large client": (json.dumps(realm(clients=[client("c", redirectUris=["https://c.example/"
                           + "x" * 1000 for _ in range(1100)])])), "bytes in one entry"),
        "deep groups": ('{"realm": "acme", "groups": [' + '{"name": "g", "subGroups": [' * 60,
                        "levels"),
    }.values(),
)  # fmt: skip
def test_files_that_are_refused(content: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match=why):
        read(tmp_path, content)


def test_a_million_groups_are_refused_early(tmp_path: Path) -> None:
    path = tmp_path / "realm.json"
    with path.open("w") as file:
        file.write('{"realm": "acme", "groups": [{"name": "g"}')
        file.writelines(f',{{"name": "g{number}"}}' for number in range(1_000_000))
        file.write("]}")
    done = 0

    def advance(size: int) -> None:
        nonlocal done
        done += size

    with pytest.raises(FileProblem, match="more than 20,000 groups"):
        keycloak_realm.read([path], advance)
    assert done < path.stat().st_size / 10


def test_as_many_groups_as_are_taken(tmp_path: Path) -> None:
    of = read(tmp_path, realm(groups=[group(f"g{number}") for number in range(20_000)]))
    assert len(of.groups) == 20_000
    assert Roles(of).of_person({"groups": ["/g19999"]}) == ["g19999"]


@each("value", {"null": None, "a number": 3, "a text": "x", "a list": [], "an object": {}}.values())
def test_values_of_the_wrong_type_are_as_absent(value: Any, tmp_path: Path) -> None:
    names = [*client("c"), "protocolMappers", "name", "rootUrl", "adminUrl", "baseUrl"]
    for name in names:
        entry = client("c") | {name: value}
        drafts(tmp_path, realm(clients=[entry]))
        drafts(tmp_path, realm(clients=[client("c", protocol="saml") | {name: value}]))
    for name in realm():
        if name not in ("realm", "id"):
            read(tmp_path, realm() | {name: value})
    for name in user("dana"):
        people(tmp_path, realm(users=[user("dana") | {name: value}]))
    for name in group("g"):
        read(tmp_path, realm(groups=[group("g") | {name: value}]))


def test_an_export_in_several_files(tmp_path: Path) -> None:
    (tmp_path / "acme-realm.json").write_text(json.dumps(realm(clients=[client("c")])))
    (tmp_path / "acme-users-0.json").write_text(
        json.dumps({"realm": "acme", "users": [user("dana"), user("erin")]})
    )
    paths = [tmp_path / "acme-realm.json", tmp_path / "acme-users-0.json"]
    of = keycloak_realm.read(paths, lambda _: None)
    assert (of.name, [entry["clientId"] for entry in of.clients]) == ("acme", ["c"])
    counts = Counter[str]()
    persons = keycloak_people.read(
        paths, Roles(of), "keycloak", lambda _: None, counts, Here(), AttributeNames(of)
    )
    assert [person.email for person in persons] == ["dana@example.com", "erin@example.com"]
