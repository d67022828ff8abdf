"""The built wheel, installed without a clone, runs everything."""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from tests.support.processes import ROOT, free_port, wait_for


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment with the wheel, and our libraries beside it."""
    folder = tmp_path_factory.mktemp("wheel")
    _run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT))
    (wheel,) = folder.glob("sso-*.whl")
    _run(sys.executable, "-m", "venv", "--without-pip", str(folder / "venv"))
    python = folder / "venv" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", f"--python={python}")
    _run(*pip, "install", "-q", "--no-deps", str(wheel))
    # Libraries only: .pth files in that folder, such as the one for this checkout, are not read.
    (site,) = (folder / "venv").glob("lib/python*/site-packages")
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python.parent


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}


@pytest.mark.exhaustive
def test_commands_keep_their_data_at_home(
    installed: Path, environ: dict[str, str], tmp_path: Path
) -> None:
    def sso(*arguments: str) -> str:
        return _run(str(installed / "sso"), *arguments, env=environ, cwd=tmp_path)

    assert sso("--version").strip()
    assert "made the first signing keys" in sso("db", "upgrade")
    assert json.loads(sso("user", "list", "--json")) == []
    assert (tmp_path / ".local" / "share" / "sso" / "sso.db").is_file()
    assert "\ngrafana " in sso("client", "presets")
    _run(str(installed / "python"), "-m", "sso.presets", "pages", env=environ, cwd=tmp_path)
    assert (tmp_path / "pages" / "grafana.md").is_file()
    assert "_sso_completion" in _run(
        str(installed / "sso"), env=environ | {"_SSO_COMPLETE": "bash_source"}, cwd=tmp_path
    )


@pytest.mark.exhaustive
def test_gunicorn_serves_pages(installed: Path, environ: dict[str, str], tmp_path: Path) -> None:
    base_url = f"http://127.0.0.1:{free_port()}/api/auth"
    environ |= {"SSO_BASE_URL": base_url, "STATE_DIRECTORY": str(tmp_path / "state")}
    _run(str(installed / "sso"), "db", "upgrade", env=environ, cwd=tmp_path)
    program = [str(installed / "python"), "-m", "gunicorn", "-c", "python:sso.server.gunicorn_conf"]
    with _running(program, environ, tmp_path):
        wait_for(lambda: _answers(f"{base_url}/sign-in"), "gunicorn")
        page = requests.get(f"{base_url}/sign-in", timeout=5, headers={"Accept-Language": "de"})
        assert 'lang="de"' in page.text
    assert (tmp_path / "state" / "sso.db").is_file()


def test_the_demo_starts(installed: Path, environ: dict[str, str], tmp_path: Path) -> None:
    program = [str(installed / "sso"), "demo", "--json", "--port", str(free_port())]
    with _running(program, environ, tmp_path) as process:
        assert process.stdout is not None
        demo = json.loads(process.stdout.readline())
        assert "Sign in" in requests.get(demo["open"], timeout=5).text


def _answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).ok
    except requests.ConnectionError:
        return False


def _run(*arguments: str, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    done = subprocess.run(
        arguments, env=env, cwd=cwd, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def _running(
    program: list[str], environ: dict[str, str], folder: Path
) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        program, env=environ, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.terminate()
            process.wait(40)
