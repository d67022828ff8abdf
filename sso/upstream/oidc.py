"""The client of an OpenID Connect provider: authorization code flow with PKCE and nonce."""

from collections.abc import Callable, Mapping
from typing import Any

from authlib.integrations.base_client import OAuthError

from sso.config.upstream.oidc import GoogleProvider, MicrosoftProvider, OidcProvider
from sso.upstream import http, id_tokens
from sso.upstream.discovery import Discovered, Metadata
from sso.upstream.http import Caller
from sso.upstream.identity import UpstreamIdentity, UpstreamRefused, UpstreamUnavailable
from sso.upstream.remote_cache import RemoteUnavailable

MAX_GROUPS = 1000


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
            raise UpstreamUnavailable(str(error)) from None

    def authorization_url(
        self, redirect_uri: str, state: str, nonce: str, verifier: str, more: Mapping[str, str]
    ) -> str:
        """Where the browser is sent. Raises `UpstreamUnavailable`."""
        extra = dict(more)
        if isinstance(self.provider, GoogleProvider) and self.provider.hosted_domain:
            extra["hd"] = self.provider.hosted_domain
        url, _ = self._session(redirect_uri).create_authorization_url(
            self.metadata().authorization_endpoint,
            state=state,
            code_verifier=verifier,
            nonce=nonce,
            **extra,
        )
        return str(url)

    def complete(self, redirect_uri: str, code: str, verifier: str, nonce: str) -> UpstreamIdentity:
        """Who the code stands for. Raises `UpstreamUnavailable` and `UpstreamRefused`."""
        metadata, session = self.metadata(), self._session(redirect_uri)
        token = self._ask(
            lambda: session.fetch_token(
                metadata.token_endpoint,
                grant_type="authorization_code",
                code=code,
                code_verifier=verifier,
            )
        )
        access_token = http.text(token, "access_token", http.LONGEST_TOKEN)
        claims = self._verify(token.get("id_token"), nonce, access_token)
        profile = claims
        if metadata.userinfo_endpoint and self._lacks(claims):
            profile = self._with_userinfo(session, metadata.userinfo_endpoint, claims)
        return self._identity(token, claims, profile)

    def still_there(self, subject: str, refresh_token: str) -> str | None:
        """The refresh token to use next; `None` if the provider no longer lets the person in.

        Raises `UpstreamUnavailable`.
        """
        metadata, session = self.metadata(), self._session("")
        try:
            token = self._ask(
                lambda: session.refresh_token(metadata.token_endpoint, refresh_token=refresh_token)
            )
            if token.get("id_token"):
                claims = self._verify(token["id_token"], None, None)
                if claims["sub"] != subject:
                    return None
        except UpstreamRefused:
            return None
        return http.text(token, "refresh_token", http.LONGEST_TOKEN) or refresh_token

    def verify_logout_token(self, text: object) -> dict[str, Any]:
        """Raises `UpstreamUnavailable` and `UpstreamRefused`."""
        try:
            return id_tokens.verify_logout_token(self.provider, self.discovered, text)
        except RemoteUnavailable as error:
            raise UpstreamUnavailable(str(error)) from None

    def _verify(self, text: object, nonce: str | None, access_token: str | None) -> dict[str, Any]:
        try:
            return id_tokens.verify_id_token(
                self.provider, self.discovered, text, nonce=nonce, access_token=access_token
            )
        except RemoteUnavailable as error:
            raise UpstreamUnavailable(str(error)) from None

    def _with_userinfo(
        self, session: Any, endpoint: str, claims: Mapping[str, Any]
    ) -> dict[str, Any]:
        """What userinfo adds to the claims of the identity token (OIDC Core §5.3.2)."""

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

    def _ask(self, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        def guarded() -> dict[str, Any] | OAuthError:
            try:
                return ask()
            except OAuthError as error:  # it answers
                return error

        try:
            found = self.caller.run(guarded)
        except UpstreamUnavailable:
            self.discovered.doubt()
            raise
        if isinstance(found, OAuthError):
            reason = f"it answered {found.error}"[:100]
            # What is wrong with our registration says nothing about the person.
            if found.error in ("invalid_client", "unauthorized_client"):
                raise UpstreamUnavailable(reason)
            raise UpstreamRefused(reason)
        return found

    def _lacks(self, claims: Mapping[str, Any]) -> bool:
        wants_groups = bool(self.provider.groups) and self.provider.groups_claim not in claims
        return "email" not in claims or "name" not in claims or wants_groups

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
        amr, groups = claims.get("amr"), profile.get(provider.groups_claim)
        methods = {one for one in amr if isinstance(one, str)} if isinstance(amr, list) else set()
        email = http.text(profile, "email", 320)
        return UpstreamIdentity(
            issuer=claims["iss"],
            subject=claims["sub"],
            email=email,
            email_verified=email is not None and _is_verified(provider, email, profile),
            name=http.text(profile, "name") or http.text(profile, "preferred_username") or "",
            groups=frozenset(one for one in groups[:MAX_GROUPS] if isinstance(one, str))
            if isinstance(groups, list)
            else None,
            has_two_factors=bool(methods & set(provider.two_factor_amr))
            or claims.get("acr") in provider.two_factor_acr,
            auth_time=id_tokens.moment(claims, "auth_time"),
            sid=http.text(claims, "sid", 255),
            id_token=token["id_token"] if provider.sign_out_upstream else None,
            refresh_token=http.text(token, "refresh_token", http.LONGEST_TOKEN)
            if provider.recheck
            else None,
        )


def _is_verified(provider: OidcProvider, email: str, claims: Mapping[str, Any]) -> bool:
    """Whether the provider says that the address is the person's own, now."""
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
