#include "text/tokenizer/word_level.h"

namespace nereid::text {

StatusOr<std::unique_ptr<WordLevel>> WordLevel::from_json(const JsonNode& spec) {
  ASSIGN_OR_RETURN(Vocab vocab, Vocab::from_json(spec["vocab"]));
  ASSIGN_OR_RETURN(const std::string_view name, spec["unk_token"].string("<unk>"));
  const auto unknown = vocab.id(name);
  return std::make_unique<WordLevel>(std::move(vocab), unknown);
}

Status WordLevel::encode(std::string_view word, EncodeScratch&, std::vector<int32_t>& ids) const {
  const auto id = vocab_.id(word);
  if (!id && !unknown_) {
    return invalid_argument("the model has no token for '{}' and no unknown token",
                            word.substr(0, 64));
  }
  ids.push_back(id ? *id : *unknown_);
  return ok();
}

}  // namespace nereid::text
