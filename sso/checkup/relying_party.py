"""A relying party of this server: the authorization code flow with PKCE, and OpenID Connect.

The demo's sample application, `flask doctor` and the checks of administrators sign in with it. It
knows no more than any application: the issuer's URL, its own credentials, and Authlib's client.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from authlib.common.security import generate_token
from authlib.integrations.requests_client import OAuth2Session, OAuthError
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import InvalidClaimError
from joserfc.jwk import KeySet
from requests import HTTPError, Response
from requests.exceptions import InvalidJSONError

ALGORITHMS = ["RS256", "ES256", "EdDSA"]
SKEW = 120  # seconds
_AUTH_METHOD = "client_secret_post"
_LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"


@dataclass(frozen=True)
class Request:
    """Where to send the browser, and the secrets that belong to the answer."""

    url: str
    redirect_uri: str
    state: str
    nonce: str
    verifier: str


class RelyingParty:
    """A client of one issuer. Each method raises `OAuthError` with a code,
    `requests.RequestException`, or `ValueError` for an answer that is not JSON.

    `timeout` returns the seconds that the next request may take. `auth_method`: how it
    authenticates at the token endpoint. `resource`: the API that it asks for (RFC 8707).
    `options` are those of a `requests` session.
    """

    def __init__(
        self,
        issuer: str,
        client_id: str,
        client_secret: str = "",
        *,
        scope: str = "openid profile email",
        timeout: Callable[[], float] = lambda: 10,
        auth_method: str = _AUTH_METHOD,
        resource: str | None = None,
        **options: Any,
    ) -> None:
        self.issuer, self.client_id = issuer, client_id
        self._auth_method, self._resource = auth_method, resource
        self._client_secret, self._scope = client_secret, scope
        self._timeout, self._options = timeout, options

    def _session(self, token: Mapping[str, Any] | None = None) -> Any:
        return OAuth2Session(
            self.client_id,
            self._client_secret,
            scope=self._scope,
            code_challenge_method="S256",
            token_endpoint_auth_method=self._auth_method,
            revocation_endpoint_auth_method=self._auth_method,
            token=token,
            leeway=0,  # a token is used until its last second
            default_timeout=self._timeout(),
            **self._options,
        )

    @cached_property
    def metadata(self) -> Mapping[str, Any]:
        """The issuer's metadata (OpenID Connect Discovery §4)."""
        metadata = self._get(f"{self.issuer}/.well-known/openid-configuration")
        if metadata.get("issuer") != self.issuer:  # §4.3
            raise OAuthError("wrong_issuer")
        return metadata

    def _get(self, url: str, token: Mapping[str, Any] | None = None) -> dict[str, Any]:
        with self._session(token) as session:
            return _json(session.get(url, withhold_token=token is None, allow_redirects=False))

    def request(
        self, redirect_uri: str, push: Callable[[Mapping[str, str]], str] | None = None
    ) -> Request:
        """Begin a sign-in. `push` stores the parameters and returns their request URI."""
        endpoint = self.metadata["authorization_endpoint"]
        nonce, verifier = generate_token(43), generate_token(64)
        with self._session() as session:
            url, state = session.create_authorization_url(
                endpoint,
                redirect_uri=redirect_uri,
                code_verifier=verifier,
                nonce=nonce,
                **self._target(),
            )
        if push:
            request_uri = push(dict(parse_qsl(urlsplit(url).query)))
            query = {"client_id": self.client_id, "request_uri": request_uri}
            url = f"{endpoint}?{urlencode(query)}"
        return Request(url, redirect_uri, state, nonce, verifier)

    def _target(self) -> dict[str, str]:
        return {"resource": self._resource} if self._resource else {}

    def code(self, request: Request, answer: Mapping[str, str]) -> str:
        """Return the code in the answer to a request (RFC 6749 §4.1.2)."""
        if answer.get("state") != request.state:
            raise OAuthError("mismatching_state")
        # The answer comes from the server that was asked (RFC 9207 §2.4).
        is_required = self.metadata.get("authorization_response_iss_parameter_supported")
        if answer.get("iss") != self.issuer and (is_required or "iss" in answer):
            raise OAuthError("wrong_issuer")
        if "error" in answer:
            raise OAuthError(answer["error"], answer.get("error_description"))
        if not answer.get("code"):
            raise OAuthError("missing_code")
        return answer["code"]

    def exchange(self, request: Request, code: str) -> Mapping[str, Any]:
        """Trade a code for tokens."""
        return self._fetch(
            "authorization_code",
            code=code,
            redirect_uri=request.redirect_uri,
            code_verifier=request.verifier,
            **self._target(),
        )

    def refresh(self, token: Mapping[str, Any]) -> Mapping[str, Any]:
        """Trade a refresh token, which is used once, for new tokens."""
        if not token.get("refresh_token"):
            raise OAuthError("missing_token")
        scope = token.get("scope", self._scope)
        return self._fetch("refresh_token", refresh_token=token["refresh_token"], scope=scope)

    def _fetch(self, grant_type: str, **form: str) -> Mapping[str, Any]:
        with self._session() as session:
            token: Mapping[str, Any] = session.fetch_token(
                self.metadata["token_endpoint"],
                grant_type=grant_type,
                allow_redirects=False,
                **form,
            )
        if "access_token" not in token:  # such as the body of a redirect
            raise OAuthError("missing_access_token")
        return token

    def _keys(self) -> KeySet:
        jwks: Any = self._get(self.metadata["jwks_uri"])
        return KeySet.import_key_set(jwks)

    def identity(self, token: Mapping[str, Any], nonce: str | None = None) -> Mapping[str, Any]:
        """Validate the identity token and return its claims (OIDC Core §3.1.3.7).

        Raises `JoseError`, too. `nonce`: that of the request; a refresh has none.
        """
        if "id_token" not in token:
            raise OAuthError("missing_id_token")
        decoded = jwt.decode(token["id_token"], self._keys(), algorithms=ALGORITHMS)
        claims = CodeIDToken(
            decoded.claims,
            decoded.header,
            {"iss": {"value": self.issuer}, "aud": {"value": self.client_id}},
            {
                "nonce": nonce,
                "client_id": self.client_id,
                "access_token": token.get("access_token"),
            },
        )
        claims.validate(leeway=SKEW)
        return decoded.claims

    def profile(self, token: Mapping[str, Any], subject: str) -> Mapping[str, Any]:
        """Return what userinfo says about the subject of an identity token (OIDC Core §5.3)."""
        profile = self._get(self.metadata["userinfo_endpoint"], token)
        if profile.get("sub") != subject:  # §5.3.2
            raise OAuthError("wrong_subject")
        return profile

    def revoke(self, token: str) -> None:
        """Revoke a token (RFC 7009)."""
        with self._session() as session:
            url = self.metadata["revocation_endpoint"]
            _check(session.revoke_token(url, token, allow_redirects=False))

    def is_active(self, token: str) -> bool:
        """Ask whether a token is valid (RFC 7662)."""
        with self._session() as session:
            url = self.metadata["introspection_endpoint"]
            answer = _json(session.introspect_token(url, token, allow_redirects=False))
        return answer.get("active") is True

    def end_session_url(self, token: Mapping[str, Any], back: str) -> str:
        """Return where the browser goes to sign out everywhere (RP-Initiated Logout 1.0 §2)."""
        query = {"id_token_hint": token["id_token"], "post_logout_redirect_uri": back}
        return f"{self.metadata['end_session_endpoint']}?{urlencode(query)}"

    def verify_logout_token(self, token: str) -> Mapping[str, Any]:
        """Return the claims of a logout token (Back-Channel Logout 1.0 §2.6).

        Raises `JoseError`, too.
        """
        decoded = jwt.decode(token, self._keys(), algorithms=ALGORITHMS)
        if decoded.header.get("typ") != "logout+jwt":
            raise InvalidClaimError("typ")
        claims = decoded.claims
        jwt.JWTClaimsRegistry(
            iss={"essential": True, "value": self.issuer},
            aud={"essential": True, "value": self.client_id},
            iat={"essential": True},
            exp={"essential": True},
            jti={"essential": True},
        ).validate(claims)
        if _LOGOUT_EVENT not in claims.get("events", {}):
            raise InvalidClaimError("events")
        if "nonce" in claims:
            raise InvalidClaimError("nonce")
        if not {"sub", "sid"} & claims.keys():
            raise InvalidClaimError("sub")
        return claims


def _check(response: Response) -> None:
    if response.status_code != 200:
        raise HTTPError(f"{response.url} answers {response.status_code}", response=response)


def _json(response: Response) -> dict[str, Any]:
    _check(response)
    answer = response.json()
    if not isinstance(answer, dict):
        raise InvalidJSONError(response.url, response=response)
    return answer
