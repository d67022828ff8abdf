"""What is shipped for operators, checked as far as can be without a container engine."""

import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

import kubernetes_validate
import pytest
import requests
from flask import Flask
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from ruamel.yaml import YAML

from sso.config.settings import SETTINGS
from tests.production.seeding import migrate
from tests.support.processes import CONFIGURATION, ROOT, SERVERS, require
from tests.support.servers import Machine, Node

BIN = Path(sys.executable).parent
UNITS = sorted((ROOT / "deploy" / "systemd").iterdir())
MOST_EXPOSED = 15  # of 100, as `systemd-analyze security` counts


def succeeds(*command: str | Path) -> str:
    done = subprocess.run(
        [str(part) for part in command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_image_is_linted() -> None:
    assert succeeds(BIN / "hadolint", "Dockerfile") == ""


def test_the_image_runs_as_nobody_special() -> None:
    last = (ROOT / "Dockerfile").read_text().rpartition("\nFROM ")[2]
    assert re.search(r"^USER 10001:10001$", last, re.MULTILINE)
    assert last.index("USER ") < last.index("CMD ")


def test_the_workflow_has_what_the_tests_need() -> None:
    workflow = YAML(typ="safe").load((ROOT / ".github/workflows/ci.yml").read_text())
    job = workflow["jobs"]["check"]
    checkout, last = job["steps"][0], job["steps"][-1]
    assert checkout["with"]["fetch-depth"] == 0
    assert re.fullmatch(r"(\w+=1 )*DEPLOYMENT=1 (\w+=1 )*\.ci/run", last["run"])
    assert "--privileged" in job["container"]["options"]


def test_actions_are_named_by_their_commit() -> None:
    uses = re.findall(r"uses: (\S+)", (ROOT / ".github/workflows/ci.yml").read_text())
    assert uses
    assert [name for name in uses if not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", name)] == []


REGISTRY = """#!/bin/sh
case $6 in
  *unknown*) exit 1 ;;
esac
echo "$6" | sha256sum | sed 's/\\(.*\\)  -/sha256:\\1/'
"""


def test_images_are_pinned(tmp_path: Path) -> None:
    """Each image of other projects, once, again, and never half of them."""
    names = ("Dockerfile", "compose.yaml", "deploy/compose.yaml", ".github/workflows/ci.yml")
    for name in (*names, "scripts/pin-images"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(REGISTRY)
    docker.chmod(0o755)

    def pin(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, tmp_path / "scripts/pin-images", *arguments],
            env={"PATH": f"{docker.parent}:/usr/bin:/bin"},
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip

    tags = {
        *("python:3.13-slim-bookworm", "nginx:1.28-alpine", "postgres:17-alpine", "redis:7-alpine"),
        *("caddy:2", "python:3.11-bookworm", "debian:12", "debian:13", "python:3.14-slim"),
    }
    pinned_here = pin("--check")
    assert pinned_here.returncode == 0, pinned_here.stderr
    for name in names:
        path = tmp_path / name
        path.write_text(re.sub("@sha256:[0-9a-f]{64}", "", path.read_text()))
    asked = pin("--check")
    assert asked.returncode == 1
    assert set(asked.stderr.strip().removeprefix("without a digest: ").split(", ")) == tags
    before = {name: (tmp_path / name).read_text() for name in names}
    for _ in range(2):
        done = pin()
        assert done.returncode == 0, done.stderr
        texts = {name: (tmp_path / name).read_text() for name in names}
        pinned = re.findall(r"([a-z]+:[\w.-]+)@(sha256:[0-9a-f]{64})", "".join(texts.values()))
        assert {tag for tag, _ in pinned} == tags
        assert {n: re.sub("@sha256:[0-9a-f]{64}", "", t) for n, t in texts.items()} == before
        assert pin("--check").returncode == 0
    YAML(typ="safe").load(texts["compose.yaml"])
    (tmp_path / names[2]).write_text(before[names[2]].replace("caddy:2", "unknown:2"))
    (tmp_path / names[0]).write_text(before[names[0]])
    assert pin().returncode != 0
    assert (tmp_path / names[0]).read_text() == before[names[0]]


def test_the_locks_are_up_to_date() -> None:
    """Otherwise run scripts/requirements. What is missing from them stops the image's build."""
    locked, tested = _versions("requirements/server.txt"), _versions("constraints.txt")
    elsewhere = {"async-timeout"}  # for another Python than the tests'
    assert {name for name in locked if locked[name] != tested.get(name)} <= elsewhere
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for one in map(Requirement, project["project"]["dependencies"]):
        assert locked[canonicalize_name(one.name)] in one.specifier, one
    granian = _versions("requirements/granian.txt")
    assert {name: tested[name] for name in granian} == granian
    (extra,) = map(Requirement, project["project"]["optional-dependencies"]["granian"])
    assert granian[extra.name] in extra.specifier
    (backend,) = map(Requirement, project["build-system"]["requires"])
    assert _versions("requirements/build.txt")[backend.name] in backend.specifier


@pytest.mark.slow  # only then is everything installed
def test_every_pinned_version_runs_on_the_oldest_python() -> None:
    """Debian 12 has Python 3.11.2: `pip install` would find no solution there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    oldest = project["requires-python"].removeprefix(">=")
    needs = {name: str(metadata.metadata(name).json.get("requires_python", ""))
             for name in _versions("constraints.txt")}  # fmt: skip
    assert {name: need for name, need in needs.items() if oldest not in SpecifierSet(need)} == {}


def _versions(name: str) -> dict[str, str]:
    found = re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / name).read_text(), re.MULTILINE)
    return {canonicalize_name(one): version for one, version in found}


@pytest.mark.parametrize("name", ["compose.yaml", "deploy/compose.yaml"])
def test_compose_file(name: str) -> None:
    succeeds(BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", name)
    compose = YAML(typ="safe").load((ROOT / name).read_text())
    known = {name for setting in SETTINGS for name in (setting.name, f"{setting.name}_FILE")}
    services = compose["services"]
    for service_name, service in services.items():
        given = {one for one in service.get("environment", {}) if one.startswith("SSO_")}
        assert given <= known, service_name
        assert set(service.get("depends_on", {})) <= set(services), service_name
        networks = set(compose.get("networks", ("default",)))
        assert set(service.get("networks", ())) <= networks, service_name


def test_nginx_names_the_servers_of_the_compose_file() -> None:
    services = YAML(typ="safe").load((ROOT / "compose.yaml").read_text())["services"]
    upstream = re.findall(r"server (\S+):8000", (ROOT / "deploy" / "nginx.conf").read_text())
    assert set(upstream) <= set(services)


@pytest.fixture
def units(tmp_path: Path) -> list[Path]:
    """The units with this machine's programs in place of those in /opt/sso."""
    analyze = require("systemd-analyze", shutil.which("systemd-analyze"))
    assert analyze
    for unit in UNITS:
        text = unit.read_text().replace("/opt/sso/current/bin", str(BIN))
        (tmp_path / unit.name).write_text(text)
    return [tmp_path / unit.name for unit in UNITS]


def test_units_are_valid(units: list[Path]) -> None:
    told = succeeds("systemd-analyze", "verify", "--man=no", *units)
    assert not [line for line in told.splitlines() if "/sso" in line], told


def test_the_unit_with_granian(units: list[Path], tmp_path: Path) -> None:
    """It only says which program runs, so all else is as sso.service has it."""
    text = (ROOT / "deploy/granian.conf").read_text()
    assert re.findall(r"^\w+=", text, re.MULTILINE) == 2 * ["ExecStart="]
    (tmp_path / "sso.service.d").mkdir()
    text = text.replace("/opt/sso/current/bin", str(BIN))
    (tmp_path / "sso.service.d/granian.conf").write_text(text)
    told = succeeds("systemd-analyze", "verify", "--man=no", *units)
    assert not [line for line in told.splitlines() if "/sso" in line], told


@pytest.mark.parametrize("name", ["sso.service", "sso-worker.service", "sso-backup.service"])
def test_units_are_hardened(units: list[Path], name: str) -> None:
    (unit,) = [one for one in units if one.name == name]
    succeeds("systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSED}", unit)


class Activated(Machine):
    """A server as sso.socket starts it: at the first connection, with the open socket."""

    environ: dict[str, str]
    program: tuple[str, ...]

    def command(self) -> list[str]:
        activate = require("systemd", shutil.which("systemd-socket-activate"))
        passed = [f"--setenv={name}" for name in self.environ]
        return [
            *(activate, "-l", f"127.0.0.1:{self.port}", *passed, sys.executable),
            *("-m", *self.program),
        ]


@pytest.mark.parametrize(
    "program", [("gunicorn", "-c", CONFIGURATION), ("sso.server.granian",)], ids=SERVERS
)
def test_socket_activation(
    folder: Path,
    make_node: Callable[..., Node],
    monkeypatch: pytest.MonkeyPatch,
    program: tuple[str, ...],
) -> None:
    node = make_node(1)
    migrate(node)
    machine = Activated(folder / "activated")
    machine.program = program
    wanted = {name: v for name, v in node.environ.items() if name.startswith("SSO_")}
    machine.environ = {**wanted, "PYTHONPATH": str(ROOT), "WEB_CONCURRENCY": "1"}
    for name in machine.environ:
        monkeypatch.setenv(name, machine.environ[name])
    machine.start()
    try:
        answer = requests.get(f"http://127.0.0.1:{machine.port}/readyz", timeout=30)
        assert answer.ok, answer.text
        assert json.loads(answer.text) == {"status": "ready"}
    finally:
        machine.stop()


def test_kubernetes_accepts_the_manifest() -> None:
    text = (ROOT / "deploy/kubernetes.yaml").read_text()
    documents = list(YAML(typ="safe").load_all(text))
    for document in documents:
        for version in ("1.31", kubernetes_validate.latest_version()):
            kubernetes_validate.validate(document, version, strict=True)
    deployments = [one["spec"]["template"] for one in documents if one["kind"] == "Deployment"]
    assert len(deployments) == 2
    for template in deployments:
        pod = template["spec"]
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert pod["securityContext"]["runAsUser"] == 10001
        for container in [*pod.get("initContainers", ()), *pod["containers"]]:
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes
            assert container["image"] == "registry.example.com/sso:0.1.0@sha256:DIGEST"


def test_what_reaches_the_pods() -> None:
    """The ingress controller, and Prometheus; the world reaches neither health nor metrics."""
    documents = list(YAML(typ="safe").load_all((ROOT / "deploy/kubernetes.yaml").read_text()))
    named = {(one["kind"], one["metadata"]["name"]): one for one in documents}
    settings = named["ConfigMap", "sso"]["data"]
    server = named["Deployment", "sso"]["spec"]["template"]
    worker = named["Deployment", "sso-worker"]["spec"]["template"]
    (container,) = server["spec"]["containers"]
    (address,) = (one for one in container["env"] if one["name"] == "SSO_METRICS_ADDRESS")
    assert address["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert "SSO_METRICS_ADDRESS" not in settings

    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"http": 8000, "metrics": int(settings["SSO_METRICS_PORT"])}
    policies = [one["spec"] for one in documents if one["kind"] == "NetworkPolicy"]
    for template, peers in (
        (server, {"http": "ingress-nginx", "metrics": "monitoring"}),
        (worker, {}),
    ):
        labels = template["metadata"]["labels"].items()
        applied = [one for one in policies if one["podSelector"]["matchLabels"].items() <= labels]
        assert applied
        assert all(one["policyTypes"] == ["Ingress"] for one in applied)
        rules = [rule for one in applied for rule in one.get("ingress", ())]
        admitted = {
            port["port"]: peer["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
            for rule in rules
            for port in rule["ports"]
            for peer in rule["from"]
        }
        assert admitted == peers

    (rule,) = named["Ingress", "sso"]["spec"]["rules"]
    paths = {one["path"]: one["pathType"] for one in rule["http"]["paths"]}
    base = settings["SSO_BASE_URL"].removeprefix("https://" + rule["host"])
    assert paths == {
        base: "Prefix",
        f"/.well-known/oauth-authorization-server{base}": "Exact",
        f"/.well-known/openid-configuration{base}": "Exact",
        "/": "Exact",
    }


def test_the_ingress_has_a_path_for_each_public_url(app: Flask) -> None:
    document = (ROOT / "deploy/kubernetes.yaml").read_text()
    (ingress,) = (one for one in YAML(typ="safe").load_all(document) if one["kind"] == "Ingress")
    paths = [(one["path"], one["pathType"]) for one in ingress["spec"]["rules"][0]["http"]["paths"]]
    without = {
        rule.rule
        for rule in app.url_map.iter_rules()
        if not any(
            rule.rule == path or (kind == "Prefix" and rule.rule.startswith(f"{path}/"))
            for path, kind in paths
        )
    }
    assert without == {"/healthz", "/readyz"}
