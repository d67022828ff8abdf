"""The grants of the token endpoint, as Authlib's `register_grant` takes them."""
