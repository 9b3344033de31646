"""The versioned Report and its renderers.

`schema` defines the Report; every renderer reads a Report and nothing else. May import `errors`, pydantic and rich.
"""
