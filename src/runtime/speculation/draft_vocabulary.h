// Token mapping of a draft head with a smaller vocabulary than the target model's.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/step_message.h"
#include "nereid/request.h"

namespace nereid::runtime {

class DraftVocabulary {
 public:
  // `tokens`: the model's token of each head token, distinct, in [0, vocab_size).
  DraftVocabulary(std::vector<TokenId> tokens, int32_t vocab_size);

  TokenId model_token(TokenId own) const { return tokens_[static_cast<size_t>(own)]; }

  // Translates the step's last slot load, and the history behind the first `num_history` tokens, to
  // the head's tokens. Unknown tokens become kUnknownToken.
  void translate(exec::StepMessage& step, size_t num_history) const;

 private:
  TokenId own(TokenId token) const;

  std::vector<TokenId> tokens_;
  std::vector<TokenId> own_;  // head token by model token
};

}  // namespace nereid::runtime
