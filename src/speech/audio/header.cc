#include "speech/audio/header.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace nereid::speech {
namespace {

constexpr char kAllowed[] = "allowed are WAV, FLAC, Ogg (Vorbis, Opus) and MP3";

uint32_t byte_at(std::string_view bytes, size_t at) { return static_cast<uint8_t>(bytes[at]); }

uint32_t little_endian(std::string_view bytes, size_t at, size_t size) {
  uint32_t value = 0;
  for (size_t i = 0; i < size; ++i) value |= byte_at(bytes, at + i) << (8 * i);
  return value;
}

// The name of a known format that is not read; "" for others.
std::string_view other_format(std::string_view file) {
  if (file.size() >= 12 && file.substr(4, 4) == "ftyp") return "MP4 (m4a)";
  constexpr std::pair<std::string_view, std::string_view> kSigns[] = {
      {"\x1a\x45\xdf\xa3", "WebM (Matroska)"},
      {"FORM", "AIFF"},
      {"caff", "CAF"},
      {".snd", "AU"},
      {"#!AMR", "AMR"},
      {"\x30\x26\xb2\x75", "WMA"},
      {"RF64", "RF64"},
      {"\x1f\x8b", "gzip"},
      {"PK\x03\x04", "ZIP"}};
  for (const auto& [sign, name] : kSigns)
    if (file.starts_with(sign)) return name;
  // ADTS: the layer bits of the sync word are 0.
  if (file.size() >= 2 && byte_at(file, 0) == 0xff && (byte_at(file, 1) & 0xf6) == 0xf0)
    return "AAC";
  return "";
}

bool is_mpeg_frame(std::string_view file) {
  return file.size() >= 4 && byte_at(file, 0) == 0xff && (byte_at(file, 1) & 0xe0) == 0xe0 &&
         (byte_at(file, 1) & 0x06) != 0;
}

// Lengths that programs write into pipes, where the length comes last.
bool is_unknown_length(uint32_t length) { return length >= 0x7ffff000; }

// Source: the RIFF WAVE format ("fmt " chunk: tag, channels, rate, ...; "data" chunk: samples).
Status check_wav(std::string_view file, const SoundLimits& limits) {
  constexpr size_t kRiffBytes = 12, kChunkBytes = 8, kFormatBytes = 16;
  bool has_format = false;
  for (size_t at = kRiffBytes; at + kChunkBytes <= file.size();) {
    const std::string_view name = file.substr(at, 4);
    const uint32_t length = little_endian(file, at + 4, 4);
    at += kChunkBytes;
    const size_t left = file.size() - at;
    if (name == "fmt ") {
      if (length < kFormatBytes || left < kFormatBytes)
        return invalid_argument("the WAV file's 'fmt ' chunk has {} bytes; {} or more are needed",
                                left < length ? left : length, kFormatBytes);
      RETURN_IF_ERROR(check_channels(little_endian(file, at + 2, 2), limits));
      RETURN_IF_ERROR(check_rate(little_endian(file, at + 4, 4), limits));
      has_format = true;
    } else if (name == "data") {
      if (!has_format)
        return invalid_argument("the WAV file has no 'fmt ' chunk before its samples");
      if (length > left && !is_unknown_length(length))
        return invalid_argument(
            "the WAV file's header says {} bytes of samples, and {} bytes are there: it is cut off",
            length, left);
      return ok();
    }
    if (length > left) break;
    at += length + (length & 1);  // chunks begin at even places
  }
  return invalid_argument("the WAV file is cut off before its samples");
}

// Source: RFC 9639, section 8.2 (the first metadata block is the stream's information).
Status check_flac(std::string_view file, const SoundLimits& limits) {
  constexpr size_t kRate = 4 + 4 + 10;
  if (file.size() < kRate + 4) return invalid_argument("the FLAC file is cut off in its header");
  const uint32_t bits =
      byte_at(file, kRate) << 16 | byte_at(file, kRate + 1) << 8 | byte_at(file, kRate + 2);
  RETURN_IF_ERROR(check_rate(bits >> 4, limits));
  return check_channels(((bits >> 1) & 7) + 1, limits);
}

// By the first packet. Source: RFC 3533, section 6 (pages), RFC 7845, section 5, and the Vorbis I
// specification, section 4.2.
StatusOr<Container> container_of_ogg(std::string_view file) {
  constexpr size_t kSegments = 26, kHeader = 27;
  if (file.size() > kHeader) {
    const size_t packet = kHeader + byte_at(file, kSegments);
    const std::string_view first = file.substr(std::min(packet, file.size()));
    if (first.starts_with("\x01vorbis")) return Container::kVorbis;
    if (first.starts_with("OpusHead")) return Container::kOpus;
  }
  return invalid_argument("the Ogg file begins with neither Vorbis nor Opus; {}", kAllowed);
}

}  // namespace

Status check_rate(int64_t rate, const SoundLimits& limits) {
  if (rate >= limits.min_rate && rate <= limits.max_rate) return ok();
  return invalid_argument("the sample rate is {} Hz, which is not in [{}, {}]", rate,
                          limits.min_rate, limits.max_rate);
}

Status check_channels(int64_t channels, const SoundLimits& limits) {
  if (channels >= 1 && channels <= limits.max_channels) return ok();
  return invalid_argument("the number of channels is {}, which is not in [1, {}]", channels,
                          limits.max_channels);
}

StatusOr<Container> container_of(std::string_view file) {
  if (file.empty()) return invalid_argument("the file is empty; {}", kAllowed);
  if (file.starts_with("RIFF") && file.size() >= 12 && file.substr(8, 4) == "WAVE")
    return Container::kWav;
  if (file.starts_with("fLaC")) return Container::kFlac;
  if (file.starts_with("OggS")) return container_of_ogg(file);
  if (const std::string_view other = other_format(file); !other.empty())
    return invalid_argument("the file is {}; {} (ffmpeg -i FILE -ar 16000 -ac 1 OUT.flac)", other,
                            kAllowed);
  if (file.starts_with("ID3") || is_mpeg_frame(file)) return Container::kMp3;
  return invalid_argument("the file is of no known format; {}", kAllowed);
}

Status check_header(std::string_view file, Container container, const SoundLimits& limits) {
  if (container == Container::kWav) return check_wav(file, limits);
  if (container == Container::kFlac) return check_flac(file, limits);
  return ok();
}

}  // namespace nereid::speech
