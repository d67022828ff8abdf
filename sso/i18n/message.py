"""Texts that programs read in English and people in their own language."""

from collections.abc import Iterable
from functools import reduce
from typing import Any, Self


class Message(str):
    """The English text. Pages show it by the filter `said`, in the language of the reader.

    A variable may be a `Message` itself. `pybabel extract` finds the text by the name of the class.

        Message("there is no user %(name)s", name=name)

    `for_commands`: what programs read instead, where it names options or commands. `code`: how
    programs recognize the message, whatever it says.
    """

    __slots__ = ("code", "text", "variables")
    code: str | None
    text: str
    variables: dict[str, Any]

    def __new__(
        cls,
        text: str,
        /,
        *,
        for_commands: str | None = None,
        code: str | None = None,
        **variables: Any,
    ) -> Self:
        self = super().__new__(cls, text % variables if for_commands is None else for_commands)
        self.text, self.code, self.variables = text, code, variables
        return self

    def __getnewargs_ex__(self) -> tuple[tuple[str], dict[str, Any]]:  # copies and pickles
        options = {"for_commands": str(self), "code": self.code}
        return (self.text,), {**self.variables, **options}


def code_of(text: object) -> str | None:
    """Return the code of a `Message`; `None` if there is none, or if it is another text."""
    return text.code if isinstance(text, Message) else None


class Quote(str):
    """A variable of a `Message`: what another program says. Pages mark it as English."""

    __slots__ = ()


def joined(pair: str, parts: Iterable[Message]) -> Message:
    """Join several messages into one; `pair` is the text, marked with `N_`, that joins two."""
    return reduce(lambda message, other: Message(pair, one=message, other=other), parts)
