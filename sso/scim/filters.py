"""SCIM filters (RFC 7644 §3.4.2.2) as SQL conditions.

The library parses filters, and limits their depth. This module limits their length, the number of
comparisons, and the number of comparisons that read every row. Each value becomes a bound
parameter.
"""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from scim2_models import InvalidFilterException, ScimFilter
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

from sso.models import Group, User
from sso.store import users

LONGEST = 2000  # characters
MOST_COMPARISONS = 40
MOST_SLOW = 4  # comparisons that no index answers
Condition = ColumnElement[bool]


class _Attribute(NamedTuple):
    """The comparisons of an attribute. `equals` uses an index; the others read every row."""

    equals: Callable[[Any], Condition] | None = None
    text: Any = None  # the column for co, sw, ew, ne
    is_exact: bool = False  # whether case matters
    moment: Any = None  # the model whose time of change is compared
    is_set: Condition | None = None


_EMAIL = _Attribute(lambda text: User.email == text.casefold(), User.email, is_set=true())
_NAME = _Attribute(text=User.name, is_set=true())
_USER: Mapping[str, _Attribute] = {
    "id": _Attribute(lambda text: users.has_id(User, text), is_set=true()),
    "username": _Attribute(users.has_user_name, users.USER_NAME, is_set=true()),
    "externalid": _Attribute(
        lambda text: User.external_id == text, User.external_id, True,
        is_set=User.external_id.is_not(None),
    ),
    "displayname": _NAME,
    "name.formatted": _NAME,
    "emails": _EMAIL,
    "emails.value": _EMAIL,
    "active": _Attribute(
        lambda value: users.enabled() if value else ~users.enabled(),
        is_set=true(),
    ),
    "groups": _Attribute(users.is_member_of),
    "groups.value": _Attribute(users.is_member_of),
    "meta.lastmodified": _Attribute(moment=User, is_set=true()),
}  # fmt: skip
_GROUP: Mapping[str, _Attribute] = {
    "id": _Attribute(lambda text: users.has_id(Group, text), is_set=true()),
    "displayname": _Attribute(text=Group.name, is_set=true()),
    "externalid": _Attribute(
        lambda text: Group.external_id == text, Group.external_id, True,
        is_set=Group.external_id.is_not(None),
    ),
    "members": _Attribute(users.has_as_member),
    "members.value": _Attribute(users.has_as_member),
    "meta.lastmodified": _Attribute(moment=Group, is_set=true()),
}  # fmt: skip


_PARTS = {"co": "contains", "sw": "startswith", "ew": "endswith"}
_UNCLEAN = re.compile("[\x00\ud800-\udfff]")  # characters that no database stores


def condition(model: type[User] | type[Group], text: str | None) -> Condition | None:
    """Translate a filter to a condition. Raises `InvalidFilterException`."""
    if text is None:
        return None
    if len(text) > LONGEST:
        raise too_long()
    return _Translator(_USER if model is User else _GROUP).visit(ScimFilter(text).ast)


def too_long() -> InvalidFilterException:
    return _refused(f"the filter is longer than {LONGEST} characters")


def _refused(detail: str) -> InvalidFilterException:
    return InvalidFilterException(detail=detail)


class _Translator(FilterVisitor[Condition]):
    def __init__(self, attributes: Mapping[str, _Attribute]) -> None:
        self.attributes = attributes
        self.prefix = ""  # within the brackets of a value path
        self.comparisons = self.slow = 0

    def visit_logical_expr(self, node: LogicalExpr) -> Condition:
        join = and_ if node.op == LogicalOperator.and_ else or_
        return join(*[self.visit(term) for term in node.terms])

    def visit_not(self, node: Not) -> Condition:
        return not_(func.coalesce(self.visit(node.expr), false()))  # unknown counts as false

    def visit_present(self, node: Present) -> Condition:
        self._count()
        clause = self._attribute(node.attr_path).is_set
        if clause is None:
            raise self._unsupported(node)
        return clause

    def visit_value_path(self, node: ValuePath) -> Condition:
        """Translate `emails[…]` and `members[…]`, which compare the attribute `value`."""
        self.prefix = _name(node.attr_path)
        if f"{self.prefix}.value" not in self.attributes:
            raise self._unsupported(node)
        clause = self.visit(node.val_filter)
        self.prefix = ""
        return clause

    def visit_comparison(self, node: Comparison) -> Condition:
        self._count()
        if self.prefix == "emails" and _name(node.attr_path) in ("type", "primary"):
            # Only one email address is searched, whatever its type is.
            return true()
        attribute, operator, value = self._attribute(node.attr_path), node.op.value, node.value
        if isinstance(value, str) and _UNCLEAN.search(value):
            raise _refused("a value has characters that no attribute can have")
        if attribute.moment and operator in ("gt", "ge", "lt", "le"):
            return users.changed_at(attribute.moment, operator, self._moment(node))
        if operator in ("eq", "ne"):
            clause = self._equals(node, attribute, value)
            return clause if operator == "eq" else not_(func.coalesce(clause, false()))
        if attribute.text is None or not isinstance(value, str):
            raise self._unsupported(node)
        self._count_slow()
        return self._contains(attribute, operator, value, node)

    def _equals(self, node: Comparison, attribute: _Attribute, value: Any) -> Condition:
        if _name(node.attr_path) == "active" and not self.prefix:
            if isinstance(value, str) and value.casefold() in ("true", "false"):
                value = value.casefold() == "true"
            if not isinstance(value, bool):
                raise self._unsupported(node)
        elif not isinstance(value, str):
            raise self._unsupported(node)
        if attribute.equals:
            return attribute.equals(value)
        if attribute.text is None:
            raise self._unsupported(node)
        self._count_slow()
        clause: Condition = func.lower(attribute.text) == func.lower(value)
        return clause

    def _contains(
        self, attribute: _Attribute, operator: str, value: str, node: Comparison
    ) -> Condition:
        if operator not in _PARTS:
            raise self._unsupported(node)
        name = _PARTS[operator] if attribute.is_exact else f"i{_PARTS[operator]}"
        clause: Condition = getattr(attribute.text, name)(value, autoescape=True)
        return clause

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


def _name(path: AttrPath) -> str:
    """Return the name in lower case, without the URN of the resource's own schema."""
    uri = (path.uri or "").casefold()
    if uri and not uri.endswith((":core:2.0:user", ":core:2.0:group")):
        return f"{uri}:{path.attr}".casefold()
    return (f"{path.attr}.{path.sub_attr}" if path.sub_attr else path.attr).casefold()
