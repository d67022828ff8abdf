"""`flask migrate authentik`: the same clients, secrets, passwords, codes and subjects."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import select

from sso.extensions import db
from sso.models import Client, TotpSecret, User
from tests.conftest import Clock
from tests.support import authentik as ak
from tests.support import migrations
from tests.support.actors import Browser, RelyingParty
from tests.support.each import each
from tests.support.migrations import lines, rows
from tests.support.old_servers import Application

Run = Callable[..., Any]
ROOT = "https://auth.example.com"
WIKI = f"{ROOT}/application/o/wiki/"
HASHED = "authentik_hashed_user_id"


@pytest.fixture
def app(make_app: Callable[..., Flask]) -> Flask:
    return make_app(SSO_ISSUER_ALIASES=f"{WIKI}=authentik")


@pytest.fixture
def migrate(app: Flask, tmp_path: Path) -> Run:
    def run(*paths: Path, options: tuple[str, ...] = (), code: int = 0, text: str = "") -> Any:
        files = [str(path) for path in paths]
        if text:
            (tmp_path / "blueprint.yaml").write_text(text)
            files.append(str(tmp_path / "blueprint.yaml"))
        return migrations.migrate(app, "authentik", *files, *options, code=code)

    return run


def whole(path: Path) -> Path:
    """Rows of all tables, as the query of the guide writes them."""
    provider, values = ak.provider(7, "wiki"), {"id": 5, "password": ak.PASSWORD_HASH}
    mode = {name: provider.pop(name) for name in ("name", "authorization_flow")}
    del provider["property_mappings"], provider["pk"]
    person = {n: v for n, v in ak.user(5, "dana").items() if n not in ("pk", "uid", "groups")}
    return ak.tables(
        path,
        install_id=[{"id": ak.INSTALL_ID}],
        core_user=[{**person, **values}],
        core_group=[{"group_uuid": ak.STAFF, "name": "staff", "is_superuser": True}],
        core_user_ak_groups=[{"id": 1, "user_id": 5, "group_id": ak.STAFF}],
        core_provider=[{"id": 7, "name": mode["name"], "authorization_flow_id": ak.FLOW}],
        providers_oauth2_oauth2provider=[
            {"provider_ptr_id": 7, **provider, "_redirect_uris": provider.pop("redirect_uris")},
        ],
        core_application=[{"policybindingmodel_ptr_id": "p1", "slug": "wiki", "name": "The wiki",
                           "provider_id": 7}],
        policies_policybindingmodel=[{"pbm_uuid": "p1", "policy_engine_mode": "any"}],
        policies_policybinding=[{"target_id": "p1", "group_id": ak.STAFF, "enabled": True}],
        core_provider_property_mappings=[
            {"id": n, "provider_id": 7, "propertymapping_id": n} for n in (1, 2)
        ],
        core_propertymapping=[
            {"pm_uuid": n, "name": name, "managed": f"goauthentik.io/providers/oauth2/scope-{name}"}
            for n, name in ((1, "profile"), (2, "email"))
        ],
        providers_oauth2_scopemapping=[
            {"propertymapping_ptr_id": 1, "scope_name": "profile"},
            {"propertymapping_ptr_id": 2, "scope_name": "email"},
        ],
        flows_flow=[{"flow_uuid": ak.FLOW, "slug": ak.IMPLICIT["slug"]}],
        stages_authenticator_totp_totpdevice=[
            {"id": 1, "user_id": 5, "key": "31" * 20, "digits": 6, "step": 30, "t0": 0},
        ],
        stages_authenticator_static_staticdevice=[{"id": 9, "user_id": 5, "confirmed": True}],
        stages_authenticator_static_statictoken=[{"id": 1, "device_id": 9, "token": "abcdefgh"}],
        stages_authenticator_webauthn_webauthndevice=[
            {"id": 3, "user_id": 5, "rp_id": "other.example", "credential_id": "aWQ",
             "public_key": "a2V5", "sign_count": 1, "name": "key", "confirmed": True},
        ],
    )  # fmt: skip


def test_nothing_changes_for_an_unchanged_application(
    app: Flask, browser: Browser, clock: Clock, migrate: Run, tmp_path: Path
) -> None:
    path = whole(tmp_path / "tables.json")
    planned = migrate(path, options=("--issuer", ROOT, "--plan"))
    assert rows(app, User) == rows(app, Client) == []
    report = migrate(path, options=("--issuer", ROOT))
    assert {**planned, "applied": True} == report
    assert report["people"]["factors"] == {"authenticator apps": 1, "recovery codes": 1}
    assert [entry["reason"] for entry in report["people"]["left_out"]] == [
        "passkeys and security keys, which are bound to another host name (see --rp-id)"
    ]
    with app.app_context():
        db.session.delete(db.session.scalars(select(TotpSecret)).one())
        db.session.commit()
    client = RelyingParty(app, "wiki", ak.SECRET, "https://wiki.example.com/cb")
    wiki = Application(app, client, WIKI)
    uid = hashlib.sha256(f"5-{ak.INSTALL_ID}".encode()).hexdigest()
    page = browser.authorize(client)
    assert "password" in page.fields
    browser.sign_in(password=ak.PASSWORD)
    claims = wiki.sign_in(browser)
    assert {name: claims[name] for name in ("sub", "iss", "name", "nickname", "groups")} == {
        "sub": uid, "iss": WIKI, "name": "Dana Doe", "nickname": "dana", "groups": ["staff"],
    }  # fmt: skip
    assert wiki.userinfo().json()["sub"] == uid
    assert wiki.refresh()["sub"] == uid
    [row] = rows(app, Client)
    assert (row.groups, row.first_party) == (["staff"], True)
    again = migrate(path, options=("--issuer", ROOT))
    assert again["clients"] == {"wiki": "same"}
    assert again["people"]["updates"] == {}


@each(
    "entry, fields, findings",
    {
        "public": ({"client_type": "public"},
                   {"token_endpoint_auth_method": "none", "require_pkce": True}, []),
        "an expression": (
            {"redirect_uris": [{"matching_mode": "strict", "url": "https://c.example.com/cb"},
                               {"matching_mode": "regex", "url": "https://.*.example.com/"}]},
            {"redirect_uris": ["https://c.example.com/cb"]}, [("question", "c", "redirect URI")]),
        "old texts": ({"redirect_uris": "https://c.example.com/a\nhttps://[a-z]+.example.com/"},
                      {"redirect_uris": ["https://c.example.com/a"]},
                      [("question", "c", "redirect URI")]),
        "sign-out": (
            {"redirect_uris": [
                {"matching_mode": "strict", "url": "https://c.example.com/cb"},
                {"matching_mode": "strict", "url": "https://c.example.com/out",
                 "redirect_uri_type": "logout"}],
             "logout_uri": "https://c.example.com/back", "logout_method": "backchannel"},
            {"post_logout_redirect_uris": ["https://c.example.com/out"],
             "backchannel_logout_uri": "https://c.example.com/back"}, []),
        "front channel": ({"logout_uri": "https://c.example.com/", "logout_method": "frontchannel"},
                          {"backchannel_logout_uri": None},
                          [("not_taken", "c", "front-channel logout")]),
        "symmetric": ({"signing_key": None}, {"id_token_signed_response_alg": "RS256"},
                      [("changed", "c", "algorithm of ID tokens")]),
        "encrypted": ({"encryption_key": "x"}, {}, [("not_taken", "c", "encryption")]),
        "few claims": ({"include_claims_in_id_token": False},
                       {"id_token_claims": "standard"}, []),
        "by UUID": ({"sub_mode": "user_uuid"}, {"subject_attribute": None}, []),
        "by name": ({"sub_mode": "user_username"},
                    {"subject_attribute": "authentik_user_username"}, []),
        "unknown mode": ({"sub_mode": "x"}, {"subject_attribute": None},
                         [("not_taken", "c", "subject")]),
        "a short secret": ({"client_secret": "short"}, {}, [("question", "c", "secret")]),
        "no secret": ({"client_secret": None}, {}, [("question", "c", "secret")]),
        "other grants": ({"grant_types": ["authorization_code", "implicit", "client_credentials"]},
                         {"grant_types": ["authorization_code", "refresh_token",
                                          "client_credentials"]},
                         [("not_taken", "c", "grant implicit")]),
        "expressions alone": ({"redirect_uris": [{"matching_mode": "regex", "url": ".*"}]}, None,
                              [("not_taken", "c", "")]),
        "wrong types": ({"redirect_uris": [7, None, {"url": 7}], "client_secret": [7]}, None,
                        [("not_taken", "c", "")]),
        "a bad ID": ({"client_id": "a b"}, None, [("not_taken", "a b", "")]),
    }.values(),
)  # fmt: skip
def test_kinds_of_clients(
    entry: Any, fields: Any, findings: Any, app: Flask, migrate: Run, tmp_path: Path
) -> None:
    provider = {**ak.provider(1, "c"), **entry}
    path = ak.page(tmp_path / "x", provider, ak.application("c", 1), *ak.mappings(), ak.IMPLICIT,
                   ak.binding("other", group="x"))  # fmt: skip
    report = migrate(path, options=("--overwrite",))
    of_client = [line for line in lines(report) if line[1] == provider["client_id"]]
    assert of_client == findings
    expected = "not_taken" if fields is None else "taken"
    assert report["clients"][provider["client_id"]] == expected
    for row in rows(app, Client):
        metadata = {"id_token_claims": "standard", **row.client_metadata}
        metadata["require_pkce"] = row.require_pkce
        assert {name: metadata.get(name) for name in fields or {}} == (fields or {})
    with app.app_context():
        for row in db.session.scalars(select(Client)):
            db.session.delete(row)
        db.session.commit()


@each(
    "bindings, mode, groups, is_disabled",
    {
        "none": ([], "any", [], False),
        "a group and those below": ([{"group": ak.STAFF}], "any", ["staff", "team"], False),
        "switched off": ([{"group": ak.STAFF, "enabled": False}], "any", [], False),
        "a policy": ([{"policy": "x"}], "any", [], True),
        "a person": ([{"user": 5}, {"group": ak.OTHERS}], "any", ["others"], False),
        "all but a group": ([{"group": ak.STAFF, "negate": True}], "any", [], True),
        "all of several": ([{"group": ak.STAFF}, {"policy": "x"}], "all", [], True),
    }.values(),
)
def test_who_may_use_a_client(
    bindings: Any, mode: str, groups: Any, is_disabled: bool, app: Flask, migrate: Run,
    tmp_path: Path,
) -> None:  # fmt: skip
    path = ak.page(
        tmp_path / "x", ak.provider(1, "c"), ak.application("c", 1, policy_engine_mode=mode),
        ak.group(ak.STAFF, "staff", parent=ak.TEAM), ak.group(ak.TEAM, "team", parent=ak.STAFF),
        ak.group(ak.OTHERS, "others"), *ak.mappings(), ak.IMPLICIT,
        *(ak.binding("c", **more) for more in bindings),
    )  # fmt: skip
    report = migrate(path, options=("--overwrite",))
    [row] = rows(app, Client)
    assert (list(row.groups), row.disabled_at is not None) == (groups, is_disabled)
    assert (("question", "c", "bindings") in lines(report)) == is_disabled
    assert (("question", "policy bindings", "") in lines(report)) == (not bindings)


def test_people(app: Flask, migrate: Run, tmp_path: Path) -> None:
    without_uid = ak.user(9, "late")
    del without_uid["uid"]
    report = migrate(ak.page(
        tmp_path / "x", ak.provider(1, "c"), ak.application("c", 1),
        ak.user(5, "dana", groups=[ak.STAFF], attributes={"upn": "d", "tree": {"a": 1}}),
        ak.user(6, "erin", name="Эрин 李", is_active=False), ak.user(7, "twin", uid=f"{5:064x}"),
        ak.user(8, "outpost", type="internal_service_account"), without_uid,
        ak.user(10, "nobody", email=""), ak.group(ak.STAFF, "sso-administrators"),
        {"meta_model_name": "authentik_providers_saml.samlprovider"}, {"x": 1},
    ))  # fmt: skip
    people = report["people"]
    assert (people["imported"], people["skipped"]) == (3, 2)
    by_email = {person.email: person for person in rows(app, User)}
    dana, erin = by_email["dana@example.com"], by_email["erin@example.com"]
    assert str(dana.id) == "3f1d2c4e-1111-4000-8000-000000000005"
    assert (dana.groups, dana.attributes, dana.email_verified) == ([], {HASHED: f"{5:064x}"}, False)
    assert (erin.name, erin.disabled_at is None) == ("Эрин 李", False)
    assert by_email["late@example.com"].attributes == {}
    assert {("question", "hashed_user_id", ""), ("not_taken", "SAML applications", ""),
            ("not_taken", "other objects", "")} <= {*lines(report)}  # fmt: skip


BLUEPRINT = """
version: 1
entries:
  - model: authentik_providers_oauth2.oauth2provider
    id: wiki
    identifiers: {name: wiki}
    attrs:
      client_id: wiki
      client_secret: !Env WIKI_SECRET
      client_type: confidential
      authorization_flow: !Find [authentik_flows.flow, [slug, FLOW]]
      redirect_uris: [{matching_mode: strict, url: https://wiki.example.com/cb}]
      signing_key: !Find [authentik_crypto.certificatekeypair, [name, x]]
  - model: authentik_core.application
    id: app
    identifiers: {slug: wiki}
    attrs: {name: The wiki, provider: !KeyOf wiki}
  - model: authentik_core.group
    id: readers
    identifiers: {name: readers}
    attrs: {}
  - model: authentik_policies.policybinding
    identifiers:
      order: 0
      target: !KeyOf app
      group: !Find [authentik_core.group, [name, readers]]
  - model: authentik_core.user
    identifiers: {username: dana}
    attrs: {email: dana@example.com, name: !Format ["%s", x], password: in clear}
  - model: authentik_core.user
    state: absent
    identifiers: {username: gone}
""".replace("FLOW", ak.IMPLICIT["slug"])


def test_tags_of_a_blueprint_are_not_evaluated(
    app: Flask, migrate: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIKI_SECRET", "of this server" * 4)
    report = migrate(text=BLUEPRINT)
    assert ("question", "wiki", "secret") in lines(report)
    [row], [dana] = rows(app, Client), rows(app, User)
    assert (row.name, list(row.groups), row.first_party) == ("The wiki", ["readers"], True)
    assert (dana.name, dana.password_hash) == ("dana", None)


@each(
    "content, why",
    {
        "cut off": ('{"results": [{"username": "dana", "is_active": tr', "is not JSON"),
        "cut off YAML": (BLUEPRINT[:400], "is not YAML"),
        "nothing of it": ('{"results": []}', "no file has users"),
        "no blueprint": ("version: 1\n", "is no blueprint"),
        "no object": ("- 1\n", "is no blueprint"),
        "a bomb": ("a: &a [x, x]\n" + "".join(
            f"{n}: &{n} [{','.join([f'*{before}'] * 9)}]\n"
            for before, n in zip("abcdefgh", "bcdefghi", strict=True)
        ) + "entries: *i\n", "aliases included"),
        "itself": ("entries: &a [*a]\n", "stands for nothing"),
        "deep": ('{"results": ' + "[" * 100 + "]" * 100 + "}", "levels"),
    }.values(),
)  # fmt: skip
def test_files_that_are_refused(
    content: str, why: str, app: Flask, migrate: Run, tmp_path: Path
) -> None:
    path = tmp_path / "x"
    path.write_text(content)
    assert why in migrate(path, code=1)
    assert rows(app, User) == []


def test_a_subject_is_none_that_people_have_as_an_attribute(
    app: Flask, migrate: Run, tmp_path: Path
) -> None:
    """Without the subjects, an attribute of this name may be one that somebody chose."""
    mallory = ak.user(6, "mallory", attributes={HASHED: "of the boss"})
    del mallory["uid"]
    report = migrate(
        ak.page(tmp_path / "p", ak.provider(7, "wiki"), ak.application("wiki", 7), mallory)
    )
    assert report["clients"] == {"wiki": "taken"}
    assert report["people"]["imported"] == 1
    [person] = rows(app, User)
    assert person.attributes == {}
