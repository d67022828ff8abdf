"""SCIM filters (RFC 7644 §3.4.2.2) as SQL conditions.

The library parses filters, and limits their depth. This module limits their length, the number of
comparisons, and the number of comparisons that read every row; among many people it refuses a
filter that no index answers. Each value becomes a bound parameter.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from scim2_models import InvalidFilterException, ScimFilter, TooManyException
from scim2_models.path import (
    AttrPath,
    Comparison,
    FilterNode,
    FilterVisitor,
    LogicalExpr,
    LogicalOperator,
    Not,
    Present,
    ValuePath,
)
from sqlalchemy import ColumnElement, and_, false, func, not_, or_, true

from sso.database.dialects import begins
from sso.models import Group, User
from sso.models.users import folded
from sso.store import scim_resources
from sso.store import users as stored_users

LONGEST = 2000  # characters
MOST_COMPARISONS = 40
MOST_SLOW = 4  # comparisons that no index answers
MOST_READ = 50_000  # people who are looked through for a filter that no index answers
Condition = ColumnElement[bool]


class _Attribute(NamedTuple):
    """The comparisons of an attribute. `equals` uses an index; the others read every row, unless
    one of `searched` has a trigram index.
    """

    equals: Callable[[Any], Condition] | None = None
    text: Any = None  # the column for co, sw, ew, ne
    searched: tuple[Any, ...] = ()  # the columns that hold this text, as `key` writes it
    key: Callable[[str], str] = str.lower
    beginning: Any = None  # the column whose index finds the beginning of a text
    is_switch: bool = False  # `equals` finds many rows
    is_exact: bool = False  # whether case matters
    moment: Any = None  # the model whose time of change is compared
    is_set: Condition | None = None


_EMAIL = _Attribute(
    lambda text: User.email == text.casefold(), User.email, searched=(User.email,),
    beginning=User.email, is_set=true(),
)  # fmt: skip
_NAME = _Attribute(text=User.name, searched=(User.name_key,), key=folded, is_set=true())
_USER: Mapping[str, _Attribute] = {
    "id": _Attribute(lambda text: scim_resources.has_id(User, text), is_set=true()),
    "username": _Attribute(
        scim_resources.has_user_name, scim_resources.USER_NAME,
        searched=(User.user_name, User.email), is_set=true(),
    ),
    "externalid": _Attribute(
        lambda text: User.external_id == text, User.external_id, is_exact=True,
        is_set=User.external_id.is_not(None),
    ),
    "displayname": _NAME,
    "name.formatted": _NAME,
    "emails": _EMAIL,
    "emails.value": _EMAIL,
    "active": _Attribute(
        lambda value: stored_users.enabled() if value else ~stored_users.enabled(),
        is_switch=True, is_set=true(),
    ),
    "groups": _Attribute(scim_resources.is_member_of),
    "groups.value": _Attribute(scim_resources.is_member_of),
    "meta.lastmodified": _Attribute(moment=User, is_set=true()),
}  # fmt: skip
_GROUP: Mapping[str, _Attribute] = {
    "id": _Attribute(lambda text: scim_resources.has_id(Group, text), is_set=true()),
    "displayname": _Attribute(text=Group.name, is_set=true()),
    "externalid": _Attribute(
        lambda text: Group.external_id == text, Group.external_id, is_exact=True,
        is_set=Group.external_id.is_not(None),
    ),
    "members": _Attribute(scim_resources.has_as_member),
    "members.value": _Attribute(scim_resources.has_as_member),
    "meta.lastmodified": _Attribute(moment=Group, is_set=true()),
}  # fmt: skip


_PARTS = {"co": "contains", "sw": "startswith", "ew": "endswith"}
_TRIGRAM = re.compile(r"[^\W_]{3}")  # without one, PostgreSQL would read the whole index
_UNCLEAN = re.compile("[\x00\ud800-\udfff]")  # characters that no database stores


def condition(model: type[User] | type[Group], text: str | None) -> Condition | None:
    """Translate a filter to a condition. Raises `InvalidFilterException` and `TooManyException`."""
    if text is None:
        return None
    if len(text) > LONGEST:
        raise too_long()
    translator = _Translator(_USER if model is User else _GROUP)
    clause = translator.visit(ScimFilter(text).ast)
    if translator.slow and not clause.is_narrow and scim_resources.are_more_than(MOST_READ):
        raise TooManyException(detail=_TOO_MANY)
    # A part that nearly all have, such as "com", is found by the index as well.
    if translator.has_parts and scim_resources.are_more_than(MOST_READ, clause.condition):
        raise TooManyException(detail=_TOO_COMMON)
    return clause.condition


_TOO_MANY = (
    "this filter would look through all people, who are too many: compare userName, emails or "
    "externalId by eq, or emails by sw. With the index of trigrams (PostgreSQL), co, sw and ew "
    "find three letters or digits next to each other in userName, emails and displayName"
)


_TOO_COMMON = "this filter finds too many people: compare a longer part, which few people have"


def too_long() -> InvalidFilterException:
    return _refused(f"the filter is longer than {LONGEST} characters")


def _refused(detail: str) -> InvalidFilterException:
    return InvalidFilterException(detail=detail)


class _Clause(NamedTuple):
    """A condition; `is_narrow`: an index finds the rows that may meet it, which are few."""

    condition: Condition
    is_narrow: bool = False


class _Translator(FilterVisitor[_Clause]):
    def __init__(self, attributes: Mapping[str, _Attribute]) -> None:
        self.attributes = attributes
        self._has_trigrams: bool | None = None
        self.has_parts = False  # compares parts of texts that an index finds
        self.prefix = ""  # within the brackets of a value path
        self.comparisons = self.slow = 0

    def visit_logical_expr(self, node: LogicalExpr) -> _Clause:
        clauses = [self.visit(term) for term in node.terms]
        conditions = [clause.condition for clause in clauses]
        if node.op == LogicalOperator.and_:
            return _Clause(and_(*conditions), any(clause.is_narrow for clause in clauses))
        return _Clause(or_(*conditions), all(clause.is_narrow for clause in clauses))

    def visit_not(self, node: Not) -> _Clause:
        return _Clause(_not(self.visit(node.expr).condition))

    def visit_present(self, node: Present) -> _Clause:
        self._count()
        condition = self._attribute(node.attr_path).is_set
        if condition is None:
            raise self._unsupported(node)
        return _Clause(condition)

    def visit_value_path(self, node: ValuePath) -> _Clause:
        """Translate `emails[…]` and `members[…]`, which compare the attribute `value`."""
        self.prefix = _name(node.attr_path)
        if f"{self.prefix}.value" not in self.attributes:
            raise self._unsupported(node)
        clause = self.visit(node.val_filter)
        self.prefix = ""
        return clause

    def visit_comparison(self, node: Comparison) -> _Clause:
        self._count()
        if self.prefix == "emails" and _name(node.attr_path) in ("type", "primary"):
            # Only one email address is searched, whatever its type is.
            return _Clause(true())
        attribute, operator, value = self._attribute(node.attr_path), node.op.value, node.value
        if isinstance(value, str) and _UNCLEAN.search(value):
            raise _refused("a value has characters that no attribute can have")
        if attribute.moment and operator in ("gt", "ge", "lt", "le"):
            return _Clause(
                scim_resources.changed_at(attribute.moment, operator, self._moment(node))
            )
        if operator == "eq":
            return self._equals(node, attribute, value)
        if operator == "ne":
            return _Clause(_not(self._equals(node, attribute, value).condition))
        if attribute.text is None or operator not in _PARTS or not isinstance(value, str):
            raise self._unsupported(node)
        return self._contains(attribute, operator, value)

    def _equals(self, node: Comparison, attribute: _Attribute, value: Any) -> _Clause:
        if attribute.is_switch:
            if isinstance(value, str) and value.casefold() in ("true", "false"):
                value = value.casefold() == "true"
            if not isinstance(value, bool):
                raise self._unsupported(node)
        elif not isinstance(value, str):
            raise self._unsupported(node)
        if attribute.equals:
            return _Clause(attribute.equals(value), not attribute.is_switch)
        if attribute.text is None:
            raise self._unsupported(node)
        condition: Condition = func.lower(attribute.text) == func.lower(value)
        if attribute.searched:
            (column,) = attribute.searched  # it has an index
            return _Clause(and_(column == attribute.key(value), condition), True)
        self._count_slow()
        return _Clause(condition)

    def _contains(self, attribute: _Attribute, operator: str, value: str) -> _Clause:
        """Compare a part of a text. An index finds candidates, where one does."""
        part = _PARTS[operator]
        name = part if attribute.is_exact else f"i{part}"
        condition: Condition = getattr(attribute.text, name)(value, autoescape=True)
        key = attribute.key(value)
        if operator == "sw" and attribute.beginning is not None and key:
            self.has_parts = True
            return _Clause(and_(begins(attribute.beginning, key), condition), True)
        if attribute.searched and _TRIGRAM.search(key) and self._finds_parts():
            self.has_parts = True
            columns = [getattr(column, part)(key, autoescape=True) for column in attribute.searched]
            return _Clause(and_(or_(*columns), condition), True)
        self._count_slow()
        return _Clause(condition)

    def _finds_parts(self) -> bool:
        if self._has_trigrams is None:
            self._has_trigrams = scim_resources.has_trigrams()
        return self._has_trigrams

    def _attribute(self, path: AttrPath) -> _Attribute:
        name = _name(path)
        if self.prefix:
            name = f"{self.prefix}.{name}"
        if name not in self.attributes:
            names = ", ".join(sorted(self.attributes))
            raise _refused(f"no filter by {str(path)[:100]}; there are: {names}")
        return self.attributes[name]

    def _moment(self, node: Comparison) -> datetime:
        try:
            moment = datetime.fromisoformat(node.value)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
        except (TypeError, ValueError, OverflowError):
            raise self._unsupported(node) from None

    def _count(self) -> None:
        self.comparisons += 1
        if self.comparisons > MOST_COMPARISONS:
            raise _refused(f"the filter has more than {MOST_COMPARISONS} comparisons")

    def _count_slow(self) -> None:
        self.slow += self.attributes is _USER
        if self.slow > MOST_SLOW:
            raise _refused(f"the filter has more than {MOST_SLOW} comparisons without an index")

    def _unsupported(self, node: FilterNode) -> InvalidFilterException:
        return _refused(f"this comparison is not supported: {str(node)[:200]}")


def _not(condition: Condition) -> Condition:
    return not_(func.coalesce(condition, false()))  # unknown counts as false


def _name(path: AttrPath) -> str:
    """Return the name in lower case, without the URN of the resource's own schema."""
    uri = (path.uri or "").casefold()
    if uri and not uri.endswith((":core:2.0:user", ":core:2.0:group")):
        return f"{uri}:{path.attr}".casefold()
    return (f"{path.attr}.{path.sub_attr}" if path.sub_attr else path.attr).casefold()
