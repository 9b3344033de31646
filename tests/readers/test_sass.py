"""SASS text to loops, instruction mixes and warp paths. Counts are those of `grep` over the same listing."""

import re

import pytest
from recorded_kernels import recorded, split

from occupancy_cli.errors import InputError, UnknownNameError
from occupancy_cli.model.warp_path import LoopSpan
from occupancy_cli.readers.sass import loop_mix, main_loop, parse_sass, specialized_warps, warp_path


def test_control_bits_are_read_from_the_encoding():
    # Upper word 0x000ea2000c1e1900: bits 41-44 = 1 stall, 46-48 = 2 write scoreboard, 49-51 = 7 (none), 52-57 = 0.
    # Upper word 0x000fca00078e3cff of the next: stall 5; 0x004fe400... waits for scoreboard 2 (bit 54).
    text = """
.text.k:
        /*0000*/              @!P4 LDG.E R80, desc[UR20][R86.64] ;       /* 0x000000145650c981 */
                                                                         /* 0x000ea2000c1e1900 */
        /*0010*/                   LOP3.LUT R40, R19, 0x40, RZ, 0x3c, !PT ; /* 0x0000004013287812 */
                                                                         /* 0x000fca00078e3cff */
        /*0020*/                   FADD R1, R80, R2 ;                    /* 0x0000000250017221 */
                                                                         /* 0x004fe40000000000 */
        /*0030*/                   EXIT ;                                /* 0x000000000000794d */
                                                                         /* 0x000fea0003800000 */
"""
    load, logic, add, leave = parse_sass(text).instructions
    assert (load.step.stall, load.step.write_barrier, load.step.read_barrier, load.step.wait_mask) == (1, 2, 7, 0)
    assert load.conditional and not leave.conditional
    assert logic.step.stall == 5
    assert add.step.wait_mask == 0b100


def test_cuobjdump_listings_branch_by_address():
    text = """
        Function : looped
        /*0000*/                   MOV R1, c[0x0][0x28] ;                /* 0x00000a0000017a02 */
                                                                         /* 0x000fe40000000f00 */
        /*0010*/                   LDG.E R2, [R4.64] ;                   /* 0x0000000404027981 */
                                                                         /* 0x000ea8000c1e1900 */
        /*0020*/                   FADD R3, R2, R3 ;                     /* 0x0000000302037221 */
                                                                         /* 0x004fc80000000000 */
        /*0030*/               @P0 BRA 0x10 ;                            /* 0xffffffd000000947 */
                                                                         /* 0x000fea000383ffff */
        /*0040*/                   EXIT ;                                /* 0x000000000000794d */
                                                                         /* 0x000fea0003800000 */
        /*0050*/                   BRA 0x50;                             /* 0xfffffff000007947 */
                                                                         /* 0x000fc0000383ffff */
"""
    kernel = parse_sass(text)
    assert kernel.name == "looped"
    loop = main_loop(kernel)
    assert (loop.first, loop.last) == (1, 3)  # the branch to itself behind EXIT is no loop
    path = warp_path(kernel, {loop: (1, 1.0)})
    assert [s.opcode for s in path.steps] == ["MOV", "LDG.E", "FADD", "BRA", "EXIT"]
    assert path.loops == (LoopSpan(1, 4, 1),)


def test_listings_of_newer_disassemblers_carry_notes_behind_the_operands():
    text = """
.text.k:
        /*0000*/                   LDSM.16.MT88.4 R4, [R67+UR6+0x2000]     &wr=0x1  ?trans4 ; /* 0x0020000643047839 */
                                                                         /* 0x000f280008004200 */
        /*0010*/                   HMMA.16816.F32.BF16 R48, R28, R4, R48   &req={1} ?WAIT15_END_GROUP ; /* 0x0 */
        /*0020*/                   EXIT ;                                /* 0x000000000000794d */
                                                                         /* 0x000fea0003800000 */
"""
    kernel = parse_sass(text)
    assert kernel.instructions[0].operands == "R4, [R67+UR6+0x2000]"
    assert kernel.instructions[1].operands == "R48, R28, R4, R48"


def test_the_main_loop_of_the_recorded_kernel_and_its_mix():
    kernel = parse_sass(split(16, 16, 4)["sass"])
    loop = main_loop(kernel)
    mix = loop_mix(kernel, loop)
    assert mix.instructions == len(loop) == 2561
    assert dict(mix.tensor_by_shape) == {"HMMA.16816.F32.BF16": 54}
    assert mix.barriers == 17
    assert mix.global_loads == 66 + 2  # LDG and LDGSTS
    assert sum(count for _, count in mix.by_pipe) == 2561


def test_spills_in_the_loop_are_counted():
    text = split(16, 32, 4)["sass"]
    kernel = parse_sass(text)
    loop = main_loop(kernel)
    first, last = (kernel.instructions[i].address for i in (loop.first, loop.last))
    lines = [(int(m[1], 16), m[2]) for m in re.finditer(r"/\*([0-9a-f]{4,})\*/\s+(?:@\S+\s+)?(LDL|STL)\b", text)]
    inside = [opcode for address, opcode in lines if first <= address <= last]
    mix = loop_mix(kernel, loop)
    assert mix.spill_loads == inside.count("LDL") == 163
    assert mix.spill_stores == inside.count("STL") == 136


def test_without_a_loop_the_path_is_the_whole_kernel():
    kernel = parse_sass(split(16, 16, 4, once=True)["sass"])
    assert main_loop(kernel) is None
    path = warp_path(kernel, {})
    assert not path.loops
    # Nothing that may be skipped is left out: the loads of the only tile are there.
    assert sum(s.opcode == "LDG.E.U8" for s in path.steps) == 56
    assert path.steps[-1].opcode == "EXIT"


def test_an_unrolled_loop_counts_a_part_of_a_pass():
    kernel = parse_sass(recorded()["combine_kernel D=512 num_warps=4"]["sass"])
    loop = main_loop(kernel)
    assert len(loop) == 97
    assert loop_mix(kernel, loop, 4.0).instructions == 97 / 4
    assert loop_mix(kernel, loop, 4.0).global_loads == 3  # maximum, sum, accumulator


def test_text_without_encodings_gives_a_mix_but_no_path():
    text = re.sub(r"/\* 0x[0-9a-f]+ \*/", "", split(16, 16, 4)["sass"])
    kernel = parse_sass(text)
    loop = main_loop(kernel)
    assert loop_mix(kernel, loop).instructions == 2561
    assert warp_path(kernel, {loop: (1, 1.0)}) is None


def test_code_moved_out_of_line_is_no_loop():
    # The wait at 0x10 fails into 0x50, which tries again and jumps back to 0x20: 0x20 to 0x60 is no loop.
    text = """
.text.k:
.L_top:
        /*0000*/                   UTMALDG.2D [UR8], [UR4] ;             /* 0x0 */
                                                                         /* 0x000fe20000000000 */
        /*0010*/              @!P0 BRA `(.L_again) ;                     /* 0x0 */
                                                                         /* 0x000fe20000000000 */
.L_on:
        /*0020*/                   HGMMA.64x64x16.F32.BF16 R24, gdesc[UR8], R24, gsb0 ; /* 0x0 */
                                                                         /* 0x000fe20000000000 */
        /*0030*/               @P1 BRA `(.L_top) ;                       /* 0x0 */
                                                                         /* 0x000fe20000000000 */
        /*0040*/                   EXIT ;                                /* 0x0 */
                                                                         /* 0x000fe20000000000 */
.L_again:
        /*0050*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR4], R0 ; /* 0x0 */
                                                                         /* 0x000fe20000000000 */
        /*0060*/              @!P0 BRA `(.L_again) ;                     /* 0x0 */
                                                                         /* 0x000fe20000000000 */
        /*0070*/                   BRA `(.L_on) ;                        /* 0x0 */
                                                                         /* 0x000fe20000000000 */
"""
    kernel = parse_sass(text)
    assert [(loop.first, loop.last) for loop in kernel.loops] == [(0, 3)]
    path = warp_path(kernel, {main_loop(kernel): (1, 1.0)})
    # The waiting loop is not part of the way.
    assert [s.opcode.split(".")[0] for s in path.steps] == ["UTMALDG", "BRA", "HGMMA", "BRA", "EXIT"]
    assert path.loops == (LoopSpan(0, 4, 1),)


def test_nested_loops_the_one_with_the_products_is_the_main_one():
    control = "/* 0x000fe20000000000 */"
    lines = [
        (".L_outer:", None), ("LDG.E R2, [R4.64]", "0000"), (".L_inner:", None),
        ("HMMA.16816.F32 R0, R1, R2, R0", "0010"), ("@P0 BRA `(.L_inner)", "0020"), ("STG.E [R4.64], R0", "0030"),
        ("@P1 BRA `(.L_outer)", "0040"), ("EXIT", "0050"),
    ]  # fmt: skip
    text = ".text.k:\n" + "".join(
        f"{what}\n" if at is None else f" /*{at}*/ {what} ; /* 0x0000000000000000 */\n {control}\n"
        for what, at in lines
    )
    kernel = parse_sass(text)
    assert len(kernel.loops) == 2 and kernel.loops[0].holds(kernel.loops[1])
    loop = main_loop(kernel)
    assert kernel.instructions[loop.first].base == "HMMA"
    outer, inner = kernel.loops
    path = warp_path(kernel, {outer: (1, 1.0), inner: (2, 1.0)})
    assert [s.opcode.split(".")[0] for s in path.steps] == ["LDG", "HMMA", "BRA", "STG", "BRA", "EXIT"]
    assert set(path.loops) == {LoopSpan(0, 5, 1), LoopSpan(1, 3, 2)}
    assert [s.opcode for s in path.own(1)] == ["LDG.E", "STG.E", "BRA"]


def test_warp_specialization_is_noticed():
    listing = ".text.k:\n /*0000*/ USETMAXREG.DEALLOC.CTAPOOL 0x18 ;\n /*0010*/ EXIT ;\n"
    assert specialized_warps(parse_sass(listing))
    assert not specialized_warps(parse_sass(split(16, 16, 4)["sass"]))


def test_what_is_no_disassembly_is_an_error():
    with pytest.raises(InputError, match="no SASS"):
        parse_sass("nothing to see")
    with pytest.raises(UnknownNameError):
        parse_sass(split(16, 16, 4)["sass"], "split_kernal")
    two = ".text.a:\n /*0000*/ EXIT ;\n.text.b:\n /*0000*/ EXIT ;\n"
    with pytest.raises(InputError, match="2 kernels"):
        parse_sass(two)
    assert parse_sass(two, "b").name == "b"
