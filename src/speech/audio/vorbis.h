// Ogg Vorbis by libvorbisfile; libsndfile leaks memory where a header is damaged. Internal.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "base/status.h"

namespace nereid::speech {

class VorbisReader {
 public:
  // InvalidArgument: the headers are damaged.
  static StatusOr<VorbisReader> open(std::string_view file);
  VorbisReader(VorbisReader&&) noexcept;
  VorbisReader& operator=(VorbisReader&&) = delete;
  ~VorbisReader();

  int rate() const { return rate_; }  // Hz
  int channels() const { return channels_; }

  // Writes whole frames of interleaved samples: their number, 0 at the end of the file. Damaged
  // packets are left out. InvalidArgument: another rate or number of channels later on.
  StatusOr<size_t> read(std::span<float> out);

 private:
  struct State;
  VorbisReader();

  std::unique_ptr<State> state_;
  int rate_ = 0, channels_ = 0;
};

}  // namespace nereid::speech
