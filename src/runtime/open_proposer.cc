#include "runtime/open_proposer.h"

#include <optional>
#include <utility>

#include "base/log.h"
#include "convert/engine_cache.h"
#include "convert/engine_dir.h"
#include "exec/memory.h"
#include "models/eagle.h"
#include "models/medusa.h"
#include "runtime/draft_model.h"
#include "runtime/kv_sizing.h"
#include "runtime/medusa_heads.h"

namespace nereid::runtime {
namespace {

// Drafts are tokens of the model that tests them.
Status check_draft_tokenizer(const std::filesystem::path& dir, const text::Tokenizer* tokenizer,
                             const std::filesystem::path& draft_model) {
  if (!tokenizer || !text::Tokenizer::has_files(dir)) return ok();
  ASSIGN_OR_RETURN(const auto own, text::Tokenizer::load(dir));
  if (own->vocab_size() != tokenizer->vocab_size())
    return invalid_argument("the tokenizer of '{}' has {} tokens, the model's has {}",
                            draft_model.string(), own->vocab_size(), tokenizer->vocab_size());
  for (int32_t id = 0; id < own->vocab_size(); ++id)
    if (own->token_bytes(id) != tokenizer->token_bytes(id))
      return invalid_argument("token {} of '{}' is another one than the model's", id,
                              draft_model.string());
  return ok();
}

// Opens engines of one model directory after another.
class Opener {
 public:
  Opener(const ModelInstance& model, const io::Plan& plan, const ExecutorConfig& config)
      : model_(model), target_(plan), config_(config) {}

  Status prepare() {
    build_.cache_dir = config_.cache_dir;
    RETURN_IF_ERROR(
        convert::read_weight_formats(config_.weights, config_.head_weights, build_.compile));
    build_.random_weights = config_.random_weights;
    return ok();
  }

  StatusOr<std::vector<io::EngineFile>> draft_model() const {
    ASSIGN_OR_RETURN(const auto engine,
                     convert::ensure_engine(dir(), model_.device.registry, device(), build_));
    ASSIGN_OR_RETURN(io::EngineFile file, io::EngineFile::open(engine, io::Verify::kHeader));
    const io::ModelFacts& facts = file.plan().model;
    if (facts.vocab_size != target_.model.vocab_size)
      return invalid_argument("'{}' has a vocabulary of {} tokens; allowed is the model's, {}",
                              dir().string(), facts.vocab_size, target_.model.vocab_size);
    ASSIGN_OR_RETURN(const auto tokenizer, convert::tokenizer_dir(engine));
    RETURN_IF_ERROR(check_draft_tokenizer(tokenizer, model_.tokenizer.get(), dir()));
    log_info("draft model {} ({})", facts.name, facts.architecture);
    return one(std::move(file));
  }

  StatusOr<std::vector<io::EngineFile>> medusa_heads() const {
    RETURN_IF_ERROR(check_states("Medusa heads"));
    ASSIGN_OR_RETURN(const auto heads, models::read_medusa_config(dir(), target_.model));
    std::vector<io::EngineFile> files;
    for (int32_t i = 0; i < heads.num_heads; ++i) {
      ASSIGN_OR_RETURN(auto head, models::medusa_head(dir(), heads, target_.model, i));
      std::optional<io::Checkpoint> checkpoint;
      if (!build_.random_weights) {
        ASSIGN_OR_RETURN(checkpoint, models::open_medusa_head(dir(), heads, i));
      }
      ASSIGN_OR_RETURN(io::EngineFile file,
                       head_engine(std::move(head), checkpoint ? &*checkpoint : nullptr));
      files.push_back(std::move(file));
    }
    log_info("{} Medusa heads of {}", heads.num_heads, dir().string());
    return files;
  }

  StatusOr<std::vector<io::EngineFile>> eagle_head() const {
    RETURN_IF_ERROR(check_states("an EAGLE head"));
    const std::filesystem::path source = target_.model.source_dir;
    auto target = models::read_model(source);
    if (!target.ok())
      return annotate(target.status(), "an EAGLE head needs the checkpoint of the model");
    ASSIGN_OR_RETURN(auto head, models::read_eagle_head(dir(), *target));
    std::optional<io::Checkpoint> checkpoint;
    if (!build_.random_weights) {
      ASSIGN_OR_RETURN(checkpoint, models::open_eagle_head(dir(), *target, source));
    }
    ASSIGN_OR_RETURN(io::EngineFile file,
                     head_engine(std::move(head), checkpoint ? &*checkpoint : nullptr));
    log_info("EAGLE head of {}", dir().string());
    return one(std::move(file));
  }

 private:
  const std::filesystem::path& dir() const { return config_.draft_model; }
  const DeviceInfo& device() const { return model_.device.device->info(); }

  static std::vector<io::EngineFile> one(io::EngineFile file) {
    std::vector<io::EngineFile> files;
    files.push_back(std::move(file));
    return files;
  }

  Status check_states(std::string_view what) const {
    if (target_.hidden != io::kNone) return ok();
    return invalid_argument("'{}': {} need hidden states, which the model's engine does not give",
                            dir().string(), what);
  }

  StatusOr<io::EngineFile> head_engine(models::Model head, const io::Checkpoint* weights) const {
    ASSIGN_OR_RETURN(
        const convert::Compiled compiled,
        convert::compile_model(std::move(head), model_.device.registry, device(), build_.compile));
    ASSIGN_OR_RETURN(const auto engine,
                     convert::ensure_engine(dir(), compiled, weights, device(), build_));
    return io::EngineFile::open(engine, io::Verify::kHeader);
  }

  const ModelInstance& model_;
  const io::Plan& target_;
  const ExecutorConfig& config_;
  convert::BuildOptions build_;
};

DraftKind kind_of(const std::filesystem::path& dir) {
  if (models::has_medusa_heads(dir)) return DraftKind::kMedusa;
  return models::has_eagle_head(dir) ? DraftKind::kEagle : DraftKind::kModel;
}

// The words of ExecutorConfig::speculation.
constexpr std::string_view kWords[] = {"draft_model", "medusa", "eagle"};

// Of as many heads: what the configuration says, or the chain.
StatusOr<DraftTree> medusa_tree(const ExecutorConfig& config, int32_t num_heads) {
  if (config.medusa_choices.empty()) return DraftTree::chain(num_heads);
  auto tree = parse_draft_tree(config.medusa_choices);
  if (!tree.ok()) return annotate(tree.status(), "medusa_choices");
  if (tree->depth() > num_heads)
    return invalid_argument("medusa_choices: a node is {} deep, and '{}' has {} heads",
                            tree->depth(), config.draft_model.string(), num_heads);
  return tree;
}

Status check_kind(const ExecutorConfig& config, DraftKind kind) {
  const std::string_view word = kWords[static_cast<size_t>(kind)];
  if (!config.medusa_choices.empty() && kind != DraftKind::kMedusa)
    return invalid_argument("medusa_choices: draft_model '{}' is not a folder of Medusa heads",
                            config.draft_model.string());
  if (config.speculation.empty() || config.speculation == "auto" || config.speculation == word)
    return ok();
  return invalid_argument(
      "speculation: {} does not go with draft_model '{}'; allowed are {}, auto "
      "and none",
      config.speculation, config.draft_model.string(), word);
}

}  // namespace

bool wants_draft_engines(const ExecutorConfig& config) {
  return !config.draft_model.empty() && config.speculation != "none";
}

StatusOr<DraftEngines> DraftEngines::open(const ModelInstance& model, const io::EngineFile& target,
                                          const ExecutorConfig& config) {
  DraftEngines out;
  out.kind_ = kind_of(config.draft_model);
  RETURN_IF_ERROR(check_kind(config, out.kind_));
  Opener opener(model, target.plan(), config);
  RETURN_IF_ERROR(opener.prepare());
  auto files = out.kind_ == DraftKind::kMedusa  ? opener.medusa_heads()
               : out.kind_ == DraftKind::kEagle ? opener.eagle_head()
                                                : opener.draft_model();
  if (!files.ok()) return annotate(files.status(), "draft_model");
  out.files_ = *std::move(files);
  if (out.kind_ == DraftKind::kMedusa) {
    ASSIGN_OR_RETURN(out.tree_, medusa_tree(config, static_cast<int32_t>(out.files_.size())));
  }
  if (out.kind_ == DraftKind::kEagle) {
    ASSIGN_OR_RETURN(out.embeddings_, EmbeddingRows::open(target.path()));
  }
  return out;
}

StatusOr<size_t> DraftEngines::bytes(const ExecutorConfig& config, const exec::RunnerLimits& limits,
                                     const DeviceInfo& device) const {
  size_t bytes = 0;
  for (const io::EngineFile& file : files_) {
    ASSIGN_OR_RETURN(const auto own, size_draft_cache(file.plan(), config, limits));
    for (const exec::MemoryItem& item : exec::memory_table(file.plan(), own, device))
      bytes += item.bytes;
  }
  return bytes;
}

StatusOr<std::unique_ptr<Proposer>> DraftEngines::load(const ExecutorConfig& config,
                                                       const exec::RunnerLimits& limits,
                                                       const kernels::OpenedDevice& device) && {
  std::vector<std::unique_ptr<exec::Runner>> runners;
  for (io::EngineFile& file : files_) {
    ASSIGN_OR_RETURN(const auto own, size_draft_cache(file.plan(), config, limits));
    auto runner = exec::make_runner(std::move(file), *device.device, device.registry, own);
    if (!runner.ok()) return annotate(runner.status(), "draft_model");
    runners.push_back(*std::move(runner));
  }
  std::unique_ptr<Proposer> proposer;
  if (kind_ == DraftKind::kMedusa)
    proposer = std::make_unique<MedusaHeads>(std::move(runners), std::move(tree_));
  else if (kind_ == DraftKind::kEagle)
    proposer = std::make_unique<EagleHead>(std::move(runners[0]), *std::move(embeddings_));
  else
    proposer = std::make_unique<DraftModel>(std::move(runners[0]));
  return proposer;
}

}  // namespace nereid::runtime
