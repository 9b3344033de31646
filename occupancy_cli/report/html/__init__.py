"""Reports as HTML: a page of its own, and what a notebook shows.

`markup` is the one place where text becomes markup; everything else puts tags together. No script, no request.
"""
