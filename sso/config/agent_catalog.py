"""Well-known agents: the names that stand for the domains of their metadata documents.

Nothing here is allowed by itself. A domain may have several agents, which are allowed together.
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

from sso.i18n import N_


@dataclass(frozen=True)
class CatalogEntry:
    """An agent: `name` in commands, `label` as its maker writes it, the URL of its document.

    `source`: where the URL of the document is published or was verified.
    """

    name: str
    label: str
    kind: str
    document: str
    source: str

    @property
    def domain(self) -> str:
        return urlsplit(self.document).hostname or ""


_ASSISTANT, _CODING, _EDITOR = N_("Assistant"), N_("Coding agent"), N_("Editor")
CATALOG = (
    CatalogEntry("claude", "Claude", _ASSISTANT,
                 "https://claude.ai/oauth/mcp-oauth-client-metadata",
                 "https://github.com/anthropics/claude-ai-mcp/issues/518"),
    CatalogEntry("claude-code", "Claude Code", _CODING,
                 "https://claude.ai/oauth/claude-code-client-metadata",
                 "https://github.com/anthropics/claude-code/issues/37767"),
    CatalogEntry("chatgpt", "ChatGPT", _ASSISTANT,
                 "https://chatgpt.com/oauth/client.json",
                 "https://github.com/django-oauth/django-oauth-toolkit/issues/1845"),
    CatalogEntry("codex", "Codex", _CODING,
                 "https://chatgpt.com/oauth/codex/client.json",
                 "https://github.com/anomalyco/opencode/pull/47737"),
    CatalogEntry("opencode", "opencode", _CODING,
                 "https://opencode.ai/oauth/opencode/client.json",
                 "https://github.com/anomalyco/opencode/pull/47737"),
    CatalogEntry("vscode", "Visual Studio Code", _EDITOR,
                 "https://vscode.dev/oauth/client-metadata.json",
                 "https://github.com/anomalyco/opencode/issues/25961"),
    CatalogEntry("zed", "Zed", _EDITOR,
                 "https://zed.dev/oauth/client-metadata.json",
                 "https://github.com/zed-industries/zed/blob/main/crates/context_server/src/oauth.rs"),
)  # fmt: skip
_DOMAINS = {entry.name: entry.domain for entry in CATALOG}


def domain_of(name: str) -> str:
    """Return the domain that a well-known name stands for; another text is a domain itself.

    White space around it is left out, and letters are in lower case. No domain is mistaken for a
    name: names have no dot.
    """
    text = name.strip().lower()
    return _DOMAINS.get(text, text)


def labels_at(domain: str) -> tuple[str, ...]:
    """Return the well-known agents whose documents are at a domain."""
    return tuple(entry.label for entry in CATALOG if entry.domain == domain)
