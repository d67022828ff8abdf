"""A client for directories: the part of LDAP (RFC 4511) that sign-in needs.

Python has no LDAP library that is maintained and installs everywhere without a compiler. This one
bounds the time and size of each answer, leaves TLS to `ssl`, and sends user input as values of the
protocol, never as text that is parsed.
"""
