"""A benchmark of the five places where the service is hit: `python -m tests.bench --help`."""
