#include "convert/quantize/prune.h"

#include <algorithm>

#include "base/file.h"
#include "convert/new_directory.h"
#include "convert/pretty_json.h"
#include "convert/trtllm_checkpoint.h"
#include "io/safetensors_writer.h"
#include "models/config.h"
#include "models/encoder.h"
#include "models/family.h"
#include "models/formats/trtllm.h"

namespace nereid::convert {
namespace {

// Copies the kept tensors of one rank.
Status prune_rank(const std::filesystem::path& from, const std::filesystem::path& to, bool all,
                  PruneReport& report) {
  ASSIGN_OR_RETURN(const io::TensorFile file, io::TensorFile::open(from));
  std::vector<const io::StoredTensor*> kept;
  std::vector<io::TensorInfo> infos;
  for (const io::StoredTensor& tensor : file.tensors()) {
    report.bytes_before += tensor.data.size();
    if (all || tensor.shape.size() > 1) {
      ++report.num_removed;
      continue;
    }
    if (!tensor.type)
      return invalid_argument("{}: tensor '{}' has type {}", from.string(), tensor.name,
                              tensor.dtype);
    report.bytes_after += tensor.data.size();
    kept.push_back(&tensor);
    infos.push_back({tensor.name, *tensor.type, tensor.shape});
  }
  ASSIGN_OR_RETURN(io::SafetensorsWriter writer,
                   io::SafetensorsWriter::create(to, infos, file.rank()));
  for (const io::StoredTensor* tensor : kept) RETURN_IF_ERROR(writer.append(tensor->data));
  return writer.finish();
}

}  // namespace

StatusOr<PruneReport> prune_checkpoint(const PruneOptions& options) {
  std::error_code error;
  if (std::filesystem::equivalent(options.checkpoint_dir, options.output_dir, error))
    return invalid_argument("output_dir: {} is also checkpoint_dir; name another directory",
                            options.output_dir.string());
  ASSIGN_OR_RETURN(const models::Model model, models::read_model(options.checkpoint_dir));
  RETURN_IF_ERROR(models::refuse_encoder_decoder(model, "its folders are not pruned"));
  if (model.layout != models::Layout::kTrtLlm)
    return invalid_argument("checkpoint_dir: {} is not a TensorRT-LLM checkpoint; convert it first",
                            options.checkpoint_dir.string());
  ASSIGN_OR_RETURN(json::object config,
                   models::read_object(options.checkpoint_dir / "config.json"));
  config["is_pruned"] = true;
  config["tie_word_embeddings"] = model.traits.tied_embedding;  // otherwise it would be lost
  ASSIGN_OR_RETURN(NewDirectory output,
                   NewDirectory::create(options.output_dir, is_checkpoint_file));
  PruneReport report;
  for (int32_t rank = 0; rank < model.ranks.num_files(); ++rank) {
    const std::string name = models::rank_file_name(rank);
    RETURN_IF_ERROR(
        prune_rank(options.checkpoint_dir / name, output.path() / name, options.all, report));
  }
  RETURN_IF_ERROR(copy_tokenizer(options.checkpoint_dir, output.path()));
  RETURN_IF_ERROR(write_file_atomic(output.path() / "config.json", pretty_json(config)));
  RETURN_IF_ERROR(output.finish());
  return report;
}

}  // namespace nereid::convert
