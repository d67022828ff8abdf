"""Bare Debian machines: systemd boots in a container (systemd-nspawn) without a network.

Packages of Debian and PyPI are downloaded once, to ~/.cache/sso-machines (or MACHINES_CACHE), from
where the machine installs them as if there were a network.
"""

import fcntl
import hashlib
import os
import platform
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.processes import require, wait_for

CACHE = Path(os.environ.get("MACHINES_CACHE") or Path.home() / ".cache" / "sso-machines")
SUITE = "bookworm"
RUN_TIME = 300  # seconds at most for one script
_APT_INSTALL = re.compile(r"apt-get install -y --no-install-recommends ((?:[\w.+-]+ ?)+)")
# As root's shell after a sign-in; pip takes what was downloaded before.
ENVIRON = {
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "PIP_CACHE_DIR": "/wheels/.cache",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_FIND_LINKS": "/wheels",
    "PIP_NO_INDEX": "1",
    "PIP_PROGRESS_BAR": "off",
    "TERM": "dumb",
}


def needed(*programs: str) -> None:
    """Skip where no such machine can be started; in CI a missing program is a failure."""
    if os.geteuid() != 0:
        pytest.skip("only root can start machines")
    for program in ("mmdebstrap", "systemd-nspawn", *programs):
        require(program, shutil.which(program))


def debian(pages: Mapping[str, str]) -> Path:
    """A root as Debian's installer leaves it, with the packages of these pages to install."""
    commands = [found for text in pages.values() for found in _APT_INSTALL.findall(text)]
    packages = sorted({name for found in commands for name in found.split()})
    command = [
        "mmdebstrap", "--variant=apt", "--include=systemd-sysv,dbus,tzdata",
        "--skip=cleanup/apt/lists,cleanup/apt/cache",
        '--customize-hook=chroot "$1" apt-get install -qq -y --download-only '
        f"--no-install-recommends {' '.join(packages)}",
        SUITE,
    ]  # fmt: skip
    month = time.strftime("%Y-%m")  # mirrors remove what was replaced
    name = hashlib.sha256("\n".join([month, *command]).encode()).hexdigest()[:12]
    root = CACHE / f"{SUITE}-{name}"
    if not root.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=CACHE))
        done = subprocess.run(
            [*command, str(partial)], capture_output=True, text=True, check=False, timeout=500
        )
        assert done.returncode == 0, done.stderr[-2000:]
        partial.chmod(0o755)
        partial.rename(root)
    return root


def wheels(*requirements: Path) -> Path:
    """A folder with every wheel that pinned requirements need on Debian."""
    key = hashlib.sha256(b"".join(path.read_bytes() for path in requirements)).hexdigest()
    folder = CACHE / f"wheels-{key[:12]}"
    if not folder.exists():
        partial = Path(tempfile.mkdtemp(dir=CACHE))
        machine = platform.machine()
        platforms = [f"--platform=manylinux_2_{minor}_{machine}" for minor in range(17, 37)]
        for path in requirements:
            # Debian's Python may not be the one that runs this: conditions are not ours to judge.
            text = re.sub(r" ;.*(?= \\$)", "", path.read_text(), flags=re.MULTILINE)
            (all_of_them := partial / path.name).write_text(text)
            subprocess.run(
                [
                    *(sys.executable, "-m", "pip", "download", "-q", "--no-deps"),
                    *("--require-hashes", "--only-binary=:all:", "--python-version=3.11"),
                    *(*platforms, "--dest", str(partial), "-r", str(all_of_them)),
                ],
                check=True, timeout=500,
            )  # fmt: skip
        partial.chmod(0o755)
        partial.rename(folder)
    return folder


class Machine:
    """A machine that lives until `stop`; what is written to it is gone then."""

    def __init__(
        self,
        name: str,
        root: Path,
        *options: str,
        hosts: str = "",
        beside: "Machine | None" = None,
    ) -> None:
        """`beside` shares its network, which is this machine's loopback interface."""
        self.name, self.printed = name, ""
        # Not below /tmp: that may be an overlay itself, and one cannot be written to another.
        self.folder = folder = Path(tempfile.mkdtemp(dir=CACHE))
        self.root = folder / "root"
        upper, work = folder / "upper", folder / "work"
        for path in (self.root, upper, work):
            path.mkdir(parents=True)
        # Volatile: nothing waits for the disk.
        layers = f"lowerdir={root},upperdir={upper},workdir={work},volatile"
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, self.root], check=True)
        (self.root / "etc/hostname").write_text(f"{name}\n")
        (self.root / "etc/hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {name}\n{hosts}")
        (self.root / "etc/resolv.conf").write_text("")
        self._log = (folder / "boot.log").open("w")
        self._nspawn = subprocess.Popen(
            [
                *("systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit"),
                *("--resolv-conf=off", "--console=pipe"),
                f"--network-namespace-path=/proc/{beside.init}/ns/net"
                if beside
                else "--private-network",
                *(f"--directory={self.root}", f"--machine={name}", *options),
            ],
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
        )  # fmt: skip
        try:
            wait_for(self._is_up, f"the machine {name}", 60)
        except BaseException:
            self.stop()
            raise

    @property
    def init(self) -> int:
        """The process of its systemd, as the host numbers it."""
        pid = self._nspawn.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return int(children[0]) if children else 0

    def _is_up(self) -> bool:
        assert self._nspawn.poll() is None, (self.folder / "boot.log").read_text()
        if not self.init:
            return False
        state = self.run("systemctl is-system-running || true", check=False)
        return state.strip() in ("running", "degraded")

    def run(self, script: str, *, answers: str = "", check: bool = True, **environ: str) -> str:
        """Run a script of the shell as root at a terminal; gives what the terminal showed.

        `answers` is typed at each question for a password.
        """
        (self.root / "run-this").write_text(script)
        command = [
            *("nsenter", f"--target={self.init}", "--all", "env", "-i"),
            *(f"{name}={value}" for name, value in (ENVIRON | environ).items()),
            *("bash", "-e", "/run-this"),
        ]
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            preexec_fn=_take_terminal,
        )  # fmt: skip
        os.close(theirs)
        shown = b""
        end = time.monotonic() + RUN_TIME
        try:
            while time.monotonic() < end:
                if not select.select([ours], [], [], 1)[0]:
                    continue
                data = os.read(ours, 65536)
                shown += data
                if answers and re.search(rb"(?i)(password|confirmation): $", data):
                    os.write(ours, f"{answers}\n".encode())
        except OSError:  # the other end is closed
            pass
        finally:
            os.close(ours)
            if time.monotonic() >= end:
                process.kill()
            process.wait(10)
        text = shown.decode(errors="replace").replace("\r\n", "\n")
        self.printed += f"$ {script}\n{text}"
        assert not check or process.returncode == 0, f"{self.name}: {script}\n{text}"
        return text

    def stop(self) -> None:
        if self._nspawn.poll() is None:
            self._nspawn.terminate()
            try:
                self._nspawn.wait(20)
            except subprocess.TimeoutExpired:
                self._nspawn.kill()
                self._nspawn.wait()
        self._log.close()
        subprocess.run(["umount", self.root], check=True)
        shutil.rmtree(self.folder)


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
