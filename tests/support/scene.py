"""An application and its user, who make mistakes together."""

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from flask import Flask

from sso.extensions import db
from sso.models import User
from sso.store import clients
from tests.support.actors import BASE, ORIGIN, Browser, RelyingParty

if TYPE_CHECKING:
    from tests.conftest import Clock


@dataclass
class Scene:
    """Who acts in a row of the table."""

    app: Flask
    browser: Browser
    client: RelyingParty
    other: RelyingParty
    user: User
    clock: "Clock"

    def code(self, **more: str | None) -> str:
        return self.browser.approve(self.client, **more).code

    def tokens(self, **more: str | None) -> dict[str, str]:
        found: dict[str, str] = self.client.exchange(self.code(**more)).get_json()
        return found

    def flask(self, *arguments: str) -> None:
        result = self.app.test_cli_runner().invoke(args=[*arguments])
        assert result.exit_code == 0, result.output

    def register(self, **metadata: object) -> None:
        """Register the client for something else."""
        with self.app.app_context():
            row = clients.find(self.client.client_id)
            assert row
            row.set_client_metadata({**row.client_metadata, **metadata})
            db.session.commit()

    def end_session(self, **more: str) -> None:
        self.browser.open(f"{ORIGIN}{BASE}/oauth2/end-session?{urlencode(more)}")
