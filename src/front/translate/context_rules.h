// Rules of other APIs for a prompt or output that does not fit, where OpenAI's refuses it.
#pragma once

#include <cstdint>
#include <optional>

namespace nereid::front {

struct ContextRules {
  bool clips_max_tokens = false;         // to the room in the context
  bool drops_messages = false;           // the oldest ones of a conversation that does not fit
  std::optional<int64_t> max_seq_len{};  // limit of prompt and output tokens, below the model's
};

}  // namespace nereid::front
