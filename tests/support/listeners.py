"""Servers that a test makes up: certificates, and what answers at a port of this machine."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certificate(folder: Path, days: int, host: str = "127.0.0.1") -> Path:
    """A self-signed certificate for an IP address or a name, with its key in the same file."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([_general_name(host)]), False)
        .sign(key, hashes.SHA256())
    )
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path = folder / f"certificate{days}-{host}.pem"
    path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    return path


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


class _Listener(socketserver.ThreadingTCPServer):
    daemon_threads = True


@contextmanager
def listening(handler: type[socketserver.BaseRequestHandler], port: int) -> Iterator[None]:
    with _Listener(("127.0.0.1", port), handler) as listener:
        threading.Thread(target=listener.serve_forever, daemon=True).start()
        yield
        listener.shutdown()
