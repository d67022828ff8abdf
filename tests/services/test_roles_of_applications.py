"""Roles that are limited to some applications: how they are set, and what they may change."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from hypothesis import given
from hypothesis import strategies as st

import tests.test_services as usual
from sso.audit import Actor
from sso.checkup import components
from sso.checkup.finding import Status
from sso.config.client_fields import FIELDS, OF_MANAGERS
from sso.config.settings import load_settings
from sso.errors import NotAllowed
from sso.extensions import db
from sso.flow.permissions import (
    LIMITABLE_TO_APPLICATIONS,
    LIMITED_SERVICES,
    MOST_LIMITS,
    Permission,
    Rights,
    role_applications,
)
from sso.services import accounts, clients, group_editing, preset_clients, roles
from sso.services.changes import ListEdit
from sso.services.checks import Invalid
from sso.store import clients as stored_clients
from sso.store import named_groups
from tests.support.administration import staff_of
from tests.support.factories import make_api, make_client, make_user
from tests.test_services import CASES, METADATA, Case, World, world  # noqa: F401  # a fixture

APPLICATIONS, AUDIT = Permission.APPLICATIONS, Permission.AUDIT
ROLES = (
    "wiki-team=applications audit, shop-team=applications, all-apps=applications, "
    "people=people-write, teams=groups, auditors=audit"
)


@pytest.fixture
def wiki(app: Flask) -> Iterator[str]:
    """The client ID of the application that the wiki team manages."""
    client_id = make_client(app, name="Wiki").client_id
    before = app.extensions["sso.settings"]
    app.extensions["sso.settings"] = replace(
        before,
        admin_roles=ROLES,
        admin_role_applications=f"wiki-team={client_id}, wiki-team=gone, shop-team=shop",
    )
    yield client_id
    app.extensions["sso.settings"] = before


# How it is set


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("wiki=abc", {"wiki": {"abc"}}),
        (" wiki = abc ,wiki=https://agent.example/x?y=z", {"wiki": {"abc",
         "https://agent.example/x?y=z"}}),
        ("a=b=c", {"a=b": {"c"}}),  # of the roles a and a=b, the longer one
        ("both=abc", {"both": {"abc"}}),
    ],
)  # fmt: skip
def test_client_ids_in_the_setting(text: str, named: Mapping[str, set[str]]) -> None:
    given = "wiki=applications, a=audit, a=b=applications, both=audit applications"
    assert role_applications(text, given) == named


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("nobody=abc", "nobody=abc does not name a role of SSO_ADMIN_ROLES and a client ID"),
        ("wiki", "give each role with what it is limited to"),
        ("wiki=", "give each role with what it is limited to"),
        ("wiki=abc,", "give each role with what it is limited to"),
        ("sso-administrators=abc", "does not name a role of SSO_ADMIN_ROLES"),
        ("hr=abc", "the role hr has permissions that cannot be limited to applications: groups, "
         "people-read, people-write; give them in a role of their own. Possible are applications, "
         "audit"),
        ("mixed=abc", "cannot be limited to applications: people-read"),
        (", ".join(f"wiki=c{number}" for number in range(MOST_LIMITS + 1)),
         "more than 100 applications"),
    ],
)  # fmt: skip
def test_what_the_setting_may_not_be(tmp_path: Path, text: str, error: str) -> None:
    environ = {
        "SSO_BASE_URL": "https://id.example/auth", "SSO_ADMIN_ROLE_APPLICATIONS": text,
        "SSO_ADMIN_ROLES": "wiki=applications, hr=people-write groups, mixed=audit people-read",
    }  # fmt: skip
    with pytest.raises(Exception, match="SSO_ADMIN_ROLE_APPLICATIONS") as refused:
        load_settings(environ, tmp_path)
    assert error in str(refused.value)
    load_settings({**environ, "SSO_ADMIN_ROLE_APPLICATIONS": "wiki=abc"}, tmp_path)


def test_no_role_has_both_limits(tmp_path: Path) -> None:
    """Each setting names permissions that the other one cannot limit; both errors are shown."""
    environ = {
        "SSO_BASE_URL": "https://id.example/auth", "SSO_ADMIN_ROLES": "mixed=groups applications",
        "SSO_ADMIN_ROLE_GROUPS": "mixed=paris", "SSO_ADMIN_ROLE_APPLICATIONS": "mixed=abc",
    }  # fmt: skip
    with pytest.raises(Exception, match="cannot be limited") as refused:
        load_settings(environ, tmp_path)
    assert "limited to groups: applications" in str(refused.value)
    assert "limited to applications: groups" in str(refused.value)


def test_what_groups_give(app: Flask, wiki: str) -> None:
    with app.app_context():
        team = roles.rights_of(["wiki-team"])
        ids = {wiki, "gone"}
        assert not team.permissions
        assert team.applications == {APPLICATIONS: ids, AUDIT: ids}
        both = roles.rights_of(["wiki-team", "shop-team"])
        assert both.applications == {APPLICATIONS: {*ids, "shop"}, AUDIT: ids}
        # Without a limit in one role, there is none.
        whole = roles.rights_of(["wiki-team", "all-apps"])
        assert whole.permissions == {APPLICATIONS}
        assert whole.applications == {AUDIT: ids}
        assert roles.rights_of(["wiki-team", "sso-administrators"]) == Rights(frozenset(Permission))
        assert not roles.rights_of([wiki])  # a group with the name of a client ID


_IDS = st.frozensets(st.sampled_from("abc"), min_size=1)
_RIGHTS = st.builds(
    lambda held, bounds: Rights(held).joined(Rights(applications=bounds)),
    st.frozensets(st.sampled_from(sorted(LIMITABLE_TO_APPLICATIONS))),
    st.dictionaries(st.sampled_from(sorted(LIMITABLE_TO_APPLICATIONS)), _IDS),
)


@given(_RIGHTS, _RIGHTS, st.sampled_from("abcd"))
def test_rights(mine: Rights, theirs: Rights, client_id: str) -> None:
    both = mine.joined(theirs)
    assert both == theirs.joined(mine)
    assert both.covers(mine)
    assert both.covers(theirs)
    assert both.over_client(client_id) == mine.over_client(client_id) | theirs.over_client(
        client_id
    )
    assert not both.permissions & both.applications.keys()
    if mine.covers(theirs):
        assert both == mine
        assert theirs.over_client(client_id) <= mine.over_client(client_id)
    for need in LIMITABLE_TO_APPLICATIONS:
        ids = mine.clients_for(need)
        assert (need in mine.over_client(client_id)) is (ids is None or client_id in ids)
        assert need not in mine.over(["a", "b", "c"]) - mine.permissions


# Every service

_SERVICES = {
    name for name, needs in LIMITED_SERVICES.items() if LIMITABLE_TO_APPLICATIONS & {*needs}
}


def _name_of(case: Case) -> str:
    return f"{case.function.__module__.rpartition('.')[2]}.{case.function.__name__}"


LIMITED_CASES = [case for case in CASES if _name_of(case) in _SERVICES]


_OF_GROUPS = next(case for case in LIMITED_CASES if case.function is clients.change)


def manager_of(*client_ids: str) -> Actor:
    bounds = dict.fromkeys(LIMITABLE_TO_APPLICATIONS, frozenset(client_ids))
    return Actor("lena", permissions=frozenset(), applications=bounds)


def test_every_limited_service_has_a_case() -> None:
    assert {_name_of(case) for case in LIMITED_CASES} == _SERVICES


@pytest.mark.parametrize("case", LIMITED_CASES, ids=lambda case: case.function.__qualname__)
def test_services_reach_only_their_applications(
    world: World,  # noqa: F811  # the fixture
    case: Case,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the calls of `tests.test_services`, of another application, and of this one."""
    prepared = case.before(world)
    db.session.commit()
    before, digest = clients.described(world.client), world.client.secret_digest
    monkeypatch.setattr(usual, "OLGA", manager_of("another"))
    with pytest.raises(NotAllowed, match="only your applications"):
        case.call(world, prepared)
    db.session.rollback()
    db.session.refresh(world.client)
    assert (clients.described(world.client), world.client.secret_digest) == (before, digest)
    monkeypatch.setattr(usual, "OLGA", manager_of("another", world.client_id))
    if case is _OF_GROUPS:
        with pytest.raises(NotAllowed, match="manage all applications"):
            case.call(world, prepared)
    else:
        case.call(world, prepared)


# What they change

_VALUES: Mapping[str, Any] = {
    "client_name": "Renamed", "redirect_uris": ["https://new.example/cb"],
    "post_logout_redirect_uris": ["https://new.example/"],
    "backchannel_logout_uri": "https://new.example/logout", "home_url": "https://new.example/",
    "scope": "openid email phone", "grant_types": ["client_credentials"],
    "token_endpoint_auth_method": "client_secret_post", "id_token_signed_response_alg": "ES256",
    "id_token_claims": "all", "groups": ["wiki-team"], "roles": ["boss=wiki-team"],
    "roles_shape": "object", "own_claims": ["sub2=constant:root"],
    "apis": ["https://docs.example"], "default_api": "https://docs.example",
    "exchange_from": ["https://docs.example"],
    "id_jag_audiences": ["https://auth.example.com wiki"],
    "id_jag_issuers": ["https://idp.example.com"], "proxy_urls": ["https://new.example"],
    "public_paths": ["/*"], "scim_url": "https://new.example/scim",
    "scim_attributes": ["title=constant:x"], "first_party": True, "require_pkce": False,
    "require_mfa": False, "require_pushed_authorization_requests": True,
    "dpop_bound_access_tokens": True, "require_dpop_nonce": True, "scim_everyone": True,
    "scim_groups": True, "scim_delete": True, "profile": "fapi2", "trust_subject": "*",
    "trust_issuer": "https://new.example", "trust_audience": "x", "disabled": True,
    "issuer": "https://old.example", "token_endpoint_auth_signing_alg": "ES256",
    "request_object_signing_alg": "ES256", "authorization_signed_response_alg": "ES256",
    "preset": {"name": "grafana"}, "saml_entity_id": "urn:new",
    "saml_name_id": "email", "subject_attribute": "old_subject",
    "saml_attributes": ["mail=email"],
    "saml_metadata_expires": "2099-01-01T00:00:00Z", "saml_signed_requests": True,
}  # fmt: skip
_OWN = OF_MANAGERS - {"logo", "jwks", "jwks_uri"}  # which need a client with a key, or a file
_ONLY_SAML = {name for name in OF_MANAGERS if name.startswith("saml")}


@pytest.mark.parametrize("name", [field.name for field in FIELDS.values() if not field.is_fixed])
def test_each_field(app: Flask, wiki: str, name: str) -> None:
    """An application gets no more than it has: a new field is not of managers by itself."""
    by, everything = staff_of(app, "wiki-team"), staff_of(app, "all-apps", "people")
    make_api(app)
    with app.app_context():
        if name in _OWN - _ONLY_SAML:
            clients.change(by, wiki, {name: _VALUES[name]})
            db.session.commit()
            client = stored_clients.find(wiki)
            assert client
            assert clients.described(client)[name] == _VALUES[name]
        elif name not in OF_MANAGERS:
            with pytest.raises(NotAllowed, match="Only those who manage all applications"):
                clients.change(by, wiki, {name: _VALUES[name]})
            db.session.rollback()
            with suppress(Invalid):  # those without limits are refused for no such reason
                clients.change(everything, wiki, {name: _VALUES[name]})


def test_edits_of_lists(app: Flask, wiki: str) -> None:
    by = staff_of(app, "wiki-team")
    with app.app_context():
        clients.change(by, wiki, {}, lists={"redirect_uris": ListEdit(added=("https://a.test/b",))})
        for name, value in (
            ("groups", "new-group"), ("roles", "boss=new-group"), ("scope", "phone"),
            ("apis", "https://no.example"), ("own_claims", "x=constant:y"),
        ):  # fmt: skip
            with pytest.raises(NotAllowed):
                clients.change(by, wiki, {}, lists={name: ListEdit(added=(value,))})
            db.session.rollback()
        assert named_groups.find_by_name("new-group") is None


def test_whether_something_exists_is_not_told(app: Flask, wiki: str) -> None:
    """The refusal of what is there and of what is not is the same."""
    by = staff_of(app, "wiki-team")
    there = make_api(app)
    make_client(app, name="Payroll")
    with app.app_context():
        for field, values in (
            ("apis", [there, "https://none.example"]),
            ("own_claims", ["x=attribute:none", "x=constant:y"]),
        ):
            texts = set()
            for value in values:
                with pytest.raises(NotAllowed) as refused:
                    clients.change(by, wiki, {field: [value]})
                texts.add(str(refused.value.reason))
                db.session.rollback()
            assert len(texts) == 1


def test_nothing_new_and_nothing_deleted(app: Flask, wiki: str) -> None:
    by = staff_of(app, "wiki-team")
    with app.app_context():
        for call in (
            lambda: clients.register(by, METADATA),
            lambda: clients.register(by, METADATA, client_id="gone"),
            lambda: clients.delete(by, wiki),
            lambda: preset_clients.connect(by, usual.GRAFANA, usual.BASE_URL, {}),
        ):
            with pytest.raises(NotAllowed):
                call()
            db.session.rollback()


def test_renaming_a_group_changes_no_application(app: Flask, wiki: str) -> None:
    """With all groups, but not with all applications that require the group."""
    by = staff_of(app, "wiki-team", "teams")
    make_user(app, groups=["editors"])
    with app.app_context():
        clients.change(Actor("olga"), wiki, {"groups": ["editors"]})
        db.session.commit()
        group = named_groups.find_by_name("editors")
        assert group
        with pytest.raises(NotAllowed):
            group_editing.change(by, group.id, name="writers")
        db.session.rollback()
        client = stored_clients.find(wiki)
        assert client
        assert client.groups == ["editors"]


@pytest.mark.parametrize(
    ("who", "other", "may"),
    [
        ("wiki-team", "wiki-team", True),
        ("wiki-team", "shop-team", False),
        ("wiki-team", "all-apps", False),
        ("all-apps", "shop-team", True),
        ("all-apps", "wiki-team", False),  # which also has audit
    ],
)
def test_nobody_takes_over_more_than_they_have(
    app: Flask, wiki: str, who: str, other: str, may: bool
) -> None:
    by, user = staff_of(app, who, "people"), make_user(app, groups=[other])
    with app.app_context():
        edit = ListEdit(removed=(other,))
        if may:
            accounts.update(by, user.id, memberships=edit)
        else:
            with pytest.raises(NotAllowed):
                accounts.update(by, user.id, memberships=edit)


@pytest.mark.parametrize(
    ("disabled_by", "enabled_by", "may"),
    [
        (["wiki-team"], ["wiki-team"], True),
        (["wiki-team"], ["all-apps"], True),
        (["all-apps"], ["wiki-team"], False),
        (["all-apps"], ["wiki-team", "all-apps"], True),
        (["sso-administrators"], ["wiki-team"], False),
        (["wiki-team"], ["shop-team"], False),
        ([], ["wiki-team"], False),  # at the command line
        (["wiki-team"], [], True),
    ],
    ids=str,
)
def test_a_limited_role_enables_only_what_one_has_disabled(
    app: Flask, wiki: str, disabled_by: list[str], enabled_by: list[str], may: bool
) -> None:
    operator = staff_of(app, *disabled_by) if disabled_by else Actor("olga")
    same = enabled_by == disabled_by
    by = operator if same else staff_of(app, *enabled_by) if enabled_by else Actor("olga")
    with app.app_context():
        clients.disable(operator, wiki)
        db.session.commit()
        if may:
            assert clients.enable(by, wiki).disabled_at is None
        else:
            with pytest.raises(NotAllowed):
                clients.enable(by, wiki)


def test_what_both_disabled_only_the_one_without_limits_enables(app: Flask, wiki: str) -> None:
    by, other = staff_of(app, "wiki-team"), staff_of(app, "all-apps")
    for first, second in ((by, other), (other, by)):
        with app.app_context():
            clients.disable(first, wiki)
            clients.disable(second, wiki)
            db.session.commit()
            with pytest.raises(NotAllowed, match="more permissions"):
                clients.enable(by, wiki)
            db.session.rollback()
            clients.enable(other, wiki)
            db.session.commit()


def test_client_ids_that_no_application_has_are_shown(app: Flask, wiki: str) -> None:
    with app.app_context():
        rows = list(components.roles_of_applications())
        assert [(row.name, row.status) for row in rows] == [(components.ROLES, Status.WARNING)] * 2
        texts = [row.seen for row in rows]
        assert [name for name in ("gone", "shop", wiki) if any(name in text for text in texts)] == [
            "gone", "shop",
        ]  # fmt: skip


@pytest.mark.parametrize(("limits", "statuses"), [(None, []), ("wiki-team={}", [Status.OK])])
def test_without_such_client_ids(
    app: Flask, wiki: str, limits: str | None, statuses: list[Status]
) -> None:
    settings = app.extensions["sso.settings"]
    text = limits and limits.format(wiki)
    app.extensions["sso.settings"] = replace(settings, admin_role_applications=text)
    with app.app_context():
        assert [row.status for row in components.roles_of_applications()] == statuses


def test_who_disables_by_the_field_has_no_limits(app: Flask, wiki: str) -> None:
    by, other = staff_of(app, "wiki-team"), staff_of(app, "all-apps")
    with app.app_context():
        clients.disable(by, wiki)
        clients.change(other, wiki, {"disabled": True})
        db.session.commit()
        with pytest.raises(NotAllowed, match="more permissions"):
            clients.enable(by, wiki)


@pytest.mark.parametrize(
    ("line", "may"), [("", True), ("disabled = true\n", False), ("disabled = false\n", True)]
)
def test_who_disables_by_a_declaration_has_no_limits(
    app: Flask, wiki: str, tmp_path: Path, line: str, may: bool
) -> None:
    file = tmp_path / "declared.toml"
    file.write_text(f'format = 1\n[[clients]]\nclient_id = "{wiki}"\n{line}')
    by, other = staff_of(app, "wiki-team"), staff_of(app, "all-apps")
    with app.app_context():
        clients.disable(by, wiki)
        db.session.commit()

    def apply(*options: str) -> str:
        run = app.test_cli_runner().invoke(args=["apply", str(file), *options])
        assert run.exit_code == 0, run.stderr
        return run.stdout

    def limited_role_may_enable() -> bool:
        with app.app_context(), suppress(NotAllowed):
            clients.enable(by, wiki)
            return True
        return False

    apply("--plan")
    assert limited_role_may_enable()  # not committed: a plan changes nothing
    is_changed = line == "disabled = false\n"
    assert ("Everything is as the file says." in apply()) is not is_changed
    assert limited_role_may_enable() is may
    assert "Everything is as the file says." in apply()  # once more
    assert limited_role_may_enable() is may
    with app.app_context():
        clients.enable(other, wiki)
