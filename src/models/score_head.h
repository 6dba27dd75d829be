// The head of a model that scores texts, as Hugging Face's ...ForSequenceClassification have it:
// score.weight [labels, hidden] reads the state of a text's last token in the place of a language
// head. Published rerankers have one label.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace nereid::models {

inline constexpr std::string_view kScoreTensor = "score.weight";

struct Model;

// InvalidArgument for a model that scores texts, where its head would be left behind.
Status refuse_score_head(const Model& model);

// Whether a model of this architecture (config.json's architectures[0]) scores texts.
bool scores_texts(std::string_view architecture);

struct ScoreHead {
  int32_t num_labels = 0;      // 0: the model has no such head
  std::vector<float> weights;  // [num_labels, hidden_size]
};

// That of a Hugging Face directory. NotFound, InvalidArgument naming file and tensor.
StatusOr<ScoreHead> read_score_head(const std::filesystem::path& dir, int32_t hidden_size);

}  // namespace nereid::models
