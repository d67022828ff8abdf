"""The device authorization endpoint (RFC 8628 §3.1), and the request that waits for a person.

The request of a device is validated when it arrives, and again when a person has typed its user
code: the client's registration may have become narrower.
"""

import re
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from authlib.oauth2.rfc6749.errors import OAuth2Error, UnauthorizedClientError
from authlib.oauth2.rfc8628 import (
    DeviceAuthorizationEndpoint as AuthlibDeviceAuthorizationEndpoint,
)
from flask import Response
from flask import request as flask_request
from sqlalchemy import Connection

from sso import audit, clock, context
from sso.audit.events import Event
from sso.config.client_fields import DEVICE_CODE
from sso.crypto import secrets, user_codes
from sso.flow import request as flow_request
from sso.flow.refusals import Reason, because
from sso.flow.request import AuthorizationRequest
from sso.oauth import client_authentication
from sso.oauth.authlib_request import ProtocolRequest
from sso.oauth.client_authentication import LONGEST_CLIENT_ID
from sso.oauth.server import AuthorizationServer
from sso.ratelimit import limiting, refusals
from sso.store import clients, devices
from sso.store.clients import RegisteredClient
from sso.store.devices import NewDevice, WaitingDevice

PATH = "/device"  # where people type the code
USER_CODE = "user_code"  # the parameter of that page, and of a waiting request
_TRIES = 5  # to draw a user code that no other device has
# The first product of a User-Agent (RFC 9110 §10.1.5), which says most about a device.
# Its name has no dot: mail programs make links of what looks like a host.
_PROGRAM = re.compile(r"[A-Za-z0-9_-]{1,40}(?:/[0-9]{1,4}(?:\.[0-9]{1,6}){0,2})?")


class DeviceAuthorizationEndpoint(AuthlibDeviceAuthorizationEndpoint):
    """One instance for each request: Authlib passes on only the scope to be stored."""

    CLIENT_AUTH_METHODS = client_authentication.METHODS
    EXPIRES_IN = 600
    INTERVAL = 5

    def __init__(self, server: AuthorizationServer, request: ProtocolRequest) -> None:
        super().__init__(server)
        self.request = request

    def authenticate_client(self, request: ProtocolRequest) -> RegisteredClient:
        """Authenticate the client, and validate its request.

        Authlib checks neither that the client may use the grant, nor that it may have the scopes
        and resources of the request.
        """
        client = client_authentication.authenticate(
            request,
            partial(clients.find_enabled, request.connection),
            self.ENDPOINT_NAME,
            self.CLIENT_AUTH_METHODS,
        )
        if not client.check_grant_type(DEVICE_CODE):
            raise UnauthorizedClientError(f"The client may not use grant_type={DEVICE_CODE}.")
        parse(request, request.payload.scope, request.payload.data.get("resource"))
        # Each is a row until it is purged. Anyone can name a public client.
        rule = limiting.DEVICE_REQUEST_BY_ANYONE if client.is_public else limiting.DEVICE_REQUEST
        limiting.spend(rule, client.client_id)
        return client

    def generate_user_code(self) -> str:
        return user_codes.shown(user_codes.make())

    def generate_device_code(self) -> str:
        return secrets.make_secret(secrets.DEVICE_CODE)

    def get_verification_uri(self) -> str:
        return context.settings().base_url + PATH

    def save_device_credential(
        self, client_id: str, scope: str | None, data: dict[str, Any]
    ) -> None:
        """Store the codes; draw another user code if it is taken."""
        now = clock.now()
        for _ in range(_TRIES):
            code = user_codes.read(data["user_code"]) or ""
            device = NewDevice(
                digest=secrets.digest(data["device_code"]),
                user_code_digest=_digests(code)[0],
                client_id=client_id,
                scope=scope,
                resource=self.request.payload.data.get("resource"),
                address=(flask_request.remote_addr or "")[:45],
                program=_program(flask_request.user_agent.string),
                interval=data["interval"],
                created_at=now,
                expires_at=now + timedelta(seconds=data["expires_in"]),
            )
            if devices.add(self.request.connection, device):
                return
            before, data["user_code"] = data["user_code"], self.generate_user_code()
            complete = data["verification_uri_complete"]
            data["verification_uri_complete"] = complete.replace(before, data["user_code"])
        raise OAuth2Error(
            "No user code is free; try again.", error="temporarily_unavailable", status_code=503
        )


def _program(user_agent: str) -> str:
    match = _PROGRAM.match(user_agent)
    return match[0] if match else ""


def _digests(code: str) -> list[str]:
    return user_codes.digests(context.settings().secret_keys, code)


def parse(
    request: ProtocolRequest, scope: str | None, resource: str | None
) -> AuthorizationRequest:
    """Validate the request of a device, as the authorization endpoint does. Raises `OAuth2Error`.

    Users are always asked: only they know whose device it is.
    """
    client = request.client
    sent = {"scope": scope, "resource": resource}
    values = {name: value for name, value in sent.items() if value}
    try:
        asked = flow_request.parse(
            {"client_id": client.client_id, "redirect_uri": "", **values},
            registered_scope=client.scope,
            require_pkce=False,
            require_state=False,
            hinted_subject=None,
            now=clock.now(),
            apis=request.apis,
            default_api=client.default_api,
            issuer=context.settings().issuer_of(client),
        )
    except flow_request.InvalidRequest as error:
        if error.error == "invalid_scope":
            request.details["dropped"] = scope
        if error.error == "invalid_target":
            request.facts["resource"] = resource or client.default_api
        raise OAuth2Error(error.description, error=error.error) from None
    return replace(asked, prompt=frozenset({"consent"}))


@dataclass(frozen=True)
class DeviceRequest:
    """A device that waits at one of our pages, with the interface of a grant that waits there."""

    request: ProtocolRequest
    device: WaitingDevice
    user_code: str
    redirect_uri: str = ""


class InvalidUserCode(Exception):
    """No device waits for this code; `reason` is for the log and the audit trail."""

    def __init__(self, reason: Reason = Reason.UNKNOWN) -> None:
        super().__init__(reason)
        self.reason = because(reason)


def record_invalid(
    error: InvalidUserCode, user_id: UUID | None, client_id: str | None = None
) -> None:
    """Record a code that no device waits for; `client_id`: the client of a device that did wait."""
    event = Event.DEVICE_CODE_FAILED
    refusals.record(
        event,
        budget=event,
        facts={"user": user_id} if user_id else None,
        error="invalid_user_code",
        client=audit.clean(client_id, LONGEST_CLIENT_ID) if client_id else None,
        user=user_id,
        reason=error.reason,
    )


def is_of_device(parameters: dict[str, str]) -> bool:
    """Return whether a waiting request is a device's."""
    return USER_CODE in parameters


def find(connection: Connection, user_code: str) -> WaitingDevice:
    """Find the device that waits for this code. Raises `InvalidUserCode`."""
    device = devices.find_waiting(connection, _digests(user_code))
    if device is None:
        raise InvalidUserCode(Reason.UNKNOWN)
    if not device.is_waiting(clock.now()):
        raise InvalidUserCode(Reason.USED_BEFORE if device.answered_at else Reason.EXPIRED)
    return device


def resolve(request: ProtocolRequest) -> DeviceRequest:
    """Find the device of a waiting request, and validate what it asks for.

    Raises `InvalidUserCode` and `OAuth2Error`.
    """
    user_code = request.payload.data[USER_CODE]
    device = find(request.connection, user_code)
    client: RegisteredClient | None = request.client
    if client is None or client.client_id != device.client_id:
        raise InvalidUserCode(Reason.CLIENT_DISABLED)
    if not client.check_grant_type(DEVICE_CODE):
        raise UnauthorizedClientError(f"The client may not use grant_type={DEVICE_CODE}.")
    request.authorization_request = parse(request, device.scope, device.resource)
    return DeviceRequest(request, device, user_code)


def answer(server: AuthorizationServer, request: ProtocolRequest) -> Response:
    """Answer a request to the endpoint. Raises `TooManyAttempts`; the caller commits."""
    try:
        response: Response = server.handle_response(
            *DeviceAuthorizationEndpoint(server, request)(request)
        )
    except OAuth2Error as error:
        return server.handle_error_response(request, error)
    return response
