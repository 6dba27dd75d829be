#include "server/batching/batch_rule.h"

#include <algorithm>
#include <limits>

namespace nereid::server {
namespace {

uint64_t size_of(const InferenceRequest& request) {
  return static_cast<uint64_t>(std::max<int64_t>(1, request.batch_size));
}

bool same_bytes(const InputTensor& a, const InputTensor& b) {
  const auto joined = [](const InputTensor& t) {
    std::string out;
    for (const auto& buffer : t.buffers) {
      if (buffer.memory_type == TRITONSERVER_MEMORY_GPU) return std::string();
      out.append(static_cast<const char*>(buffer.base), buffer.byte_size);
    }
    return out;
  };
  // Inputs with buffers for host policies are never equal: those buffers are not compared.
  return a.policy_buffers.empty() && b.policy_buffers.empty() && joined(a) == joined(b);
}

bool same_shape_behind_batch(const Shape& a, const Shape& b) {
  return a.size() == b.size() && (a.empty() || std::equal(a.begin() + 1, a.end(), b.begin() + 1));
}

}  // namespace

bool fit_together(const ModelConfig& config, const InferenceRequest& first,
                  const InferenceRequest& next) {
  if (first.inputs.size() != next.inputs.size()) return false;
  for (const auto& input : first.inputs) {
    const auto other = std::find_if(next.inputs.begin(), next.inputs.end(),
                                    [&](const auto& t) { return t.name == input.name; });
    if (other == next.inputs.end()) return false;
    const TensorSpec* spec = config.input(input.name);
    if (spec == nullptr || spec->allow_ragged) continue;
    if (spec->is_shape_tensor) {
      if (input.shape != other->shape || !same_bytes(input, *other)) return false;
    } else if (!same_shape_behind_batch(input.shape, other->shape)) {
      return false;
    }
  }
  // Sequence controls and states: the same list for every request of a model.
  for (size_t i = 0; i < std::min(first.core_inputs.size(), next.core_inputs.size()); ++i) {
    if (!same_shape_behind_batch(first.core_inputs[i].shape, next.core_inputs[i].shape)) {
      return false;
    }
  }
  return true;
}

size_t size_of_batch(const ModelConfig& config, const BatchRule& rule,
                     const std::vector<const InferenceRequest*>& order, uint64_t now, bool is_last,
                     uint64_t& wake_ns) {
  const uint64_t max_size = static_cast<uint64_t>(std::max<int64_t>(1, config.max_batch_size));
  uint64_t limit = 0;
  for (int32_t size : rule.preferred_sizes) limit = std::max(limit, static_cast<uint64_t>(size));
  if (limit == 0) limit = max_size;
  uint64_t total = 0, oldest_ns = std::numeric_limits<uint64_t>::max();
  // A batch that cannot grow within the limit counts as preferred.
  size_t count = 0, preferred_count = 0;
  bool cannot_grow = false;
  BatchStrategy::Batch batch(rule.strategy);
  for (const InferenceRequest* request : order) {
    const uint64_t size = size_of(*request);
    if (count > 0 && total + size > limit && preferred_count == 0) preferred_count = count;
    if (count > 0 && (total + size > max_size || !fit_together(config, *order[0], *request))) {
      cannot_grow = true;
      break;
    }
    // The first request always joins: else those behind it could never run.
    if (!batch.join(*request) && count > 0) {
      cannot_grow = true;
      break;
    }
    total += size;
    ++count;
    oldest_ns = std::min(oldest_ns, request->start_ns);
    const auto is_total = [&](int32_t s) { return static_cast<uint64_t>(s) == total; };
    if (std::any_of(rule.preferred_sizes.begin(), rule.preferred_sizes.end(), is_total)) {
      preferred_count = count;
    }
  }
  if (count == 0) return 0;
  const uint64_t due_ns = oldest_ns + rule.max_delay_us * 1000;
  // A request over its maximum delay takes all waiting ones along, preferred size or not.
  const bool is_late = is_last || (rule.max_delay_us > 0 && now >= due_ns);
  if (preferred_count > 0 && !is_late) return preferred_count;
  if (cannot_grow || is_late || rule.max_delay_us == 0 || total >= limit) return count;
  wake_ns = due_ns;
  return 0;
}

}  // namespace nereid::server
