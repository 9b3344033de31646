"""Bytes to facts: cubins, SASS, TTGIR, Triton's cache entries.

Texts and bytes go in, plain values come out; Triton is not needed and nothing is run. May import `model` and `gpu`.
"""
