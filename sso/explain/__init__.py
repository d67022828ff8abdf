"""Explanations: why a request was refused, and how to fix it, from its stored details.

The client's registration is read at the time of the explanation. Each check in `explaining` covers
one cause. Commands print English, pages use the reader's language.
"""
