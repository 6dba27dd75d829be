// Tokens of a head that knows fewer of them than the model that tests its guesses.
#pragma once

#include <cstdint>
#include <vector>

#include "exec/step_message.h"
#include "nereid/request.h"

namespace nereid::runtime {

class DraftVocabulary {
 public:
  // `tokens`: the model's token of each of the head's, all different and below `vocab_size`.
  DraftVocabulary(std::vector<TokenId> tokens, int32_t vocab_size);

  TokenId model_token(TokenId own) const { return tokens_[static_cast<size_t>(own)]; }

  // Says the last of the step's loads, and the history behind the first `num_history` tokens, in
  // the head's tokens. One that it does not know becomes like no other.
  void translate(exec::Step& step, size_t num_history) const;

 private:
  TokenId own(TokenId token) const;

  std::vector<TokenId> tokens_;
  std::vector<TokenId> own_;  // by the model's token
};

}  // namespace nereid::runtime
