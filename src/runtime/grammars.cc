#include "runtime/grammars.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace nereid::runtime {
namespace {

text::GrammarKind grammar_kind(GuideType type) {
  switch (type) {
    case GuideType::kJson:
      return text::GrammarKind::kJsonObject;
    case GuideType::kJsonSchema:
      return text::GrammarKind::kJsonSchema;
    case GuideType::kRegex:
      return text::GrammarKind::kRegex;
    case GuideType::kEbnfGrammar:
      return text::GrammarKind::kEbnf;
    case GuideType::kStructuralTag:
      return text::GrammarKind::kStructuralTag;
  }
  return text::GrammarKind::kJsonObject;
}

}  // namespace

const std::shared_ptr<const text::TokenTrie>& Grammars::tokens() {
  NEREID_CHECK(tokenizer_);
  std::call_once(has_tokens_, [&] { tokens_ = text::TokenTrie::of(*tokenizer_, vocab_size_); });
  return tokens_;
}

StatusOr<std::shared_ptr<text::Grammar>> Grammars::get(const GuidedDecoding& wanted) {
  const std::string key = fmt::format("{} {}", static_cast<int>(wanted.type), wanted.guide);
  {
    const std::lock_guard lock(mutex_);
    const auto found = kept_.find(key);
    if (found != kept_.end()) {
      found->second.used = ++num_calls_;
      return found->second.grammar;
    }
  }
  auto grammar = text::Grammar::compile(grammar_kind(wanted.type), wanted.guide, tokens());
  if (!grammar.ok()) return annotate(grammar.status(), "guided_decoding");
  const std::lock_guard lock(mutex_);
  if (kept_.size() >= kMostKept)
    kept_.erase(
        std::ranges::min_element(kept_, {}, [](const auto& entry) { return entry.second.used; }));
  kept_[key] = {*grammar, ++num_calls_};
  return grammar;
}

StatusOr<text::ReasoningPart> Grammars::reasoning_part(const ReasoningConfig& wanted) const {
  const auto ids_of = [&](const std::string& mark) -> StatusOr<std::vector<TokenId>> {
    ASSIGN_OR_RETURN(auto ids, tokenizer_->encode(mark, {.add_special_tokens = false}));
    if (std::ranges::any_of(ids, [&](TokenId id) { return id >= vocab_size_; }))
      return invalid_argument("reasoning: '{}' has tokens that the model does not know", mark);
    return ids;
  };
  text::ReasoningPart part{.open = wanted.open,
                           .close = wanted.close,
                           .begun = wanted.begun,
                           .max_tokens = wanted.max_tokens};
  const auto add_marks = [&](const std::string& mark, const std::vector<TokenId>& ids) {
    if (ids.size() == 1) part.marks.emplace_back(ids[0], mark);
    for (const TokenId id : ids)
      if (ids.size() > 1 && tokenizer_->is_special(id))
        part.marks.emplace_back(id, tokenizer_->token_bytes(id));
  };
  ASSIGN_OR_RETURN(part.close_ids, ids_of(wanted.close));
  if (part.close_ids.empty())
    return invalid_argument("reasoning.close: '{}' has no tokens", wanted.close);
  ASSIGN_OR_RETURN(const auto open_ids, ids_of(wanted.open));
  add_marks(wanted.open, open_ids);
  add_marks(wanted.close, part.close_ids);
  return part;
}

StatusOr<std::shared_ptr<const text::Guide>> Grammars::guide(const Request& request) {
  if (!request.guided_decoding && !(request.reasoning && request.reasoning->max_tokens))
    return std::shared_ptr<const text::Guide>();
  auto guide = std::make_shared<text::Guide>();
  guide->tokens = tokens();
  if (request.guided_decoding) {
    ASSIGN_OR_RETURN(guide->grammar, get(*request.guided_decoding));
  }
  if (request.reasoning) {
    ASSIGN_OR_RETURN(guide->reasoning, reasoning_part(*request.reasoning));
  }
  guide->broken_ids = text::broken_closings(*guide);
  return std::shared_ptr<const text::Guide>(std::move(guide));
}

}  // namespace nereid::runtime
