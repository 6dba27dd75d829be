// Instructions of Hopper that products of hundreds of rows need beside those of ptx.cuh: boxes for
// two blocks at once, barriers of the other block, products of 160 to 256 columns.
#pragma once

#include "kernels/cuda/ptx.cuh"

namespace nereid::kernels::cuda {

#if defined(NEREID_HOPPER)

// copy_box() to the same place of all blocks in `blocks`, a bit for each of the cluster, each with
// its own barrier.
inline __device__ void copy_box_to(void* to, const CUtensorMap* map, int column, int row,
                                   uint64_t* barrier, uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(shared_address(to)),
      "l"(map), "r"(column), "r"(row), "r"(shared_address(barrier)), "h"(blocks)
      : "memory");
}

// Arrives at a barrier of block `rank` of the cluster, which learns nothing of what this thread
// wrote.
inline __device__ void barrier_arrive_at(uint64_t* barrier, int rank) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [there];\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
}

// All threads of the cluster's blocks are here; what they wrote need not be known.
inline __device__ void cluster_is_here() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}

// Four matrices of eight rows of eight 16-bit numbers, two neighbours in a lane, transposed to
// shared memory; lane i gives the address of row i % 8 of matrix i / 8.
inline __device__ void store_transposed(void* to, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   shared_address(to)),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}

// Counters in global memory: adds one behind this thread's earlier writes and those it knows of;
// the value, with what was written before it was reached.
inline __device__ int count(int32_t* counter) {
  int before;
  asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(counter)
               : "memory");
  return before;
}
inline __device__ int counted(const int32_t* counter) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}

#define NEREID_D4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define NEREID_D16(d, i) \
  NEREID_D4(d, i), NEREID_D4(d, i + 4), NEREID_D4(d, i + 8), NEREID_D4(d, i + 12)
inline __device__ void multiply_64(float (&d)[80], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n160k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, "
      "%26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, "
      "%43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "
      "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, "
      "%77, %78, %79}, %80, %81, 1, 1, 1, 0, 0;"
      : NEREID_D16(d, 0), NEREID_D16(d, 16), NEREID_D16(d, 32), NEREID_D16(d, 48), NEREID_D16(d, 64)
      : "l"(a), "l"(b));
}
inline __device__ void multiply_64_f8(float (&d)[80], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n160k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, "
      "%26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, "
      "%43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "
      "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, "
      "%77, %78, %79}, %80, %81, 1, 1, 1;"
      : NEREID_D16(d, 0), NEREID_D16(d, 16), NEREID_D16(d, 32), NEREID_D16(d, 48), NEREID_D16(d, 64)
      : "l"(a), "l"(b));
}
inline __device__ void multiply_64(float (&d)[96], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n192k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, "
      "%26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, "
      "%43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "
      "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, "
      "%77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, "
      "%94, %95}, %96, %97, 1, 1, 1, 0, 0;"
      : NEREID_D16(d, 0), NEREID_D16(d, 16), NEREID_D16(d, 32), NEREID_D16(d, 48),
        NEREID_D16(d, 64), NEREID_D16(d, 80)
      : "l"(a), "l"(b));
}
inline __device__ void multiply_64_f8(float (&d)[96], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n192k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, "
      "%26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, "
      "%43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "
      "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, "
      "%77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, "
      "%94, %95}, %96, %97, 1, 1, 1;"
      : NEREID_D16(d, 0), NEREID_D16(d, 16), NEREID_D16(d, 32), NEREID_D16(d, 48),
        NEREID_D16(d, 64), NEREID_D16(d, 80)
      : "l"(a), "l"(b));
}
inline __device__ void multiply_64(float (&d)[112], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n224k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, "
      "%26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, "
      "%43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "
      "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, "
      "%77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, "
      "%94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, "
      "%109, %110, %111}, %112, %113, 1, 1, 1, 0, 0;"
      : NEREID_D16(d, 0), NEREID_D16(d, 16), NEREID_D16(d, 32), NEREID_D16(d, 48),
        NEREID_D16(d, 64), NEREID_D16(d, 80), NEREID_D16(d, 96)
      : "l"(a), "l"(b));
}
inline __device__ void multiply_64_f8(float (&d)[112], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n224k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, "
      "%26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, "
      "%43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "
      "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, "
      "%77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, "
      "%94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, "
      "%109, %110, %111}, %112, %113, 1, 1, 1;"
      : NEREID_D16(d, 0), NEREID_D16(d, 16), NEREID_D16(d, 32), NEREID_D16(d, 48),
        NEREID_D16(d, 64), NEREID_D16(d, 80), NEREID_D16(d, 96)
      : "l"(a), "l"(b));
}
inline __device__ void multiply_64(float (&d)[128], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, "
      "%26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, "
      "%43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "
      "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, "
      "%77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, "
      "%94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, "
      "%109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, "
      "%123, %124, %125, %126, %127}, %128, %129, 1, 1, 1, 0, 0;"
      : NEREID_D16(d, 0), NEREID_D16(d, 16), NEREID_D16(d, 32), NEREID_D16(d, 48),
        NEREID_D16(d, 64), NEREID_D16(d, 80), NEREID_D16(d, 96), NEREID_D16(d, 112)
      : "l"(a), "l"(b));
}
inline __device__ void multiply_64_f8(float (&d)[128], uint64_t a, uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e4m3 {%0, %1, %2, %3, %4, %5, %6, %7, "
      "%8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, "
      "%26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, "
      "%43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, "
      "%60, %61, %62, %63, %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, "
      "%77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, "
      "%94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, "
      "%109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, "
      "%123, %124, %125, %126, %127}, %128, %129, 1, 1, 1;"
      : NEREID_D16(d, 0), NEREID_D16(d, 16), NEREID_D16(d, 32), NEREID_D16(d, 48),
        NEREID_D16(d, 64), NEREID_D16(d, 80), NEREID_D16(d, 96), NEREID_D16(d, 112)
      : "l"(a), "l"(b));
}
#undef NEREID_D16
#undef NEREID_D4

#endif  // NEREID_HOPPER

}  // namespace nereid::kernels::cuda
