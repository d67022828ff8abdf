"""`flask db`: Flask-Migrate's commands; `upgrade` makes the first signing keys, too."""

from copy import copy
from typing import Any

import click
from flask import current_app
from flask.cli import with_appcontext
from flask_migrate.cli import db as migrate_group

from sso import context
from sso.cli.commands import Command, confirm, json_option, yes_option
from sso.cli.moving import copy_command
from sso.cli.output import print_json, print_line
from sso.database import migrating, schema
from sso.extensions import db
from sso.jobs import key_rotation


@with_appcontext
def _bind(**options: Any) -> None:
    migrating.bind(current_app)
    migrate_group.callback(**options)


def _made() -> click.Group:
    """Our commands and Flask-Migrate's; its own group is everybody's and stays as it is."""
    group: click.Group = copy(migrate_group)
    group.callback = _bind
    group.commands = {
        **{name: _for_developers(command) for name, command in migrate_group.commands.items()},
        **{name: migrate_group.commands[name] for name in ("current", "history", "check")},
        "upgrade": _upgrade_command(),
        "downgrade": _downgrade_command(),
        "copy": copy_command,
    }
    return group


def _for_developers(command: click.Command) -> click.Command:
    """They make migrations: anyone who runs a server has no use for them."""
    hidden = copy(command)
    hidden.hidden = True
    return hidden


def _downgrade_command() -> click.Command:
    original = migrate_group.commands["downgrade"]

    @yes_option
    @with_appcontext
    def downgrade(yes: bool, **options: Any) -> None:
        confirm(
            f"Take back what came after the schema {options['revision']}, with all rows of it "
            f"(the database is at {_revision()})?",
            yes,
        )
        original.callback(**options)
        print_line(f"The database is at {_revision()}.")

    declared = getattr(downgrade, "__click_params__", [])
    return Command(
        "downgrade",
        params=[*original.params, *declared],
        callback=downgrade,
        help="Go back to an older schema. What the newer one held is lost: back up first.",
    )


def _upgrade_command() -> click.Command:
    original = migrate_group.commands["upgrade"]

    @json_option
    @with_appcontext
    def upgrade(as_json: bool, **options: Any) -> None:
        original.callback(**options)
        if options["sql"]:
            return
        # An older schema may not have the table of keys.
        whole = options["revision"] in ("head", "heads")
        made = whole and key_rotation.ensure_keys(context.settings().secret_keys)
        context.forget_keys()
        if as_json:
            print_json({"revision": _revision(), "keys_made": made})
        else:
            keys = "made the first signing keys" if made else "the signing keys are there"
            print_line(f"The database is at {_revision()}" + (f"; {keys}." if whole else "."))

    # click collects the option that json_option declared in this list.
    declared = getattr(upgrade, "__click_params__", [])
    return Command(
        "upgrade", params=[*original.params, *declared], callback=upgrade, help=original.help
    )


def _revision() -> str | None:
    with db.engine.connect() as connection:
        return schema.revision(connection)


group = _made()
