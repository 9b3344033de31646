"""One definition, the dataclass, for what crosses a border: what it does not say is refused by name."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from occupancy_cli.compile.kernel_record import Dependencies, KeptTimes, KernelDescription, KernelRecord, Parameter
from occupancy_cli.compile.kernel_times import Iterations, KernelTimes
from occupancy_cli.compile.request import ArgumentValue, CompileRequest, KernelSource, Target, TimeOn
from occupancy_cli.compile.typed_json import WrongData, from_json, from_plain, to_json, to_plain
from occupancy_cli.compile.worker_messages import (
    Binary,
    Compile,
    Compiled,
    Describe,
    Described,
    Failed,
    Seen,
    Warm,
    Warmed,
    answer_of,
    answers,
    message_text,
    request_of,
)
from occupancy_cli.loading.outside_facts import Fact
from occupancy_cli.model.cta_work import CtaWork, LoopMix, Stream
from occupancy_cli.model.kernel_timing import KernelTiming, PartTiming
from occupancy_cli.model.resources import KernelResources


@dataclass(frozen=True)
class Inner:
    name: str
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class Outer:
    inner: Inner
    pair: tuple[str, float]
    kind: Literal["a", "b"]
    by_name: Mapping[str, Inner | None]
    flag: bool
    value: int | float | str | bool | None


GOOD = Outer(Inner("x", (1, 2)), ("y", 1.5), "a", {"n": Inner("z"), "m": None}, True, None)


def test_what_is_written_is_read_back() -> None:
    assert from_json(Outer, to_json(GOOD)) == GOOD
    for value in (1, 1.5, "t", True, None):
        again = from_json(Outer, to_json(dataclasses.replace(GOOD, value=value)))
        assert again.value == value and type(again.value) is type(value)


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("inner.name", 3, "inner.name: 3 is no text"),
        ("inner.sizes", [1, "2"], "inner.sizes[1]: '2' is no whole number"),
        ("inner.sizes", [True], "inner.sizes[0]: True is no whole number"),
        ("inner.sizes", {}, "inner.sizes: {} is no list"),
        ("pair", ["y"], 'pair: ["y"] is no list of 2'),
        ("pair", ["y", float("nan")], "pair[1]: nan is no number"),
        ("kind", "c", "kind: 'c' is no a or b"),
        ("by_name", {"n": 1}, "by_name.n: 1 is no object"),
        ("flag", 1, "flag: 1 is no true or false"),
        ("value", [], "value: [] is no value"),
        ("more", 1, "more is not known here"),
        ("inner.more", 1, "inner.more is not known here"),
    ],
)
def test_what_the_definition_does_not_say_is_refused_by_name(path: str, value: Any, says: str) -> None:
    data = to_plain(GOOD)
    *folders, last = path.split(".")
    place = data
    for name in folders:
        place = place[name]
    place[last] = value
    with pytest.raises(WrongData) as caught:
        from_plain(Outer, data)
    assert says in str(caught.value)


def test_a_missing_field_is_named_and_what_is_no_json_is_none() -> None:
    data = to_plain(GOOD)
    del data["inner"]["name"]
    with pytest.raises(WrongData, match=r"^inner\.name is missing"):
        from_plain(Outer, data)
    for text in ("", "{", "[" * 100_000, b"\xff"):
        with pytest.raises(WrongData, match="is no JSON"):
            from_json(Outer, text)


SOURCE = KernelSource("k", "/k.py")
TARGET = Target(90, 232_448, 132, 65_536)
REQUEST = CompileRequest(
    SOURCE, TARGET, (ArgumentValue("n", "i32", 4096),), (("B", 64), ("D", "tl.bfloat16")), (("num_warps", 4),),
    time_on=TimeOn("h200-sxm", "digest", ("/profiles",)),
)  # fmt: skip
WORK = CtaWork(
    1.0, 2.0, loop_mix=LoopMix(10.0, (("fma", 2.0),)), main=1, loops=(2,),
    streams=(Stream(1, 0, 8e3, 8e3, axes=((0, 1), (2, 1))), Stream(0, 3, 1.0, 32.0, True)),
    tensor_flops_per_iteration=(("bf16", 8.0),),
    timing=KernelTiming(280, 690, (PartTiming(0, 1.0, 2.0, (("lsu", 3.0),)),), (("L2 latency", "assumed"),)),
)  # fmt: skip
SEEN = Seen(Dependencies((Fact("content", "/k.py", "00"),), (("sm_count", 132),)), (), ("/log",), None, "3.9.0")
RECORD = KernelRecord(
    KernelResources(1024, 4, 128, 32, 0), ("a note",), (("triton", "3.9.0"),),
    {"digest": KeptTimes(to_json(KernelTimes(Iterations("n // 4"), WORK)))}, 1.5,
)  # fmt: skip
COMPILED = Compiled(REQUEST.key(), 90, RECORD, SEEN)
DESCRIBED = Described(
    SOURCE, 90, KernelDescription("k", (Parameter("n", False, "", None, False, True),), None, ()), SEEN
)


@pytest.mark.parametrize("message", [Warm(), Describe(SOURCE, TARGET), Compile(REQUEST, "/kept")])
def test_requests_cross_the_border_whole(message: Any) -> None:
    assert request_of(message_text(message)) == message


@pytest.mark.parametrize("message", [Warmed(), DESCRIBED, COMPILED, Failed("ptxas", "no")])
def test_answers_cross_the_border_whole(message: Any) -> None:
    assert answer_of(message_text(message)) == message


def test_the_work_of_a_cta_comes_back_as_it_was() -> None:
    assert RECORD.times["digest"].read().work == WORK


def test_an_answer_is_held_against_what_was_asked() -> None:
    asked = Compile(REQUEST)
    assert answers(asked, COMPILED) and answers(asked, Failed("crash", "it died"))
    other = dataclasses.replace(REQUEST, constexprs=(("B", 128),))
    assert not answers(Compile(other), COMPILED)  # of another config
    assert not answers(asked, dataclasses.replace(COMPILED, arch=120))
    assert not answers(asked, dataclasses.replace(COMPILED, binary=Binary("/elsewhere", "k")))  # which nobody asked for
    assert not answers(dataclasses.replace(asked, request=dataclasses.replace(REQUEST, time_on=None)), COMPILED)
    assert not answers(asked, DESCRIBED) and not answers(Describe(SOURCE, TARGET), Warmed())
    assert not answers(Describe(KernelSource("other", "/k.py"), TARGET), DESCRIBED)


@pytest.mark.parametrize(
    "text",
    [
        '{"id": 1}',
        "[]",
        "{}",
        '{"Compiled": {"shared_bytes": 0}}',
        '{"Warmed": {}, "Compiled": {}}',
        message_text(COMPILED).replace('"num_warps": 4', '"num_warps": "4"'),
        message_text(COMPILED).replace("bytes_per_iteration", "bytes_per_turn"),
        json.dumps({"Failed": {**to_plain(Failed("crash", "x")), "kind": "of no kind"}}),
    ],
)
def test_what_is_no_answer_is_refused(text: str) -> None:
    with pytest.raises(WrongData):
        answer_of(text)
