"""`flask attribute`, and values in commands, declarations and imports."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from flask import Flask

from tests.support.factories import make_attribute, make_user


@pytest.fixture
def run(app: Flask) -> Any:
    def invoke(*arguments: str, code: int = 0) -> Result:
        done = app.test_cli_runner().invoke(args=arguments)
        assert done.exit_code == code, done.stderr
        return done

    return invoke


def described(run: Any, *arguments: str) -> Any:
    return json.loads(run(*arguments, "--json").stdout)


def test_an_attribute_from_beginning_to_end(app: Flask, run: Any) -> None:
    make_user(app)
    choices = ("--choice", "gold", "--choice", "big silver")
    made = described(run, "attribute", "define", "plan", "--type", "choice", *choices,
                     "--self-service")  # fmt: skip
    assert made == {
        "name": "plan", "title": "", "type": "choice", "choices": ["gold", "big silver"],
        "readers": [], "writers": ["administrator", "person"], "at_sign_up": "no",
    }  # fmt: skip
    assert described(run, "attribute", "list") == [made]
    changed = described(run, "attribute", "update", "plan", "--title", "Plan",
                        "--add-choice", "big bronze", "--no-self-service",
                        "--remove-choice", "gold")  # fmt: skip
    assert changed["writers"] == ["administrator"]
    assert changed["choices"] == ["big silver", "big bronze"]
    run("user", "update", "dana@example.com", "--set-attribute", "plan=big silver")
    assert described(run, "attribute", "show", "plan")["users"] == 1
    assert "attribute plan" in run("user", "show", "dana@example.com").stdout
    gone = described(run, "attribute", "delete", "plan", "--yes")
    assert gone == {"name": "plan", "users": 1, "deleted": True}
    assert described(run, "user", "show", "dana@example.com")["attributes"] == {}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("attribute", "define", "Plan", "--type", "string"), "small letters"),
        (("attribute", "define", "plan", "--type", "choice"), "to choose from"),
        (("attribute", "define", "level", "--type", "string"), "already an attribute"),
        (("attribute", "define", "plan", "--type", "string", "--writer", "all"), "none of"),
        (("attribute", "show", "nope"), "there is no attribute nope"),
        (("attribute", "update", "nope", "--title", "x"), "there is no attribute nope"),
        (("attribute", "delete", "nope", "--yes"), "there is no attribute nope"),
        (("user", "update", "dana@example.com", "--set-attribute", "level"), "NAME=VALUE"),
        (("user", "update", "dana@example.com", "--set-attribute", "nope=1"), "no attribute"),
        (("user", "update", "dana@example.com", "--set-attribute", "level=x"), "is no number"),
        (("user", "update", "dana@example.com", "--set-attribute", "level=1",
          "--set-attribute", "level=2"), "twice"),
    ],
)  # fmt: skip
def test_a_mistake_is_named(app: Flask, run: Any, arguments: tuple[str, ...], reason: str) -> None:
    make_user(app)
    make_attribute(app, "level", "number")
    assert reason in run(*arguments, code=1).stderr


def test_a_file_has_definitions_and_values(app: Flask, run: Any, tmp_path: Path) -> None:
    make_attribute(app, "level", "number", title="Level", writers=["person"])
    make_user(app, attributes={"level": 3})
    file = tmp_path / "all.toml"
    run("export", str(file))
    assert "Everything is as the file says." in run("apply", str(file)).stdout
    text = file.read_text().replace("level = 3", 'level = 4\ntags = ["a"]')
    file.write_text(text + '\n[[attributes]]\nname = "tags"\ntype = "list"\n')
    plan = run("apply", str(file), "--plan").stdout
    assert "+ attribute tags" in plan
    assert 'attributes: {"level": 3} -> {"level": 4, "tags": ["a"]}' in plan.replace("'", '"')
    run("apply", str(file), "--yes")
    shown = described(run, "user", "show", "dana@example.com")
    assert shown["attributes"] == {"level": 4, "tags": ["a"]}
    assert "Everything is as the file says." in run("apply", str(file)).stdout


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("level = 3", "level = true", "is no number"),
        ("level = 3", "level = 2030-01-31", "is no number"),
        ("level = 3", "level = {a = 1}", "is no number"),
        ("level = 3", "nope = 1", "there is no attribute 'nope'"),
        ('type = "number"', 'type = "string"', "of an attribute stays"),
        ('type = "number"', "type = 3", "type is not a text"),
        ('name = "level"', 'name = "le vel"', "small letters"),
        ('name = "level"', 'noun = "x"', "name is missing"),
    ],
)
def test_a_mistake_in_a_file_is_named(
    app: Flask, run: Any, tmp_path: Path, old: str, new: str, reason: str
) -> None:
    make_attribute(app, "level", "number")
    make_user(app, attributes={"level": 3})
    file = tmp_path / "all.toml"
    run("export", str(file))
    file.write_text(file.read_text().replace(old, new, 1))
    assert reason in run("apply", str(file), "--yes", code=1).stderr
    shown = described(run, "user", "show", "dana@example.com")
    assert shown["attributes"] == {"level": 3}


def test_pruning_deletes_what_the_file_lacks(app: Flask, run: Any, tmp_path: Path) -> None:
    make_attribute(app, "level", "number")
    make_attribute(app, "desk")
    make_user(app, attributes={"level": 3, "desk": "7"})
    file = tmp_path / "some.toml"
    file.write_text('format = 1\n[[attributes]]\nname = "level"\ntype = "number"\n')
    assert "- attribute desk" in run("apply", str(file), "--prune", "--yes").stdout
    shown = described(run, "user", "show", "dana@example.com")
    assert shown["attributes"] == {"level": 3}
    user = '[[users]]\nemail = "dana@example.com"\nattributes = {level = 3}\n'
    file.write_text(f"format = 1\nattributes = []\n{user}")
    refused = run("apply", str(file), "--prune", "--yes", code=1).stderr
    assert "the attribute level would be deleted" in refused


def test_an_import_has_columns_of_attributes(app: Flask, run: Any, tmp_path: Path) -> None:
    make_attribute(app, "level", "number")
    make_attribute(app, "tags", "list")
    file = tmp_path / "people.csv"
    file.write_text(
        "email,name,attribute.level,attribute.tags,Attribute.Nope\n"
        'dana@example.com,Dana,3,"a, b",\nerin@example.com,Erin,much,,x\n'
    )
    report = described(run, "user", "import", "csv", str(file))
    assert report["imported"] == 2
    reasons = {entry["reason"] for entry in report["left_out"]}
    assert reasons == {"the attribute 'level' is no number", "there is no attribute 'nope'"}
    shown = described(run, "user", "show", "dana@example.com")
    assert shown["attributes"] == {"level": 3, "tags": ["a", "b"]}
    assert described(run, "user", "show", "erin@example.com")["attributes"] == {}


def test_attributes_of_keycloak_that_are_defined_are_imported(
    app: Flask, run: Any, tmp_path: Path
) -> None:
    make_attribute(app, "level", "number")
    make_attribute(app, "tags", "list")
    make_attribute(app, "desk")
    attributes = {"level": ["3"], "tags": ["a, b", "c"], "desk": ["1", "2"], "shoe": ["44"],
                  "locale": ["nl"], "odd": {"x": 1}, "empty": []}  # fmt: skip
    users = [{"username": "dana", "email": "dana@example.com", "attributes": attributes}]
    file = tmp_path / "realm.json"
    file.write_text(json.dumps({"users": users}))
    report = described(run, "user", "import", "keycloak", str(file))
    assert report["imported"] == 1
    assert sorted(entry["reason"] for entry in report["left_out"]) == [
        "attributes that are not defined here",
        "the attribute 'desk' is no text on one line of at most 2000 characters",
    ]
    shown = described(run, "user", "show", "dana@example.com")
    assert shown["attributes"] == {"level": 3, "tags": ["a, b", "c"]}
    assert shown["claims"] == {"locale": "nl"}
