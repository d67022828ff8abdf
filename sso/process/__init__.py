"""The process itself: how much it does at once, and how it is asked to end."""
