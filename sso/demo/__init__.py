"""The sample application that `flask demo` runs next to the server.

It is written like any client: it knows only the server's URL and metadata, and imports nothing of
`sso` but the relying party that the checks sign in with, too.
"""
