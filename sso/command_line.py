"""The commands of `flask …` and `sso …`. Each is loaded when it is run.

A server needs none of them, and all of them together take seconds to load.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from difflib import get_close_matches
from pkgutil import resolve_name
from typing import Any, cast

import click
from flask import Flask
from flask.cli import AppGroup

from sso.config.command_table import COMMANDS as COMMANDS
from sso.config.command_table import GROUPS as GROUPS


@contextmanager
def loading() -> Iterator[None]:
    """Load modules without the garbage collector: it would find nothing. 0.15 of 0.45 s of CPU."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class Lazy(click.Command):
    """A command with a name and a summary. The rest is loaded when somebody runs it."""

    def __init__(self, name: str, summary: str, target: str) -> None:
        super().__init__(name, help=summary)
        self._target = target  # module:attribute

    def load(self) -> click.Command:
        module = self._target.partition(":")[0]
        with nullcontext() if module in sys.modules else loading():
            return cast(click.Command, resolve_name(self._target))

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        # From here on click deals with the command that this context names.
        return self.load().make_context(info_name, args, parent, **extra)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return self.load().get_params(ctx)


# Entry points (see pyproject.toml): found without the application, so that `settings` and `doctor`
# run when faults keep it from starting; `demo` has one of its own.
settings_command = Lazy(
    "settings",
    "Show every setting, its value, where it came from, and every error.",
    "sso.cli.settings:settings_command",
)
demo_command = Lazy("demo", "Start a demo: server, user and sample application.",
                    "sso.demo.command:demo_command")  # fmt: skip
doctor_command = Lazy(
    "doctor",
    "Check this installation through its public URL, and say what to fix.",
    "sso.doctor.command:doctor_command",
)


class _Commands(AppGroup):
    """The application's commands. An unknown one gets a suggestion.

    click makes one of the commands of a group, but those of an application are not in Flask's.
    """

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = super().get_command(ctx, cmd_name)
        if command is None and not ctx.resilient_parsing and isinstance(ctx.command, click.Group):
            near = get_close_matches(cmd_name, ctx.command.list_commands(ctx))
            if near:
                names = " or ".join(f"'{name}'" for name in near)
                ctx.fail(f"No such command {cmd_name!r}. Did you mean {names}?")
        return command


def init_app(app: Flask) -> None:
    """Add the commands to the application."""
    app.cli = _Commands(app.name)
    for name, (summary, commands) in GROUPS.items():
        group = AppGroup(name, help=summary)
        for command, (help_line, target) in commands.items():
            group.add_command(Lazy(command, help_line, target))
        app.cli.add_command(group)
    for name, (summary, target) in COMMANDS.items():
        app.cli.add_command(Lazy(name, summary, target))
    # Here, too, for those who run it uninstalled.
    app.cli.add_command(settings_command)
