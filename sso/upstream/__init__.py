"""Asks other servers: identity providers who somebody is. Knows neither users nor sessions."""
