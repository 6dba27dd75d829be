#include "convert/trtllm_checkpoint.h"

#include <algorithm>

#include "base/file.h"
#include "base/mapped_file.h"
#include "convert/draft_folder.h"
#include "convert/new_directory.h"
#include "convert/pretty_json.h"
#include "convert/rank_format.h"
#include "convert/weight_source.h"
#include "io/safetensors_writer.h"
#include "models/encoder.h"
#include "models/formats/trtllm.h"
#include "models/score_head.h"

namespace nereid::convert {
namespace {

constexpr int64_t kCopyElements = int64_t{1} << 20;

constexpr const char* kTokenizerFiles[] = {"tokenizer.json",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "tokenizer.model",
                                           "spiece.model",
                                           "tekken.json",
                                           "tiktoken.model",
                                           "qwen.tiktoken",
                                           "vocab.json",
                                           "merges.txt",
                                           "vocab.txt",
                                           "chat_template.jinja",
                                           "generation_config.json"};

struct Precision {
  const char* name;
  DType type;
};
constexpr Precision kPrecisions[] = {
    {"bfloat16", DType::kBF16}, {"float16", DType::kF16}, {"float32", DType::kF32}};

// Element type from config.json, else from the tensors; float16 in place of float32.
const char* stored_type(const models::Model& model, const io::Checkpoint& checkpoint) {
  for (const char* field : {"torch_dtype", "dtype"}) {
    const json::value* type = model.config.if_contains(field);
    if (!type || !type->is_string()) continue;
    for (const char* name : {"bfloat16", "float16", "float32"})
      if (type->get_string() == name) return name == std::string_view("float32") ? "float16" : name;
  }
  const bool has_bf16 = std::ranges::any_of(
      checkpoint.entries(), [](const auto& entry) { return entry.tensor->type == DType::kBF16; });
  return has_bf16 ? "bfloat16" : "float16";
}

StatusOr<Precision> choose(const ConvertOptions& options, const models::Model& model,
                           const io::Checkpoint& checkpoint) {
  const std::string dtype =
      options.dtype == "auto" ? stored_type(model, checkpoint) : options.dtype;
  for (const Precision& target : kPrecisions)
    if (dtype == target.name) return target;
  return invalid_argument("dtype: '{}' is not one of auto, bfloat16, float16, float32",
                          dtype.substr(0, 40));
}

// Writes the values of a rank's tensors, kCopyElements at a time.
class RankWriter {
 public:
  RankWriter(const models::Model& model, const io::Checkpoint& checkpoint, DType to,
             const RankFormat& format, Progress& progress,
             const std::function<void(const Progress&)>& report)
      : graph_(model.graph),
        checkpoint_(checkpoint),
        to_(to),
        format_(format),
        progress_(progress),
        report_(report) {}

  Status write(const std::vector<models::RankTensor>& tensors, const std::filesystem::path& path) {
    std::vector<io::TensorInfo> infos;
    for (const models::RankTensor& tensor : tensors) {
      ASSIGN_OR_RETURN(const std::vector<io::TensorInfo> parts, format_.infos(tensor));
      infos.insert(infos.end(), parts.begin(), parts.end());
    }
    ASSIGN_OR_RETURN(io::SafetensorsWriter writer,
                     io::SafetensorsWriter::create(path, infos, progress_.rank));
    for (const models::RankTensor& tensor : tensors) RETURN_IF_ERROR(write(tensor, writer));
    return writer.finish();
  }

 private:
  Status write(const models::RankTensor& tensor, io::SafetensorsWriter& writer) {
    const auto append_bytes = [&](std::span<const std::byte> bytes) {
      return append(bytes, writer);
    };
    scales_.clear();
    switch (format_.use_of(tensor)) {
      case RankFormat::Use::kFloats:
        RETURN_IF_ERROR(write_floats(tensor, writer));
        break;
      case RankFormat::Use::kRounded:
        RETURN_IF_ERROR(write_rounded(tensor, writer));
        break;
      case RankFormat::Use::kTaken:
        RETURN_IF_ERROR(format_.append_codes(tensor, append_bytes));
    }
    ASSIGN_OR_RETURN(const std::vector<io::TensorInfo> infos, format_.infos(tensor));
    for (const io::TensorInfo& info : std::span(infos).subspan(1)) {
      ASSIGN_OR_RETURN(values_, format_.numbers(tensor, info, scales_));
      bytes_.resize(values_.size() * size_of(info.type));
      if (const size_t bad = convert(info.type); bad != values_.size())
        return invalid_argument("tensor '{}': element {} is {}, which does not fit in {}",
                                info.name, bad, values_[bad], nereid::name_of(info.type));
      RETURN_IF_ERROR(append(bytes_, writer));
    }
    for (const models::RankBlock& block : tensor.blocks) forget(graph_.weights[block.weight]);
    return ok();
  }

  DType type_of(const models::RankTensor& tensor) const {
    return tensor.is_f32 ? DType::kF32 : to_;
  }

  Status write_floats(const models::RankTensor& tensor, io::SafetensorsWriter& writer) {
    const DType type = type_of(tensor);
    uint64_t missing = io::TensorInfo{tensor.name, type, tensor.shape}.bytes();
    for (const models::RankBlock& block : tensor.blocks) {
      RETURN_IF_ERROR(block.transposed ? write_transposed(block, type, writer)
                                       : write_block(block, type, writer));
      missing -= static_cast<uint64_t>(block.rows * block.cols) * size_of(type);
    }
    return write_zeros(missing, writer);
  }

  // Writes codes of some rows at a time, of an even number if possible; keeps the scales.
  Status write_rounded(const models::RankTensor& tensor, io::SafetensorsWriter& writer) {
    const int64_t k = tensor.shape[1], chunk = std::max<int64_t>(2, kCopyElements / k / 2 * 2);
    std::vector<float> rows;
    std::vector<std::byte> codes;
    const auto round = [&](bool is_last) -> Status {
      const auto whole = static_cast<size_t>(k) * 2;
      const size_t count = is_last ? rows.size() : rows.size() / whole * whole;
      codes.clear();
      round_rows(format_.rounding(), to_, std::span(rows).first(count), k, codes, scales_);
      rows.erase(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(count));
      return append(codes, writer);
    };
    for (const models::RankBlock& block : tensor.blocks)
      for (int64_t row = 0; row < block.rows; row += chunk) {
        RETURN_IF_ERROR(read_block(block, row, std::min(chunk, block.rows - row)));
        rows.insert(rows.end(), values_.begin(), values_.end());
        RETURN_IF_ERROR(round(false));
        forget(graph_.weights[block.weight]);
      }
    return round(true);
  }

  // Reads rows [row, row + rows) of the block into values_.
  Status read_block(const models::RankBlock& block, int64_t row, int64_t rows) {
    const graph::Weight& weight = graph_.weights[block.weight];
    const int64_t k = weight.is_vector ? 1 : weight.k;
    values_.resize(static_cast<size_t>(rows * block.cols));
    const int64_t first = (block.row + row) * k + block.col;
    const std::span<float> values(values_);
    if (block.cols == k) return read_values(weight, checkpoint_, first, values);
    for (int64_t i = 0; i < rows; ++i)
      RETURN_IF_ERROR(read_values(
          weight, checkpoint_, first + i * k,
          values.subspan(static_cast<size_t>(i * block.cols), static_cast<size_t>(block.cols))));
    return ok();
  }

  void forget(const graph::Weight& weight) {
    for (const graph::WeightPart& part : weight.parts)
      forget_pages(checkpoint_.find(part.tensor)->tensor->data);
  }

  Status write_block(const models::RankBlock& block, DType type, io::SafetensorsWriter& writer) {
    const graph::Weight& weight = graph_.weights[block.weight];
    const int64_t k = weight.is_vector ? 1 : weight.k;
    const int64_t chunk = std::max<int64_t>(1, kCopyElements / block.cols);
    for (int64_t row = 0; row < block.rows; row += chunk) {
      const int64_t rows = std::min(chunk, block.rows - row);
      RETURN_IF_ERROR(read_block(block, row, rows));
      const int64_t first = (block.row + row) * k + block.col;
      bytes_.resize(values_.size() * size_of(type));
      if (const size_t bad = convert(type); bad != values_.size())
        return refuse(weight, first / k + static_cast<int64_t>(bad) / block.cols,
                      block.col + static_cast<int64_t>(bad) % block.cols, values_[bad], type);
      RETURN_IF_ERROR(append(bytes_, writer));
      forget(weight);
    }
    return ok();
  }

  // At once: it is one head's matrix.
  Status write_transposed(const models::RankBlock& block, DType type,
                          io::SafetensorsWriter& writer) {
    RETURN_IF_ERROR(read_block(block, 0, block.rows));
    const std::vector<float> read = values_;
    for (int64_t row = 0; row < block.rows; ++row)
      for (int64_t col = 0; col < block.cols; ++col)
        values_[static_cast<size_t>(col * block.rows + row)] =
            read[static_cast<size_t>(row * block.cols + col)];
    bytes_.resize(values_.size() * size_of(type));
    if (const size_t bad = convert(type); bad != values_.size()) {
      const auto at = static_cast<int64_t>(bad);
      return refuse(graph_.weights[block.weight], block.row + at % block.rows, at / block.rows,
                    values_[bad], type);
    }
    return append(bytes_, writer);
  }

  Status write_zeros(uint64_t bytes, io::SafetensorsWriter& writer) {
    bytes_.assign(std::min<uint64_t>(bytes, kCopyElements), std::byte{0});
    for (; bytes > 0; bytes -= bytes_.size()) {
      bytes_.resize(std::min<uint64_t>(bytes, bytes_.size()));
      RETURN_IF_ERROR(append(bytes_, writer));
    }
    return ok();
  }

  Status append(std::span<const std::byte> bytes, io::SafetensorsWriter& writer) {
    RETURN_IF_ERROR(writer.append(bytes));
    progress_.bytes += bytes.size();
    if (report_) report_(progress_);
    return ok();
  }

  // Converts values_ to bytes_; returns the index of the first element out of range, or the size.
  size_t convert(DType type) {
    for (size_t i = 0; i < values_.size(); ++i)
      if (!store_as(type, values_[i], bytes_.data() + i * size_of(type))) return i;
    return values_.size();
  }

  // Error with the source tensor of the weight's row.
  Status refuse(const graph::Weight& weight, int64_t row, int64_t col, float value,
                DType type) const {
    const graph::WeightPart* found = &weight.parts[0];
    const int64_t k = weight.is_vector ? 1 : weight.k;
    int64_t begin = 0, at = 0;
    for (const graph::WeightPart& part : weight.parts) {
      if (begin <= row) found = &part, at = begin;
      if (part.width(k) == k) begin += part.size;
    }
    return invalid_argument("{}: tensor '{}': element {} is {}, which is out of {}'s range{}",
                            checkpoint_.find(found->tensor)->file->path().string(), found->tensor,
                            (row - at) * k + col, value, nereid::name_of(type),
                            type == DType::kF16 ? "; choose dtype bfloat16" : "");
  }

  const graph::Graph& graph_;
  const io::Checkpoint& checkpoint_;
  const DType to_;
  const RankFormat& format_;
  Progress& progress_;
  const std::function<void(const Progress&)>& report_;
  std::vector<float> values_, scales_;
  std::vector<std::byte> bytes_;
};

using RankTensors = std::vector<std::vector<models::RankTensor>>;  // by rank

Status write_ranks(const RankTensors& ranks, RankWriter& writer, const RankFormat& format,
                   const std::filesystem::path& dir, Progress& progress, ConvertReport& report) {
  for (const auto& tensors : ranks)
    for (const models::RankTensor& tensor : tensors) {
      ASSIGN_OR_RETURN(const std::vector<io::TensorInfo> infos, format.infos(tensor));
      for (const io::TensorInfo& info : infos) progress.total_bytes += info.bytes();
    }
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    progress.rank = static_cast<int32_t>(rank);
    RETURN_IF_ERROR(
        writer.write(ranks[rank], dir / models::rank_file_name(static_cast<int32_t>(rank))));
    report.num_tensors += ranks[rank].size();
  }
  report.bytes = progress.total_bytes;
  return ok();
}

// Biases of column-split products are stored by the first rank only, if products add them before
// ranks are summed.
void clear_biases(const models::Ranks& by, RankTensors& ranks) {
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    for (models::RankTensor& tensor : ranks[rank])
      if (rank % static_cast<size_t>(by.tp) != 0 &&
          (tensor.name.ends_with("attention.dense.bias") || tensor.name.ends_with("mlp.proj.bias")))
        tensor.blocks.clear();
}

}  // namespace

bool is_checkpoint_file(std::string_view name) {
  return name == "config.json" || name == kDraftFolder ||
         (name.starts_with("rank") && name.ends_with(".safetensors")) ||
         std::ranges::find(kTokenizerFiles, name) != std::end(kTokenizerFiles);
}

Status copy_tokenizer(const std::filesystem::path& from, const std::filesystem::path& to) {
  std::error_code error;
  if (std::filesystem::equivalent(from, to, error)) return ok();
  for (const char* name : kTokenizerFiles) {
    if (!std::filesystem::is_regular_file(from / name, error)) continue;
    std::filesystem::copy_file(from / name, to / name,
                               std::filesystem::copy_options::overwrite_existing, error);
    if (error) return unavailable("{}: {}", (to / name).string(), error.message());
  }
  return ok();
}

StatusOr<ConvertReport> convert_checkpoint(const ConvertOptions& asked) {
  ConvertOptions options = asked;
  ASSIGN_OR_RETURN(options.ranks, models::check_ranks(asked.ranks));
  std::error_code error;
  if (std::filesystem::equivalent(options.model_dir, options.output_dir, error))
    return invalid_argument("output_dir: {} is also model_dir; name another directory",
                            options.output_dir.string());
  ASSIGN_OR_RETURN(models::Model model, models::read_model(options.model_dir));
  RETURN_IF_ERROR(models::refuse_score_head(model));
  RETURN_IF_ERROR(models::refuse_encoder_decoder(model));
  ASSIGN_OR_RETURN(const io::Checkpoint checkpoint,
                   models::open_checkpoint(model, options.model_dir));
  RETURN_IF_ERROR(
      models::check_tensors(model.graph, checkpoint, model.traits, model.family->ignores));
  models::use_stored_formats(model.graph, checkpoint);
  ASSIGN_OR_RETURN(const Precision target, choose(options, model, checkpoint));
  ConvertReport report{.dtype = target.name};
  ASSIGN_OR_RETURN(json::object config, models::trtllm_config(model, target.name, options.ranks));
  RankTensors ranks;
  for (int32_t rank = 0; rank < options.ranks.num_files(); ++rank) {
    ASSIGN_OR_RETURN(ranks.emplace_back(), models::rank_tensors(model.graph, options.ranks, rank));
  }
  const RankFormatOptions wanted{
      options.weights,   target.type,         options.cache.value_or(model.quantization.cache),
      options.smoothing, &options.magnitudes, options.rounds,
      options.group};
  ASSIGN_OR_RETURN(const RankFormat format,
                   RankFormat::create(wanted, model.graph, checkpoint, ranks));
  if (format.adds_biases()) clear_biases(options.ranks, ranks);
  config["quantization"] = format.quantization();
  ASSIGN_OR_RETURN(NewDirectory output,
                   NewDirectory::create(options.output_dir, is_checkpoint_file));
  Progress progress;
  RankWriter writer(model, checkpoint, target.type, format, progress, options.progress);
  if (!options.config_only)
    RETURN_IF_ERROR(write_ranks(ranks, writer, format, output.path(), progress, report));
  RETURN_IF_ERROR(copy_tokenizer(options.model_dir, output.path()));
  RETURN_IF_ERROR(write_file_atomic(output.path() / "config.json", pretty_json(config)));
  RETURN_IF_ERROR(output.finish());
  return report;
}

}  // namespace nereid::convert
