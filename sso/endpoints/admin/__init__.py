"""Administration in the browser, by the same services as the commands.

`access` checks for all pages who may open them, before anything else.
"""
