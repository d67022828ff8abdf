"""Prometheus metrics: what is counted as it happens, what is read on demand, and their port."""
