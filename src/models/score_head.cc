#include "models/score_head.h"

#include <cstring>

#include "io/checkpoint.h"
#include "models/family.h"

namespace nereid::models {
namespace {

constexpr int64_t kMaxLabels = 4096;

template <class T>
void append_floats(std::span<const std::byte> data, std::vector<float>& out) {
  out.resize(data.size() / sizeof(T));
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, data.data() + i * sizeof(T), sizeof(T));
    if constexpr (std::is_same_v<T, float>)
      out[i] = value;
    else
      out[i] = to_float(value);
  }
}

}  // namespace

bool scores_texts(std::string_view architecture) {
  return architecture.ends_with("ForSequenceClassification");
}

Status check_storable(const Model& model) {
  if (model.graph.model.pictures.whole_prompts)
    return invalid_argument(
        "architecture '{}': the tokens of its prompts attend to one another, which checkpoints and "
        "engines cannot state; serve it from its own folder",
        model.graph.model.architecture);
  if (!model.traits.crosses.empty())
    return invalid_argument(
        "architecture '{}': checkpoints and engines cannot state its layers of cross attention to "
        "pictures; serve it from its own folder",
        model.graph.model.architecture);
  if (!model.traits.scores) return ok();
  return invalid_argument(
      "architecture '{}': a model that scores texts is served from its own folder; "
      "checkpoints and engines cannot store its head",
      model.graph.model.architecture);
}

StatusOr<ScoreHead> read_score_head(const std::filesystem::path& dir, int32_t hidden_size) {
  ASSIGN_OR_RETURN(const io::Checkpoint checkpoint, io::Checkpoint::open(dir));
  const auto where = checkpoint.main_file().string();
  const io::Checkpoint::Entry* entry = checkpoint.find(kScoreTensor);
  if (!entry) return not_found("{}: tensor '{}' is missing", where, kScoreTensor);
  const io::StoredTensor& tensor = *entry->tensor;
  if (tensor.shape.size() != 2 || tensor.shape[1] != hidden_size || tensor.shape[0] < 1 ||
      tensor.shape[0] > kMaxLabels)
    return invalid_argument("{}: tensor '{}' has shape {}; [1 to {}, {}] is allowed", where,
                            kScoreTensor, tensor.shape_text(), kMaxLabels, hidden_size);
  ScoreHead head{.num_labels = static_cast<int32_t>(tensor.shape[0])};
  if (tensor.type == DType::kF32)
    append_floats<float>(tensor.data, head.weights);
  else if (tensor.type == DType::kBF16)
    append_floats<BF16>(tensor.data, head.weights);
  else if (tensor.type == DType::kF16)
    append_floats<F16>(tensor.data, head.weights);
  else
    return invalid_argument("{}: tensor '{}' is {}; F32, F16 and BF16 are allowed", where,
                            kScoreTensor, tensor.dtype);
  return head;
}

}  // namespace nereid::models
