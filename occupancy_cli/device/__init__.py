"""Optional: what needs a real GPU. Driver queries and timings.

May import `compile` and below; torch only inside the functions that use it. `capture` stands beside it.
"""
