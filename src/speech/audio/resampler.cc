#include "speech/audio/resampler.h"

#include <soxr.h>

#include <cstdint>

#include "speech/audio/sound.h"

namespace nereid::speech {

void Resampler::Delete::operator()(soxr* resampler) const { soxr_delete(resampler); }

StatusOr<Resampler> Resampler::create(int rate) {
  Resampler out(rate);
  if (rate == kSampleRate) return out;
  // 20 bits: an error of -130 dB and less, below that of 16-bit samples.
  const soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
  const soxr_io_spec_t io = soxr_io_spec(SOXR_FLOAT32_I, SOXR_FLOAT32_I);
  const soxr_runtime_spec_t runtime = soxr_runtime_spec(1);
  soxr_error_t error = nullptr;
  out.soxr_.reset(soxr_create(rate, kSampleRate, 1, &error, &io, &quality, &runtime));
  if (error != nullptr || out.soxr_ == nullptr)
    return internal_error("resampling from {} Hz: {}", rate, soxr_strerror(error));
  return out;
}

size_t Resampler::most_added(size_t count) const {
  // The samples that a filter delays come with the block behind.
  constexpr size_t kDelayed = size_t{1} << 17;
  const auto scaled = static_cast<size_t>(static_cast<uint64_t>(count) * kSampleRate / rate_);
  return soxr_ == nullptr ? count : scaled + kDelayed;
}

Status Resampler::run(const float* in, size_t count, Samples& out) {
  constexpr size_t kBlock = 8192;
  for (size_t done = 0;;) {
    const size_t before = out.size();
    out.resize(before + kBlock);
    size_t used = 0, made = 0;
    const soxr_error_t error =
        soxr_process(soxr_.get(), in == nullptr ? nullptr : in + done, count - done, &used,
                     out.data() + before, kBlock, &made);
    out.resize(before + made);
    if (error != nullptr) return internal_error("resampling from {} Hz: {}", rate_, error);
    done += used;
    if (made < kBlock && done == count) return ok();
    if (made == 0 && used == 0) return internal_error("resampling from {} Hz stands still", rate_);
  }
}

Status Resampler::push(std::span<const float> in, Samples& out) {
  if (soxr_ != nullptr) return run(in.data(), in.size(), out);
  out.insert(out.end(), in.begin(), in.end());
  return ok();
}

Status Resampler::finish(Samples& out) { return soxr_ == nullptr ? ok() : run(nullptr, 0, out); }

}  // namespace nereid::speech
