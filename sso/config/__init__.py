"""Every setting: its name, default, meaning and check, and the settings in force.

Knows no Flask: a program can say what is wrong with its settings before anything else is loaded.
"""
