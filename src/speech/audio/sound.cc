// Decoding from memory, by libsndfile but for MP3 and Vorbis; see sound.h.
#include "speech/audio/sound.h"

#include <sndfile.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include "speech/audio/header.h"
#include "speech/audio/mp3.h"
#include "speech/audio/resampler.h"
#include "speech/audio/vorbis.h"

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
    case Container::kOpus:
      return major == SF_FORMAT_OGG && encoding == SF_FORMAT_OPUS;
    case Container::kVorbis:
    case Container::kMp3:
      break;
  }
  return false;
}

// Writes whole frames of interleaved samples: their number, 0 at the end.
using ReadFrames = std::function<StatusOr<size_t>(std::span<float>)>;

// The samples of one file on their way to 16 kHz.
class Decoding {
 public:
  Decoding(ReadFrames read, int rate, int channels, const DecodeOptions& options,
           Resampler resampler)
      : read_(std::move(read)),
        channels_(static_cast<size_t>(channels)),
        rate_(rate),
        options_(options),
        resampler_(std::move(resampler)),
        block_(kBlockFrames * channels_) {}

  StatusOr<Sound> run() {
    for (;;) {
      if (options_.is_unwanted && options_.is_unwanted()) return cancelled("nobody waits for it");
      const auto got = read_(block_);
      if (!got.ok()) return invalid_argument("at {:.1f} s {}", seconds(), message(got.status()));
      if (*got == 0) break;
      RETURN_IF_ERROR(take(*got));
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
    Samples& samples = sound_.samples;
    const size_t needed = samples.size() + count;
    if (needed <= samples.capacity()) return ok();
    const size_t larger = std::max({needed, samples.capacity() * 3 / 2, kFirst});
    if (options_.hold)
      RETURN_IF_ERROR(options_.hold((samples.capacity() + larger) * sizeof(float)));
    samples.reserve(larger);
    return options_.hold ? options_.hold(larger * sizeof(float)) : ok();
  }

  const ReadFrames read_;
  const size_t channels_;
  const int rate_;
  const DecodeOptions& options_;
  Resampler resampler_;
  std::vector<float> block_;  // [kBlockFrames, channels]
  std::vector<float> mono_;
  size_t num_frames_ = 0;
  Sound sound_;
};

StatusOr<Sound> decode(ReadFrames read, int rate, int channels, const DecodeOptions& options) {
  RETURN_IF_ERROR(check_rate(rate, options.limits));
  RETURN_IF_ERROR(check_channels(channels, options.limits));
  ASSIGN_OR_RETURN(Resampler resampler, Resampler::create(rate));
  return Decoding(std::move(read), rate, channels, options, std::move(resampler)).run();
}

}  // namespace

StatusOr<Sound> decode_sound(std::string_view file, const DecodeOptions& options) {
  ASSIGN_OR_RETURN(const Container container, container_of(file));
  RETURN_IF_ERROR(check_header(file, container, options.limits));
  if (container == Container::kMp3) {
    ASSIGN_OR_RETURN(Mp3Reader mp3, Mp3Reader::open(file));
    return decode([&mp3](std::span<float> out) { return mp3.read(out); }, mp3.rate(),
                  mp3.channels(), options);
  }
  if (container == Container::kVorbis) {
    ASSIGN_OR_RETURN(VorbisReader vorbis, VorbisReader::open(file));
    return decode([&vorbis](std::span<float> out) { return vorbis.read(out); }, vorbis.rate(),
                  vorbis.channels(), options);
  }
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
  const auto read = [&](std::span<float> out) -> StatusOr<size_t> {
    const sf_count_t frames = std::ssize(out) / std::max(info.channels, 1);
    const sf_count_t got = sf_readf_float(sound.get(), out.data(), frames);
    if (sf_error(sound.get()) == SF_ERR_NO_ERROR)
      return static_cast<size_t>(std::max<sf_count_t>(got, 0));
    return invalid_argument("the file is damaged: {}", sf_strerror(sound.get()));
  };
  return decode(read, info.samplerate, info.channels, options);
}

}  // namespace nereid::speech
