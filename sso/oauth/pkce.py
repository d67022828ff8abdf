"""PKCE (RFC 7636), S256 only (RFC 9700 §2.1.1)."""

import re

from authlib.oauth2.rfc6749.errors import InvalidGrantError
from authlib.oauth2.rfc7636 import CodeChallenge as AuthlibCodeChallenge
from authlib.oauth2.rfc7636 import create_s256_code_challenge

from sso.crypto.digests import equal
from sso.oauth.authorization_code import AuthorizationCodeGrant

_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}\Z")


class CodeChallenge(AuthlibCodeChallenge):
    """Authlib takes a missing method for `plain`, and answers `invalid_request` at the token
    endpoint where RFC 7636 §4.6 says `invalid_grant`. The challenge itself is validated with
    the other parameters of the authorization request.
    """

    def __call__(self, grant: AuthorizationCodeGrant) -> None:
        grant.register_hook("after_validate_token_request", self.validate_code_verifier)

    def validate_code_verifier(self, grant: AuthorizationCodeGrant, result: object) -> None:
        """Compare verifier and challenge (§4.6). Raises `InvalidGrantError`."""
        verifier = grant.request.form.get("code_verifier")
        challenge = grant.request.authorization_code.code.code_challenge
        if challenge is None and verifier is None:
            return
        if challenge is None:
            # RFC 9700 §4.8.2: else a downgrade would go unnoticed.
            raise InvalidGrantError("A code_verifier was sent, but no code_challenge before.")
        if verifier is None:
            raise InvalidGrantError("The code_verifier is missing.")
        if not _VERIFIER.match(verifier) or not equal(
            create_s256_code_challenge(verifier), challenge
        ):
            raise InvalidGrantError("The code_verifier does not fit the code_challenge.")
