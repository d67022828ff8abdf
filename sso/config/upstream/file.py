"""Reads the file of upstream providers. Every error is reported at once, with its remedy."""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from sso.config import email_addresses
from sso.config.images import Image
from sso.config.tables import Error, Field, ManyErrors, Read, TableReader, fields_of, hint
from sso.config.upstream import ldap, oidc
from sso.config.upstream.provider import Provider

TYPES: Mapping[str, type[Provider]] = {
    "oidc": oidc.OidcProvider,
    "google": oidc.GoogleProvider,
    "microsoft": oidc.MicrosoftProvider,
    "github": oidc.GitHubProvider,
    "ldap": ldap.LdapProvider,
}
MAX_PROVIDERS = 50
_MAX_SIZE = 256 * 1024
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


@dataclass(frozen=True)
class Upstreams:
    """The providers, in the order of the file."""

    providers: Sequence[Provider] = ()
    _by_domain: dict[str, Provider] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._by_domain.update({name: one for one in self.providers for name in one.domains})

    def __iter__(self) -> Iterator[Provider]:
        return iter(self.providers)

    def find(self, provider_id: str) -> Provider | None:
        return next((one for one in self.providers if one.id == provider_id), None)

    def of_email(self, email: str) -> Provider | None:
        """Where people with such an email address are sent."""
        return self._by_domain.get(email_addresses.domain(email.strip()).lower())

    def logo(self, digest: str) -> Image | None:
        logos = (one.logo for one in self.providers if one.logo)
        return next((logo for logo in logos if logo.digest == digest), None)


def checked(text: str) -> str:
    """The path as given. Raises `ManyErrors`, one for each fault in the file."""
    read(Path(text), os.environ)
    return text


def of_setting(path: str | None) -> Upstreams:
    """The providers in the file that the setting names; none without it."""
    return read(Path(path), os.environ) if path else Upstreams()


def read(path: Path, environ: Mapping[str, str]) -> Upstreams:
    """The providers in a file. Raises `ManyErrors`."""
    try:
        is_too_large = path.stat().st_size > _MAX_SIZE
        content = {} if is_too_large else tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ManyErrors([f"{path} is not TOML: {error}"]) from None
    except (OSError, ValueError):
        raise ManyErrors([f"{path} cannot be read; check the path and the mode"]) from None
    if is_too_large:
        raise ManyErrors([f"{path} is larger than {_MAX_SIZE // 1024} kB"])
    errors, found = [], []
    for name in content.keys() - {"provider"}:
        errors.append(f"{name}: not known here; begin a provider with [provider.ID]")
    tables = content.get("provider", {})
    if not isinstance(tables, dict) or not all(isinstance(one, dict) for one in tables.values()):
        raise ManyErrors(
            [*errors, "begin each provider with [provider.ID], such as [provider.corp]"]
        )
    if len(tables) > MAX_PROVIDERS:
        errors.append(f"there are more than {MAX_PROVIDERS} providers")
    for provider_id, table in tables.items():
        faults: list[str] = []
        if not _ID.fullmatch(provider_id):
            faults.append("as an id give small letters, digits and dashes, at most 32")
        provider = _provider(provider_id, table, environ, faults)
        errors += [f"[provider.{provider_id}] {fault}" for fault in faults]
        if provider and not faults:
            found.append(provider)
    errors += _shared(found)
    if errors:
        raise ManyErrors(errors)
    return Upstreams(found)


def _provider(
    provider_id: str, table: dict[str, Any], environ: Mapping[str, str], faults: list[str]
) -> Provider | None:
    kind = TYPES.get(str(table.get("type")))
    if kind is None:
        faults.append(f"type: give one of {', '.join(TYPES)}")
        return None
    reader = _ProviderReader(table["type"], environ)
    reading = reader.read({name: value for name, value in table.items() if name != "type"})
    faults += reading.errors
    if faults:
        return None
    provider = kind(id=provider_id, type=table["type"], **reading.values)
    faults += provider.faults()
    return provider


class _ProviderReader(TableReader):
    """Reads the table of a provider, and its secrets from where the table says."""

    def __init__(self, type_name: str, environ: Mapping[str, str]) -> None:
        self.type_name, self.environ = type_name, environ
        super().__init__(fields_of(TYPES[type_name]))

    def keys_of(self, one: Field) -> Mapping[str, Read]:
        if not one.secret:
            return super().keys_of(one)
        return {
            f"{one.name}_file": _secret_of_file,
            f"{one.name}_env": self._secret_of_environment,
            one.name: partial(_refuse_secret, one.name),
        }

    def _secret_of_environment(self, name: Any) -> str:
        if not (secret := self.environ.get(_checked_text(name), "")):
            raise ValueError(f"the environment variable {name} is not set")
        return secret

    def unknown(self, name: str) -> str:
        known = self.known - {one.name for one in self.fields.values() if one.secret}
        remedy = hint(name, known, "remove it")
        return f"no key of the type {self.type_name} has this name; {remedy}"

    def missing(self, one: Field) -> Error:
        names = [name for name in self.keys[one.name] if name != one.name or not one.secret]
        return " or ".join(names), f"it is missing; give {one.meaning}"


def _checked_text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("give a text")
    return value


def _secret_of_file(value: Any) -> str:
    path = _checked_text(value)
    try:
        secret = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        raise ValueError(f"the file {path} cannot be read; check its path and mode") from None
    if not secret or len(secret) > 10_000:
        raise ValueError(f"the file {path} is empty, or too large for a secret")
    return secret


def _refuse_secret(name: str, _value: Any) -> str:
    raise ValueError(f"keep it out of this file; give {name}_file or {name}_env")


def _shared(providers: Sequence[Provider]) -> Iterator[str]:
    """What two providers may not have in common."""
    seen: dict[str, str] = {}
    for one in providers:
        about = [f"the domain {name}" for name in one.domains]
        if isinstance(one, oidc.OidcProvider):
            about.append(f"the issuer {one.discovery_url}")
        for what in about:
            if what in seen:
                yield f"[provider.{one.id}] {what} is that of [provider.{seen[what]}], too"
            seen.setdefault(what, one.id)
