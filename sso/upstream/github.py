"""The client of GitHub, which speaks OAuth 2.0: its API says who somebody is."""

import json
from collections.abc import Mapping
from typing import Any

from authlib.integrations.base_client import OAuthError

from sso.config.upstream.oidc import GitHubProvider
from sso.i18n.message import Message
from sso.upstream import http
from sso.upstream.http import Caller
from sso.upstream.identity import UpstreamIdentity, UpstreamRefused

_SCOPE = "read:user user:email"


class GitHubClient:
    """GitHub in this process."""

    def __init__(self, provider: GitHubProvider) -> None:
        self.provider = provider
        self.caller = Caller(provider)
        is_public = provider.url == "https://github.com"
        self._api = "https://api.github.com" if is_public else f"{provider.url}/api/v3"

    def authorization_url(
        self, redirect_uri: str, state: str, verifier: str, more: Mapping[str, str]
    ) -> str:
        """Return the URL that the browser is sent to."""
        extra = {"login": more["login_hint"]} if "login_hint" in more else {}
        if more.get("prompt") == "select_account":
            extra["prompt"] = "select_account"
        url, _ = self._session(redirect_uri).create_authorization_url(
            f"{self.provider.url}/login/oauth/authorize",
            state=state,
            code_verifier=verifier,
            **extra,
        )
        return str(url)

    def complete(self, redirect_uri: str, code: str, verifier: str) -> UpstreamIdentity:
        """Return the identity that the code stands for.

        Raises `UpstreamUnavailable` and `UpstreamRefused`.
        """
        session = self._session(redirect_uri)

        def ask() -> tuple[Any, Any] | OAuthError:
            try:
                session.fetch_token(
                    f"{self.provider.url}/login/oauth/access_token",
                    grant_type="authorization_code",
                    code=code,
                    code_verifier=verifier,
                )
            except OAuthError as error:
                return error
            return self._get(session, "/user"), self._get(session, "/user/emails")

        answer = self.caller.run(ask)
        if isinstance(answer, OAuthError):
            reason = Message("it answered %(error)s", error=str(answer.error)[:80])
            raise UpstreamRefused(reason, answer.error)
        person, emails = answer
        number = person.get("id") if isinstance(person, dict) else None
        if type(number) is not int or number <= 0:
            raise UpstreamRefused("its answer names nobody")
        email, is_verified = _primary(emails)
        return UpstreamIdentity(
            issuer=self.provider.url,
            subject=str(number),
            email=email,
            email_verified=is_verified,
            name=http.text(person, "name") or http.text(person, "login") or "",
        )

    def examine(self) -> None:
        """Ask its API for anything.

        Raises `RemoteUnavailable`, `OSError`, `HTTPException` and `ValueError`.
        """
        self.caller.get_json(f"{self._api}/")

    def _session(self, redirect_uri: str) -> Any:
        return self.caller.session(
            scope=_SCOPE,
            redirect_uri=redirect_uri,
            token_endpoint_auth_method="client_secret_post",  # noqa: S106 (no secret)
        )

    def _get(self, session: Any, path: str) -> Any:
        answer = session.get(f"{self._api}{path}")
        if answer.status_code != 200:
            raise ValueError(f"{path} answered {answer.status_code}")
        return json.loads(answer.content)


def _primary(emails: Any) -> tuple[str | None, bool]:
    """Return the user's primary email address, and whether it is verified."""
    for email in emails if isinstance(emails, list) else []:
        if isinstance(email, dict) and email.get("primary") is True:
            return http.text(email, "email", 320), email.get("verified") is True
    return None, False
