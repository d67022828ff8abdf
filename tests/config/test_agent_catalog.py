"""Well-known agents are data that commands and the server can use."""

from sso.config import agent_catalog
from sso.config.agent_catalog import CATALOG
from sso.services import client_documents
from tests.support.each import each


@each("entry", CATALOG)
def test_an_entry_is_one_that_can_be_allowed(entry: agent_catalog.CatalogEntry) -> None:
    assert client_documents.url_error(entry.document) is None
    assert client_documents.domain_of(entry.document) == entry.domain
    assert entry.source.startswith("https://")
    assert "." not in entry.name  # or it could be a domain
    assert agent_catalog.domain_of(f" {entry.name.upper()} ") == entry.domain
    assert entry.label in agent_catalog.labels_at(entry.domain)


def test_names_are_given_once() -> None:
    assert len({entry.name for entry in CATALOG}) == len(CATALOG)
    assert len({entry.document for entry in CATALOG}) == len(CATALOG)


def test_a_domain_is_no_name() -> None:
    assert agent_catalog.domain_of("Claude.example") == "claude.example"
    assert agent_catalog.labels_at("claude.example") == ()
