// Score head of Hugging Face's ...ForSequenceClassification models: score.weight [labels, hidden]
// on the hidden state of the last token, in place of a language head. Rerankers have one label.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace nereid::models {

inline constexpr std::string_view kScoreTensor = "score.weight";

struct Model;

// InvalidArgument for a model that checkpoints and engines cannot state: one with a score head, or
// whose prompts attend to themselves.
Status check_storable(const Model& model);

// Whether a model of this architecture (config.json's architectures[0]) has a score head.
bool scores_texts(std::string_view architecture);

struct ScoreHead {
  int32_t num_labels = 0;      // 0: no score head
  std::vector<float> weights;  // [num_labels, hidden_size]
};

// The score head of a Hugging Face directory. NotFound, InvalidArgument with file and tensor.
StatusOr<ScoreHead> read_score_head(const std::filesystem::path& dir, int32_t hidden_size);

}  // namespace nereid::models
