#include "speech/audio/vorbis.h"

#include <vorbis/vorbisfile.h>

#include <algorithm>
#include <cstring>

namespace nereid::speech {
namespace {

// Damaged packets in a row before a file is given up.
constexpr int kMostDamaged = 1000;

size_t read_bytes(void* out, size_t size, size_t count, void* rest) {
  auto& bytes = *static_cast<std::string_view*>(rest);
  const size_t got = size == 0 ? 0 : std::min(bytes.size() / size, count);
  if (got > 0) std::memcpy(out, bytes.data(), got * size);
  bytes.remove_prefix(got * size);
  return got;
}

}  // namespace

struct VorbisReader::State {
  std::string_view rest;  // of the file
  OggVorbis_File file = {};
  bool is_open = false;

  ~State() {
    if (is_open) ov_clear(&file);
  }
};

VorbisReader::VorbisReader() : state_(std::make_unique<State>()) {}
VorbisReader::VorbisReader(VorbisReader&&) noexcept = default;
VorbisReader::~VorbisReader() = default;

StatusOr<VorbisReader> VorbisReader::open(std::string_view file) {
  VorbisReader out;
  out.state_->rest = file;
  // Without seeking: it is read once, from the begin to the end.
  const ov_callbacks callbacks = {read_bytes, nullptr, nullptr, nullptr};
  if (ov_open_callbacks(&out.state_->rest, &out.state_->file, nullptr, 0, callbacks) != 0)
    return invalid_argument("the file's Vorbis headers are damaged or cut off");
  out.state_->is_open = true;
  const vorbis_info* const info = ov_info(&out.state_->file, -1);
  if (info == nullptr) return invalid_argument("the file has no Vorbis stream");
  out.rate_ = static_cast<int>(info->rate);
  out.channels_ = info->channels;
  return out;
}

StatusOr<size_t> VorbisReader::read(std::span<float> out) {
  const auto channels = static_cast<size_t>(channels_);
  const auto most = static_cast<int>(std::min<size_t>(out.size() / channels, 1 << 20));
  for (int damaged = 0; damaged < kMostDamaged; ++damaged) {
    float** planes = nullptr;
    const long got = ov_read_float(&state_->file, &planes, most, nullptr);
    if (got == 0) return 0;
    if (got < 0) continue;
    const vorbis_info* const info = ov_info(&state_->file, -1);
    if (info == nullptr || info->rate != rate_ || info->channels != channels_)
      return invalid_argument(
          "the file goes on with another rate or number of channels than {} Hz "
          "and {}",
          rate_, channels_);
    for (size_t i = 0; i < static_cast<size_t>(got); ++i)
      for (size_t c = 0; c < channels; ++c) out[i * channels + c] = planes[c][i];
    return static_cast<size_t>(got);
  }
  return invalid_argument("the file is damaged: no packet of Vorbis in {} is whole", kMostDamaged);
}

}  // namespace nereid::speech
