"""The way from a kernel and its settings to a Report: joins intake, compile and model.

`plan` turns a spec and settings into launches to compile, `analyze`, `recommend` and `check` into Reports. May import
every part but `cli`; never rich or typer.
"""
