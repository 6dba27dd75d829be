// MP3 by libmpg123, which libsndfile has too, but lets write to the process's standard error.
// Internal to this folder.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

#include "base/status.h"

struct mpg123_handle_struct;

namespace nereid::speech {

class Mp3Reader {
 public:
  // Reads up to the first frame: then rate and channels are known. InvalidArgument: there is none.
  static StatusOr<Mp3Reader> open(std::string_view file);

  int rate() const { return rate_; }          // Hz
  int channels() const { return channels_; }  // 1 or 2

  // Writes whole frames of interleaved samples: their number, 0 at the end of the file.
  // Frames that damage makes up are left out. InvalidArgument: damage that no frame follows within
  // 64 KiB; the file goes on with another rate or number of channels.
  StatusOr<size_t> read(std::span<float> out);

 private:
  struct Delete {
    void operator()(mpg123_handle_struct* handle) const;
  };
  Mp3Reader() = default;
  bool feed();  // false: there is no more

  std::unique_ptr<mpg123_handle_struct, Delete> handle_;
  std::string_view rest_;  // of the file
  int rate_ = 0, channels_ = 0;
  bool is_other_ = false;  // the frame that is read has another rate or number of channels
  size_t num_other_ = 0;   // decoded bytes of such frames
};

}  // namespace nereid::speech
