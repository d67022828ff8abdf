"""A person leaves: seconds from the directory's request to the end of each access, with real
processes: gunicorn, `flask worker`, an application with back-channel logout, one that speaks SAML,
and a SCIM service.
"""

import json
import logging
import re
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import requests

from tests.support.processes import Server, wait_for
from tests.support.saml import authn_request, query
from tests.support.scim_receivers import TOKEN, Hostile, answer, in_memory

DANA, PASSWORD = "dana@example.com", "correct horse battery"
logger = logging.getLogger(__name__)  # --log-cli-level=info shows the figures
AT_ONCE, SECONDS = 0.0, 10.0


class App:
    """An application with the tokens of a person who signed in with this browser."""

    def __init__(self, server: Server, url: str) -> None:
        options = ("--first-party", "--backchannel-logout-uri", f"{url}/logout")
        self.registered = server.register("Books", f"{url}/callback", *options)
        self.server, self.browser = server, requests.Session()
        self.auth = (self.registered["client_id"], self.registered["client_secret"])
        query = {
            "client_id": self.auth[0], "redirect_uri": f"{url}/callback", "state": "s",
            "response_type": "code", "scope": "openid email offline_access",
        }  # fmt: skip
        base = server.base_url
        page = self.browser.get(f"{base}/oauth2/authorize", params=query, timeout=30)
        (csrf_token,) = re.findall('name="csrf_token"[^>]* value="([^"]+)"', page.text)[:1]
        fields = {"csrf_token": csrf_token, "email": DANA, "password": PASSWORD}
        back = self.browser.post(page.url, fields, timeout=30)
        (code,) = parse_qs(urlsplit(back.url).query)["code"]
        self.tokens = self._post(
            "token", grant_type="authorization_code", code=code, redirect_uri=f"{url}/callback"
        ).json()

    def _post(self, endpoint: str, **fields: str) -> requests.Response:
        url = f"{self.server.base_url}/oauth2/{endpoint}"
        return requests.post(url, fields, auth=self.auth, timeout=30)

    def is_signed_in(self) -> bool:
        return self.browser.get(f"{self.server.base_url}/account", timeout=30).url.endswith(
            "/account"
        )

    def gets_userinfo(self) -> bool:
        headers = {"Authorization": f"Bearer {self.tokens['access_token']}"}
        url = f"{self.server.base_url}/oauth2/userinfo"
        return requests.get(url, headers=headers, timeout=30).ok

    def sees_active_token(self) -> bool:
        return bool(self._post("introspect", token=self.tokens["access_token"]).json()["active"])

    def refreshes(self) -> bool:
        done = self._post(
            "token", grant_type="refresh_token", refresh_token=self.tokens["refresh_token"]
        )
        self.tokens |= done.json() if done.ok else {}
        return done.ok


def test_offboarding(tmp_path: Path) -> None:
    application = Hostile(lambda _: answer(200, b"ok"))
    server = Server(tmp_path, workers=1)
    with application.listening() as listener, in_memory() as scim, server.running():
        url = listener.removesuffix("/scim/v2")
        person = ("user", "create", "--email", DANA, "--name", "Dana Demo", "--email-verified")
        server.flask(*person, "--group", "staff", "--password-stdin", stdin=PASSWORD)
        wiki = server.register("Wiki", "https://wiki.example/", "--group", "staff")["client_id"]
        server.flask("client", "update", wiki, "--scim-url", scim.url, "--scim-groups")
        server.flask("scim", "token", wiki, stdin=f"{TOKEN}\n")
        entity_id, acs_url = "https://saml.example/metadata", "https://saml.example/acs"
        names = ("--entity-id", entity_id, "--acs-url", acs_url, "--first-party")
        server.flask("client", "create", "--name", "Sheets", *names)
        created = server.flask(
            "api-token", "create", "--name", "HR", "--scope", "scim:write", "--expires-in", "1d",
            "--json",
        )  # fmt: skip
        headers = {"Authorization": f"Bearer {json.loads(created)['token']}"}
        directory = f"{server.base_url}/scim/v2/Users"
        (user,) = requests.get(directory, headers=headers, timeout=30).json()["Resources"]
        app = App(server, url)

        def gets_assertion() -> bool:
            sso_url = f"{server.base_url}/saml/sso"
            request = authn_request(
                entity_id, Destination=sso_url, AssertionConsumerServiceURL=acs_url
            )
            page = app.browser.get(f"{sso_url}?{query(request)}", timeout=30)
            return 'name="SAMLResponse"' in page.text

        def is_told() -> bool:
            return any(request.path == "/logout" for request in application.got)

        # What must be over, and how many seconds after the answer to the directory.
        accesses: dict[str, tuple[float, Callable[[], bool]]] = {
            "session": (AT_ONCE, app.is_signed_in),
            "userinfo": (AT_ONCE, app.gets_userinfo),
            "introspection": (AT_ONCE, app.sees_active_token),
            "refresh token": (AT_ONCE, app.refreshes),
            "SAML assertion": (AT_ONCE, gets_assertion),
            "back-channel logout": (SECONDS, lambda: not is_told()),
            "account by SCIM": (SECONDS, lambda: scim.users[DANA]["active"] is True),
            "group by SCIM": (SECONDS, lambda: DANA in scim.groups["staff"]),
        }
        with server.worker():
            wait_for(lambda: DANA in scim.groups.get("staff", ()), "the account there")
            assert {name: has() for name, (_, has) in accesses.items()} == dict.fromkeys(
                accesses, True
            )
            schemas = ["urn:ietf:params:scim:api:messages:2.0:PatchOp"]
            operation = {"op": "replace", "path": "active", "value": False}
            body = {"schemas": schemas, "Operations": [operation]}
            told = requests.patch(
                f"{directory}/{user['id']}", json=body, headers=headers, timeout=30
            )
            began = time.monotonic()
            assert told.ok, told.text
            still = {name for name, (limit, has) in accesses.items() if limit == AT_ONCE and has()}
            assert still == set()
            gone: dict[str, float] = {}

            def is_over() -> bool:
                for name, (_, has) in accesses.items():
                    if name not in gone and not has():
                        gone[name] = time.monotonic() - began
                return len(gone) == len(accesses)

            wait_for(is_over, "the end of all")
    for name, seconds in gone.items():
        logger.info("%s: %.2f s", name, seconds)
    late = {name: seconds for name, seconds in gone.items() if seconds > SECONDS}
    assert late == {}
    # The page says when each of these ends.
    page = Path(__file__).resolve().parents[2] / "docs/explanation/revocation.md"
    section = page.read_text().partition("## When a person leaves")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| ([^|]+) \| (at once|within 10 seconds) \|$", section, re.M))
    limits = {AT_ONCE: "at once", SECONDS: "within 10 seconds"}
    assert rows == {name: limits[limit] for name, (limit, _) in accesses.items()}
