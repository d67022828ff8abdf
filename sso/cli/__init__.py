"""The commands of `flask …`, listed in `command_line`: `client`, `user`, `key`, `db` and so on.

Commands own their transaction: they commit once, at the end, or change nothing.
"""
