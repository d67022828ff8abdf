"""Administration in the browser: one service call away from the commands that do the same.

`access` decides for all pages who may open them, before anything else is looked at.
"""
