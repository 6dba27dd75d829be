// WordLevel: every word is a token or unknown.
#pragma once

#include <memory>
#include <optional>

#include "text/tokenizer/model.h"

namespace nereid::text {

class WordLevel : public Model {
 public:
  WordLevel(Vocab vocab, std::optional<int32_t> unknown)
      : Model(std::move(vocab)), unknown_(unknown) {}
  static StatusOr<std::unique_ptr<WordLevel>> from_json(const JsonNode& spec);

  Status encode(std::string_view word, EncodeScratch& scratch,
                std::vector<int32_t>& ids) const override;

 private:
  std::optional<int32_t> unknown_;
};

}  // namespace nereid::text
