"""Known applications: what to register for each, and what to paste into it.

Each application is one TOML file here, data without code. This package reads them and fills them
in; it knows no database and no HTTP.
"""
