"""nginx with the configuration that is shipped, on ports and with a certificate of a test."""

import datetime
import ipaddress
import os
import shutil
import subprocess
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.processes import ROOT, free_port, require
from tests.support.servers import Machine

HOST = "localhost"  # a name, as the configuration refuses who asks for an address
SHIPPED = ROOT / "deploy" / "nginx.conf"


class Nginx(Machine):
    """The shipped configuration with two upstream addresses in place of its own."""

    def __init__(self, folder: Path, upstream: tuple[int, int]) -> None:
        super().__init__(folder)
        self.certificate = folder / "fullchain.pem"
        make_certificate(self.certificate, folder / "privkey.pem")
        self.plain_port = free_port()
        changes = {
            "login.example.com": HOST,
            "listen 80 default_server;": f"listen 127.0.0.1:{self.plain_port} default_server;",
            "listen 443 ssl default_server;": f"listen 127.0.0.1:{self.port} ssl default_server;",
            "/var/log/nginx/": f"{folder}/",
            "node-1:8000": f"127.0.0.1:{upstream[0]}",
            "node-2:8000": f"127.0.0.1:{upstream[1]}",
            "listen 80;": f"listen 127.0.0.1:{self.plain_port};",
            "listen 443 ssl;": f"listen 127.0.0.1:{self.port} ssl;",
            "/etc/ssl/sso/": f"{folder}/",
        }
        self.write(changed(SHIPPED.read_text(), changes))

    def write(self, servers: str) -> None:
        (self.folder / "servers.conf").write_text(servers)
        user = "user root;" if os.geteuid() == 0 else ""
        paths = " ".join(
            f"{name}_temp_path {self.folder}/{name};"
            for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        (self.folder / "nginx.conf").write_text(
            f"{user} daemon off; pid {self.folder}/pid; error_log stderr; events {{}}\n"
            f"http {{ access_log off; {paths} include {self.folder}/servers.conf; }}\n"
        )

    @property
    def origin(self) -> str:
        return f"https://{HOST}:{self.port}"

    def command(self) -> list[str]:
        nginx = require("nginx", shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin"))
        return [
            nginx,
            "-p",
            str(self.folder),
            "-c",
            str(self.folder / "nginx.conf"),
            "-e",
            "stderr",
        ]

    def check(self) -> subprocess.CompletedProcess[str]:
        """`nginx -t`"""
        return subprocess.run([*self.command(), "-t"], capture_output=True, text=True, check=False)


class Inner(Nginx):
    """A second proxy, between the first one and a node: it adds to what the first one said."""

    def __init__(self, folder: Path, upstream: int) -> None:
        super().__init__(folder, (upstream, upstream))
        self.write(
            f"server {{ listen 127.0.0.1:{self.port}; location / {{"
            f" proxy_pass http://127.0.0.1:{upstream}; proxy_set_header Host $http_host;"
            f" proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;"
            f' proxy_set_header X-Forwarded-Proto "$http_x_forwarded_proto, $scheme";'
            f"}} }}\n"
        )


def changed(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def make_certificate(certificate: Path, private_key: Path) -> None:
    """For this machine, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(
            x509.SubjectAlternativeName(
                [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName(HOST)]
            ),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private_key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
