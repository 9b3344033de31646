"""The microbenchmarks of `gpus --measure` as PTX, for the ptxas that ships with Triton: no nvcc, no torch.

    text = module_text(90)      # PTX of every kernel that a GPU of compute capability 9.0 can run
    PARAMETERS["chase_l2"]      # ("start", "out", "warm", "steps"): what a launch of it passes, each 64 bits wide

Kernels that time themselves write, for each warp of CTA 0, two 64-bit numbers to `out`: cycles of the SM's clock and
nanoseconds of the GPU's. What they compute is thrown away, but depends on what was loaded, so that nothing is left out.
Instructions are those of the PTX ISA; the descriptor of `wgmma` is of its section on matrix descriptors (128-byte
swizzle, rows of 128 bytes, so that a step along K is 32 bytes).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

LEAST_ARCH = 80
"""Compute capability 8.0: the tensor instructions below need it."""

LINE_BYTES = 128
VECTOR_BYTES = 16
UNROLLED = (1, 2, 4, 8)
"""How many loads of a thread the kernels `read_1` to `read_8` have in flight."""

OP_CHAINS, OP_UNROLLED = 8, 32
"""Independent chains of a thread, and instructions of each in a round, in the kernels `op_*`: so many that counting
rounds takes no part."""
CHASE_UNROLLED = 8
"""Loads of a chain between two steps of its counter, which a short latency would not hide."""
MMA_CHAINS = 8
SHARED_LOADS = 8
SHARED_POOL_BYTES = 16_384
WGMMA_STEPS = 8
WGMMA_GROUPS = 2

# What PTX calls the version that first knows a target; older targets do with 8.4, which has FP8 for mma.sync.
_PTX_VERSIONS = {100: "8.6", 103: "8.8", 110: "9.0", 120: "8.7", 121: "8.8"}

_REGISTERS = (
    "  .reg .pred %p<8>;\n  .reg .b32 %r<96>;\n  .reg .b64 %d<48>;\n  .reg .b64 %t<8>;\n  .reg .f32 %f<160>;\n"
    "  .reg .b32 %x<160>;\n"
)


@dataclass(frozen=True)
class Tensor:
    """A product of the tensor cores: one instruction of a warp (or of four, `wgmma`), and the operations in it."""

    name: str
    dtype: str
    shape: tuple[int, int, int]
    instruction: str
    least_arch: int
    accumulators: int
    operands: tuple[int, int] = (4, 2)
    whole: bool = True
    """With FP32 (or integer) accumulation; else FP16."""

    @property
    def flops(self) -> int:
        """Operations of one instruction, 2 a multiply-add."""
        m, n, k = self.shape
        return 2 * m * n * k


def _mma(name: str, shape: tuple[int, int, int], types: str, least: int, *, half: bool = False) -> Tensor:
    m, n, k = shape
    dtype = name.removeprefix("mma_").removesuffix("_fp16acc")
    text = f"mma.sync.aligned.m{m}n{n}k{k}.row.col.{types}"
    return Tensor(name, dtype, shape, text, least, 2 if half else 4, whole=not half)


MMA = (
    _mma("mma_bf16", (16, 8, 16), "f32.bf16.bf16.f32", 80),
    _mma("mma_fp16", (16, 8, 16), "f32.f16.f16.f32", 80),
    _mma("mma_fp16_fp16acc", (16, 8, 16), "f16.f16.f16.f16", 80, half=True),
    _mma("mma_tf32", (16, 8, 8), "f32.tf32.tf32.f32", 80),
    _mma("mma_int8", (16, 8, 32), "s32.s8.s8.s32", 80),
    _mma("mma_fp8", (16, 8, 32), "f32.e4m3.e4m3.f32", 89),
)
WGMMA = tuple(
    Tensor(
        f"wgmma_{dtype}",
        dtype,
        (64, 256, k),
        f"wgmma.mma_async.sync.aligned.m64n256k{k}.{types}",
        90,
        128,
        operands=(0, 0),
    )
    for dtype, k, types in (
        ("bf16", 16, "f32.bf16.bf16"),
        ("fp16", 16, "f32.f16.f16"),
        ("tf32", 8, "f32.tf32.tf32"),
        ("fp8", 32, "f32.e4m3.e4m3"),
        ("int8", 32, "s32.s8.s8"),
    )
)
"""Products of a warpgroup, which compute capability 9.0 alone has."""


@dataclass(frozen=True)
class Op:
    """Instructions of a lane, for one chain after the other: `{x}` is the chain's register, `{k}` a number that ptxas
    does not know."""

    name: str
    texts: tuple[str, ...]


_FMA_FP32, _LOP3 = "fma.rn.f32 {x}, {x}, {k}, {x};", "lop3.b32 {x}, {x}, {k}, {x}, 0x6a;"
OPS = (
    Op("fma_fp32", (_FMA_FP32,)),
    Op("fma_fp16x2", ("fma.rn.f16x2 {x}, {x}, {k}, {x};",)),
    Op("fma_bf16x2", ("fma.rn.bf16x2 {x}, {x}, {k}, {x};",)),
    Op("mad_int32", ("mad.lo.u32 {x}, {x}, {k}, {x};",)),
    Op("lop3", (_LOP3,)),
    Op("ex2", ("ex2.approx.ftz.f32 {x}, {x};",)),
    Op("shuffle", ("shfl.sync.bfly.b32 {x}, {x}, 1, 0x1f, 0xffffffff;",)),
    Op("issue", (_FMA_FP32, _LOP3)),  # for two units, so that issuing is what limits
)

PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "empty": (),
    "spin": ("out", "cycles"),
    "chain": ("base", "lines", "step"),
    "chase_l1": ("start", "out", "warm", "steps"),
    "chase_l2": ("start", "out", "warm", "steps"),
    "chase_shared": ("out", "steps"),
    **{f"read_{n}": ("base", "out", "vectors", "parts", "spread", "step", "passes") for n in UNROLLED},
    "write": ("base", "out", "vectors", "parts", "spread", "step", "passes"),
    "shared_read": ("out", "rounds"),
    **{f"op_{op.name}": ("out", "rounds", "number") for op in OPS},
    **{tensor.name: ("out", "rounds") for tensor in (*MMA, *WGMMA)},
}


def target_of(arch: int) -> str:
    """The name of the target for ptxas: with `a` where warpgroup products need it."""
    return f"sm_{arch}a" if arch == 90 else f"sm_{arch}"


def tensors_of(arch: int) -> tuple[Tensor, ...]:
    """The products that a GPU has: of warpgroups where there are any, else of warps."""
    if arch == 90:
        return WGMMA
    return tuple(t for t in MMA if arch >= t.least_arch)


def module_text(arch: int) -> str:
    """The PTX of every kernel for a GPU of `arch` (90 for compute capability 9.0)."""
    kernels = [_empty(), _spin(), _chain(), _chase("chase_l1", "nc"), _chase("chase_l2", "cg"), _chase_shared()]
    kernels += [_read(n) for n in UNROLLED]
    kernels += [_write(), _shared_read()]
    kernels += [_op(op) for op in OPS]
    kernels += [_wgmma(t) if t in WGMMA else _mma_kernel(t) for t in tensors_of(arch)]
    head = f".version {_PTX_VERSIONS.get(arch, '8.4')}\n.target {target_of(arch)}\n.address_size 64\n"
    return "\n".join([head, *kernels])


def _entry(name: str, body: Sequence[str] | Iterator[str], bounds: str = "") -> str:
    """A kernel whose parameters lie in %d0, %d1, ..."""
    names = PARAMETERS[name]
    parameters = ", ".join(f".param .u64 {name}_{p}" for p in names)
    loads = [f"ld.param.u64 %d{i}, [{name}_{p}];" for i, p in enumerate(names)]
    lines = "\n".join(f"  {line}" for line in (*loads, *body, "ret;"))
    return f".visible .entry {name}({parameters}){bounds}\n{{\n{_REGISTERS}{lines}\n}}\n"


_START = ("bar.sync 0;", "mov.u64 %t0, %clock64;", "mov.u64 %t1, %globaltimer;")


def _stop(out: str) -> list[str]:
    """The end of what is timed: a lane of each warp of CTA 0 writes its cycles and nanoseconds."""
    return [
        "mov.u64 %t2, %clock64;",
        "mov.u64 %t3, %globaltimer;",
        "sub.u64 %t2, %t2, %t0;",
        "sub.u64 %t3, %t3, %t1;",
        "mov.u32 %r90, %tid.x;",
        "mov.u32 %r91, %ctaid.x;",
        "and.b32 %r92, %r90, 31;",
        "or.b32 %r92, %r92, %r91;",
        "setp.eq.u32 %p7, %r92, 0;",
        "shr.u32 %r90, %r90, 5;",
        f"mad.wide.u32 %t4, %r90, 16, {out};",
        "@%p7 st.global.u64 [%t4], %t2;",
        "@%p7 st.global.u64 [%t4+8], %t3;",
    ]


def _used(register: str, out: str) -> list[str]:
    """A store that is never made, so that `register` has to be worked out."""
    return [f"setp.eq.u32 %p6, {register}, 0x5ca1ab1e;", f"@%p6 st.global.u32 [{out}], {register};"]


def _empty() -> str:
    return _entry("empty", [])


def _spin() -> str:
    """Every thread waits until the SM's clock has gone on by `cycles`."""
    return _entry(
        "spin",
        [
            "mov.u64 %t1, %globaltimer;",
            "mov.u64 %t0, %clock64;",
            "add.u64 %d2, %t0, %d1;",
            "SPIN:",
            "mov.u64 %d3, %clock64;",
            "setp.lt.u64 %p0, %d3, %d2;",
            "@%p0 bra SPIN;",
            *_stop("%d0"),
        ],
    )


def _chain() -> str:
    """Write a cycle through `lines` lines: each holds the address of the line `step` further on, counted round."""
    return _entry(
        "chain",
        [
            "mov.u32 %r0, %ctaid.x;",
            "mov.u32 %r1, %ntid.x;",
            "mov.u32 %r2, %tid.x;",
            "mad.wide.u32 %d3, %r0, %r1, 0;",
            "cvt.u64.u32 %d4, %r2;",
            "add.u64 %d3, %d3, %d4;",
            "mov.u32 %r3, %nctaid.x;",
            "mul.wide.u32 %d4, %r3, %r1;",
            "LINES:",
            "setp.ge.u64 %p0, %d3, %d1;",
            "@%p0 bra DONE;",
            "add.u64 %d5, %d3, %d2;",
            "rem.u64 %d5, %d5, %d1;",
            f"mad.lo.u64 %d5, %d5, {LINE_BYTES}, %d0;",
            f"mad.lo.u64 %d6, %d3, {LINE_BYTES}, %d0;",
            "st.global.u64 [%d6], %d5;",
            "add.u64 %d3, %d3, %d4;",
            "bra LINES;",
            "DONE:",
        ],
    )


def _chase(name: str, how: str) -> str:
    """Loads whose address is what the one before loaded: `warm` of them, then `steps` that are timed, a multiple of
    `CHASE_UNROLLED`."""
    load = f"ld.global.{how}.u64 %d4, [%d4];"
    return _entry(
        name,
        [
            "mov.u64 %d4, %d0;",
            "mov.u64 %d5, %d2;",
            "WARM:",
            "setp.eq.u64 %p0, %d5, 0;",
            "@%p0 bra TIMED;",
            load,
            "sub.u64 %d5, %d5, 1;",
            "bra WARM;",
            "TIMED:",
            "mov.u64 %d5, %d3;",
            *_START,
            "STEP:",
            *[load] * CHASE_UNROLLED,
            f"sub.u64 %d5, %d5, {CHASE_UNROLLED};",
            "setp.ne.u64 %p0, %d5, 0;",
            "@%p0 bra STEP;",
            "cvt.u32.u64 %r0, %d4;",
            *_used("%r0", "%d1"),
            *_stop("%d1"),
        ],
    )


def _chase_shared() -> str:
    """The same in shared memory, one thread over 32 lines."""
    links = [
        line
        for i in range(32)
        for line in (
            f"add.u32 %r1, %r0, {(i + 5) % 32 * LINE_BYTES};",
            f"st.shared.u32 [%r0+{i * LINE_BYTES}], %r1;",
        )
    ]
    return _entry(
        "chase_shared",
        [
            f".shared .align 16 .b8 pool[{32 * LINE_BYTES}];",
            "mov.u32 %r0, pool;",
            *links,
            *_START,
            "STEP:",
            *["ld.volatile.shared.u32 %r0, [%r0];"] * CHASE_UNROLLED,
            f"sub.u64 %d1, %d1, {CHASE_UNROLLED};",
            "setp.ne.u64 %p0, %d1, 0;",
            "@%p0 bra STEP;",
            *_used("%r0", "%d0"),
            *_stop("%d0"),
        ],
    )


def _walk(each: Sequence[str], count: int) -> list[str]:
    """A thread's way over its CTA's part, `passes` times; `each` is done with %d12, %d13, ... as addresses.

    The part of a CTA is one of `parts`, `vectors` long; a thread starts at its own vector (`spread`: beyond those of
    the CTAs before) and goes on by `step`. `vectors` is a multiple of `step` x `count`: nothing is masked.
    """
    strides = [f"add.u64 %d{12 + i}, %d{11 + i}, %d10;" for i in range(1, count)]
    return [
        "mov.u32 %r0, %ctaid.x;",
        "cvt.u64.u32 %d7, %r0;",
        "rem.u64 %d8, %d7, %d3;",
        "mul.lo.u64 %d8, %d8, %d2;",
        f"mad.lo.u64 %d8, %d8, {VECTOR_BYTES}, %d0;",  # the part
        f"mad.lo.u64 %d9, %d2, {VECTOR_BYTES}, %d8;",  # its end
        "mov.u32 %r1, %ntid.x;",
        "cvt.u64.u32 %d11, %r1;",
        "mul.lo.u64 %d11, %d11, %d7;",
        "mul.lo.u64 %d11, %d11, %d4;",
        "mov.u32 %r2, %tid.x;",
        "cvt.u64.u32 %d10, %r2;",
        "add.u64 %d11, %d11, %d10;",
        f"mad.lo.u64 %d8, %d11, {VECTOR_BYTES}, %d8;",
        f"mul.lo.u64 %d10, %d5, {VECTOR_BYTES};",
        f"mul.lo.u64 %d11, %d10, {count};",
        "PASS:",
        "mov.u64 %d12, %d8;",
        "VECTORS:",
        *strides,
        *each,
        "add.u64 %d12, %d12, %d11;",
        "setp.lt.u64 %p0, %d12, %d9;",
        "@%p0 bra VECTORS;",
        "sub.u64 %d6, %d6, 1;",
        "setp.ne.u64 %p1, %d6, 0;",
        "@%p1 bra PASS;",
    ]


def _read(count: int) -> str:
    """Loads of 16 bytes a lane past the L1, `count` of a thread in flight."""
    loads = [
        f"ld.global.cg.v4.u32 {{%r{4 * i + 8}, %r{4 * i + 9}, %r{4 * i + 10}, %r{4 * i + 11}}}, [%d{12 + i}];"
        for i in range(count)
    ]
    sums = [f"xor.b32 %r4, %r4, %r{8 + i};" for i in range(4 * count)]
    return _entry(f"read_{count}", ["mov.u32 %r4, 0;", *_walk([*loads, *sums], count), *_used("%r4", "%d1")])


def _write() -> str:
    """Stores of 16 bytes a lane, 4 of a thread one after the other."""
    stores = [f"st.global.v4.u32 [%d{12 + i}], {{%r4, %r4, %r4, %r4}};" for i in range(4)]
    return _entry("write", ["mov.u32 %r4, %tid.x;", *_walk(stores, 4)])


def _shared_read() -> str:
    """Every warp loads 16 bytes a lane from shared memory, no two lanes of a bank."""
    loads = [
        f"ld.volatile.shared.v4.u32 {{%r{4 * i + 8}, %r{4 * i + 9}, %r{4 * i + 10}, %r{4 * i + 11}}}, [%r1+{i * 1024}];"
        for i in range(SHARED_LOADS)
    ]
    sums = [f"xor.b32 %r4, %r4, %r{4 * i + 8};" for i in range(SHARED_LOADS)]
    return _entry(
        "shared_read",
        [
            f".shared .align 16 .b8 pool[{SHARED_POOL_BYTES}];",
            "mov.u32 %r0, %tid.x;",
            f"and.b32 %r0, %r0, {(SHARED_POOL_BYTES - SHARED_LOADS * 1024) // 16 - 1};",
            "shl.b32 %r0, %r0, 4;",
            "mov.u32 %r1, pool;",
            "add.u32 %r1, %r1, %r0;",
            "mov.u32 %r4, 0;",
            *_START,
            "ROUND:",
            *loads,
            *sums,
            "sub.u64 %d1, %d1, 1;",
            "setp.ne.u64 %p0, %d1, 0;",
            "@%p0 bra ROUND;",
            *_used("%r4", "%d0"),
            *_stop("%d0"),
        ],
    )


def _op(op: Op) -> str:
    """Independent chains of one instruction in every lane."""
    texts = [op.texts[i % len(op.texts)] for i in range(OP_CHAINS)]
    names = [f"%{'f' if '.f32' in text else 'x'}{i}" for i, text in enumerate(texts)]
    body = ["cvt.u32.u64 %r0, %d2;", "mov.u32 %r2, %tid.x;", "mov.b32 %f90, %r0;", "mov.b32 %x90, %r0;"]
    for i, x in enumerate(names):
        body += [f"add.u32 %r1, %r2, {i};", f"cvt.rn.f32.u32 {x}, %r1;" if x[1] == "f" else f"mov.b32 {x}, %r1;"]
    once = [text.format(x=x, k=f"%{x[1]}90") for text, x in zip(texts, names, strict=True)]
    chains = once * OP_UNROLLED
    sums = [f"mov.b32 %r5, {x};\n  xor.b32 %r4, %r4, %r5;" for x in names]
    loop = ["sub.u64 %d1, %d1, 1;", "setp.ne.u64 %p0, %d1, 0;", "@%p0 bra ROUND;"]
    return _entry(
        f"op_{op.name}",
        [*body, *_START, "ROUND:", *chains, *loop, "mov.u32 %r4, 0;", *sums, *_used("%r4", "%d0"), *_stop("%d0")],
    )


def _mma_kernel(tensor: Tensor) -> str:
    """Every warp multiplies small tiles in its registers, `MMA_CHAINS` independent sums of them."""
    integers = tensor.dtype == "int8" or not tensor.whole
    kind = "x" if integers else "f"
    count = tensor.accumulators
    chains = [[f"%{kind}{c * count + i}" for i in range(count)] for c in range(MMA_CHAINS)]
    a, b = tensor.operands
    if tensor.dtype == "tf32":
        a, b = 4, 2
    left = ", ".join(f"%r{8 + i}" for i in range(a))
    right = ", ".join(f"%r{16 + i}" for i in range(b))
    zero = "mov.b32 {}, 0;" if integers else "mov.f32 {}, 0f00000000;"
    body = [zero.format(x) for chain in chains for x in chain]
    body += _operand_bits([f"%r{8 + i}" for i in range(a)] + [f"%r{16 + i}" for i in range(b)])
    sums = [f"{tensor.instruction} {{{', '.join(c)}}}, {{{left}}}, {{{right}}}, {{{', '.join(c)}}};" for c in chains]
    loop = ["sub.u64 %d1, %d1, 1;", "setp.ne.u64 %p0, %d1, 0;", "@%p0 bra ROUND;"]
    ends = [f"mov.b32 %r5, {x};\n  xor.b32 %r4, %r4, %r5;" for chain in chains for x in chain]
    return _entry(
        tensor.name,
        [*body, *_START, "ROUND:", *sums, *loop, "mov.u32 %r4, 0;", *ends, *_used("%r4", "%d0"), *_stop("%d0")],
    )


def _operand_bits(registers: Sequence[str]) -> list[str]:
    """Numbers of about 1 in every format, with bits that differ from lane to lane: what data of a product looks like
    to the power that it takes, neither zeros nor infinite."""
    lines = ["mov.u32 %r6, %tid.x;", "mul.lo.u32 %r6, %r6, 0x9e3779b1;"]
    for i, register in enumerate(registers):
        lines += [
            f"mad.lo.u32 %r6, %r6, 0x85ebca6b, {i + 1};",
            "shr.u32 %r7, %r6, 9;",
            "and.b32 %r7, %r7, 0x807f807f;",
            f"or.b32 {register}, %r7, 0x3f003f00;",
        ]
    return lines


def _wgmma(tensor: Tensor) -> str:
    """Warpgroups multiply tiles in shared memory: 64 rows of each one's own, 256 columns of both."""
    integers = tensor.dtype == "int8"
    names = [f"%{'x' if integers else 'f'}{i}" for i in range(tensor.accumulators)]
    zero = "mov.b32 {}, 0;" if integers else "mov.f32 {}, 0f00000000;"
    rows, columns = 64 * 128, 256 * 128
    pool = WGMMA_GROUPS * rows + columns
    tail = {"bf16": ", 1, 1, 0, 0", "fp16": ", 1, 1, 0, 0", "int8": ""}.get(tensor.dtype, ", 1, 1")
    wide = ", ".join(names)
    products = [
        f"{tensor.instruction} {{{wide}}}, %d{4 + step % 4}, %d{8 + step % 4}, %p1{tail};"
        for step in range(WGMMA_STEPS)
    ]
    # Address in units of 16 bytes; 8 rows of 128 bytes apart by 1,024; 128-byte swizzle.
    fixed = (1 << 16) | ((1024 >> 4) << 32) | (1 << 62)
    describe = [
        "cvt.u64.u32 %d2, %r1;",
        "shr.u64 %d2, %d2, 4;",
        f"or.b64 %d4, %d2, {fixed};",
        f"add.u64 %d8, %d3, {fixed};",
    ]
    for step in range(1, 4):
        describe += [f"add.u64 %d{4 + step}, %d4, {2 * step};", f"add.u64 %d{8 + step}, %d8, {2 * step};"]
    fill = [
        "mov.u32 %r0, pool;",
        "mov.u32 %r2, %tid.x;",
        "shl.b32 %r3, %r2, 2;",
        "FILL:",
        *_fill_word("%r3"),
        "add.u32 %r10, %r0, %r3;",
        "st.shared.u32 [%r10], %r9;",
        f"add.u32 %r3, %r3, {WGMMA_GROUPS * 128 * 4};",
        f"setp.lt.u32 %p0, %r3, {pool};",
        "@%p0 bra FILL;",
        "fence.proxy.async;",
        "shr.u32 %r4, %r2, 7;",
        f"mad.lo.u32 %r1, %r4, {rows}, %r0;",
        f"add.u32 %r5, %r0, {WGMMA_GROUPS * rows};",
        "cvt.u64.u32 %d3, %r5;",
        "shr.u64 %d3, %d3, 4;",
        "setp.eq.u32 %p1, %r0, %r0;",
    ]
    loop = ["sub.u64 %d1, %d1, 1;", "setp.ne.u64 %p0, %d1, 0;", "@%p0 bra ROUND;"]
    ends = [f"mov.b32 %r5, {x};\n  xor.b32 %r4, %r4, %r5;" for x in names]
    return _entry(
        tensor.name,
        [
            f".shared .align 1024 .b8 pool[{pool}];",
            *fill,
            *describe,
            *(zero.format(x) for x in names),
            *_START,
            "ROUND:",
            "wgmma.fence.sync.aligned;",
            *products,
            "wgmma.commit_group.sync.aligned;",
            "wgmma.wait_group.sync.aligned 0;",
            *loop,
            "mov.u32 %r4, 0;",
            *ends,
            *_used("%r4", "%d0"),
            *_stop("%d0"),
        ],
        f" .maxntid {WGMMA_GROUPS * 128}, 1, 1 .minnctapersm 1",
    )


def _fill_word(offset: str) -> list[str]:
    """A word for `offset` in %r9, as `_operand_bits` makes them."""
    return [
        f"mul.lo.u32 %r9, {offset}, 0x9e3779b1;",
        "shr.u32 %r9, %r9, 9;",
        "and.b32 %r9, %r9, 0x807f807f;",
        "or.b32 %r9, %r9, 0x3f003f00;",
    ]
