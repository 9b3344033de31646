"""What the compiler produced, read: resources from cubins, work from TTGIR, a warp's path from SASS.

Texts and bytes go in, plain values come out. Triton is not needed, nothing is run.
"""
