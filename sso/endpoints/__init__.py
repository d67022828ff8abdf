"""HTTP: views parse a request, call a service, and render the response. See `routes`."""
