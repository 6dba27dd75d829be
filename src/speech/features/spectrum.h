// Energies of real spectra, several frames at once. Internal to speech/features.
#pragma once

#include <array>
#include <cstdint>

namespace nereid::speech {

inline constexpr int kFrameSamples = 400;
inline constexpr int kBins = kFrameSamples / 2 + 1;

// A lane for each frame; arithmetic is by lane.
inline constexpr int kLanes = 4;
using Lanes = double __attribute__((vector_size(kLanes * sizeof(double))));

// |DFT|^2 of kLanes frames. Doubles: a bin 80 dB below the loudest of its frame keeps six digits.
void energies_of(const std::array<Lanes, kFrameSamples>& frames, std::array<Lanes, kBins>& out);

// Base 10 logarithms of values in (0, inf), with an error below 1e-12.
void logarithms_of(const Lanes& values, Lanes& out);

}  // namespace nereid::speech
