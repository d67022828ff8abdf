"""A forgotten password, through real processes: gunicorn, `flask worker`, a mail server."""

import re
from pathlib import Path

import requests

from tests.support.mailbox import link_in, mail_server
from tests.support.processes import Server, wait_for

NEW = "another long password"


def post(browser: requests.Session, url: str, **fields: str) -> requests.Response:
    page = browser.get(url, timeout=60)
    csrf_token, *_ = re.findall('name="csrf_token"[^>]* value="([^"]+)"', page.text)
    return browser.post(url, {"csrf_token": csrf_token, **fields}, timeout=60)


def test_a_forgotten_password(tmp_path: Path) -> None:
    with mail_server() as mail:
        server = Server(tmp_path, workers=1, SSO_SMTP_URL=mail.url, SSO_MAIL_FROM="sso@example.com")
        with server.running(), server.worker():
            server.flask("user", "invite", "--email", "ann@example.com", "--name", "Ann")
            wait_for(lambda: len(mail.messages) == 1, "the invitation")
            first = requests.Session()
            page = post(first, link_in(mail.messages[0]), new_password="a first long password")
            assert "Your password was set" in page.text

            browser = requests.Session()
            forgotten = f"{server.base_url}/forgotten-password"
            assert post(browser, forgotten, email="ann@example.com").ok
            wait_for(lambda: len(mail.messages) == 2, "the mail")
            assert mail.messages[1]["X-Envelope"] == "sso@example.com ann@example.com"
            link = link_in(mail.messages[1])
            assert link.startswith(f"{server.base_url}/new-password?token=")
            assert "Your password was set" in post(browser, link, new_password=NEW).text
            assert requests.get(link, timeout=60).status_code == 410
            who = {"email": "ann@example.com", "password": NEW}
            signed_in = post(browser, f"{server.base_url}/sign-in", **who)
            assert signed_in.url.endswith("/account")
            wait_for(lambda: len(mail.messages) == 3, "the notice")
            assert mail.messages[2]["Subject"] == "Your password was changed"
    assert "sso_ml_" not in server.log
