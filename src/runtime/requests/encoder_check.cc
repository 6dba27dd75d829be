#include "runtime/requests/encoder_check.h"

#include <algorithm>
#include <iterator>

namespace nereid::runtime {

int64_t num_encoder_positions(const Request& r, const RequestBounds& bounds) {
  if (!r.encoder_input) return 0;
  const EncoderInput& input = *r.encoder_input;
  return bounds.encoder.feature_width > 0
             ? std::ssize(input.features) / bounds.encoder.feature_width / 2
             : std::ssize(input.token_ids);
}

int64_t encoder_output_bytes(const Request& r, const RequestBounds& bounds) {
  if (!r.output.return_encoder_output) return 0;
  return num_encoder_positions(r, bounds) * bounds.encoder.output_width *
         static_cast<int64_t>(sizeof(float));
}

Status check_encoder_output(const Request& r, const RequestBounds& bounds) {
  if (!r.output.return_encoder_output) return ok();
  if (bounds.encoder.output_width == 0)
    return invalid_argument(
        "return_encoder_output: only for encoder-decoder models; this model gives no output of an "
        "encoder");
  const int64_t bytes = encoder_output_bytes(r, bounds);
  if (bytes <= bounds.max_logits_bytes) return ok();
  return invalid_argument(
      "return_encoder_output: {} positions of {} numbers are {} bytes; at most {} are allowed "
      "(max_logits_bytes)",
      num_encoder_positions(r, bounds), bounds.encoder.output_width, bytes,
      bounds.max_logits_bytes);
}

Status check_cross_mask(const Request& r, const RequestBounds& bounds) {
  if (!r.cross_attention_mask) return ok();
  const CrossAttentionMask& mask = *r.cross_attention_mask;
  if (bounds.encoder.max_length == 0)
    return invalid_argument("cross_attention_mask: the model has no cross attention");
  const int64_t positions = num_encoder_positions(r, bounds);
  if (mask.num_positions != positions)
    return invalid_argument(
        "cross_attention_mask: {} columns; the encoder's output has {} positions",
        mask.num_positions, positions);
  const int64_t rows = std::ssize(mask.attends) / positions;
  if (std::ssize(mask.attends) % positions != 0 || rows < 1 ||
      rows > bounds.limits.max_sequence_length)
    return invalid_argument(
        "cross_attention_mask: {} numbers are no rows of {} positions, 1 to {} of them",
        mask.attends.size(), positions, bounds.limits.max_sequence_length);
  const auto wrong = std::ranges::find_if(mask.attends, [](uint8_t x) { return x > 1; });
  if (wrong == mask.attends.end()) return ok();
  return invalid_argument(
      "cross_attention_mask: {} at row {}, position {}; only 0 and 1 are allowed", *wrong,
      (wrong - mask.attends.begin()) / positions, (wrong - mask.attends.begin()) % positions);
}

}  // namespace nereid::runtime
