"""CPU time and memory of a process and all that descend from it, read from /proc (Linux)."""

import os
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

from tests.support.processes import SERVERS, Server

TICK = os.sysconf("SC_CLK_TCK")


class MeasuredServer(Server):
    """Nothing of its memory and time was spent before it started, as where tests fork it."""

    def launch(
        self, arguments: list[str], *, cwd: Path, env: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        with (self.folder / f"{self.kind}.log").open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", SERVERS[self.kind], *arguments],
                cwd=cwd,
                env=env,
                stdout=log,
                stderr=subprocess.STDOUT,
            )


def tree(root: int) -> list[int]:
    """The process and its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [root]
    for pid in found:  # grows while it is walked
        found += children.get(pid, [])
    return found


def cpu_seconds(pids: list[int]) -> float:
    """User and system time that these processes, and their dead children, have had."""
    return sum(int(n) for pid in pids if (stat := _stat(pid)) for n in stat[11:15]) / TICK


def thread_seconds(pids: list[int]) -> float:
    """The same to the nanosecond, but without threads that have ended."""
    spent = 0
    for pid in pids:
        with suppress(OSError):  # the process has ended, or the thread
            for task in Path(f"/proc/{pid}/task").iterdir():
                with suppress(OSError):
                    spent += int((task / "schedstat").read_text().split()[0])
    return spent / 1e9


def memory(pids: list[int]) -> int:
    """Bytes of memory: what these processes share with each other counts once.

    The proportional set size, but for files that other processes have mapped, too: their pages
    count as if nobody else had them.
    """
    anonymous = sum(_pss_anon(pid) for pid in pids)
    files: Counter[str] = Counter()
    for pid in pids:
        files |= _mapped_files(pid)  # the most that any of them has
    return 1024 * (anonymous + files.total())


def _stat(pid: int) -> list[str]:
    # man proc: the name in brackets may have blanks; what follows begins with the state.
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _pss_anon(pid: int) -> int:
    for line in (Path("/proc") / str(pid) / "smaps_rollup").read_text().splitlines():
        if line.startswith("Pss_Anon:"):
            return int(line.split()[1])
    return 0


def _mapped_files(pid: int) -> Counter[str]:
    """Kilobytes in memory of each mapped part of a file; pages that were changed are anonymous."""
    found: Counter[str] = Counter()
    part = None
    for line in (Path("/proc") / str(pid) / "smaps").read_text().splitlines():
        name, *values = line.split(maxsplit=5)
        if not name.endswith(":"):  # a mapping begins: addresses, permissions, offset, file
            _, offset, device, inode = values[:4]
            part = f"{device} {inode} {offset}" if inode != "0" else None
        elif part and name == "Rss:":
            found[part] += int(values[0])
        elif part and name == "Anonymous:":
            found[part] -= int(values[0])
    return found
