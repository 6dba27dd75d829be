// Grammars that requests name, compiled for the model's vocabulary.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "base/status.h"
#include "nereid/request.h"
#include "text/grammar/grammar.h"
#include "text/grammar/guided_output.h"
#include "text/tokenizer.h"

namespace nereid::runtime {

// Keeps the latest by their text. Safe from many threads.
class Grammars {
 public:
  // `tokenizer` may be null; then get() must not be called.
  Grammars(std::shared_ptr<const text::Tokenizer> tokenizer, int32_t vocab_size)
      : tokenizer_(std::move(tokenizer)), vocab_size_(vocab_size) {}

  // On the caller's thread. InvalidArgument: "guided_decoding: ..." says what is wrong with the
  // text.
  StatusOr<std::shared_ptr<text::Grammar>> get(const GuidedDecoding& wanted);
  // For guided_decoding and reasoning of a checked request; null: it has neither. Errors as get().
  StatusOr<std::shared_ptr<const text::Guide>> guide(const Request& request);

 private:
  static constexpr size_t kMostKept = 16;

  struct Kept {
    std::shared_ptr<text::Grammar> grammar;
    uint64_t used = 0;  // when, in calls
  };

  const std::shared_ptr<const text::TokenTrie>& tokens();
  StatusOr<text::ReasoningPart> reasoning_part(const ReasoningConfig& wanted) const;

  const std::shared_ptr<const text::Tokenizer> tokenizer_;
  const int32_t vocab_size_;
  std::once_flag has_tokens_;
  std::shared_ptr<const text::TokenTrie> tokens_;
  std::mutex mutex_;  // guards the two below
  std::map<std::string, Kept> kept_;
  uint64_t num_calls_ = 0;
};

}  // namespace nereid::runtime
