"""The version of this tool, for reports and `--version`; pyproject.toml takes it from here."""

VERSION = "0.1.0"
