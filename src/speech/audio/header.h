// Containers and headers of sound files, checked before a library reads them; internal.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "speech/audio/sound.h"

namespace nereid::speech {

enum class Container : uint8_t { kWav, kFlac, kVorbis, kOpus, kMp3 };

// The container of the file by its first bytes. InvalidArgument: none of these; names known others
// (MP4, WebM, ...) and how to convert them.
StatusOr<Container> container_of(std::string_view file);

// Rate (Hz), channels and, of WAV, length of the samples in a header against the limits; those
// of Ogg and MP3 are checked once the library has read them. InvalidArgument.
Status check_header(std::string_view file, Container container, const SoundLimits& limits);

Status check_rate(int64_t rate, const SoundLimits& limits);
Status check_channels(int64_t channels, const SoundLimits& limits);

}  // namespace nereid::speech
