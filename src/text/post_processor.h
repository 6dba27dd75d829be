// Post-processors of tokenizer.json: the ids put before and after every encoded text.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace nereid::text {

// ByteLevel (changes no ids), TemplateProcessing (its "single" form) and Sequence of them.
class PostProcessor {
 public:
  static StatusOr<PostProcessor> from_json(const json::value& spec);

  // tokenizer_config.json's add_bos_token and add_eos_token win over the file for the Llama and
  // Gemma tokenizer classes (defaults true and false), as those classes rebuild their template.
  Status apply_config(const json::object& config,
                      const std::function<std::optional<int32_t>(std::string_view)>& token_id);

  // InvalidArgument when an id is above `max_id`.
  Status check(int32_t max_id) const;

  const std::vector<int32_t>& prefix() const { return prefix_; }
  const std::vector<int32_t>& suffix() const { return suffix_; }

 private:
  Status append(const json::value& spec, int depth);
  Status append_template(const json::object& spec);

  std::vector<int32_t> prefix_, suffix_;
};

}  // namespace nereid::text
