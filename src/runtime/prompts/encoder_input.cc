#include "runtime/prompts/encoder_input.h"

#include <openssl/sha.h>

#include <utility>

#include "models/encoder.h"
#include "tensor/dtype.h"

namespace nereid::runtime {
namespace {

// The row of position t has frames 2t - 1 to 2t + 2, zeros outside of the input.
std::vector<uint16_t> rows_of(const std::vector<float>& frames, int32_t width) {
  const int64_t num_frames = std::ssize(frames) / width;
  std::vector<uint16_t> rows;
  rows.reserve(static_cast<size_t>(num_frames / 2 * models::kFramesPerRow * width));
  for (int64_t t = 0; t < num_frames / 2; ++t)
    for (int64_t frame = 2 * t - 1; frame < 2 * t - 1 + models::kFramesPerRow; ++frame)
      for (int64_t c = 0; c < width; ++c)
        rows.push_back(frame < 0 || frame >= num_frames
                           ? uint16_t{0}
                           : to_bf16(frames[static_cast<size_t>(frame * width + c)]).bits);
  return rows;
}

template <class T>
void append(std::string& bytes, const T* data, size_t count) {
  bytes.append(reinterpret_cast<const char*>(data), count * sizeof(T));
}

}  // namespace

std::string digest_of(std::span<const std::byte> bytes) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(),
         reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

EncoderRows encoder_rows(EncoderInput input, int32_t feature_width, const std::string& cache_salt,
                         uint64_t adapter) {
  EncoderRows out;
  if (feature_width > 0) {
    out.rows = rows_of(input.features, feature_width);
    out.length = static_cast<int32_t>(std::ssize(input.features) / feature_width / 2);
  } else {
    out.token_ids = std::move(input.token_ids);
    out.length = static_cast<int32_t>(std::ssize(out.token_ids));
  }
  out.num_results = out.length;
  std::string bytes;
  const uint64_t salt_bytes = cache_salt.size();
  append(bytes, &adapter, 1);
  append(bytes, &salt_bytes, 1);
  bytes += cache_salt;
  append(bytes, out.token_ids.data(), out.token_ids.size());
  append(bytes, out.rows.data(), out.rows.size());
  out.key = digest_of(std::as_bytes(std::span(bytes)));
  return out;
}

}  // namespace nereid::runtime
