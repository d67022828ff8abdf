"""The groups of a person, with the groups that these are in."""

from dataclasses import dataclass

from sso.ldap import filters, names
from sso.ldap.connection import Connection, Refused
from sso.ldap.messages import Entry

MOST = 1000  # groups of one person
_DEEPEST = 10  # groups in groups
_AT_ONCE = 50  # conditions in one search

# How groups name their members, and so what is searched for.
NAMES, USER_NAMES = "dn", "user name"
# Who follows groups in groups: nobody, this client, or the server (Active Directory).
DIRECT, WALK, IN_CHAIN = "direct", "walk", "in chain"


@dataclass(frozen=True)
class Group:
    """A group by its distinguished name, and by its short one."""

    dn: str
    name: str


@dataclass(frozen=True, kw_only=True)
class GroupRules:
    """Where groups are. Without `base`, they are the values of the person's memberOf."""

    base: str = ""
    filter: bytes = b""
    name_attribute: str = "cn"
    member_attribute: str = "member"
    members: str = NAMES
    nesting: str = DIRECT


def of(rules: GroupRules, connection: Connection, entry: Entry, member: str) -> list[Group]:
    """The groups of the person with this entry, whom groups call `member`.

    All or none: a part of them could let a person in who must not be. Raises `Refused`.
    """
    if not rules.base:
        if any(name.startswith("memberof;range=") for name in entry.attributes):
            raise Refused("it gives only a part of memberOf; set group_base")
        dns = [value.decode(errors="replace") for value in entry.values("memberOf")]
        found = {dn: Group(dn, names.first_value(dn)) for dn in dns}
    else:
        found = _search(rules, connection, member)
    if len(found) > MOST:
        raise Refused(f"{entry.dn} is in more than {MOST} groups; narrow group_filter")
    return list(found.values())


def _search(rules: GroupRules, connection: Connection, member: str) -> dict[str, Group]:
    found: dict[str, Group] = {}
    wanted = [member] if member else []
    for depth in range(_DEEPEST if rules.nesting == WALK else 1):
        above: list[str] = []
        for start in range(0, len(wanted), _AT_ONCE):
            for group in _containing(rules, connection, wanted[start : start + _AT_ONCE], depth):
                if (key := names.normal(group.dn)) not in found:
                    found[key] = group
                    above.append(group.dn)
            if len(found) > MOST:
                return found
        wanted = above
    return found


def _containing(
    rules: GroupRules, connection: Connection, members: list[str], depth: int
) -> list[Group]:
    # Groups are in groups by their distinguished names, whatever people are in them by.
    attribute = rules.member_attribute if depth == 0 or rules.members == NAMES else "member"
    conditions = [
        filters.matching(attribute, filters.IN_CHAIN, one.encode())
        if rules.nesting == IN_CHAIN
        else filters.equal(attribute, one.encode())
        for one in members
    ]
    both = filters.every(rules.filter, filters.either(*conditions))
    found = connection.search(rules.base, both, [rules.name_attribute], MOST + 1)
    if not found.is_complete:
        raise Refused("a person is in more groups than it gives; narrow group_filter")
    return [Group(one.dn, one.text(rules.name_attribute)) for one in found.entries]
