"""Caddy with the configuration that is shipped, on a port and with a certificate of a test."""

import shutil
import socket
import ssl
from pathlib import Path

import pytest

from tests.production.nginx import changed
from tests.support.processes import ROOT, free_port, require
from tests.support.servers import Machine

HOST = "localhost"
SHIPPED = ROOT / "deploy" / "Caddyfile"
# A program as it is in PATH, and how it calls the buffering of request bodies: see the file.
SPELLINGS = {"caddy": "", "caddy-newer": "request_buffers 10MiB"}


class Caddy(Machine):
    """The shipped configuration, in front of a server on this port."""

    def __init__(
        self, folder: Path, upstream: int, program: str = "caddy", *, has_buffers: bool = True
    ) -> None:
        super().__init__(folder)
        self.upstream, self.spelling = upstream, SPELLINGS[program]
        path = shutil.which(program)
        if program != "caddy" and not path:
            pytest.skip("no Caddy since 2.7 is in PATH as caddy-newer")
        self.program = require("Caddy", path)
        text = SHIPPED.read_text()
        if not has_buffers:
            text = changed(text, {"\t\t{$BUFFER_REQUESTS:buffer_requests}\n": ""})
        options = (
            "{\n\tlocal_certs\n\tskip_install_trust\n\tadmin off\n\tauto_https disable_redirects\n"
        )
        options += f"\thttps_port {self.port}\n\thttp_port {free_port()}\n"
        options += f"\tdefault_bind 127.0.0.1\n\tstorage file_system {folder}/storage\n"
        (folder / "Caddyfile").write_text(changed(text, {"\n{\n": f"\n{options}"}))

    @property
    def origin(self) -> str:
        return f"https://{HOST}:{self.port}"

    @property
    def certificate(self) -> Path:
        """Of its authority."""
        return self.folder / "storage/pki/authorities/local/root.crt"

    def command(self) -> list[str]:
        file = str(self.folder / "Caddyfile")
        return [
            *("env", f"HOST_NAME={HOST}", f"UPSTREAM=127.0.0.1:{self.upstream}"),
            *([f"BUFFER_REQUESTS={self.spelling}"] if self.spelling else []),
            *(f"HOME={self.folder}", f"XDG_DATA_HOME={self.folder}/data"),
            *(self.program, "run", "--config", file, "--adapter", "caddyfile"),
        ]

    def answers(self) -> bool:
        if not self.certificate.exists():
            return False
        try:
            self.connect().close()
        except OSError:
            return False
        return True

    def connect(self, *protocols: str) -> ssl.SSLSocket:
        """A connection that may speak these protocols."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        if protocols:
            context.set_alpn_protocols(list(protocols))
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        return context.wrap_socket(plain, server_hostname=HOST)
