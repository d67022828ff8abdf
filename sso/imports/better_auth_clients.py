"""Clients of better-auth's OAuth provider, and of its older OIDC provider, as clients here."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sso.config import client_urls
from sso.config.auth_methods import ANY_AUTH_METHOD, NO_AUTH_METHOD, PRIVATE_KEY_JWT
from sso.config.client_fields import AUTHORIZATION_CODE, CLIENT_CREDENTIALS, REFRESH_TOKEN
from sso.config.urls import home_url_error
from sso.flow.scopes import SCOPES
from sso.imports.better_auth_secrets import Secrets, is_encrypted
from sso.imports.drafts import (
    BAD_CLIENT_ID,
    CLIENT_ID,
    NEW_CLIENT_ID,
    Answers,
    Draft,
)
from sso.imports.findings import Fate
from sso.imports.foreign_factors import from_base64
from sso.imports.person import flag, json_value, mapping, text, texts
from sso.process.program import COMMAND

SUBJECTS = "better_auth_user_id"  # the attribute for what its applications know people by
_DEFAULT_SCOPES = ("openid", "profile", "email", "offline_access")
_SHA256 = re.compile(r"[A-Za-z0-9_-]{43}")
_SYMMETRIC = "HS256"
_MOST_URIS = 1_000
_PUBLIC_TYPES = ("public", "native", "user-agent-based")


@dataclass(frozen=True)
class Context:
    """What holds for all clients. `algorithm`: of ID tokens, unless secrets sign them."""

    secrets: Secrets
    answers: Answers
    algorithm: str


def entry_of_application(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a client of the older provider as the newer one has it."""
    has_secret = bool(text(row.get("clientSecret")))
    is_public = text(row.get("type")) in _PUBLIC_TYPES and not has_secret
    return {
        **row,
        "redirectUris": text(row.get("redirectURLs")).split(","),
        "tokenEndpointAuthMethod": NO_AUTH_METHOD if is_public else "",
        "grantTypes": [AUTHORIZATION_CODE],
        "requirePKCE": False,
        "isOfOldProvider": True,
    }


def drafts(entries: Iterable[Mapping[str, Any]], context: Context) -> Iterator[Draft]:
    """Yield the clients."""
    for entry in entries:
        yield _Conversion(entry, context).draft()


def listed(value: Any) -> list[str]:
    """Return the texts of a column with a list, however the database has it."""
    return texts(json_value(value) if isinstance(value, str | bytes) else value)[:_MOST_URIS]


class _Conversion:
    """One client on its way here."""

    def __init__(self, entry: Mapping[str, Any], context: Context) -> None:
        self._entry, self._context = entry, context
        self._id = text(entry.get("clientId"))
        self._method = text(entry.get("tokenEndpointAuthMethod"))
        self._is_public = self._method == NO_AUTH_METHOD
        self._grants: list[str] = []
        self._out = Draft(self._id, (self._id or text(entry.get("name")) or "?")[:200])

    def draft(self) -> Draft:
        out = self._out
        if text(self._entry.get("clientDiscoveryId")):
            out.refuse(
                "its ID is the address of its metadata, and nobody registered it",
                "allow such clients: SSO_CLIENT_DOCUMENTS",
            )
        elif not CLIENT_ID.fullmatch(self._id):
            out.refuse(BAD_CLIENT_ID, NEW_CLIENT_ID)
        elif self._method == PRIVATE_KEY_JWT and not any(self._keys()):
            out.refuse(
                "it authenticates by a key, and the database does not have it",
                f"{COMMAND} client create … --auth-method {PRIVATE_KEY_JWT} --jwks FILE",
            )
        elif self._take_grants() and self._take_redirects():
            for step in (self._authentication, self._people, self._tokens, self._urls):
                step()
        return out

    def _take_grants(self) -> bool:
        named = listed(self._entry.get("grantTypes")) or [AUTHORIZATION_CODE]
        grants = [AUTHORIZATION_CODE, REFRESH_TOKEN] if AUTHORIZATION_CODE in named else []
        if CLIENT_CREDENTIALS in named and not self._is_public:
            grants.append(CLIENT_CREDENTIALS)
        others = sorted({*named} - {*grants, REFRESH_TOKEN})
        if not grants:
            self._out.refuse(f"it has no grant that this server takes: {', '.join(named)[:300]}")
            return False
        for name in others[:20]:
            why = "this server does not have it"
            if name == CLIENT_CREDENTIALS:
                why = "a public client has no secret"
            self._out.note(Fate.NOT_TAKEN, f"grant {name[:80]}", why)
        self._grants = grants
        self._out.set("grant_types", grants)
        return True

    def _take_redirects(self) -> bool:
        if AUTHORIZATION_CODE not in self._grants:
            self._out.set("redirect_uris", [])
            return True
        return self._out.take_redirects(
            listed(self._entry.get("redirectUris")),
            listed(self._entry.get("postLogoutRedirectUris")),
            self._context.answers,
            is_public=self._is_public,
        )

    def _authentication(self) -> None:
        out = self._out
        out.set("client_name", text(self._entry.get("name"))[:200] or self._id)
        required = self._entry.get("requirePKCE")
        needs_people = AUTHORIZATION_CODE in self._grants
        # Unless somebody switched it off.
        is_required = self._is_public or required is None or flag(required)
        out.set("require_pkce", needs_people and is_required)
        out.set("disabled", flag(self._entry.get("disabled")))
        if self._is_public:
            out.set("token_endpoint_auth_method", NO_AUTH_METHOD)
        elif self._method == PRIVATE_KEY_JWT:
            self._take_keys()
        else:
            out.set("token_endpoint_auth_method", ANY_AUTH_METHOD)
            self._take_secret()

    def _keys(self) -> tuple[Any, str]:
        """Return the client's keys, and the URL that has them."""
        return json_value(self._entry.get("jwks")), text(self._entry.get("jwksUri"))

    def _take_keys(self) -> None:
        self._out.set("token_endpoint_auth_method", PRIVATE_KEY_JWT)
        keys, url = self._keys()
        if keys:
            self._out.set("jwks", keys if isinstance(keys, dict) else {"keys": keys})
        else:
            self._out.set("jwks_uri", url)

    def _take_secret(self) -> None:
        out, answers = self._out, self._context.answers
        stored = text(self._entry.get("clientSecret"))
        answer = answers.secrets.get(self._id)
        if is_encrypted(stored):
            secret = self._context.secrets.decrypted(stored)
            missing = "" if secret else (
                "it is encrypted by a secret that is missing, or another one (see --auth-secret)"
            )  # fmt: skip
            out.take_secret(secret or "", answers, missing)
        elif _SHA256.fullmatch(stored) and answer != stored:
            out.take_sha256(from_base64(stored), answers)
        elif stored and self._entry.get("isOfOldProvider"):
            out.take_secret(stored, answers, "")
        else:
            why = "it is stored in a way of the installation's own" if stored else "it is missing"
            out.take_secret("", answers, why)

    def _people(self) -> None:
        """Take what concerns people; a service has none."""
        if AUTHORIZATION_CODE not in self._grants:
            self._out.ask_apis()
            return
        scopes = listed(self._entry.get("scopes")) or [*_DEFAULT_SCOPES]
        scope = " ".join(name for name in SCOPES if name in {"openid", *scopes})
        self._out.set("scope", scope)
        for name in sorted({*scopes} - {*SCOPES})[:20]:
            self._out.note(
                Fate.NOT_TAKEN, f"scope {name[:80]}", "scopes of its own belong to an API here",
                "see: docs/how-to/apis.md",
            )  # fmt: skip
        self._out.set("id_token_claims", "all")
        self._out.set("first_party", flag(self._entry.get("skipConsent")))
        if text(self._entry.get("subjectType")) == "pairwise":
            self._out.note(
                Fate.QUESTION, "subject", "it has pairwise ones, so people are new to it",
                "ask its makers to know people by email address, or store their subjects: "
                "docs/how-to/old-addresses.md",
            )  # fmt: skip
        else:
            self._out.set("subject_attribute", SUBJECTS)

    def _tokens(self) -> None:
        stored = text(self._entry.get("clientSecret"))
        is_symmetric = is_encrypted(stored) or not self._context.algorithm
        if AUTHORIZATION_CODE in self._grants:
            self._out.take_algorithm(_SYMMETRIC if is_symmetric else self._context.algorithm)
        if flag(self._entry.get("dpopBoundAccessTokens")):
            self._out.set("dpop_bound_access_tokens", True)

    def _urls(self) -> None:
        for column, name, what, check in (
            ("uri", "home_url", "URI", home_url_error),
            ("backchannelLogoutUri", "backchannel_logout_uri", "back-channel logout URI",
             client_urls.backchannel_error),
        ):  # fmt: skip
            url = text(self._entry.get(column))
            if not url or AUTHORIZATION_CODE not in self._grants:
                continue
            if error := check(url):
                self._out.note(Fate.NOT_TAKEN, what, f"{url[:200]}: {error}")
            else:
                self._out.set(name, url)
        if text(self._entry.get("icon")):
            self._out.note(
                Fate.NOT_TAKEN, "icon", "this server does not load it",
                f"{COMMAND} client update {self._id} --logo FILE",
            )  # fmt: skip
        if text(self._entry.get("referenceId")):
            self._out.note(
                Fate.NOT_TAKEN, "owner", "it belongs to an organization there",
                f"to let in a group alone: {COMMAND} client update {self._id} --add-group NAME",
            )  # fmt: skip
        names = ", ".join(mapping(json_value(self._entry.get("metadata"))))[:100]
        if names:
            self._out.note(Fate.NOT_TAKEN, f"metadata {names}", "clients here have none")
