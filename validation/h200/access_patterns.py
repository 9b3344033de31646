"""Which lanes' addresses make how many wavefronts: single warp accesses of shared and global memory with known offsets.

One CUDA kernel an instruction: 64 accesses one after the other, the offsets of each from a table, -1 for a lane that
does not take part. Nsight Compute then says wavefronts and sectors of each access, from which the rules of
`occupancy_cli.readers.access_rules` are checked.
"""

from __future__ import annotations

import random

COUNT = 64
SHARED_BYTES = 32_768

_TYPES = {
    "u8": ("unsigned short v;", "u8", '"=h"(v)', '"h"(v)', "sum += v;", 1),
    "u16": ("unsigned short v;", "u16", '"=h"(v)', '"h"(v)', "sum += v;", 2),
    "u32": ("unsigned v;", "u32", '"=r"(v)', '"r"(v)', "sum += v;", 4),
    "u64": ("unsigned long long v;", "u64", '"=l"(v)', '"l"(v)', "sum += (unsigned)(v ^ v >> 32);", 8),
    "u128": ("uint4 v;", "v4.u32", '"=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)',
             '"r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)', "sum += v.x ^ v.y ^ v.z ^ v.w;", 16),
}  # fmt: skip
_MATRIX = {"x1": 1, "x2": 2, "x4": 4}


def unit_bytes(kernel: str) -> int:
    """Bytes that an offset of a kernel's table counts: the width of a lane's access, 16 for rows of matrices."""
    return 16 if "matrix" in kernel else _TYPES[kernel.rsplit("_", 1)[1]][5]


def _access(operation: str, width: str) -> str:
    declare, suffix, out, into, add, _ = _TYPES[width]
    vector = "{%0, %1, %2, %3}" if width == "u128" else "%0"
    count = 4 if width == "u128" else 1
    space = operation.split("_")[0]
    base = "shared + at" if space == "shared" else "buffer + at"
    address = f'"{"r" if space == "shared" else "l"}"({base})'
    predicate = "{.reg .pred p; setp.ge.s32 p, "
    if operation.endswith("load"):
        zero = "v = make_uint4(0, 0, 0, 0);" if width == "u128" else "v = 0;"
        moved = (out.replace('"=', '"+'), f'{address}, "r"(at)')
        text = f"@p ld.{space}.{suffix} {vector}, [%{count}];"
        asm = f'asm volatile("{predicate}%{count + 1}, 0; {text}}}" : {moved[0]} : {moved[1]} : "memory");'
        return f"{declare} {zero} {asm} {add}"
    zero = "v = make_uint4(i, i, i, i);" if width == "u128" else "v = i;"
    text = f"@p st.{space}.{suffix} [%{count}], {vector};"
    asm = f'asm volatile("{predicate}%{count + 1}, 0; {text}}}" :: {into}, {address}, "r"(at) : "memory");'
    return f"{declare} {zero} {asm}"


def _matrix(operation: str, width: str) -> str:
    count = _MATRIX[width]
    names = [f"v{i}" for i in range(count)]
    registers = "{" + ", ".join(f"%{i}" for i in range(count)) + "}"
    declare = f"unsigned {', '.join(f'{n} = i' for n in names)};"
    shape = f"sync.aligned.m8n8.{width}.shared.b16"
    address = '"r"(shared + at) : "memory"'
    if operation == "matrix_load":
        outs = ", ".join(f'"=r"({n})' for n in names)
        asm = f'asm volatile("ldmatrix.{shape} {registers}, [%{count}];" : {outs} : {address});'
        return f"{declare} {asm} sum += {' ^ '.join(names)};"
    ins = ", ".join(f'"r"({n})' for n in names)
    asm = f'asm volatile("stmatrix.{shape} [%{count}], {registers};" :: {ins}, {address});'
    return f"{declare} {asm}"


def kernels() -> tuple[str, ...]:
    """The names of the kernels: operation and width."""
    plain = [f"{s}_{o}_{w}" for s in ("shared", "global") for o in ("load", "store") for w in _TYPES]
    return (*plain, *(f"matrix_{o}_{w}" for o in ("load", "store") for w in _MATRIX))


def source() -> str:
    """CUDA C++ of all kernels."""
    parts = []
    for name in kernels():
        operation, width = name.rsplit("_", 1)
        body = _matrix(operation, width) if operation.startswith("matrix") else _access(operation, width)
        unit = unit_bytes(name)
        parts.append(
            f'extern "C" __global__ void {name}(const int* table, char* buffer, unsigned* out) {{\n'
            f"  __shared__ __align__(1024) char bytes[{SHARED_BYTES}];\n"
            "  unsigned shared = (unsigned)__cvta_generic_to_shared(bytes), sum = 0;\n"
            "  bytes[threadIdx.x * 4] = (char)sum; __syncwarp();\n"
            f"  int offsets[{COUNT}];\n"
            f"#pragma unroll\n  for (int i = 0; i < {COUNT}; ++i) {{ int t = table[i * 32 + threadIdx.x];"
            f" offsets[i] = t < 0 ? t : t * {unit}; }}\n"
            f"#pragma unroll\n  for (int i = 0; i < {COUNT}; ++i) {{ int at = offsets[i]; {body} }}\n"
            "  out[threadIdx.x] = sum + bytes[threadIdx.x * 4];\n}\n"
        )
    return "\n".join(parts)


def table(kernel: str) -> list[list[int]]:
    """Offsets by access and lane, in units of `unit_bytes`."""
    most = SHARED_BYTES // unit_bytes(kernel)
    lanes = range(32)
    chosen = random.Random(kernel)
    rows: list[list[int]] = [
        *([lane * step % most for lane in lanes] for step in (0, 1, 2, 3, 4, 5, 8, 9, 16, 17, 32, 33)),
        [lane ^ 5 for lane in lanes],
        [lane // 2 for lane in lanes],
        [lane // 4 * 8 + lane % 4 for lane in lanes],
        [lane % 16 for lane in lanes],
        [lane % 8 for lane in lanes],
        [lane % 8 * 8 + lane // 8 for lane in lanes],
        [lane % 4 * 32 + lane // 4 for lane in lanes],
        [(lane // 8 * 64 + lane % 8) % most for lane in lanes],
        [lane * 2 + (lane >= 16) for lane in lanes],
        [31 - lane for lane in lanes],
    ]
    if not kernel.startswith("matrix"):
        rows += [
            [lane if lane % 2 else -1 for lane in lanes],
            [lane if lane < 8 else -1 for lane in lanes],
            [lane * 32 % most if lane < 16 else -1 for lane in lanes],
            [lane * 8 if lane >= 24 else -1 for lane in lanes],
            [0 if lane == 7 else -1 for lane in lanes],
        ]
    spreads = (8, 16, 32, 64, 128, 1024)
    while len(rows) < COUNT:
        spread = min(spreads[len(rows) % len(spreads)], most)
        row = [chosen.randrange(spread) for _ in lanes]
        if not kernel.startswith("matrix") and len(rows) % 4 == 0:
            row = [at if chosen.random() < 0.6 else -1 for at in row]
        rows.append(row)
    return rows
