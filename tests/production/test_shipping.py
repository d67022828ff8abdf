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

import pytest
import requests
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


def test_the_locks_are_up_to_date() -> None:
    """Otherwise run scripts/requirements. What is missing from them stops the image's build."""
    locked, tested = _versions("requirements.txt"), _versions("constraints.txt")
    elsewhere = {"async-timeout"}  # for another Python than the tests'
    assert {name for name in locked if locked[name] != tested.get(name)} <= elsewhere
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    for one in map(Requirement, project["project"]["dependencies"]):
        assert locked[canonicalize_name(one.name)] in one.specifier, one
    granian = _versions("requirements-granian.txt")
    assert {name: tested[name] for name in granian} == granian
    (extra,) = map(Requirement, project["project"]["optional-dependencies"]["granian"])
    assert granian[extra.name] in extra.specifier
    (backend,) = map(Requirement, project["build-system"]["requires"])
    assert _versions("requirements-build.txt")[backend.name] in backend.specifier


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
