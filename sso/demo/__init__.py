"""The sample application that `flask demo` runs next to the server.

It is written like any client: it imports nothing else from `sso`, and knows only the server's URL
and metadata.
"""
