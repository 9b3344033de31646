"""The one definition of launch options: what a launch can have, and what it has that says nothing."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from locations import ROOT

from occupancy_cli.errors import InputError
from occupancy_cli.model.launch_options import DEFAULTS, LAUNCH_OPTIONS, OPTIONS, check_launch_option


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("num_warps", (1, 2, 32), (0, 3, -4, True, "4", 4.0, None)),
        ("num_ctas", (1, 16), (0, 12, None)),
        ("num_stages", (0, 1, 7), (-1, 1.5, None)),
        ("maxnreg", (1, 168, None), (0, -8, "many")),
        ("BLOCK", (0, -1, "any", None), ()),
    ],
)
def test_an_option_takes_what_a_launch_can_have(name: str, right: tuple[Any, ...], wrong: tuple[Any, ...]) -> None:
    for value in right:
        check_launch_option(name, value, "here")
    for value in wrong:
        with pytest.raises(InputError, match=f"{name} is .*, not "):
            check_launch_option(name, value, "here")


def test_a_launch_that_says_nothing_has_every_option_but_a_register_limit() -> None:
    assert set(DEFAULTS) == set(LAUNCH_OPTIONS) - {"maxnreg"}
    for name, value in DEFAULTS.items():
        assert not OPTIONS[name].wrong(value)


def test_the_names_stand_in_one_module() -> None:
    """But for the renderers, which read the Report and nothing else."""
    listed = []
    for path in sorted((ROOT / "occupancy_cli").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
                texts = {e.value for e in node.elts if isinstance(e, ast.Constant)}
            elif isinstance(node, ast.Dict):
                texts = {k.value for k in node.keys if isinstance(k, ast.Constant)}
            else:
                continue
            if texts >= set(LAUNCH_OPTIONS):
                listed.append(path.relative_to(ROOT / "occupancy_cli").as_posix())
    assert [path for path in listed if not path.startswith("report/")] == ["model/launch_options.py"]
