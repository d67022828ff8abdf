"""Claims of an application's own, as its registration says: the source of each, and the places.

An entry of a registration is `CLAIM=SOURCE`, or `CLAIM@PLACE,PLACE=SOURCE`. Without places, the
claim is where the profile is. The sources:

- `attribute:NAME` or `attribute:NAME,OTHER`: the first of these attributes that has a value;
- `groups:PREFIX`: the names of the user's groups that begin with this, without it;
- `group:NAME,VALUE`: the value, in a list, for members of the group; several entries of one claim
  make one list;
- `constant:TEXT` and `json:VALUE`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

from sso.flow import attributes, role_claims, scopes
from sso.i18n.message import Message

ID_TOKEN, USERINFO, ACCESS_TOKEN = "id_token", "userinfo", "access_token"
ASSERTION = "assertion"  # of SAML; it has all claims
PLACES = (ID_TOKEN, USERINFO, ACCESS_TOKEN)
# Bytes of all claims at a place, as JSON. Many servers take headers of 8 KiB, which hold tokens.
ROOM: Mapping[str, int] = {
    ID_TOKEN: 8 * 1024,
    USERINFO: 32 * 1024,
    ACCESS_TOKEN: 4 * 1024,
    ASSERTION: 32 * 1024,
}
MOST = 200  # entries: the groups of a company may be listed one by one
MAX_ENTRY, MAX_NAME = 1000, 128  # characters
_MOST_ATTRIBUTES = 10  # of one entry
_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:/-")
ATTRIBUTE, _GROUPS, _GROUP, _CONSTANT, _JSON = "attribute", "groups", "group", "constant", "json"
_SOURCES = (ATTRIBUTE, _GROUPS, _GROUP, _CONSTANT, _JSON)
# The one claim of this server that an application can have in its own form. It names groups of the
# person and nothing else, so that nobody who registers applications can make up memberships.
GROUPS_CLAIM = "groups"
# Claims that protocols define (RFC 7519 §10.1, RFC 7662, RFC 9068, OIDC Core), and this server's.
_PROTOCOL = (
    *("iss", "sub", "aud", "exp", "nbf", "iat", "jti", "auth_time", "nonce", "acr", "amr", "azp"),
    *("at_hash", "c_hash", "s_hash", "sid", "cnf", "act", "may_act", "scope", "scp", "client_id"),
    *("events", "token_type", "active", "typ", "alg", "kid", "htm", "htu", "ath", "sub_id"),
    *("sub_jwk", "resource", "_claim_names", "_claim_sources", role_claims.CLAIM),
)


class Person(Protocol):
    """The part of a user that own claims are made from."""

    @property
    def attributes(self) -> dict[str, Any]: ...
    @property
    def groups(self) -> list[str]: ...


@dataclass(frozen=True)
class OwnClaim:
    """An entry. `places`: `None` if it names none. `names`: attributes, the prefix, or the group.

    `value`: the constant, or what a member of the group gets.
    """

    name: str
    places: frozenset[str] | None
    source: str
    names: tuple[str, ...] = ()
    value: Any = None

    def is_at(self, place: str, *, with_profile: bool) -> bool:
        """Return whether a place has the claim; `with_profile`: it has the profile, too."""
        return with_profile if self.places is None else place in self.places


@dataclass(frozen=True)
class Origin:
    """The value of a claim for a user, `None` if there is none, and where it comes from.

    `source`: the kind of source; `names`: the attribute, or the groups, that gave the value, or
    those that could have.
    """

    name: str
    value: Any
    source: str
    names: tuple[str, ...]


def of(
    entries: Sequence[str],
    user: Person,
    place: str,
    *,
    with_profile: bool = True,
    room: int | None = None,
) -> dict[str, Any]:
    """Return the claims of a user at a place, in the order of the entries, as far as they fit.

    `room`: bytes, by default those of the place.
    """
    present: dict[str, Any] = {}
    for claim in _parsed(tuple(entries)):
        if claim.is_at(place, with_profile=with_profile):
            _put(present, claim, user)
    return _fitting(present, room or ROOM[place])


def joined(own: Mapping[str, Any], others: Mapping[str, Any]) -> dict[str, Any]:
    """Return own claims and others, which count where both have one, except for the groups."""
    claims = {**own, **others}
    if GROUPS_CLAIM in own:
        claims[GROUPS_CLAIM] = own[GROUPS_CLAIM]
    return claims


def origins(entries: Sequence[str], user: Person) -> list[Origin]:
    """Return the value of each claim for a user, with its origin, wherever it is sent."""
    by_name: dict[str, Origin] = {}
    present: dict[str, Any] = {}
    for claim in _parsed(tuple(entries)):
        _put(present, claim, user)
        names = claim.names
        if claim.source == ATTRIBUTE:
            names = tuple(name for name in names if name in user.attributes)[:1] or names
        elif claim.source == _GROUPS:
            names = tuple(name for name in user.groups if name.startswith(claim.names[0]))
        elif claim.source == _GROUP:
            before = by_name[claim.name].names if claim.name in by_name else ()
            names = before + tuple(name for name in names if name in user.groups)
        by_name[claim.name] = Origin(claim.name, present.get(claim.name), claim.source, names)
    return list(by_name.values())


def _put(present: dict[str, Any], claim: OwnClaim, user: Person) -> None:
    match claim.source:
        case "attribute":
            for name in claim.names:
                if name in user.attributes:
                    present[claim.name] = user.attributes[name]
                    return
        case "groups":
            prefix = claim.names[0]
            rest = [name[len(prefix) :] for name in user.groups if name.startswith(prefix)]
            present[claim.name] = [name for name in rest if name]
        case "group":
            values = present.setdefault(claim.name, [])
            if claim.names[0] in user.groups and claim.value not in values:
                values.append(claim.value)
        case _:
            present[claim.name] = claim.value


def _fitting(claims: dict[str, Any], room: int) -> dict[str, Any]:
    """Return the claims without those that would make a token or an answer too long."""
    fitting = {}
    for name, value in claims.items():
        length = len(json.dumps({name: value}))
        if length <= room:
            fitting[name] = value
            room -= length
    return fitting


@lru_cache(maxsize=256)
def _parsed(entries: tuple[str, ...]) -> tuple[OwnClaim, ...]:
    return tuple(map(parsed, entries))


def parsed(entry: str) -> OwnClaim:
    """Return what an entry says. Raises `ValueError` if it is not one."""
    head, is_entry, source = entry.partition("=")
    name, has_places, listed = head.partition("@")
    kind, has_kind, rest = source.partition(":")
    if not is_entry or not has_kind or kind not in _SOURCES:
        raise ValueError(entry)
    places = frozenset(listed.split(",")) if has_places else None
    match kind:
        case "attribute":
            return OwnClaim(name, places, kind, tuple(rest.split(",")))
        case "groups":
            return OwnClaim(name, places, kind, (rest,))
        case "group":
            group, has_value, value = rest.partition(",")
            if not has_value:
                raise ValueError(entry)
            return OwnClaim(name, places, kind, (group,), value)
        case "constant":
            return OwnClaim(name, places, kind, value=rest)
    return OwnClaim(name, places, kind, value=_json_value(rest))


def _json_value(text: str) -> Any:
    """Parse JSON that every reader of a token understands. Raises `ValueError`."""
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_int=_whole_number)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except RecursionError:
        raise ValueError(text) from None
    if value is None:
        raise ValueError(text)
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name is there twice")  # readers disagree about which one counts
    return members


def _whole_number(digits: str) -> int:
    number = int(digits)
    if abs(number) >= 2**53:
        raise ValueError("JavaScript would round it")
    return number


def names_of(entries: Iterable[str]) -> list[str]:
    """Return the names of the claims, each once; entries that are none are left out."""
    return list(dict.fromkeys(claim.name for claim in _readable(entries)))


def about_people(entries: Iterable[str]) -> list[str]:
    """Return the names of the claims that say something about the user: all but constants."""
    claims = (claim for claim in _readable(entries) if claim.source not in (_CONSTANT, _JSON))
    return list(dict.fromkeys(claim.name for claim in claims))


def attributes_in(entries: Iterable[str]) -> set[str]:
    """Return the names of the attributes in entries; entries that are none are left out."""
    return {name for claim in _readable(entries) if claim.source == ATTRIBUTE
            for name in claim.names}  # fmt: skip


def groups_in(entries: Iterable[str]) -> list[str]:
    """Return the groups that entries name; entries that are none are left out."""
    named = (claim.names[0] for claim in _readable(entries) if claim.source == _GROUP)
    return list(dict.fromkeys(named))


def _readable(entries: Iterable[str]) -> Iterable[OwnClaim]:
    for entry in entries:
        try:
            yield parsed(entry)
        except ValueError:
            continue


def tidy(entries: Iterable[str]) -> list[str]:
    """Return entries without spaces around them, around claims and around names, each once."""
    tidied: dict[str, None] = {}
    for text in entries:
        head, is_entry, source = text.strip().partition("=")
        name, has_places, listed = head.partition("@")
        places = ",".join(place.strip() for place in listed.split(","))
        kind, has_kind, rest = source.strip().partition(":")
        if kind == ATTRIBUTE:
            rest = ",".join(name.strip() for name in rest.split(","))
        head = f"{name.strip()}{has_places}{places if has_places else ''}"
        tidied[f"{head}{is_entry}{kind}{has_kind}{rest}"] = None
    return list(tidied)


def without(entries: Iterable[str], removed: Iterable[str]) -> list[str]:
    """Return entries without these; the name of a claim removes all its entries."""
    gone = set(tidy(removed))
    return [
        entry
        for entry in entries
        if entry not in gone and entry.partition("=")[0].partition("@")[0] not in gone
    ]


def renamed(entries: Iterable[str], old: str, new: str) -> list[str]:
    """Return entries in which a group has its new name."""
    result = []
    for entry in entries:
        claim = parsed(entry)
        if claim.source == _GROUP and claim.names == (old,):
            head, value = entry.partition("=")[0], claim.value
            if claim.name == GROUPS_CLAIM:
                value = _forms(new)[_forms(old).index(value)]
            entry = f"{head}={_GROUP}:{new},{value}"
        result.append(entry)
    return result


def _forms(group: str) -> tuple[str, str, str]:
    """Return how the claim `groups` can name a group: as it is, as a path, by its last part."""
    return group, f"/{group}", group.rpartition("/")[2]


def _is_of_groups(claim: OwnClaim) -> bool:
    """Return whether a claim has only names of the person's groups, each in one of the forms."""
    if claim.source == _GROUP:
        return claim.value in _forms(claim.names[0])
    return claim.source == _GROUPS and claim.names == ("",)


def errors(entries: Sequence[str], *, has_assertions: bool = False) -> Iterable[Message]:
    """Yield why an application cannot have these claims.

    Attributes and groups are checked by the caller. `has_assertions`: it speaks SAML.
    """
    if len(entries) > MOST:
        yield Message("there are more than %(most)d entries of claims", most=MOST)
        return
    by_name: dict[str, OwnClaim] = {}
    for entry in entries:
        try:
            claim = parsed(entry)
        except ValueError:
            claim = None
        if claim is None or len(entry) > MAX_ENTRY:
            yield Message(
                "the claim %(entry)s is refused: it is not CLAIM=SOURCE with one of the sources "
                "attribute:NAME, groups:PREFIX, group:NAME,VALUE, constant:TEXT and json:VALUE",
                entry=repr(entry[:100]),
            )
            continue
        yield from _entry_errors(claim, has_assertions)
        before = by_name.setdefault(claim.name.lower(), claim)
        is_list = before.source == claim.source == _GROUP and before.places == claim.places
        if before is not claim and not (is_list and before.name == claim.name):
            yield Message(
                "the claim %(name)s is there twice; only group:NAME,VALUE can be repeated, at the "
                "same places",
                name=claim.name[:MAX_NAME],
            )


def _entry_errors(claim: OwnClaim, has_assertions: bool) -> Iterable[Message]:
    name = claim.name
    if not 0 < len(name) <= MAX_NAME or not set(name) <= _CHARACTERS:
        yield Message(
            "the claim %(name)s is refused: a name has 1 to %(most)d letters, digits and . - _ : /",
            name=repr(name[:100]),
            most=MAX_NAME,
        )
    elif name == GROUPS_CLAIM:
        if not _is_of_groups(claim):
            yield Message(
                "the claim groups is refused: it can only be groups: for all groups, or "
                "group:NAME,VALUE with the group's name, /name, or the part after its last slash "
                "as the value"
            )
    elif protocol_claim := _RESERVED.get(_skeleton(name)):
        yield Message(
            "the claim %(name)s is refused: it is, or looks like, the claim %(other)s, which this "
            "server makes itself",
            name=repr(name),
            other=protocol_claim,
        )
    if claim.places is not None and has_assertions:
        yield Message("an application that speaks SAML gets all its claims in assertions: name "
                      "no places")  # fmt: skip
    elif claim.places is not None and not claim.places <= {*PLACES}:
        yield Message(
            "the places of the claim %(name)s are none of %(places)s",
            name=repr(name[:100]),
            places=", ".join(PLACES),
        )
    is_unfit = False
    match claim.source:
        case "attribute":
            is_unfit = len(claim.names) > _MOST_ATTRIBUTES or not all(claim.names)
        case "groups":
            is_unfit = bool(claim.names[0]) and not attributes.is_line(
                claim.names[0].strip(), attributes.MAX_ITEM
            )
        case "group":
            is_unfit = not attributes.is_line(claim.value, attributes.MAX_ITEM)
        case "constant":
            is_unfit = not attributes.is_line(claim.value, MAX_ENTRY)
    if is_unfit:
        yield Message("the source of the claim %(name)s is refused", name=repr(name[:100]))


_LOOKALIKES = str.maketrans({"1": "l", "i": "l", "0": "o"} | dict.fromkeys("._:/-"))


def _skeleton(name: str) -> str:
    """Return what a name looks like at a glance: case, punctuation and similar letters are gone."""
    return name.lower().translate(_LOOKALIKES).replace("rn", "m").replace("vv", "w")


_RESERVED: Mapping[str, str] = {_skeleton(name): name for name in (*_PROTOCOL, *scopes.ALL_CLAIMS)}
