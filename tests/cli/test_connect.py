"""`flask client create --preset`, `client setup` and `client presets`."""

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from cryptography.x509 import load_pem_x509_certificate
from flask import Flask

from sso.extensions import db
from sso.models import AuditEvent
from sso.presets import loader
from sso.services.preset_clients import SECRET_PLACEHOLDER
from sso.store import clients
from tests.support.processes import ROOT

Run = Callable[..., Result]
GRAFANA = ("client", "create", "--preset", "grafana", "--url", "https://grafana.example.com")


@pytest.fixture
def run(app: Flask) -> Run:
    def invoke(*arguments: str) -> Result:
        return app.test_cli_runner().invoke(args=arguments)

    return invoke


def parsed(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def refused(result: Result, *reasons: str) -> None:
    """One line says all that is wrong, and nothing was registered."""
    assert result.exit_code in (1, 2), result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    for reason in reasons:
        assert reason in result.stderr


def test_one_command_registers_and_prints_all_that_the_other_side_needs(run: Run) -> None:
    made = parsed(run(*GRAFANA, "--json"))
    assert made["client_name"] == "Grafana"
    assert made["redirect_uris"] == ["https://grafana.example.com/login/generic_oauth"]
    assert made["require_pkce"]
    assert made["preset"]["name"] == "grafana"
    assert made["preset"]["url"] == "https://grafana.example.com"
    assert {one["alternative"] for one in made["setup"]} >= {"ini", "env"}
    assert {"title", "kind", "where", "text", "alternative"} <= made["setup"][0].keys()
    assert made["notes"]
    text = made["setup"][0]["text"]
    assert made["client_id"] in text
    assert made["client_secret"] in text
    assert "http://127.0.0.1:5000/api/auth/oauth2/token" in text


def test_what_is_printed_can_be_pasted(run: Run) -> None:
    made = run(*GRAFANA)
    assert made.exit_code == 0, made.stderr
    client_id = next(line for line in made.stdout.splitlines() if "client_id " in line).split()[1]
    for block in parsed(run("client", "setup", client_id, "--json"))["setup"]:
        secret = next(line for line in made.stdout.splitlines() if "client_secret " in line)
        text = block["text"].replace(SECRET_PLACEHOLDER, secret.split()[1])
        assert f"\n{text}\n" in made.stdout
        assert f"## [{block['alternative']}] {block['title']}\n" in made.stdout


def test_setup_prints_it_again_without_the_secret(app: Flask, run: Run) -> None:
    made = parsed(run(*GRAFANA, "--option", "admin_group=ops", "--json"))
    shown = run("client", "setup", made["client_id"]).stdout
    assert made["client_secret"] not in shown
    assert SECRET_PLACEHOLDER in shown
    assert f"flask client rotate-secret {made['client_id']}" in shown
    assert "'ops'" in shown
    again = parsed(run("client", "setup", made["client_id"], "--json"))
    assert [one["text"] for one in again["setup"]] == [
        one["text"].replace(made["client_secret"], SECRET_PLACEHOLDER) for one in made["setup"]
    ]


def test_setup_follows_the_registration(run: Run) -> None:
    made = parsed(run(*GRAFANA, "--json"))
    run("client", "update", made["client_id"], "--remove-scope", "groups")
    shown = run("client", "setup", made["client_id"], "--alternative", "ini").stdout
    assert "scopes = openid profile email\n" in shown
    immich = ("client", "create", "--preset", "immich", "--url", "https://x.test", "--json")
    made = parsed(run(*immich))
    run("client", "update", made["client_id"], "--id-token-alg", "ES256")
    shown = run("client", "setup", made["client_id"]).stdout
    assert "Signing Algorithm: ES256\n" in shown
    assert '"signingAlgorithm": "ES256",' in shown


def test_one_alternative(run: Run) -> None:
    made = parsed(run(*GRAFANA, "--alternative", "env", "--json"))
    assert {one["alternative"] for one in made["setup"]} == {"env"}
    shown = run("client", "setup", made["client_id"], "--alternative", "ini").stdout
    assert "## grafana.ini\n" in shown
    assert "GF_AUTH" not in shown


def test_given_options_add_to_the_preset_or_replace_what_it_says(run: Run) -> None:
    made = parsed(
        run(*GRAFANA, "--name", "Charts", "--scope", "openid email", "--group", "ops",
            "--first-party", "--require-mfa", "--auth-method", "client_secret_post",
            "--redirect-uri", "https://old.example.com/login/generic_oauth",
            "--backchannel-logout-uri", "https://grafana.example.com/bye", "--json")
    )  # fmt: skip
    assert made["client_name"] == "Charts"
    assert made["scope"] == "openid email"
    assert made["groups"] == ["ops"]
    assert made["token_endpoint_auth_method"] == "client_secret_post"
    assert made["backchannel_logout_uri"] == "https://grafana.example.com/bye"
    assert [made["first_party"], made["require_mfa"], made["require_pkce"]] == [True] * 3
    assert made["redirect_uris"] == [
        "https://grafana.example.com/login/generic_oauth",
        "https://old.example.com/login/generic_oauth",
    ]
    assert "scopes = openid email\n" in made["setup"][0]["text"]


def test_an_application_without_a_secret(run: Run) -> None:
    made = parsed(run("client", "create", "--preset", "kubernetes", "--json"))
    assert "client_secret" not in made
    assert made["token_endpoint_auth_method"] == "none"
    assert made["require_pkce"]
    shown = run("client", "setup", made["client_id"])
    assert shown.exit_code == 0, shown.stderr
    assert "secret" not in shown.stdout.partition("Good to know")[0]
    again = parsed(run("client", "create", "--preset", "kubernetes", "--json"))
    assert again["client_name"] == "Kubernetes 2"


def test_an_application_that_speaks_saml(run: Run) -> None:
    """What is printed has all that it needs of this server, its certificate included."""
    zabbix = ("client", "create", "--preset", "zabbix", "--url", "https://zabbix.example.com/ui")
    made = parsed(run(*zabbix, "--group", "ops", "--attribute", "alias=nickname", "--json"))
    assert "client_secret" not in made
    assert made["saml_entity_id"] == "https://zabbix.example.com/ui"
    assert made["saml_acs_urls"] == ["https://zabbix.example.com/ui/index_sso.php?acs"]
    assert made["saml_logout_url"] == "https://zabbix.example.com/ui/index_sso.php?sls"
    assert made["saml_name_id"] == "persistent"
    assert made["saml_attributes"][0] == "username=email"
    assert made["saml_attributes"][-1] == "alias=nickname"
    assert made["groups"] == ["ops"]
    certificate, form = (block["text"] for block in made["setup"])
    assert load_pem_x509_certificate(certificate.encode()).subject
    base = "http://127.0.0.1:5000/api/auth/saml"
    assert f"IdP entity ID: {base}/metadata\n" in form
    assert f"SSO service URL: {base}/sso\n" in form
    assert f"SLO service URL: {base}/slo\n" in form
    assert parsed(run("client", "setup", made["client_id"], "--json"))["setup"] == made["setup"]
    refused(run(*zabbix), "another application has the entity ID")


def test_metadata_and_options_come_before_the_preset(run: Run, tmp_path: Path) -> None:
    """An application may show its own entity ID and URL only after it knows this server."""
    google = ("client", "create", "--preset", "google-workspace", "--option", "domain=a.example")
    made = parsed(run(*google, "--json"))
    assert made["saml_entity_id"] == "google.com/a/a.example"
    assert made["saml_acs_urls"] == ["https://www.google.com/a/a.example/acs"]
    profile = "https://accounts.google.com/samlrp/01x"
    made = parsed(run(*google, "--option", "profile_id=01x", "--json"))
    assert (made["saml_entity_id"], made["saml_acs_urls"]) == (profile, [f"{profile}/acs"])
    file = tmp_path / "aws.xml"
    file.write_text(
        '<EntityDescriptor xmlns="urn:oasis:names:tc:SAML:2.0:metadata" entityID="https://aws.test">'
        '<SPSSODescriptor protocolSupportEnumeration="urn:oasis:names:tc:SAML:2.0:protocol">'
        '<AssertionConsumerService Binding="urn:oasis:names:tc:SAML:2.0:bindings:HTTP-POST" '
        'Location="https://aws.test/acs" index="0"/></SPSSODescriptor></EntityDescriptor>'
    )
    aws = ("client", "create", "--preset", "aws-identity-center", "--json")
    options = ("--option", "issuer_url=https://b.test", "--option", "acs_url=https://b.test/acs")
    made = parsed(run(*aws, *options, "--metadata", str(file)))
    assert made["saml_entity_id"] == "https://aws.test"
    assert made["saml_acs_urls"] == ["https://b.test/acs", "https://aws.test/acs"]
    assert made["saml_name_id"] == "email"
    refused(run(*aws), "acs_url=… is missing: IAM Identity Center", "such as https://us-east-1.")


def test_an_address_that_is_no_url_is_refused(run: Run) -> None:
    options = ("--option", "issuer_url=x", "--option", "acs_url=somewhere", "--json")
    made = run("client", "create", "--preset", "aws-identity-center", *options)
    refused(made, "the assertion consumer service")


def test_two_installations_are_told_apart(run: Run) -> None:
    places = ["grafana.example.com", "grafana.example.org", "example.org/grafana"]
    made = [
        run("client", "create", "--preset", "grafana", "--url", f"https://{place}", "--json")
        for place in places
    ]
    assert [parsed(one)["client_name"] for one in made] == [
        "Grafana", "Grafana (grafana.example.org)", "Grafana (example.org/grafana)",
    ]  # fmt: skip
    assert all("registered for the same" not in one.stderr for one in made)


def test_the_same_installation_twice_is_noticed(run: Run) -> None:
    first = parsed(run(*GRAFANA, "--json"))
    second, third = run(*GRAFANA, "--json"), run(*GRAFANA, "--json")
    assert parsed(second)["client_name"] == "Grafana (grafana.example.com)"
    assert parsed(third)["client_name"] == "Grafana (grafana.example.com) 2"
    assert f"flask client delete {first['client_id']}" in second.stderr


@pytest.mark.parametrize(
    "url",
    ["HTTPS://Grafana.Example.com:443/", " https://grafana.example.com/ "],
)
def test_an_address_has_one_form(run: Run, url: str) -> None:
    made = parsed(run(*GRAFANA[:-1], url, "--json"))
    assert made["redirect_uris"] == ["https://grafana.example.com/login/generic_oauth"]


def test_an_internationalised_name(run: Run) -> None:
    made = parsed(run(*GRAFANA[:-1], "https://grafana.müller.example", "--json"))
    assert made["redirect_uris"] == [
        "https://grafana.xn--mller-kva.example/login/generic_oauth"
    ]  # fmt: skip


def test_behind_a_sub_path(run: Run) -> None:
    made = parsed(run(*GRAFANA[:-1], "https://example.com:8443/grafana/", "--json"))
    assert made["redirect_uris"] == ["https://example.com:8443/grafana/login/generic_oauth"]
    assert "root_url = https://example.com:8443/grafana/\n" in made["setup"][0]["text"]


@pytest.mark.parametrize(
    ("arguments", "reasons"),
    [
        (("--preset", "graphana", "--url", "https://a.example"), ["did you mean grafana?"]),
        (("--preset", "no-such-thing"), ["flask client presets"]),
        (("--preset", "grafana"), ["--url URL is missing", "such as https://grafana.example.com"]),
        (("--preset", "grafana", "--url", "http://a.example"), ["plain http"]),
        (("--preset", "grafana", "--url", "a.example"), ["begin with https://"]),
        (("--preset", "grafana", "--url", "https://a.example/?x"), ["a query"]),
        (("--preset", "grafana", "--url", "https://dana@a.example"), ["user name"]),
        ((*GRAFANA[2:], "--option", "admin_group"), ["give NAME=VALUE"]),
        ((*GRAFANA[2:], "--option", "admin_group="), ["admin_group is empty"]),
        ((*GRAFANA[2:], "--option", "admin_group=a", "--option", "admin_group=b"), ["given twice"]),
        ((*GRAFANA[2:], "--alternative", "helm"), ["no alternative 'helm'", "ini, env"]),
        ((*GRAFANA[2:], "--scope", "openid nonsense"), ["unknown scopes"]),
        ((*GRAFANA[2:], "--public"), ["needs a client secret; leave --public off"]),
        (("--preset", "kubernetes", "--auth-method", "any"), ["leave --auth-method off"]),
        (("--preset", "kubernetes", "--url", "https://k8s.example.com"), ["leave --url off"]),
        ((*GRAFANA[2:], "--name", "a\u200bb"), ["invisible"]),
        (
            ("--preset", "grafana", "--url", "http://a.example", "--option", "x=1", "--option",
             "editor_group=a\nb"),
            ["plain http", "no option 'x'; options: admin_group, editor_group", "line breaks"],
        ),
        (("--name", "X", "--redirect-uri", "https://a.example", "--url", "https://a.example"),
         ["belong to --preset"]),
        (("--name", "X", "--redirect-uri", "https://a.example", "--option", "x=1"),
         ["belong to --preset"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_at_once(
    app: Flask, run: Run, arguments: tuple[str, ...], reasons: list[str]
) -> None:
    refused(run("client", "create", *arguments), *reasons)
    assert parsed(run("client", "list", "--json")) == []
    with app.app_context():
        assert db.session.query(AuditEvent).filter_by(name="client_created").count() == 0


def test_a_server_that_the_application_cannot_reach(make_app: Callable[..., Flask]) -> None:
    """The default SSO_BASE_URL is on loopback: configuration that names it works on one host."""
    warning = "applications on other hosts cannot reach it"
    local = ("client", "create", "--preset", "gitea", "--url", "http://localhost:3000")
    for base_url, command, expected in (
        ("http://127.0.0.1:5000/api/auth", GRAFANA, True),
        ("http://127.0.0.1:5000/api/auth", local, False),
        ("https://login.example.com", GRAFANA, False),
    ):
        printed = make_app(SSO_BASE_URL=base_url).test_cli_runner().invoke(args=command)
        assert printed.exit_code == 0, printed.stderr
        assert (warning in printed.stdout) is expected
        assert "flask user update WHO --add-group NAME" in printed.stdout


def test_a_value_that_a_format_cannot_hold_registers_nothing(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "sso.audit")
    refused(run(*GRAFANA, "--option", 'admin_group="'), "cannot be written in an INI file",
            "grafana.ini: ", "another --alternative")  # fmt: skip
    assert parsed(run("client", "list", "--json")) == []
    assert "client_created" not in caplog.text
    assert parsed(run(*GRAFANA, "--option", "admin_group=it is 100%; #1", "--json"))
    assert "client_created" in caplog.text
    hcl = ("--alternative", "terraform", "--json")
    assert parsed(run(*GRAFANA, "--option", 'admin_group="', *hcl))


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_setup_of_what_has_no_preset(run: Run, arguments: tuple[str, ...]) -> None:
    made = parsed(
        run("client", "create", "--name", "X", "--redirect-uri", "https://a.example", "--json")
    )
    refused(run("client", "setup", made["client_id"], *arguments), "not registered from a preset")
    refused(run("client", "setup", "nobody", *arguments), "there is no client nobody")


def test_setup_after_the_preset_has_changed(app: Flask, run: Run) -> None:
    """A later version may have dropped options, or the whole preset."""
    made = parsed(run(*GRAFANA, "--json"))

    def keep(preset: dict[str, Any]) -> None:
        with app.app_context():
            client = clients.find(made["client_id"])
            assert client is not None
            client.set_client_metadata({**client.client_metadata, "preset": preset})
            db.session.commit()

    keep({"name": "grafana", "url": "https://grafana.example.com", "options": {"gone": "x"}})
    assert run("client", "setup", made["client_id"]).exit_code == 0
    keep({"name": "grafana"})
    refused(run("client", "setup", made["client_id"]), "--url URL is missing")
    keep({"name": "gone", "url": "https://grafana.example.com", "options": {}})
    refused(run("client", "setup", made["client_id"]), "there is no preset 'gone'")


def test_presets_are_listed(run: Run) -> None:
    shown = run("client", "presets").stdout
    listed = parsed(run("client", "presets", "--json"))
    assert [one["name"] for one in listed] == loader.names()
    for one in listed:
        (line,) = [line for line in shown.splitlines() if line.split()[:1] == [one["name"]]]
        assert ("not run" in line) == (not one["test"])


@pytest.mark.parametrize("name", loader.names())
def test_a_preset_is_shown(run: Run, name: str) -> None:
    shown = run("client", "presets", name)
    assert shown.exit_code == 0, shown.stderr
    preset = loader.load(name)
    for option in preset.options:
        assert f"\n{option} (" in shown.stdout
    for source in preset.sources:
        assert source.url in shown.stdout
    assert "Traceback" not in shown.stdout
    assert f"flask client create --preset {name}" in shown.stdout
    found = parsed(run("client", "presets", name, "--json"))
    assert found["name"] == name
    places = ("redirect_uris", "proxy_urls", "acs_urls")
    assert any(found["registration"][place] for place in places)
    refused(run("client", "presets", f"{name}x"), "there is no preset")


def test_a_declaration_keeps_the_preset(run: Run, tmp_path: Path) -> None:
    made = parsed(run(*GRAFANA, "--json"))
    file = tmp_path / "all.toml"
    assert run("export", str(file)).exit_code == 0
    assert parsed(run("apply", str(file), "--plan", "--json"))["changes"] == []
    file.write_text(file.read_text().replace("grafana-admins", "ops"))
    assert run("apply", str(file)).exit_code == 0
    assert "'ops'" in run("client", "setup", made["client_id"]).stdout
    file.write_text(file.read_text().replace('name = "grafana"', "name = 1"))
    refused(run("apply", str(file)), "the preset is not")


@pytest.mark.slow
def test_what_is_missing_is_asked_for_at_a_terminal(tmp_path: Path) -> None:
    environ = {**os.environ, "SSO_DATABASE_URL": f"sqlite:///{tmp_path / 'sso.db'}",
               "SSO_SECRET_KEY": "x" * 40}  # fmt: skip
    flask = str(Path(sys.executable).parent / "flask")
    subprocess.run([flask, "db", "upgrade"], cwd=ROOT, env=environ, check=True, capture_output=True)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [flask, "client", "create", "--preset", "grafana", "--json"],
        cwd=ROOT, env=environ, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    os.write(ours, b"grafana.example.com\nhttps://grafana.example.com/\n")
    out, err = process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert b"Error: it is refused: it has no scheme; begin with https://" in err
    assert b"url (where Grafana is reached" in err
    assert json.loads(out)["preset"]["url"] == "https://grafana.example.com"


@pytest.mark.parametrize(
    ("server", "port"),
    [
        ("https://id.example", 443),
        ("http://id.example", 80),
        ("https://id.example:8443", 8443),
        ("https://[::1]", 443),
    ],
)
def test_envoy_takes_the_port_of_the_scheme(run: Run, server: str, port: int) -> None:
    url = ("--preset", "envoy", "--url", "https://wiki.example")
    made = parsed(run("client", "create", *url, "--option", f"server={server}", "--json"))
    [text] = [step["text"] for step in made["setup"] if "clusters:" in step["text"]]
    _, _, cluster = text.partition('- name: "sso"')
    assert cluster.rstrip().endswith(f" {port}")
