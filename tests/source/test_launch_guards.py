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
    zeros = "asks for a result, and those of kernels that did not run are zeros"
    assert found["slow"].reason == (
        f"its launch in step (train.py:{line['slow[']}) was not reached; it stands under `if x.sum().item() > 3` "
        f"(line {line['x.sum']}: {zeros}) and `if not fast` (line {line['not f']}). "
        f"To go there: --value {script}:{line['x.sum']}=True --value {script}:{line['not f']}=True"
    )
    assert f"`else of if x.sum().item() > 3` (line {line['x.sum']}" in found["rest"].reason
    assert found["rest"].reason.endswith(f"--value {script}:{line['x.sum']}=False")
    assert found["unused"].reason == "the script and what it imports beside it have no launch of it"
    assert found["other"].source == "side.py:5"
    assert not_launched(script, {"plain", "slow", "rest", "unused", "other"}) == []


def test_what_leaves_before_a_launch_and_who_does_not_call_it_are_said(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    launches = """
def step(x):
    if not torch.cuda.is_available():
        return
    for n in x.tolist():
        late[(n,)](x, B=64)


def idle(x):
    never[(1,)](x, B=64)


if __name__ == "__main__":
    step(1)
"""
    script.write_text(HEAD + KERNEL.format(name="late") + KERNEL.format(name="never") + launches)
    found = {each.kernel: each.reason for each in not_launched(script, ())}
    first = 1 + script.read_text().splitlines().index("    if not torch.cuda.is_available():")
    assert f"`if not torch.cuda.is_available(): return` (line {first}: asks about the device)" in found["late"]
    assert found["late"].endswith(f"--value {script}:{first}=False --value {script}:{first + 2}=[0]")
    assert found["never"].endswith("was not reached; nothing in these files calls idle")
    failed = {each.kernel: each.reason for each in not_launched(script, (), "ValueError: no")}
    assert failed["late"].endswith("; the script failed before it came to one: ValueError: no")
