"""Running a kernel file safely: absent packages, the GPU that it asks about, what it read.

Runs in worker processes; must stay importable without Triton. May import the floors below, never `compile`.
"""
