// Opens a model directory's tensors under the names in its graph.
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/gguf.h"
#include "base/hash.h"
#include "base/log.h"
#include "models/expert_tensors.h"
#include "models/formats/gguf.h"
#include "models/formats/meta.h"
#include "models/formats/openai_whisper.h"
#include "models/formats/trtllm.h"
#include "models/pictures.h"
#include "models/text_part.h"

namespace nereid::models {
namespace {

// Leftovers of converter versions: derived from config.json or from other tensors.
bool is_derived(std::string_view name) {
  return name == "embedding.vocab_embedding.weight" || name.ends_with("rotary_inv_freq") ||
         name.ends_with("embed_positions") || name.ends_with("embed_positions_for_gpt_attention") ||
         name.ends_with("rotary_cos_sin") || name.ends_with("attention.fused_q_proj");
}

using TensorNames = std::set<std::string, std::less<>>;

TensorNames tensors_of(const graph::Graph& graph) {
  TensorNames names;
  for (const graph::Weight& weight : graph.weights)
    for (const graph::WeightPart& part : weight.parts) names.insert(part.tensor);
  return names;
}

// Renames a rank's tensors; drops replicas of other ranks' tensors and unwanted ones.
class RankTranslator {
 public:
  static StatusOr<RankTranslator> create(const RankFolder& folder, TensorNames wanted) {
    RankTranslator out;
    out.wanted_ = std::move(wanted);
    const int32_t num_files = folder.ranks.num_files();
    for (int32_t rank = 0; rank < num_files; ++rank) {
      ASSIGN_OR_RETURN(auto tensors, rank_tensors(folder.graph, folder.ranks, rank));
      const auto& suffix =
          out.suffixes_.emplace_back(num_files == 1 ? "" : fmt::format("@rank{}", rank));
      for (RankTensor& tensor : tensors) {
        if (tensor.is_stacked) out.stacked_.insert(tensor.name + suffix);
        if (folder.graph.model.num_cross_layers > 0) out.known_.insert(tensor.name);
        out.shapes_.emplace(tensor.name + suffix, std::move(tensor.shape));
      }
    }
    if (folder.is_tied) out.known_.insert("lm_head.weight");
    out.is_quantised_ = !folder.quantization.empty();
    return out;
  }
  const TensorShapes& shapes() const { return shapes_; }

  StatusOr<std::vector<io::StoredTensor>> translate(size_t rank,
                                                    const io::StoredTensor& stored) const {
    std::vector<io::StoredTensor> out;
    if (is_derived(stored.name)) return out;
    const std::string name = stored.name + suffixes_[rank];
    if (is_quantised_ && is_quantization_part(stored.name)) {
      out.push_back(stored);
      out[0].name = name;
      return out;
    }
    const auto it = shapes_.find(name);
    if (it == shapes_.end() && known_.contains(stored.name)) return out;
    if (it == shapes_.end())
      return invalid_argument("tensor '{}' is not part of a model of this config.json",
                              stored.name.substr(0, 200));
    const bool has_numbers = !is_quantised_ || is_float(stored.type);
    if (has_numbers && stored.shape != it->second)
      return invalid_argument("tensor '{}' has shape {}, config.json asks for [{}]", stored.name,
                              stored.shape_text(), fmt::join(it->second, ", "));
    if (!wanted_.contains(name)) return out;
    out.push_back(stored);
    out[0].name = name;
    if (has_numbers && stacked_.contains(name)) {
      const int64_t rows = stored.shape[0] * stored.shape[1];
      out[0].shape.erase(out[0].shape.begin());
      out[0].shape[0] = rows;
    }
    if (has_numbers && out[0].shape.size() == 4) out[0].shape.pop_back();  // a convolution
    return out;
  }

 private:
  static bool is_float(std::optional<DType> type) {
    return type == DType::kF32 || type == DType::kBF16 || type == DType::kF16;
  }

  TensorNames wanted_;
  TensorShapes shapes_;
  TensorNames stacked_;
  TensorNames known_;                  // left out, where a rank does not need them
  std::vector<std::string> suffixes_;  // by rank
  bool is_quantised_ = false;
};

// Hash of names and the beginning of each tensor; equal hashes are compared in full.
uint64_t fingerprint(const io::TensorFile& file) {
  uint64_t hash = 0;
  for (const io::StoredTensor& tensor : file.tensors()) {
    hash = hash64(tensor.name, hash);
    hash = hash64(tensor.data.data(), std::min<size_t>(tensor.data.size(), 64), hash);
  }
  return hash;
}

bool same_tensors(const io::TensorFile& a, const io::TensorFile& b) {
  return std::ranges::equal(a.tensors(), b.tensors(), [](const auto& x, const auto& y) {
    return x.name == y.name && x.dtype == y.dtype && x.shape == y.shape &&
           std::ranges::equal(x.data, y.data);
  });
}

// Detects files of ranks in the wrong place: files of this program name their rank; other files
// must be pairwise different (swapped ones are not detected).
Status check_places(const io::Checkpoint& checkpoint) {
  std::map<uint64_t, const io::TensorFile*> seen;
  for (size_t rank = 0; rank < checkpoint.files().size(); ++rank) {
    const io::TensorFile& file = *checkpoint.files()[rank];
    if (file.rank() && *file.rank() != static_cast<int32_t>(rank))
      return data_loss("{}: has the tensors of rank {}; copy each rank's file to its own name",
                       file.path().string(), *file.rank());
    const auto [other, is_new] = seen.emplace(fingerprint(file), &file);
    if (!is_new && same_tensors(*other->second, file))
      return data_loss("{}: has the same tensors as {}, which is another rank's",
                       file.path().string(), other->second->path().string());
  }
  return ok();
}

StatusOr<io::Checkpoint> open_ranks(const RankFolder& folder, TensorNames wanted) {
  std::vector<std::filesystem::path> files;
  for (int32_t rank = 0; rank < folder.ranks.num_files(); ++rank) {
    files.push_back(folder.dir / rank_file_name(rank, folder.in_engines));
    std::error_code error;
    if (!std::filesystem::exists(files.back(), error))
      return not_found("{}: is missing; config.json says that this is {}{}", files.back().string(),
                       folder.in_engines ? "an engine" : "a TensorRT-LLM checkpoint",
                       folder.ranks.num_files() == 1
                           ? ""
                           : fmt::format(" of {} ranks", folder.ranks.num_files()));
  }
  ASSIGN_OR_RETURN(const RankTranslator translator,
                   RankTranslator::create(folder, std::move(wanted)));
  ASSIGN_OR_RETURN(
      io::Checkpoint checkpoint,
      io::Checkpoint::open_files(files, [&](size_t rank, const io::StoredTensor& stored) {
        return translator.translate(rank, stored);
      }));
  RETURN_IF_ERROR(check_places(checkpoint));
  if (!folder.quantization.empty())
    RETURN_IF_ERROR(
        annotate(join_rank_tensors(folder.quantization, translator.shapes(), checkpoint),
                 folder.dir.string()));
  return checkpoint;
}

// The tensors of both folders of an encoder-decoder model, with the folder's name in front.
StatusOr<io::Checkpoint> open_folders(const Model& model) {
  const TensorNames all = tensors_of(model.graph);
  std::optional<io::Checkpoint> out;
  for (const RankFolder& folder : model.folders) {
    const std::string front = folder.dir.filename().string() + "/";
    TensorNames wanted;
    for (const std::string& name : all)
      if (name.starts_with(front)) wanted.insert(name.substr(front.size()));
    if (wanted.empty()) continue;
    ASSIGN_OR_RETURN(io::Checkpoint one, open_ranks(folder, std::move(wanted)));
    RETURN_IF_ERROR(one.rename([&](const std::string& name) { return front + name; }));
    if (!out)
      out = std::move(one);
    else
      RETURN_IF_ERROR(out->add(std::move(one)));
  }
  return *std::move(out);
}

StatusOr<io::Checkpoint> open_trtllm(const Model& model, const std::filesystem::path& dir) {
  if (is_pruned(model.config))
    return invalid_argument(
        "{}: is_pruned is true: no weights; trtllm-build builds an engine from it, and "
        "trtllm-refit adds the weights of the whole checkpoint",
        (dir / "config.json").string());
  if (!model.folders.empty()) return open_folders(model);
  const RankFolder folder{.dir = dir,
                          .graph = model.graph,
                          .ranks = model.ranks,
                          .quantization = model.quantization,
                          .in_engines = model.in_engines,
                          .is_tied = model.traits.tied_embedding};
  return open_ranks(folder, tensors_of(model.graph));
}

// Experts and heads are concatenated: by rows for a matrix, by elements for a vector.
StatusOr<io::Checkpoint> open_gguf(const Model& model, const std::filesystem::path& path) {
  std::map<std::string, bool, std::less<>> is_vector;
  for (const graph::Weight& weight : model.graph.weights)
    for (const graph::WeightPart& part : weight.parts)
      is_vector.emplace(part.tensor, weight.is_vector);
  const auto translate = [&](size_t, const io::StoredTensor& stored) {
    std::vector<io::StoredTensor> out;
    if (is_gguf_extra(stored.name, model.gguf)) return StatusOr<decltype(out)>(out);
    std::vector<int64_t>& shape = out.emplace_back(stored).shape;
    const auto wanted = is_vector.find(stored.name);
    const size_t dims = wanted != is_vector.end() && wanted->second ? 1 : 2;
    for (; shape.size() > dims; shape.erase(shape.begin()))
      if (__builtin_mul_overflow(shape[0], shape[1], &shape[1]))
        return StatusOr<decltype(out)>(
            invalid_argument("tensor '{}' is too large", stored.name.substr(0, 200)));
    if (wanted != is_vector.end() && dims == 2 && shape.size() == 1) shape.insert(shape.begin(), 1);
    return StatusOr<decltype(out)>(std::move(out));
  };
  ASSIGN_OR_RETURN(const auto files, gguf_files(path));
  ASSIGN_OR_RETURN(io::Checkpoint checkpoint, io::Checkpoint::open_files(files, translate));
  for (const auto& [name, number] : model.gguf.numbers)
    RETURN_IF_ERROR(checkpoint.add_vector(name, {number}));
  if (model.gguf.num_mtp_layers > 0)
    log_info("{}: {} MTP layer(s) are ignored", path.string(), model.gguf.num_mtp_layers);
  return checkpoint;
}

StatusOr<io::Checkpoint> open_meta(const Model& model, const std::filesystem::path& dir) {
  std::vector<std::filesystem::path> files;
  for (int32_t i = 0; i < model.meta.num_files; ++i) files.push_back(dir / meta_file_name(i));
  const auto translate = [&](size_t file, const io::StoredTensor& stored) {
    std::vector<io::StoredTensor> out;
    if (is_meta_extra(stored.name, file)) return StatusOr<std::vector<io::StoredTensor>>(out);
    out.push_back(stored);
    const bool is_shared = files.size() > 1 && !stored.name.ends_with("norm.weight");
    if (is_shared) out[0].name += fmt::format("@rank{}", file);
    return StatusOr<std::vector<io::StoredTensor>>(std::move(out));
  };
  ASSIGN_OR_RETURN(io::Checkpoint checkpoint, io::Checkpoint::open_files(files, translate));
  RETURN_IF_ERROR(check_places(checkpoint));
  return checkpoint;
}

// Transposed modules (GPT-2) have quantised matrices in the usual orientation.
void turn_matrices(const graph::Graph& graph, io::Checkpoint& checkpoint) {
  for (const graph::Weight& weight : graph.weights)
    for (const graph::WeightPart& part : weight.parts) {
      const io::Checkpoint::Entry* const entry = checkpoint.find(part.tensor);
      if (part.transposed && entry && entry->tensor->encoding && !entry->tensor->transposed &&
          entry->tensor->shape.size() == 2)
        checkpoint.turn(part.tensor);
    }
}

// Adds the weights (ones) of norms that are absent in the checkpoint.
Status add_unit_norms(const graph::Graph& graph, const Traits& traits, io::Checkpoint& checkpoint) {
  for (const graph::Weight& weight : graph.weights)
    if (has_ones(traits, weight.name) && !checkpoint.find(weight.parts[0].tensor))
      RETURN_IF_ERROR(checkpoint.add_vector(weight.parts[0].tensor,
                                            std::vector<float>(static_cast<size_t>(weight.k), 1)));
  return ok();
}

}  // namespace

StatusOr<io::Checkpoint> open_checkpoint(const Model& model, const std::filesystem::path& dir) {
  if (model.layout == Layout::kTrtLlm) return open_trtllm(model, dir);
  if (model.layout == Layout::kGguf) {
    ASSIGN_OR_RETURN(io::Checkpoint checkpoint, open_gguf(model, dir));
    RETURN_IF_ERROR(add_unit_norms(model.graph, model.traits, checkpoint));
    return checkpoint;
  }
  if (model.layout == Layout::kMeta) return open_meta(model, dir);
  if (model.layout == Layout::kOpenAi) {
    const auto translate = [](size_t, const io::StoredTensor& stored) {
      std::vector<io::StoredTensor> out = {stored};
      out[0].name = name_of_openai_tensor(stored.name);
      return StatusOr<std::vector<io::StoredTensor>>(std::move(out));
    };
    return io::Checkpoint::open_files({openai_whisper_file(dir)}, translate);
  }
  ASSIGN_OR_RETURN(io::Checkpoint checkpoint, io::Checkpoint::open(dir));
  RETURN_IF_ERROR(join_quantized(model.quantization, checkpoint));
  const bool is_pictures = model.half == Half::kEncoder && model.pictures;
  if (model.is_text_part)
    RETURN_IF_ERROR(checkpoint.rename(is_pictures ? name_in_picture_part : name_in_text_part));
  const std::string prefix(model.family->optional_prefix);
  const auto& entries = checkpoint.entries();
  const bool lacks_it = std::none_of(entries.begin(), entries.end(), [&](const auto& entry) {
    return entry.tensor->name.starts_with(prefix);
  });
  if (lacks_it && !prefix.empty())
    RETURN_IF_ERROR(checkpoint.rename([&](const std::string& name) { return prefix + name; }));
  RETURN_IF_ERROR(divide_experts(model.graph, checkpoint));
  turn_matrices(model.graph, checkpoint);
  RETURN_IF_ERROR(add_unit_norms(model.graph, model.traits, checkpoint));
  return checkpoint;
}

}  // namespace nereid::models
