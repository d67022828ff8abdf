"""HTTP: what parses a request, calls a service, and renders the answer. See `routes`."""
