// Test only: drafts from the outputs of the exactness rows without drafts, some of them wrong.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "base/rng.h"
#include "nereid/request.h"
#include "runtime/speculation/speculation.h"
#include "runtime/testing/exactness.h"

namespace nereid::runtime::exactness {

// Drafts are a function of the known tokens. Rows with a common prefix may get each other's drafts.
class RowProposer : public Proposer {
 public:
  RowProposer(std::span<const Request> requests, std::span<const Outcome> outcomes,
              int32_t vocab_size, bool in_trees)
      : vocab_size_(static_cast<uint32_t>(vocab_size)), in_trees_(in_trees) {
    for (size_t row = 0; row < requests.size(); ++row)
      for (const std::vector<Output>& beams : outcomes[row].sequences) {
        std::vector<TokenId>& text = texts_.emplace_back(requests[row].input_token_ids);
        text.insert(text.end(), beams.at(0).tokens.begin(), beams.at(0).tokens.end());
      }
  }

  std::string_view name() const override { return "rows"; }
  void propose(std::span<DraftQuestion> questions) override {
    for (DraftQuestion& question : questions) answer(question);
  }
  bool makes_trees() const override { return in_trees_; }

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
    int32_t parent = -1;
    for (size_t i = 0; i < count; ++i) {
      const size_t at = known.size() + i;
      const std::vector<TokenId>* text = alike.empty() ? nullptr : alike[random[1] % alike.size()];
      const uint32_t roll = philox(random[2], i)[0];
      const bool right = text && at < text->size() && roll % 10 < 7;
      const auto token = right ? (*text)[at] : static_cast<TokenId>(roll % vocab_size_);
      if (!in_trees_) {
        question.drafts.push_back(token);
      } else if (!add_level(question, token, roll, parent)) {
        return;
      }
    }
  }

  // Adds the draft that becomes the next level's parent, with up to a few siblings; false: no room.
  bool add_level(DraftQuestion& question, TokenId token, uint32_t roll, int32_t& parent) const {
    const uint32_t before = roll / 16 % 3, behind = roll / 64 % 2;
    if (question.drafts.size() + before + 1 + behind > static_cast<size_t>(question.most))
      return false;
    for (uint32_t i = 0; i < before + 1 + behind; ++i) {
      const auto other = (static_cast<uint32_t>(token) + before - i + vocab_size_) % vocab_size_;
      question.drafts.push_back(static_cast<TokenId>(other));
      question.parents.push_back(parent);
    }
    parent = static_cast<int32_t>(question.drafts.size() - 1 - behind);
    return true;
  }

  const uint32_t vocab_size_;
  const bool in_trees_;
  std::vector<std::vector<TokenId>> texts_;
};

}  // namespace nereid::runtime::exactness
