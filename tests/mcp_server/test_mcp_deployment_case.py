"""The deployment case by tools alone: what fits, why one CTA, what to set at batch 80 and 96, what it gains.

What a person would ask of an assistant, in the order of the guide; each answer has to follow from what a tool said.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mcp_client import report_of, talk, text_of

pytestmark = [
    pytest.mark.mcp,
    pytest.mark.compiles,
    pytest.mark.one_triton,
    pytest.mark.usefixtures("shipped_compiled"),
]


def test_an_assistant_solves_the_deployment_case(tmp_path: Path) -> None:
    async def conversation(one: Any) -> None:
        # 1. Does it fit? BLOCK_T 64 does not: over the cap of 101,376 bytes, which the autotuner would not tell.
        answer = await one.call_tool("analyze", {"batch": 80})
        assert answer.structured_content["left_out"] == []
        configs = report_of(answer)["kernels"][0]["configs"]
        fits = {c["config"]["BLOCK_T"] for c in configs if c["fits"]}
        over = {c["config"]["BLOCK_T"]: c["over_bytes"] for c in configs if not c["fits"]}
        assert fits == {16, 32} and set(over) == {64} and over[64] > 0
        cap = report_of(answer)["gpu"]["shared_per_cta_optin_bytes"]
        assert cap == 101_376 and f"{over[64]:,} over the cap of 101,376" in " ".join(text_of(answer).split())

        # 2. Why one CTA? Shared memory: two times (its bytes + 1,024) are more than the 102,400 of the SM.
        now = next(c for c in configs if (c["config"]["BLOCK_T"], c["config"]["num_warps"]) == (32, 4))
        assert now["occupancy"]["ctas_per_sm"] == 1 and "shared" in now["occupancy"]["limited_by"]
        taken = now["resources"]["shared_bytes"]
        calc = await one.call_tool("calc", {"num_warps": 4, "regs": 128, "shared": taken})
        found = report_of(calc)["calculation"]["occupancy"]
        assert found["ctas_per_sm"] == 1 and found["limited_by"] == ["shared"]
        # (102,400 - 2 x 1,024) / 2 = 50,176 bytes are what a second one leaves room for.
        assert found["next_cta"]["shared_bytes"] == 50_176 < taken

        # 3. What to set at batch 80 and at 96, and what does it gain? More than its error at both.
        answer = await one.call_tool("recommend", {"batch": [80, 96]})
        report = report_of(answer)
        assert [r["batch"] for r in report["recommendations"]] == [80, 96]
        for found in report["recommendations"]:
            before, chosen = found["default"], found["chosen"]
            assert before["knobs"]["BLOCK_H"] == 32 and chosen["knobs"]["BLOCK_H"] == 16
            assert before["launch"]["waves"] > 1 >= chosen["launch"]["waves"]  # the tail wave is gone
            gain = before["predicted_time_us"] / chosen["predicted_time_us"]
            assert gain == pytest.approx(found["predicted_speedup_vs_default"], rel=0.01)
            assert gain > 1.5 > 1 + found["model_error_percent"] / 100
            assert found["set_line"].startswith("export SGLANG_SM120_MMA_BLOCK_H=16 SGLANG_SM120_MMA_TARGET_CTAS=")
        # 4. How sure? How many settings are as good within that error, and what of the GPU is assumed.
        assert all(1 <= found["tied"] < found["candidates"] for found in report["recommendations"])
        assert "memory_bandwidth_gbps" in report["gpu"]["assumed"]
        assert report["single_setting"]["knobs"]["BLOCK_H"] == 16

        # 5. Does it stay so? The gate holds for what is in use; its verdict is a number.
        gate = await one.call_tool("check", {"kernels": ["sparse_mla_decode"]})
        assert gate.structured_content["exit_code"] == 0

    talk(conversation, tmp_path)
