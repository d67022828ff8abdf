"""An operator who asks why a request was refused."""

import json
from typing import Any

from flask import Flask

from sso.audit import writer
from sso.store import refusals


class Explain:
    """`flask explain`, for an answer that somebody got."""

    def __init__(self, app: Flask) -> None:
        self.app = app

    def run(self, *arguments: str, code: int = 0) -> str:
        refusals.flush(self.app)
        writer.flush(self.app)
        result = self.app.test_cli_runner().invoke(args=["explain", *arguments])
        assert result.exit_code == code, result.output
        return result.stdout if code == 0 else result.stderr

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "--json"))

    def __call__(self, answer: Any) -> str:
        """What is printed about the request that got this answer."""
        return self.run(id_of(answer))

    def newest(self) -> str:
        (found,) = self.json("--limit", "1")
        return self.run(found["id"])


def id_of(answer: Any) -> str:
    """The id of the request that got this answer: a page, or a response of a test client."""
    return str(answer.headers["X-Request-ID"])
