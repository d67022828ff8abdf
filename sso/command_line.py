"""`flask …` and `sso …`: what commands there are. Each is loaded when it is run.

A server has no use for them, and a command none for what the others need: all of it together takes
seconds to load.
"""

import gc
import os
import shlex
import stat
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import click
from flask import Flask
from flask.cli import AppGroup, FlaskGroup


@contextmanager
def loading() -> Iterator[None]:
    """Load modules without the garbage collector, which would find none, and then and at the exit
    look at all of them again.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class Lazy(click.Command):
    """A command (or group) that is known by its name and its summary until somebody runs it."""

    def __init__(self, name: str, summary: str, target: str) -> None:
        super().__init__(name, help=summary)
        self._target = target  # module:attribute

    def load(self) -> click.Command:
        module, _, attribute = self._target.partition(":")
        if module not in sys.modules:
            with loading():
                import_module(module)
        return cast(click.Command, getattr(sys.modules[module], attribute))

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


# By group: the group's summary, and by command its summary and where it is.
GROUPS: Mapping[str, tuple[str, Mapping[str, tuple[str, str]]]] = {
    "api-token": ("Tokens of programs that administer the server.", {
        "create": ("Create an API token; it is shown once.", "sso.cli.api_tokens:create"),
        "list": ("List all API tokens.", "sso.cli.api_tokens:list_"),
        "revoke": ("Revoke an API token; it stops at once.", "sso.cli.api_tokens:revoke"),
    }),
    "audit": ("Security events.", {
        "list": ("List security events, newest first.", "sso.cli.audit:list_"),
        "verify": ("Check that no event was changed, removed or moved.", "sso.cli.audit:verify"),
    }),
    "client": ("Applications that users sign in to.", {
        "create": ("Register an application; its secret is shown once.",
                   "sso.cli.connecting:create"),
        "presets": ("List the known applications, or show one.", "sso.cli.presets:presets"),
        "setup": ("Print the configuration of an application that was registered from a preset.",
                  "sso.cli.connecting:setup"),
        "list": ("List all applications.", "sso.cli.clients:list_"),
        "show": ("Show an application's registration and its newest grants.",
                 "sso.cli.clients:show"),
        "preview": ("Show what an application would learn about a user who signs in now, and why "
                    "not more.",
                    "sso.cli.preview:preview"),
        "update": ("Change a registration, and print what changed.", "sso.cli.clients:update"),
        "rotate-secret": ("Give an application a new secret, shown once.",
                          "sso.cli.clients:rotate_secret"),
        "disable": ("Disable an application; its tokens end at once.", "sso.cli.clients:disable"),
        "enable": ("Enable an application again; ended tokens stay ended.",
                   "sso.cli.clients:enable"),
        "delete": ("Delete an application with its tokens and consents.", "sso.cli.clients:delete"),
    }),
    "group": ("Groups of users.", {
        "list": ("List all groups, their members, and the applications that require them.",
                 "sso.cli.groups:list_"),
    }),
    "key": ("Signing keys: next, active, retired.", {
        "list": ("List all signing keys, oldest first.", "sso.cli.keys:list_"),
        "rotate": ("Make the next keys active, and publish new next keys.", "sso.cli.keys:rotate"),
        "retire": ("Replace a next key before it is used, or remove a retired key from the key "
                   "set.",
                   "sso.cli.keys:retire"),
        "reencrypt": ("Encrypt stored secrets with SSO_SECRET_KEY instead of "
                      "SSO_SECRET_KEY_PREVIOUS.",
                      "sso.cli.reencryption:reencrypt"),
    }),
    "user": ("Users, their sessions and second factors.", {
        "create": ("Create a user; asks for the password.", "sso.cli.users:create"),
        "list": ("List users, oldest first.", "sso.cli.people:list_"),
        "show": ("Show a user.", "sso.cli.people:show"),
        "update": ("Change a user, and print what changed; an empty claim is removed.",
                   "sso.cli.users:update"),
        "invite": ("Create a user, and mail a link to set the password.", "sso.cli.users:invite"),
        "set-password": ("Set a user's password; all sessions and tokens end.",
                         "sso.cli.user_access:set_password"),
        "disable": ("Disable a user; all sessions and tokens end at once.",
                    "sso.cli.users:disable"),
        "enable": ("Enable a user again; ended sessions stay ended.", "sso.cli.users:enable"),
        "delete": ("Delete a user with sessions, tokens and consents.", "sso.cli.users:delete"),
        "sessions": ("List the browsers in which a user is signed in.",
                     "sso.cli.user_access:list_sessions"),
        "sign-out": ("Sign a user out everywhere; tokens with offline_access stay valid.",
                     "sso.cli.user_access:sign_out"),
        "factors": ("List a user's second factors.", "sso.cli.user_access:list_factors"),
        "reset-factors": ("Remove all second factors of a user, and end all sessions.",
                          "sso.cli.user_access:reset_factors"),
        "enrolment-link": ("Create a link that allows a user without mail to add the first "
                           "second factor.",
                           "sso.cli.user_access:enrolment_link"),
    }),
    "webhook": ("URLs that are notified of events.", {
        "create": ("Register a webhook; its secret is shown once.", "sso.cli.webhooks:create"),
        "list": ("List all webhooks.", "sso.cli.webhooks:list_"),
        "update": ("Change a webhook, and print what changed.", "sso.cli.webhooks:update"),
        "test": ("Send a test event to a webhook, and print the answer.", "sso.cli.webhooks:test"),
        "deliveries": ("List the newest deliveries of a webhook.", "sso.cli.webhooks:deliveries"),
        "disable": ("Stop sending to a webhook; waiting deliveries are dropped.",
                    "sso.cli.webhooks:disable"),
        "enable": ("Send to a webhook again, from now on.", "sso.cli.webhooks:enable"),
        "delete": ("Delete a webhook and its deliveries.", "sso.cli.webhooks:delete"),
    }),
}  # fmt: skip

COMMANDS: Mapping[str, tuple[str, str]] = {
    "apply": ("Change clients, users and groups to match FILE, all or nothing.",
              "sso.cli.apply:apply_command"),
    "backup": ("Back everything up to FILE, an SQLite database, while the service runs.",
               "sso.cli.database:backup_command"),
    "db": ("Perform database migrations.", "sso.cli.database:group"),
    "explain": ("Say why a request was refused, by the id on its error page or in the log; without "
                "ID, list what was refused last.", "sso.cli.explain:explain_command"),
    "export": ("Write clients, users and groups to FILE (TOML, mode 0600), or print them.",
               "sso.cli.declaration:export_command"),
    "purge": ("Delete expired rows while the service runs.", "sso.cli.worker:purge_command"),
    "restore": ("Restore a backup into an empty database, with the same SSO_SECRET_KEY.",
                "sso.cli.database:restore_command"),
    "worker": ("Run the background work: mail, logout tokens, purging, key rotation.",
               "sso.cli.worker:worker_command"),
}  # fmt: skip

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


def init_app(app: Flask) -> None:
    """Give the application its commands."""
    for name, (summary, commands) in GROUPS.items():
        group = AppGroup(name, help=summary)
        for command, (help_line, target) in commands.items():
            group.add_command(Lazy(command, help_line, target))
        app.cli.add_command(group)
    for name, (summary, target) in COMMANDS.items():
        app.cli.add_command(Lazy(name, summary, target))
    # Here, too, for those who run it uninstalled.
    app.cli.add_command(settings_command)


ENVIRONMENT_FILE = "/etc/sso/environment"


def main() -> None:
    """`sso …`: the same commands as `flask …`, from any folder.

    Settings that the environment does not have come from the file in SSO_ENV_FILE.
    """
    _read_environment_file(os.environ.pop("SSO_ENV_FILE", ""))
    group = FlaskGroup(
        name="sso",
        help="A single sign-on server that you run yourself.",
        create_app=lambda: import_module("sso.wsgi").app,
        load_dotenv=False,
        add_version_option=False,
    )
    group.params.clear()  # Flask's --app and --env-file
    click.version_option(package_name="sso", message="%(version)s")(group)
    group.main(prog_name="sso")


def _read_environment_file(given: str) -> None:
    path = Path(given or ENVIRONMENT_FILE)
    try:
        with path.open(encoding="utf-8") as file:
            if os.fstat(file.fileno()).st_mode & stat.S_IROTH:
                click.echo(f"Warning: {path} is readable by everyone: chmod o-r {path}", err=True)
            values = _assignments(file.read())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        if given:
            raise SystemExit(f"Error: SSO_ENV_FILE: {path}: {reason}") from None
        if not isinstance(error, FileNotFoundError):
            click.echo(f"Warning: the settings in {path} are not used: {reason}", err=True)
        return
    for name, value in values.items():
        os.environ.setdefault(name, value)


def _assignments(text: str) -> dict[str, str]:
    """The lines NAME=value of a file that systemd reads, too (EnvironmentFile=).

    Raises `ValueError` for what is none.
    """
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, mark, value = line.strip().partition("=")
        if not name or name[0] in "#;":
            continue
        if not mark or not name.isidentifier():
            raise ValueError(f"line {number} is not NAME=value")
        quoted = value.startswith(("'", '"'))
        found[name] = "".join(shlex.split(value)) if quoted else value.strip()
    return found
