// Elementwise activations and gated units.
#pragma once

#include "kernels/api/ops.h"
#include "kernels/cuda/device.cuh"

namespace nereid::kernels::cuda {

// 1 / (1 + exp(-x)) by the fast instructions; their errors are far below bf16 rounding. expf() and
// an exactly rounded division would take longer than the memory traffic.
inline __device__ float sigmoid(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(1.0f + power_of_2(-kLog2E * x)));
  return result;
}

template <Activation kActivation>
__device__ float activate(float x) {
  if constexpr (kActivation == Activation::kSilu) return x * sigmoid(x);
  if constexpr (kActivation == Activation::kGeluTanh)
    return 0.5f * x * (1.0f + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x)));
  if constexpr (kActivation == Activation::kRelu) return fmaxf(x, 0.0f);
  if constexpr (kActivation == Activation::kRelu2) return fmaxf(x, 0.0f) * fmaxf(x, 0.0f);
  if constexpr (kActivation == Activation::kNone) return x;
  if constexpr (kActivation == Activation::kGeluSigmoid) return x * sigmoid(1.702f * x);
  return 0.5f * x * erfcf(-x * 0.7071067811865476f);
}

// Run-time dispatch.
inline __device__ float activate(Activation activation, float x) {
  switch (activation) {
    case Activation::kSilu:
      return activate<Activation::kSilu>(x);
    case Activation::kGeluTanh:
      return activate<Activation::kGeluTanh>(x);
    case Activation::kGelu:
      return activate<Activation::kGelu>(x);
    case Activation::kRelu:
      return activate<Activation::kRelu>(x);
    case Activation::kRelu2:
      return activate<Activation::kRelu2>(x);
    case Activation::kGeluSigmoid:
      return activate<Activation::kGeluSigmoid>(x);
    default:
      return x;
  }
}

// act(gate) * up with the limit and offset of GluOf (ops.h).
template <class F>
__device__ float gated_unit(F act, float gate, float up, float limit, float up_offset) {
  if (limit > 0.0f) {
    gate = fminf(gate, limit);
    up = fminf(fmaxf(up, -limit), limit);
  }
  return act(gate) * (up + up_offset);
}

}  // namespace nereid::kernels::cuda
