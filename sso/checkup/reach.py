"""Calls an application's URL, and explains to its operator why it does not answer."""

import os
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.client import HTTPException
from urllib.parse import SplitResult, urlsplit

from sso import clock
from sso.process import http_call
from sso.process.http_call import Answer, ForbiddenPeer
from sso.process.program import COMMAND

RENEW = timedelta(days=14)
_USUAL_PORTS = {"https": 443, "http": 80}
# X509_V_ERR_… of OpenSSL's x509_vfy.h.
_NOT_YET_VALID, _EXPIRED, _OTHER_NAMES = 9, 10, (62, 64)


@dataclass(frozen=True)
class Trouble:
    """The reason why a URL does not answer. `is_certain`: it is the same from everywhere."""

    message: str
    hint: str
    is_certain: bool = False


def as_browsers() -> ssl.SSLContext:
    """Trust known authorities and the operator's own, as `requests` does."""
    context = ssl.create_default_context()
    if bundle := os.environ.get("REQUESTS_CA_BUNDLE"):
        context.load_verify_locations(bundle)
    return context


def days_left(answer: Answer) -> int | None:
    """Return for how many days the certificate is valid; `None` over plain http."""
    ends = answer.certificate.get("notAfter")
    if ends is None:
        return None
    moment = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(ends)), UTC)
    return (moment - clock.now()).days


def fetch(
    method: str,
    url: str,
    *,
    as_worker: bool = False,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    read: int = 0,
    only_public: bool = False,
) -> Answer | Trouble:
    """Send one request without cookies, and read at most `read` bytes. Follow no redirect.

    `as_worker`: trust the certificates that `flask worker` does. `only_public`: call no private or
    loopback address.
    """
    parts = urlsplit(url)
    place = f"{parts.hostname}:{_port(parts)}"
    ca_setting = f"SSL_CERT_FILE, to {COMMAND} worker, too" if as_worker else "REQUESTS_CA_BUNDLE"
    try:
        answer = http_call.call(
            method,
            url,
            body,
            headers,
            tls=None if as_worker else as_browsers(),
            read=read,
            only_public=only_public,
        )
    except ssl.SSLCertVerificationError as error:
        return _bad_certificate(error, parts.hostname or "", ca_setting)
    except ssl.SSLError as error:
        if _answers("http", parts):
            message = f"port {_port(parts)} speaks plain http, but https is registered"
            return Trouble(message, "put a proxy with TLS in front of the application", True)
        message = f"no TLS connection at {place} ({error.reason})"
        return Trouble(message, "check the TLS settings of the application or its proxy")
    except ForbiddenPeer as error:
        hint = f"call it from the command line: {COMMAND} doctor" if only_public else "check DNS"
        return Trouble(str(error), hint, is_certain=True)
    except socket.gaierror:
        message = f"the name {parts.hostname} is unknown on this machine"
        return Trouble(message, "check it for typing errors, and DNS")
    except ConnectionRefusedError:
        return Trouble(f"nothing listens at {place}", _where_else(parts), is_certain=True)
    except TimeoutError:
        return Trouble(f"{place} does not answer", "start the application, and check the firewall")
    except (OSError, HTTPException, ValueError) as error:
        if parts.scheme == "http" and _answers("https", parts):
            return _https_instead(parts)
        message = f"{place} does not speak HTTP ({type(error).__name__})"
        return Trouble(message, "check host and port, and the application's log")
    if parts.scheme == "http" and answer.status == 400 and _answers("https", parts):
        return _https_instead(parts)
    return answer


def _bad_certificate(error: ssl.SSLCertVerificationError, host: str, ca_setting: str) -> Trouble:
    message = f"the certificate is refused: {error.verify_message}"
    if error.verify_code in _OTHER_NAMES:
        return Trouble(message, f"install a certificate for {host}", is_certain=True)
    if error.verify_code in (_EXPIRED, _NOT_YET_VALID):
        return Trouble(message, "renew the certificate", is_certain=True)
    return Trouble(
        message,
        "install a certificate with its whole chain; or, with a CA of your own, give that CA's "
        f"file in {ca_setting}",
    )


def _https_instead(parts: SplitResult) -> Trouble:
    message = f"port {_port(parts)} speaks https, but http is registered"
    return Trouble(message, f"register {parts._replace(scheme='https').geturl()} instead", True)


def _answers(scheme: str, parts: SplitResult) -> bool:
    """Return whether the same port speaks another scheme, with any certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
    try:
        http_call.call("HEAD", f"{scheme}://{host}:{_port(parts)}/", tls=context)
    except (OSError, HTTPException, ValueError):
        return False
    return True


def _where_else(parts: SplitResult) -> str:
    """Return the hint for a closed port."""
    for scheme, port in _USUAL_PORTS.items():
        try:
            with http_call.connect(parts.hostname or "", port):
                return f"start the application; or register port {port} ({scheme}), which is open"
        except OSError:
            continue
    return "start the application, or register the port on which it listens"


def _port(parts: SplitResult) -> int:
    return parts.port or _USUAL_PORTS[parts.scheme]
