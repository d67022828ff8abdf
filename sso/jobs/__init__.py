"""Background work: each job owns its transaction."""
