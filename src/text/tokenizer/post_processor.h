// Post-processors of tokenizer.json: ids added before and after every encoded text.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "text/tokenizer_files/json_node.h"

namespace nereid::text {

class PostProcessor {
 public:
  // Null adds nothing. Errors name path, value and what is allowed.
  static StatusOr<PostProcessor> from_json(const JsonNode& spec);

  // tokenizer_config.json's add_bos_token and add_eos_token override the file for the Llama and
  // Gemma tokenizer classes (defaults true and false), as those classes rebuild their template.
  Status apply_config(const JsonNode& config,
                      const std::function<std::optional<int32_t>(std::string_view)>& token_id);

  // InvalidArgument when an id is above `max_id`.
  Status check(int32_t max_id) const;

  void add_prefix(int32_t id) { prefix_.insert(prefix_.begin(), id); }
  void add_suffix(int32_t id) { suffix_.push_back(id); }
  const std::vector<int32_t>& prefix() const { return prefix_; }
  const std::vector<int32_t>& suffix() const { return suffix_; }

 private:
  Status append(const JsonNode& spec, int depth);
  Status append_template(const JsonNode& spec);
  Status append_pair(const JsonNode& spec);

  std::vector<int32_t> prefix_, suffix_;
};

// The text of a token field, which is a string or {"content": TEXT}; empty for another value.
std::string_view token_text(const JsonNode& field);

}  // namespace nereid::text
