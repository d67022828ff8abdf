"""Exceptions for operators: commands print their text instead of a traceback."""


class OperatorError(Exception):
    """A command cannot do what was asked; `str()` gives the reason and the remedy."""


class NotAllowed(OperatorError):
    """The actor may not do this. `reason` is for pages, and translated where it is shown."""

    def __init__(self, reason: str, hint: str = "") -> None:
        super().__init__(reason + hint)
        self.reason = reason


class SettingsError(Exception):
    """The settings are invalid; `errors` holds one line for each problem, with its remedy."""

    def __init__(self, errors: list[str]) -> None:
        super().__init__("\n".join(errors))
        self.errors = errors
