"""The pages in docs/deploy: their commands in order.

Blocks below a comment `not run: …` are left out; `machine: …` says where the others run.
"""

import re
import textwrap
from typing import NamedTuple

from tests.support.processes import ROOT

PAGES = {path.name: path.read_text() for path in sorted((ROOT / "docs/deploy").glob("*.md"))}
NEW_CLIENT = (
    "sso client create --name Wiki --redirect-uri https://wiki.example.com/callback "
    "--scope 'openid profile email groups' --json"
)
SIGNED_IN = "signed in: you@example.com ['sso-administrators']"
HOST, PASSWORD = "login.example.com", "correct horse battery"
BASE = f"https://{HOST}/api/auth"
_BLOCK = re.compile(
    r"(?P<notes>(?:^ *<!-- [^\n]* -->\n)*)^(?P<indent> *)```sh\n(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_NOTE = re.compile(r"<!-- (not run|machine): (.*) -->")
# Be a person with a browser who signs in to a new application; and then be the application.
SIGN_IN = """
import json, os, secrets, sys
from urllib.parse import parse_qs, urlencode, urlsplit
import requests
from sso.checkup.browser import Browser

base, email, password = sys.argv[1:4]
client = json.loads(os.environ["CLIENT"])
callback = client["redirect_uris"][0]
asked = {"response_type": "code", "client_id": client["client_id"], "redirect_uri": callback,
         "scope": "openid profile email groups", "state": secrets.token_urlsafe()}
browser = Browser(base, callback)
page = browser.open(f"{base}/oauth2/authorize?{urlencode(asked)}")
page = browser.submit(page, {"email": email, "password": password})
if ("decision", "allow") in page.buttons:
    page = browser.submit(page, {"decision": "allow"})
found = parse_qs(urlsplit(page.url).query)
assert "code" in found, (page.url, page.response.text, page.response.headers)
code = found["code"][0]
tokens = requests.post(f"{base}/oauth2/token", timeout=10, data={
    "grant_type": "authorization_code", "code": code, "redirect_uri": callback,
    "client_id": client["client_id"], "client_secret": client["client_secret"]}).json()
profile = requests.get(f"{base}/oauth2/userinfo", timeout=10,
                       headers={"Authorization": f"Bearer {tokens['access_token']}"})
print("signed in:", profile.json()["email"], profile.json()["groups"])
"""


class Block(NamedTuple):
    text: str
    machines: list[str]
    reason: str  # why it is not run


def blocks(page: str, part: str = "") -> list[Block]:
    """The commands of a page, or of one part of it, in their order."""
    text = PAGES[page]
    if part:
        (text,) = re.findall(rf"^## {part}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    made = []
    for found in _BLOCK.finditer(text):
        notes = _NOTE.findall(found["notes"])
        named = [value for name, value in notes if name == "machine"]
        reasons = [value for name, value in notes if name == "not run"]
        made.append(Block(textwrap.dedent(found["text"]), named, " ".join(reasons)))
    return made
