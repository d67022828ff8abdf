"""Asks upstream identity providers who somebody is. Knows neither users nor sessions."""
