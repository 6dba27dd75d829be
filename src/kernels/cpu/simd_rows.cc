// Norm, rope, activations, soft cap and add, row by row.
#include "kernels/cpu/simd.h"
#include "kernels/cpu/simd_raw.h"

namespace nereid::kernels::cpu::NEREID_SIMD {
namespace {

enum Activation {
  kSilu,
  kGeluTanh,
  kGelu,
  kRelu,
  kRelu2,
  kNone,
  kGeluSigmoid
};  // the order of ops.h

F get(const float* p, int64_t n) { return n == kLanes ? load(p) : load_part(p, n); }
F get(const uint16_t* p, int64_t n) { return n == kLanes ? load_bf16(p) : load_bf16_part(p, n); }
void put(float* p, F x, int64_t n) { n == kLanes ? store(p, x) : store_part(p, x, n); }
void put(uint16_t* p, F x, int64_t n) { n == kLanes ? store_bf16(p, x) : store_bf16_part(p, x, n); }

// f(i, n) for vectors of elements [i, i + n).
template <class Function>
void for_vectors(int64_t count, Function f) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) f(i, kLanes);
  if (i < count) f(i, count - i);
}

// Lanes are summed separately and joined at the end; missing ones are 0.
template <class X>
float sum_of(const X* x, int64_t count) {
  F total = set1(0);
  for_vectors(count, [&](int64_t i, int64_t n) { total = add(total, get(x + i, n)); });
  return sum(total);
}

template <class X>
float squares_of(const X* x, int64_t count) {
  F squares = set1(0);
  for_vectors(count, [&](int64_t i, int64_t n) {
    const F value = get(x + i, n);
    squares = fma(value, value, squares);
  });
  return sum(squares);
}

// Sum of squared distances to the mean; lanes past the end are excluded.
template <class X>
float squares_around(const X* x, int64_t count, float mean) {
  F squares = set1(0);
  for_vectors(count, [&](int64_t i, int64_t n) {
    F value = sub(get(x + i, n), set1(mean));
    if (n < kLanes) {
      float buffer[kLanes];
      store(buffer, value);
      value = load_part(buffer, n);
    }
    squares = fma(value, value, squares);
  });
  return sum(squares);
}

// x + y into out, which may be x.
void add_rows(const float* x, const float* y, int64_t count, float* out) {
  for_vectors(count,
              [&](int64_t i, int64_t n) { put(out + i, add(get(x + i, n), get(y + i, n)), n); });
}

}  // namespace

float quantize_bytes(const uint16_t* x, int64_t count, int8_t* out) {
  F most = set1(0), zeros = set1(0);
  for_vectors(count, [&](int64_t i, int64_t n) {
    const F value = get(x + i, n);
    most = vmax(vabs(value), most);
    zeros = fma(value, set1(0), zeros);  // NaN once a number is not finite
  });
  const float amax = largest(most);
  const bool finite = sum(zeros) == 0, is_zero = !finite || amax < kSmallestScaledRow;
  const F factor = set1(is_zero ? 0 : 127 / amax);
  for_vectors(count, [&](int64_t i, int64_t n) {
    const F value = is_zero ? factor : mul(get(x + i, n), factor);
    if (n == kLanes) return store_i8(out + i, value);
    int8_t part[kLanes];
    store_i8(part, value);
    for (int64_t j = 0; j < n; ++j) out[i + j] = part[j];
  });
  if (!finite) return __builtin_nanf("");
  return is_zero ? 0 : amax / 127;
}

namespace {

template <class X, class Out>
void norm_piece(const NormRaw& a, int64_t piece, const X* x, Out* out) {
  const int64_t first = piece % a.weight_pieces * a.width;  // index in the weight
  const float width = static_cast<float>(a.width);
  const float mean = a.centered ? sum_of(x, a.width) / width : 0;
  const float squares = a.centered ? squares_around(x, a.width, mean) : squares_of(x, a.width);
  const F scale = set1(1 / __builtin_sqrtf(squares / width + a.eps));
  const F center = set1(mean), offset = set1(a.weight_offset);
  for_vectors(a.width, [&](int64_t i, int64_t n) {
    F weight = get(a.weight + first + i, n);
    if (a.weight_offset != 0) weight = add(weight, offset);
    F value = get(x + i, n);
    if (a.centered) value = sub(value, center);
    value = mul(mul(value, scale), weight);
    if (a.bias) value = add(value, get(a.bias + first + i, n));
    put(out + i, value, n);
  });
}

template <class X, class Out>
void norm_rows(const NormRaw& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    const X* x = static_cast<const X*>(a.x) + row * a.x_stride;
    Out* out = static_cast<Out*>(a.out) + row * a.out_stride;
    if constexpr (sizeof(X) == sizeof(float)) {
      if (a.add) {
        float* const total = a.sum + row * a.sum_stride;
        add_rows(x, a.add + row * a.add_stride, a.width * a.pieces, total);
        x = total;
      }
    }
    for (int64_t piece = 0; piece < a.pieces; ++piece)
      norm_piece(a, piece, x + piece * a.width, out + piece * a.width);
  }
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

F silu(F x) { return mul(x, sigmoid(x)); }
F gelu_sigmoid(F x) { return mul(x, sigmoid(mul(set1(1.702f), x))); }
F relu(F x) { return vmax(x, set1(0)); }
F relu2(F x) { return mul(relu(x), relu(x)); }

// f(function) with the activation as a constant function.
template <class Function>
void with_activation(int activation, Function f) {
  if (activation == kSilu) f([](F x) { return silu(x); });
  if (activation == kGeluTanh) f([](F x) { return gelu_tanh(x); });
  if (activation == kGelu) f([](F x) { return gelu(x); });
  if (activation == kRelu) f([](F x) { return relu(x); });
  if (activation == kRelu2) f([](F x) { return relu2(x); });
  if (activation == kNone) f([](F x) { return x; });
  if (activation == kGeluSigmoid) f([](F x) { return gelu_sigmoid(x); });
}

}  // namespace

void norm(const NormRaw& a, int64_t begin, int64_t end) {
  if (a.x_bf16)
    a.out_bf16 ? norm_rows<uint16_t, uint16_t>(a, begin, end)
               : norm_rows<uint16_t, float>(a, begin, end);
  else
    a.out_bf16 ? norm_rows<float, uint16_t>(a, begin, end) : norm_rows<float, float>(a, begin, end);
}

void rotate(const float* x, const RotationRaw& rotation, int64_t position, int64_t head_dim,
            float* out) {
  const int64_t cols = rotation.cols, half = cols / 2;
  const float* const cosines = rotation.angles + position * cols;
  const float* const sines = cosines + half;
  if (rotation.interleaved) {
    for (int64_t i = 0; i < half; ++i) {
      const float low = x[2 * i], high = x[2 * i + 1];
      out[2 * i] = low * cosines[i] - high * sines[i];
      out[2 * i + 1] = high * cosines[i] + low * sines[i];
    }
  } else {
    for_vectors(half, [&](int64_t i, int64_t n) {
      const F low = get(x + i, n), high = get(x + half + i, n);
      const F cosine = get(cosines + i, n), sine = get(sines + i, n);
      put(out + i, sub(mul(low, cosine), mul(high, sine)), n);
      put(out + half + i, add(mul(high, cosine), mul(low, sine)), n);
    });
  }
  for (int64_t c = cols; c < head_dim && out != x; ++c) out[c] = x[c];
}

void rope(const RopeRaw& a, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row)
    for (int64_t head = 0; head < a.heads; ++head) {
      float* x = a.x + row * a.stride + head * a.head_dim;
      rotate(x, a.rotation, a.positions ? a.positions[row] : row, a.head_dim, x);
    }
}

void glu(const GluRaw& a, int64_t begin, int64_t end) {
  with_activation(a.activation, [&](auto act) {
    for (int64_t row = begin; row < end; ++row) {
      const float* gate = a.x + row * a.x_stride;
      const float* up = gate + a.width;
      uint16_t* out = a.out + row * a.out_stride;
      for_vectors(a.width, [&](int64_t i, int64_t n) {
        F g = get(gate + i, n), u = get(up + i, n);
        if (a.limit > 0) {
          g = vmin(set1(a.limit), g);
          u = vmin(set1(a.limit), vmax(set1(-a.limit), u));
        }
        if (a.up_offset != 0) u = add(u, set1(a.up_offset));
        put(out + i, mul(act(g), u), n);
      });
    }
  });
}

void activate(const ActivateRaw& a, int64_t begin, int64_t end) {
  with_activation(a.activation, [&](auto act) {
    for (int64_t row = begin; row < end; ++row) {
      const float* x = a.x + row * a.x_stride;
      const auto write = [&](auto* out) {
        for_vectors(a.width, [&](int64_t i, int64_t n) {
          put(out + row * a.out_stride + i, act(get(x + i, n)), n);
        });
      };
      if (a.out_bf16)
        write(static_cast<uint16_t*>(a.out));
      else
        write(static_cast<float*>(a.out));
    }
  });
}

void xielu(const XieluRaw& a, int64_t begin, int64_t end) {
  const F positive = set1(a.positive), negative = set1(a.negative), beta = set1(a.beta);
  for (int64_t row = begin; row < end; ++row) {
    const float* from = a.x + row * a.x_stride;
    uint16_t* out = a.out + row * a.out_stride;
    for_vectors(a.width, [&](int64_t i, int64_t n) {
      const F x = get(from + i, n), above = vmax(x, set1(0)), below = vmin(x, set1(0));
      const F curve = sub(sub(exp(below), set1(1)), below);
      put(out + i, fma(mul(positive, above), above, fma(negative, curve, mul(beta, x))), n);
    });
  }
}

// tanh(t) = 2 sigmoid(2 t) - 1.
void soft_cap(const SoftCapRaw& a, int64_t begin, int64_t end) {
  const F scale = set1(a.scale);
  const F cap = set1(a.cap), twice = set1(2 * a.scale / a.cap), doubled = set1(2 * a.cap);
  const F lowest = set1(-a.limit), highest = set1(a.limit);
  for (int64_t row = begin; row < end; ++row) {
    const float* x = a.x + row * a.x_stride;
    float* out = a.out + row * a.out_stride;
    for_vectors(a.width, [&](int64_t i, int64_t n) {
      const F value = get(x + i, n);
      F result = a.cap > 0 ? sub(mul(doubled, sigmoid(mul(value, twice))), cap) : mul(value, scale);
      if (a.limit > 0) result = vmin(highest, vmax(lowest, result));  // in this order NaN stays
      put(out + i, result, n);
    });
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
