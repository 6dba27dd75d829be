#include "speech/audio/mp3.h"

#include <mpg123.h>

#include <algorithm>

namespace nereid::speech {
namespace {

constexpr size_t kFeedBytes = size_t{64} << 10;
// Decoded bytes of frames that damage makes up, less than a second.
constexpr size_t kMostOtherBytes = size_t{64} << 10;

}  // namespace

void Mp3Reader::Delete::operator()(mpg123_handle_struct* handle) const { mpg123_delete(handle); }

bool Mp3Reader::feed() {
  if (rest_.empty()) return false;
  const std::string_view next = rest_.substr(0, kFeedBytes);
  rest_.remove_prefix(next.size());
  return mpg123_feed(handle_.get(), reinterpret_cast<const unsigned char*>(next.data()),
                     next.size()) == MPG123_OK;
}

StatusOr<Mp3Reader> Mp3Reader::open(std::string_view file) {
  Mp3Reader out;
  int error = MPG123_OK;
  out.handle_.reset(mpg123_new(nullptr, &error));
  mpg123_handle* const handle = out.handle_.get();
  if (handle == nullptr) return internal_error("MP3: {}", mpg123_plain_strerror(error));
  constexpr long kFlags = MPG123_QUIET | MPG123_SKIP_ID3V2 | MPG123_GAPLESS;
  bool is_ready = mpg123_param(handle, MPG123_ADD_FLAGS, kFlags, 0) == MPG123_OK &&
                  mpg123_param(handle, MPG123_RESYNC_LIMIT, kFeedBytes, 0) == MPG123_OK &&
                  mpg123_format_none(handle) == MPG123_OK;
  const long* rates = nullptr;
  size_t num_rates = 0;
  mpg123_rates(&rates, &num_rates);
  for (size_t i = 0; i < num_rates && is_ready; ++i)
    is_ready = mpg123_format(handle, rates[i], MPG123_MONO | MPG123_STEREO, MPG123_ENC_FLOAT_32) ==
               MPG123_OK;
  if (!is_ready || mpg123_open_feed(handle) != MPG123_OK)
    return internal_error("MP3: {}", mpg123_strerror(handle));
  out.rest_ = file;
  ASSIGN_OR_RETURN(const size_t none, out.read({}));
  if (none != 0 || out.rate_ == 0) return invalid_argument("the file has no frame of MP3");
  return out;
}

StatusOr<size_t> Mp3Reader::read(std::span<float> out) {
  for (;;) {
    size_t bytes = 0;
    const int result = mpg123_read(handle_.get(), reinterpret_cast<unsigned char*>(out.data()),
                                   out.size_bytes(), &bytes);
    if (result == MPG123_NEW_FORMAT) {
      long rate = 0;
      int channels = 0, encoding = 0;
      if (mpg123_getformat(handle_.get(), &rate, &channels, &encoding) != MPG123_OK ||
          encoding != MPG123_ENC_FLOAT_32)
        return invalid_argument("the file has MP3 of an unknown kind");
      if (rate_ == 0) rate_ = static_cast<int>(rate), channels_ = channels;
      is_other_ = rate != rate_ || channels != channels_;
      if (out.empty()) return 0;
    } else if (result != MPG123_OK && result != MPG123_NEED_MORE && result != MPG123_DONE) {
      return invalid_argument("the file is damaged: {}", mpg123_strerror(handle_.get()));
    }
    if (bytes > 0 && !is_other_) return bytes / sizeof(float) / static_cast<size_t>(channels_);
    if (num_other_ += bytes; num_other_ > kMostOtherBytes)
      return invalid_argument(
          "the file goes on with another rate or number of channels than {} Hz "
          "and {}",
          rate_, channels_);
    if (result == MPG123_DONE || (result == MPG123_NEED_MORE && !feed())) return 0;
  }
}

}  // namespace nereid::speech
