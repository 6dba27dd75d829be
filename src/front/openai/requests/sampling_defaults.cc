#include "front/openai/requests/sampling_defaults.h"

#include <cstdint>
#include <limits>

#include "base/json.h"

namespace nereid::front {

StatusOr<GenerationDefaults> read_generation_defaults(const std::filesystem::path& dir) {
  GenerationDefaults out;
  const std::filesystem::path path = dir / "generation_config.json";
  std::error_code ec;
  if (!std::filesystem::exists(path, ec)) return out;
  ASSIGN_OR_RETURN(const json::value root, read_json_file(path));
  const json::object* object = root.if_object();
  if (object == nullptr) return invalid_argument("{}: is not an object", path.string());
  Status status;
  const auto number = [&](std::string_view key, double min, double max) -> std::optional<double> {
    const json::value* value = object->if_contains(key);
    if (value == nullptr || value->is_null()) return {};
    const double found = value->is_number() ? value->to_number<double>() : max + 1;
    if (found >= min && found <= max) return found;
    status = invalid_argument("{}: field '{}': {} is not a number in [{}, {}]", path.string(), key,
                              json::serialize(*value).substr(0, 40), min, max);
    return {};
  };
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  out.sampling.temperature = number("temperature", 0, 100);
  out.sampling.top_p = number("top_p", 1e-6, 1);
  out.sampling.top_k = number("top_k", 0, kMost);
  out.sampling.min_p = number("min_p", 0, 1);
  out.sampling.repetition_penalty = number("repetition_penalty", 1e-6, 2);
  out.max_tokens = static_cast<int64_t>(number("max_new_tokens", 1, kMost).value_or(0));
  RETURN_IF_ERROR(status);
  return out;
}

void use_defaults(const SamplingDefaults& defaults, SamplingOptions& sampling) {
  const auto use = [](const std::optional<double>& said, const std::optional<double>& usual,
                      auto& value) {
    if (!said && usual) value = static_cast<std::remove_cvref_t<decltype(value)>>(*usual);
  };
  const SamplingDefaults& said = sampling.said;
  use(said.temperature, defaults.temperature, sampling.temperature);
  if (sampling.temperature < kLeastTemperature) sampling.temperature = 0;
  use(said.top_p, defaults.top_p, sampling.top_p);
  use(said.top_k, defaults.top_k, sampling.top_k);
  use(said.min_p, defaults.min_p, sampling.min_p);
  use(said.repetition_penalty, defaults.repetition_penalty, sampling.repetition_penalty);
}

}  // namespace nereid::front
