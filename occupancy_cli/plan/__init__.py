"""Which configs, specializations and points a question needs compiled, and what a CTA of each does.

`kernel_input` reads what a person handed over, `points` makes launches of it. May import `compile` and below.
"""
