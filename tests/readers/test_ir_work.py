"""TTGIR to the work of a CTA, against counts by hand for the recorded kernels."""

import pytest
from recorded_kernels import recorded, split

from occupancy_cli.errors import InputError
from occupancy_cli.gpu.profiles import load_gpu
from occupancy_cli.model.occupancy import occupancy
from occupancy_cli.model.resources import KernelResources
from occupancy_cli.readers.ir_work import read_work, trip_counts
from occupancy_cli.readers.machine_work import with_sass
from occupancy_cli.readers.ttgir import element_bits, parse_ttgir

VALUES = {
    "H": 16, "topk": 512, "nsplit": 6, "tiles_per_split": 6, "page_size": 64, "page_bytes": 37376, "scale_off": 36864,
    "stride_qb": 8192, "stride_qh": 512, "stride_ib": 512,
}  # fmt: skip


def test_bytes_and_flops_of_the_split_kernel_are_those_counted_by_hand():
    ir = read_work(split(16, 16, 4)["ttgir"], VALUES)
    work = ir.work
    # A token: 448 FP8, 7 scales (columns beyond 448 are masked), 64 BF16 RoPE values, an int32 index.
    assert work.bytes_per_iteration == 16 * (448 + 7 + 128 + 4)
    # The query: 16 heads of 448 + 64 BF16, and the request's length.
    assert work.prologue_bytes == 16 * (448 + 64) * 2 + 4
    # Partial results: 16 heads of 448 + 64 floats, maximum and sum.
    assert work.epilogue_bytes == 16 * (448 + 64 + 2) * 4
    # Scores and values: 16 heads x 16 tokens x (512 padded + 64), a multiply-add is two.
    assert work.tensor_flops_per_iteration == (("bf16", 2 * 2 * 16 * 16 * (512 + 64)),)
    # The index comes before the rows it names; the RoPE part is copied one iteration ahead.
    assert work.dependent_loads == 2
    assert work.pipeline_depth == 1.0


def test_requested_bytes_count_every_lane():
    scale = next(a for a in read_work(split(16, 32, 8)["ttgir"], VALUES).accesses if a.dtype == "i8")
    # One scale serves 64 columns: 7 distinct bytes a token, 448 asked for.
    assert (scale.bytes, scale.requested_bytes) == (32 * 7, 32 * 448)
    assert scale.gathered and scale.where == "loop"


@pytest.mark.parametrize(("block_t", "warps", "lines"), [(16, 4, 16), (32, 8, 32), (64, 8, 32)])
def test_a_gather_touches_a_line_a_row(block_t, warps, lines):
    ir = read_work(split(16, block_t, warps)["ttgir"], VALUES)
    # Lanes of the scale's layout lie along the tokens: each names a row of its own.
    assert ir.lines_by_bytes()[1] == lines
    # Rows are read 16 bytes a lane: a warp reads 512 contiguous bytes.
    row = next(a for a in ir.accesses if a.dtype == "f8E4M3FN")
    assert (row.bytes_per_lane, row.lines_per_warp) == (16, 4.0)


def test_which_axes_of_the_grid_an_address_depends_on():
    ir = read_work(split(16, 16, 4)["ttgir"], VALUES)
    found = {(a.where, a.dtype): a.axes for a in ir.accesses}
    # Indices are of a request (axis 0) and a split (2), the query of a request and a group of heads (1).
    assert found["loop", "i32"] == ((0, 1), (2, 1))
    assert found["prologue", "bf16"] == ((0, 1), (1, 1))
    # Four neighbouring programs of an axis share what is addressed by its quotient; a remainder mixes them.
    text = """
  tt.func public @k(%x: !tt.ptr<f32>, %o: !tt.ptr<f32>) {
    %c4 = arith.constant 4 : i32
    %pid = tt.get_program_id y : i32
    %quotient = arith.divsi %pid, %c4 : i32
    %rest = arith.remsi %pid, %c4 : i32
    %a = tt.addptr %x, %quotient : !tt.ptr<f32>, i32
    %b = tt.addptr %x, %rest : !tt.ptr<f32>, i32
    %va = tt.load %a : !tt.ptr<f32> loc("k.py":1:1)
    %vb = tt.load %b : !tt.ptr<f32> loc("k.py":2:1)
    tt.return
  }
"""
    assert [a.axes for a in read_work(text).accesses] == [((1, 4),), None]


def test_bytes_beside_one_another_decide_what_memory_gives():
    code = recorded("moe_grouped_gemm")
    by_depth = {64: set(), 128: set()}
    for key, variant in code.items():
        depth = int(key.split("BLOCK_K=")[1].split()[0])
        by_depth[depth].add(round(read_work(variant["ttgir"]).work.dram_share, 3))
    # FP8 tiles that take 64 or 128 bytes of each row.
    assert by_depth == {64: {0.51}, 128: {0.88}}


def test_masks_of_arguments_let_everything_through():
    # How many splits there are is not what the kernel was compiled for: eight rows of 512 floats, whatever nsplit.
    (combine,) = (variant["ttgir"] for variant in recorded("sparse_mla_combine").values())
    for nsplit in (1, 6):
        rows = [a for a in read_work(combine, {"nsplit": nsplit, "heads": 16}).accesses if a.shape == (8, 512)]
        assert [a.bytes for a in rows] == [8 * 512 * 4]


def test_iterations_follow_from_the_arguments():
    kernel = parse_ttgir(split(16, 16, 4)["ttgir"])
    # 32 tiles over 6 splits of 6: five full ones and one of 2; x is the request.
    counts = trip_counts(kernel, VALUES, (3, 1, 6))
    assert counts.reshape(6, 3)[:, 0].tolist() == [6, 6, 6, 6, 6, 2]
    ir = read_work(kernel, VALUES, (3, 1, 6))
    assert ir.iterations == tuple(counts.tolist())
    assert "tiles_per_split" in ir.trip_count and "topk" in ir.trip_count and "pid2" in ir.trip_count
    # Without a value for topk they are not known.
    assert trip_counts(kernel, {**VALUES, "topk": None}, (3, 1, 6)) is None


def test_the_combine_kernel_reads_every_partial():
    kernel = recorded()["combine_kernel D=512 num_warps=4"]
    ir = read_work(kernel["ttgir"], {"H": 16, "nsplit": 6}, (2, 16))
    assert ir.work.bytes_per_iteration == (512 + 2) * 4
    assert ir.work.epilogue_bytes == 512 * 2
    assert set(ir.iterations) == {6.0}
    gpu = load_gpu("h200-sxm")
    resources = KernelResources(**kernel["resources"])
    held = occupancy(gpu, threads_per_cta=128, registers_per_thread=resources.registers_per_thread, shared_bytes=0)
    work = with_sass(ir, kernel["sass"], gpu, resources, held.ctas_per_sm)
    assert work.loop_mix.iterations_per_pass == 4.0  # unrolled by the compiler
    assert held.ctas_per_sm == 16
    start, loop = work.timing.parts
    # What is left over of the iterations stands behind the loop, but runs only as often as it is left over.
    assert (start.part, loop.part) == (0, 1) and start.near < 2000


def test_a_pipelined_loop_counts_its_loads_once_and_knows_its_depth():
    text = """
#blocked = #ttg.blocked<{sizePerThread = [1, 8], threadsPerWarp = [4, 8], warpsPerCTA = [4, 1], order = [1, 0]}>
#shared = #ttg.swizzled_shared<{vec = 8, perPhase = 1, maxPhase = 8, order = [1, 0]}>
#loc = loc("k.py":3:0)
#loc1 = loc("k.py":9:10)
module attributes {"ttg.num-ctas" = 1 : i32, "ttg.num-warps" = 4 : i32} {
  tt.func public @k(%a: !tt.ptr<bf16> {tt.divisibility = 16 : i32} loc("a"(#loc)), %K: i32 loc("K"(#loc))) {
    %c64 = arith.constant 64 : i32 loc(#loc)
    %c0 = arith.constant 0 : i32 loc(#loc)
    %r = tt.make_range {end = 64 : i32, start = 0 : i32} : tensor<64xi32, #ttg.slice<{dim = 0, parent = #blocked}>>
    %e = tt.expand_dims %r {axis = 0 : i32} : tensor<64xi32, #ttg.slice<{dim = 0, parent = #blocked}>> -> \
tensor<1x64xi32, #blocked>
    %b = tt.broadcast %e : tensor<1x64xi32, #blocked> -> tensor<16x64xi32, #blocked>
    %p = tt.splat %a : !tt.ptr<bf16> -> tensor<16x64x!tt.ptr<bf16>, #blocked>
    %q = tt.addptr %p, %b : tensor<16x64x!tt.ptr<bf16>, #blocked>, tensor<16x64xi32, #blocked>
    %m = ttg.local_alloc : () -> !ttg.memdesc<3x16x64xbf16, #shared, #smem, mutable>
    %t0 = ttg.async_copy_global_to_local %q, %m : tensor<16x64x!tt.ptr<bf16>, #blocked> -> <16x64xbf16> loc(#loc1)
    %t1 = ttg.async_copy_global_to_local %q, %m : tensor<16x64x!tt.ptr<bf16>, #blocked> -> <16x64xbf16> loc(#loc1)
    %o:1 = scf.for %i = %c0 to %K step %c64 iter_args(%x = %q) -> (tensor<16x64x!tt.ptr<bf16>, #blocked>)  : i32 {
      %t2 = ttg.async_copy_global_to_local %x, %m : tensor<16x64x!tt.ptr<bf16>, #blocked> -> <16x64xbf16> loc(#loc1)
      scf.yield %x : tensor<16x64x!tt.ptr<bf16>, #blocked> loc(#loc)
    } loc(#loc)
    tt.return loc(#loc)
  } loc(#loc)
} loc(#loc)
"""
    ir = read_work(text, {"K": 1024}, (2,))
    # Every row is the same 64 values here: 128 distinct bytes, 16 rows of them asked for.
    assert (ir.work.prologue_bytes, ir.work.bytes_per_iteration) == (0.0, 128.0)
    assert ir.accesses[0].requested_bytes == 16 * 128
    assert ir.work.pipeline_depth == 2.0
    assert ir.trip_count == "ceil(K / 64)"
    assert ir.iterations == (16.0, 16.0)


def test_iterations_that_loaded_data_decides_are_unknown_but_told():
    text = """
module attributes {"ttg.num-warps" = 4 : i32} {
  tt.func public @k(%length: !tt.ptr<i32>, %out: !tt.ptr<f32>) {
    %c1 = arith.constant 1 : i32
    %c0 = arith.constant 0 : i32
    %n = tt.load %length : !tt.ptr<i32>
    scf.for %i = %c0 to %n step %c1 : i32 {
      %v = tt.load %out : !tt.ptr<f32>
    }
    tt.return
  }
}
"""
    ir = read_work(text, {}, (4,))
    assert ir.trip_count == "length[]"
    assert ir.iterations is None
    assert ir.work.bytes_per_iteration == 4.0
    assert trip_counts(parse_ttgir(text), {}, (4,), at_most=True) is None  # nothing bounds the length
    bounded = text.replace(
        "    scf.for %i = %c0 to %n", "    %m = arith.minsi %n, %most : i32\n    scf.for %i = %c0 to %m"
    )
    kernel = parse_ttgir(bounded.replace("%out: !tt.ptr<f32>", "%out: !tt.ptr<f32>, %most: i32"))
    assert trip_counts(kernel, {"most": 9}, (4,)) is None
    assert trip_counts(kernel, {"most": 9}, (4,), at_most=True).tolist() == [9.0] * 4


def test_without_values_accesses_are_read_as_for_large_strides():
    ir = read_work(split(16, 16, 4)["ttgir"])
    assert ir.lines_by_bytes()[1] == 16
    assert ir.work.bytes_per_iteration == 16 * (448 + 7 + 128 + 4)
    assert ir.iterations is None and "tiles_per_split" in ir.trip_count


def test_arguments_that_the_ir_numbers_are_matched_in_order():
    text = """
module attributes {"ttg.num-warps" = 4 : i32} {
  tt.func public @k(%arg0: !tt.ptr<f32>, %arg1: i32, %arg2: i32) {
    %c1 = arith.constant 1 : i32
    scf.for %i = %arg1 to %arg2 step %c1 : i32 {
      %v = tt.load %arg0 : !tt.ptr<f32>
    }
    tt.return
  }
}
"""
    # `stride` is 1: a constant, and no argument of the IR.
    ir = read_work(text, {"out": None, "first": 2, "stride": 1, "last": 10, "BLOCK": 64}, (1,))
    assert (ir.trip_count, ir.iterations) == ("(last - first)", (8.0,))
    # A number where the IR has a pointer: no guess.
    assert read_work(text, {"first": 2, "out": None, "last": 10}, (1,)).iterations is None


def test_bulk_copies_count_wherever_a_group_of_warps_issues_them():
    text = """
#shared = #ttg.nvmma_shared<{swizzlingByteWidth = 128, transposed = false, elementBitWidth = 16}>
module attributes {"ttg.num-warps" = 4 : i32} {
  tt.func public @k(%a: !tt.tensordesc<tensor<64x64xbf16, #shared>>, %K: i32) {
    %c1 = arith.constant 1 : i32
    %c0 = arith.constant 0 : i32
    ttg.warp_specialize(%a, %K, %c1)
    default {
      scf.for %i = %c0 to %K step %c1 : i32 {
        %d = ttng.warp_group_dot %x, %y, %z : !ttg.memdesc<64x64xbf16, #shared, #smem> * \
!ttg.memdesc<64x64xbf16, #shared, #smem> -> tensor<64x64xf32, #mma>
      }
      ttg.warp_yield
    }
    partition0(%arg0: !tt.tensordesc<tensor<64x64xbf16, #shared>>, %arg1: i32, %arg2: i32) num_warps(1) {
      %zero = arith.constant 0 : i32
      scf.for %i = %zero to %arg1 step %arg2 : i32 {
        ttng.async_tma_copy_global_to_local %arg0[%i, %i] %buf, %bar, %true : !tt.tensordesc<tensor<64x64xbf16, \
#shared>>, !ttg.memdesc<1xi64, #s, #smem> -> !ttg.memdesc<64x64xbf16, #shared, #smem, mutable> loc("k.py":7:1)
        ttng.async_tma_copy_global_to_local %arg0[%i, %i] %buf, %bar, %true : !tt.tensordesc<tensor<64x64xbf16, \
#shared>>, !ttg.memdesc<1xi64, #s, #smem> -> !ttg.memdesc<64x64xbf16, #shared, #smem, mutable> loc("k.py":7:1)
      }
      ttg.warp_return
    } : (!tt.tensordesc<tensor<64x64xbf16, #shared>>, i32, i32) -> ()
    tt.return
  }
}
"""
    ir = read_work(text, {"K": 12}, (2,))
    assert ir.work.bytes_per_iteration == 2 * 64 * 64 * 2
    assert ir.work.tensor_flops_per_iteration == (("bf16", 2 * 64**3),)
    assert ir.iterations == (12.0, 12.0)


def test_types_and_texts_that_are_not_known():
    assert (element_bits("bf16"), element_bits("f8E4M3FN"), element_bits("i64"), element_bits("x")) == (16, 8, 64, None)
    with pytest.raises(InputError, match="no kernel"):
        read_work("module {}")
    with pytest.raises(InputError, match="named other"):
        parse_ttgir(split(16, 16, 4)["ttgir"], "other")
