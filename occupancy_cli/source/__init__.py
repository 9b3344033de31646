"""What a kernel file says, read without running it: knobs, launches, configs, names that Triton has dropped.

May import `model` and `gpu`; `spec` stands beside it and neither imports the other.
"""
