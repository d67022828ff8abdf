"""Roles that are limited to some groups and their members: how they are set, whom they reach."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from flask import Flask
from hypothesis import given
from hypothesis import strategies as st

import tests.test_services as usual
from sso import audit
from sso import clock as sso_clock
from sso.audit import Actor
from sso.config.settings import load_settings
from sso.errors import NotAllowed
from sso.extensions import db
from sso.flow import moments
from sso.flow.attributes import Party
from sso.flow.permissions import (
    LIMITABLE,
    LIMITED_SERVICES,
    MOST_LIMITS,
    Permission,
    Rights,
    role_limits,
)
from sso.models import User
from sso.services import (
    accounts,
    attributes,
    credentials,
    declared_accounts,
    group_editing,
    group_owners,
    roles,
)
from sso.services.changes import ListEdit
from sso.services.checks import Invalid
from sso.store import named_groups, users
from tests.conftest import Clock
from tests.support.administration import staff_of
from tests.support.factories import make_user
from tests.test_services import CASES, Case, World, world  # noqa: F401  # a fixture

ADMINS, HELPERS = "sso-administrators", "sso-helpdesk"
READ, SUPPORT, WRITE = (
    Permission.READ_PEOPLE, Permission.SUPPORT_PEOPLE, Permission.WRITE_PEOPLE,
)  # fmt: skip
ROLES = (
    "hr=people-write groups, support=people-support, teams=groups, wiki=groups, "
    "readers=people-read, all-hr=people-write, mail=mail"
)
LIMITS = "hr=paris, hr=lyon, support=paris, wiki=wiki-editors, wiki=paris"


@pytest.fixture(autouse=True)
def settings(app: Flask) -> Iterator[None]:
    before = app.extensions["sso.settings"]
    limited = replace(before, admin_roles=ROLES, admin_role_groups=LIMITS)
    app.extensions["sso.settings"] = limited
    yield
    app.extensions["sso.settings"] = before


def loaded(user: User) -> User:
    current = users.find(user.id)
    assert current
    db.session.refresh(current)
    return current


def group_id(name: str) -> UUID:
    group = named_groups.find_by_name(name)
    return group.id if group else group_editing.create(Actor("olga"), name).id


# How it is set


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        ("hr=paris", {"hr": {"paris"}}),
        (" hr = paris ,hr=lyon south", {"hr": {"paris", "lyon south"}}),
        ("a=b=c", {"a=b": {"c"}}),  # of the roles a and a=b, the longer one
        ("a=c", {"a": {"c"}}),
        ("hr=x=y", {"hr": {"x=y"}}),
    ],
)
def test_names_in_the_setting(limits: str, named: Mapping[str, set[str]]) -> None:
    assert role_limits(limits, "hr=people-write, a=groups, a=b=groups") == named


@pytest.mark.parametrize(
    ("limits", "error"),
    [
        ("nobody=paris", "nobody=paris does not name a role of SSO_ADMIN_ROLES"),
        ("h=paris", "h=paris does not name a role"),
        ("hr", "give each role with what it is limited to"),
        ("hr=", "give each role with what it is limited to"),
        ("hr= ", "hr= does not name a role"),
        ("=paris", "give each role with what it is limited to"),
        ("hr=paris,", "give each role with what it is limited to"),
        ("sso-administrators=paris", "does not name a role of SSO_ADMIN_ROLES"),
        ("auditors=paris", "the role auditors has permissions that cannot be limited to groups: "
         "audit; give them in a role of their own. Possible are people-read, people-support, "
         "people-write, groups"),
        ("hr=a\x00b", "without commas"),
        (", ".join(f"hr=g{number}" for number in range(MOST_LIMITS + 1)), "more than 100 groups"),
    ],
)  # fmt: skip
def test_what_the_setting_may_not_be(tmp_path: Path, limits: str, error: str) -> None:
    environ = {
        "SSO_BASE_URL": "https://id.example/auth", "SSO_ADMIN_ROLE_GROUPS": limits,
        "SSO_ADMIN_ROLES": "auditors=audit people-read, hr=people-write",
    }  # fmt: skip
    with pytest.raises(Exception, match="SSO_ADMIN_ROLE_GROUPS") as refused:
        load_settings(environ, tmp_path)
    assert error in str(refused.value)
    load_settings({**environ, "SSO_ADMIN_ROLE_GROUPS": "hr=paris"}, tmp_path)


def test_limits_without_roles_are_refused(tmp_path: Path) -> None:
    environ = {"SSO_BASE_URL": "https://id.example/auth", "SSO_ADMIN_ROLE_GROUPS": "hr=paris"}
    with pytest.raises(Exception, match="does not name a role of SSO_ADMIN_ROLES"):
        load_settings(environ, tmp_path)


def test_what_groups_give(app: Flask) -> None:
    with app.app_context():
        paris = {"paris", "lyon"}
        hr = roles.rights_of(["hr"])
        assert not hr.permissions
        assert hr.limits == {READ: paris, WRITE: paris, Permission.GROUPS: paris}
        both = roles.rights_of(["hr", "wiki"])
        assert both.limits[Permission.GROUPS] == {*paris, "wiki-editors"}
        # Without a limit in one role, there is none.
        assert roles.rights_of(["hr", "teams"]).limits == {READ: paris, WRITE: paris}
        assert roles.rights_of(["hr", "teams"]).permissions == {Permission.GROUPS}
        assert roles.rights_of(["hr", ADMINS]) == Rights(frozenset(Permission))
        assert roles.rights_of(["hr", HELPERS]).limits == {WRITE: paris, Permission.GROUPS: paris}
        assert not roles.rights_of(["paris"])


_NAMES = st.frozensets(st.sampled_from("abc"), min_size=1)
_RIGHTS = st.builds(
    lambda held, limits: Rights(held).joined(Rights(limits=limits)),
    st.frozensets(st.sampled_from(sorted(LIMITABLE))),
    st.dictionaries(st.sampled_from(sorted(LIMITABLE)), _NAMES),
)


@given(_RIGHTS, _RIGHTS, st.frozensets(st.sampled_from("abcd")))
def test_rights(mine: Rights, theirs: Rights, groups: frozenset[str]) -> None:
    both = mine.joined(theirs)
    assert both == theirs.joined(mine)
    assert both.covers(mine)
    assert both.covers(theirs)
    assert both.over(groups) == mine.over(groups) | theirs.over(groups)
    assert not both.permissions & both.limits.keys()
    if mine.covers(theirs):
        assert both == mine
        assert theirs.over(groups) <= mine.over(groups)
    for need in LIMITABLE:
        names = mine.limited_to([need])
        assert (need in mine.over(groups)) is (names is None or bool(names & groups))


# Every service


LIMITED_CASES = [
    case
    for case in CASES
    if LIMITABLE.intersection(
        LIMITED_SERVICES.get(
            f"{case.function.__module__.rpartition('.')[2]}.{case.function.__name__}", ()
        )
    )
]


def test_every_limited_service_has_a_case() -> None:
    limited = [needs for needs in LIMITED_SERVICES.values() if LIMITABLE.intersection(needs)]
    assert len({case.function for case in LIMITED_CASES}) == len(limited)


def limited_to(name: str) -> Actor:
    limits = dict.fromkeys(LIMITABLE, frozenset({name}))
    return Actor("lena", permissions=frozenset(), limits=limits)


@pytest.mark.parametrize("case", LIMITED_CASES, ids=lambda case: case.function.__qualname__)
def test_services_reach_only_the_groups(
    world: World,  # noqa: F811  # the fixture
    case: Case,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By the calls of `tests.test_services`, about somebody in no group, and in one of them."""
    prepared = case.before(world)
    db.session.commit()
    db.session.refresh(world.user)
    before = accounts.described(world.user)
    monkeypatch.setattr(usual, "OLGA", limited_to("paris"))
    with pytest.raises((NotAllowed, LookupError)) as refused:
        case.call(world, prepared)
    assert refused.type in (NotAllowed, LookupError)
    db.session.rollback()
    db.session.refresh(world.user)
    assert accounts.described(world.user) == before
    if case.function in (accounts.create, accounts.invite, group_editing.change):
        return  # see below: these calls name no group of the actor's, or rename one
    if world.user.groups:
        name = world.user.groups[0]
    else:
        name = "staff"  # the name of the group in the other cases
        world.user.groups = [name]
        db.session.commit()
    monkeypatch.setattr(usual, "OLGA", limited_to(name))
    case.call(world, prepared)


# Taking people over


def test_new_people_are_in_the_groups(app: Flask) -> None:
    by = staff_of(app, "hr")
    new: dict[str, Any] = {"email": "new@example.com", "name": "New"}
    with app.app_context():
        for create in (accounts.create, accounts.invite):
            for names in ([], ["plain"], ["paris", "plain"], [ADMINS, "paris"], ["hr", "paris"]):
                with pytest.raises(NotAllowed):
                    create(by, **new, groups=names)
                db.session.rollback()
            create(by, **new, groups=["paris"])
            db.session.rollback()


def test_support_invites_nobody(app: Flask) -> None:
    """They may not choose groups, and without one the person would not be theirs."""
    by = staff_of(app, "support")
    with app.app_context():
        for names in [], ["paris"]:
            with pytest.raises(NotAllowed):
                accounts.invite(by, email="new@example.com", name="New", groups=names)


def test_the_helpdesk_with_a_limited_role(app: Flask) -> None:
    """It helps everybody, and writes about those in the groups."""
    by = staff_of(app, HELPERS, "hr")
    dana, erin = make_user(app), make_user(app, "erin@example.com", groups=["paris"])
    new: dict[str, Any] = {"email": "new@example.com", "name": "New"}
    with app.app_context():
        accounts.invite(by, **new)
        db.session.rollback()
        accounts.invite(by, **new, groups=["paris"])
        db.session.rollback()
        for names in [], ["plain"]:
            with pytest.raises(NotAllowed):
                accounts.create(by, **new, groups=names)
        credentials.mail_password_reset(by, loaded(dana))
        with pytest.raises(NotAllowed):
            credentials.set_password(by, loaded(dana), "another password 1")
        credentials.set_password(by, loaded(erin), "another password 1")
        assert attributes.party_of(by, dana.groups) == Party.HELPDESK
        assert attributes.party_of(by, erin.groups) == Party.ADMINISTRATOR


def update(by: Actor, user: User, name: str) -> Any:
    return accounts.update(by, user.id, memberships=ListEdit(added=(name,)))


def join(by: Actor, user: User, name: str) -> Any:
    return group_editing.change(by, group_id(name), added=[user.id])


def replace_all(by: Actor, user: User, name: str) -> Any:
    return group_editing.change(by, group_id(name), whole=[user.id])


def own(by: Actor, user: User, name: str) -> Any:
    return group_owners.add_member(by, group_id(name), email=user.email, name="X")


def end(by: Actor, user: User, name: str) -> Any:
    at = (sso_clock.now() + timedelta(days=1)).isoformat()
    return group_editing.change(by, group_id(name), added=[user.id], ends_at=at)


@pytest.mark.parametrize("add", [update, join, replace_all, own, end])
@pytest.mark.parametrize("who", [("hr",), ("hr", "teams"), ("hr", "readers"), ("hr", "wiki")])
def test_nobody_is_taken_over(
    app: Flask, add: Callable[[Actor, User, str], Any], who: tuple[str, ...]
) -> None:
    """By adding them to a group whose members one manages; also with all groups, or sight of all"""
    by, dana = staff_of(app, *who), make_user(app, groups=["plain"])
    with app.app_context():
        for name in "paris", "lyon":
            group_id(name)
            db.session.commit()
            with pytest.raises((NotAllowed, LookupError)):
                add(by, dana, name)
            db.session.rollback()
        assert loaded(dana).groups == ["plain"]


def test_an_ended_membership_reaches_nobody(app: Flask) -> None:
    """Not even while the worker has not removed it, one second after the end."""
    by, dana = staff_of(app, "hr"), make_user(app, groups=["paris"])
    with app.app_context():
        user = loaded(dana)
        user.set_group_ends({"paris": (sso_clock.now() + timedelta(seconds=2)).isoformat()})
        db.session.commit()
        accounts.update(by, dana.id, name="Dora")
        db.session.rollback()
        user = loaded(dana)
        user.set_group_ends({"paris": (sso_clock.now() - timedelta(seconds=1)).isoformat()})
        db.session.commit()
        for call in (
            lambda: accounts.update(by, dana.id, name="Dora"),
            lambda: update(by, dana, "lyon"),
            lambda: join(by, dana, "lyon"),
            lambda: join(by, dana, "paris"),
            lambda: accounts.disable(by, loaded(dana)),
        ):
            with pytest.raises(NotAllowed):
                call()
            db.session.rollback()


def test_a_group_is_not_renamed_to_one_of_ones_own(app: Flask) -> None:
    by = staff_of(app, "hr", "teams")
    make_user(app, groups=["plain"])
    with app.app_context():
        with pytest.raises(NotAllowed):
            group_editing.change(by, group_id("plain"), name="paris")
        db.session.rollback()
        group_editing.change(by, group_id("plain"), name="plainer")


def test_moving_people(app: Flask) -> None:
    """Between one's groups, and out of them; not to others, nor out of others."""
    by, dana = staff_of(app, "hr"), make_user(app, groups=["paris", "plain"])
    with app.app_context():
        for edit in (
            ListEdit(added=("other",)),
            ListEdit(removed=("plain",)),
            ListEdit(whole=("paris",)),
            ListEdit(added=("hr",)),
        ):
            with pytest.raises(NotAllowed):
                accounts.update(by, dana.id, memberships=edit)
            db.session.rollback()
        with pytest.raises(NotAllowed):  # to end it is to remove them
            accounts.update(by, dana.id, group_ends={"plain": "2099-01-01T00:00:00Z"})
        db.session.rollback()
        for name in "plain", "wiki-editors":
            with pytest.raises((NotAllowed, LookupError)):
                group_owners.remove_member(by, group_id(name), dana.id)
            db.session.rollback()
        accounts.update(by, dana.id, memberships=ListEdit(added=("lyon",)))
        accounts.update(by, dana.id, memberships=ListEdit(removed=("paris",)))
        db.session.commit()
        assert loaded(dana).groups == ["plain", "lyon"]
        group_owners.remove_member(by, group_id("lyon"), dana.id)
        db.session.commit()
        with pytest.raises(NotAllowed):
            accounts.update(by, dana.id, name="Mine")


@pytest.mark.parametrize("role", [ADMINS, HELPERS, "all-hr", "mail", "teams", "wiki"])
def test_members_with_more_permissions_are_left_alone(app: Flask, role: str) -> None:
    by = staff_of(app, "hr")
    make_user(app, "second@example.com", groups=[ADMINS])
    ada = make_user(app, "ada@example.com", groups=["paris", role])
    lena = make_user(app, "lena@example.com", groups=["paris", "hr"])  # has no more
    with app.app_context():
        for call in (
            lambda user: credentials.set_password(by, user, "another password 1"),
            lambda user: credentials.reset_factors(by, user),
            lambda user: accounts.disable(by, user),
            lambda user: accounts.update(by, user.id, email="mine@example.com"),
            lambda user: group_editing.change(by, group_id("paris"), removed=[user.id]),
            lambda user: group_owners.remove_member(by, group_id("paris"), user.id),
        ):
            with pytest.raises(NotAllowed):
                call(loaded(ada))
            db.session.rollback()
            call(loaded(lena))
            db.session.rollback()


def test_a_limit_to_a_group_helps_no_staff_outside_it(app: Flask) -> None:
    """Not even staff with fewer permissions, whom those without the limit could change."""
    by = staff_of(app, "hr", HELPERS)
    outside = make_user(app, "out@example.com", groups=["readers"])
    inside = make_user(app, "in@example.com", groups=["readers", "paris"])
    with app.app_context():
        credentials.mail_password_reset(by, loaded(inside))
        with pytest.raises(NotAllowed):
            credentials.mail_password_reset(by, loaded(outside))


def test_nobody_gives_a_role_with_other_limits(app: Flask) -> None:
    """HR of Paris and Lyon cannot make somebody support of Paris, whose permission they lack."""
    by, dana = staff_of(app, "all-hr"), make_user(app, groups=["paris"])
    with app.app_context():
        for name in "wiki", "hr", "support":
            with pytest.raises(NotAllowed):
                update(by, dana, name)
            db.session.rollback()
        update(by, dana, "readers")


def test_groups_alone(app: Flask) -> None:
    """Without sight of people, only removal; with it, the people whom one sees."""
    dana = make_user(app, groups=["wiki-editors"])
    erin = make_user(app, "erin@example.com")
    with app.app_context():
        group = group_id("wiki-editors")
        db.session.commit()
    wiki, seeing = staff_of(app, "wiki"), staff_of(app, "wiki", "readers")
    with app.app_context():
        with pytest.raises(NotAllowed):
            group_editing.change(wiki, group, added=[erin.id])
        db.session.rollback()
        for call in (
            lambda: group_editing.change(wiki, group, name="mine"),
            lambda: group_editing.change(wiki, group, provisioned={"external_id": "1"}),
            lambda: group_editing.delete(wiki, group),
            lambda: group_editing.create(wiki, "mine"),
            lambda: group_owners.change(wiki, group, added=[erin.id]),
            lambda: group_editing.change(wiki, group_id("plain"), removed=[dana.id]),
        ):
            with pytest.raises(NotAllowed):
                call()
            db.session.rollback()
        group_editing.change(wiki, group, removed=[dana.id])
        group_editing.change(seeing, group, added=[erin.id])
        db.session.commit()
        assert (loaded(dana).groups, loaded(erin).groups) == ([], ["wiki-editors"])


def test_groups_that_bound_a_role_have_no_owners(app: Flask) -> None:
    """An owner adds anybody, and would give others rights over them."""
    lead, olga = make_user(app, "lead@example.com"), Actor("olga")
    by = Actor(lead.email, user_id=lead.id, permissions=frozenset({Permission.OWN_GROUPS}))
    with app.app_context():
        for name, may_own in (("paris", False), ("lyon", False), ("wiki-editors", True)):
            assert group_owners.gives_permissions(name) is not may_own
            named_groups.add_owners(group_id(name), [lead.id])  # as before the setting
            db.session.commit()
            new: dict[str, Any] = {"email": "x@example.com", "name": "X"}
            if may_own:
                group_owners.add_member(by, group_id(name), **new)
            else:
                with pytest.raises(LookupError):
                    group_owners.add_member(by, group_id(name), **new)
            db.session.rollback()
        listed = db.session.scalars(group_owners.managed_by(by, named_groups.containing("")))
        assert [group.name for group in listed] == ["wiki-editors"]
        with pytest.raises(Exception, match="has no owners"):
            group_owners.change(olga, group_id("paris"), added=[make_user(app, "o@x.org").id])


def test_a_stale_page_says_nothing_about_others(app: Flask) -> None:
    """A change by somebody else is not described to those who no longer manage the person."""
    by, dana = staff_of(app, "hr"), make_user(app, name="Secret")
    with app.app_context(), pytest.raises(NotAllowed):
        accounts.update(by, dana.id, name="X", seen={"name": "Dana"})


# Who enables whom


def enable_by_form(by: Actor, user: User) -> None:
    accounts.update(by, user.id, disabled=False)


@pytest.mark.parametrize("enable", [accounts.enable, enable_by_form])
@pytest.mark.parametrize(
    ("disabled_by", "enabled_by", "may"),
    [
        (["hr"], ["hr"], True),
        (["hr", ADMINS], ["hr"], False),
        ([ADMINS], ["hr"], False),
        ([ADMINS], ["all-hr"], True),
        (["all-hr"], ["hr"], False),
        (["all-hr"], ["hr", "all-hr"], True),
        (["hr"], ["all-hr"], True),
        (["hr"], ["support"], False),
        ([], ["hr"], False),  # at the command line
        ([], ["all-hr"], True),
        (["hr"], [], True),
    ],
    ids=str,
)
def test_a_limited_role_enables_only_whom_one_has_disabled(
    app: Flask,
    disabled_by: list[str],
    enabled_by: list[str],
    may: bool,
    enable: Callable[[Actor, User], None],
) -> None:
    make_user(app, "ada@example.com", groups=[ADMINS])  # the last one stays
    operator = staff_of(app, *disabled_by) if disabled_by else Actor("olga")
    same = enabled_by == disabled_by
    by = operator if same else staff_of(app, *enabled_by) if enabled_by else Actor("olga")
    dana = make_user(app, groups=["paris"])
    with app.app_context():
        accounts.disable(operator, loaded(dana))
        db.session.commit()
        if may:
            enable(by, loaded(dana))
        else:
            with pytest.raises(NotAllowed):
                enable(by, loaded(dana))
            db.session.rollback()
        assert loaded(dana).is_disabled is not may


@pytest.mark.parametrize("first", ["hr", "all-hr"])
def test_whom_both_disabled_only_the_one_without_limits_enables(app: Flask, first: str) -> None:
    by, other, dana = staff_of(app, "hr"), staff_of(app, "all-hr"), make_user(app, groups=["paris"])
    with app.app_context():
        for operator in (by, other) if first == "hr" else (other, by):
            accounts.disable(operator, loaded(dana))
            db.session.commit()
        with pytest.raises(NotAllowed, match="more permissions"):
            accounts.enable(by, loaded(dana))
        db.session.rollback()
        accounts.enable(other, loaded(dana))
        db.session.commit()
        accounts.disable(by, loaded(dana))  # nothing of before counts
        accounts.enable(by, loaded(dana))


def change_email(by: Actor, user: User) -> None:
    accounts.update(by, user.id, email="elsewhere@example.com")


@pytest.mark.parametrize("free", [accounts.delete, change_email])
@pytest.mark.parametrize("disabled_by", ["hr", ADMINS, "all-hr", "command", "nobody"])
def test_a_limited_role_does_not_free_the_email_of_whom_others_disabled(
    app: Flask, disabled_by: str, free: Callable[[Actor, User], None]
) -> None:
    """Otherwise it would create an enabled account with this email."""
    operators = {name: staff_of(app, name) for name in ("hr", "all-hr", ADMINS)}
    operators["command"] = Actor("olga")
    by, dana = operators["hr"], make_user(app, groups=["paris"])
    new: dict[str, Any] = {"email": dana.email, "name": "Dana", "groups": ["paris"]}
    with app.app_context():
        if disabled_by != "nobody":
            accounts.disable(operators[disabled_by], loaded(dana))
            db.session.commit()
        if disabled_by in ("hr", "nobody"):
            free(by, loaded(dana))
            db.session.flush()
            accounts.create(by, **new)
            return
        with pytest.raises(NotAllowed, match="delete it or to change its email"):
            free(by, loaded(dana))
        db.session.rollback()
        with pytest.raises(Invalid, match="already a user"):
            accounts.create(by, **new)
        db.session.rollback()
        # The same email, and other fields, are no obstacle.
        accounts.update(by, dana.id, email=" DANA@example.com", name="Dana D.")
        db.session.commit()
        assert loaded(dana).is_disabled
        for unlimited in (operators["all-hr"], Actor("olga"), Actor("Entra", token="1")):
            free(unlimited, loaded(dana))
            db.session.rollback()


@pytest.mark.parametrize("is_worked", [False, True])
@pytest.mark.parametrize("seconds", [-1, 0, 1])
@pytest.mark.parametrize("free", [accounts.delete, change_email])
def test_a_limited_role_frees_the_email_of_whose_account_has_ended(
    app: Flask, clock: Clock, is_worked: bool, seconds: int, free: Callable[[Actor, User], None]
) -> None:
    by, dana = staff_of(app, "hr"), make_user(app, groups=["paris"])
    clock.stand_still()
    end = clock.time + timedelta(days=1)
    with app.app_context():
        accounts.update(Actor("olga"), dana.id, ends_at=moments.text_of(end))
        db.session.commit()
        clock.time = end + timedelta(seconds=seconds)
        if is_worked:
            accounts.end_due(audit.SYSTEM)
            db.session.commit()
        free(by, loaded(dana))


def test_a_limited_role_does_not_free_the_email_of_whom_a_directory_disabled(app: Flask) -> None:
    by, dana = staff_of(app, "hr"), make_user(app, groups=["paris"])
    with app.app_context():
        users.set_disabled(loaded(dana), True)  # as `identities.disable_user` does
        db.session.commit()
        for free in (accounts.delete, change_email):
            with pytest.raises(NotAllowed, match="delete it or to change its email"):
                free(by, loaded(dana))
            db.session.rollback()


def test_whom_limited_roles_disabled_twice_one_of_them_enables(app: Flask) -> None:
    by, dana = staff_of(app, "hr"), make_user(app, groups=["paris"])
    with app.app_context():
        for _ in range(2):
            accounts.update(by, dana.id, disabled=True)
            db.session.commit()
        accounts.enable(by, loaded(dana))
        assert not loaded(dana).is_disabled


def test_a_limited_role_moves_an_end_that_has_passed(app: Flask, clock: Clock) -> None:
    by, dana = staff_of(app, "hr"), make_user(app, groups=["paris"])
    with app.app_context():
        accounts.update(Actor("olga"), dana.id, ends_at="2026-12-01")
        db.session.commit()
        clock.move(days=20)
        accounts.end_due(audit.SYSTEM)
        db.session.commit()
        assert loaded(dana).disabled_at
        accounts.enable(by, loaded(dana))
        assert not loaded(dana).is_disabled


def declare_it(user: User, *, disabled: bool) -> None:
    declaration = declared_accounts.Declaration(email=user.email, disabled=disabled)
    planned = declared_accounts.plan([declaration]).planned
    declared_accounts.carry_out(Actor("olga"), planned)
    db.session.commit()


def set_field(user: User, *, disabled: bool) -> None:
    accounts.update(Actor("olga"), user.id, disabled=disabled)
    db.session.commit()


@pytest.mark.parametrize("change", [declare_it, set_field])
@pytest.mark.parametrize("enables_between", [False, True])
def test_who_disables_by_a_declaration_or_a_field_has_no_limits(
    app: Flask, change: Callable[..., None], enables_between: bool
) -> None:
    by, dana = staff_of(app, "hr"), make_user(app, groups=["paris"])
    with app.app_context():
        accounts.disable(by, loaded(dana))
        db.session.commit()
        if enables_between:
            change(dana, disabled=False)
            assert not loaded(dana).is_disabled
            db.session.rollback()
        change(dana, disabled=True)
        with pytest.raises(NotAllowed, match="more permissions"):
            accounts.enable(by, loaded(dana))
        db.session.rollback()
        change(dana, disabled=True)  # already so
        assert (
            declared_accounts.plan(
                [declared_accounts.Declaration(email=dana.email, disabled=True)]
            ).planned
            == []
        )


def disable_it(user: User, *, disabled: bool) -> None:
    act = accounts.disable if disabled else accounts.enable
    act(Actor("olga"), loaded(user))
    db.session.commit()


@pytest.mark.parametrize("change", [declare_it, set_field, disable_it])
@pytest.mark.parametrize("is_worked", [False, True])
@pytest.mark.parametrize("seconds", [-1, 0, 1])
def test_whom_somebody_disables_after_the_end_is_not_only_ended(
    app: Flask, clock: Clock, change: Callable[..., None], is_worked: bool, seconds: int
) -> None:
    by, dana = staff_of(app, "hr"), make_user(app, groups=["paris"])
    clock.stand_still()
    end = clock.time + timedelta(days=1)
    with app.app_context():
        accounts.update(Actor("olga"), dana.id, ends_at=moments.text_of(end))
        db.session.commit()
        clock.time = end + timedelta(seconds=seconds)
        if is_worked:
            accounts.end_due(audit.SYSTEM)
            db.session.commit()
        change(dana, disabled=True)
        clock.time = end + timedelta(seconds=1)
        for text in ("", "2030-01-01"):
            accounts.update(by, dana.id, ends_at=text)
            assert loaded(dana).is_disabled
            with pytest.raises(NotAllowed, match="more permissions"):
                accounts.enable(by, loaded(dana))
            db.session.rollback()
        change(dana, disabled=False)
        assert loaded(dana).is_disabled is (change is declare_it)  # which does not undo an end


@pytest.mark.parametrize("is_worked", [False, True])
def test_a_limited_role_enables_whom_it_disabled_after_the_end(
    app: Flask, clock: Clock, is_worked: bool
) -> None:
    by, dana = staff_of(app, "hr"), make_user(app, groups=["paris"])
    with app.app_context():
        accounts.update(Actor("olga"), dana.id, ends_at="2026-12-01")
        db.session.commit()
        clock.move(days=20)
        if is_worked:
            accounts.end_due(audit.SYSTEM)
            db.session.commit()
        accounts.disable(by, loaded(dana))
        db.session.commit()
        accounts.enable(by, loaded(dana))
        assert not loaded(dana).is_disabled
