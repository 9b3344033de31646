"""`occupancy report`: the page says what its Report says, asks for nothing, and lets no name become markup."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from occupancy_cli.report import schema
from occupancy_cli.report.choice_parts import SurfacePoint
from occupancy_cli.report.explain_parts import Buffer, SharedMemoryMap, SourceText
from occupancy_cli.report.html import charts
from occupancy_cli.report.html.markup import tag
from occupancy_cli.report.html.page import render_page
from occupancy_cli.report.machine_parts import Gpu, Toolchain
from occupancy_cli.report.occupancy_parts import Launch, NextCta, Occupancy, Resources
from occupancy_cli.report.provenance import Provenance
from occupancy_cli.report.report import Report

MADE = Provenance("occupancy report k.yaml", "2026-01-02")
HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>&amp;\x1b[31m\u202e url(http://x.example/a)"
GPU = Gpu(
    id="g", name="G", compute_capability="12.0", sm_count=188, max_warps_per_sm=48, max_ctas_per_sm=24,
    registers_per_sm=65536, shared_per_sm_bytes=102400, shared_per_cta_optin_bytes=101376,
    shared_reserved_per_cta_bytes=1024, assumed=["boost_clock_mhz"],
)  # fmt: skip


def config(block: int, *, fits: bool = True) -> schema.Config:
    # 2 CTAs/SM: 102,400 / 2 - 1,024 = 50,176 bytes a CTA.
    following = NextCta(
        ctas_per_sm=2, reachable=True, binding=["shared"], shared_bytes=50176, shared_bytes_less=11392,
        registers_per_thread=None, registers_per_thread_less=None, warps_per_cta=None,
    )  # fmt: skip
    return schema.Config(
        config={"BLOCK": block, "num_warps": 8}, knobs={"H": 16}, shapes={"batch": 80},
        status="ok" if fits else "over_cap", fits=fits, over_bytes=0 if fits else 1024,
        reason="" if fits else "102,400 bytes are 1,024 over the cap",
        resources=Resources(shared_bytes=61568, registers_per_thread=168, spill_bytes=0, num_warps=8, threads_per_cta=256),
        occupancy=Occupancy(
            ctas_per_sm=1 if fits else 0, warps_per_sm=8, max_warps_per_sm=48, percent=16.67,
            limits={"shared": 1 if fits else 0, "registers": 1, "warps": 6, "ctas": 24},
            limited_by=["shared"], next_cta=following,
        ),
    )  # fmt: skip


def shared_map() -> SharedMemoryMap:
    source = SourceText(file="/somewhere/k.py", line=7, text="    key = tl.load(p)")
    buffers = [
        Buffer(offset=0, bytes=40000, shape=[64, 256], dtype="bf16", copies=2, purpose="pipelined operand", value="key",
               live_from=10, live_to=90, at_peak=True, source=source),
        Buffer(offset=40000, bytes=21568, shape=[64], dtype="fp32", copies=1, purpose="scratch of a reduction", value="",
               live_from=50, live_to=60, at_peak=True, source=None),
    ]  # fmt: skip
    return SharedMemoryMap(total_bytes=61568, operations=100, peak_at=50, peak_unused_bytes=0, buffers=buffers)


def choice(block: int, nsplit: int, us: float) -> schema.Choice:
    launch = Launch(
        grid=[80, nsplit], ctas=80 * nsplit, slots=188, waves=round(80 * nsplit / 188, 3), full_waves=80 * nsplit // 188,
        tail_ctas=80 * nsplit % 188, tail_percent=85.1, efficiency_percent=85.1,
    )  # fmt: skip
    return schema.Choice(
        knobs={"H": 16}, config={"BLOCK": block, "num_warps": 8}, nsplit=nsplit, predicted_time_us=us, launch=launch,
        ctas_per_sm=1, warps_per_sm=8, partials_bytes=1000 * nsplit, binding="latency",
        terms={"launch_us": 0.5, "iteration_us": us / 10, "iteration_fma_us": us / 20},
    )  # fmt: skip


def report() -> Report:
    chosen, now = choice(64, 2, 14.7), choice(32, 3, 32.4)
    recommendation = schema.Recommendation(
        batch=80, knobs=chosen.knobs, config=chosen.config, nsplit=2, predicted_time_us=14.7,
        predicted_speedup_vs_default=2.2, kept_default=False, model_error_percent=9.2, reasons=["because"],
        exports=["export H=16"], chosen=chosen, default=now, runner_up=choice(64, 4, 15.1),
        pareto=[choice(64, 2, 14.7), choice(64, 4, 13.0), choice(64, 8, 12.0)],
    )  # fmt: skip
    explained = dataclasses.replace(config(64), shared_map=shared_map())
    kernel = schema.Kernel(
        name="mla", source="k.yaml", kernel="k.py:mla", configs=[config(32), explained, config(128, fits=False)]
    )

    def side(us: float, nsplit: int) -> schema.SweepSide:
        return schema.SweepSide(
            knobs={"H": 16}, config={"BLOCK": 64}, nsplit=nsplit, predicted_time_us=us, ctas_per_sm=1, waves=1.0,
            efficiency_percent=85.0, requests_per_s=1.0,
        )  # fmt: skip

    points = [
        schema.SweepPoint(
            batch=b, default=side(b / 2, 3), recommended=side(b / 4, 2), best=side(b / 5, 2), model_error_percent=9.2
        )
        for b in (8, 16, 24)
    ]
    surface = [
        SurfacePoint(
            batch=b, nsplit=n, predicted_time_us=b / 4 + n, knobs={}, config={}, recommended=n == b // 8, default=n == 3
        )
        for b in (8, 16, 24)
        for n in (1, 2, 3)
    ]
    return Report(
        command="report", toolchain=Toolchain(occupancy="0.1", triton="3.9.0"), gpu=GPU, kernels=[kernel],
        recommendations=[recommendation], sweep=points, surface=surface, notes=["a note"],
    )  # fmt: skip


class Page(HTMLParser):
    """The elements of a page, its attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, name: str, attrs: Any) -> None:
        self.tags.append(name)
        self.attributes += [(n, v or "") for n, v in attrs]
        if name not in ("meta", "br"):
            self.open.append(name)

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_startendtag(self, name: str, attrs: Any) -> None:
        self.tags.append(name)
        self.attributes += [(n, v or "") for n, v in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def page() -> Page:
    pytest.importorskip("vl_convert")
    return Page(render_page([report()], MADE))


def test_the_first_words_are_the_answer(page: Page) -> None:
    head = page.text[: page.text.index("Pictures")]
    assert "2 of 3 configs" in head and "102,400 bytes are 1,024 over the cap" in head
    assert "1 CTA per SM, 8 of 48 warps" in head
    assert "2 CTAs per SM need at most 50,176 bytes of shared memory, it takes 61,568." in head
    assert "H 16, BLOCK 64, num_warps 8" in head
    assert "2.20x as fast, ±9.2 %, as what is set now: 32.4 -> 14.7 us predicted." in head
    # 15.1 / 14.7 is 2.7 % more, within 9.2 %.
    assert "The next best is 2.7 % slower: closer than the model can tell." in head


def test_it_is_whole_and_asks_for_nothing(page: Page) -> None:
    assert page.open == [] and len(render_page([report()], MADE)) < 1_000_000
    assert not {"script", "img", "link", "iframe", "image", "foreignobject", "object", "form"} & set(page.tags)
    for name, value in page.attributes:
        assert name not in ("src", "href", "xlink:href", "action") and not name.startswith("on"), (name, value)
        assert "url(" not in value or re.fullmatch(r"url\(#[\w-]+\)", value), value
        assert "://" not in value or value == "http://www.w3.org/2000/svg", value
    assert ("content", "default-src 'none'; style-src 'unsafe-inline'; img-src data:") in page.attributes
    ids = [value for name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))


def test_every_chart_has_its_sentence_its_table_and_its_numbers_under_the_pointer(page: Page) -> None:
    # Limits, shared memory, waves, terms, time against memory, time over batch, splits: each wide and narrow.
    assert page.tags.count("figure") == 7 and page.tags.count("svg") == 14
    labels = [value for name, value in page.attributes if name == "aria-label"]
    assert any(
        "Batch 8 to 24. As set now: 4.0 to 12.0 us. One setting for all (H 16, BLOCK 64): 2.0 to 6.0 us." in one
        for one in labels
    )
    assert any("The setting for all has nsplit 1, 2 from batch 16, 3 from batch 24." in one for one in labels)
    assert page.tags.count("details") == 7 and page.tags.count("title") > 40
    assert any(
        "61,568 bytes, all in use at operation 50 of 100. The largest part, 40,000 bytes, is key (line 7)." in one
        for one in labels
    )
    assert page.text.count("key 64x256 bf16: 40,000 bytes, 2 copies, pipelined operand. k.py:7: key = tl.load(p)") == 2
    # Of two configs, each drawn wide and narrow.
    assert page.text.count("shared memory: 1 of room for 1 CTA, a CTA takes 61,568 bytes") == 4
    assert page.text.count("batch 8, as set now: 4.0 us ± 9.2 %") == 2


def test_nothing_of_a_report_becomes_markup() -> None:
    pytest.importorskip("vl_convert")
    plain = Page(render_page([report()], MADE))

    def spoiled(value: Any) -> Any:
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            kept = ("status", "schema_", "command", "level")
            changes = {f.name: spoiled(getattr(value, f.name)) for f in dataclasses.fields(value) if f.name not in kept}
            return dataclasses.replace(value, **changes)
        kept_keys = ("shared", "registers", "warps", "ctas")
        if isinstance(value, dict):
            return {k if k in kept_keys or k.endswith("_us") else k + HOSTILE: spoiled(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(spoiled(one) for one in value)
        return value + HOSTILE if isinstance(value, str) else value

    text = render_page([spoiled(report())], Provenance(HOSTILE, HOSTILE))
    found = Page(text)
    assert set(found.tags) == set(plain.tags) and found.open == []
    assert {n for n, _ in found.attributes} == {n for n, _ in plain.attributes}
    assert "\x1b" not in text and "\u202e" not in text and "<script" not in text and "<img" not in text
    assert text.count("&lt;script&gt;") > 20


def test_a_tag_takes_no_handler_and_no_odd_name() -> None:
    assert str(tag("td", "<b>", title='"x"', hidden=True, lang=None)) == (
        '<td title="&quot;x&quot;" hidden>&lt;b&gt;</td>'
    )
    for bad in ({"onclick": "x"}, {"on_click": "x"}):
        with pytest.raises(ValueError):
            tag("p", **bad)
    with pytest.raises(ValueError):
        tag("p><script")


def test_what_a_spec_lacks_a_page_lacks() -> None:
    pytest.importorskip("vl_convert")
    alone = dataclasses.replace(
        report(), recommendations=[], sweep=[], surface=[], notes=["nothing is recommended: no grid"]
    )
    page = Page(render_page([alone, alone], MADE))
    assert page.tags.count("h1") == 2 and page.tags.count("figure") == 4
    assert (
        "Its spec does not say enough to predict a time" in page.text and "nothing is recommended: no grid" in page.text
    )


def test_charts_draw_what_is_there() -> None:
    found = report()
    assert charts.time_chart(found.sweep[:1]) is None and charts.surface_chart(found.surface[:1]) is None
    assert charts.candidates_chart(dataclasses.replace(found.recommendations[0], pareto=[])) is None
    limits = charts.limits_chart(found.kernels[0], 0)
    assert limits is not None and [r["taken, %"] for r in limits.table_rows][:4] == [100, 100, 16.7, 4.2]
    waves = charts.waves_chart(found.recommendations[0])
    # 240 CTAs on 188 slots: a full wave, then 52 busy and 136 idle.
    assert waves is not None and [r["slots"] for r in waves.table_rows][:3] == [188, 52, 136]


@pytest.mark.compiles
@pytest.mark.one_triton
def test_the_command_writes_a_page_of_a_kernel_without_a_spec(kernel_file: Path, tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    spec = tmp_path / "plain.yaml"
    spec.write_text(
        "schema: occupancy/kernel-spec/1\nkernel: small.py:plain\nshapes: {n: 32}\n"
        'arguments: {x_ptr: "*fp32", n: {type: i32, value: n}}\nconfigs: [{num_warps: 1}, {num_warps: 2}]\n'
    )
    command = [sys.executable, "-m", "occupancy_cli", "report", str(spec)]
    out = tmp_path / "page.html"
    done = subprocess.run([*command, "-o", str(out)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    page = Page(out.read_text())
    assert "Yes, all 2 configs" in page.text and "nothing is recommended: " in page.text
    said = subprocess.run([*command, "--format", "json"], capture_output=True, text=True, check=True)
    assert json.loads(said.stdout)["kernels"][0]["name"] == "plain"
