"""Optional: what needs a real GPU. Driver queries and timings.

May import `model`, `intake`, `compile` and `errors`; torch only inside the functions that use it.
"""
