"""The client of an OpenID Connect provider: authorization code flow with PKCE and nonce.

Each process has one client for each provider. It keeps what it has read, and how the provider
fares.
"""

from collections.abc import Callable, Mapping
from typing import Any

from authlib.integrations.base_client import OAuthError
from flask import current_app

from sso.config.upstream.oidc import (
    GitHubProvider,
    GoogleProvider,
    MicrosoftProvider,
    OidcProvider,
    WebProvider,
)
from sso.i18n.message import Message
from sso.upstream import http, id_tokens
from sso.upstream.discovery import Discovered, Metadata
from sso.upstream.github import GitHubClient
from sso.upstream.http import Caller
from sso.upstream.identity import UpstreamIdentity, UpstreamRefused, UpstreamUnavailable
from sso.upstream.remote_cache import RemoteUnavailable

MAX_GROUPS = 1000


def groups_of(provider: OidcProvider, claims: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the groups; without the claim none: many providers omit it for people in no group.

    `None` if it is elsewhere (OIDC Core §5.6.2), as Microsoft has it for people in very many.
    """
    groups, elsewhere = claims.get(provider.groups_claim), claims.get("_claim_names")
    if groups is None and isinstance(elsewhere, dict) and provider.groups_claim in elsewhere:
        return None
    listed = groups if isinstance(groups, list) else [groups]
    return frozenset(name for name in listed[:MAX_GROUPS] if isinstance(name, str))


def attributes_of(provider: OidcProvider, claims: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what the claims say for attributes here; without a claim `None`, which removes the
    value. What is elsewhere (OIDC Core §5.6.2) is left out.
    """
    if not provider.attributes:
        return None
    names = claims.get("_claim_names")
    elsewhere = names if isinstance(names, dict) else {}
    return {
        name: claims.get(claim)
        for claim, name in provider.attributes.items()
        if claim in claims or claim not in elsewhere
    }


def is_email_verified(provider: OidcProvider, email: str, claims: Mapping[str, Any]) -> bool:
    """Return whether the provider says that the email address belongs to the person now."""
    if isinstance(provider, MicrosoftProvider):
        # An administrator of any tenant sets `email` as they like; this says that they own the
        # domain. It is an optional claim.
        return claims.get("xms_edov") in (True, 1, "1", "true", "True")
    if claims.get("email_verified") not in (True, "true"):
        return False
    if isinstance(provider, GoogleProvider):
        # Other addresses were verified once, when the account was made.
        return email.lower().endswith("@gmail.com") or bool(claims.get("hd"))
    return True


# What is wrong with our registration says nothing about the person.
_OURS = frozenset(("invalid_client", "unauthorized_client"))
# Nor, at a recheck, does what is wrong with the request, or with the provider.
_OURS_LATER = _OURS | {
    *("invalid_request", "invalid_scope", "unsupported_grant_type"),
    *("server_error", "temporarily_unavailable", "slow_down"),
}


class OidcClient:
    """One provider in this process."""

    def __init__(self, provider: OidcProvider) -> None:
        self.provider = provider
        self.caller = Caller(provider)
        self.discovered = Discovered(provider, self.caller)

    def metadata(self) -> Metadata:
        """Raises `UpstreamUnavailable`. No transaction may be open."""
        try:
            return self.discovered.metadata()
        except RemoteUnavailable as error:
            raise UpstreamUnavailable(str(error), is_private=error.is_private) from None

    def authorization_url(
        self, redirect_uri: str, state: str, nonce: str, verifier: str, more: Mapping[str, str]
    ) -> str:
        """Return the URL that the browser is sent to. Raises `UpstreamUnavailable`."""
        extra = dict(more)
        if isinstance(self.provider, GoogleProvider) and self.provider.hosted_domain:
            extra["hd"] = self.provider.hosted_domain
        if isinstance(self.provider, GoogleProvider) and self.provider.recheck:
            # Google gives a refresh token for this alone, and only when it has asked for consent.
            extra["access_type"] = "offline"
            extra["prompt"] = f"{extra.get('prompt', '')} consent".strip()
        url, _ = self._session(redirect_uri).create_authorization_url(
            self.metadata().authorization_endpoint,
            state=state,
            code_verifier=verifier,
            nonce=nonce,
            **extra,
        )
        return str(url)

    def complete(self, redirect_uri: str, code: str, verifier: str, nonce: str) -> UpstreamIdentity:
        """Return the identity that the code stands for.

        Raises `UpstreamUnavailable` and `UpstreamRefused`.
        """
        metadata, session = self.metadata(), self._session(redirect_uri)
        url = metadata.token_endpoint
        token = self._ask(
            lambda: session.fetch_token(
                url, grant_type="authorization_code", code=code, code_verifier=verifier
            )
        )
        access_token = http.text(token, "access_token", http.LONGEST_TOKEN)
        claims = self._verify(token.get("id_token"), nonce, access_token)
        profile = claims
        if metadata.userinfo_endpoint and self._lacks(claims):
            profile = self._with_userinfo(session, metadata.userinfo_endpoint, claims)
        return self._identity(token, claims, profile)

    def ask_again(
        self, issuer: str, subject: str, refresh_token: str | None, access_token: str | None
    ) -> UpstreamIdentity | None:
        """Groups and the next refresh token of a person; `None` if they are no longer let in.

        Without a refresh token, the access token is introspected. Raises `UpstreamUnavailable`.
        """
        metadata, session = self.metadata(), self._session("")
        try:
            if refresh_token:
                url = metadata.token_endpoint
                token = self._ask(
                    lambda: session.refresh_token(url, refresh_token=refresh_token), _OURS_LATER
                )
            elif access_token and self._is_active(session, access_token):
                token = session.token = {"access_token": access_token, "token_type": "Bearer"}
            else:
                return None
            claims = self._claims_again(token.get("id_token")) or {"sub": subject}
            if claims["sub"] != subject:
                return None
            groups = self._groups_again(session, metadata.userinfo_endpoint, claims)
        except UpstreamRefused:
            return None
        following = http.text(token, "refresh_token", http.LONGEST_TOKEN) or refresh_token
        return UpstreamIdentity(issuer, subject, groups=groups, refresh_token=following)

    def verify_logout_token(self, text: object) -> dict[str, Any]:
        """Raises `UpstreamUnavailable` and `UpstreamRefused`."""
        try:
            return id_tokens.verify_logout_token(self.provider, self.discovered, text)
        except RemoteUnavailable as error:
            raise UpstreamUnavailable(str(error), is_private=error.is_private) from None

    def _is_active(self, session: Any, access_token: str) -> bool:
        """Introspect a token (RFC 7662)."""
        endpoint = self.metadata().introspection_endpoint

        def ask() -> dict[str, Any]:
            if endpoint is None:
                raise ValueError("there is no introspection endpoint any more")
            answer = session.introspect_token(endpoint, token=access_token)
            if answer.status_code != 200:
                raise ValueError(f"introspection answered {answer.status_code}")
            introspection = http.read_object(answer.content)
            if not isinstance(introspection.get("active"), bool):
                raise ValueError("introspection does not say whether the token is active")
            return introspection

        return bool(self._ask(ask, _OURS_LATER)["active"])

    def _claims_again(self, text: object) -> dict[str, Any] | None:
        """Return the claims of a new identity token; `None` if it fails: its key may be too new."""
        try:
            return self._verify(text, None, None) if text else None
        except (UpstreamRefused, UpstreamUnavailable):
            return None

    def _groups_again(
        self, session: Any, endpoint: str | None, claims: Mapping[str, Any]
    ) -> frozenset[str] | None:
        """Return the groups; `None` if there is no claim now: then they stay."""
        if self.provider.groups_claim in claims:
            return groups_of(self.provider, claims)
        if not endpoint or not self.provider.groups:
            return None
        try:
            profile = self._with_userinfo(session, endpoint, claims)
        except UpstreamUnavailable:  # a refresh token that was given meanwhile must be kept
            return None
        return groups_of(self.provider, profile)

    def _verify(self, text: object, nonce: str | None, access_token: str | None) -> dict[str, Any]:
        try:
            return id_tokens.verify_id_token(
                self.provider, self.discovered, text, nonce=nonce, access_token=access_token
            )
        except RemoteUnavailable as error:
            raise UpstreamUnavailable(str(error), is_private=error.is_private) from None

    def _with_userinfo(
        self, session: Any, endpoint: str, claims: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Add the claims of userinfo to those of the identity token (OIDC Core §5.3.2)."""

        def ask() -> dict[str, Any]:
            answer = session.get(endpoint)
            if answer.status_code != 200:
                raise ValueError(f"userinfo answered {answer.status_code}")
            return http.read_object(answer.content)

        userinfo = self._ask(ask)
        if userinfo.get("sub") != claims["sub"]:
            raise UpstreamRefused("userinfo is about another sub")
        if "email" in claims:  # whether it is verified is said of that address alone
            userinfo.pop("email_verified", None)
        return {**userinfo, **claims}

    def _session(self, redirect_uri: str) -> Any:
        return self.caller.session(
            scope=" ".join(self.provider.scope),
            redirect_uri=redirect_uri,
            token_endpoint_auth_method=self.provider.client_authentication,
        )

    def _ask(
        self, ask: Callable[[], dict[str, Any]], our_errors: frozenset[str] = _OURS
    ) -> dict[str, Any]:
        def guarded() -> dict[str, Any] | OAuthError:
            try:
                return ask()
            except OAuthError as error:  # it answers
                return error

        try:
            answer = self.caller.run(guarded)
        except UpstreamUnavailable:
            self.discovered.doubt()
            raise
        if isinstance(answer, OAuthError):
            reason = Message("it answered %(error)s", error=str(answer.error)[:80])
            if answer.error in our_errors:
                raise UpstreamUnavailable(reason)
            raise UpstreamRefused(reason, answer.error)
        return answer

    def _lacks(self, claims: Mapping[str, Any]) -> bool:
        wants_groups = bool(self.provider.groups) and self.provider.groups_claim not in claims
        wants_attributes = not claims.keys() >= self.provider.attributes.keys()
        return "email" not in claims or "name" not in claims or wants_groups or wants_attributes

    def _identity(
        self, token: Mapping[str, Any], claims: Mapping[str, Any], profile: Mapping[str, Any]
    ) -> UpstreamIdentity:
        """`profile`: with what userinfo adds, which says nothing of the sign-in itself."""
        provider = self.provider
        if isinstance(provider, GoogleProvider) and provider.hosted_domain not in (
            None,
            claims.get("hd"),
        ):
            raise UpstreamRefused("the person is not of hosted_domain")
        amr = claims.get("amr")
        methods = (
            {method for method in amr if isinstance(method, str)}
            if isinstance(amr, list)
            else set()
        )
        email = http.text(profile, "email", 320)
        refresh_token, access_token = self._to_ask_again_with(token)
        return UpstreamIdentity(
            issuer=claims["iss"],
            subject=claims["sub"],
            email=email,
            email_verified=email is not None and is_email_verified(provider, email, profile),
            name=http.text(profile, "name") or http.text(profile, "preferred_username") or "",
            groups=groups_of(provider, profile),
            attributes=attributes_of(provider, profile),
            has_two_factors=bool(methods & set(provider.two_factor_amr))
            or claims.get("acr") in provider.two_factor_acr,
            auth_time=id_tokens.moment(claims, "auth_time"),
            sid=http.text(claims, "sid", 255),
            id_token=token["id_token"] if provider.sign_out_upstream else None,
            refresh_token=refresh_token,
            access_token=access_token,
        )

    def _to_ask_again_with(self, token: Mapping[str, Any]) -> tuple[str | None, str | None]:
        """Return the refresh token, or else the access token if it can be introspected."""
        if not self.provider.recheck:
            return None, None
        if refresh_token := http.text(token, "refresh_token", http.LONGEST_TOKEN):
            return refresh_token, None
        if self.metadata().introspection_endpoint:
            return None, http.text(token, "access_token", http.LONGEST_TOKEN)
        return None, None


_EXTENSION = "sso.upstream_clients"


def oidc_client(provider: OidcProvider) -> OidcClient:
    client = _of(provider)
    assert isinstance(client, OidcClient)
    return client


def github_client(provider: GitHubProvider) -> GitHubClient:
    client = _of(provider)
    assert isinstance(client, GitHubClient)
    return client


def _of(provider: WebProvider) -> OidcClient | GitHubClient:
    clients = current_app.extensions.setdefault(_EXTENSION, {})
    client: OidcClient | GitHubClient | None = clients.get(provider.id)
    if client is None or client.provider is not provider:
        if isinstance(provider, OidcProvider):
            client = OidcClient(provider)
        else:
            assert isinstance(provider, GitHubProvider)
            client = GitHubClient(provider)
        clients[provider.id] = client
    return client
