// Test only: drafts from what the rows of the exactness suite gave without any, some of them wrong.
#pragma once

#include <algorithm>
#include <mutex>
#include <span>
#include <vector>

#include "base/rng.h"
#include "nereid/request.h"
#include "runtime/exactness.h"
#include "runtime/speculation.h"

namespace nereid::runtime::exactness {

// Guesses that depend on nothing but the tokens known. Rows that have begun alike may get each
// other's.
class RowProposer : public Proposer {
 public:
  RowProposer(std::span<const Request> requests, std::span<const Outcome> outcomes,
              int32_t vocab_size)
      : vocab_size_(static_cast<uint32_t>(vocab_size)) {
    for (size_t row = 0; row < requests.size(); ++row)
      for (const std::vector<Output>& beams : outcomes[row].sequences) {
        std::vector<TokenId>& text = texts_.emplace_back(requests[row].input_token_ids);
        text.insert(text.end(), beams.at(0).tokens.begin(), beams.at(0).tokens.end());
      }
  }

  void propose(std::span<DraftQuestion> questions) override {
    for (DraftQuestion& question : questions) answer(question);
  }

 private:
  void answer(DraftQuestion& question) const {
    const auto known = question.sequence->tokens();
    std::vector<const std::vector<TokenId>*> alike;
    for (const std::vector<TokenId>& text : texts_)
      if (text.size() > known.size() &&
          std::ranges::equal(known, std::span(text).first(known.size())))
        alike.push_back(&text);
    const auto random = philox(static_cast<uint64_t>(known.back()), known.size());
    const size_t count = random[0] % static_cast<uint32_t>(question.most + 1);
    for (size_t i = 0; i < count; ++i) {
      const size_t at = known.size() + i;
      const std::vector<TokenId>* text = alike.empty() ? nullptr : alike[random[1] % alike.size()];
      const uint32_t roll = philox(random[2], i)[0];
      const bool right = text && at < text->size() && roll % 10 < 7;
      question.drafts.push_back(right ? (*text)[at] : static_cast<TokenId>(roll % vocab_size_));
    }
  }

  const uint32_t vocab_size_;
  std::vector<std::vector<TokenId>> texts_;
};

}  // namespace nereid::runtime::exactness
