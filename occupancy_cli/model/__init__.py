"""The pure model: GPU profiles, occupancy, waves, time, recommendation, budgets.

Functions of frozen values; no I/O but reading profile files. May import the standard library, numpy, pydantic, yaml
and `occupancy_cli.errors`/`data_files`. Every other part of the tool may import it; it imports none of them, nor
Triton, torch, rich or typer (held by `lint-imports`).
"""
