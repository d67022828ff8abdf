"""A host that publishes client metadata documents over https, and a server that can read them.

Documents are read from public addresses alone. Only the process that `tests.support.documents_wsgi`
runs in takes 127.0.0.1 for the address of this host.
"""

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flask import Flask
from werkzeug.serving import make_server

from tests.support.listeners import certificate
from tests.support.processes import free_port

DOMAIN = "agent.example"
APP = "tests.support.documents_wsgi:app"  # instead of the server's own


class DocumentHost:
    """https://agent.example, at a port of this machine."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        # With it in SSL_CERT_FILE, a server trusts this host.
        self.certificate = certificate(folder, 1, DOMAIN)
        self.documents: dict[str, dict[str, Any]] = {}
        self.reads: list[str] = []
        self._flask = Flask("documents")
        self._flask.add_url_rule("/<path:path>", "document", self._document)

    def publish(self, path: str, **fields: Any) -> str:
        """Publish a document of a public client; return its URL."""
        url = f"https://{DOMAIN}:{self.port}/{path}"
        self.documents[path] = {
            "client_id": url,
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
            **fields,
        }
        return url

    def _document(self, path: str) -> Any:
        self.reads.append(path)
        if path not in self.documents:
            return {}, 404
        return json.dumps(self.documents[path]), 200, {"Content-Type": "application/json"}

    @contextmanager
    def running(self) -> Iterator["DocumentHost"]:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(self.certificate)
        server = make_server("127.0.0.1", self.port, self._flask, True, ssl_context=tls)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join(10)
            server.server_close()
