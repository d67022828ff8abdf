"""`flask explain`: why a request was refused, and how to fix it."""

from typing import Any
from urllib.parse import urlsplit

import click
from flask.cli import with_appcontext

from sso.cli.clients import find_client
from sso.cli.commands import Command, Failure, json_option
from sso.cli.output import (
    harmless,
    iso,
    print_json,
    print_line,
    print_paragraph,
    print_record,
    print_table,
)
from sso.explain import explaining, saml_messages
from sso.explain.case import Case, Explanation, named
from sso.explain.explaining import explain
from sso.models import Refusal
from sso.process.program import COMMAND
from sso.services import agent_identity
from sso.store import refusals
from sso.store.expired import KEEP_REFUSALS


@click.command("explain", cls=Command)
@click.argument("request_id", metavar="[ID]", required=False)
@click.option("--client", "client_id", metavar="ID", help="List only refusals of this application.")
@click.option(
    "--message",
    metavar="TEXT",
    help="Explain the message of an application that speaks "
    "SAML and refuses an answer of this server. --client names the application.",
)
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@json_option
@with_appcontext
def explain_command(
    request_id: str | None, client_id: str | None, message: str | None, limit: int, as_json: bool
) -> None:
    """Explain why a request was refused, by the id on its error page or in the log.

    Without ID, list the latest refusals.
    """
    if message is not None:
        if request_id is not None:
            raise click.UsageError("--message and ID are two questions; ask one of them.")
        _explain_message(message, client_id, as_json)
        return
    if request_id is None:
        client = find_client(client_id) if client_id else None
        rows = refusals.newest(client_id=client and client.client_id, limit=limit)
        _list([explain(row) for row in rows], as_json)
        return
    rows = _find(request_id)
    explanations = [explain(row) for row in rows]
    if as_json:
        first, *more = [_view(case, explanation) for case, explanation in explanations]
        print_json(first | ({"more": more} if more else {}))
        return
    if len({row.request_id for row in rows}) > 1:
        print_line(f"Several ids begin with {request_id}.")
    elif len(rows) > 1:
        print_line("Several requests have this id: a request may bring its own.")
    for number, (case, explanation) in enumerate(explanations):
        if number or len(explanations) > 1:
            print_line()
        _show(case, explanation)


def _explain_message(message: str, client_id: str | None, as_json: bool) -> None:
    client = find_client(client_id) if client_id else None
    if client and not client.is_saml:
        raise Failure(f"{client.client_id} does not speak SAML; give the ID on its error page")
    advice = saml_messages.advice(message)
    if advice is None:
        raise Failure(
            "this message has no words that are known. If the error page has an ID of this server, "
            f"run: {COMMAND} explain ID"
        )
    facts = saml_messages.facts(client)
    values = {name: facts[name] for name in advice.values if name in facts}
    if as_json:
        print_json({"cause": advice.cause, "fix": advice.fix, "here": values})
        return
    print_paragraph(advice.cause)
    print_paragraph(advice.fix)
    if values:
        print_line()
        print_record([(f"{name} here", value) for name, value in values.items()])
    if len(values) < len(advice.values):
        print_line(f"To see what is registered: {COMMAND} explain --message … --client ID")


def _find(request_id: str) -> list[Refusal]:
    if rows := explaining.find_refusals(request_id):
        return list(rows)
    raise Failure(
        f"no refused request has the id {request_id}; refusals are kept for "
        f"{KEEP_REFUSALS.days} days, and only the latest from networks that cause many. To list "
        f"them: {COMMAND} explain"
    )


def _list(explanations: list[tuple[Case, Explanation]], as_json: bool) -> None:
    if as_json:
        print_json([_view(case, explanation) for case, explanation in explanations])
        return
    print_table(
        ("ID", "TIME", "CLIENT", "ENDPOINT", "CAUSE"),
        [
            (
                case.refusal.request_id,
                case.refusal.at,
                agent_identity.label_of(case.client) if case.client else case["client"],
                case.refusal.endpoint,
                explanation.cause,
            )
            for case, explanation in explanations
        ],
        whole_last=True,
    )


def _show(case: Case, explanation: Explanation) -> None:
    view = _view(case, explanation)
    answer = " ".join(str(part) for part in (view["status"], view["error"]) if part)
    pairs = [
        ("id", view["id"]),
        ("time", f"{case.refusal.at:%Y-%m-%d %H:%M:%S} UTC"),
        ("client", named(case.client) if case.client else case["client"]),
        ("endpoint", view["endpoint"]),
        ("answer", f"{answer}: {view['description']}" if view["description"] else answer),
        ("user", view["user"]),
        ("address", view["address"]),
        ("host", case["host"] and f"{case['host']}, not {urlsplit(case.settings.base_url).netloc}"),
    ]
    print_record([pair for pair in pairs if pair[1]])
    print_line()
    print_line(explanation.cause)
    if comparison := explanation.comparison:
        width = max(len(comparison.expected_label), len("received"))
        print_line()
        print_line(f"  {'received':{width}}  {comparison.received}")
        print_line(f"  {'':{width}}  {comparison.marks}".rstrip())
        print_line(f"  {comparison.expected_label:{width}}  {comparison.expected}")
    print_line()
    print_line(explanation.fix)
    if explanation.command:
        print_line()
        print_line(f"  {harmless(explanation.command)}")


def _view(case: Case, explanation: Explanation) -> dict[str, Any]:
    refusal, client, user = case.refusal, case.client, case.user
    return {
        "id": refusal.request_id,
        "time": iso(refusal.at),
        "event": refusal.name,
        "endpoint": refusal.endpoint,
        "client": {"client_id": client.client_id, "name": client.name} if client else None,
        "user": user.email if user else None,
        "status": case.details.get("status"),
        "error": case["error"] or None,
        "description": case["description"] or None,
        "address": case["address"] or None,
        **explanation.as_dict(),
        "details": case.details,
    }
