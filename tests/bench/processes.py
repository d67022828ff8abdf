"""CPU time and memory of a process and all that descend from it, read from /proc (Linux)."""

import os
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


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


def memory(pids: list[int]) -> int:
    """Proportional set size in bytes: shared pages count in parts."""
    return sum(_pss(pid) for pid in pids)


def _stat(pid: int) -> list[str]:
    # man proc: the name in brackets may have blanks; what follows begins with the state.
    try:
        return (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _pss(pid: int) -> int:
    for line in (Path("/proc") / str(pid) / "smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0
