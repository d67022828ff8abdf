"""What can be wrong with a preset, or with what was given for it."""

from collections.abc import Sequence

from sso.errors import OperatorError


class PresetError(OperatorError, ValueError):
    """`errors` has one line for each reason."""

    def __init__(self, errors: Sequence[str]) -> None:
        super().__init__("; ".join(errors))
        self.errors = list(errors)
