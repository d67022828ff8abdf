"""The table of a directory in the file of providers: what is refused, and with which remedy."""

from pathlib import Path

import pytest

from sso.config.tables import ManyErrors
from sso.config.upstream import file
from sso.config.upstream.ldap import LdapProvider
from sso.ldap.connection import Server
from sso.ldap.directory import Group

CORP = {
    "type": '"ldap"',
    "name": '"Corp"',
    "directory": '"openldap"',
    "servers": '["ldaps://a.example", "ldap://b.example:3389"]',
    "base": '"dc=example"',
}


def read(folder: Path, **more: str) -> LdapProvider:
    path = folder / "upstream.toml"
    lines = [f"{name} = {value}" for name, value in {**CORP, **more}.items() if value]
    path.write_text("\n".join(["[provider.corp]", *lines]))
    (found,) = file.read(path, {"SECRET": "secret"})
    assert isinstance(found, LdapProvider)
    return found


def test_what_is_usual(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert found.servers == (
        Server("a.example", 636, "ldaps"),
        Server("b.example", 3389, "starttls"),
    )
    assert found.client.login_attributes == ("uid", "mail")
    assert (found.client.subject_attribute, found.client.groups) == ("entryUUID", None)
    assert (found.recheck, found.issuer) == (900, "ldap:corp")
    assert "secret" not in repr(
        read(tmp_path, bind_dn='"cn=x"', bind_password_env='"SECRET"').client
    )
    plain = read(tmp_path, servers='["ldap://127.0.0.1:3890"]', start_tls="false")
    assert plain.client.servers == (Server("127.0.0.1", 3890, "none"),)


def test_groups_are_named_in_any_spelling(tmp_path: Path) -> None:
    groups = '{ "CN=Ops, OU=Groups, DC=example" = "ops", "Staff" = "staff" }'
    found = read(tmp_path, groups=groups, group_base='"ou=groups,dc=example"')
    here = (Group("cn=ops,ou=groups,dc=example", "ops"), Group("cn=x,dc=example", "STAFF"))
    assert found.mapped(here) == {"CN=Ops, OU=Groups, DC=example", "Staff"}
    assert found.mapped((Group("cn=ops,ou=elsewhere,dc=example", "ops"),)) == frozenset()


def test_what_is_refused(tmp_path: Path) -> None:
    for given, fault in (
        ({"directory": ""}, "directory: it is missing"),
        ({"directory": '"novell"'}, "directory: "),
        ({"servers": "[]"}, "servers: give a list of one to 10 URLs"),
        ({"servers": '["a.example"]'}, "is not a URL such as ldaps://dc1.example.com"),
        ({"servers": '["ldap://a.example:x"]'}, "the port of"),
        ({"servers": '["ldaps://a.example/dc=x"]'}, "is not a URL"),
        ({"servers": '["ldaps://me@a.example"]'}, "is not a URL"),
        ({"servers": '["ldaps://169.254.169.254"]'}, "an address that is never called"),
        ({"servers": '["ldap://a.example", "ldap://[fd00:ec2::254]"]'}, "that is never called"),
        ({"start_tls": "false"}, "in clear"),
        ({"base": '"example"'}, "is not a distinguished name"),
        ({"user_filter": '"(cn=a"'}, 'user_filter: ")" is missing (character 6 of the filter)'),
        ({"user_filter": '"uid={login}"'}, 'user_filter: "(" is missing'),
        ({"login_attributes": '["uid", "a)(b"]'}, "is not the name of an attribute"),
        ({"bind_dn": '"cn=x"'}, "give both, or neither"),
        ({"bind_password": '"secret"'}, "keep it out of this file"),
        ({"directory": '"active-directory"'}, "answers no anonymous search"),
        ({"groups": '{ "Staff" = "staff" }'}, "give its distinguished name, or group_base"),
        ({"nested_groups": "true"}, "memberOf lists no groups of groups"),
        ({"ca_file": '"/nowhere"'}, "/nowhere has no certificates (PEM)"),
        ({"timeout": "0"}, "timeout: give a whole number of seconds"),
        ({"recheck": "5"}, "recheck: give a whole number of seconds"),
        ({"userfilter": '"(cn=a)"'}, "did you mean user_filter?"),
    ):
        with pytest.raises(ManyErrors) as refused:
            read(tmp_path, **given)
        assert fault in str(refused.value.errors), given
