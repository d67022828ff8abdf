"""Shared by all pages and endpoints: sessions, errors, headers, languages, static files."""
