"""One module a question: each takes typed input and returns a Report, or what a command renders.

May import every floor but `cli`; never rich or typer.
"""
