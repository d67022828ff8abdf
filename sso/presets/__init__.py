"""Known applications: their registrations, and the configuration to paste into them.

Each application is one TOML file, data without code. This package reads the files and fills them
in; it knows no database and no HTTP.
"""
