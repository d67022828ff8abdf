"""The servers: gunicorn, and granian where it is installed. `common` is what both do."""
