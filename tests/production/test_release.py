"""`scripts/release` stops before it changes anything that it should not."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.processes import ROOT


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of the last commit, with the scripts of today."""
    _git(ROOT, "clone", "-q", str(ROOT), str(tmp_path / "clone"))
    folder = tmp_path / "clone"
    for name in ("build", "release"):
        shutil.copy(ROOT / "scripts" / name, folder / "scripts")  # with its mode
    (folder / "CHANGELOG.md").write_text("# Changes\n\n## Unreleased\n\n- A change.\n")
    _commit(folder)
    return folder


def _git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Tests", "-c", "user.email=tests@example.com")
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout


def _commit(folder: Path) -> None:
    _git(folder, "add", "-A")
    _git(folder, "commit", "-q", "--allow-empty", "-m", "As the test needs it")


def _tag(folder: Path) -> None:
    _git(folder, "tag", "v9.9.9")


def _edit(folder: Path) -> None:
    (folder / "README.md").write_text("changed")


def _no_changes(folder: Path) -> None:
    (folder / "CHANGELOG.md").write_text(
        "# Changes\n\n## Unreleased\n\n## 0.1.0 (2026-01-01)\n\n- An old change.\n"
    )
    _commit(folder)


@pytest.mark.parametrize(
    ("version", "before", "said"),
    [
        ("", None, "give a version like 1.2.3"),
        ("1.2", None, "give a version like 1.2.3"),
        ("1.2.3; id", None, "give a version like 1.2.3"),
        ("9.9.9", _edit, "there are uncommitted changes"),
        ("9.9.9", _tag, "the tag v9.9.9 exists"),
        ("9.9.9", _no_changes, "names no unreleased change"),
    ],
    ids=["none", "two numbers", "more", "dirty", "tagged", "no changes"],
)
def test_it_says_what_is_missing(
    clone: Path, version: str, before: Callable[[Path], None] | None, said: str
) -> None:
    if before:
        before(clone)
    last = _git(clone, "rev-parse", "HEAD")
    done = subprocess.run(
        ["scripts/release", version], cwd=clone, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert said in done.stderr
    assert _git(clone, "rev-parse", "HEAD") == last


def test_a_failure_leaves_nothing_behind(
    clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    for program in (clone / "scripts" / "check", tmp_path / "bin" / "python3"):
        program.write_text(f"#!/bin/sh\n{'exit 3' if program.name == 'python3' else ''}\n")
        program.chmod(0o755)
    _commit(clone)
    last = _git(clone, "rev-parse", "HEAD")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    done = subprocess.run(["scripts/release", "9.9.9"], cwd=clone, check=False)
    assert done.returncode == 3
    assert _git(clone, "rev-parse", "HEAD") == last
    assert _git(clone, "status", "--porcelain") == ""
