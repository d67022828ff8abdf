"""Clients of another server as they would be registered here, whatever server that is.

Each part that cannot be taken as it is becomes a finding, with what to do about it. Redirect URIs
with wildcards are never taken: the operator answers with exact ones.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from sso.config.urls import registration_error
from sso.crypto import foreign_hashes, secrets
from sso.crypto.client_jwt import ALGORITHMS as CLIENT_ALGORITHMS
from sso.crypto.keys import ALGORITHMS
from sso.crypto.secrets import SHORTEST
from sso.imports.findings import Fate, Finding
from sso.process.program import COMMAND

CLIENT_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._~-]{0,47}")
BAD_CLIENT_ID = "its client ID is not 1 to 48 letters, digits, or any of . _ ~ -"
NEW_CLIENT_ID = "register it under another client ID, and change the application"
MOST_SECONDS = 0.5  # of CPU time for a check of a secret
REDIRECT, POST_LOGOUT = "redirect URI", "post-logout redirect URI"


@dataclass(frozen=True)
class Answers:
    """What the operator said: exact redirect URIs and secrets, by client; the issuer of all."""

    redirect_uris: Mapping[str, Sequence[str]] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    short_secrets: bool = False
    issuer: str | None = None


@dataclass
class Draft:
    """A client as it would be registered here; `None` as `fields` if it cannot be.

    `secret_hash`: the hash of a secret of which the other server does not know more.
    `attributes`: those that its claims need, by name, with their types.
    """

    client_id: str
    name: str  # as the other server names it
    fields: dict[str, Any] | None = field(default_factory=dict)
    secret: str | None = None
    secret_hash: str | None = None
    attributes: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def set(self, name: str, value: Any) -> None:
        assert self.fields is not None
        self.fields[name] = value

    def note(self, fate: Fate, what: str, why: str = "", remedy: str = "") -> None:
        self.findings.append(Finding(fate, "client", self.name, what, why, remedy))

    def refuse(self, why: str, remedy: str = "") -> None:
        """Say that the whole client is not taken."""
        self.fields = None
        self.findings = [Finding(Fate.NOT_TAKEN, "client", self.name, "", why, remedy)]

    def refuse_redirects(self, listed: Iterable[str]) -> None:
        """Say that the client is not taken because it has no exact redirect URI."""
        self.refuse(
            "it has no exact redirect URI: " + (", ".join(listed)[:300] or "none at all"),
            f"--redirect-uri {self.client_id}=URI, for each one that it uses",
        )

    def take_redirects(
        self, listed: Sequence[str], after: Iterable[str], answers: Answers, *, is_public: bool
    ) -> bool:
        """Take exact redirect URIs and those after sign-out; refuse the client if it has none."""
        answered = list(answers.redirect_uris.get(self.client_id, ()))
        uris = self.exact(
            REDIRECT, [*listed, *answered], is_public=is_public, is_answered=bool(answered)
        )
        if not uris:
            self.refuse_redirects(listed)
            return False
        self.set("redirect_uris", uris)
        self.take_post_logout(after, is_public=is_public)
        return True

    def take_post_logout(self, listed: Iterable[str], *, is_public: bool) -> None:
        uris = self.exact(POST_LOGOUT, listed, is_public=is_public, is_answered=False)
        self.set("post_logout_redirect_uris", uris)

    def take_secret(self, secret: str, answers: Answers, missing: str) -> None:
        """Take a secret in clear, or that of the answers, if it is long enough.

        `missing`: why the other server's is not known, "" if it is.
        """
        answer = answers.secrets.get(self.client_id)
        secret = answer or secret
        if answer is None and missing:
            self.ask_secret(missing)
        elif len(secret) < SHORTEST and not answers.short_secrets:
            self.ask_secret(
                f"it is shorter than {SHORTEST} characters, and this server stores a fast digest",
                "if it is random, add --short-secrets; ",
            )
        else:
            self.secret = secret

    def take_secret_hash(self, text: str, answers: Answers) -> None:
        """Take the hash of a secret, in one of the formats of passwords, or the answers' secret.

        An answer that the hash does not match is not taken.
        """
        try:
            stored = foreign_hashes.from_text(text)
            method = foreign_hashes.method_of(stored)
        except foreign_hashes.Refused as error:
            self.take_secret("", answers, f"only its hash is stored there, and {error}")
            return
        if stored is None or method is None:
            self.take_secret("", answers, "it is missing")
        elif answer := answers.secrets.get(self.client_id):
            if foreign_hashes.verify(answer, stored):
                self.take_secret("", answers, "")
            else:
                self.ask_secret("the one of --secret is not the one that is stored there")
        elif foreign_hashes.seconds([method]) > MOST_SECONDS:
            self.ask_secret(f"a check of its hash takes more than {MOST_SECONDS:g} s")
        else:
            self.secret_hash = stored

    def take_sha256(self, hashed: bytes, answers: Answers) -> None:
        """Take the SHA-256 of a secret, or the answers' secret, which may have a prefix before it.

        Here, too, secrets are stored so: only random ones may be.
        """
        answer, stored = answers.secrets.get(self.client_id), secrets.digest_of_hash(hashed)
        if answer is None:
            self.secret_hash = stored
        elif any(secrets.matches(answer[start:], stored) for start in range(len(answer[:200]))):
            self.take_secret("", answers, "")
        else:
            self.ask_secret("the one of --secret is not the one that is stored there")

    def ask_apis(self) -> None:
        """Ask for which APIs a service gets tokens."""
        self.note(
            Fate.QUESTION, "APIs", "the file does not say for which it gets tokens",
            f"register them, and run: {COMMAND} client update {self.client_id} --add-api URI "
            "--default-api URI",
        )  # fmt: skip

    def ask_secret(self, why: str, before: str = "") -> None:
        self.note(
            Fate.QUESTION, "secret", f"not taken: {why}",
            f"{before}give it as --secret {self.client_id}=env:NAME, or make one: {COMMAND} client "
            f"rotate-secret {self.client_id}",
        )  # fmt: skip

    def take_algorithm(self, algorithm: str) -> None:
        """Take the algorithm of ID tokens, or RS256 if this server does not have it."""
        is_here = algorithm in ALGORITHMS
        self.set("id_token_signed_response_alg", algorithm if is_here else "RS256")
        if not is_here:
            self.note(
                Fate.CHANGED, "algorithm of ID tokens", f"{algorithm[:20]} becomes RS256",
                f"others are {', '.join(ALGORITHMS)}",
            )  # fmt: skip

    def take_assertion_algorithm(self, algorithm: str) -> None:
        """Take the algorithm by which the client signs; "": any of those that are accepted."""
        if algorithm in CLIENT_ALGORITHMS:
            self.set("token_endpoint_auth_signing_alg", algorithm)
        elif algorithm:
            self.note(
                Fate.CHANGED, "algorithm of its assertions", f"{algorithm[:20]} is not accepted",
                f"let it sign by one of {', '.join(CLIENT_ALGORITHMS)}",
            )  # fmt: skip

    def exact(
        self,
        what: str,
        uris: Iterable[str],
        *,
        is_public: bool,
        is_answered: bool,
        absolute: Callable[[str], str] = str,
    ) -> list[str]:
        """Return the URIs that can be compared exactly; ask about the others.

        `absolute`: completes those that are relative.
        """
        exact: list[str] = []
        for uri in uris:
            whole = absolute(uri)
            has_scheme = bool(_scheme(whole))
            if "*" in uri or "{" in uri or not has_scheme:
                if not is_answered:
                    self._ask_uri(what, uri)
            elif error := registration_error(whole, is_public=is_public):
                self.note(Fate.NOT_TAKEN, what, f"{whole[:200]}: {error}")
            else:
                exact.append(whole)
        return list(dict.fromkeys(exact))

    def note_origins(self, origins: Iterable[str], redirect_uris: Iterable[str]) -> None:
        """Say which origins of pages may not call: those of redirect URIs may."""
        allowed = {_origin(uri) for uri in redirect_uris}
        for origin in origins:
            if origin == "*":
                self.note(
                    Fate.CHANGED, "web origins",
                    "any page could call; here, pages at the origins of its redirect URIs can",
                )  # fmt: skip
            elif origin.rstrip("/").lower() not in allowed:
                self.note(
                    Fate.NOT_TAKEN, "web origin",
                    f"{origin[:200]}: pages at the origins of redirect URIs may call, no others",
                    "register a redirect URI there if the application signs people in there",
                )  # fmt: skip

    def _ask_uri(self, what: str, uri: str) -> None:
        why = "is relative, without a root URL"
        if "*" in uri or "{" in uri:
            why = "has a wildcard" if "*" in uri else "is a template"
        flag = f"--redirect-uri {self.client_id}=URI" if what == REDIRECT else (
            f"{COMMAND} client update {self.client_id} --add-post-logout-redirect-uri URI"
        )  # fmt: skip
        self.note(Fate.QUESTION, what, f"{uri[:200]} {why}", f"give the exact ones: {flag}")


def _scheme(uri: str) -> str:
    try:
        return urlsplit(uri).scheme
    except ValueError:  # a host in brackets that is no address; `registration_error` says so
        return "?"


def _origin(uri: str) -> str:
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc}".lower()
