"""Where templates come from: the operator's own blocks, before those that are built in."""

from pathlib import Path

from flask import Flask
from jinja2 import ChoiceLoader, DictLoader, PrefixLoader

from sso.config import overrides
from sso.config.overrides import Overrides
from sso.config.settings import Settings


def init_app(app: Flask) -> None:
    """Read the folder once: what changes in it later waits for the next start."""
    settings: Settings = app.extensions["sso.settings"]
    folder = settings.templates_dir
    own = overrides.read(Path(folder)) if folder else Overrides()
    app.extensions["sso.overrides"] = own
    built_in = app.jinja_env.loader
    assert built_in
    # A template of the operator's extends the one that is built in, by its name below sso/.
    app.jinja_env.loader = ChoiceLoader(
        [DictLoader(own.templates), PrefixLoader({"sso": built_in}), built_in]
    )
