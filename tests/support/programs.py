"""Python programs that need not import their libraries: they fork from a process that has."""

import atexit
import faulthandler
import multiprocessing
import os
import resource
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from sso.database import buffer

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.support.preloaded"])


class Program:
    """`python -m MODULE ARGUMENTS`, with what a test asks of `subprocess.Popen`."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdout: Path,
        stderr: Path | None = None,
        stdin: Path = Path(os.devnull),
        is_session: bool = False,
    ) -> None:
        """`is_session`: a terminal among the files becomes its own, for questions and answers."""
        self.args = (module, *arguments)
        stdout.touch()  # it may be read before the program writes
        files = [str(stdin), str(stdout), str(stderr or stdout)]
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)
        given = (self.args, str(cwd), dict(env), files, descriptors, is_session)
        self._process = _context.Process(target=_run, args=given, daemon=True)
        self._process.start()
        self.pid = self._process.pid or 0

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(self.args, timeout or 0)
        return self.returncode

    def send_signal(self, number: signal.Signals) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _run(
    args: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    files: Sequence[str],
    descriptors: tuple[int, int],
    is_session: bool,
) -> None:
    """Be the program, in a process of its own."""
    if is_session:
        os.setsid()
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    os.chdir(cwd)
    resource.setrlimit(resource.RLIMIT_NOFILE, descriptors)
    for number, path in enumerate(files):
        opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND if number else os.O_RDONLY)
        os.dup2(opened, number)
        os.close(opened)
    if env.get("PYTHONFAULTHANDLER"):
        faulthandler.enable()
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 (for as long as the process lives)
    sys.argv[1:] = args[1:]
    sys.path.insert(0, cwd)
    # What was registered before the fork, which newer Pythons forget.
    atexit.unregister(buffer.flush_all)
    atexit.register(buffer.flush_all)
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    try:
        runpy.run_module(args[0], run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()  # which multiprocessing leaves out
