"""gunicorn: settings, log, signals, and a worker that waits for no client without end."""
