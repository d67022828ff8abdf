"""The sample application that `flask demo` runs next to the server.

It is a client, as a user's would be: it imports nothing else from `sso`, and knows the server only
by its address and what its metadata says.
"""
