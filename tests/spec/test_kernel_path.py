"""References to kernels that functions make: data, never code."""

from __future__ import annotations

import pytest

from occupancy_cli.spec.kernel_path import FactoryCall, Named, Step, kernel_steps, plain_name


def test_a_call_is_read_as_data() -> None:
    call = FactoryCall((64, -1.5, Named(("tl", "bfloat16"))), {"tiles": [(1, "a"), None], "flags": {"causal": True}})
    text = "Ops.make(64, -1.5, tl.bfloat16, tiles=[(1, 'a'), None], flags={'causal': True}).kernel"
    assert kernel_steps(text) == (Step("Ops"), Step("make", call), Step("kernel"))
    assert plain_name(text) == "Ops.make.kernel"
    assert kernel_steps("scale") == (Step("scale"),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("make(__import__('os').system('true')).kernel", "is no value"),
        ("make([x for x in y]).kernel", "is no value"),
        ("make(lambda: 0)", "is no value"),
        ("make(*everything)", "is no value"),
        ("make(**everything)", "one by one"),
        ("make(1)(2)", "is not called again"),
        ("make[0].kernel", "neither a name nor a call"),
        ("make(", "is no name of a kernel"),
        ("make(" + "1," * 400 + ")", "a name of 806 characters"),
    ],
)
def test_what_is_no_data_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("(", r"\(")):
        kernel_steps(text)
