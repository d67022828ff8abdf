"""Texts that programs read in English and people in their own language."""

from collections.abc import Iterable
from functools import reduce
from typing import Any, Self


class Message(str):
    """The English text. Pages show it by the filter `said`, in the language of the reader.

    A variable may be a `Message` itself. `pybabel extract` finds the text by the name of the class.

        Message("there is no user %(name)s", name=name)

    `for_commands`: what programs read instead, where it names options or commands.
    """

    __slots__ = ("text", "variables")
    text: str
    variables: dict[str, Any]

    def __new__(cls, text: str, /, *, for_commands: str | None = None, **variables: Any) -> Self:
        self = super().__new__(cls, text % variables if for_commands is None else for_commands)
        self.text, self.variables = text, variables
        return self

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, Any]]:  # copies and pickles
        return (self.text,), {**self.variables, "for_commands": str(self)}


class Quote(str):
    """A variable of a `Message`: what another program says. Pages mark it as English."""

    __slots__ = ()


def joined(pair: str, parts: Iterable[Message]) -> Message:
    """One message of several; `pair` is the text, marked with `N_`, of `one` and the `other`."""
    return reduce(lambda one, other: Message(pair, one=one, other=other), parts)
