"""A benchmark of the five scenarios where the service is hit: `python -m tests.bench --help`."""
