"""`flask migrate`: take over another server, again and again until the evening of the move."""

from collections.abc import Mapping
from pathlib import Path

import click

from sso import context
from sso.cli import migration
from sso.cli.commands import Failure, Group, named_texts, resolve
from sso.cli.migration import Choices
from sso.imports import auth0 as auth0_system
from sso.imports import authelia as authelia_system
from sso.imports import authentik as authentik_system
from sso.imports import better_auth as better_auth_system
from sso.imports import keycloak as keycloak_system
from sso.imports import keycloak_realm
from sso.imports import pocket_id as pocket_id_system
from sso.imports.better_auth_secrets import Secrets
from sso.imports.databases import Source
from sso.imports.drafts import Answers
from sso.imports.files import Advance
from sso.imports.keycloak_credentials import Here
from sso.imports.keycloak_realm import RP_IDS, Realm
from sso.imports.person import text
from sso.imports.system import System
from sso.mfa import passkeys
from sso.process.program import COMMAND
from sso.services.importing import MOST_METHODS

group = Group("migrate")


@group.command("keycloak")
@migration.options
@click.option(
    "--rp-id", metavar="HOST",
    help="The host name of Keycloak, to which its passkeys are bound; they are taken if this "
    "server has the same.",
)  # fmt: skip
@click.option(
    "--provider", "providers", metavar="ALIAS=ID", multiple=True,
    help="The sign-in provider here that an identity provider there is, to take people's links.",
)  # fmt: skip
def keycloak(
    choices: Choices, paths: tuple[Path, ...], rp_id: str | None, providers: tuple[str, ...]
) -> None:
    """Take over clients, groups, roles and people of a Keycloak realm.

    FILE is what `kc.sh export` writes; several, if it wrote several. The command can be repeated:
    it brings what changed there since, and does not overwrite what changed here.
    """

    def read(advance: Advance, answers: Answers) -> System:
        realm = keycloak_realm.read(paths, advance)
        here = _here(realm, rp_id, named_texts(providers, "provider"))
        return keycloak_system.system(paths, realm, answers, here, advance, MOST_METHODS)

    migration.run(choices, paths, read)


@group.command("auth0")
@migration.options
def auth0(choices: Choices, paths: tuple[Path, ...]) -> None:
    """Take over clients of Auth0.

    FILE is what the Management API answers to GET /api/v2/clients, or what the Deploy CLI exports
    with --export_ids=true. People come from another export: see `user import auth0`. The command
    can be repeated: it brings what changed there since, and does not overwrite what changed here.
    """
    if choices.issuer:
        raise click.UsageError(
            "--issuer: this server does not answer at the addresses of Auth0; change the issuer in "
            "the applications"
        )

    def read(advance: Advance, answers: Answers) -> System:
        return auth0_system.system(paths, answers, advance)

    migration.run(choices, paths, read)


@group.command("authelia")
@migration.options
@click.option(
    "--encryption-key", metavar="env:NAME",
    help="The key of Authelia's storage, unless it is in the configuration; or file:PATH.",
)  # fmt: skip
def authelia(choices: Choices, paths: tuple[Path, ...], encryption_key: str | None) -> None:
    """Take over clients, groups and people of Authelia.

    FILE is its configuration, its users file, its SQLite database, or what `authelia storage user`
    exports: all that there are. The command can be repeated: it brings what changed there since,
    and does not overwrite what changed here.
    """
    key = resolve(encryption_key) if encryption_key else ""

    def read(advance: Advance, answers: Answers) -> System:
        return authelia_system.system(paths, answers, advance, passkeys.rp_id(), key)

    migration.run(choices, paths, read)


@group.command("authentik")
@migration.options
def authentik(choices: Choices, paths: tuple[Path, ...]) -> None:
    """Take over clients, groups and people of authentik.

    FILE is a blueprint export, rows of its tables, or answers of its API: all that there are. With
    --issuer, name the address of authentik: each client keeps the issuer of its application. The
    command can be repeated: it brings what changed there since, and does not overwrite what
    changed here.
    """

    def read(advance: Advance, answers: Answers) -> System:
        return authentik_system.system(paths, answers, advance, passkeys.rp_id())

    migration.run(choices, paths, read)


@group.command("pocket-id")
@migration.database_options
@click.option(
    "--rp-id", metavar="HOST",
    help="The host name of Pocket ID, to which its passkeys are bound; they are taken if this "
    "server has the same.",
)  # fmt: skip
def pocket_id(choices: Choices, database: Source, rp_id: str | None) -> None:
    """Take over clients, groups and people of Pocket ID.

    FILE is its SQLite database, URL that of PostgreSQL, or env:NAME if it has a password. The
    command can be repeated: it brings what changed there since, and does not overwrite what
    changed here.
    """

    def read(advance: Advance, answers: Answers) -> System:
        return pocket_id_system.system(database, answers, advance, _is_own_host(rp_id))

    migration.run(choices, [database], read)


@group.command("better-auth")
@migration.database_options
@click.option(
    "--auth-secret", "auth_secrets", metavar="env:NAME", multiple=True,
    help="BETTER_AUTH_SECRET, or an earlier one: it decrypts authenticator apps, backup codes and "
    "client secrets; or file:PATH.",
)  # fmt: skip
@click.option(
    "--rp-id", metavar="HOST",
    help="The rpID of its passkeys, a host name; they are taken if this server has the same.",
)  # fmt: skip
@click.option(
    "--provider", "providers", metavar="NAME=ID", multiple=True,
    help="The sign-in provider here that a social provider there is, to take people's links.",
)  # fmt: skip
def better_auth(
    choices: Choices,
    database: Source,
    auth_secrets: tuple[str, ...],
    rp_id: str | None,
    providers: tuple[str, ...],
) -> None:
    """Take over clients, roles and people of better-auth.

    FILE is its SQLite database, URL that of PostgreSQL, or env:NAME if it has a password. The
    command can be repeated: it brings what changed there since, and does not overwrite what
    changed here.
    """
    if choices.issuer:
        raise click.UsageError(
            "--issuer: this server does not answer at the addresses of better-auth; change the "
            "issuer in the applications"
        )
    here = better_auth_system.Here(
        _is_own_host(rp_id),
        Secrets(resolve(reference) for reference in auth_secrets),
        {alias: _provider(name) for alias, name in named_texts(providers, "provider").items()},
    )

    def read(advance: Advance, answers: Answers) -> System:
        return better_auth_system.system(database, answers, advance, here, MOST_METHODS)

    migration.run(choices, [database], read)


def _is_own_host(rp_id: str | None) -> bool:
    """Return whether passkeys of a relying party work here."""
    own = passkeys.rp_id().lower()
    return bool(own) and (rp_id or "").lower() == own


def _here(realm: Realm, rp_id: str | None, providers: Mapping[str, str]) -> Here:
    """Return which factors can be taken. Raises `Failure` for an unknown provider."""
    aliases = {text(provider.get("alias")) for provider in realm.providers}
    if unknown := sorted(providers.keys() - aliases):
        raise Failure(f"the realm has no identity provider {unknown[0]}")
    own = passkeys.rp_id().lower()
    hosts = {kind: text(realm.settings.get(name)) or rp_id or "" for kind, name in RP_IDS.items()}
    return Here(
        {kind: bool(own) and host.lower() == own for kind, host in hosts.items()},
        {alias: _provider(name) for alias, name in providers.items()},
    )


def _provider(name: str) -> tuple[str, str]:
    """Return the ID and the issuer of a provider here. Raises `Failure`."""
    provider = context.upstreams().find(name)
    issuer = getattr(provider, "issuer", None)
    if provider is None or not issuer or not provider.REDIRECTS:
        raise Failure(f"there is no OpenID Connect provider {name} here; see: {COMMAND} settings")
    return provider.id, str(issuer)
