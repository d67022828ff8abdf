"""Says in plain words why a request was refused, and how to fix it, from what was stored of it.

What the client has registered is read when the question is asked. Each check of `explaining` knows
one cause. Commands say it in English, pages in the reader's language.
"""
