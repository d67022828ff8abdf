"""Releases as an operator gets them: this version's, and the one before."""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory

from tests.support.processes import ROOT

MIGRATIONS = ScriptDirectory(str(ROOT / "migrations"))


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout


def previous(folder: Path) -> Path:
    """The project as of the last release; before the first one, as of the newest migration."""
    if not (ROOT / ".git").exists():
        if os.environ.get("CI"):
            pytest.fail("CI needs the history")
        pytest.skip("there is no history here")
    tags = _git("tag", "--merged", "HEAD^", "--list", "v*", "--sort=-version:refname").split()
    if tags:
        commit = tags[0].decode()
    else:
        newest = MIGRATIONS.get_revision("head").path
        found = _git("log", "--follow", "--diff-filter=A", "--format=%H", "-1", "--", newest)
        added = found.decode().strip()
        commit = f"{added}~1" if added else "HEAD"
    with tarfile.open(fileobj=BytesIO(_git("archive", commit))) as tree:
        tree.extractall(folder, filter="data")
    return folder


def pinned(tree: Path) -> Path:
    """The requirements of a release, with hashes."""
    path = tree / "requirements.txt"
    if not path.exists():  # a version before there was this file
        subprocess.run([ROOT / "scripts" / "requirements", tree], check=True)
    return path


def unpacked(tree: Path, folder: Path) -> Path:
    """What the wheel of this tree installs."""
    built, packages = folder / "wheel", folder / "packages"
    _wheel(tree, built)
    (wheel,) = built.glob("sso-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    return packages


def _wheel(tree: Path, folder: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", folder, tree], check=True
    )


def build(tree: Path, folder: Path) -> str:
    """Fill a folder as scripts/release does, apart from what nobody installs; gives the version."""
    folder.mkdir()
    _wheel(tree, folder)
    (wheel,) = folder.glob("sso-*.whl")
    version = wheel.name.split("-")[1]
    shutil.copy(pinned(tree), folder / f"sso-{version}-requirements.txt")
    sums = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(folder.iterdir())
    ]
    (folder / "SHA256SUMS").write_text("".join(sums))
    return version


def as_older_release(tree: Path) -> None:
    """Before the first release: what the project was, packaged as it is now, as version 0.0.1."""
    current = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    path = tree / "pyproject.toml"
    text = path.read_text()
    if tomllib.loads(text)["project"]["version"] != current:
        return
    text = re.sub(r"^version = .*", 'version = "0.0.1"', text, count=1, flags=re.MULTILINE)
    if "shared-data" not in text:
        text += '\n[tool.hatch.build.targets.wheel.shared-data]\ndeploy = "share/sso"\n'
    # The pages of today belong to these files.
    shutil.rmtree(tree / "deploy")
    shutil.copytree(ROOT / "deploy", tree / "deploy")
    path.write_text(text)
