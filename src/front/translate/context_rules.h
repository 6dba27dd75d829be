// What another API does where OpenAI's refuses a prompt or a wanted answer that does not fit.
#pragma once

#include <cstdint>
#include <optional>

namespace nereid::front {

struct ContextRules {
  bool clips_max_tokens = false;         // to what the context has room for
  bool drops_messages = false;           // the oldest of a conversation, where it does not fit
  std::optional<int64_t> max_seq_len{};  // prompt and output tokens, where the model has more
};

}  // namespace nereid::front
