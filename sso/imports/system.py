"""What was read of another server, whatever it is: the input of a migration."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sso.imports.drafts import Draft
from sso.imports.findings import Finding
from sso.imports.person import Person


@dataclass
class System:
    """A server that people move from.

    `kind`: the name of the server, as in the command; `name`: distinguishes several of one kind;
    `title`: the first line of the report. `groups`: those that are created; `other_groups`: names
    that people have beside them. `definitions`: of attributes that people have. `people`: yields
    them, and counts those who are left out; raises `FileProblem`.
    """

    kind: str
    name: str
    title: str
    drafts: Sequence[Draft]
    client_ids: Collection[str]
    groups: Sequence[str]
    people: Callable[[Counter[str]], Iterator[Person]]
    hash_methods: set[str] = field(default_factory=set)
    other_groups: Sequence[str] = ()
    definitions: Sequence[dict[str, Any]] = ()
    findings: list[Finding] = field(default_factory=list)
