"""Limits against guessing and flooding, and what is recorded of those who are refused."""
