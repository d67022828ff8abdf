"""A domain controller (Samba's) of Active Directory: states of accounts, and groups in groups."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from sso.ldap import directory as ldap_directory
from sso.ldap import search_filters
from sso.ldap.connection import Refused, Server
from sso.ldap.directory import Directory, GroupRules, NotAllowed, Person
from tests.support.directories import Samba

pytestmark = pytest.mark.skipif(
    not os.environ.get("DEPLOYMENT"), reason="a domain controller takes a minute; set DEPLOYMENT=1"
)
PASSWORD = "Passw0rd-of-theirs"


@pytest.fixture(scope="module")
def samba() -> Iterator[Samba]:
    server = Samba()
    server.tool("domain", "passwordsettings", "set", "--account-lockout-threshold=3")
    for name in ("dana", "kim", "gone", "ended", "fresh", "locked"):
        server.tool("user", "create", name, PASSWORD, f"--mail-address={name}@example.test")
    server.start()
    yield server
    server.stop()
    shutil.rmtree(server.folder)


@pytest.fixture
def directory(samba: Samba) -> Directory:
    return Directory(
        servers=(Server("127.0.0.1", samba.port, "starttls"),),
        base=samba.base,
        bind_dn="Administrator@example.test",
        bind_password=samba.password,
        user_filter=search_filters.parse("(&(objectCategory=person)(objectClass=user))"),
        login_attributes=("sAMAccountName", "userPrincipalName", "mail"),
        subject_attribute="objectGUID",
        user_name_attribute="sAMAccountName",
        ca_file=str(samba.certificate),
    )


def sign_in(directory: Directory, login: str, password: str = PASSWORD) -> Person:
    return directory.sign_in(login, password, datetime.now(UTC), lambda subject: None)


def reason(directory: Directory, login: str, password: str = PASSWORD) -> tuple[str, bool]:
    with pytest.raises(NotAllowed) as refused:
        sign_in(directory, login, password)
    return refused.value.reason, refused.value.is_password_right


def test_a_person_has_several_names(directory: Directory) -> None:
    person = sign_in(directory, "dana")
    assert person == sign_in(directory, "DANA@example.test")
    assert (person.user_name, person.email) == ("dana", "dana@example.test")
    over_tls = replace(directory, servers=(Server("127.0.0.1", 636, "ldaps"),))
    assert sign_in(over_tls, "dana") == person
    assert reason(directory, "dana", "wrong") == ("password", False)
    assert reason(directory, "dana", "") == ("unknown", False)
    assert reason(directory, "nobody") == ("unknown", False)
    assert reason(directory, "d*") == ("unknown", False)


def test_states_of_accounts(directory: Directory, samba: Samba) -> None:
    subjects = {name: sign_in(directory, name).subject for name in ("gone", "ended", "fresh")}
    samba.tool("user", "disable", "gone")
    samba.tool("user", "setexpiry", "ended", "--days=-1")
    samba.tool("user", "setpassword", "fresh", f"--newpassword={PASSWORD}1",
               "--must-change-at-next-login")  # fmt: skip
    assert reason(directory, "gone") == ("disabled", True)
    assert reason(directory, "gone", "wrong") == ("password", False)
    assert reason(directory, "ended") == ("expired", True)
    assert reason(directory, "fresh", f"{PASSWORD}1") == ("password must change", True)
    for _ in range(3):
        assert reason(directory, "locked", "wrong")[0] in ("password", "locked")
    assert reason(directory, "locked") == ("locked", False)
    found = directory.look_up(subjects.values(), datetime.now(UTC))
    states = [one and one.barred for one in found.values()]
    assert states == ["disabled", "expired", None]


def test_renamed_and_made_again(directory: Directory, samba: Samba) -> None:
    before = sign_in(directory, "kim").subject
    names = ("--samaccountname=kimberly", "--upn=kimberly@example.test", "--force-new-cn=Kimberly")
    samba.tool("user", "rename", "kim", *names)
    assert sign_in(directory, "kimberly").subject == before
    samba.tool("user", "create", "kim", PASSWORD)
    assert sign_in(directory, "kim").subject != before
    samba.tool("user", "delete", "kimberly")
    assert directory.look_up([before], datetime.now(UTC)) == {before: None}


def test_groups_in_groups(directory: Directory, samba: Samba) -> None:
    for name in ("team", "division", "company", "strangers"):
        samba.tool("group", "add", name)
    for group, member in (("team", "dana"), ("division", "team"), ("company", "division")):
        samba.tool("group", "addmembers", group, member)

    def named(rules: GroupRules) -> list[str]:
        found = sign_in(replace(directory, groups=rules), "dana").groups
        return sorted(group.name for group in found)

    search = GroupRules(base=samba.base, filter=search_filters.parse("(objectClass=group)"))
    assert named(GroupRules()) == ["team"]  # memberOf
    assert named(search) == ["team"]
    assert named(replace(search, nesting=ldap_directory.WALK)) == ["company", "division", "team"]
    assert named(replace(search, nesting=ldap_directory.IN_CHAIN)) == [
        "company",
        "division",
        "team",
    ]


def test_the_service_account(directory: Directory) -> None:
    with pytest.raises(Refused, match="service account"):
        sign_in(replace(directory, bind_password="wrong"), "dana")
    with pytest.raises(Refused):  # Active Directory shows strangers nothing
        sign_in(replace(directory, bind_dn="", bind_password=""), "dana")
