"""What commands tell in one line instead of a traceback."""


class OperatorError(Exception):
    """What an operator asked for cannot be done; `str()` says why, and what to do."""
