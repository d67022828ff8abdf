"""Options that change a list: `--add-…`, `--remove-…`, and `--set-…` for the whole of it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import click

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]


@dataclass(frozen=True)
class ListOption:
    """A list that an update changes; `field` is what views and metadata call it."""

    field: str
    singular: str
    plural: str
    metavar: str
    may_be_empty: bool = True
    has_spaces: bool = False  # else one text may hold several values, with spaces between them
    former: tuple[str, ...] = ()  # options that once replaced the list without saying so

    def options(self) -> tuple[Decorator, ...]:
        add, remove, whole = self.names
        name = self.singular.replace("-uri", " URI").replace("logout-", "logout ")
        emptied = '; "" leaves none.' if self.may_be_empty else "."
        return (
            click.option(add, f"add_{self.field}", multiple=True, metavar=self.metavar,
                         help=f"Add a {name}. May be repeated."),
            click.option(remove, f"remove_{self.field}", multiple=True, metavar=self.metavar,
                         help=f"Remove a {name}. May be repeated."),
            click.option(whole, f"set_{self.field}", multiple=True, metavar=self.metavar,
                         help=f"Replace them all. May be repeated{emptied}"),
            *(self._refused(name) for name in self.former),
        )  # fmt: skip

    @property
    def names(self) -> tuple[str, str, str]:
        return f"--add-{self.singular}", f"--remove-{self.singular}", f"--set-{self.plural}"

    def edit(self, options: dict[str, Any]) -> "ListEdit | None":
        """Take this list's options out. Raises `UsageError` if they contradict one another."""
        added, removed, whole = (
            self._values(options.pop(f"{verb}_{self.field}")) for verb in ("add", "remove", "set")
        )
        if whole is not None and (added is not None or removed is not None):
            add, remove, replace = self.names
            raise click.UsageError(f"{replace} replaces the list: leave {add} and {remove} off.")
        if both := set(added or ()) & set(removed or ()):
            raise click.UsageError(f"{sorted(both)[0]!r} is to be both added and removed.")
        if added is removed is whole is None:
            return None
        return ListEdit(tuple(added or ()), tuple(removed or ()), whole)

    def _values(self, given: Sequence[str]) -> tuple[str, ...] | None:
        if not given:
            return None
        values = given if self.has_spaces else [word for text in given for word in text.split()]
        return tuple(dict.fromkeys(value for value in values if value))

    def _refused(self, name: str) -> Decorator:
        add, remove, whole = self.names
        is_flag = name.startswith("--no-")

        def refuse(_: click.Context, __: click.Parameter, value: object) -> None:
            if value:
                hint = f'use {whole} ""' if is_flag else f"use {whole} for that"
                raise click.UsageError(
                    f"{name} would replace the whole list; {hint}, "
                    f"or {add} and {remove} to change it."
                )

        return click.option(name, hidden=True, expose_value=False, callback=refuse, is_flag=is_flag)


@dataclass(frozen=True)
class ListEdit:
    """What is to be done to a list."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    whole: tuple[str, ...] | None = None

    def applied_to(self, current: Sequence[str]) -> list[str]:
        if self.whole is not None:
            return list(self.whole)
        kept = [value for value in current if value not in self.removed]
        return list(dict.fromkeys([*kept, *self.added]))

    def without_effect(self, current: Sequence[str]) -> list[str]:
        """Why parts of it change nothing, a sentence each."""
        return [
            *(f"{value} is there already." for value in self.added if value in current),
            *(f"{value} is not there." for value in self.removed if value not in current),
        ]


def with_options(*lists: ListOption) -> Decorator:
    """A decorator that adds the options of these lists."""
    return lambda function: decorated(function, chain.from_iterable(one.options() for one in lists))


def decorated(function: Function, options: Iterable[Decorator]) -> Function:
    """The function with options, in the order in which help lists them."""
    for option in reversed(list(options)):
        function = option(function)
    return function
