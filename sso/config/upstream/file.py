"""Reads the file of upstream providers. Every error is reported at once, with its remedy."""

import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from sso.config import email_addresses
from sso.config.images import Image
from sso.config.settings import ManyErrors
from sso.config.upstream import ldap, oidc
from sso.config.upstream.provider import Provider, keys_of

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
        if path.stat().st_size > _MAX_SIZE:
            raise ManyErrors([f"{path} is larger than {_MAX_SIZE // 1024} kB"])
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise ManyErrors([f"{path} is not TOML: {error}"]) from None
    except (OSError, ValueError):
        raise ManyErrors([f"{path} cannot be read; check the path and the mode"]) from None
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
    values: dict[str, Any] = {"id": provider_id, "type": table["type"]}
    known = {"type"}
    for one in keys_of(kind):
        if one.metadata.get("secret"):
            names = (f"{one.name}_file", f"{one.name}_env")
            known.update(names)
            if one.name in table:
                known.add(one.name)
                faults.append(f"{one.name}: keep it out of this file; give {' or '.join(names)}")
                continue
            given = [name for name in names if name in table]
        else:
            known.add(one.name)
            given = [one.name] if one.name in table else []
        if not given and one.default is MISSING and one.default_factory is MISSING:
            wanted = one.name if one.name in known else f"{one.name}_file or {one.name}_env"
            faults.append(f"{wanted}: it is missing; give {one.metadata['meaning']}")
        if len(given) > 1:
            faults.append(f"{' and '.join(given)}: give one of them")
        elif given:
            try:
                read = one.metadata.get("read")
                raw = table[given[0]]
                values[one.name] = read(raw) if read else _secret(given[0], raw, environ)
            except ValueError as error:
                faults.append(f"{given[0]}: {error}")
    for name in sorted(table.keys() - known):
        meant = get_close_matches(name, sorted(known), n=1)
        hint = f"did you mean {meant[0]}?" if meant else "remove it"
        faults.append(f"{name}: no key of the type {table['type']} has this name; {hint}")
    if faults:
        return None
    provider = kind(**values)
    faults += provider.faults()
    return provider


def _secret(name: str, value: Any, environ: Mapping[str, str]) -> str:
    if not isinstance(value, str):
        raise ValueError("give a text")
    if name.endswith("_env"):
        if not (found := environ.get(value, "")):
            raise ValueError(f"the environment variable {value} is not set")
        return found
    try:
        found = Path(value).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        raise ValueError(f"the file {value} cannot be read; check its path and mode") from None
    if not found or len(found) > 10_000:
        raise ValueError(f"the file {value} is empty, or too large for a secret")
    return found


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
