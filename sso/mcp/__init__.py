"""The Model Context Protocol: what an MCP server publishes and configures to be protected."""
