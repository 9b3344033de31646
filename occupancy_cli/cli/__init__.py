"""The command line: one small module a command. Parses, calls the core, renders.

May import every part of the tool; no part imports it.
"""
