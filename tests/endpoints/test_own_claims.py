"""Claims of an application's own: what tokens, userinfo and assertions say, and who is told."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from flask import Flask

from sso import audit
from sso.extensions import db
from sso.models import User
from sso.services import accounts, attributes, clients, group_editing, preview
from sso.services.changes import ListEdit
from sso.services.checks import Invalid
from sso.store import attributes as stored_attributes
from sso.store import clients as stored_clients
from sso.store import named_groups, users
from tests.conftest import Clock
from tests.support.actors import BASE, Browser, RelyingParty, claims_of
from tests.support.exchanges import Chain
from tests.support.factories import make_api, make_attribute, make_client, make_user
from tests.support.statements import watched

DOCS = "https://docs.example"
DISCOVERY = f"{BASE}/.well-known/openid-configuration"
OLGA = audit.Actor("olga")
ENTRIES = [
    "department=attribute:desk,department",
    "ok@id_token,userinfo=attribute:ok",
    "teams@access_token=groups:wiki-",
    "tier@access_token,userinfo=group:staff,employee",
    "tenant@id_token=constant:acme",
]


@pytest.fixture
def user(app: Flask) -> User:
    make_attribute(app, "department", writers=["person"])
    make_attribute(app, "desk")
    make_attribute(app, "ok", "boolean")
    values = {"department": "R&D", "ok": False}
    return make_user(app, groups=["staff", "wiki-editors"], attributes=values)


def tokens_of(browser: Browser, client: RelyingParty, **more: Any) -> dict[str, Any]:
    answer = client.exchange(browser.approve(client, **more).code)
    assert answer.status_code == 200, answer.text
    tokens: dict[str, Any] = answer.get_json()
    return tokens


def own(claims: dict[str, Any]) -> dict[str, Any]:
    names = ("department", "ok", "teams", "tier", "tenant")
    return {name: claims[name] for name in names if name in claims}


def change(app: Flask, client: RelyingParty, *entries: str) -> None:
    with app.app_context():
        clients.change(OLGA, client.client_id, {"own_claims": list(entries)})
        db.session.commit()


def set_values(app: Flask, user: User, **edits: Any) -> None:
    with app.app_context():
        accounts.update(OLGA, user.id, attributes=edits)
        db.session.commit()


def test_each_place_has_its_claims(app: Flask, browser: Browser, user: User) -> None:
    client = make_client(app, own_claims=ENTRIES)
    tokens = tokens_of(browser, client)
    userinfo = client.userinfo(tokens["access_token"]).get_json()
    assert own(userinfo) == {"department": "R&D", "ok": False, "tier": ["employee"]}
    assert own(claims_of(tokens["id_token"])) == {"ok": False, "tenant": "acme"}
    access = {"teams": ["editors"], "tier": ["employee"]}
    assert own(claims_of(tokens["access_token"])) == access
    both = make_client(app, own_claims=ENTRIES, id_token_claims="all")
    id_token = claims_of(tokens_of(browser, both)["id_token"])
    assert own(id_token) == {"department": "R&D", "ok": False, "tenant": "acme"}


def test_userinfo_has_the_values_of_the_moment(app: Flask, browser: Browser, user: User) -> None:
    client = make_client(app, own_claims=ENTRIES)
    token = tokens_of(browser, client)["access_token"]
    set_values(app, user, department=None, desk="7", ok=None)
    with app.app_context():
        accounts.update(OLGA, user.id, memberships=ListEdit(removed=("staff",)))
        db.session.commit()
    assert own(client.userinfo(token).get_json()) == {"department": "7", "tier": []}
    change(app, client, "tenant=constant:acme")
    assert own(client.userinfo(token).get_json()) == {"tenant": "acme"}
    change(app, client)
    assert own(client.userinfo(token).get_json()) == {}


def test_claims_of_protocols_stay(app: Flask, browser: Browser, user: User) -> None:
    """Even if the database has an entry that is refused today."""
    client = make_client(app, own_claims=["tenant=constant:acme"])
    with app.app_context():
        row = stored_clients.find(client.client_id)
        assert row is not None
        places = "id_token,userinfo,access_token"
        imitations = [f"{name}@{places}=constant:evil" for name in ("sub", "iss", "aud", "email")]
        row.set_client_metadata({**row.client_metadata, "own_claims": imitations})
        db.session.commit()
    tokens = tokens_of(browser, client)
    userinfo = client.userinfo(tokens["access_token"]).get_json()
    assert "evil" not in {userinfo["sub"], userinfo["email"]}
    for name in ("id_token", "access_token"):
        claims = claims_of(tokens[name])
        assert "evil" not in {claims["sub"], claims["iss"], claims["aud"]}


def test_a_token_for_an_api_has_them(app: Flask, browser: Browser, user: User) -> None:
    make_api(app, DOCS)
    client = make_client(app, own_claims=ENTRIES, apis=[DOCS])
    tokens = tokens_of(browser, client, resource=[DOCS], scope="openid read")
    claims = claims_of(tokens["access_token"])
    assert claims["aud"] == DOCS
    assert own(claims) == {"teams": ["editors"], "tier": ["employee"]}


def test_an_application_has_the_groups_in_its_own_form_without_the_scope(
    app: Flask, browser: Browser, user: User
) -> None:
    """As servers before this one sent them; others, and APIs that ask for groups, are not told."""
    listed = [f"groups@id_token,userinfo,access_token=group:{name},/{name}"
              for name in ("staff", "board")]  # fmt: skip
    scope = "openid profile groups"
    client = make_client(app, own_claims=listed, scope=scope, id_token_claims="all")
    for asked in ("openid profile", scope):
        tokens = tokens_of(browser, client, scope=asked)
        for claims in (
            claims_of(tokens["id_token"]), claims_of(tokens["access_token"]),
            client.userinfo(tokens["access_token"]).get_json(),
        ):  # fmt: skip
            assert claims["groups"] == ["/staff"], asked
    other = make_client(app, scope=scope)
    tokens = tokens_of(browser, other, scope=scope)
    assert other.userinfo(tokens["access_token"]).get_json()["groups"] == ["staff", "wiki-editors"]
    assert "groups" not in claims_of(tokens["access_token"])


@pytest.mark.parametrize("includes_groups", [False, True])
def test_an_api_that_asks_for_groups_gets_their_names(
    app: Flask, browser: Browser, user: User, includes_groups: bool
) -> None:
    make_api(app, DOCS, includes_groups=includes_groups)
    own_claims = ["groups@access_token=group:staff,/staff"]
    client = make_client(app, own_claims=own_claims, apis=[DOCS])
    tokens = tokens_of(browser, client, resource=[DOCS], scope="openid read")
    names = ["staff", "wiki-editors"] if includes_groups else ["/staff"]
    assert claims_of(tokens["access_token"])["groups"] == names


def test_an_exchanged_token_has_those_of_the_client_that_exchanges(
    app: Flask, browser: Browser, user: User
) -> None:
    chain = Chain(app, browser)
    for party, text in ((chain.docs, "backend"), (chain.books, "application")):
        change(app, party, f"tenant@access_token=constant:{text}")
    assert claims_of(chain.exchanged())["tenant"] == "backend"
    assert claims_of(chain.approve()["access_token"])["tenant"] == "application"


def test_a_long_value_leaves_the_token_within_bounds(
    app: Flask, browser: Browser, user: User
) -> None:
    for number in range(4):
        make_attribute(app, f"long{number}")
    set_values(app, user, **{f"long{number}": "x" * 1900 for number in range(4)})
    entries = [f"c{number}@access_token,userinfo=attribute:long{number}" for number in range(4)]
    client = make_client(app, own_claims=[*entries, "tenant@access_token=constant:acme"])
    tokens = tokens_of(browser, client)
    claims = claims_of(tokens["access_token"])
    assert [name for name in claims if name.startswith("c") and name[1:].isdigit()] == ["c0", "c1"]
    assert claims["tenant"] == "acme"
    userinfo = client.userinfo(tokens["access_token"]).get_json()
    assert all(f"c{number}" in userinfo for number in range(4))


def test_they_cost_no_statement(app: Flask, browser: Browser, user: User) -> None:
    def statements(client: RelyingParty) -> list[int]:
        code = browser.approve(client).code
        with app.app_context():
            engine = db.engine
        exchanging: list[str] = []
        asking: list[str] = []
        with watched(engine, lambda statement, _: exchanging.append(statement)):
            tokens = client.exchange(code).get_json()
        with watched(engine, lambda statement, _: asking.append(statement)):
            client.userinfo(tokens["access_token"])
        return [len(exchanging), len(asking)]

    without = statements(make_client(app))
    assert min(without) > 0
    assert statements(make_client(app, own_claims=ENTRIES)) == without


def test_the_page_of_consent_names_them(app: Flask, browser: Browser, user: User) -> None:
    client = make_client(app, own_claims=ENTRIES)
    browser.authorize(client)
    page = browser.sign_in().html.replace("<bdi>", "").replace("</bdi>", "")
    assert "Books also learns about you: department, ok, teams, tier" in page
    change(app, client, "tenant=constant:acme")
    browser.authorize(client)
    assert "also learns about you" not in browser.page.html


def test_discovery_names_them(app: Flask, clock: Clock, user: User) -> None:
    def supported() -> list[str]:
        names: list[str] = app.test_client().get(DISCOVERY).get_json()["claims_supported"]
        return names

    before = supported()
    client = make_client(app, own_claims=ENTRIES)
    clock.move(seconds=61)
    assert supported() == [*before, "department", "ok", "teams", "tenant", "tier"]
    with app.app_context():
        clients.disable(OLGA, client.client_id)
        db.session.commit()
    clock.move(seconds=61)
    assert supported() == before


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("Sub=constant:x", "looks like, the claim sub"),
        ("\u0455ub=constant:x", "letters, digits"),
        ("x=attribute:gone", "there is no attribute 'gone'"),
        ("x=script:1", "CLAIM=SOURCE"),
        ("x@saml=constant:y", "are none of id_token"),
        ("x=group:a\nb,y", "control characters"),
    ],
)
def test_what_is_refused_at_registration(app: Flask, user: User, entry: str, reason: str) -> None:
    client = make_client(app)
    with app.app_context():
        for register in (
            lambda: clients.change(OLGA, client.client_id, {"own_claims": [entry]}),
            lambda: clients.change(
                OLGA, client.client_id, {}, lists={"own_claims": ListEdit(added=(entry,))}
            ),
            lambda: clients.register(
                OLGA,
                {
                    "client_name": "X",
                    "redirect_uris": ["https://x.example/cb"],
                    "own_claims": [entry],
                },
            ),
        ):
            with pytest.raises(Invalid) as refused:
                register()
            assert reason in str(refused.value)
            db.session.rollback()


def test_an_attribute_in_use_stays(app: Flask, user: User) -> None:
    client = make_client(app, own_claims=ENTRIES)
    with app.app_context():
        with pytest.raises(Invalid, match=client.client_id):
            attributes.delete(OLGA, "department")
        db.session.rollback()
    change(app, client)
    with app.app_context():
        attributes.delete(OLGA, "department")
        db.session.commit()


def test_a_renamed_group_keeps_its_claim(app: Flask, browser: Browser, user: User) -> None:
    client = make_client(app, own_claims=ENTRIES)
    with app.app_context():
        group = named_groups.find_by_name("staff")
        assert group is not None
        group_editing.change(OLGA, group.id, name="all people")
        db.session.commit()
    token = tokens_of(browser, client)["access_token"]
    assert client.userinfo(token).get_json()["tier"] == ["employee"]


def test_the_preview_says_where_each_value_comes_from(app: Flask, user: User) -> None:
    make_attribute(app, "long")
    set_values(app, user, long="x" * 2000)
    long = ["a@access_token=attribute:long", "b@access_token=attribute:long"]
    entries = [*ENTRIES, *long, "c@access_token=attribute:long", "none=attribute:desk"]
    client = make_client(app, own_claims=entries)
    with app.app_context():
        person = users.find(user.id)
        assert person is not None
        result = preview.make(client.client_id, person)
    by_name = {claim.name: claim for claim in result.own_claims}
    department, teams, tier = (by_name[name] for name in ("department", "teams", "tier"))
    assert (department.source, department.names) == ("attribute", ("department",))
    assert department.places == ("userinfo",)
    assert (teams.names, teams.places) == (("wiki-editors",), ("access_token",))
    assert (tier.names, tier.places) == (("staff",), ("userinfo", "access_token"))
    assert by_name["none"].value is None
    assert by_name["a"].places == ("access_token",)
    assert by_name["b"].places == ("access_token",)
    assert by_name["c"].places == ()
    shown = app.test_cli_runner().invoke(
        args=["client", "preview", client.client_id, "--user", user.email]
    )
    assert "R&D by attribute department (set at the command line), in userinfo" in shown.stdout
    assert "left out" in shown.stdout
    assert "no value: attribute desk has none" in shown.stdout
    as_json = app.test_cli_runner().invoke(
        args=["client", "preview", client.client_id, "--user", user.email, "--json"]
    )
    first = json.loads(as_json.stdout)["own_claims"][0]
    assert first == {
        "name": "department", "value": "R&D", "source": "attribute", "names": ["department"],
            "set_by": "set at the command line",
        "places": ["userinfo"],
    }  # fmt: skip


def test_commands_edit_them(app: Flask, user: User) -> None:
    client = make_client(app)

    def run(*arguments: str) -> list[str]:
        done = app.test_cli_runner().invoke(
            args=["client", "update", client.client_id, "--json", *arguments]
        )
        assert done.exit_code == 0, done.stderr
        entries: list[str] = json.loads(done.stdout)["own_claims"]
        return entries

    assert run("--add-claim", "x=group:big staff,a b", "--add-claim", "x=group:it,c") == [
        "x=group:big staff,a b", "x=group:it,c",
    ]  # fmt: skip
    assert run("--add-claim", "y=attribute:desk", "--remove-claim", "x") == ["y=attribute:desk"]
    assert run("--set-claims", "") == []


def test_a_file_defines_an_attribute_and_a_claim_from_it(
    app: Flask, user: User, tmp_path: Path
) -> None:
    client = make_client(app)
    file = tmp_path / "all.toml"

    def apply(text: str, *more: str) -> Result:
        file.write_text(f"format = 1\n{text}")
        return app.test_cli_runner().invoke(args=["apply", str(file), "--yes", *more])

    entry = f'[[clients]]\nclient_id = "{client.client_id}"\n'
    claim = f'{entry}own_claims = ["room=attribute:room"]\n'
    refused = apply(claim)
    assert refused.exit_code == 1
    assert "there is no attribute 'room'" in refused.stderr
    done = apply(f'{claim}[[attributes]]\nname = "room"\ntype = "number"\n')
    assert done.exit_code == 0, done.stderr
    # Both go together, too.
    kept = "".join(f'[[attributes]]\nname = "{name}"\n' for name in ("department", "desk"))
    refused = apply(f'{kept}[[attributes]]\nname = "ok"\n', "--prune")
    assert "applications have claims from the attribute" in refused.stderr
    gone = apply(f"{kept}{entry}own_claims = []\n", "--prune")
    assert gone.exit_code == 0, gone.stderr
    with app.app_context():
        assert [row.name for row in stored_attributes.every()] == ["department", "desk"]


def test_the_registration_api_takes_them(app: Flask, user: User) -> None:
    fields = {
        "client_name": "X",
        "redirect_uris": ["https://x.example/cb"],
        "own_claims": [" x = attribute: desk "],
    }
    with app.app_context():
        client, _ = clients.register(OLGA, clients.parsed_registration(fields))
        assert clients.registration_document(client)["own_claims"] == ["x=attribute:desk"]
        with pytest.raises(Invalid, match="own_claims is not a list of texts"):
            clients.parsed_registration({**fields, "own_claims": {"x": "y"}})
