"""Rows of a table by index, and their reverse: gathered into a matrix, or added into the table by atomics.

table_ptr   *bf16 (gather), *fp32 (scatter)     [words, columns], contiguous
index_ptr   *i32                                [tokens], each below words
rows_ptr    *bf16                               [tokens, columns]
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl


@triton.jit
def gather_kernel(table_ptr, index_ptr, rows_ptr, tokens, columns, TOKENS: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(1) * TOKENS + tl.arange(0, TOKENS)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    word = tl.load(index_ptr + token, mask=token < tokens, other=0).to(tl.int64)
    inside = (token < tokens)[:, None] & (column < columns)[None, :]
    rows = tl.load(table_ptr + word[:, None] * columns + column[None, :], mask=inside, other=0.0)
    tl.store(rows_ptr + token[:, None].to(tl.int64) * columns + column[None, :], rows, mask=inside)


@triton.jit
def scatter_add_kernel(table_ptr, index_ptr, rows_ptr, tokens, columns, TOKENS: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(1) * TOKENS + tl.arange(0, TOKENS)
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    word = tl.load(index_ptr + token, mask=token < tokens, other=0).to(tl.int64)
    inside = (token < tokens)[:, None] & (column < columns)[None, :]
    place = token[:, None].to(tl.int64) * columns + column[None, :]
    rows = tl.load(rows_ptr + place, mask=inside, other=0.0).to(tl.float32)
    tl.atomic_add(table_ptr + word[:, None] * columns + column[None, :], rows, mask=inside, sem="relaxed")


def measured_inputs(values: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Tensors of the gather by argument name; `values` has tokens, words and columns. The output starts as NaN."""
    import torch

    tokens, words, columns = (int(values[n]) for n in ("tokens", "words", "columns"))
    half = {"dtype": torch.bfloat16, "device": device}
    return {
        "table_ptr": torch.randn(words, columns, **half),
        "index_ptr": torch.randint(words, (tokens,), dtype=torch.int32, device=device),
        "rows_ptr": torch.full((tokens, columns), float("nan"), **half),
    }


def reference(tensors: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs of the gather in float64."""
    return {"rows_ptr": tensors["table_ptr"][tensors["index_ptr"].long()].double()}


def scatter_inputs(values: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Tensors of the scatter by argument name; the table, which is added into, starts at zero."""
    import torch

    tokens, words, columns = (int(values[n]) for n in ("tokens", "words", "columns"))
    return {
        "table_ptr": torch.zeros(words, columns, dtype=torch.float32, device=device),
        "index_ptr": torch.randint(words, (tokens,), dtype=torch.int32, device=device),
        "rows_ptr": torch.randn(tokens, columns, dtype=torch.bfloat16, device=device),
    }


def scatter_reference(tensors: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The outputs of the scatter in float64."""
    rows = tensors["rows_ptr"].double()
    table = rows.new_zeros(int(values["words"]), int(values["columns"]))
    return {"table_ptr": table.index_add_(0, tensors["index_ptr"].long(), rows)}
