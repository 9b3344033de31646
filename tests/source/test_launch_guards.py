"""Kernels that a script did not launch are named, with what stands around their launches."""

from __future__ import annotations

from pathlib import Path

from occupancy_cli.source.launch_guards import not_launched

KERNEL = """
@triton.jit
def {name}(x, B: tl.constexpr):
    tl.store(x, B)
"""
HEAD = "import triton\nimport triton.language as tl\n"


def test_each_kernel_that_was_not_launched_is_named_with_the_conditions_around_it(tmp_path: Path) -> None:
    (tmp_path / "side.py").write_text(HEAD + KERNEL.format(name="other"))
    script = tmp_path / "train.py"
    launches = """
def step(x, fast):
    plain[(1,)](x, B=64)
    if x.sum().item() > 3:
        for _ in range(2):
            if not fast:
                slow[(1,)](x, B=64)
    else:
        rest[(1,)](x, B=64)


step(1, True)
"""
    kernels = "".join(KERNEL.format(name=name) for name in ("plain", "slow", "rest", "unused"))
    script.write_text("from side import other\n" + HEAD + kernels + launches)
    text = script.read_text().splitlines()
    words = ("slow[", "x.sum", "not f")
    line = {word: 1 + next(i for i, row in enumerate(text) if word in row) for word in words}
    found = {each.kernel: each for each in not_launched(script, {"plain"})}
    assert list(found) == ["slow", "rest", "unused", "other"]
    assert found["slow"].reason == (
        f"its launch in step (train.py:{line['slow[']}) was not reached; it stands under `if x.sum().item() > 3` "
        f"(line {line['x.sum']}) and `if not fast` (line {line['not f']})"
    )
    assert f"`else of if x.sum().item() > 3` (line {line['x.sum']})" in found["rest"].reason
    assert found["unused"].reason == "the script and what it imports beside it have no launch of it"
    assert found["other"].source == "side.py:5"
    assert not_launched(script, {"plain", "slow", "rest", "unused", "other"}) == []
