// Norm, rope, glu and add, row by row.
#include "kernels/cpu/simd.h"
#include "kernels/cpu/simd_raw.h"

namespace nereid::kernels::cpu::NEREID_SIMD {
namespace {

enum Activation { kSilu, kGeluTanh, kGelu };  // the order of ops.h

// Sum of squares after adding; lanes are summed apart and joined at the end.
float add_and_square(float* x, const float* y, int64_t count) {
  F squares = set1(0);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    F value = load(x + i);
    if (y) store(x + i, value = add(value, load(y + i)));
    squares = fma(value, value, squares);
  }
  if (const int64_t rest = count - i; rest > 0) {
    F value = load_part(x + i, rest);
    if (y) store_part(x + i, value = add(value, load_part(y + i, rest)), rest);
    squares = fma(value, value, squares);
  }
  return sum(squares);
}

F sigmoid(F x) { return div(set1(1), add(set1(1), exp(sub(set1(0), x)))); }

// 0.5 (1 + tanh(t)) = sigmoid(2 t).
F gelu_tanh(F x) {
  const F cube = mul(mul(x, x), x);
  const F t = mul(set1(0.797884561f), fma(set1(0.044715f), cube, x));
  return mul(x, sigmoid(add(t, t)));
}

// x Phi(x), Phi by erfc of |x| / sqrt(2): Abramowitz and Stegun 7.1.26, absolute error 1.5e-7.
F gelu(F x) {
  const F magnitude = vmax(x, sub(set1(0), x));
  const F z = mul(magnitude, set1(0.707106781f));
  const F t = div(set1(1), fma(set1(0.3275911f), z, set1(1)));
  F p = fma(set1(1.061405429f), t, set1(-1.453152027f));
  p = fma(p, t, set1(1.421413741f));
  p = fma(p, t, set1(-0.284496736f));
  p = fma(p, t, set1(0.254829592f));
  const F tail = mul(mul(set1(0.5f), mul(p, t)), exp(sub(set1(0), mul(z, z))));
  return mul(x, if_less(x, set1(0), tail, sub(set1(1), tail)));
}

template <F (*kActivate)(F)>
void glu_row(const float* x, int64_t width, uint16_t* out) {
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes)
    store_bf16(out + i, mul(kActivate(load(x + i)), load(x + width + i)));
  if (const int64_t rest = width - i; rest > 0)
    store_bf16_part(out + i, mul(kActivate(load_part(x + i, rest)), load_part(x + width + i, rest)),
                    rest);
}

void put(float* p, F x, int64_t n) { n == kLanes ? store(p, x) : store_part(p, x, n); }
void put(uint16_t* p, F x, int64_t n) { n == kLanes ? store_bf16(p, x) : store_bf16_part(p, x, n); }
F get(const float* p, int64_t n) { return n == kLanes ? load(p) : load_part(p, n); }

template <class Out>
void rotate_to(const float* x, const float* angles, int64_t head_dim, Out* out) {
  const int64_t half = head_dim / 2;
  for (int64_t i = 0; i < half; i += kLanes) {
    const int64_t n = min_of(half - i, kLanes);
    const F low = get(x + i, n), high = get(x + half + i, n);
    const F cosine = get(angles + i, n), sine = get(angles + half + i, n);
    put(out + i, sub(mul(low, cosine), mul(high, sine)), n);
    put(out + half + i, add(mul(high, cosine), mul(low, sine)), n);
  }
}

F silu(F x) { return mul(x, sigmoid(x)); }

}  // namespace

void norm(const NormRaw& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    float* x = a.residual + row * a.residual_stride;
    const float* y = a.add ? a.add + row * a.add_stride : nullptr;
    const float mean = add_and_square(x, y, a.hidden) / static_cast<float>(a.hidden);
    const F scale = set1(1 / __builtin_sqrtf(mean + a.eps));
    uint16_t* out_bf16 = static_cast<uint16_t*>(a.out) + row * a.out_stride;
    float* out_f32 = static_cast<float*>(a.out) + row * a.out_stride;
    for (int64_t i = 0; i < a.hidden; i += kLanes) {
      const int64_t rest = a.hidden - i;
      const bool full = rest >= kLanes;
      const F weight = full ? load_bf16(a.weight + i) : load_bf16_part(a.weight + i, rest);
      const F value = mul(mul(full ? load(x + i) : load_part(x + i, rest), scale), weight);
      if (a.out_bf16)
        full ? store_bf16(out_bf16 + i, value) : store_bf16_part(out_bf16 + i, value, rest);
      else
        full ? store(out_f32 + i, value) : store_part(out_f32 + i, value, rest);
    }
  }
}

void rotate(const float* x, const float* angles, int64_t head_dim, float* out) {
  rotate_to(x, angles, head_dim, out);
}

void rotate_bf16(const float* x, const float* angles, int64_t head_dim, uint16_t* out) {
  rotate_to(x, angles, head_dim, out);
}

void rope(const RopeRaw& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const float* angles = a.table + a.positions[row] * a.head_dim;
    for (int64_t head = 0; head < a.heads; ++head) {
      float* x = a.x + row * a.stride + head * a.head_dim;
      rotate(x, angles, a.head_dim, x);
    }
  }
}

void glu(const GluRaw& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const float* x = a.x + row * a.x_stride;
    uint16_t* out = a.out + row * a.out_stride;
    if (a.activation == kSilu) glu_row<silu>(x, a.width, out);
    if (a.activation == kGeluTanh) glu_row<gelu_tanh>(x, a.width, out);
    if (a.activation == kGelu) glu_row<gelu>(x, a.width, out);
  }
}

void add(const AddRaw& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    float* x = a.x + row * a.x_stride;
    const float* y = a.y + row * a.y_stride;
    int64_t i = 0;
    for (; i + kLanes <= a.width; i += kLanes) store(x + i, add(load(x + i), load(y + i)));
    for (; i < a.width; ++i) x[i] += y[i];
  }
}

}  // namespace nereid::kernels::cpu::NEREID_SIMD
