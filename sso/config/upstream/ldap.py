"""Providers that are directories: Active Directory, OpenLDAP, FreeIPA."""

import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar
from urllib.parse import urlsplit

from sso.config.tables import key
from sso.config.upstream.provider import Provider, one_of, seconds, secret, switch, text, texts
from sso.config.urls import call_error, is_loopback
from sso.ldap import directory as ldap_directory
from sso.ldap import search_filters
from sso.ldap.connection import Server
from sso.ldap.directory import Directory, GroupRules

ACTIVE_DIRECTORY, OPENLDAP, FREEIPA = "active-directory", "openldap", "freeipa"
_PORTS = {"ldap": 389, "ldaps": 636}
_MOST_SERVERS = 10

# The defaults of each product.
_USUAL: Mapping[str, Mapping[str, Any]] = {
    ACTIVE_DIRECTORY: {
        "user_filter": "(&(objectCategory=person)(objectClass=user))",
        "login_attributes": ("sAMAccountName", "userPrincipalName", "mail"),
        "subject_attribute": "objectGUID",
        "user_name_attribute": "sAMAccountName",
        "group_filter": "(objectClass=group)",
    },
    OPENLDAP: {
        "user_filter": "(objectClass=inetOrgPerson)",
        "login_attributes": ("uid", "mail"),
        "subject_attribute": "entryUUID",
        "user_name_attribute": "uid",
        "group_filter": "(objectClass=groupOfNames)",
    },
    FREEIPA: {
        "user_filter": "(objectClass=inetOrgPerson)",
        "login_attributes": ("uid", "mail"),
        "subject_attribute": "ipaUniqueID",
        "user_name_attribute": "uid",
        "group_filter": "(objectClass=groupOfNames)",
    },
}


def _servers(value: Any) -> tuple[Server, ...]:
    servers = []
    for url in texts(value):
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise ValueError(f"the port of {url!r} is not a number") from None
        rest = (parts.path.strip("/"), parts.query, parts.fragment, parts.username)
        if parts.scheme not in _PORTS or not parts.hostname or any(rest):
            raise ValueError(f"{url!r} is not a URL such as ldaps://dc1.example.com")
        if error := call_error(url):
            raise ValueError(f"{url!r}: {error}; give another URL")
        tls = "ldaps" if parts.scheme == "ldaps" else "starttls"
        servers.append(Server(parts.hostname, port or _PORTS[parts.scheme], tls))
    if not 0 < len(servers) <= _MOST_SERVERS:
        raise ValueError(f"give a list of one to {_MOST_SERVERS} URLs")
    return tuple(servers)


def _dn(value: Any) -> str:
    name = text(value)
    if not ldap_directory.is_name(name):
        raise ValueError(f"{name!r} is not a distinguished name such as dc=example,dc=com")
    return name


def _filter(value: Any) -> str:
    search_filters.parse(expression := text(value))
    return expression


def _attribute(value: Any) -> str:
    name = text(value)
    if not search_filters.is_attribute(name):
        raise ValueError(f"{name!r} is not the name of an attribute")
    return name


def _attributes(value: Any) -> tuple[str, ...]:
    names = tuple(_attribute(item) for item in texts(value))
    if not 0 < len(names) <= 10:
        raise ValueError("give a list of one to ten attributes")
    return names


def _ca_file(value: Any) -> str:
    path = text(value)
    try:
        ssl.create_default_context(cafile=path)
    except OSError as error:  # as `ssl.SSLError` is
        raise ValueError(f"{path} has no certificates (PEM) that can be read: {error}") from None
    return path


@dataclass(frozen=True, kw_only=True)
class LdapProvider(Provider):
    """A directory. People type their name and password here; the password is not stored."""

    REDIRECTS: ClassVar[bool] = False

    directory: str = key(
        "which product it is: active-directory, openldap or freeipa", one_of(*_USUAL)
    )
    servers: tuple[Server, ...] = key(
        "its servers, the first that answers is asked: ldaps:// or ldap://, which means StartTLS",
        _servers,
    )
    start_tls: bool = key(
        "false sends passwords in clear, and is accepted for ldap:// on this machine only",
        switch,
        True,
    )
    ca_file: str | None = key(
        "path of the certificates that are trusted, in place of the system's", _ca_file, None
    )
    timeout: int = key("seconds for all questions of one sign-in to one server", seconds(1, 30), 5)
    base: str = key("the distinguished name below which people are", _dn)
    bind_dn: str = key("the service account that searches; without it, anonymously", text, "")
    bind_password: str = secret("the password of the service account", "")
    user_filter: str = key("who may sign in", _filter, "")
    login_attributes: tuple[str, ...] = key("what people may type as their name", _attributes, ())
    subject_attribute: str = key(
        "what identifies a person for good, whatever else changes", _attribute, ""
    )
    user_name_attribute: str = key("the short name of a person", _attribute, "")
    email_attribute: str = key("the email address", _attribute, "mail")
    name_attribute: str = key("the name to show", _attribute, "displayName")
    group_base: str = key(
        "the distinguished name below which groups are; without it, memberOf is read", _dn, ""
    )
    group_filter: str = key("which groups count", _filter, "")
    group_name_attribute: str = key("the short name of a group", _attribute, "cn")
    member_attribute: str = key(
        "the attribute of a group that lists its members", _attribute, "member"
    )
    members: str = key(
        "by what it lists them",
        one_of(ldap_directory.GROUP_NAMES, ldap_directory.USER_NAMES),
        ldap_directory.GROUP_NAMES,
    )
    nested_groups: bool = key("whether members of groups in a group count", switch, False)
    recheck: int | None = key(
        "seconds after which the directory is asked again about those who are signed in",
        seconds(60, 24 * 3600),
        900,
    )

    def faults(self) -> Iterator[str]:
        yield from super().faults()
        plain = [server.host for server in self.servers if server.tls != "ldaps"]
        if not self.start_tls and not all(is_loopback(host) for host in plain):
            yield "start_tls: passwords would go over the network in clear; remove it"
        if bool(self.bind_dn) != bool(self.bind_password):
            yield "bind_dn and bind_password: give both, or neither"
        if self.directory == ACTIVE_DIRECTORY and not self.bind_dn:
            yield "bind_dn: it is missing; Active Directory answers no anonymous search"
        short = [name for name in self.groups if not ldap_directory.is_name(name)]
        if short and not self.group_base:
            yield (
                f"groups: {short[0]!r} may be the name of several groups; give its distinguished "
                "name, or group_base"
            )
        for name in self.attributes:
            if not search_filters.is_attribute(name):
                yield f"attributes: {name!r} is not the name of an attribute of a directory"
        if self.nested_groups and not self.group_base:
            yield "nested_groups: memberOf lists no groups of groups; give group_base"

    @property
    def issuer(self) -> str:
        """Return the issuer of its subjects: the directory, by its id."""
        return f"ldap:{self.id}"

    @cached_property
    def client(self) -> Directory:
        """Return the client, which remembers unreachable servers and counts waiting people."""

        def usual(name: str) -> Any:
            return getattr(self, name) or _USUAL[self.directory][name]

        servers = tuple(
            Server(server.host, server.port, "none")
            if not self.start_tls and server.tls != "ldaps"
            else server
            for server in self.servers
        )
        return Directory(
            servers=servers,
            base=self.base,
            bind_dn=self.bind_dn,
            bind_password=self.bind_password,
            user_filter=search_filters.parse(usual("user_filter")),
            login_attributes=usual("login_attributes"),
            subject_attribute=usual("subject_attribute"),
            user_name_attribute=usual("user_name_attribute"),
            email_attribute=self.email_attribute,
            name_attribute=self.name_attribute,
            more_attributes=tuple(self.attributes),
            groups=self._group_rules(search_filters.parse(usual("group_filter")))
            if self.groups
            else None,
            ca_file=self.ca_file,
            seconds=self.timeout,
        )

    def _group_rules(self, group_filter: bytes) -> GroupRules:
        nesting = (
            ldap_directory.IN_CHAIN if self.directory == ACTIVE_DIRECTORY else ldap_directory.WALK
        )
        return GroupRules(
            base=self.group_base,
            filter=group_filter,
            name_attribute=self.group_name_attribute,
            member_attribute=self.member_attribute,
            members=self.members,
            nesting=nesting if self.nested_groups else ldap_directory.DIRECT,
        )

    def mapped(self, groups: Sequence[ldap_directory.Group]) -> frozenset[str]:
        """Return the keys of `groups` that name one of these groups."""
        dns = {ldap_directory.normal_name(group.dn) for group in groups}
        short = {group.name.casefold() for group in groups}
        return frozenset(
            name
            for name in self.groups
            if (
                ldap_directory.normal_name(name) in dns
                if ldap_directory.is_name(name)
                else name.casefold() in short
            )
        )
