"""The spec of a kernel: its schema, knobs, expressions, config tables, and the YAML reader.

What stands in a file is read as data, never evaluated as code. May import `model` and `gpu`; `source` stands beside it
and neither imports the other.
"""
