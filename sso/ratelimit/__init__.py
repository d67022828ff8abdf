"""Rate limits against guessing and flooding, and the records of refused requests."""
