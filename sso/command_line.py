"""`flask …`: the commands are loaded when one is asked for.

A server has no use for them, nor for the 18 MB that they and Alembic take.
"""

from collections.abc import Callable

import click
from flask import Flask
from flask.cli import AppGroup


class Commands(AppGroup):
    """The application's group, which fills itself at its first use."""

    def __init__(self, fill: Callable[[], None]) -> None:
        super().__init__()
        self._fill: Callable[[], None] | None = fill

    def list_commands(self, ctx: click.Context) -> list[str]:
        self._filled()
        return super().list_commands(ctx)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        self._filled()
        return super().get_command(ctx, cmd_name)

    def _filled(self) -> None:
        fill, self._fill = self._fill, None
        if fill:
            fill()


def init_app(app: Flask) -> None:
    """Put the group in the place of Flask's own."""

    def fill() -> None:
        from sso import cli  # here, so that a server never loads it

        cli.init_app(app)

    app.cli = Commands(fill)
