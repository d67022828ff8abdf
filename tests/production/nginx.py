"""nginx with the configuration that is shipped, on ports and with a certificate of a test."""

import datetime
import os
import shutil
import subprocess
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.machines import Machine
from tests.services import ROOT, free_port, require

SHIPPED = ROOT / "deploy" / "nginx.conf"


class Nginx(Machine):
    """The shipped configuration with two upstream addresses in place of its own."""

    def __init__(self, folder: Path, upstream: tuple[int, int]) -> None:
        super().__init__(folder)
        self.certificate = folder / "fullchain.pem"
        make_certificate(self.certificate, folder / "privkey.pem")
        self.plain_port = free_port()
        changes = {
            "node-1:8000": f"127.0.0.1:{upstream[0]}",
            "node-2:8000": f"127.0.0.1:{upstream[1]}",
            "listen 80": f"listen 127.0.0.1:{self.plain_port}",
            "listen 443": f"listen 127.0.0.1:{self.port}",
            "https://login.example.com$request_uri": f"https://localhost:{self.port}$request_uri",
            "login.example.com": "localhost",
            "/var/log/nginx/": f"{folder}/",
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
            f"{user} daemon off; pid {self.folder}/pid; error_log {self.folder}/main-error.log;\n"
            f"events {{}}\nhttp {{ access_log {self.folder}/main.log; {paths}\n"
            f"include {self.folder}/servers.conf; }}\n"
        )

    @property
    def origin(self) -> str:
        return f"https://localhost:{self.port}"

    @property
    def access_log(self) -> str:
        return (self.folder / "sso.log").read_text()

    @property
    def logs(self) -> str:
        """What it wrote into its own logs, as a package sets them up, and into those shipped."""
        names = ("main.log", "main-error.log", "sso.log", "sso-error.log")
        return "".join((self.folder / name).read_text() for name in names)

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
    """For localhost, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
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
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
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
