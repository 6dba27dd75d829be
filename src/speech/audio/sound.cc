// Decoding by libsndfile from memory; see sound.h.
#include "speech/audio/sound.h"

#include <sndfile.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "speech/audio/header.h"
#include "speech/audio/resampler.h"

namespace nereid::speech {
namespace {

// The file as libsndfile reads it.
struct MemoryFile {
  std::string_view bytes;
  sf_count_t at = 0;

  static MemoryFile& of(void* self) { return *static_cast<MemoryFile*>(self); }
  static sf_count_t length(void* self) { return std::ssize(of(self).bytes); }
  static sf_count_t tell(void* self) { return of(self).at; }
  static sf_count_t seek(sf_count_t offset, int whence, void* self) {
    MemoryFile& file = of(self);
    const sf_count_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? file.at : length(self);
    sf_count_t target = 0;
    if (__builtin_add_overflow(base, offset, &target)) return -1;
    file.at = std::clamp<sf_count_t>(target, 0, length(self));
    return file.at;
  }
  static sf_count_t read(void* out, sf_count_t count, void* self) {
    MemoryFile& file = of(self);
    const sf_count_t got = std::clamp<sf_count_t>(count, 0, length(self) - file.at);
    if (got > 0) std::memcpy(out, file.bytes.data() + file.at, static_cast<size_t>(got));
    file.at += got;
    return got;
  }
  static sf_count_t write(const void*, sf_count_t, void*) { return 0; }
};

struct CloseFile {
  void operator()(SNDFILE* file) const { sf_close(file); }
};
using SoundFile = std::unique_ptr<SNDFILE, CloseFile>;

bool is_allowed(Container container, int format) {
  const int major = format & SF_FORMAT_TYPEMASK, encoding = format & SF_FORMAT_SUBMASK;
  const auto is_one_of = [encoding](std::initializer_list<int> list) {
    return std::ranges::find(list, encoding) != list.end();
  };
  switch (container) {
    case Container::kWav:
      return (major == SF_FORMAT_WAV || major == SF_FORMAT_WAVEX) &&
             is_one_of({SF_FORMAT_PCM_U8, SF_FORMAT_PCM_16, SF_FORMAT_PCM_24, SF_FORMAT_PCM_32,
                        SF_FORMAT_FLOAT, SF_FORMAT_DOUBLE, SF_FORMAT_ULAW, SF_FORMAT_ALAW});
    case Container::kFlac:
      return major == SF_FORMAT_FLAC;
    case Container::kOgg:
      return major == SF_FORMAT_OGG && is_one_of({SF_FORMAT_VORBIS, SF_FORMAT_OPUS});
    case Container::kMp3:
      return major == SF_FORMAT_MPEG;
  }
  return false;
}

// The samples of one file on their way to `out`.
class Decoding {
 public:
  Decoding(SNDFILE* file, const SF_INFO& info, const DecodeOptions& options, Resampler resampler)
      : file_(file),
        channels_(static_cast<size_t>(info.channels)),
        rate_(info.samplerate),
        options_(options),
        resampler_(std::move(resampler)),
        block_(kBlockFrames * channels_) {}

  StatusOr<Sound> run() {
    for (;;) {
      if (options_.is_unwanted && options_.is_unwanted()) return cancelled("nobody waits for it");
      const sf_count_t got = sf_readf_float(file_, block_.data(), kBlockFrames);
      if (sf_error(file_) != SF_ERR_NO_ERROR)
        return invalid_argument("the file is damaged at {:.1f} s: {}", seconds(),
                                sf_strerror(file_));
      if (got <= 0) break;
      RETURN_IF_ERROR(take(static_cast<size_t>(got)));
    }
    RETURN_IF_ERROR(make_room(resampler_.most_added(0)));
    RETURN_IF_ERROR(resampler_.finish(sound_.samples));
    if (sound_.samples.empty()) return invalid_argument("the file has no samples");
    for (float& sample : sound_.samples) sample = std::clamp(sample, -1.0f, 1.0f);
    return std::move(sound_);
  }

 private:
  static constexpr size_t kBlockFrames = 16384;

  double seconds() const { return static_cast<double>(num_frames_) / rate_; }

  Status take(size_t count) {
    if (static_cast<double>(num_frames_ + count) / rate_ > options_.limits.max_seconds)
      return invalid_argument("the sound is longer than the {:.0f} s that are allowed",
                              options_.limits.max_seconds);
    mono_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      float sum = 0;
      for (size_t c = 0; c < channels_; ++c) {
        const float sample = block_[i * channels_ + c];
        if (!std::isfinite(sample))
          return invalid_argument("sample {} of channel {} is not a finite number", num_frames_ + i,
                                  c);
        sum += std::clamp(sample, -1.0f, 1.0f);
      }
      mono_[i] = sum / static_cast<float>(channels_);
    }
    num_frames_ += count;
    RETURN_IF_ERROR(make_room(resampler_.most_added(count)));
    return resampler_.push(mono_, sound_.samples);
  }

  // Room for `count` more samples. The samples that are there and their copy in the larger room
  // count at once.
  Status make_room(size_t count) {
    constexpr size_t kFirst = size_t{1} << 18;
    std::vector<float>& samples = sound_.samples;
    const size_t needed = samples.size() + count;
    if (needed <= samples.capacity()) return ok();
    const size_t larger = std::max({needed, samples.capacity() * 3 / 2, kFirst});
    if (options_.hold)
      RETURN_IF_ERROR(options_.hold((samples.capacity() + larger) * sizeof(float)));
    samples.reserve(larger);
    return options_.hold ? options_.hold(larger * sizeof(float)) : ok();
  }

  SNDFILE* const file_;
  const size_t channels_;
  const int rate_;
  const DecodeOptions& options_;
  Resampler resampler_;
  std::vector<float> block_;  // [kBlockFrames, channels]
  std::vector<float> mono_;
  size_t num_frames_ = 0;
  Sound sound_;
};

}  // namespace

StatusOr<Sound> decode_sound(std::string_view file, const DecodeOptions& options) {
  ASSIGN_OR_RETURN(const Container container, container_of(file));
  RETURN_IF_ERROR(check_header(file, container, options.limits));
  MemoryFile memory{file};
  SF_VIRTUAL_IO io = {MemoryFile::length, MemoryFile::seek, MemoryFile::read, MemoryFile::write,
                      MemoryFile::tell};
  SF_INFO info = {};
  const SoundFile sound(sf_open_virtual(&io, SFM_READ, &info, &memory));
  if (sound == nullptr)
    return invalid_argument(
        "the file cannot be read: it is damaged, or of a kind of its format "
        "that is not known");
  if (!is_allowed(container, info.format))
    return invalid_argument(
        "the file's encoding is not supported; of WAV allowed are PCM, float, mu-law and A-law, of "
        "Ogg Vorbis and Opus");
  RETURN_IF_ERROR(check_rate(info.samplerate, options.limits));
  RETURN_IF_ERROR(check_channels(info.channels, options.limits));
  ASSIGN_OR_RETURN(Resampler resampler, Resampler::create(info.samplerate));
  return Decoding(sound.get(), info, options, std::move(resampler)).run();
}

}  // namespace nereid::speech
