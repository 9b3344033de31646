// Times the SM constants that occupancy_cli/model/sm_simulation.py uses, on the GPU at hand; prints one JSON object.
// nvcc -O3 -std=c++17 -arch=sm_90 sm_constants.cu -o sm_constants && ./sm_constants
// Cycles are of the SM clock (clock64) on one SM unless a line says otherwise; each figure is the best of 5 runs.
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <vector>

#define CHECK(call)                                                                       \
  do {                                                                                    \
    cudaError_t status = (call);                                                          \
    if (status != cudaSuccess) {                                                          \
      fprintf(stderr, "%s:%d %s\n", __FILE__, __LINE__, cudaGetErrorString(status));      \
      exit(1);                                                                            \
    }                                                                                     \
  } while (0)

static bool first = true;
static void put(const char* name, double value) {
  printf("%s\n  \"%s\": %.4g", first ? "{" : ",", name, value);
  first = false;
}

// ---- Throughput and latency of one instruction -----------------------------------------------------------------
enum Op { EX2, CVT_E4M3, CVT_BF16X2, I2F_U32, CVT_F16_F32, FADD, FFMA, IMAD, PRMT, LOP3, SHFL, HFMA2, OPS };
static const char* kNames[] = {"ex2", "cvt_f16x2_e4m3x2", "cvt_bf16x2_f32", "cvt_f32_u32", "cvt_f32_f16", "fadd", "ffma",
                               "imad", "prmt", "lop3", "shfl", "hfma2"};

template <int OP>
__device__ __forceinline__ uint32_t apply(uint32_t x, uint32_t k) {
  uint32_t y = x;
  if constexpr (OP == EX2) asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=r"(y) : "r"(x));
  if constexpr (OP == CVT_E4M3) {
    uint16_t low = static_cast<uint16_t>(x);
    asm volatile("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(y) : "h"(low));
  }
  if constexpr (OP == CVT_BF16X2) asm volatile("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "r"(x), "r"(k));
  if constexpr (OP == I2F_U32) asm volatile("cvt.rn.f32.u32 %0, %1;" : "=r"(y) : "r"(x));
  if constexpr (OP == CVT_F16_F32) {
    uint16_t low = static_cast<uint16_t>(x);
    asm volatile("cvt.f32.f16 %0, %1;" : "=r"(y) : "h"(low));
  }
  if constexpr (OP == FADD) asm volatile("add.f32 %0, %1, %2;" : "=r"(y) : "r"(x), "r"(k));
  if constexpr (OP == FFMA) asm volatile("fma.rn.f32 %0, %1, %2, %1;" : "=r"(y) : "r"(x), "r"(k));
  if constexpr (OP == IMAD) asm volatile("mad.lo.u32 %0, %1, %2, %1;" : "=r"(y) : "r"(x), "r"(k));
  if constexpr (OP == PRMT) asm volatile("prmt.b32 %0, %1, %2, 0x2103;" : "=r"(y) : "r"(x), "r"(k));
  if constexpr (OP == LOP3) asm volatile("lop3.b32 %0, %1, %2, %1, 0x6a;" : "=r"(y) : "r"(x), "r"(k));
  if constexpr (OP == SHFL) asm volatile("shfl.sync.bfly.b32 %0, %1, 1, 0x1f, 0xffffffff;" : "=r"(y) : "r"(x));
  if constexpr (OP == HFMA2) asm volatile("fma.rn.f16x2 %0, %1, %2, %1;" : "=r"(y) : "r"(x), "r"(k));
  return y;
}

template <int OP, int ILP>
__global__ void op_kernel(uint32_t* out, long long* cycles, uint32_t k, int rounds) {
  uint32_t x[ILP];
#pragma unroll
  for (int i = 0; i < ILP; i++) x[i] = threadIdx.x * 7 + i + k;
  __syncthreads();
  long long start = clock64();
  for (int r = 0; r < rounds; r++) {
#pragma unroll
    for (int u = 0; u < 4; u++)
#pragma unroll
      for (int i = 0; i < ILP; i++) x[i] = apply<OP>(x[i], k);
  }
  long long stop = clock64();
  uint32_t sum = 0;
#pragma unroll
  for (int i = 0; i < ILP; i++) sum += x[i];
  out[threadIdx.x] = sum;
  if (threadIdx.x % 32 == 0) cycles[threadIdx.x / 32] = stop - start;
}

static uint32_t* g_out;
static long long* g_cycles;

template <class Launch>
static double cycles_of(Launch launch, int warps) {
  double best = 1e30;
  std::vector<long long> host(warps);
  for (int i = 0; i < 5; i++) {
    launch();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaMemcpy(host.data(), g_cycles, warps * sizeof(long long), cudaMemcpyDeviceToHost));
    best = std::min(best, static_cast<double>(*std::max_element(host.begin(), host.end())));
  }
  return best;
}

template <int OP>
static void time_op() {
  const int rounds = 256;
  char name[64];
  double chain = cycles_of([&] { op_kernel<OP, 1><<<1, 32>>>(g_out, g_cycles, 3, rounds); }, 1) / (rounds * 4.0);
  // 16 warps: 4 a scheduler, 8 independent chains each.
  double full = cycles_of([&] { op_kernel<OP, 8><<<1, 512>>>(g_out, g_cycles, 3, rounds); }, 16) / (rounds * 32.0 * 4.0);
  snprintf(name, sizeof name, "latency_%s_cycles", kNames[OP]);
  put(name, chain);
  snprintf(name, sizeof name, "issue_%s_cycles_per_scheduler", kNames[OP]);
  put(name, full);
}

template <int... I>
static void time_ops(std::integer_sequence<int, I...>) { (time_op<I>(), ...); }

// ---- Global loads whose lanes touch LINES distinct 128-byte lines, all in the L1 --------------------------------
__global__ void lines_kernel(const uint8_t* data, uint32_t* out, long long* cycles, int lines, int within, int rounds,
                             int mask) {  // a mask the compiler does not know keeps the loads in the loop
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  // Lane l goes to line l % lines; `within` spreads the lanes of one line over its bytes.
  const uint8_t* p = data + (lane % lines) * 128 + (lane / lines) * within + (warp % 2) * 4096;
  uint32_t sum = 0;
  for (int pass = 0; pass < 2; pass++) {  // the first pass warms the L1
    __syncthreads();
    long long start = clock64();
    for (int r = 0; r < rounds; r++) {
      uint32_t v[8];
#pragma unroll
      for (int i = 0; i < 8; i++)
        asm volatile("ld.global.u8 %0, [%1];" : "=r"(v[i]) : "l"(p + i % 4 * 8192 + i / 4 * 64 + (r & mask) * 8));
#pragma unroll
      for (int i = 0; i < 8; i++) sum += v[i];
    }
    long long stop = clock64();
    if (lane == 0) cycles[warp] = stop - start;
  }
  out[threadIdx.x] = sum;
}

// ---- Shared memory ------------------------------------------------------------------------------------------------
template <int BYTES, bool STORE>
__global__ void shared_kernel(uint32_t* out, long long* cycles, int stride_words, int rounds, int mask) {
  extern __shared__ uint32_t pool[];
  int warp = threadIdx.x / 32;
  uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(pool)) +
                     ((threadIdx.x % 32) * stride_words * 4 * (BYTES / 4)) % 16384;
  uint32_t sum = 0;
  __syncthreads();
  long long start = clock64();
  for (int r = 0; r < rounds; r++) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
      uint32_t a = 0, b = 0, c = 0, d = 0;
      uint32_t at = address + i * 1024 + (r & mask) * 512;
      if constexpr (STORE) {
        if constexpr (BYTES == 4) asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(sum));
        if constexpr (BYTES == 16)
          asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(at), "r"(sum));
      } else {
        if constexpr (BYTES == 4) asm volatile("ld.shared.u32 %0, [%1];" : "=r"(a) : "r"(at));
        if constexpr (BYTES == 8) asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(at));
        if constexpr (BYTES == 16)
          asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                       : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(at));
      }
      sum += a + b + c + d;
    }
  }
  long long stop = clock64();
  out[threadIdx.x] = sum;
  if (threadIdx.x % 32 == 0) cycles[warp] = stop - start;
}

__global__ void ldmatrix_kernel(uint32_t* out, long long* cycles, int rounds, int mask) {
  extern __shared__ uint32_t pool[];
  uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(pool)) + (threadIdx.x % 32) * 16;
  uint32_t sum = 0;
  __syncthreads();
  long long start = clock64();
  for (int r = 0; r < rounds; r++) {
#pragma unroll
    for (int i = 0; i < 8; i++) {
      uint32_t a, b, c, d;
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(address + i * 512 + (r & mask) * 4096));
      sum += a + b + c + d;
    }
  }
  long long stop = clock64();
  out[threadIdx.x] = sum;
  if (threadIdx.x % 32 == 0) cycles[threadIdx.x / 32] = stop - start;
}

// ---- Tensor cores: mma.sync m16n8k16 bf16 --------------------------------------------------------------------------
template <int ILP>
__global__ void mma_kernel(uint32_t* out, long long* cycles, int rounds) {
  float acc[ILP][4];
#pragma unroll
  for (int i = 0; i < ILP; i++)
    for (int j = 0; j < 4; j++) acc[i][j] = 0;
  uint32_t a = threadIdx.x, b = threadIdx.x * 3;
  __syncthreads();
  long long start = clock64();
  for (int r = 0; r < rounds; r++) {
#pragma unroll
    for (int i = 0; i < ILP; i++)
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%5,%5}, {%0,%1,%2,%3};"
          : "+f"(acc[i][0]), "+f"(acc[i][1]), "+f"(acc[i][2]), "+f"(acc[i][3]) : "r"(a), "r"(b));
  }
  long long stop = clock64();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < ILP; i++)
    for (int j = 0; j < 4; j++) sum += acc[i][j];
  out[threadIdx.x] = static_cast<uint32_t>(sum);
  if (threadIdx.x % 32 == 0) cycles[threadIdx.x / 32] = stop - start;
}

__global__ void barrier_kernel(uint32_t* out, long long* cycles, int rounds) {
  __syncthreads();
  long long start = clock64();
  for (int r = 0; r < rounds; r++) asm volatile("bar.sync 0;" ::: "memory");
  long long stop = clock64();
  out[threadIdx.x] = 1;
  if (threadIdx.x % 32 == 0) cycles[threadIdx.x / 32] = stop - start;
}

// ---- Pointer chase ----------------------------------------------------------------------------------------------
template <bool L1>
__global__ void chase_kernel(const uint32_t* next, uint32_t* out, long long* cycles, uint32_t at, long steps) {
  long long start = clock64();
  for (long i = 0; i < steps; i++) {
    uint32_t to;
    const uint32_t* from = next + static_cast<size_t>(at) * 32;
    if constexpr (L1)
      asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(to) : "l"(from));
    else
      asm volatile("ld.global.cg.u32 %0, [%1];" : "=r"(to) : "l"(from));
    at = to;
  }
  long long stop = clock64();
  out[0] = at;
  cycles[0] = stop - start;
}

template <bool L1 = false>
static double chase(double megabytes, long most_steps, int passes = 1) {
  uint32_t lines = static_cast<uint32_t>(megabytes * 1048576 / 128);
  std::vector<uint32_t> order(lines), next(static_cast<size_t>(lines) * 32, 0);
  std::iota(order.begin(), order.end(), 0u);
  std::mt19937 random(7);
  std::shuffle(order.begin(), order.end(), random);
  for (uint32_t i = 0; i < lines; i++) next[static_cast<size_t>(order[i]) * 32] = order[(i + 1) % lines];
  uint32_t* device;
  CHECK(cudaMalloc(&device, next.size() * 4));
  CHECK(cudaMemcpy(device, next.data(), next.size() * 4, cudaMemcpyHostToDevice));
  long steps = std::min<long>(static_cast<long>(lines) * passes, most_steps);
  // A whole pass first, then the same start again: what the L2 still holds is hit.
  chase_kernel<L1><<<1, 1>>>(device, g_out, g_cycles, order[0], lines);
  CHECK(cudaDeviceSynchronize());
  chase_kernel<L1><<<1, 1>>>(device, g_out, g_cycles, order[0], steps);
  CHECK(cudaDeviceSynchronize());
  long long cycles;
  CHECK(cudaMemcpy(&cycles, g_cycles, sizeof cycles, cudaMemcpyDeviceToHost));
  CHECK(cudaFree(device));
  return static_cast<double>(cycles) / steps;
}

// ---- Data that other SMs have just written ---------------------------------------------------------------------------
// Lines are written by all SMs, then read for the first time by one warp: by one lane in a chain, or by 32 lanes, a line
// each, where a step waits for the slowest.
__global__ void scatter_kernel(uint32_t* next, uint32_t lines, uint32_t stride) {
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < lines; i += gridDim.x * blockDim.x)
    next[static_cast<size_t>(i) * 32] = (i + stride) % lines;
}
template <int LANES>
__global__ void fresh_kernel(const uint32_t* next, uint32_t* out, long long* cycles, uint32_t lines, int steps) {
  uint32_t at = static_cast<uint32_t>((static_cast<uint64_t>(threadIdx.x) * 2654435761u) % lines);
  long long start = clock64();
  for (int i = 0; i < steps; i++) {
    uint32_t to;
    asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(to) : "l"(next + static_cast<size_t>(at) * 32));
    at = to + (LANES > 1 ? __shfl_xor_sync(0xffffffffu, to, 1) * 0 : 0);
  }
  long long stop = clock64();
  out[threadIdx.x] = at;
  if (threadIdx.x == 0) cycles[0] = stop - start;
}
template <int LANES>
static double fresh(double megabytes, bool written) {
  uint32_t lines = static_cast<uint32_t>(megabytes * 1048576 / 128);
  uint32_t* device;
  CHECK(cudaMalloc(&device, static_cast<size_t>(lines) * 128));
  int steps = static_cast<int>(lines / LANES / 4);
  long long least = 1LL << 62;
  scatter_kernel<<<132, 256>>>(device, lines, lines * 5 / 13 | 1);
  for (int i = 0; i < 5; i++) {
    if (written) scatter_kernel<<<132, 256>>>(device, lines, lines * 5 / 13 | 1);
    fresh_kernel<LANES><<<1, LANES>>>(device, g_out, g_cycles, lines, steps);
    CHECK(cudaDeviceSynchronize());
    long long cycles;
    CHECK(cudaMemcpy(&cycles, g_cycles, sizeof cycles, cudaMemcpyDeviceToHost));
    if (i) least = std::min(least, cycles);
  }
  CHECK(cudaFree(device));
  return static_cast<double>(least) / steps;
}

// ---- Long straight code: instruction supply -----------------------------------------------------------------------
template <int N>
__global__ void code_kernel(uint32_t* out, long long* cycles, float k, int rounds) {
  float x[8];
#pragma unroll
  for (int i = 0; i < 8; i++) x[i] = threadIdx.x + i;
  __syncthreads();
  long long start = clock64();
#pragma unroll 1
  for (int r = 0; r < rounds; r++) {
#pragma unroll
    for (int i = 0; i < N; i++) asm volatile("add.f32 %0, %0, %1;" : "+f"(x[i % 8]) : "f"(k));
  }
  long long stop = clock64();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 8; i++) sum += x[i];
  out[threadIdx.x] = static_cast<uint32_t>(sum);
  if (threadIdx.x % 32 == 0) cycles[threadIdx.x / 32] = stop - start;
}

template <int N>
static void time_code() {
  for (int warps : {4, 8, 16}) {
    double c = cycles_of([&] { code_kernel<N><<<1, warps * 32>>>(g_out, g_cycles, 1.0f, 20); }, warps);
    char name[96];
    snprintf(name, sizeof name, "code_%d_instructions_%d_warps_cycles_per_instruction", N, warps);
    put(name, c / 20 / N);
  }
}

// ---- Whole-GPU: launches, CTA turnover, bandwidth -----------------------------------------------------------------
__global__ void empty_kernel(uint32_t* out) {
  if (out == nullptr) out[0] = 1;
}
__global__ void held_kernel(uint32_t* out, int spin) {
  extern __shared__ uint32_t pool[];
  long long until = clock64() + spin;
  while (clock64() < until) {
  }
  if (out == nullptr) out[0] = pool[0];
}
__global__ void read_kernel(const uint4* data, uint32_t* out, size_t count, int passes) {
  uint32_t sum = 0;
  for (int p = 0; p < passes; p++)
    for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < count;
         i += static_cast<size_t>(gridDim.x) * blockDim.x * 4) {
      uint4 v[4];
#pragma unroll
      for (int u = 0; u < 4; u++) {
        size_t at = i + static_cast<size_t>(u) * gridDim.x * blockDim.x;
        v[u] = at < count ? __ldcg(data + at) : make_uint4(0, 0, 0, 0);
      }
#pragma unroll
      for (int u = 0; u < 4; u++) sum += v[u].x + v[u].y + v[u].z + v[u].w;
    }
  if (sum == 12345) out[0] = sum;
}

// Stores of 16 bytes a lane; with `loads`, of what was loaded from elsewhere.
__global__ void write_kernel(const uint4* from, uint4* to, size_t count, int passes, bool loads) {
  for (int p = 0; p < passes; p++)
    for (size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x; i < count;
         i += static_cast<size_t>(gridDim.x) * blockDim.x * 4) {
      uint4 v[4];
#pragma unroll
      for (int u = 0; u < 4; u++) {
        size_t at = i + static_cast<size_t>(u) * gridDim.x * blockDim.x;
        v[u] = loads && at < count ? __ldcg(from + at) : make_uint4(p, i, 0, 0);
      }
#pragma unroll
      for (int u = 0; u < 4; u++) {
        size_t at = i + static_cast<size_t>(u) * gridDim.x * blockDim.x;
        if (at < count) to[at] = v[u];
      }
    }
}
// A tile of a matrix with long rows: PIECE bytes of each of many rows `stride` bytes apart, then the next PIECE bytes of
// each. 16 bytes a lane.
template <int PIECE>
__global__ void tiles_kernel(const uint8_t* data, uint32_t* out, size_t rows, int stride, int sharers = 1) {
  constexpr int kLanes = PIECE / 16, kUnroll = 4, kApart = 64;
  int groups = blockDim.x / kLanes;
  // `sharers` CTAs read the same rows, each 64 CTAs after the one before.
  unsigned tile = blockIdx.x / (kApart * sharers) * kApart + blockIdx.x % kApart;
  size_t row = tile * static_cast<size_t>(groups) * kUnroll + threadIdx.x / kLanes;
  uint32_t sum = 0;
  for (int k = 0; k < stride; k += PIECE) {
    uint4 v[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; u++) {
      size_t at = row + static_cast<size_t>(u) * groups;
      const uint8_t* from = data + at * stride + k + threadIdx.x % kLanes * 16;
      v[u] = at < rows ? __ldcg(reinterpret_cast<const uint4*>(from)) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; u++) sum += v[u].x + v[u].y + v[u].z + v[u].w;
  }
  if (sum == 12345) out[0] = sum;
}
// A gather: PIECE bytes at the start of each of `pieces` (a power of two) slots of 512 bytes, in scattered order.
template <int PIECE>
__global__ void gather_kernel(const uint8_t* data, uint32_t* out, uint32_t pieces) {
  constexpr int kLanes = PIECE / 16, kUnroll = 4;
  uint32_t groups = gridDim.x * (blockDim.x / kLanes);
  uint32_t sum = 0;
  for (uint32_t i = blockIdx.x * (blockDim.x / kLanes) + threadIdx.x / kLanes; i < pieces; i += groups * kUnroll) {
    uint4 v[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; u++) {
      uint32_t slot = ((i + u * groups) * 2654435761u) & (pieces - 1);
      const uint8_t* from = data + static_cast<size_t>(slot) * 512 + threadIdx.x % kLanes * 16;
      v[u] = i + u * groups < pieces ? __ldcg(reinterpret_cast<const uint4*>(from)) : make_uint4(0, 0, 0, 0);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; u++) sum += v[u].x + v[u].y + v[u].z + v[u].w;
  }
  if (sum == 12345) out[0] = sum;
}

// Every CTA reads one of `parts` parts of `count` vectors, from its start: CTAs of the same part read the same.
__global__ void shared_read_kernel(const uint4* data, uint32_t* out, int count, int parts, bool neighbours, int passes) {
  int part = neighbours ? blockIdx.x / (gridDim.x / parts) % parts : blockIdx.x % parts;
  const uint4* own = data + static_cast<size_t>(part) * count;
  uint32_t sum = 0;
  for (int p = 0; p < passes; p++)
    for (int i = threadIdx.x; i < count; i += blockDim.x * 4) {
      uint4 v[4];
#pragma unroll
      for (int u = 0; u < 4; u++) {
        int at = i + u * blockDim.x;
        v[u] = at < count ? __ldcg(own + at) : make_uint4(0, 0, 0, 0);
      }
#pragma unroll
      for (int u = 0; u < 4; u++) sum += v[u].x + v[u].y + v[u].z + v[u].w;
    }
  if (sum == 12345) out[0] = sum;
}

template <class Launch>
static double micros(Launch launch, int nodes) {
  cudaStream_t stream;
  CHECK(cudaStreamCreate(&stream));
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < nodes; i++) launch(stream);
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  cudaEvent_t a, b;
  CHECK(cudaEventCreate(&a));
  CHECK(cudaEventCreate(&b));
  float best = 1e30f;
  for (int i = 0; i < 8; i++) {
    CHECK(cudaEventRecord(a, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaEventRecord(b, stream));
    CHECK(cudaEventSynchronize(b));
    float ms;
    CHECK(cudaEventElapsedTime(&ms, a, b));
    if (i > 1) best = std::min(best, ms);
  }
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  CHECK(cudaStreamDestroy(stream));
  return best * 1e3 / nodes;
}

template <int PIECE>
static void time_pieces(const uint8_t* data, int sms) {
  char name[96];
  size_t bytes = size_t(2) << 30;
  for (int stride : {1024, 2048, 4096, 16384}) {
    size_t rows = bytes / stride, rows_a_cta = 256 / (PIECE / 16) * 4;
    unsigned ctas = static_cast<unsigned>((rows + rows_a_cta - 1) / rows_a_cta);
    snprintf(name, sizeof name, "dram_read_tiles_of_%d_bytes_stride_%d_gbps", PIECE, stride);
    put(name, bytes / 1e3 / micros([&](cudaStream_t s) { tiles_kernel<PIECE><<<ctas, 256, 0, s>>>(data, g_out, rows, stride); }, 1));
  }
  for (int sharers : {2, 4}) {  // of 512 MB: bytes that come from memory, each once
    size_t few = size_t(512) << 20, rows = few / 2048, rows_a_cta = 256 / (PIECE / 16) * 4;
    unsigned ctas = static_cast<unsigned>(rows / rows_a_cta) * sharers;
    snprintf(name, sizeof name, "dram_read_tiles_of_%d_bytes_by_%d_gbps", PIECE, sharers);
    put(name, few / 1e3 / micros([&](cudaStream_t s) { tiles_kernel<PIECE><<<ctas, 256, 0, s>>>(data, g_out, rows, 2048, sharers); }, 1));
  }
  for (int sharers : {1, 2, 4}) {  // of 16 MB, in the L2: bytes read
    size_t few = size_t(16) << 20, rows = few / 2048, rows_a_cta = 256 / (PIECE / 16) * 4;
    unsigned ctas = static_cast<unsigned>(rows / rows_a_cta) * sharers;
    snprintf(name, sizeof name, "l2_read_tiles_of_%d_bytes_by_%d_gbps", PIECE, sharers);
    double once = micros([&](cudaStream_t s) { tiles_kernel<PIECE><<<ctas, 256, 0, s>>>(data, g_out, rows, 2048, sharers); }, 20);
    put(name, few * sharers / 1e3 / once);
  }
  uint32_t pieces = 1u << 23;
  snprintf(name, sizeof name, "dram_gather_of_%d_bytes_gbps", PIECE);
  put(name, double(pieces) * PIECE / 1e3 /
                micros([&](cudaStream_t s) { gather_kernel<PIECE><<<sms * 8, 256, 0, s>>>(data, g_out, pieces); }, 1));
}

int main() {
  cudaDeviceProp gpu;
  CHECK(cudaGetDeviceProperties(&gpu, 0));
  int clock_khz = 0;
  CHECK(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, 0));
  CHECK(cudaMalloc(&g_out, 1 << 20));
  CHECK(cudaMalloc(&g_cycles, 1 << 16));
  fprintf(stderr, "%s\n", gpu.name);
  put("sm_count", gpu.multiProcessorCount);
  put("clock_mhz", clock_khz / 1e3);
  put("l2_bytes", gpu.l2CacheSize);
  op_kernel<FFMA, 8><<<gpu.multiProcessorCount * 8, 512>>>(g_out, g_cycles, 3, 200000);  // reach the boost clock
  CHECK(cudaDeviceSynchronize());

  time_ops(std::make_integer_sequence<int, OPS>());

  uint8_t* data;
  CHECK(cudaMalloc(&data, 1 << 20));
  CHECK(cudaMemset(data, 0, 1 << 20));
  for (int warps : {4, 8, 16})
    for (int lines : {1, 2, 4, 8, 16, 32}) {
      char name[96];
      double c = cycles_of([&] { lines_kernel<<<1, warps * 32>>>(data, g_out, g_cycles, lines, 1, 200, 3); }, warps);
      snprintf(name, sizeof name, "global_load_%d_lines_%d_warps_cycles_per_sm", lines, warps);
      put(name, c / (200.0 * 8 * warps));
    }
  put("global_load_1_line_4_sectors_cycles_per_sm",
      cycles_of([&] { lines_kernel<<<1, 512>>>(data, g_out, g_cycles, 1, 4, 200, 3); }, 16) / (200.0 * 8 * 16));

  for (int stride : {1, 2, 4, 8, 32}) {
    char name[96];
    snprintf(name, sizeof name, "shared_load_4_bytes_stride_%d_words_cycles_per_sm", stride);
    put(name, cycles_of([&] { shared_kernel<4, false><<<1, 512, 32768>>>(g_out, g_cycles, stride, 200, 3); }, 16) /
                  (200.0 * 8 * 16));
  }
  put("shared_load_8_bytes_cycles_per_sm",
      cycles_of([&] { shared_kernel<8, false><<<1, 512, 32768>>>(g_out, g_cycles, 1, 200, 3); }, 16) / (200.0 * 8 * 16));
  put("shared_load_16_bytes_cycles_per_sm",
      cycles_of([&] { shared_kernel<16, false><<<1, 512, 32768>>>(g_out, g_cycles, 1, 200, 3); }, 16) / (200.0 * 8 * 16));
  put("shared_store_4_bytes_cycles_per_sm",
      cycles_of([&] { shared_kernel<4, true><<<1, 512, 32768>>>(g_out, g_cycles, 1, 200, 3); }, 16) / (200.0 * 8 * 16));
  put("shared_store_16_bytes_cycles_per_sm",
      cycles_of([&] { shared_kernel<16, true><<<1, 512, 32768>>>(g_out, g_cycles, 1, 200, 3); }, 16) / (200.0 * 8 * 16));
  put("ldmatrix_x4_cycles_per_sm",
      cycles_of([&] { ldmatrix_kernel<<<1, 512, 32768>>>(g_out, g_cycles, 200, 3); }, 16) / (200.0 * 8 * 16));
  put("mma_m16n8k16_latency_cycles", cycles_of([&] { mma_kernel<1><<<1, 32>>>(g_out, g_cycles, 500); }, 1) / 500.0);
  put("mma_m16n8k16_cycles_per_scheduler_1_warp",
      cycles_of([&] { mma_kernel<8><<<1, 128>>>(g_out, g_cycles, 500); }, 4) / (500.0 * 8));
  put("mma_m16n8k16_cycles_per_scheduler_4_warps",
      cycles_of([&] { mma_kernel<8><<<1, 512>>>(g_out, g_cycles, 500); }, 16) / (500.0 * 8 * 4));
  for (int warps : {4, 8, 16}) {
    char name[64];
    snprintf(name, sizeof name, "barrier_%d_warps_cycles", warps);
    put(name, cycles_of([&] { barrier_kernel<<<1, warps * 32>>>(g_out, g_cycles, 1000); }, warps) / 1000.0);
  }

  put("load_latency_l1_cycles", chase<true>(0.015625, 200000, 64));
  for (double mb : {0.0625, 1.0, 8.0, 16.0, 20.0, 24.0, 28.0, 32.0, 40.0, 48.0, 56.0, 64.0, 96.0, 512.0}) {
    char name[64];
    snprintf(name, sizeof name, "load_latency_%g_mb_cycles", mb);
    put(name, chase(mb, 200000));
  }

  for (double mb : {1.0, 8.0}) {
    char name[96];
    for (bool written : {true, false}) {
      const char* how = written ? "just_written" : "read_before";
      snprintf(name, sizeof name, "load_latency_%g_mb_%s_cycles", mb, how);
      put(name, fresh<1>(mb, written));
      snprintf(name, sizeof name, "load_latency_32_lines_%g_mb_%s_cycles", mb, how);
      put(name, fresh<32>(mb, written));
    }
  }

  time_code<256>();
  time_code<768>();
  time_code<1536>();
  time_code<2560>();
  time_code<4096>();
  time_code<8192>();

  put("graph_node_us", micros([&](cudaStream_t s) { empty_kernel<<<1, 32, 0, s>>>(g_out); }, 200));
  put("graph_node_full_gpu_us",
      micros([&](cudaStream_t s) { empty_kernel<<<gpu.multiProcessorCount, 256, 0, s>>>(g_out); }, 200));
  CHECK(cudaFuncSetAttribute(held_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 200 * 1024));
  for (int threads : {128, 256}) {
    double one = micros([&](cudaStream_t s) { held_kernel<<<gpu.multiProcessorCount, threads, 200 * 1024, s>>>(g_out, 4000); }, 20);
    double many = micros([&](cudaStream_t s) { held_kernel<<<gpu.multiProcessorCount * 17, threads, 200 * 1024, s>>>(g_out, 4000); }, 20);
    char name[64];
    snprintf(name, sizeof name, "cta_turnover_%d_threads_us", threads);
    put(name, (many - one) / 16 - 4000.0 / (clock_khz / 1e3));
    snprintf(name, sizeof name, "launch_beyond_cta_%d_threads_us", threads);
    put(name, one - 4000.0 / (clock_khz / 1e3));
  }
  uint4* big;
  size_t bytes = size_t(4) << 30;
  CHECK(cudaMalloc(&big, bytes));
  CHECK(cudaMemset(big, 0, bytes));
  put("dram_read_gbps",
      bytes / 1e3 / micros([&](cudaStream_t s) { read_kernel<<<gpu.multiProcessorCount * 4, 512, 0, s>>>(big, g_out, bytes / 16, 1); }, 1));
  const uint8_t* whole = reinterpret_cast<const uint8_t*>(big);
  time_pieces<32>(whole, gpu.multiProcessorCount);
  time_pieces<64>(whole, gpu.multiProcessorCount);
  time_pieces<128>(whole, gpu.multiProcessorCount);
  time_pieces<256>(whole, gpu.multiProcessorCount);
  time_pieces<512>(whole, gpu.multiProcessorCount);
  size_t part = size_t(16) << 20;
  double once = micros([&](cudaStream_t s) { read_kernel<<<gpu.multiProcessorCount * 4, 512, 0, s>>>(big, g_out, part / 16, 4); }, 1);
  double more = micros([&](cudaStream_t s) { read_kernel<<<gpu.multiProcessorCount * 4, 512, 0, s>>>(big, g_out, part / 16, 36); }, 1);
  put("l2_read_gbps", 32.0 * part / 1e3 / (more - once));
  // All SMs read, each part by several of them at once.
  for (int sharers : {1, 2, 4, 11, 33, 132})
    for (bool neighbours : {true, false}) {
      int parts = std::max(gpu.multiProcessorCount / sharers, 1), count = (1 << 17) / 16;
      once = micros([&](cudaStream_t s) { shared_read_kernel<<<gpu.multiProcessorCount, 1024, 0, s>>>(big, g_out, count, parts, neighbours, 4); }, 1);
      more = micros([&](cudaStream_t s) { shared_read_kernel<<<gpu.multiProcessorCount, 1024, 0, s>>>(big, g_out, count, parts, neighbours, 68); }, 1);
      char name[96];
      snprintf(name, sizeof name, "l2_read_same_by_%d_%s_sms_bytes_per_cycle_and_sm", sharers, neighbours ? "neighbouring" : "scattered");
      put(name, 64.0 * (1 << 17) / (more - once) / (clock_khz / 1e3));
    }
  uint4* other = big + bytes / 32;  // the second half
  once = micros([&](cudaStream_t s) { write_kernel<<<gpu.multiProcessorCount * 4, 512, 0, s>>>(big, other, part / 16, 4, false); }, 1);
  more = micros([&](cudaStream_t s) { write_kernel<<<gpu.multiProcessorCount * 4, 512, 0, s>>>(big, other, part / 16, 36, false); }, 1);
  put("l2_write_gbps", 32.0 * part / 1e3 / (more - once));
  once = micros([&](cudaStream_t s) { write_kernel<<<gpu.multiProcessorCount * 4, 512, 0, s>>>(big, other, part / 32, 4, true); }, 1);
  more = micros([&](cudaStream_t s) { write_kernel<<<gpu.multiProcessorCount * 4, 512, 0, s>>>(big, other, part / 32, 36, true); }, 1);
  put("l2_copy_read_gbps", 16.0 * part / 1e3 / (more - once));
  size_t half = bytes / 2;
  put("dram_write_gbps",
      half / 1e3 / micros([&](cudaStream_t s) { write_kernel<<<gpu.multiProcessorCount * 4, 512, 0, s>>>(big, other, half / 16, 1, false); }, 1));
  put("dram_copy_read_gbps",
      half / 1e3 / micros([&](cudaStream_t s) { write_kernel<<<gpu.multiProcessorCount * 4, 512, 0, s>>>(big, other, half / 16, 1, true); }, 1));
  for (int mb : {32, 64, 96, 128, 256}) {  // graph nodes that write the same place again and again
    char name[64];
    snprintf(name, sizeof name, "write_of_%d_mb_again_gbps", mb);
    size_t written = size_t(mb) << 20;
    put(name, written / 1e3 / micros([&](cudaStream_t s) { write_kernel<<<gpu.multiProcessorCount * 4, 512, 0, s>>>(big, other, written / 16, 1, false); }, 20));
    snprintf(name, sizeof name, "read_of_%d_mb_again_gbps", mb);
    put(name, written / 1e3 / micros([&](cudaStream_t s) { read_kernel<<<gpu.multiProcessorCount * 4, 512, 0, s>>>(big, g_out, written / 16, 1); }, 20));
  }
  for (int sms : {1, 8, 32, 64, 132}) {
    size_t bytes_written = size_t(sms) << 17;
    once = micros([&](cudaStream_t s) { write_kernel<<<sms, 1024, 0, s>>>(big, other, bytes_written / 16, 4, false); }, 1);
    more = micros([&](cudaStream_t s) { write_kernel<<<sms, 1024, 0, s>>>(big, other, bytes_written / 16, 68, false); }, 1);
    char name[64];
    snprintf(name, sizeof name, "l2_write_%d_sms_bytes_per_cycle_and_sm", sms);
    put(name, 64.0 * bytes_written / sms / (more - once) / (clock_khz / 1e3));
  }
  once = micros([&](cudaStream_t s) { read_kernel<<<1, 1024, 0, s>>>(big, g_out, (1 << 20) / 16, 4); }, 1);
  more = micros([&](cudaStream_t s) { read_kernel<<<1, 1024, 0, s>>>(big, g_out, (1 << 20) / 16, 36); }, 1);
  put("l2_read_one_sm_gbps", 32.0 * (1 << 20) / 1e3 / (more - once));
  // Every SM its own part of 16 MB, with fewer and fewer of them reading.
  for (int sms : {1, 2, 4, 8, 16, 32, 64, 96, 132}) {
    size_t bytes_read = size_t(sms) << 17;
    once = micros([&](cudaStream_t s) { read_kernel<<<sms, 1024, 0, s>>>(big, g_out, bytes_read / 16, 4); }, 1);
    more = micros([&](cudaStream_t s) { read_kernel<<<sms, 1024, 0, s>>>(big, g_out, bytes_read / 16, 68); }, 1);
    char name[64];
    snprintf(name, sizeof name, "l2_read_%d_sms_bytes_per_cycle_and_sm", sms);
    put(name, 64.0 * bytes_read / sms / (more - once) / (clock_khz / 1e3));
  }
  printf("\n}\n");
  return 0;
}
