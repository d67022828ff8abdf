"""`flask doctor` checks an installation, as its operator and as one of its clients.

Each check yields findings: a line and, unless all is well, a hint. Checks report problems
instead of raising them, and no finding holds a secret.
"""
