"""Each service asks for the permission that the table names, before anything else."""

from collections.abc import Callable, Iterator
from importlib import import_module
from inspect import signature
from pkgutil import iter_modules
from typing import Any

import pytest

import sso.services
from sso import audit
from sso.audit import Actor
from sso.errors import NotAllowed
from sso.flow.permissions import (
    ADMIN,
    HELPDESK,
    LIMITABLE,
    LIMITABLE_TO_APPLICATIONS,
    LIMITED_SERVICES,
    MEANINGS,
    ROLES,
    SERVICES,
    Permission,
)
from tests.support.each import each

HELD: dict[str, frozenset[Permission] | None] = {
    "operator": None,
    "nobody": frozenset(),
    **ROLES,
    **{permission: frozenset({permission}) for permission in Permission},
}


def use_cases() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every service with an actor, by module and name."""
    for entry in iter_modules(sso.services.__path__):
        module = import_module(f"sso.services.{entry.name}")
        for name, function in vars(module).items():
            if (
                getattr(function, "__module__", "") == module.__name__
                and hasattr(function, "__wrapped__")
                and next(iter(signature(function).parameters), "") == "actor"
            ):
                yield f"{entry.name}.{name}", function


USE_CASES = dict(use_cases())


def test_the_table_has_every_service() -> None:
    assert USE_CASES.keys() == SERVICES.keys()


def test_every_permission_has_a_meaning() -> None:
    assert MEANINGS.keys() == set(Permission)


def test_what_roles_may() -> None:
    assert ROLES[ADMIN] == set(Permission)
    assert ROLES[HELPDESK] == {Permission.READ_PEOPLE, Permission.SUPPORT_PEOPLE}


@each("name", USE_CASES)
def test_who_may_call_it(name: str) -> None:
    """A keyword that no service takes ends the call right after the check."""
    for who, held in HELD.items():
        is_allowed = held is None or not SERVICES[name] or bool(held.intersection(SERVICES[name]))
        refused = TypeError if is_allowed else NotAllowed
        with pytest.raises((TypeError, NotAllowed)) as error:
            USE_CASES[name](Actor("olga", permissions=held), no_such_argument=True)
        assert error.type is refused, who


@each("name", USE_CASES)
def test_who_may_call_it_with_a_limit(name: str) -> None:
    """Only a service that asks for whom the permission holds; all others refuse it."""
    for permission in Permission:
        is_allowed = not SERVICES[name] or permission in LIMITED_SERVICES.get(name, ())
        limits = {permission: frozenset({"paris"})}
        actor = Actor("olga", permissions=frozenset(), limits=limits)
        if permission in LIMITABLE_TO_APPLICATIONS:
            actor = Actor("olga", permissions=frozenset(), applications=limits)
        with pytest.raises((TypeError, NotAllowed)) as error:
            USE_CASES[name](actor, no_such_argument=True)
        assert error.type is (TypeError if is_allowed else NotAllowed), permission


def test_what_may_be_limited() -> None:
    assert LIMITED_SERVICES.keys() <= SERVICES.keys()
    for name, limited in LIMITED_SERVICES.items():
        assert LIMITABLE.issuperset(limited) or LIMITABLE_TO_APPLICATIONS.issuperset(limited)
        assert set(limited) <= set(SERVICES[name]), name


def test_a_service_that_the_table_lacks_is_refused() -> None:
    @audit.acting
    def unlisted(actor: Actor) -> str:
        return "done"

    assert unlisted(Actor("olga")) == "done"
    with pytest.raises(NotAllowed):
        unlisted(Actor("olga", permissions=frozenset(Permission)))
