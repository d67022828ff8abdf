"""Canaille as a receiver of SCIM. It refuses what its schemas do not have, ignores filters, fails
if it is asked for a number of people or to create one twice, and does not keep `externalId`.
"""

import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests
from flask import Flask

from sso import audit
from sso.extensions import db
from sso.jobs import scim_drift
from sso.models import Client
from sso.services import accounts
from sso.store import provisioning as stored
from tests.applications.software import environ, python, stop
from tests.support.factories import make_attribute, make_user
from tests.support.processes import free_port, wait_for
from tests.support.scim_receivers import TOKEN, change, connect, people_of, receiver_of, work

PROGRAM = Path(__file__).parent / "programs/canaille_scim.py"
DANA, ERIN = "dana@example.com", "erin@example.com"
ENTERPRISE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"


@dataclass
class Canaille:
    url: str

    def get(self, path: str) -> list[dict[str, Any]]:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        answer = requests.get(f"{self.url}/{path}", headers=headers, timeout=30)
        answer.raise_for_status()
        return list(answer.json()["Resources"])

    def patch(self, account_id: str, **value: Any) -> None:
        """Change an account as somebody with rights there does."""
        schemas = ["urn:ietf:params:scim:api:messages:2.0:PatchOp"]
        body = {"schemas": schemas, "Operations": [{"op": "replace", "value": value}]}
        headers = {"Authorization": f"Bearer {TOKEN}"}
        url = f"{self.url}/Users/{account_id}"
        requests.patch(url, json=body, headers=headers, timeout=30).raise_for_status()

    @property
    def users(self) -> dict[str, dict[str, Any]]:
        return {row["userName"]: row for row in self.get("Users")}


@pytest.fixture
def canaille(tmp_path: Path) -> Iterator[Canaille]:
    port = free_port()
    command = [str(python("canaille") / "bin/python"), str(PROGRAM), str(port), TOKEN]
    output = tmp_path / "output"
    with output.open("w") as file:
        process = subprocess.Popen(
            command, cwd=tmp_path, env=environ(), stdout=file, stderr=file, start_new_session=True
        )

    def is_ready() -> bool:
        assert process.poll() is None, output.read_text()
        try:
            requests.get(f"http://127.0.0.1:{port}/", timeout=60)
        except requests.RequestException:
            return False
        return True

    try:
        wait_for(is_ready, "Canaille", 180)
        yield Canaille(f"http://127.0.0.1:{port}/scim/v2")
    finally:
        stop(process)


def update(app: Flask, user_id: Any, **fields: Any) -> None:
    with app.app_context():
        accounts.update(audit.SYSTEM, user_id, **fields)
        db.session.commit()


def drifts(app: Flask, client_id: str) -> dict[str, str]:
    with app.app_context():
        receiver = stored.find(client_id)
        assert receiver
        rows = scim_drift.compare(db.session.get_one(Client, client_id), receiver)
        scim_drift.repair(audit.SYSTEM, client_id, rows)
        db.session.commit()
        return {row.name: row.kind for row in rows}


def test_canaille(app: Flask, canaille: Canaille) -> None:
    make_attribute(app, "team")
    fields: dict[str, Any] = {"groups": ["staff"], "attributes": {"team": "Care"}}
    dana = make_user(app, claims={"given_name": "Dana", "family_name": "Demo"}, **fields)
    erin = make_user(app, ERIN, **fields)
    client_id = connect(app, canaille.url, scim_attributes=["department=attribute:team"])
    assert work(app) == 2
    created = canaille.users
    assert {name: row["active"] for name, row in created.items()} == {DANA: True, ERIN: True}
    assert created[DANA]["name"]["familyName"] == "Demo"
    assert created[ERIN]["name"]["familyName"] == erin.name  # which Canaille requires
    assert created[DANA][ENTERPRISE]["department"] == "Care"

    update(app, dana.id, name="Dana Duck", attributes={"team": "Press"})
    work(app)
    changed = canaille.users[DANA]
    assert changed["id"] == created[DANA]["id"]
    assert (changed["displayName"], changed[ENTERPRISE]["department"]) == ("Dana Duck", "Press")

    update(app, dana.id, disabled=True)
    began = time.monotonic()
    work(app)
    assert canaille.users[DANA]["active"] is False
    assert time.monotonic() - began < 10
    assert canaille.users[ERIN]["active"] is True
    update(app, dana.id, disabled=False)
    work(app)
    assert canaille.users[DANA]["active"] is True
    assert drifts(app, client_id) == {}

    canaille.patch(created[DANA]["id"], displayName="Somebody")
    canaille.patch(created[ERIN]["id"], active=False)
    assert drifts(app, client_id) == {DANA: "different", ERIN: "inactive"}
    work(app)
    assert canaille.users[DANA]["displayName"] == "Dana Duck"
    assert canaille.users[ERIN]["active"] is True
    assert drifts(app, client_id) == {}

    # Nothing is known about the accounts any more; they are found by their names.
    second = connect(app, canaille.url, name="Second")
    work(app)
    assert {row["id"] for row in canaille.users.values()} == {row["id"] for row in created.values()}
    assert people_of(app, second)[DANA].last_action == "adopted"

    # Nobody can be removed from groups there: that does not keep anybody's account.
    change(app, client_id, scim_groups=True)
    change(app, second, scim_url=None)
    work(app)
    assert [row["displayName"] for row in canaille.get("Groups")] == ["staff"]
    for user in (dana, erin):
        update(app, user.id, disabled=True)
    work(app)
    assert [row["active"] for row in canaille.users.values()] == [False, False]
    assert "groups: it answered 500" in str(people_of(app, client_id)[DANA].last_fault)
    assert receiver_of(app, client_id).failing_since is None
