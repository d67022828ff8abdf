"""The code blocks of README and docs/, run as they stand, against a real server.

What stands in for the reader: an address of the test's own server instead of the example's, and
values where the text has "…". Nothing else is changed.
"""

import importlib.util
import json
import os
import pty
import re
import secrets
import select
import shlex
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from string import Template
from urllib.parse import parse_qsl, urlsplit

import pytest
import requests

from sso.checkup.sign_in import Browser as DoctorBrowser
from sso.checkup.sign_in import Page
from sso.config import images, overrides
from sso.config.settings import read_settings
from sso.config.upstream import file as upstream_file
from sso.config.upstream.ldap import LdapProvider
from tests.support.actors import claims_of, pkce
from tests.support.listeners import certificate
from tests.support.processes import CONFIGURATION, ROOT, Server, free_port, wait_for
from tests.support.programs import Program

PAGES = {
    path.relative_to(ROOT).as_posix(): path.read_text()
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    if path.parent != ROOT / "docs/deploy"  # see tests/production/test_deploy_pages.py
    and path.name != "mcp-faults.md"  # see tests/operations/test_doctor_mcp.py
}
# A block may be indented, as part of a list.
BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
BLOCKS = [
    (page, textwrap.dedent(block))
    for page, text in PAGES.items()
    for _, _, block in BLOCK.findall(text)
]
CALLBACK = "https://wiki.example.com/oauth/callback"
TUTORIAL, TUTORIAL_OF_API = "docs/tutorial.md", "docs/tutorial-api.md"
VERIFYING = "docs/how-to/verify-access-tokens.md"
PASSWORD = "correct horse battery"

# By their first lines: each block is run by a test here, or stands here with the reason.
RUN = {
    ".venv/bin/flask client create --preset nginx --url https://wiki.example.com --first-party "
    "--group staff --option upstream=http://127.0.0.1:8080 --option server=http://127.0.0.1:8000",
    ".venv/bin/flask client create --proxy --name Wiki --url https://wiki.example.com "
    "--first-party --group staff",
    ".venv/bin/flask api create --name Wiki --identifier https://wiki.example.com "
    "--scope 'read=Read pages'",
    ".venv/bin/flask db upgrade",
    ".venv/bin/gunicorn wsgi:app",
    '.venv/bin/flask client create --name "Wiki" '
    "--redirect-uri http://localhost:8001/oauth/callback --require-pkce",
    "from authlib.integrations.flask_client import OAuth, OAuthError",
    '.venv/bin/flask client create --name "Backup" --public --device '
    '--scope "openid profile offline_access"',
    '"""Sign in from a terminal."""',
    ".venv/bin/flask --app wiki run --port 8001",
    '.venv/bin/flask api create --identifier https://docs.example.com --name "Documents" '
    '--scope "read=Read your documents"',
    '.venv/bin/flask client create --name "Reader" '
    "--redirect-uri http://localhost:8002/callback --api https://docs.example.com=read",
    "ISSUER=http://127.0.0.1:5000/api/auth AUDIENCE=https://docs.example.com PORT=8001 "
    ".venv/bin/python api_flask.py",
    '@app.get("/documents")',
    "curl -s -o /dev/null -w '%{http_code}\\n' http://127.0.0.1:8001/documents",
    "import requests",
    ".venv/bin/flask --app reader run --port 8002",
    '.venv/bin/flask explain --client ID --message "is not a valid audience for this Response"',
    ".venv/bin/flask client create --preset zabbix --url https://zabbix.example.com",
    ".venv/bin/flask client create --saml --name Wiki --metadata wiki.xml",
    ".venv/bin/flask client create --name Wiki --entity-id https://wiki.example.com/saml "
    "--acs-url https://wiki.example.com/saml/acs",
    '.venv/bin/flask client update ID --set-attributes "mail=email role=groups" --add-scope groups',
    '.venv/bin/flask api create --identifier https://orders.example.com --name "Orders" '
    '--scope "read=Read your orders" --scope "write=Change your orders"',
    '.venv/bin/flask client create --name "Shop" '
    '--redirect-uri https://shop.example.com/callback --api "https://orders.example.com=read"',
    ".venv/bin/flask client preview Shop --user dana@example.com "
    "--resource https://orders.example.com",
    ".venv/bin/flask api update https://orders.example.com --introspection",
    '.venv/bin/flask api update Orders --add-scope "refund=Refund orders" --remove-scope write '
    "--add-group sales",
    '.venv/bin/flask client create --name "Nightly job" --service '
    "--api https://docs.example.com=read",
    "curl -s http://127.0.0.1:5000/api/auth/oauth2/token -d grant_type=client_credentials "
    "-d resource=https://docs.example.com -d client_id=… -d client_secret=…",
    "format = 1",
    "[provider.corp]",
    "[provider.openldap]",
    "[provider.office]",
    "[provider.google]",
    "[provider.entra]",
    "[provider.github]",
    'group_base = "ou=groups,dc=example,dc=com"',
    "$ flask explain 7k3m-v9xq",
    "SSO_NAME=Acme Corp",
    '{% extends "sso/sign_in.html" %}',
    "[invite.en]",
    ":root { --ground: #e8eef0; }",
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 160 32">',
    ".venv/bin/flask client update ID --logo wiki.svg --home-url https://wiki.example.com/",
}
# Run by one test, on a database with a user and a client, whose id stands where the text has ID.
COMMANDS = {
    '.venv/bin/flask client create --name "Wiki" '
    "--redirect-uri https://wiki.example.com/oauth/callback",
    '.venv/bin/flask client create --name "Backup tool" '
    "--redirect-uri http://127.0.0.1/callback --public",
    ".venv/bin/flask client create --preset grafana --url https://grafana.example.com",
    ".venv/bin/flask client list",
    ".venv/bin/flask client update ID --require-mfa",
    ".venv/bin/flask client preview ID --user you@example.com",
    ".venv/bin/flask user update you@example.com --add-group staff --claim given_name=You",
    ".venv/bin/flask group create wiki",
    ".venv/bin/flask audit list --user you@example.com --since 7d",
    ".venv/bin/flask audit verify",
    ".venv/bin/flask backup /var/backups/sso.sqlite",
    ".venv/bin/flask key list",
    "NEW_URL=postgresql+psycopg://sso:PASSWORD@localhost/sso .venv/bin/flask db copy env:NEW_URL",
}
_DEMO = (
    "python3 -m venv .venv && .venv/bin/pip install -q -c constraints.txt -e . "
    "&& .venv/bin/flask demo"
)
_SECRET_KEY = "replaces the secret key; tests/journeys/test_secret_key.py does the same"
_BANK = "tests/applications/test_high_assurance.py runs it"
_POOLER = "needs PgBouncer; tests/production/test_pooler.py starts it"
_WEBHOOKS = "needs a receiver; tests/cli/test_webhooks.py runs all of flask webhook"
_APIS = "tests/applications/test_apis.py runs it"
_PROXIED = "tests/applications/test_assertions.py runs it"
_ATTRIBUTES = "tests/cli/test_attributes.py and tests/endpoints/test_own_claims.py run its options"
_OUTWARDS = "tests/provisioning runs it against real SCIM services"
_NAMED = "tests/applications/test_remote_user.py runs it"
_EXCHANGE = "tests/oauth/grants/test_token_exchange.py does so"
_SERVICE = "tests/oauth/grants/test_client_credentials.py asks for such tokens"
_PLATFORM = "needs the platform; tests/oauth/test_workload_identity.py has JWTs like it"
_AGENTS = "tests/cli/test_mcp.py and tests/operations/test_doctor_mcp.py run its commands"
_PROTECT = "tests/applications/test_mcp_tutorial.py runs it"
_ROLES = "tests/cli/test_clients.py and tests/endpoints/test_roles.py run its options"
_ASSERTIONS = "tests/oauth/grants/test_id_jag.py runs its options"
NOT_RUN = {
    '.venv/bin/flask doctor --mcp https://mcp.example.com/mcp': _AGENTS,
    '.venv/bin/flask mcp add http://127.0.0.1:8001/mcp --name "Notes" '
    '--scope "read=Read your notes" --for fastmcp > notes.py': _PROTECT,
    '.venv/bin/flask mcp add https://mcp.example.com/mcp --name "Notes" '
    '--scope "read=Read your notes" --group engineers': _AGENTS,
    '.venv/bin/flask mcp allow claude': _AGENTS,
    "npx @modelcontextprotocol/conformance@0.2.0-alpha.12 authorization "
    "--url https://login.example.com/api/auth --client-id … "
    "--resource https://mcp.example.com/mcp": "tests/applications/test_mcp_clients.py runs it",
    '@mcp.tool': _PROTECT,
    'SSO_OPEN_REGISTRATION=true .venv/bin/flask doctor --mcp http://127.0.0.1:8001/mcp': _PROTECT,
    'SSO_OPEN_REGISTRATION=true .venv/bin/gunicorn wsgi:app': _PROTECT,
    'import asyncio': _PROTECT,
    'notes/bin/python client.py': _PROTECT,
    'python3 -m venv notes': _PROTECT,
    ".venv/bin/flask api update https://orders.example.com --add-role approver=managers": _ROLES,
    ".venv/bin/flask client update Wiki --add-role admin=owners --add-role editor=staff "
    '--add-role "editor=it staff"': _ROLES,
    ".venv/bin/flask client preview Wiki --user dana@example.com": _ROLES,
    ".venv/bin/flask client create --name Assistant --assertions --first-party "
    "--id-jag-issuer https://idp.example.com --api https://docs.example.com=read": _ASSERTIONS,
    ".venv/bin/flask client create --name Assistant "
    "--redirect-uri https://assistant.example/callback --exchange "
    "--id-jag-audience 'https://auth.chat.example assistant-at-chat chat.read'": _ASSERTIONS,
    "export ISSUER=https://sso.example.com/api/auth AUDIENCE=https://docs.example.com PORT=8001":
        _APIS,
    '"""access_tokens.py: verify access tokens of ISSUER that are for this API."""': _APIS,
    '"""api_flask.py: an API in Flask, protected by Authlib."""': _APIS,
    '"""proofs.py: check the DPoP proof that comes with a token that is bound to a key."""': _APIS,
    '"""api_fastapi.py: an API in FastAPI that also takes tokens bound by DPoP."""': _APIS,
    '"""api_django.py: an API in Django REST framework."""': _APIS,
    "// api.mjs: an API in Express.": _APIS,
    ".venv/bin/flask api update https://docs.example.com --introspection": _APIS,
    "// access.js: ask the server about the access token of a request.": _APIS,
    "# For nginx.conf, within http.": _APIS,
    "http_filters:": _APIS,
    '<project xmlns="http://maven.apache.org/POM/4.0.0">': f"{_APIS} with APPLICATIONS_LARGE=1",
    "// Api.java: an API in Spring.": f"{_APIS} with APPLICATIONS_LARGE=1",
    "// An API in Go, with github.com/coreos/go-oidc/v3.": f"{_APIS} with APPLICATIONS_LARGE=1",
    '.venv/bin/flask client create --name "Documents backend" --service --exchange '
    "--exchange-from https://docs.example.com --api https://maps.example.com=read": _EXCHANGE,
    "POST /api/auth/oauth2/token": _EXCHANGE,
    "export ISSUER=https://sso.example.com/api/auth AUDIENCE=https://wiki.example.com PORT=8080":
        _PROXIED,
    '"""wiki_flask.py: an application in Flask that verifies the assertion of each request."""':
        _PROXIED,
    "// wiki.mjs: an application in Express that verifies the assertion of each request.": _PROXIED,
    "// An application in Go that verifies the assertion of each request.": _PROXIED,
    '"""jupyterhub_config.py: JupyterHub takes the user from the assertion of forward auth."""':
        _PROXIED,
    ".venv/bin/flask doctor --client ID --page https://wiki.example.com/profile":
        "tests/applications/test_doctor_proxy.py runs it",
    "# Radicale: instead of reverse_proxy in the Caddyfile of the preset": _NAMED,
    "# /etc/radicale/config": _NAMED,
    "# Fossil: instead of proxy_pass and what follows it in the configuration of the preset":
        _NAMED,
    'fossil user new dana@example.com "Dana Demo" "$(openssl rand -hex 32)" '
    "-R /srv/notes.fossil": _NAMED,
    '"""notes.py: a Mercurial repository for the people that its hgrc lists."""': _NAMED,
    "[web]": _NAMED,
    '.venv/bin/flask attribute define cost_center --type string --title "Cost center"':
        _ATTRIBUTES,
    ".venv/bin/flask user update dana@example.com --set-attribute cost_center=4711 "
    "--set-attribute plan=gold": _ATTRIBUTES,
    ".venv/bin/flask client update Wiki --add-claim department=attribute:department": _ATTRIBUTES,
    ".venv/bin/flask client update Wiki "
    "--add-claim department@id_token,userinfo=attribute:department": _ATTRIBUTES,
    "[auth.jwt]": "Grafana is not in the registries that the tests install from",
    '{"sub": "5ec2b0ba-…", "client_id": "maps-backend", '
    '"act": {"sub": "maps-backend", "act": {"sub": "docs-backend"}}}': _EXCHANGE,
    "…/oauth2/authorize?response_type=code&client_id=…&scope=openid%20read"
    "&resource=https%3A%2F%2Forders.example.com":
        "a URL; tests/endpoints/test_resources.py asks so",
    '{"identifier": "https://api.example.com", "name": "Orders", '
    '"scopes": {"read": "Read your orders"}}':
        "a body; tests/endpoints/test_api_of_apis.py sends such ones",
    '.venv/bin/flask api create --identifier https://invoices.example.com --name Invoices '
    '--scope read="Read invoices" --scope write="Change invoices"': _SERVICE,
    'curl https://id.example.com/api/auth/oauth2/token --user "$CLIENT_ID:$CLIENT_SECRET" '
    "-d grant_type=client_credentials -d resource=https://invoices.example.com -d scope=read":
        _SERVICE,
    '.venv/bin/flask client create --name "Nightly report" --service '
    "--api https://invoices.example.com=read --trust-issuer https://cluster.example.com "
    '--trust-subject "system:serviceaccount:reports:nightly"': _PLATFORM,
    "apiVersion: v1": _PLATFORM,
    'curl https://id.example.com/api/auth/oauth2/token -d grant_type=client_credentials '
    '-d client_id="$CLIENT_ID" '
    "-d client_assertion_type=urn:ietf:params:oauth:client-assertion-type:jwt-bearer "
    "--data-urlencode client_assertion@/var/run/secrets/sso/token": _PLATFORM,
    "permissions:": _PLATFORM,
    "deploy:": _PLATFORM,
    'curl https://id.example.com/api/auth/oauth2/introspect --user "$API_ID:$API_SECRET" '
    '-d token="$TOKEN"': "tests/oauth/test_resource_servers.py asks so",
    ".venv/bin/flask client create --name Directory --service "
    "--api https://id.example.com/api/auth/scim=scim:read,scim:write":
        "tests/endpoints/test_own_apis.py uses such a service",
    _DEMO: "installs from the network; tests/journeys/test_demo.py runs it",
    "python3 -m venv .venv": "the same, line by line",
    "python3 -m venv .venv && .venv/bin/pip install -q -c constraints.txt -e '.[test]' "
    "&& .venv/bin/pytest": "installs from the network, and would run these tests within themselves",
    ".venv/bin/flask demo --device": "tests/journeys/test_demo.py runs it",
    "$ .venv/bin/flask demo": "what the demo prints; tests/journeys/test_demo.py runs it",
    ".venv/bin/python -m tests.bench  # SQLite, 2 workers on one core":
        "takes minutes; tests/bench/test_bench.py runs it with few requests",
    ".venv/bin/python -m tests.bench.lists --people 1000000 --database postgresql  # 10 minutes":
        "takes minutes; tests/bench/test_bench.py runs it with few people",
    ".venv/bin/pip install -c constraints.txt -e '.[tracing]'":
        "installs from the network; tests/operations/test_tracing.py exports traces",
    'flask user create --email ada@example.com --name "Ada Lovelace" --admin':
        "asks for a password; tests/cli runs it with --password-stdin",
    "flask user update ada@example.com --add-group sso-administrators":
        "the user is of the block before",
    "flask user set-picture you@example.com portrait.jpg": "tests/cli/test_pictures.py runs it",
    ".venv/bin/flask webhook create --url https://hr.example.com/hooks/sso "
    "--event user_created --event user_deleted": _WEBHOOKS,
    ".venv/bin/flask webhook list": _WEBHOOKS,
    ".venv/bin/flask client update Wiki --add-group staff "
    "--scim-url https://wiki.example.com/scim/v2": _OUTWARDS,
    ".venv/bin/flask client update Wiki --add-scim-attribute title=attribute:job_title": _OUTWARDS,
    ".venv/bin/flask client update Wiki --scim-groups": _OUTWARDS,
    ".venv/bin/flask client update Wiki --add-claim groups=groups:":
        "tests/endpoints/test_own_claims.py has such claims",
    ".venv/bin/flask scim plan Wiki": _OUTWARDS,
    ".venv/bin/flask scim deliveries Wiki --person dana@example.com": "tests/provisioning/"
    "test_deliveries.py runs it",
    '.venv/bin/flask api-token create --name "Entra ID" --scope scim:write --expires-in 365d':
        "tests/cli/test_api_tokens.py runs all of flask api-token",
    "Authorization: Bearer sso_api_…": "a header",
    'SSO_ADMIN_ROLES="auditors=audit people-read, wiki-team=applications"':
        "a setting; tests/services/test_custom_roles.py has such roles",
    'SSO_ADMIN_ROLES="hr-paris=people-write groups, auditors=audit"':
        "a setting; tests/services/test_limited_roles.py has such roles",
    'SSO_ADMIN_ROLES="wiki-team=applications audit"':
        "a setting; tests/endpoints/admin/test_roles_of_applications.py has such roles",
    "CREATE EXTENSION IF NOT EXISTS pg_trgm;":
        "statements for a database above 100,000 people; tests/store/test_migrations.py",
    'attributes = { "department" = "department", "employeeNumber" = "staff_number" }':
        "a key of a provider; tests/endpoints/test_directory_sign_in.py has such ones",
    'SSO_ISSUER_ALIASES="https://login.example.com/realms/main=keycloak"':
        "a setting; tests/endpoints/test_old_addresses.py has it",
    ".venv/bin/flask client update CLIENT_ID --issuer https://login.example.com/realms/main":
        "tests/attacks/test_two_issuers.py runs it",
    ".venv/bin/flask migrate rehearse access.log": "tests/cli/test_rehearse.py runs it",
    'flask branding set --name "Acme Corp" --logo logo.svg --accent-color "#c8102e"':
        "tests/cli/test_branding.py runs it",
    "SSO_MAIL_CODES=on": "a setting; tests/attacks/test_sign_in_code.py has it",
    "SSO_TERMS_URL=https://example.com/terms": "a setting; tests/endpoints/test_terms.py has it",
    ".venv/bin/flask attribute define company --type string --title \"Your company\" "
    "--at-sign-up required": "tests/cli/test_attributes.py runs it",
    ".venv/bin/flask client update CLIENT_ID --issuer new":
        "tests/endpoints/test_old_addresses.py runs it",
    ".venv/bin/flask user import keycloak realm.json --plan": "tests/cli/test_imports.py runs it",
    ".venv/bin/flask migrate keycloak realm.json --plan": "tests/cli/test_migrate.py runs it",
    ".venv/bin/flask migrate authelia configuration.yml users_database.yml db.sqlite3 --plan":
        "tests/cli/test_migrate_authelia.py runs it",
    'export BETTER_AUTH_SECRET="…"': "tests/cli/test_migrate_better_auth.py sets it",
    'export BETTER_AUTH_DATABASE="postgresql://reader:…@db.example.com/app"':
        "tests/applications/test_better_auth_provider.py reads such a database",
    ".venv/bin/flask migrate pocket-id pocket-id.db --rp-id id.example.com --plan":
        "tests/cli/test_migrate_pocket_id.py runs it",
    'export POCKET_ID="postgresql://reader:…@db.example.com/pocketid"':
        "tests/cli/test_migrate_pocket_id.py sets it",
    ".venv/bin/flask migrate authentik authentik.json --issuer https://auth.example.com --plan":
        "tests/cli/test_migrate_authentik.py runs it",
    'tables="authentik_core_user authentik_core_group authentik_core_user_ak_groups':
        "of a database of authentik; tests/cli/test_migrate_authentik.py reads such a file",
    'SSO_ISSUER_ALIASES="https://auth.example.com/application/o/wiki/=authentik':
        "tests/cli/test_migrate_authentik.py sets it",
    ".venv/bin/flask attribute define former_subject --type string --writer administrator":
        "tests/endpoints/test_former_subjects.py does it",
    ".venv/bin/flask migrate auth0 clients.json --plan": "tests/cli/test_migrate_auth0.py runs it",
    "umask 077": "of a tenant of Auth0; tests/cli/test_migrate_auth0.py reads such a file",
    ".venv/bin/flask user import auth0 auth0.json --plan":
        "tests/cli/test_migrate_auth0.py runs it",
    "bin/kc.sh export --realm acme --file realm.json": "of Keycloak",
    ".venv/bin/flask export realm.json --format keycloak --realm acme":
        "tests/cli/test_keycloak_export.py runs it",
    "cat hashes.json users.json > auth0.json": "tests/imports/test_formats.py reads such a file",
    "python manage.py dumpdata auth.group auth.user > users.json":
        "tests/imports/test_real_systems.py does so with Django",
    'psql -At -c "select json_build_object(\'user\', (select json_agg(u) from \\"user\\" u), '
    '\'account\', (select json_agg(a) from account a))" > tables.json': "of better-auth",
    "id,email,name,email_verified,disabled,groups,password_hash,locale":
        "tests/imports/test_formats.py reads such a file",
    '{"client_name": "Wiki", "redirect_uris": ["https://wiki.example.com/cb"], '
    '"require_pkce": true}': "a body; tests/endpoints/test_api.py sends it",
    "{": "what a webhook's receiver gets; tests/jobs/test_webhook_delivery.py verifies it",
    "from standardwebhooks import Webhook": "the same",
    "mv instance/secret_key instance/secret_key.previous  # keeps its mode, 0600": _SECRET_KEY,
    ".venv/bin/flask key reencrypt": _SECRET_KEY,
    ".venv/bin/flask doctor": "needs a server; tests/operations/test_doctor.py runs it",
    ".venv/bin/flask doctor --client ID":
        "needs a server; tests/operations/test_doctor_client.py runs it",
    "https://login.example.com/api/auth/.well-known/openid-configuration":
        "a URL; tests/oauth/test_metadata.py reads it",
    "bootstrap:": "needs Patroni; tests/production/test_patroni.py has it",
    "/etc/sso/templates/": "a listing; the files in it are read by a test here",
    "import json": _BANK,
    ".venv/bin/flask client create --preset openid-client-fapi2 --url https://bank.example.com "
    "--jwks public.json": "tests/applications/test_node.py runs it",
    ".venv/bin/flask client create --name \"Bank\" "
    "--redirect-uri https://bank.example.com/callback --profile fapi2 --jwks public.json": _BANK,
    "import base64": _BANK,
    'import { readFile } from "node:fs/promises";': _BANK,
    "[databases]": _POOLER,
    "ALTER ROLE sso SET lock_timeout = '5s';": _POOLER,
    "SSO_DATABASE_URL=postgresql://sso:PASSWORD@db1:5432,db2:5432/sso":
        "needs two databases; tests/production/test_failover.py has them",
}  # fmt: skip


def first_line(block: str) -> str:
    return re.sub(r" {2,}", "  ", block.strip().splitlines()[0])


def block(beginning: str, page: str | None = None) -> str:
    """The one block with this first line, on a page or on any."""
    (found,) = {
        text for where, text in BLOCKS
        if first_line(text) == beginning and page in (None, where)
    }  # fmt: skip
    return found


def filled(text: str, **values: str) -> str:
    """The text with a value for each "…" that follows a name."""
    for name, value in values.items():

        def with_value(found: re.Match[str], value: str = value) -> str:
            return f"{found[1]}{value}"

        text, count = re.subn(rf"(\b{name}\s*=\s*\"?)…", with_value, text)
        assert count == 1, name
    assert "…" not in text
    return text


def test_every_block_is_run_or_there_is_a_reason() -> None:
    assert {first_line(text) for _, text in BLOCKS} == RUN | COMMANDS | NOT_RUN.keys()
    assert not NOT_RUN.keys() & (RUN | COMMANDS)
    assert sum(text.count("```") for text in PAGES.values()) == 2 * len(BLOCKS)


def test_what_is_not_run_names_what_there_is() -> None:
    for text in (text for _, text in BLOCKS if first_line(text) in NOT_RUN):
        for module in re.findall(r"python -m ([\w.]+)", text):
            assert module == "venv" or importlib.util.find_spec(module), module
        for path in re.findall(r"-c (\S+\.txt)", text):
            assert (ROOT / path).is_file()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The database is made by the block that registers an application."""
    made = Server(tmp_path_factory.mktemp("readme"))
    made.printed = typed(made, block(".venv/bin/flask db upgrade", "README.md"))  # type: ignore[attr-defined]
    with made.serving():
        yield made


def commands(script: str) -> Iterator[tuple[dict[str, str], list[str], str | None]]:
    """For each command of ours in a script, its variables, its arguments, and its file of output.

    A script of anything else is for a shell.
    """
    assert not set("$|&;`\\<") & set(script)
    for line in script.strip().splitlines():
        words = shlex.split(line, comments=True)
        program, end = words.index(".venv/bin/flask"), len(words)
        if ">" in words:
            end = words.index(">")
            assert end == len(words) - 2
        variables = dict(word.split("=", 1) for word in words[:program])
        yield variables, words[program + 1 : end], words[-1] if end < len(words) else None


def typed(server: Server, script: str, folder: Path = ROOT) -> str:
    """Run a script's commands at a terminal, whose person types the password when asked."""
    printed = []
    for variables, arguments, file in commands(script):
        output = _typed(server, arguments, variables, folder)
        if file:
            (folder / file).write_text(output)
        else:
            printed.append(output)
    return "".join(printed)


def _typed(server: Server, arguments: list[str], variables: dict[str, str], folder: Path) -> str:
    printed = server.folder / "printed"
    printed.unlink(missing_ok=True)
    ours, theirs = pty.openpty()
    terminal, said = Path(os.ttyname(theirs)), b""
    try:
        program = Program(
            "flask", arguments, cwd=folder, env={**server.environ, **variables},
            stdin=terminal, stdout=printed, stderr=terminal, is_session=True,
        )  # fmt: skip
        while (code := program.poll()) is None or select.select([ours], [], [], 0)[0]:
            if select.select([ours], [], [], 0.05)[0]:
                data = os.read(ours, 4096)
                said += data
                if b"assword" in data or b"epeat" in data:
                    os.write(ours, data.count(b": ") * f"{PASSWORD}\n".encode())
    finally:
        os.close(theirs)
        os.close(ours)
    assert code == 0, said.decode() + printed.read_text()
    assert PASSWORD.encode() not in said + printed.read_bytes()
    return printed.read_text()


def credentials(printed: str) -> dict[str, str]:
    """What `client create` printed for its reader."""
    found = re.findall(r"^(client_id|client_secret) +(\S+)$", printed, re.MULTILINE)
    assert [name for name, _ in found] == ["client_id", "client_secret"]
    return dict(found)


def sign_in_and_allow(server: Server, url: str, callback: str) -> Page:
    """Be the person with the browser, up to the application's callback address."""
    visitor = DoctorBrowser(server.base_url, callback)
    page = visitor.open(url)
    page = visitor.submit(page, {"email": "you@example.com", "password": PASSWORD})
    if ("decision", "allow") in page.buttons:
        page = visitor.submit(page, {"decision": "allow"})
    assert page.url.startswith(callback), page.response and page.response.text
    return page


@contextmanager
def running(
    server: Server, script: str, folder: Path, url: str, status: int = 200
) -> Iterator[None]:
    """A program of the shell, until it answers at this URL and until the end."""
    script = script.replace(".venv/bin/", f"exec {Path(sys.executable).parent}/")
    with (server.folder / "log").open("a") as log:
        process = subprocess.Popen(
            ["sh", "-e", "-c", script], cwd=folder, env=server.environ, stdout=log, stderr=log
        )

    def answers() -> bool:
        assert process.poll() is None, (server.folder / "log").read_text()
        try:
            return requests.get(url, timeout=5).status_code == status
        except (requests.ConnectionError, requests.Timeout):
            return False

    try:
        wait_for(answers, script)
        yield
    finally:
        process.terminate()
        process.wait(20)


def test_the_tutorial(tmp_path: Path) -> None:
    """Sections 2 to 5, on other ports, with a folder of its own for the application."""
    server, port = Server(tmp_path), str(free_port())
    here = f"http://localhost:{port}"
    typed(server, block(".venv/bin/flask db upgrade", TUTORIAL))
    with running(server, block(".venv/bin/gunicorn wsgi:app"), ROOT, f"{server.origin}/readyz"):
        (register,) = (text for _, text in BLOCKS if "localhost:8001/oauth" in text)
        registered = credentials(typed(server, register.replace("8001", port)))
        source = block("from authlib.integrations.flask_client import OAuth, OAuthError")
        source = filled(source, **registered, secret_key=secrets.token_hex())
        assert source.count("http://127.0.0.1:5000/") == 1
        source = source.replace("http://127.0.0.1:5000", server.origin)
        (tmp_path / "wiki.py").write_text(source)
        start = block(".venv/bin/flask --app wiki run --port 8001").replace("8001", port)
        with running(server, start, tmp_path, here), requests.Session() as browser:
            assert 'href="/login"' in browser.get(here, timeout=60).text
            sent = browser.get(f"{here}/login", allow_redirects=False, timeout=60)
            callback = f"{here}/oauth/callback"
            arrived = sign_in_and_allow(server, sent.headers["Location"], callback)
            home = browser.get(arrived.url, timeout=60)
            assert (home.url, home.text) == (f"{here}/", "Signed in as Your Name")
            denied = requests.get(f"{callback}?error=access_denied", timeout=60)
            assert (denied.status_code, "access_denied" in denied.text) == (400, True)
    said = "the application shows `Signed in as Your Name`"
    assert said in PAGES[TUTORIAL]


def test_the_program_of_a_device(server: Server, tmp_path: Path) -> None:
    page = "docs/how-to/devices.md"
    (register,) = (text for where, text in BLOCKS if where == page and "--device --scope" in text)
    printed = typed(server, register)
    (client_id,) = re.findall(r"^client_id +(\S+)$", printed, re.MULTILINE)
    source = filled(block('"""Sign in from a terminal."""'), CLIENT_ID=client_id)
    assert source.count("https://login.example.com/api/auth") == 1
    source = source.replace("https://login.example.com/api/auth", server.base_url)
    (tmp_path / "backup.py").write_text(source)
    process = subprocess.Popen(
        [sys.executable, "backup.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    lines = iter(process.stdout.readline, "")
    line = next(line for line in lines if line.startswith("Open "))
    _, url, _, _, user_code = line.strip(".\n").split(" ")
    visitor = DoctorBrowser(server.base_url, CALLBACK)
    asked = visitor.submit(visitor.open(url), {"user_code": user_code})
    asked = visitor.submit(asked, {"email": "you@example.com", "password": PASSWORD})
    assert ("decision", "allow") in asked.buttons
    visitor.submit(asked, {"decision": "allow"})
    printed, _ = process.communicate(timeout=30)
    assert printed.endswith("Signed in as Your Name.\n")
    assert process.returncode == 0


def test_the_tutorial_of_an_api(tmp_path: Path) -> None:
    """All sections, on other ports, with a folder of its own for the programs."""
    server, ports = Server(tmp_path), {port: str(free_port()) for port in ("8001", "8002")}
    moved = {"http://127.0.0.1:5000": server.origin, **ports}

    def of_page(beginning: str, page: str = TUTORIAL_OF_API) -> str:
        """The block that begins like this, with the addresses of this test."""
        (text,) = (text for where, text in BLOCKS if where == page and text.startswith(beginning))
        for example, own in moved.items():
            text = text.replace(example, own)
        return text

    typed(server, block(".venv/bin/flask db upgrade", TUTORIAL))
    for name in ("access_tokens", "api_flask"):
        (tmp_path / f"{name}.py").write_text(of_page(f'"""{name}.py: ', VERIFYING))
    assert of_page("@app.get") in (tmp_path / "api_flask.py").read_text()
    with running(server, block(".venv/bin/gunicorn wsgi:app"), ROOT, f"{server.origin}/readyz"):
        typed(server, of_page(".venv/bin/flask api create"))
        reader = typed(server, of_page('.venv/bin/flask client create --name "Reader"'))
        source = of_page("import requests")
        source = filled(source, **credentials(reader), secret_key=secrets.token_hex())
        (tmp_path / "reader.py").write_text(source)
        api, home = f"http://127.0.0.1:{ports['8001']}", f"http://localhost:{ports['8002']}"
        environ, _, program = of_page("ISSUER=").partition(" .venv/bin/")
        serve = f"export {environ}\n.venv/bin/{program}"
        start = of_page(".venv/bin/flask --app reader")
        with (
            running(server, serve, tmp_path, f"{api}/static/", status=404),
            running(server, start, tmp_path, home),
        ):
            asked = subprocess.run(
                ["sh", "-c", of_page("curl -s -o")], capture_output=True, text=True, check=True
            )
            assert asked.stdout == "401\n"
            link = re.findall(r'href="([^"]+)"', requests.get(home, timeout=60).text)[0]
            shown = called(server, home, link)
            assert re.fullmatch(r'The API answered 200: \{"user":"[0-9a-f-]{36}"\}\s*', shown)
            assert called(server, home, "/login").startswith("The API answered 401: ")
            job = typed(server, of_page('.venv/bin/flask client create --name "Nightly job"'))
            request = filled(of_page("curl -s http"), **credentials(job))
            answer = subprocess.run(
                ["sh", "-c", request], capture_output=True, text=True, check=True
            )
            token = json.loads(answer.stdout)["access_token"]
            headers = {"Authorization": f"Bearer {token}"}
            found = requests.get(f"{api}/documents", headers=headers, timeout=60).json()
            assert found == {"user": credentials(job)["client_id"]}


def called(server: Server, home: str, link: str) -> str:
    """Sign in to the application of the tutorial; gives what it shows of the API's answer."""
    with requests.Session() as browser:
        sent = browser.get(home + link, allow_redirects=False, timeout=60)
        arrived = sign_in_and_allow(server, sent.headers["Location"], f"{home}/callback")
        return browser.get(arrived.url, timeout=60).text


def test_the_six_steps_by_hand(server: Server) -> None:
    text = PAGES["docs/how-to/connect.md"].partition("The six steps by hand")[2]
    steps = re.findall(r"^[1-6]\. (.*)$", text, re.MULTILINE)
    one, two, three, four, five, six = [re.findall(r"`([^`]+)`", step) for step in steps[:6]]
    verifier, challenge = pkce()
    known = {
        **credentials(server.printed),  # type: ignore[attr-defined]
        "redirect_uri": CALLBACK, "state": "st4te", "code_challenge": challenge,
        "code_verifier": verifier,
    }  # fmt: skip

    def given(pairs: list[tuple[str, str]]) -> dict[str, str]:
        return {name: known[name] if value == "…" else value for name, value in pairs}

    method, address = one[0].split()
    asked = given(parse_qsl(urlsplit(address).query))
    prepared = requests.Request(method, server.base_url + urlsplit(address).path, params=asked)
    arrived = sign_in_and_allow(server, prepared.prepare().url or "", CALLBACK)

    names, sent = dict(parse_qsl(urlsplit(two[0]).query)), parse_qsl(urlsplit(arrived.url).query)
    assert names.keys() == dict(sent).keys()
    assert dict(sent)["state"] == "st4te"
    known["code"] = dict(sent)["code"]

    command, *arguments = shlex.split(three[0])
    assert command == "curl"
    assert arguments[:-1:2] == ["-d"] * (len(arguments) // 2)
    form = given([(n, v) for n, _, v in (pair.partition("=") for pair in arguments[1:-1:2])])
    environ = {"BASE": server.base_url}
    token = requests.post(Template(arguments[-1]).substitute(environ), data=form, timeout=60).json()
    assert set(four) <= token.keys()
    assert token["scope"] == "openid profile email"

    command, option, header, url = shlex.split(five[0])
    assert (command, option) == ("curl", "-H")
    environ["ACCESS_TOKEN"] = token["access_token"]
    name, _, value = Template(header).substitute(environ).partition(": ")
    profile = requests.get(
        Template(url).substitute(environ), headers={name: value}, timeout=60
    ).json()
    shown = dict(re.findall(r'"(\w+)": ("…"|true)', six[0]))
    assert shown.keys() <= profile.keys()
    assert all(profile[claim] is True for claim, value in shown.items() if value == "true")
    assert profile["sub"] == profile["id"] == claims_of(token["id_token"])["sub"]


def test_a_refused_request_is_explained_as_shown(server: Server) -> None:
    command, _, shown = block("$ flask explain 7k3m-v9xq").partition("\n")
    client_id = credentials(server.printed)["client_id"]  # type: ignore[attr-defined]
    asked = {
        "response_type": "code", "client_id": client_id, "redirect_uri": f"{CALLBACK}/",
        "state": "st4te",
    }  # fmt: skip
    answer = requests.get(f"{server.base_url}/oauth2/authorize", params=asked, timeout=60)
    request_id = answer.headers["X-Request-ID"]
    assert answer.status_code == 400
    assert request_id in answer.text
    wait_for(
        lambda: server.try_flask("explain", request_id).returncode == 0, "the refusal", pause=0.5
    )
    for example, real in (
        (command.split()[-1], request_id), ("2kQ7mEoN0vRgq0xQxG3x4A", client_id),
        ("198.51.100.7", "127.0.0.1"),
    ):  # fmt: skip
        assert example in command + shown
        shown = shown.replace(example, real)
    time, said = r"(?<=\ntime      )[\d :-]{19}", server.flask("explain", request_id)
    assert re.sub(time, "…", said).split() == re.sub(time, "…", shown).split()


@pytest.mark.parametrize("beginning", sorted(COMMANDS))
def test_commands(prepared: tuple[Server, str], beginning: str, tmp_path: Path) -> None:
    server, client_id = prepared
    script = block(beginning).replace(" ID ", f" {client_id} ")
    script = script.replace("/var/backups", str(tmp_path))
    script = re.sub(r"postgresql\S+", f"sqlite:///{tmp_path}/copy.db", script)
    for variables, arguments, _ in commands(script):
        server.flask(*arguments, **variables)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Server, str]:
    """A server that is not started, and the id of its client."""
    server = Server(tmp_path_factory.mktemp("commands"))
    printed = typed(server, block(".venv/bin/flask db upgrade", "README.md"))
    return server, credentials(printed)["client_id"]


def test_the_commands_for_an_api(prepared: tuple[Server, str]) -> None:
    server, _ = prepared
    scripts = [text for page, text in BLOCKS if page == "docs/how-to/apis.md" and "flask" in text]
    assert len(scripts) == 5
    printed = [typed(server, text.replace("dana@", "you@")) for text in scripts]
    assert re.search(r"^ *aud +https://orders.example.com$", printed[2], re.MULTILINE)
    assert "sso_cs_" in printed[3]
    assert "refund=Refund orders" in printed[4]
    assert re.search(r"^disabled +yes$", printed[4], re.MULTILINE)


def test_the_commands_for_forward_auth(prepared: tuple[Server, str]) -> None:
    server, _ = prepared
    scripts = [text for page, text in BLOCKS if page == "docs/how-to/forward-auth.md"]
    scripts = [text for text in scripts if text.startswith(".venv/bin/flask ")]
    assert len(scripts) == 4  # the last one needs a proxy
    assert "/forward-auth/" in typed(server, scripts[0])
    assert "auth_request /.sso-check;" in typed(server, scripts[1])
    assert "https://wiki.example.com" in typed(server, scripts[2])


def test_the_commands_for_saml(prepared: tuple[Server, str], tmp_path: Path) -> None:
    server, _ = prepared
    metadata = tmp_path / "wiki.xml"
    metadata.write_text(
        '<EntityDescriptor xmlns="urn:oasis:names:tc:SAML:2.0:metadata" entityID="urn:x:wiki">'
        '<SPSSODescriptor protocolSupportEnumeration="urn:oasis:names:tc:SAML:2.0:protocol">'
        '<AssertionConsumerService Binding="urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST"'
        ' Location="https://wiki.example.com/acs" index="0"/></SPSSODescriptor></EntityDescriptor>'
    )
    scripts = [text for page, text in BLOCKS if page == "docs/how-to/saml.md"]
    preset, *scripts, message = scripts
    assert len(scripts) == 3
    assert "-----BEGIN CERTIFICATE-----" in typed(server, preset)
    printed = typed(server, scripts[0].replace("wiki.xml", str(metadata)))
    assert re.search(r"^entity ID +urn:x:wiki$", printed, re.MULTILINE)
    (client_id,) = re.findall(r"^client_id +(\S+)$", printed, re.MULTILINE)
    assert "https://wiki.example.com/saml" in typed(server, scripts[1])
    assert "role=groups" in typed(server, scripts[2].replace(" ID ", f" {client_id} "))
    assert "urn:x:wiki" in typed(server, message.replace(" ID ", f" {client_id} "))


def test_a_brand(prepared: tuple[Server, str], tmp_path: Path) -> None:
    server, client_id = prepared
    logo = tmp_path / "logo.svg"
    logo.write_text(block('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 160 32">'))
    assert images.read(logo, images.MAX_LOGO).has_dark_variant
    text = block("SSO_NAME=Acme Corp").replace("/etc/sso/logo.svg", str(logo))
    environ = dict(line.split("=", 1) for line in text.strip().splitlines())
    assert read_settings(environ).errors == []
    command = block(
        ".venv/bin/flask client update ID --logo wiki.svg --home-url https://wiki.example.com/"
    )
    options = command.replace("ID", client_id).replace("wiki.svg", str(logo)).split()[1:]
    assert "home_url" in server.flask(*options, **environ)


def test_own_words(tmp_path: Path) -> None:
    (tmp_path / "mail").mkdir()
    (tmp_path / "sign_in.html").write_text(block('{% extends "sso/sign_in.html" %}'))
    (tmp_path / "mail" / "texts.toml").write_text(block("[invite.en]"))
    (tmp_path / "custom.css").write_text(block(":root { --ground: #e8eef0; }"))
    found = overrides.read(tmp_path)
    assert found.blocks == {"sign_in.html": ["help"]}
    assert list(found.texts) == [("invite", "en")]


def test_the_directories(tmp_path: Path) -> None:
    text = block("[provider.corp]") + block("[provider.openldap]")
    secret = certificate(tmp_path, 1)
    for path in set(re.findall(r'_file = "(.+)"', text)):
        text = text.replace(path, str(secret))
    file = tmp_path / "upstream.toml"
    file.write_text(text + block('group_base = "ou=groups,dc=example,dc=com"'))
    found = upstream_file.read(file, {"OPENLDAP_PASSWORD": "secret"})
    assert [one.id for one in found] == ["corp", "openldap", "freeipa"]
    assert all(one.client.servers for one in found if isinstance(one, LdapProvider))


@pytest.mark.parametrize("provider", ["office", "google", "entra", "github"])
def test_the_providers(tmp_path: Path, provider: str) -> None:
    text, secret, file = block(f"[provider.{provider}]"), tmp_path / "s", tmp_path / "upstream.toml"
    secret.write_text("a secret")
    file.write_text(re.sub(r'_file = ".+"', f'_file = "{secret}"', text))
    assert [one.id for one in upstream_file.read(file, {})] == [provider]


def test_the_file_with_clients_and_users(server: Server, tmp_path: Path) -> None:
    text, secret, file = block("format = 1"), "sso_cs_" + "s" * 43, tmp_path / "wiki"
    file.write_text(secret + "\n")
    assert text.count("/run/secrets/wiki") == 1
    declaration = tmp_path / "declaration.toml"
    declaration.write_text(text.replace("/run/secrets/wiki", str(file)))
    (client,), (user,) = (tomllib.loads(text)[kind] for kind in ("clients", "users"))
    environ = {"FIRST_PASSWORD": "another horse battery"}
    server.flask("apply", str(declaration), **environ)
    shown = json.loads(server.flask("client", "show", client["client_id"], "--json"))
    assert shown["redirect_uris"] == client["redirect_uris"]
    assert json.loads(server.flask("user", "show", user["email"], "--json"))["groups"] == ["staff"]
    answer = requests.post(
        f"{server.base_url}/oauth2/introspect",
        data={"client_id": client["client_id"], "client_secret": secret, "token": "x"},
        timeout=60,
    )
    assert answer.json() == {"active": False}
    again = server.flask("apply", str(declaration), "--plan", "--json", **environ)
    assert json.loads(again)["changes"] == []


@pytest.mark.parametrize(
    ("base_url", "bind"),
    [
        ("https://login.example.com/api/auth", "127.0.0.1:8000"),
        pytest.param(
            "http://127.0.0.1:5050/api/auth", "127.0.0.1:5050", marks=pytest.mark.exhaustive
        ),
        ("http://localhost:5050/api/auth", "127.0.0.1:5050"),
    ],
)
def test_where_gunicorn_listens(base_url: str, bind: str, tmp_path: Path) -> None:
    told = (ROOT / "docs/deploy/index.md").read_text()
    assert "on that port of `127.0.0.1`" in told
    assert "If `SSO_BASE_URL` is https, the server listens on `127.0.0.1:8000`" in told
    printed = tmp_path / "configuration"
    program = Program(
        "gunicorn", ["-c", CONFIGURATION, "--print-config"],
        cwd=ROOT, env={**os.environ, "SSO_BASE_URL": base_url}, stdout=printed,
    )  # fmt: skip
    assert program.wait(60) == 0
    shown = printed.read_text()
    assert re.search(rf"^bind +=.*'{re.escape(bind)}'", shown, re.MULTILINE), shown
