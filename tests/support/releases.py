"""Releases as an operator gets them: this version's, and the one before."""

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from io import BytesIO
from pathlib import Path

import pytest

from tests.support.processes import ROOT

_RELEASE = r"^## [0-9]+\.[0-9]+\.[0-9]+ "  # the heading that scripts/release writes


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout


def previous(folder: Path) -> Path:
    """The project as of the last release before this commit; the first one precedes itself.

    The commit of a release is found by the heading in CHANGELOG.md that it added. So clones without
    tags work, and histories whose commits were squashed.
    """
    if not (ROOT / ".git").exists():
        if os.environ.get("CI"):
            pytest.fail("CI needs the history, back to the last release")
        pytest.skip("there is no history here")
    commits = _git("log", "-2", f"-G{_RELEASE}", "--format=%H", "--", "CHANGELOG.md").split()
    (head,) = _git("rev-parse", "HEAD").split()
    commit = commits[-1] if commits[0] == head else commits[0]
    with tarfile.open(fileobj=BytesIO(_git("archive", commit.decode()))) as tree:
        tree.extractall(folder, filter="data")
    return folder


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
    # The release before this one has them in its root.
    for path, old in (
        ("server.txt", "requirements.txt"),
        ("granian.txt", "requirements-granian.txt"),
    ):
        moved = tree / "requirements" / path
        shutil.copy(moved if moved.exists() else tree / old, folder / f"sso-{version}-{old}")
    sums = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(folder.iterdir())
    ]
    (folder / "SHA256SUMS").write_text("".join(sums))
    return version


def as_older_release(tree: Path) -> None:
    """As version 0.0.1 if the next release has no number yet; its files are on pages of today."""
    current = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    path = tree / "pyproject.toml"
    path.write_text(path.read_text().replace(f'\nversion = "{current}"\n', '\nversion = "0.0.1"\n'))
    shutil.rmtree(tree / "deploy")
    shutil.copytree(ROOT / "deploy", tree / "deploy")
