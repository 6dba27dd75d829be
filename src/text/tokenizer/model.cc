#include "text/tokenizer/model.h"

#include "text/tokenizer/bpe.h"
#include "text/tokenizer/unigram.h"
#include "text/tokenizer/word_level.h"
#include "text/tokenizer/word_piece.h"

namespace nereid::text {

namespace {

template <class T>
StatusOr<std::unique_ptr<Model>> read(const JsonNode& spec) {
  ASSIGN_OR_RETURN(std::unique_ptr<T> model, T::from_json(spec));
  return std::unique_ptr<Model>(std::move(model));
}

struct ModelRow {
  std::string_view type;
  StatusOr<std::unique_ptr<Model>> (*read)(const JsonNode& spec);
};

constexpr ModelRow kModels[] = {{"BPE", read<Bpe>},
                                {"Unigram", read<Unigram>},
                                {"WordPiece", read<WordPiece>},
                                {"WordLevel", read<WordLevel>}};

// The model's type in old files, which do not have the field.
std::string_view type_of_untyped(const JsonNode& spec) {
  if (!spec["merges"].is_null()) return "BPE";
  if (spec["vocab"].value().is_array()) return "Unigram";
  return spec["continuing_subword_prefix"].is_null() ? "WordLevel" : "WordPiece";
}

}  // namespace

StatusOr<std::unique_ptr<Model>> Model::from_json(const JsonNode& spec) {
  RETURN_IF_ERROR(spec.object().status());
  if (spec["type"].is_null()) {
    for (const ModelRow& row : kModels) {
      if (row.type == type_of_untyped(spec)) return row.read(spec);
    }
  }
  ASSIGN_OR_RETURN(const ModelRow* row, spec.row_of_type(kModels));
  return row->read(spec);
}

}  // namespace nereid::text
