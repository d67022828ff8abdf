"""Clients of authentik: its OAuth2 providers with their applications, mappings and bindings."""

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

from sso.config import client_urls
from sso.config.auth_methods import ANY_AUTH_METHOD, NO_AUTH_METHOD
from sso.config.client_fields import AUTHORIZATION_CODE, CLIENT_CREDENTIALS, REFRESH_TOKEN
from sso.config.urls import home_url_error
from sso.flow.scopes import SCOPES
from sso.imports.authentik_files import Entries, Entry, Kind, listed
from sso.imports.drafts import (
    BAD_CLIENT_ID,
    CLIENT_ID,
    NEW_CLIENT_ID,
    POST_LOGOUT,
    REDIRECT,
    Answers,
    Draft,
)
from sso.imports.findings import Fate
from sso.imports.person import mapping, text
from sso.imports.yaml_files import Tagged, is_on
from sso.process.program import COMMAND

IMPLICIT_CONSENT = "default-provider-authorization-implicit-consent"
_PATH = "/application/o/"
# Characters that mean something in the expressions of old versions.
_EXPRESSION = re.compile(r"[\\^$()\[\]|*+]")
_GRANTS = (AUTHORIZATION_CODE, CLIENT_CREDENTIALS, REFRESH_TOKEN)
_OF_AUTHENTIK = "goauthentik.io/"  # how the mappings that it brings are managed


class SubMode(StrEnum):
    """What a provider calls people in `sub`."""

    HASH = "hashed_user_id"
    ID = "user_id"
    UUID = "user_uuid"
    USERNAME = "user_username"
    EMAIL = "user_email"
    UPN = "user_upn"

    @property
    def attribute(self) -> str:
        """The attribute here that has these subjects; "" if the user's ID is the subject."""
        return "" if self is SubMode.UUID else f"authentik_{self}"


def drafts(entries: Entries, groups: Mapping[str, str], answers: Answers) -> Iterator[Draft]:
    """Yield the clients. `groups`: names by key."""
    bases = {entry.key: entry for entry in entries.of(Kind.PROVIDER_BASE)}
    applications = {
        entries.key(_one(entry, "provider", "provider_id")): entry
        for entry in entries.of(Kind.APPLICATION)
    }
    for provider in entries.of(Kind.PROVIDER):
        base = bases[provider.key].values if provider.key in bases else {}
        values = {**base, **provider.values}
        yield _Conversion(
            entries, groups, answers, Entry(provider.key, values), applications.get(provider.key)
        ).draft()


def _one(entry: Entry, *names: str) -> Any:
    return next((entry.values[name] for name in names if entry.values.get(name)), None)


class _Conversion:
    """One client on its way here."""

    def __init__(
        self,
        entries: Entries,
        groups: Mapping[str, str],
        answers: Answers,
        provider: Entry,
        application: Entry | None,
    ) -> None:
        self._entries, self._groups, self._answers = entries, groups, answers
        self._provider, self._application = provider, application
        self._values = provider.values
        self._id = text(self._values.get("client_id"))
        self._is_public = text(self._values.get("client_type")) == "public"
        name = self._id or text(self._values.get("name")) or provider.key
        self._out = Draft(self._id, name[:200])

    def draft(self) -> Draft:
        if not CLIENT_ID.fullmatch(self._id):
            self._out.refuse(BAD_CLIENT_ID, NEW_CLIENT_ID)
        elif self._application is None:
            self._out.refuse("no application has this provider", "delete it there")
        elif self._take_redirects():
            for step in (
                self._authentication, self._scopes, self._tokens, self._subject, self._issuer,
                self._consent, self._urls, self._bindings,
            ):  # fmt: skip
                step(self._application)
        return self._out

    def _redirects(self, kind: str) -> tuple[list[str], list[str]]:
        """Return the exact URIs of a kind, and the expressions."""
        listed_there = self._values.get("redirect_uris", self._values.get("_redirect_uris"))
        exact: list[str] = []
        expressions: list[str] = []
        if isinstance(listed_there, str):  # before version 2024.12
            for uri in listed_there.split() if kind == "authorization" else ():
                (expressions if _EXPRESSION.search(uri) else exact).append(uri)
        for entry in map(mapping, listed_there if isinstance(listed_there, list) else ()):
            if (text(entry.get("redirect_uri_type")) or "authorization") == kind:
                is_strict = text(entry.get("matching_mode")) == "strict"
                (exact if is_strict else expressions).append(text(entry.get("url")))
        return list(filter(None, exact)), list(filter(None, expressions))

    def _take_redirects(self) -> bool:
        exact, expressions = self._redirects("authorization")
        answers = list(self._answers.redirect_uris.get(self._id, ()))
        uris = self._out.exact(
            REDIRECT, [*exact, *answers], is_public=self._is_public, is_answered=bool(answers)
        )
        if not uris:
            self._out.refuse_redirects([*exact, *expressions])
            return False
        if not answers:
            self._note_expressions(REDIRECT, expressions, f"--redirect-uri {self._id}=URI")
        self._out.set("redirect_uris", uris)
        after, expressions = self._redirects("logout")
        flag = f"{COMMAND} client update {self._id} --add-post-logout-redirect-uri URI"
        self._note_expressions(POST_LOGOUT, expressions, flag)
        self._out.set("post_logout_redirect_uris", self._out.exact(
            POST_LOGOUT, after, is_public=self._is_public, is_answered=False
        ))  # fmt: skip
        return True

    def _note_expressions(self, what: str, expressions: list[str], flag: str) -> None:
        for expression in expressions[:20]:
            self._out.note(
                Fate.QUESTION, what, f"{expression[:200]} is a regular expression",
                f"give the exact ones: {flag}",
            )  # fmt: skip

    def _authentication(self, application: Entry) -> None:
        name = text(application.values.get("name")) or text(self._values.get("name"))
        self._out.set("client_name", name[:200] or self._id)
        self._out.set("require_pkce", self._is_public)
        method = NO_AUTH_METHOD if self._is_public else ANY_AUTH_METHOD
        self._out.set("token_endpoint_auth_method", method)
        if not self._is_public:
            stored = self._values.get("client_secret")
            missing = "" if text(stored) else "the files do not have it"
            if isinstance(stored, Tagged):
                missing = f"it is a tag ({stored.tag[:20]}), which only authentik can read"
            self._out.take_secret(text(stored), self._answers, missing)
        grants = [text(name) for name in listed(self._values.get("grant_types"))]
        taken = [AUTHORIZATION_CODE, REFRESH_TOKEN]
        if CLIENT_CREDENTIALS in grants and not self._is_public:
            taken.append(CLIENT_CREDENTIALS)
        self._out.set("grant_types", taken)
        for name in sorted({*filter(None, grants)} - {*_GRANTS})[:20]:
            self._out.note(
                Fate.NOT_TAKEN, f"grant {name[:60]}", "it is not switched on here",
                f"see: {COMMAND} client update --help",
            )  # fmt: skip

    def _mappings(self) -> list[Entry] | None:
        """Return the scope mappings; `None` if the files do not have them."""
        bases = {entry.key: entry for entry in self._entries.of(Kind.MAPPING_BASE)}
        keys = [self._entries.key(v) for v in listed(self._values.get("property_mappings"))]
        keys += [
            self._entries.key(row.values.get("propertymapping_id"))
            for row in self._entries.of(Kind.MAPPED)
            if self._entries.key(row.values.get("provider_id")) == self._provider.key
        ]
        by_key = {entry.key: entry for entry in self._entries.of(Kind.MAPPING)}
        if not by_key:
            return None
        return [
            Entry(key, {**(bases[key].values if key in bases else {}), **by_key[key].values})
            for key in dict.fromkeys(keys) if key in by_key
        ]  # fmt: skip

    def _scopes(self, application: Entry) -> None:
        mappings = self._mappings()
        names = {text(entry.values.get("scope_name")) for entry in mappings or ()}
        if mappings is None:
            names = {"profile", "email", "offline_access"}
            self._out.note(
                Fate.QUESTION, "scopes", "no file has the scope mappings",
                "name the file of GET /api/v3/propertymappings/provider/scope/",
            )  # fmt: skip
        if "profile" in names:
            names.add("groups")
            self._out.set("own_claims", ["groups=groups:"])  # which the scope profile has there
        self._out.set("scope", " ".join(name for name in SCOPES if name in {*names, "openid"}))
        for entry in mappings or ():
            if not text(entry.values.get("managed")).startswith(_OF_AUTHENTIK):
                name = text(entry.values.get("name")) or text(entry.values.get("scope_name"))
                self._out.note(
                    Fate.NOT_TAKEN, f"scope mapping {name[:60]}", "it is a program in Python",
                    f"{COMMAND} client update {self._id} --add-claim …: docs/how-to/own-claims.md",
                )  # fmt: skip

    def _tokens(self, application: Entry) -> None:
        if is_on(self._values.get("include_claims_in_id_token", True)):
            self._out.set("id_token_claims", "all")
        is_symmetric = not (_one(self._provider, "signing_key", "signing_key_id", "rsa_key"))
        if is_symmetric:
            self._out.take_algorithm("HS256")
        if _one(self._provider, "encryption_key", "encryption_key_id"):
            self._out.note(Fate.NOT_TAKEN, "encryption", "tokens are signed here, not encrypted")
        if listed(self._values.get("jwt_federation_sources")) or listed(
            self._values.get("jwt_federation_providers")
        ):
            self._out.note(
                Fate.NOT_TAKEN, "federated tokens", "they need more to be said here",
                "see: docs/how-to/services.md",
            )  # fmt: skip

    def _subject(self, application: Entry) -> None:
        named = text(self._values.get("sub_mode")) or SubMode.HASH
        if named not in {*SubMode}:
            self._out.note(
                Fate.NOT_TAKEN, "subject", f"the mode {named[:40]} is unknown",
                "its people appear as new ones there, unless it knows them by email address",
            )  # fmt: skip
        elif attribute := SubMode(named).attribute:
            self._out.set("subject_attribute", attribute)

    def _issuer(self, application: Entry) -> None:
        root, slug = self._answers.issuer, text(application.values.get("slug"))
        if not root:
            return
        if text(self._values.get("issuer_mode")) == "global":
            self._out.note(
                Fate.NOT_TAKEN, "issuer", "it is the one that all applications share",
                "change the issuer in the application",
            )  # fmt: skip
        else:
            root = root.partition(_PATH)[0].removesuffix("/")
            self._out.set("issuer", f"{root}{_PATH}{slug}/")

    def _consent(self, application: Entry) -> None:
        value = _one(self._provider, "authorization_flow", "authorization_flow_id")
        flow = self._entries.find(Kind.FLOW, value)
        slug = text(flow.values.get("slug")) if flow else self._entries.key(value)[5:]
        is_implicit = slug == IMPLICIT_CONSENT
        self._out.set("first_party", is_implicit)
        if not is_implicit:
            self._out.note(
                Fate.CHANGED, "consent", "people consent once, until they end it",
                f"to ask nobody: {COMMAND} client update {self._id} --first-party",
            )  # fmt: skip

    def _urls(self, application: Entry) -> None:
        method = text(self._values.get("logout_method")) or "backchannel"
        sought = [("meta_launch_url", application.values, "home_url", home_url_error)]
        if method == "backchannel":
            check = client_urls.backchannel_error
            sought.append(("logout_uri", self._values, "backchannel_logout_uri", check))
        elif text(self._values.get("logout_uri")):
            self._out.note(
                Fate.NOT_TAKEN, "front-channel logout", "browsers block it more and more",
                "use the back-channel, if the application has it",
            )  # fmt: skip
        for name, values, field, check in sought:
            url = text(values.get(name))
            if url and (error := check(url)):
                self._out.note(Fate.NOT_TAKEN, name.replace("_", " "), f"{url[:200]}: {error}")
            elif url:
                self._out.set(field, url)

    def _bindings(self, application: Entry) -> None:
        """Take the groups that may use the application, if any one of them is enough."""
        key = application.key
        bindings = [
            entry for entry in self._entries.of(Kind.BINDING)
            if self._entries.key(_one(entry, "target", "target_id")) == key
            and is_on(entry.values.get("enabled", True))
        ]  # fmt: skip
        self._out.set("groups", [])
        self._out.set("disabled", False)
        if not bindings:
            return
        names: list[str] = []
        for entry in bindings:
            group = self._entries.key(_one(entry, "group", "group_id"))
            if not is_on(entry.values.get("negate")) and self._groups.get(group):
                names += self._with_descendants(group)
        groups = list(dict.fromkeys(names))
        bound = self._entries.find(Kind.BOUND, key)
        of_engine = {**(bound.values if bound else {}), **application.values}
        needs_all = text(of_engine.get("policy_engine_mode")) == "all" and len(bindings) > 1
        others = sum(not self._entries.key(_one(e, "group", "group_id")) or
                     is_on(e.values.get("negate")) for e in bindings)  # fmt: skip
        if needs_all or not groups:
            self._out.set("disabled", True)
            why = "all bindings have to be true" if needs_all else "they name no group"
            self._out.note(
                Fate.QUESTION, "bindings", f"{why}; so the client is disabled",
                f"say who may use it: {COMMAND} client update {self._id} --add-group …, then: "
                f"{COMMAND} client enable {self._id}",
            )  # fmt: skip
            return
        self._out.set("groups", groups)
        if others:
            self._out.note(
                Fate.NOT_TAKEN, "bindings", f"{others} are no group: they let in nobody here",
                f"put the people into a group: {COMMAND} client update {self._id} --add-group …",
            )  # fmt: skip

    def _with_descendants(self, group: str) -> list[str]:
        """Return the name of a group and those of the groups below it, whose members are in it."""
        keys = {group}
        pending = [group]
        while pending:
            parent = pending.pop()
            for key in self._entries.children.get(parent, ()):
                if key not in keys:
                    keys.add(key)
                    pending.append(key)
        return [name for key, name in self._groups.items() if key in keys and name]
