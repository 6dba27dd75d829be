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
      return text::GrammarKind::kGbnf;
  }
  return text::GrammarKind::kJsonObject;
}

}  // namespace

StatusOr<std::shared_ptr<text::Grammar>> Grammars::get(const GuidedDecoding& wanted) {
  NEREID_CHECK(tokenizer_);
  std::call_once(has_tokens_, [&] { tokens_ = text::TokenTrie::of(*tokenizer_, vocab_size_); });
  const std::string key = fmt::format("{} {}", static_cast<int>(wanted.type), wanted.guide);
  {
    const std::lock_guard lock(mutex_);
    const auto found = kept_.find(key);
    if (found != kept_.end()) {
      found->second.used = ++num_calls_;
      return found->second.grammar;
    }
  }
  auto grammar = text::Grammar::compile(grammar_kind(wanted.type), wanted.guide, tokens_);
  if (!grammar.ok()) return annotate(grammar.status(), "guided_decoding");
  const std::lock_guard lock(mutex_);
  if (kept_.size() >= kMostKept)
    kept_.erase(
        std::ranges::min_element(kept_, {}, [](const auto& entry) { return entry.second.used; }));
  kept_[key] = {*grammar, ++num_calls_};
  return grammar;
}

}  // namespace nereid::runtime
