"""Auth0, as the input of a migration: its clients, from the Management API or its Deploy CLI.

People are not in these files. `formats` reads their export, with the subjects of all applications.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from sso.flow import attributes
from sso.flow.attributes import Party
from sso.imports import auth0_clients, files, yaml_files
from sso.imports.drafts import Answers
from sso.imports.files import ITEM, Advance
from sso.imports.findings import Fate, Finding
from sso.imports.formats import AUTH0_SUBJECTS
from sso.imports.person import FileProblem, Person, mapping
from sso.imports.system import System
from sso.imports.yaml_files import is_on, word
from sso.process.program import COMMAND

KIND = "auth0"
MOST_CLIENTS = 5_000
_CLIENTS = "clients"
_GLOBAL = "All Applications"  # stands for the whole tenant


def system(paths: Sequence[Path], answers: Answers, advance: Advance) -> System:
    """Read the files. Raises `FileProblem`."""
    entries = _read(paths, advance)
    drafts = list(auth0_clients.drafts(entries, answers))
    has_subjects = any(
        (draft.fields or {}).get("subject_attribute") == AUTH0_SUBJECTS for draft in drafts
    )
    return System(
        kind=KIND,
        name=KIND,
        title=f"Auth0: {len(drafts):,} clients",
        drafts=drafts,
        client_ids={draft.client_id for draft in drafts},
        groups=[],
        people=_nobody,
        definitions=[
            {"name": AUTH0_SUBJECTS, "title": "Subject of Auth0", "type": attributes.STRING,
             "writers": [Party.ADMINISTRATOR]}
        ] if has_subjects else [],
        findings=[Finding(
            Fate.NOT_TAKEN, "server", "people", "", "these files do not have them",
            f"import them after the clients: {COMMAND} user import auth0 FILE",
        )],
    )  # fmt: skip


def _nobody(counts: Counter[str]) -> Iterator[Person]:
    return iter(())


def _read(paths: Sequence[Path], advance: Advance) -> list[dict[str, Any]]:
    """Return the clients of all files; of those with the same ID, the last."""
    by_id: dict[str, dict[str, Any]] = {}
    for path in paths:
        count = 0
        for entry in _entries(path, advance):
            count += 1
            name = word(entry.get("name"))
            if is_on(entry.get("global")) or (name == _GLOBAL and not word(entry.get("app_type"))):
                continue
            by_id[word(entry.get("client_id")) or f"{path} {count}"] = entry
            if len(by_id) > MOST_CLIENTS:
                raise FileProblem(f"the files have more than {MOST_CLIENTS} clients")
        if not count:
            raise FileProblem(f"{path} has no clients of Auth0")
    return list(by_id.values())


def _entries(path: Path, advance: Advance) -> Iterator[dict[str, Any]]:
    if not files.is_json(path):
        content = mapping(yaml_files.read(path))
        advance(path.stat().st_size * 2)
        clients = content.get(_CLIENTS)
        yield from _clients(clients if isinstance(clients, list) else [content])
        return
    has_list = False
    for _, value in files.entries(path, {(ITEM,), (_CLIENTS, ITEM)}, advance):
        has_list = True
        yield from _clients([value])
    if not has_list:  # one client alone, as the Deploy CLI writes into a directory
        yield from _clients(value for _, value in files.entries(path, {()}, advance))


def _clients(values: Iterable[Any]) -> Iterator[dict[str, Any]]:
    for value in map(mapping, values):
        pages = value.get(_CLIENTS)
        if isinstance(pages, list):
            yield from _clients(pages)
        elif "client_id" in value or "app_type" in value or "callbacks" in value:
            yield value
