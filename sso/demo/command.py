"""`flask demo` starts a server and a sample application from nothing, in one process.

It has a database and a secret key of its own, in `instance/demo/`, whatever the settings say: a
user whose password is printed must not exist anywhere else.
"""

import fcntl
import json
import logging
import os
import secrets
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import click
from flask import Flask
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from sso import INSTANCE, audit, create_app
from sso.config.auth_methods import NO_AUTH_METHOD
from sso.demo import device_client, sample_data
from sso.demo.application import create_sample_application
from sso.demo.sample_data import Administrator
from sso.extensions import db
from sso.jobs import worker
from sso.process import stop_signals
from sso.services import accounts, clients, credentials, signing_keys
from sso.store import clients as stored_clients
from sso.store import migrations, users

# Browsers allow passkeys on this name, but on no IP address.
HOST = "localhost"
# Both that the name stands for, so that nobody else can listen where a browser connects first.
IP_ADDRESSES = ("127.0.0.1", "::1")
EMAIL = "dana@example.com"
_APPLICATION, _DEVICE = "Sample application", "Sample device"


@dataclass(frozen=True)
class Demo:
    """The URLs and credentials to try the demo with."""

    open: str
    email: str
    password: str
    server: str
    data: str
    console: str
    admin_email: str
    admin_password: str
    admin_setup_key: str
    admin_recovery_codes: Sequence[str]


class _Quiet(WSGIRequestHandler):
    """Log no line per request: the log of security events says more."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


@click.command("demo")
@click.option("--port", default=5000, help="Port of the server, or the next free one.")
@click.option(
    "--client-port", default=8000, help="Port of the sample application, or the next free one."
)
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=INSTANCE / "demo",
    help="Folder of its data.",
)
@click.option("--device", is_flag=True, help="Show the code of a device as well, to sign it in.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
def demo_command(port: int, client_port: int, folder: Path, device: bool, as_json: bool) -> None:
    """Start a demo: server, user and sample application."""
    with _only_one(folder):
        _run(port, client_port, folder, device, as_json)


def _run(port: int, client_port: int, folder: Path, device: bool, as_json: bool) -> None:
    server_port = _free_port(port)
    sample_port = _free_port(client_port, but=server_port)
    base_url = f"http://{HOST}:{server_port}/api/auth"
    server = create_app({"SSO_BASE_URL": base_url, "SSO_SIGN_UP": "open"}, folder.absolute())
    home = f"http://{HOST}:{sample_port}/"
    logging.disable(logging.INFO)  # that the demo's own user and client were created is no news
    client_id, client_secret, password, device_id, admin = _prepare(server, home)
    logging.disable(logging.NOTSET)
    sample = create_sample_application(
        issuer=base_url,
        client_id=client_id,
        client_secret=client_secret,
        secret_key=secrets.token_urlsafe(32),
    )
    stop = threading.Event()
    stop_signals.call(stop.set)
    threading.Thread(target=worker.run, args=(server, stop), daemon=True).start()
    running = [*_serve(server, server_port), *_serve(sample, sample_port)]
    console = f"{base_url}/admin"
    _announce(
        Demo(
            home, EMAIL, password, base_url, str(folder), console, admin.email, admin.password,
            admin.setup_key, admin.recovery_codes,
        ),
        as_json,
    )  # fmt: skip
    if device:
        arguments = (base_url, device_id, stop, as_json)
        threading.Thread(target=device_client.run, args=arguments, daemon=True).start()
    try:
        stop.wait()
        click.echo("\nThe demo has ended.", err=True)
    finally:
        stop.set()
        for each in running:
            each.shutdown()


@contextmanager
def _only_one(folder: Path) -> Iterator[None]:
    """Refuse a second demo, which would register the first one's application again and break it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a") as lock:  # released by the system, however this ends
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise click.ClickException(
                f"a demo runs in {folder} already; end it, or give another folder with --folder"
            ) from None
        yield


def _prepare(server: Flask, home: str) -> tuple[str, str, str, str, Administrator]:
    """Create what is missing, and a new password and client secret.

    Return the client's ID, its secret, the user's password, the ID of the sample device, and the
    administrator.
    """
    password = "-".join(secrets.token_hex(2) for _ in range(4))
    with server.app_context():
        migrations.upgrade()
        signing_keys.ensure(server.config["SECRET_KEY"])
        user = users.find_by_email(EMAIL)
        if user is None:
            accounts.create(
                audit.operator(),
                email=EMAIL,
                name="Dana Demo",
                password=password,
                email_verified=True,
            )
        else:
            credentials.set_password(audit.operator(), user, password)
        for old in stored_clients.every():
            if old.name in (_APPLICATION, _DEVICE):
                clients.delete(audit.operator(), old.client_id)
        admin = sample_data.prepare()
        metadata = {
            "client_name": _APPLICATION,
            "redirect_uris": [f"{home}callback"],
            "post_logout_redirect_uris": [home],
            "backchannel_logout_uri": f"{home}backchannel-logout",
            "home_url": home,
        }
        client, secret = clients.register(audit.operator(), metadata)
        device, _ = clients.register(
            audit.operator(),
            {
                "client_name": _DEVICE,
                "token_endpoint_auth_method": NO_AUTH_METHOD,
                "grant_types": [device_client.DEVICE_CODE, "refresh_token"],
                "scope": device_client.SCOPE,
            },
        )
        db.session.commit()
        return client.client_id, secret, password, device.client_id, admin


def _serve(app: Flask, port: int) -> list[BaseWSGIServer]:
    servers = [
        make_server(ip_address, port, app, threaded=True, request_handler=_Quiet)
        for ip_address in _own_ip_addresses()
    ]
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    return servers


def _own_ip_addresses() -> list[str]:
    """Return the loopback addresses of this machine; some have no IPv6."""
    ip_addresses = []
    for ip_address in IP_ADDRESSES:
        with suppress(OSError), _listening(ip_address, 0):
            ip_addresses.append(ip_address)
    return ip_addresses


@contextmanager
def _listening(ip_address: str, port: int) -> Iterator[None]:
    family = socket.AF_INET6 if ":" in ip_address else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, os.name == "posix")
        probe.bind((ip_address, port))
        yield


def _announce(demo: Demo, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(asdict(demo)))
    else:
        click.echo(
            f"\n  Open      {demo.open}\n"
            f'            and press "Sign in"\n\n'
            f"  Email     {demo.email}\n"
            f"  Password  {demo.password}\n\n"
            f"  Console   {demo.console}\n"
            f"  Email     {demo.admin_email}\n"
            f"  Password  {demo.admin_password}\n"
            "  Second factor: type this setup key into an authenticator app,\n"
            f"            {demo.admin_setup_key}\n"
            "            or use one of these recovery codes, each once:\n"
            f"            {'  '.join(demo.admin_recovery_codes[:5])}\n"
            f"            {'  '.join(demo.admin_recovery_codes[5:])}\n\n"
            f"  Server    {demo.server}\n"
            f"  Data      {demo.data}\n\n"
            "  Ctrl-C ends everything.\n"
        )
    sys.stdout.flush()


def _free_port(first: int, but: int | None = None) -> int:
    """Return this port, or the next free one."""
    for port in range(first, min(first + 200, 65536)):
        try:
            for ip_address in _own_ip_addresses():
                with _listening(ip_address, port):
                    pass
        except OSError:
            continue
        if port != but:
            return port
    raise click.ClickException(f"no port from {first} on is free; give another with --port")
