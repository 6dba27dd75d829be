// A mixed-radix transform for 400 real samples; see spectrum.h.
#include "speech/features/spectrum.h"

#include <cmath>
#include <numbers>

namespace nereid::speech {
namespace {

// Real samples 2 i and 2 i + 1 are the real and the imaginary part of number i.
constexpr int kSize = kFrameSamples / 2;

// Inlined into functions for several instruction sets.
#define NEREID_INLINE [[gnu::always_inline]] inline

struct Complex {
  Lanes re, im;
};
using Numbers = std::array<Complex, kSize>;

struct Turn {
  double re, im;
};

// exp(-2 pi i k / kFrameSamples)
const std::array<Turn, kFrameSamples>& turns() {
  static const auto table = [] {
    std::array<Turn, kFrameSamples> out;
    for (int k = 0; k < kFrameSamples; ++k) {
      const double angle = -2 * std::numbers::pi * k / kFrameSamples;
      out[static_cast<size_t>(k)] = {std::cos(angle), std::sin(angle)};
    }
    return out;
  }();
  return table;
}

NEREID_INLINE Complex add(const Complex& a, const Complex& b) { return {a.re + b.re, a.im + b.im}; }
NEREID_INLINE Complex sub(const Complex& a, const Complex& b) { return {a.re - b.re, a.im - b.im}; }
NEREID_INLINE Complex times(const Complex& a, const Turn& t) {
  return {a.re * t.re - a.im * t.im, a.re * t.im + a.im * t.re};
}

template <int kRadix>
NEREID_INLINE void transform(std::array<Complex, kRadix>& x);

template <>
NEREID_INLINE void transform<2>(std::array<Complex, 2>& x) {
  const Complex a = x[0];
  x[0] = add(a, x[1]);
  x[1] = sub(a, x[1]);
}

template <>
NEREID_INLINE void transform<4>(std::array<Complex, 4>& x) {
  const Complex a = add(x[0], x[2]), b = sub(x[0], x[2]);
  const Complex c = add(x[1], x[3]), d = sub(x[1], x[3]);
  x[0] = add(a, c);
  x[1] = {b.re + d.im, b.im - d.re};
  x[2] = sub(a, c);
  x[3] = {b.re - d.im, b.im + d.re};
}

template <>
NEREID_INLINE void transform<5>(std::array<Complex, 5>& x) {
  constexpr double kCos1 = 0.30901699437494742410, kCos2 = -0.80901699437494742410;
  constexpr double kSin1 = 0.95105651629515357212, kSin2 = 0.58778525229247312917;
  const Complex s1 = add(x[1], x[4]), d1 = sub(x[1], x[4]);
  const Complex s2 = add(x[2], x[3]), d2 = sub(x[2], x[3]);
  const Complex m1 = {x[0].re + s1.re * kCos1 + s2.re * kCos2,
                      x[0].im + s1.im * kCos1 + s2.im * kCos2};
  const Complex m2 = {x[0].re + s1.re * kCos2 + s2.re * kCos1,
                      x[0].im + s1.im * kCos2 + s2.im * kCos1};
  // -i times the odd part.
  const Complex n1 = {d1.im * kSin1 + d2.im * kSin2, -(d1.re * kSin1 + d2.re * kSin2)};
  const Complex n2 = {d1.im * kSin2 - d2.im * kSin1, -(d1.re * kSin2 - d2.re * kSin1)};
  x[0] = add(x[0], add(s1, s2));
  x[1] = add(m1, n1);
  x[4] = sub(m1, n1);
  x[2] = add(m2, n2);
  x[3] = sub(m2, n2);
}

// One pass of Stockham's transform: kStride transforms of length kLength become kStride kRadix of
// kLength / kRadix.
template <int kRadix, int kLength, int kStride>
NEREID_INLINE void pass(const Numbers& in, Numbers& out) {
  constexpr int kRest = kLength / kRadix;
  const auto& table = turns();
  for (int p = 0; p < kRest; ++p) {
    std::array<Turn, kRadix> turn;
    for (int j = 1; j < kRadix; ++j)
      turn[static_cast<size_t>(j)] =
          table[static_cast<size_t>(j * p * (kFrameSamples / kLength) % kFrameSamples)];
    for (int q = 0; q < kStride; ++q) {
      std::array<Complex, kRadix> x;
      for (int j = 0; j < kRadix; ++j)
        x[static_cast<size_t>(j)] = in[static_cast<size_t>(q + kStride * (p + kRest * j))];
      transform<kRadix>(x);
      out[static_cast<size_t>(q + kStride * kRadix * p)] = x[0];
      for (int j = 1; j < kRadix; ++j)
        out[static_cast<size_t>(q + kStride * (kRadix * p + j))] =
            times(x[static_cast<size_t>(j)], turn[static_cast<size_t>(j)]);
    }
  }
}

NEREID_INLINE void compute_energies(const std::array<Lanes, kFrameSamples>& frames,
                                    std::array<Lanes, kBins>& out) {
  Numbers a, b;
  for (size_t i = 0; i < kSize; ++i) a[i] = {frames[2 * i], frames[2 * i + 1]};
  pass<5, 200, 1>(a, b);
  pass<5, 40, 5>(b, a);
  pass<4, 8, 25>(a, b);
  pass<2, 2, 100>(b, a);
  // The spectra of even and odd samples, from that of the complex numbers; both are real, so that
  // the upper half is the conjugate of the lower one.
  const auto& table = turns();
  const Lanes first = a[0].re + a[0].im, last = a[0].re - a[0].im;
  out[0] = first * first;
  out[kSize] = last * last;
  for (size_t k = 1; k < kSize; ++k) {
    const Complex &x = a[k], &y = a[kSize - k];
    const Complex even = {(x.re + y.re) * 0.5, (x.im - y.im) * 0.5};
    const Complex odd = {(x.im + y.im) * 0.5, (y.re - x.re) * 0.5};
    const Complex bin = add(even, times(odd, table[k]));
    out[k] = bin.re * bin.re + bin.im * bin.im;
  }
}

NEREID_INLINE void compute_logarithms(const Lanes& values, Lanes& out) {
  using Words = uint64_t __attribute__((vector_size(sizeof(Lanes))));
  constexpr uint64_t kOne = 0x3ff0000000000000, kRootOfHalf = 0x3fe6a09e667f3bcd;
  constexpr uint64_t kMagic = 0x4330000000000000;  // 2^52: or-ed bits are added to it
  const Words bits = reinterpret_cast<Words>(values);
  // values = m 2^e with m in [sqrt(1/2), sqrt(2)).
  const Words biased = (bits + (kOne - kRootOfHalf)) >> 52;
  const Words exponent_bits = biased | kMagic, mantissa_bits = bits - (biased << 52) + kOne;
  const Lanes e = reinterpret_cast<Lanes>(exponent_bits) - (4503599627370496.0 + 1023.0);
  const auto m = reinterpret_cast<Lanes>(mantissa_bits);
  // ln m = 2 artanh s
  const Lanes s = (m - 1.0) / (m + 1.0), t = s * s;
  const Lanes series =
      1.0 + t * (1.0 / 3 +
                 t * (1.0 / 5 + t * (1.0 / 7 + t * (1.0 / 9 + t * (1.0 / 11 + t * (1.0 / 13))))));
  out = e * (std::numbers::ln2 * std::numbers::log10e) + s * series * (2 * std::numbers::log10e);
}

// compute_energies() with AVX2 and without FMA gives the bits of the baseline build.
#ifdef __x86_64__
[[gnu::target("avx2")]] void energies_by_avx2(const std::array<Lanes, kFrameSamples>& frames,
                                              std::array<Lanes, kBins>& out) {
  compute_energies(frames, out);
}
[[gnu::target("avx2")]] void logarithms_by_avx2(const Lanes& values, Lanes& out) {
  compute_logarithms(values, out);
}
bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
}
#endif

}  // namespace

void energies_of(const std::array<Lanes, kFrameSamples>& frames, std::array<Lanes, kBins>& out) {
#ifdef __x86_64__
  if (has_avx2()) return energies_by_avx2(frames, out);
#endif
  compute_energies(frames, out);
}

void logarithms_of(const Lanes& values, Lanes& out) {
#ifdef __x86_64__
  if (has_avx2()) return logarithms_by_avx2(values, out);
#endif
  compute_logarithms(values, out);
}

}  // namespace nereid::speech
