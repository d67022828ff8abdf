"""The device authorization grant at the token endpoint (RFC 8628 §3.4), from top to bottom.

`oauth.device_authorization` issues the codes, and `services.devices` answers them for a person.
"""

from functools import partial
from typing import Any, NoReturn

from authlib.oauth2.rfc6749.errors import (
    InvalidGrantError,
    InvalidRequestError,
    OAuth2Error,
    UnauthorizedClientError,
)
from authlib.oauth2.rfc8628 import DeviceCodeGrant as AuthlibDeviceCodeGrant

from sso import audit, clock
from sso.audit.events import Event
from sso.config.client_fields import REFRESH_TOKEN
from sso.crypto import secrets
from sso.flow.refusals import Cause, Reason, because, describe
from sso.oauth import client_authentication, dpop, tokens
from sso.oauth.authlib_request import ProtocolRequest
from sso.oauth.grants.authorization_code import BENIGN_REUSE
from sso.ratelimit import limiting
from sso.store import devices, grants
from sso.store.clients import RegisteredClient
from sso.store.devices import PresentedDeviceCode
from sso.store.grants import LiveGrant
from sso.store.users import UserProfile

LONGER = 5  # seconds that each early poll adds to the interval (§3.5)
LONGEST_INTERVAL = 60  # after that, an early poll is refused and writes nothing
EARLINESS = 1  # seconds that a request may arrive early: latency varies

_CAUSES = {
    "access_denied": Cause.DENIED,
    "authorization_pending": Cause.AUTHORIZATION_PENDING,
    "expired_token": Cause.DEVICE_CODE_EXPIRED,
    "slow_down": Cause.SLOW_DOWN,
}


class DeviceCodeGrant(AuthlibDeviceCodeGrant):
    """Exchanges a device code for tokens, once a user has approved it; the endpoint commits.

    Authlib's `validate_device_credential` chooses the error of a poll. Its `validate_token_request`
    is replaced: it distinguishes another client's device code from an unknown one, and accepts a
    code any number of times.
    """

    request: ProtocolRequest
    TOKEN_ENDPOINT_AUTH_METHODS = client_authentication.METHODS

    code: PresentedDeviceCode | None = None
    live_grant: LiveGrant | None = None

    def validate_token_request(self) -> None:
        """Steps 1 to 3. Raises `OAuth2Error`; the endpoint then rolls back."""
        request = self.request

        # 1. Authenticate the client. One statement finds it, its device code, and the grant of it.
        client = client_authentication.authenticate(request, self._find, "token")
        if not client.check_grant_type(self.GRANT_TYPE):
            raise UnauthorizedClientError(f"The client may not use grant_type={self.GRANT_TYPE}.")
        dpop.read(request, "token", is_needed=client.requires_dpop)

        # 2. Find the device code.
        if "device_code" not in request.form:
            raise InvalidRequestError(describe(Cause.MISSING_PARAMETER, name="device_code"))
        if self.code is None or self.code.client_id != client.client_id or self.code.used_at:
            self._refuse(client)

        # 3. Check whether a person has approved it.
        try:
            self.validate_device_credential(self.code)
        except OAuth2Error as error:
            error.description = describe(_CAUSES[error.error])
            raise
        if self.live_grant is None:  # it has ended since
            self._refuse(client)
        request.details["user"] = self.live_grant.user_id

    def query_user_grant(self, user_code: str) -> tuple[UserProfile | None, bool] | None:
        """Return the user and whether they approved; `None` while nobody has answered.

        The statement that found the device code has found them, too.
        """
        if self.code is None or self.code.answered_at is None:
            return None
        user = self.live_grant.user if self.live_grant else None
        return user, self.code.grant_id is not None

    def should_slow_down(self, credential: PresentedDeviceCode) -> bool:
        """Return whether this poll comes too early; then the interval grows (§3.5).

        Polls are counted with the rate limits: a poll in time writes nothing to the database.
        """
        digest, interval = credential.digest, credential.interval
        if not limiting.is_early(f"poll/{digest}/{interval}", interval - EARLINESS):
            return False
        if interval < LONGEST_INTERVAL:
            longer = interval + LONGER
            limiting.is_early(f"poll/{digest}/{longer}", longer - EARLINESS)  # from now on
            self.request.keep_changes = devices.slow_down(
                self.request.connection, digest, interval, longer
            )
        return True

    def create_token_response(self) -> tuple[int, dict[str, Any], list[tuple[str, str]]]:
        """Steps 4 and 5. Raises `OAuth2Error`; the endpoint then rolls back."""
        request, live_grant = self.request, self.live_grant
        if live_grant is None:
            raise RuntimeError("tokens are issued before the request is validated")

        # 4. Sign what the grant still allows.
        granted = live_grant.scope
        live_grant = tokens.as_allowed_now(live_grant, request)
        tokens.choose_audience(request, granted, live_grant.scope)
        dpop.use(request.connection, request.proof)
        refresh_token = tokens.new_refresh_token()
        if not request.client.check_grant_type(REFRESH_TOKEN):
            refresh_token = tokens.RefreshToken("", None)

        # 5. Redeem the device code for it: of several requests, one gets past this statement.
        redeem = partial(devices.redeem, request.connection, self._digest, request.client.client_id)
        answer = tokens.issue(request, live_grant, refresh_token, redeem)
        if answer is None:
            self._refuse(request.client)
        if not refresh_token.secret:
            del answer["refresh_token"]
        return 200, answer, self.TOKEN_RESPONSE_HEADER

    @property
    def _digest(self) -> str:
        return secrets.digest(self.request.form.get("device_code", ""))

    def _find(self, client_id: str) -> RegisteredClient | None:
        client, self.code, self.live_grant = devices.find_with_client(
            self.request.connection, client_id, self._digest
        )
        return client

    def _refuse(self, client: RegisteredClient) -> NoReturn:
        """Refuse a device code that cannot be redeemed. Reuse ends its grant, as for codes."""
        request, connection, now = self.request, self.request.connection, clock.now()
        used = devices.find_redeemed(connection, self._digest, client.client_id)
        if used and now - used.used_at > BENIGN_REUSE:
            grants.end_one(connection, used.grant_id, "code_reuse")
            request.keep_changes = True
            request.details["user"] = used.user_id
            request.facts["used_at"] = used.used_at
            audit.event(
                Event.CODE_REUSED, user=used.user_id, client=client.client_id, grant=used.grant_id
            )
            raise InvalidGrantError(
                "The device code was used before; all that it gave has been revoked."
            )
        # The answer does not tell the reasons apart; the log and the audit trail do.
        reasons = devices.refusal_reasons_of(connection, self._digest)
        request.details["user"] = reasons.user_id if reasons else None
        request.facts |= reasons.facts() if reasons else {}
        if self.code and self.code.client_id != client.client_id:
            request.details["reason"] = because(Reason.ISSUED_TO_ANOTHER)
            request.facts["issued_to"] = self.code.client_id
        elif reasons:
            request.details["reason"] = reasons.reason_for(client.client_id, now)
        else:
            request.details["reason"] = because(Reason.UNKNOWN)
        raise InvalidGrantError(
            "The device code is unknown or used, it was issued to another client, or what the user "
            "approved has ended."
        )
