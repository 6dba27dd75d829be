// Wrappers of Ampere and Hopper PTX instructions without a CUDA C++ equivalent: asynchronous
// copies, barriers in shared memory, tensor-core products, overlapping launches (PTX ISA).
#pragma once

#include <cuda.h>

#include <cstdint>

namespace nereid::kernels::cuda {

// This pass compiles code for Hopper's own instructions (sm_90a).
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define NEREID_HOPPER 1
#endif

inline __device__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// --- Programmatic dependent launch. A kernel launched by launch_overlapped() (overlap.h) may start
// before the previous kernel has ended: it calls wait_for_previous() before it accesses memory
// shared with other kernels of the step. let_next_begin() allows the next kernel to start; a step's
// first kernel waits before it, so that writes of earlier steps and copies are visible to all
// kernels of the step without waiting.
inline __device__ void wait_for_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
inline __device__ void let_next_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// --- 16 bytes of global memory that are read once.
inline __device__ uint4 load_once(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

// --- L2 cache policy: lines that a step reads once are evicted first; intermediate results stay.
inline __device__ uint64_t read_once() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

// --- Asynchronous copies of 16 bytes, global to shared memory, in groups (sm_80); zeros if !valid.
inline __device__ void copy_16(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(valid ? 16 : 0)
               : "memory");
}
inline __device__ void copy_16(uint32_t to, const void* from, bool valid, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(to),
               "l"(from), "r"(valid ? 16 : 0), "l"(policy)
               : "memory");
}
inline __device__ void copy_8(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from),
               "r"(valid ? 8 : 0)
               : "memory");
}
// 4 bytes, or the first `bytes` of them and zeros.
inline __device__ void copy_4(uint32_t to, const void* from, int bytes = 4) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
}
inline __device__ void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
inline __device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// --- Tensor cores, per warp: d += a [16, 16] . b [16, 8], f32 sums of bf16.
inline __device__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Same for f16.
inline __device__ void multiply_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Four 8x8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8.
inline __device__ void load_matrices(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
inline __device__ void load_transposed(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

// --- bf16 matrices in shared memory for wgmma.
constexpr int kHalf = 64;              // columns of a swizzled half
constexpr int kLineBytes = 2 * kHalf;  // bytes of a line of a half
// Index of element `column` of a line in a matrix of `lines` lines: halves of 64 columns, each
// line's 16-byte pieces permuted by its number (128-byte swizzle).
inline __device__ int place_in_matrix(int lines, int line, int column) {
  const int piece = column % kHalf / 8;
  return (column / kHalf * lines + line) * kLineBytes + (piece ^ line % 8) * 16 + column % 8 * 2;
}

#if defined(NEREID_HOPPER)

// --- Barriers in shared memory (mbarrier).
inline __device__ void barrier_init(uint64_t* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}
inline __device__ void barriers_are_ready() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
inline __device__ void barrier_expect(uint64_t* barrier, uint32_t bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
inline __device__ void barrier_arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
inline __device__ void barrier_wait(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// Makes this thread's writes to shared memory visible to wgmma and TMA, before a barrier.
inline __device__ void writes_are_ready() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Global to shared memory by TMA, a multiple of 16 bytes.
inline __device__ void copy_bytes(void* to, const void* from, uint32_t bytes, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

// --- TMA: a box of a matrix in global memory to shared memory; (column, row) is its first element.
inline __device__ void copy_box(void* to, const CUtensorMap* map, int column, int row,
                                uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3}], [%4];" ::"r"(shared_address(to)),
      "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier))
      : "memory");
}
inline __device__ void copy_box(void* to, const CUtensorMap* map, int column, int row,
                                uint64_t* barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes."
      "L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
      "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
}

inline __device__ void copy_box(void* to, const CUtensorMap* map, int column, int row, int plane,
                                int block, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%2, %3, %4, %5}], [%6];" ::"r"(shared_address(to)),
      "l"(map), "r"(column), "r"(row), "r"(plane), "r"(block), "r"(shared_address(barrier))
      : "memory");
}
inline __device__ void copy_box(void* to, const CUtensorMap* map, int column, int row, int plane,
                                int block, uint64_t* barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes."
      "L2::cache_hint [%0], [%1, {%2, %3, %4, %5}], [%6], %7;" ::"r"(shared_address(to)),
      "l"(map), "r"(column), "r"(row), "r"(plane), "r"(block), "r"(shared_address(barrier)),
      "l"(policy)
      : "memory");
}

// --- Clusters: rank of this block, store to another block's shared memory, barrier of all threads
// that makes the stores visible.
inline __device__ unsigned cluster_rank() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
inline __device__ void store_in_cluster(const uint32_t* at, unsigned rank, uint32_t value) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "st.shared::cluster.u32 [there], %2;\n"
      "}\n" ::"r"(shared_address(at)),
      "r"(rank), "r"(value)
      : "memory");
}
inline __device__ void cluster_meets() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Same in two steps, only for barriers published by barriers_are_ready().
inline __device__ void cluster_arrives() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
inline __device__ void cluster_waits() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Eight bytes, or four numbers, to the same address in another block's shared memory; the same
// barrier there counts their bytes.
inline __device__ void send_in_cluster(const void* at, unsigned rank, uint64_t bytes,
                                       uint64_t* barrier) {
  asm volatile(
      "{\n"
      ".reg .b32 there, arrived;\n"
      "mapa.shared::cluster.u32 there, %0, %2;\n"
      "mapa.shared::cluster.u32 arrived, %1, %2;\n"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [there], %3, [arrived];\n"
      "}\n" ::"r"(shared_address(at)),
      "r"(shared_address(barrier)), "r"(rank), "l"(bytes)
      : "memory");
}
inline __device__ void send_in_cluster(const float4* at, unsigned rank, const float* four,
                                       uint64_t* barrier) {
  asm volatile(
      "{\n"
      ".reg .b32 there, arrived;\n"
      "mapa.shared::cluster.u32 there, %0, %2;\n"
      "mapa.shared::cluster.u32 arrived, %1, %2;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [there], {%3, %4, %5, %6}, "
      "[arrived];\n"
      "}\n" ::"r"(shared_address(at)),
      "r"(shared_address(barrier)), "r"(rank), "f"(four[0]), "f"(four[1]), "f"(four[2]),
      "f"(four[3])
      : "memory");
}
inline __device__ void barrier_wait_in_cluster(uint64_t* barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// --- Sets the registers per thread of four warps (setmaxnreg).
template <int kRegisters>
inline __device__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
inline __device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
// Barrier `number` (1 to 15) of `threads` threads.
inline __device__ void meet(int number, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

inline __device__ void arrive(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// --- wgmma: d += a [64, 16] . b [kN, 16]^T, f32 sums of bf16, both in shared memory with rows of
// 64 elements in the 128-byte swizzle. Layout of d (PTX ISA): register 4 i + r of lane l in warp w
// is row 16 w + l / 4 + 8 (r / 2), column 8 i + 2 (l % 4) + r % 2.
inline __device__ uint64_t swizzled_matrix(const void* p) {
  const uint64_t address = shared_address(p);
  // Stride between groups of 8 rows: 8 * 128 bytes; layout type 1: 128-byte swizzle.
  return (address >> 4 & 0x3fff) | uint64_t{1} << 16 | uint64_t{1024 >> 4} << 32 |
         uint64_t{1} << 62;
}
// A matrix with k as rows and the product's columns as columns; halves of 64 are half_bytes apart.
inline __device__ uint64_t swizzled_columns(const void* p, int half_bytes) {
  const uint64_t address = shared_address(p);
  return (address >> 4 & 0x3fff) | static_cast<uint64_t>(half_bytes >> 4) << 16 |
         uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}
inline __device__ void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
inline __device__ void products_end() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
inline __device__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Compiler barrier for registers of products that may still run.
template <int kRows>
__device__ void hold(float (&x)[kRows][4]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i)
    asm volatile("" : "+f"(x[i][0]), "+f"(x[i][1]), "+f"(x[i][2]), "+f"(x[i][3])::"memory");
}

#define NEREID_D4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define NEREID_D16(d, i) \
  NEREID_D4(d, i), NEREID_D4(d, i + 4), NEREID_D4(d, i + 8), NEREID_D4(d, i + 12)

inline __device__ void multiply_64(float (&d)[8], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, "
      "%9, 1, 1, 1, 0, 0;"
      : NEREID_D4(d, 0), NEREID_D4(d, 4)
      : "l"(a), "l"(b));
}
inline __device__ void multiply_64(float (&d)[16], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, %12, %13, %14, %15}, %16, %17, 1, 1, 1, 0, 0;"
      : NEREID_D16(d, 0)
      : "l"(a), "l"(b));
}
inline __device__ void multiply_64(float (&d)[32], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
      "%27, %28, %29, %30, %31}, %32, %33, 1, 1, 1, 0, 0;"
      : NEREID_D16(d, 0), NEREID_D16(d, 16)
      : "l"(a), "l"(b));
}
inline __device__ void multiply_64(float (&d)[64], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
      "%27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, "
      "%45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, "
      "%63}, %64, %65, 1, 1, 1, 0, 0;"
      : NEREID_D16(d, 0), NEREID_D16(d, 16), NEREID_D16(d, 32), NEREID_D16(d, 48)
      : "l"(a), "l"(b));
}

// Same with a from registers, a thread's rows and columns as in multiply(). !adds: d = product.
inline __device__ void multiply_64(float (&d)[8], const uint32_t (&a)[4], uint64_t b, bool adds) {
  asm volatile(
      "{\n"
      ".reg .pred adds;\n"
      "setp.ne.b32 adds, %13, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, "
      "{%8, %9, %10, %11}, %12, adds, 1, 1, 0;\n"
      "}\n"
      : NEREID_D4(d, 0), NEREID_D4(d, 4)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(adds)));
}
inline __device__ void multiply_64(float (&d)[16], const uint32_t (&a)[4], uint64_t b, bool adds) {
  asm volatile(
      "{\n"
      ".reg .pred adds;\n"
      "setp.ne.b32 adds, %21, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19}, %20, adds, 1, 1, 0;\n"
      "}\n"
      : NEREID_D16(d, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(adds)));
}
inline __device__ void multiply_64(float (&d)[24], const uint32_t (&a)[4], uint64_t b, bool adds) {
  asm volatile(
      "{\n"
      ".reg .pred adds;\n"
      "setp.ne.b32 adds, %29, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n48k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23}, "
      "{%24, %25, %26, %27}, %28, adds, 1, 1, 0;\n"
      "}\n"
      : NEREID_D16(d, 0), NEREID_D4(d, 16), NEREID_D4(d, 20)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(adds)));
}
inline __device__ void multiply_64(float (&d)[32], const uint32_t (&a)[4], uint64_t b, bool adds) {
  asm volatile(
      "{\n"
      ".reg .pred adds;\n"
      "setp.ne.b32 adds, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, "
      "%26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, adds, 1, 1, 0;\n"
      "}\n"
      : NEREID_D16(d, 0), NEREID_D16(d, 16)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(adds)));
}
inline __device__ void multiply_64(float (&d)[40], const uint32_t (&a)[4], uint64_t b, bool adds) {
  asm volatile(
      "{\n"
      ".reg .pred adds;\n"
      "setp.ne.b32 adds, %45, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, "
      "%7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39}, "
      "{%40, %41, %42, %43}, %44, adds, 1, 1, 0;\n"
      "}\n"
      : NEREID_D16(d, 0), NEREID_D16(d, 16), NEREID_D4(d, 32), NEREID_D4(d, 36)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(adds)));
}
inline __device__ void multiply_64(float (&d)[48], const uint32_t (&a)[4], uint64_t b, bool adds) {
  asm volatile(
      "{\n"
      ".reg .pred adds;\n"
      "setp.ne.b32 adds, %53, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n96k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, "
      "%26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, "
      "%43, %44, %45, %46, %47}, {%48, %49, %50, %51}, %52, adds, 1, 1, 0;\n"
      "}\n"
      : NEREID_D16(d, 0), NEREID_D16(d, 16), NEREID_D16(d, 32)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(adds)));
}
inline __device__ void multiply_64(float (&d)[64], const uint32_t (&a)[4], uint64_t b, bool adds) {
  asm volatile(
      "{\n"
      ".reg .pred adds;\n"
      "setp.ne.b32 adds, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, "
      "%7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, "
      "%24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, "
      "%41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, "
      "%58, %59, %60, %61, %62, %63}, {%64, %65, %66, %67}, %68, adds, 1, 1, 0;\n"
      "}\n"
      : NEREID_D16(d, 0), NEREID_D16(d, 16), NEREID_D16(d, 32), NEREID_D16(d, 48)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(static_cast<int>(adds)));
}

// 8-bit, a from registers: d += a [64, 32] . b [kN, 32]^T, b in unswizzled matrices of eight rows
// by 16 bytes. Without kAdd: d = the product. f8e4m3, then integers.
template <bool kAdd>
inline __device__ void multiply_64_f8(float (&d)[4], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, "
      "%9, 1, 1;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kAdd));
}
template <bool kAdd>
inline __device__ void multiply_64_f8(float (&d)[8], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, "
      "%9, %10, %11}, %12, %13, 1, 1;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kAdd));
}
template <bool kAdd>
inline __device__ void multiply_64_f8(float (&d)[16], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n32k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19}, %20, %21, 1, 1;"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kAdd));
}
template <bool kAdd>
inline __device__ void multiply_64_s8(int (&d)[4], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, %9;"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kAdd));
}
template <bool kAdd>
inline __device__ void multiply_64_s8(int (&d)[8], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n16k32.s32.s8.s8 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, "
      "%10, %11}, %12, %13;"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]),
        "+r"(d[7])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kAdd));
}
template <bool kAdd>
inline __device__ void multiply_64_s8(int (&d)[16], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n32k32.s32.s8.s8 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, "
      "%10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19}, %20, %21;"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3]), "+r"(d[4]), "+r"(d[5]), "+r"(d[6]),
        "+r"(d[7]), "+r"(d[8]), "+r"(d[9]), "+r"(d[10]), "+r"(d[11]), "+r"(d[12]), "+r"(d[13]),
        "+r"(d[14]), "+r"(d[15])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kAdd));
}

// Same for f8e4m3, both in shared memory, rows of 128 elements: d += a [64, 32] . b [kN, 32]^T.
inline __device__ void multiply_64_f8(float (&d)[8], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n16k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, "
      "%9, 1, 1, 1;"
      : NEREID_D4(d, 0), NEREID_D4(d, 4)
      : "l"(a), "l"(b));
}
inline __device__ void multiply_64_f8(float (&d)[16], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n32k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, %12, %13, %14, %15}, %16, %17, 1, 1, 1;"
      : NEREID_D16(d, 0)
      : "l"(a), "l"(b));
}
inline __device__ void multiply_64_f8(float (&d)[32], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
      "%27, %28, %29, %30, %31}, %32, %33, 1, 1, 1;"
      : NEREID_D16(d, 0), NEREID_D16(d, 16)
      : "l"(a), "l"(b));
}
inline __device__ void multiply_64_f8(float (&d)[64], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
      "%27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, "
      "%45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, "
      "%63}, %64, %65, 1, 1, 1;"
      : NEREID_D16(d, 0), NEREID_D16(d, 16), NEREID_D16(d, 32), NEREID_D16(d, 48)
      : "l"(a), "l"(b));
}

// Same with d in rows of four: register 4 i + r is d[i][r].
#define NEREID_R(d, i) "+f"(d[i][0]), "+f"(d[i][1]), "+f"(d[i][2]), "+f"(d[i][3])
#define NEREID_R8(d, i)                                                                           \
  NEREID_R(d, i), NEREID_R(d, i + 1), NEREID_R(d, i + 2), NEREID_R(d, i + 3), NEREID_R(d, i + 4), \
      NEREID_R(d, i + 5), NEREID_R(d, i + 6), NEREID_R(d, i + 7)
// Without kAdd: d = the product.
template <bool kAdd>
inline __device__ void multiply_64(float (&d)[16][4], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
      "%27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, "
      "%45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, "
      "%63}, %64, %65, %66, 1, 1, 0, 0;"
      : NEREID_R8(d, 0), NEREID_R8(d, 8)
      : "l"(a), "l"(b), "n"(kAdd));
}
template <bool kAdd>
inline __device__ void multiply_64(float (&d)[8][4], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
      "%27, %28, %29, %30, %31}, %32, %33, %34, 1, 1, 0, 0;"
      : NEREID_R8(d, 0)
      : "l"(a), "l"(b), "n"(kAdd));
}
// a: register pairs of four rows as in multiply(); b: swizzled_columns().
inline __device__ void multiply_64(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
      "%27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
      : NEREID_R8(d, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
inline __device__ void multiply_64(float (&d)[16][4], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, "
      "%9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, "
      "%27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, "
      "%45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, "
      "%63}, {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
      : NEREID_R8(d, 0), NEREID_R8(d, 8)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
#undef NEREID_R8
#undef NEREID_R
#undef NEREID_D16
#undef NEREID_D4

#endif  // NEREID_HOPPER

}  // namespace nereid::kernels::cuda
