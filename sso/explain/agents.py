"""Checks of agents: clients that no operator registered (Model Context Protocol)."""

from sso import context
from sso.explain.case import Case, Explanation, command, sentences
from sso.extensions import db
from sso.flow.refusals import Cause, Reason
from sso.i18n.message import Message, Quote
from sso.models.clients import BLOCKED
from sso.process.program import COMMAND
from sso.services import agents, client_documents
from sso.store import agents as stored_agents

_TRY_AGAIN = Message("Try again.")
_SWITCH_ON = Message(
    "To admit agents, set SSO_CLIENT_DOCUMENTS=listed, restart the server, and allow the domain:"
)


def document(case: Case) -> Explanation | None:
    """Explain why the document at a client_id identifies no client."""
    client_id = case["client"]
    is_refused = Cause.CLIENT_DOCUMENT is case.cause or Reason.CLIENT_DOCUMENT is case.reason
    is_document = case.client is None and client_documents.is_url(client_id)
    if not (is_refused or is_document):
        return None
    if error := client_documents.url_error(client_id):
        return Explanation(
            Message(
                "The client_id is a URL, but it cannot be that of a document: %(reason)s.",
                reason=error,
            ),
            Message("The publisher of the client has to choose another URL."),
        )
    return _policy(client_documents.authority_of(client_id)) or _fault(case)


def _policy(authority: str) -> Explanation | None:
    """Explain which decision of an operator the agent meets."""
    error = agents.policy_error(db.session.connection(), authority)
    if error is None:
        return None
    cause = Message("The client is identified by a document, and %(reason)s.", reason=error)
    allow = command("mcp", "allow", authority)
    if context.settings().client_documents == agents.OFF:
        return Explanation(cause, _SWITCH_ON, allow)
    statuses = stored_agents.statuses(db.session.connection(), authority)
    blocked = [name for name, status in statuses.items() if status == BLOCKED]
    if blocked:
        fix = Message("If its agents may come again, forget the decision, or allow the domain:")
        return Explanation(cause, fix, command("mcp", "remove", blocked[0]))
    return Explanation(cause, Message("If its agents may ask people for access:"), allow)


def _fault(case: Case) -> Explanation:
    """Explain what was wrong with the document itself."""
    reason = case["document"]
    if not reason or case.client is not None:
        return Explanation(
            Message("The client is identified by a document, which may be used by now."),
            _TRY_AGAIN,
        )
    return Explanation(
        Message(
            "The document at the client_id could not be used then: %(reason)s.",
            reason=Quote(reason),
        ),
        sentences(
            Message("If the document has a fault, the publisher of the client has to correct it."),
            Message(
                "See whether it is accepted by now: %(command)s.",
                command=f"{COMMAND} doctor --mcp URL --client {case['client'][:200]}",
            ),
        ),
    )
