"""Podman, with storage of its own in MACHINES_CACHE, and images without a registry."""

import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from tests.support.machines import CACHE, SUITE
from tests.support.processes import require

BASE_IMAGE = "localhost/sso-base"
# Those of the Dockerfile's base, and Caddy, for the same image in its place.
_PACKAGES = "ca-certificates,caddy,python3,python3-venv,tini"
_FILES = {
    "containers.conf": """
[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
""",
    "storage.conf": """
[storage]
driver = "overlay"
graphroot = "{storage}/graph"
runroot = "{storage}/run"
""",
    "pip.conf": """
[global]
no-index = true
find-links = /wheels
disable-pip-version-check = true
""",
}


def engine() -> dict[str, str]:
    """The environment in which `podman` is this engine; or a skip."""
    if os.geteuid() != 0:
        pytest.skip("as root only")
    for program in ("podman", "runc", "mmdebstrap", "iptables"):
        require(program, shutil.which(program))
    storage = CACHE / "containers"
    storage.mkdir(parents=True, exist_ok=True)
    for name, text in _FILES.items():
        (storage / name).write_text(text.format(storage=storage))
    environ = {
        **os.environ,
        "BUILDAH_FORMAT": "docker",  # the other format has no HEALTHCHECK
        "CONTAINERS_CONF": str(storage / "containers.conf"),
        "CONTAINERS_STORAGE_CONF": str(storage / "storage.conf"),
    }
    _make_base(environ, storage)
    return environ


def _make_base(environ: dict[str, str], storage: Path) -> None:
    """Import a Debian root as the image, once a month."""
    month = time.strftime("%Y-%m")
    tagged = ["podman", "image", "exists", f"{BASE_IMAGE}:{month}"]
    if subprocess.run(tagged, env=environ, check=False).returncode:
        with tempfile.TemporaryDirectory(dir=storage) as folder:
            archive = Path(folder) / "root.tar"
            hook = f"--customize-hook=upload {storage}/pip.conf /etc/pip.conf"
            subprocess.run(
                ["mmdebstrap", "-q", "--variant=minbase", f"--include={_PACKAGES}", hook, SUITE,
                 str(archive)],
                check=True, timeout=400,
            )  # fmt: skip
            imported = ["podman", "import", "-q", str(archive), tagged[-1]]
            subprocess.run(imported, env=environ, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["podman", "tag", tagged[-1], f"{BASE_IMAGE}:latest"], env=environ, check=True)
