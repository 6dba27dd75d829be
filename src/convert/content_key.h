// Hash of labelled parts; labels and lengths keep different lists distinct.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "io/checkpoint.h"

namespace nereid::convert {

class ContentKey {
 public:
  void add(std::string_view label, std::string_view text);
  void add(std::string_view label, std::span<const std::byte> bytes);
  void add(std::string_view label, uint64_t number);
  // The checkpoint's files, as described in engine_cache.h.
  void add(const io::Checkpoint& checkpoint);
  std::string text() const;  // 16 hex digits

 private:
  void add_samples(const io::TensorFile& file);

  uint64_t state_ = 0;
};

}  // namespace nereid::convert
