"""Notes every process of an unmarked test that imports Triton. Python runs this file at its start, found by PYTHONPATH.

`conftest.py` names the file to note in, and fails the test. Marked tests, and what is outside the tests, never see it.
"""

import os
import sys

_NOTES = os.environ.get("OCCUPANCY_TESTS_TRITON_NOTES")


def _note(event, arguments):
    global _NOTES
    # `importlib.import_module` raises no event of its own, but Triton's own imports do.
    if event == "import" and _NOTES and arguments[0].partition(".")[0] == "triton":
        path, _NOTES = _NOTES, None
        with open(path, "a", encoding="utf-8") as notes:  # noqa: PTH123 (before anything else is imported)
            notes.write(" ".join(sys.orig_argv)[:200].replace("\n", " ") + "\n")


if _NOTES:
    sys.addaudithook(_note)
