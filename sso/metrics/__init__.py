"""Prometheus metrics, on a port of their own: see `server`; gauges are added in `gauges`.

What is counted as it happens is in `sso.observability.counters`; what is read when somebody asks
is here.
"""
