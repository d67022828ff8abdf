"""OpenLDAP's slapd: found, bound, refused; TLS as it should be, and as an attacker has it."""

import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sso.ldap import directory as ldap_directory
from sso.ldap import search_filters
from sso.ldap.connection import Refused, Server, Unavailable
from sso.ldap.directory import Directory, GroupRules, NotAllowed, Person
from tests.support import directories
from tests.support.directories import ADMIN, ADMIN_PASSWORD, BASE, GROUPS, PASSWORD, OpenLdap
from tests.support.listeners import certificate
from tests.support.processes import free_port

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def slapd() -> Iterator[OpenLdap]:
    with directories.slapd() as server:
        server.person("dana")
        yield server


@pytest.fixture
def directory(slapd: OpenLdap) -> Directory:
    return Directory(
        servers=(Server("127.0.0.1", slapd.port, "starttls"),),
        base=BASE,
        bind_dn=ADMIN,
        bind_password=ADMIN_PASSWORD,
        user_filter=search_filters.parse("(objectClass=inetOrgPerson)"),
        login_attributes=("uid", "mail"),
        subject_attribute="entryUUID",
        user_name_attribute="uid",
        ca_file=str(slapd.certificate),
    )


def sign_in(directory: Directory, login: str, password: str = PASSWORD) -> Person:
    return directory.sign_in(login, password, datetime.now(UTC), lambda _: None)


def reason(directory: Directory, login: str, password: str = PASSWORD) -> NotAllowed:
    with pytest.raises(NotAllowed) as refused:
        sign_in(directory, login, password)
    return refused.value


def test_a_person_is_found_by_name_and_by_email(directory: Directory) -> None:
    by_name, by_email = sign_in(directory, "dana"), sign_in(directory, " Dana@example.org ")
    assert by_name == by_email
    assert by_name.user_name == "dana"
    assert by_name.email == "dana@example.org"
    assert by_name.name == "Dana Doe"
    assert len(by_name.subject) == 36
    assert reason(directory, "dana", "wrong").reason == "password"
    assert reason(directory, "nobody").reason == "unknown"
    anonymous = replace(directory, bind_dn="", bind_password="")
    assert sign_in(anonymous, "dana") == by_name


@pytest.mark.parametrize("password", ["", "\0", "\0correct", f"{PASSWORD}\0"])
def test_an_empty_password_is_never_sent(directory: Directory, password: str) -> None:
    """slapd answers an unauthenticated bind (RFC 4513 §5.1.2) as if it were one."""
    assert reason(directory, "dana", password).reason == "unknown"


def test_input_is_no_filter(directory: Directory, slapd: OpenLdap) -> None:
    for login in ("*", "d*", "dana)(uid=*", "*)(|(uid=*", "dana\\2a", "\\64ana", "(uid=dana)"):
        assert reason(directory, login).reason == "unknown"
    slapd.person("o*(n)")  # and what looks like one may be a name
    assert sign_in(directory, "o*(n)").user_name == "o*(n)"


def test_two_entries_with_one_email_sign_nobody_in(directory: Directory, slapd: OpenLdap) -> None:
    slapd.person("twin", mail="twins@example.org")
    slapd.person("other-twin", mail="twins@example.org")
    assert reason(directory, "twins@example.org").reason == "ambiguous"
    assert sign_in(directory, "twin").user_name == "twin"


def test_the_subject_is_the_person_not_the_name(directory: Directory, slapd: OpenLdap) -> None:
    dn = slapd.person("robin")
    before = sign_in(directory, "robin").subject
    change = "changetype: modrdn\nnewrdn: uid=robyn\ndeleteoldrdn: 1\n"
    slapd.change(f"dn: {dn}\n{change}")
    assert sign_in(directory, "robyn").subject == before
    again = slapd.person("robin", mail="another@example.org")
    assert sign_in(directory, "robin").subject != before
    found = directory.look_up([before, sign_in(directory, "robin").subject], datetime.now(UTC))
    assert [one and one.user_name for one in found.values()] == ["robyn", "robin"]
    slapd.remove(again)
    assert None in directory.look_up(found, datetime.now(UTC)).values()


def test_accounts_that_are_closed(directory: Directory, slapd: OpenLdap) -> None:
    slapd.person("expired", "shadowExpire: 10")
    slapd.person("barred", "pwdAccountLockedTime: 000001010000Z")
    slapd.person("fresh", "pwdReset: TRUE")
    assert reason(directory, "expired").reason == "expired"
    assert reason(directory, "expired").is_password_right
    assert reason(directory, "barred").reason in ("password", "locked")
    assert not reason(directory, "barred").is_password_right
    fresh = reason(directory, "fresh")
    assert (fresh.reason, fresh.is_password_right) == ("password must change", True)
    subject = sign_in(directory, "dana").subject
    assert (known := directory.look_up([subject], datetime.now(UTC))[subject])
    assert known.barred is None


def test_groups(directory: Directory, slapd: OpenLdap) -> None:
    dn = slapd.person("kim")
    team = slapd.group("team", dn)
    division = slapd.group("division", team)
    slapd.change(f"dn: {team}\nchangetype: modify\nadd: member\nmember: {division}\n")  # a circle
    slapd.group("strangers", f"uid=dana,{directories.PEOPLE}")
    slapd.change(
        f"dn: cn=posix,{GROUPS}\nobjectClass: posixGroup\n"
        "gidNumber: 1\ncn: posix\nmemberUid: kim\n",
        "-a",
    )

    def named(rules: GroupRules) -> list[str]:
        person = sign_in(replace(directory, groups=rules), "kim")
        return sorted(group.name for group in person.groups)

    search = GroupRules(base=GROUPS, filter=search_filters.parse("(objectClass=groupOfNames)"))
    assert named(GroupRules()) == ["team"]  # memberOf
    assert named(search) == ["team"]
    assert named(replace(search, nesting=ldap_directory.WALK)) == ["division", "team"]
    posix = replace(
        search, filter=search_filters.parse("(cn=*)"), members=ldap_directory.USER_NAMES
    )
    assert named(replace(posix, member_attribute="memberUid")) == ["posix"]
    assert not sign_in(directory, "kim").groups


def test_too_many_groups_are_not_cut(
    directory: Directory, slapd: OpenLdap, monkeypatch: pytest.MonkeyPatch
) -> None:
    dn = slapd.person("busy")
    for number in range(4):
        slapd.group(f"group{number}", dn)
    monkeypatch.setattr(ldap_directory, "MOST_GROUPS", 3)
    for rules in (GroupRules(), GroupRules(base=GROUPS, filter=search_filters.parse("(cn=*)"))):
        with pytest.raises(Refused, match="groups"):
            sign_in(replace(directory, groups=rules), "busy")


def test_a_referral_is_not_followed(directory: Directory, slapd: OpenLdap) -> None:
    with_nothing = f"ldap://127.0.0.1:{free_port()}/{BASE}"
    slapd.change(
        f"dn: ou=elsewhere,{BASE}\nobjectClass: referral\nobjectClass: extensibleObject\n"
        f"ou: elsewhere\nref: {with_nothing}\n",
        "-a",
    )
    assert sign_in(directory, "dana")
    assert reason(directory, "nobody").reason == "unknown"
    with pytest.raises(Refused, match="10"):
        sign_in(replace(directory, base=f"ou=elsewhere,{BASE}"), "dana")


def test_settings_that_the_server_refuses(directory: Directory) -> None:
    with pytest.raises(Refused, match="service account"):
        sign_in(replace(directory, bind_password="wrong"), "dana")
    for elsewhere in ("dc=example,dc=com", f"ou=gone,{BASE}"):
        with pytest.raises(Refused, match="no such entry"):
            sign_in(replace(directory, base=elsewhere), "dana")
        with pytest.raises(Refused, match="no such entry"):  # nobody is taken for gone
            replace(directory, base=elsewhere).look_up(["x"], datetime.now(UTC))


def test_nobody_is_gone_because_of_a_mistake(directory: Directory) -> None:
    for change in (
        {"user_filter": search_filters.parse("(cn=nobody)")},
        {"bind_password": "changed"},
    ):
        with pytest.raises(Refused):
            replace(directory, **change).look_up(["x"], datetime.now(UTC))


def test_certificates(directory: Directory, slapd: OpenLdap, tmp_path: Path) -> None:
    over_tls = Server("127.0.0.1", slapd.tls_port, "ldaps")
    assert sign_in(replace(directory, servers=(over_tls,)), "dana")
    ends, people = directory.examine(over_tls)
    assert people == 1
    assert ends is not None
    assert 28 <= (ends - datetime.now(UTC)).days <= 30
    for server in (over_tls, directory.servers[0]):
        for trusted in (None, str(certificate(tmp_path, 5))):
            with pytest.raises(Unavailable, match="certificate"):
                sign_in(replace(directory, servers=(server,), ca_file=trusted), "dana")
        by_name = replace(server, host="localhost")  # the certificate is for the address
        with pytest.raises(Unavailable, match="certificate"):
            sign_in(replace(directory, servers=(by_name,)), "dana")


def test_an_expired_certificate(directory: Directory) -> None:
    server = OpenLdap()
    server.certificate = certificate(server.folder, 0)
    server.start()
    try:
        there = Server("127.0.0.1", server.port, "starttls")
        with pytest.raises(Unavailable, match="expired"):
            sign_in(replace(directory, servers=(there,), ca_file=str(server.certificate)), "dana")
    finally:
        server.stop()
        shutil.rmtree(server.folder)


def test_the_next_server_is_asked(directory: Directory, slapd: OpenLdap) -> None:
    away = Server("127.0.0.1", free_port(), "starttls")
    both = replace(directory, servers=(away, *directory.servers))
    assert sign_in(both, "dana")
    assert both._is_avoided(away)
    with pytest.raises(Unavailable, match="refused"):
        sign_in(replace(directory, servers=(away,)), "dana")
