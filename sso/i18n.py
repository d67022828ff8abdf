"""Marks words for translation where they stand; they are translated where they are shown."""


def N_(text: str) -> str:
    """The text itself; `pybabel extract` finds it by this name."""
    return text
