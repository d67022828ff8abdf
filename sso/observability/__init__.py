"""The log, redaction, counters and tracing."""
