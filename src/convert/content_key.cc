#include "convert/content_key.h"

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "base/hash.h"
#include "convert/engine_cache.h"

namespace nereid::convert {

void ContentKey::add(std::string_view label, std::string_view text) {
  state_ = hash64(fmt::format("{}:{}:", label, text.size()), state_);
  state_ = hash64(text, state_);
}

void ContentKey::add(std::string_view label, std::span<const std::byte> bytes) {
  add(label, std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

void ContentKey::add(std::string_view label, uint64_t number) { add(label, hex64(number)); }

void ContentKey::add(const io::Checkpoint& checkpoint) {
  uint64_t total = 0;
  for (const auto& file : checkpoint.files()) total += file->file_bytes();
  for (const auto& file : checkpoint.files()) {
    add("file", file->path().filename().string());
    add("size", file->file_bytes());
    add("header", file->header());
    if (total <= kHashAllBytes)
      add("bytes", file->bytes());
    else
      add_samples(*file);
  }
}

std::string ContentKey::text() const { return hex64(state_); }

void ContentKey::add_samples(const io::TensorFile& file) {
  std::error_code error;
  const auto time = std::filesystem::last_write_time(file.path(), error).time_since_epoch();
  add("time",
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(time).count()));
  for (const io::StoredTensor& tensor : file.tensors()) {
    const size_t n = std::min<size_t>(tensor.data.size(), 64);
    add("tensor", tensor.data.first(n));
  }
  const uint64_t step = file.file_bytes() / kSamples;
  for (uint64_t i = 0; i < kSamples; ++i) {
    const uint64_t at = i * step;
    add("sample",
        file.bytes().subspan(at, std::min<uint64_t>(kSampleBytes, file.file_bytes() - at)));
  }
}

}  // namespace nereid::convert
