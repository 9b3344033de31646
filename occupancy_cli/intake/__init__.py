"""What to compile: spec files, kernel references, knobs, argument values and the launches they make.

Reads what people hand over and turns it into typed requests. May import `model` and `errors`; never Triton, torch,
rich or typer.
"""
