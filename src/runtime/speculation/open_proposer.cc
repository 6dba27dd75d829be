#include "runtime/speculation/open_proposer.h"

#include <fmt/ranges.h>

#include <numeric>
#include <optional>
#include <utility>

#include "base/log.h"
#include "convert/draft_folder.h"
#include "convert/engine_cache.h"
#include "convert/engine_dir.h"
#include "exec/memory.h"
#include "models/drafts/eagle.h"
#include "models/drafts/eagle3.h"
#include "models/drafts/medusa.h"
#include "models/drafts/mtp.h"
#include "models/drafts/redrafter.h"
#include "runtime/kv_sizing.h"
#include "runtime/speculation/draft_model.h"
#include "runtime/speculation/medusa_heads.h"
#include "runtime/speculation/recurrent_drafter.h"

namespace nereid::runtime {
namespace {

// Draft model and target model must have the same tokens.
Status check_draft_tokenizer(const std::filesystem::path& dir, const text::Tokenizer* tokenizer,
                             const std::filesystem::path& draft_model) {
  if (!tokenizer || !text::Tokenizer::has_files(dir)) return ok();
  ASSIGN_OR_RETURN(const auto own, text::Tokenizer::load(dir));
  if (own->vocab_size() != tokenizer->vocab_size())
    return invalid_argument("the tokenizer of '{}' has {} tokens, the model's has {}",
                            draft_model.string(), own->vocab_size(), tokenizer->vocab_size());
  for (int32_t id = 0; id < own->vocab_size(); ++id)
    if (own->token_bytes(id) != tokenizer->token_bytes(id))
      return invalid_argument("token {} of '{}' differs from the model's", id,
                              draft_model.string());
  return ok();
}

// Opens the engines of a draft model directory.
class Opener {
 public:
  Opener(const ModelInstance& model, const io::Plan& plan, const ExecutorConfig& config)
      : model_(model), target_(plan), config_(config) {}

  Status prepare() {
    build_.cache_dir = config_.cache_dir;
    RETURN_IF_ERROR(convert::read_weight_formats(config_.weights, config_.head_weights,
                                                 config_.expert_weights, build_.compile));
    build_.random_weights = config_.random_weights;
    build_.measure_on = model_.device.device.get();
    return ok();
  }

  StatusOr<std::vector<io::EngineFile>> draft_model() const {
    ASSIGN_OR_RETURN(const auto engine,
                     convert::ensure_engine(dir(), model_.device.registry, device(), build_));
    ASSIGN_OR_RETURN(const auto tokenizer, convert::tokenizer_dir(engine));
    ASSIGN_OR_RETURN(io::EngineFile file, convert::take_engine(engine));
    const io::ModelFacts& facts = file.plan().model;
    if (facts.vocab_size != target_.model.vocab_size)
      return invalid_argument("'{}' has a vocabulary of {} tokens; allowed is the model's, {}",
                              dir().string(), facts.vocab_size, target_.model.vocab_size);
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

  // Sets `shape`.
  StatusOr<std::vector<io::EngineFile>> redrafter(TreeShape& shape) const {
    RETURN_IF_ERROR(check_states("a ReDrafter head"));
    ASSIGN_OR_RETURN(const auto head, models::read_redrafter_config(dir(), target_.model));
    shape = beams(head.num_beams, head.beam_length);
    ASSIGN_OR_RETURN(auto model, models::redrafter_head(dir(), head, target_.model));
    std::optional<io::Checkpoint> checkpoint;
    if (!build_.random_weights) {
      ASSIGN_OR_RETURN(checkpoint, models::open_redrafter(dir()));
    }
    ASSIGN_OR_RETURN(io::EngineFile file,
                     head_engine(std::move(model), checkpoint ? &*checkpoint : nullptr));
    log_info("ReDrafter head of {}: its network runs on {}, its beam search on the host",
             dir().string(), device().id());
    return one(std::move(file));
  }

  StatusOr<std::vector<io::EngineFile>> eagle_head() const {
    RETURN_IF_ERROR(check_states("an EAGLE head"));
    ASSIGN_OR_RETURN(io::EngineFile file, eagle_engine("an EAGLE head"));
    log_info("EAGLE head of {}", dir().string());
    return one(std::move(file));
  }

  // Sets the token mapping of `input`.
  StatusOr<std::vector<io::EngineFile>> eagle3_head(HeadInput& input) const {
    RETURN_IF_ERROR(check_layers(target_.model.num_layers));
    ASSIGN_OR_RETURN(io::EngineFile file, eagle_engine("an EAGLE-3 head"));
    const int32_t num_tokens = file.plan().model.vocab_size;
    if (build_.random_weights) {
      input.tokens.resize(static_cast<size_t>(num_tokens));
      std::iota(input.tokens.begin(), input.tokens.end(), 0);
    } else {
      ASSIGN_OR_RETURN(input.tokens,
                       models::eagle3_tokens(dir(), num_tokens, target_.model.vocab_size));
    }
    log_info("EAGLE-3 head of {}", dir().string());
    return one(std::move(file));
  }

  StatusOr<std::vector<io::EngineFile>> mtp_layer() const {
    RETURN_IF_ERROR(check_states("MTP layers"));
    const std::filesystem::path source = target_.model.source_dir;
    ASSIGN_OR_RETURN(const auto target, read_target("an MTP layer"));
    ASSIGN_OR_RETURN(auto layer, models::mtp_layer(source, target));
    std::optional<io::Checkpoint> checkpoint;
    if (!build_.random_weights) {
      ASSIGN_OR_RETURN(checkpoint, models::open_checkpoint(target, source));
    }
    ASSIGN_OR_RETURN(io::EngineFile file,
                     head_engine(std::move(layer), checkpoint ? &*checkpoint : nullptr));
    log_info("MTP layer {} of {}", target.traits.num_layers, source.string());
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

  // Default: as many drafts as the beams have tokens.
  TreeShape beams(int32_t count, int32_t length) const {
    if (count == 1) return {.fixed = DraftTree::chain(length)};
    const int32_t most = std::min(count * length, exec::kMaxTreeDrafts);
    return {.top_k = count,
            .depth = length,
            .num_drafts = config_.max_draft_len > 0 ? config_.max_draft_len : most};
  }

  Status check_states(std::string_view what) const {
    if (!target_.hidden.empty()) return ok();
    return invalid_argument("'{}': {} need hidden states, which the model's engine does not give",
                            dir().string(), what);
  }

  // The head's engine from trtllm-build, else one built from both checkpoints.
  StatusOr<io::EngineFile> eagle_engine(std::string_view what) const {
    if (!convert::given_engine(dir()).empty()) return built_head();
    ASSIGN_OR_RETURN(const auto target, read_target(what));
    ASSIGN_OR_RETURN(auto parts, convert::read_eagle_parts(dir(), target, target_.model.source_dir,
                                                           build_.random_weights));
    return head_engine(std::move(parts.head), parts.weights ? &*parts.weights : nullptr);
  }

  StatusOr<io::EngineFile> built_head() const {
    convert::BuildOptions options;
    options.cache_dir = build_.cache_dir;
    ASSIGN_OR_RETURN(const auto engine,
                     convert::ensure_engine(dir(), model_.device.registry, device(), options));
    ASSIGN_OR_RETURN(io::EngineFile file, convert::take_engine(engine));
    const io::ModelFacts& own = file.plan().model;
    const io::ModelFacts& wanted = target_.model;
    const bool is_eagle3 = own.architecture == "Eagle3Head";
    if (is_eagle3 != models::has_eagle3_head(dir()) ||
        (!is_eagle3 && own.architecture != "EagleHead") || own.hidden_size != wanted.hidden_size ||
        (is_eagle3 ? own.vocab_size > wanted.vocab_size : own.vocab_size != wanted.vocab_size))
      return invalid_argument(
          "{}: {} of {} tokens, {} wide, does not go with a model of {} tokens, {} wide",
          engine.string(), own.architecture, own.vocab_size, own.hidden_size, wanted.vocab_size,
          wanted.hidden_size);
    return file;
  }

  StatusOr<models::Model> read_target(std::string_view what) const {
    auto target = models::read_model(target_.model.source_dir);
    if (!target.ok())
      return annotate(target.status(), fmt::format("{} needs the checkpoint of the model", what));
    return target;
  }

  // A prebuilt engine may lack these hidden states.
  Status check_layers(int32_t num_layers) const {
    RETURN_IF_ERROR(check_states("an EAGLE-3 head"));
    ASSIGN_OR_RETURN(const auto layers, models::eagle3_layers(dir(), num_layers));
    std::vector<std::string> wanted, given;
    for (const int32_t layer : layers) wanted.push_back(fmt::format("layers.{}.state", layer));
    for (size_t i = 1; i < target_.hidden.size(); ++i)
      given.push_back(target_.values[static_cast<size_t>(target_.hidden[i])].name);
    if (wanted == given) return ok();
    return invalid_argument("'{}' reads {}; the model's engine gives {}: use its checkpoint",
                            dir().string(), fmt::join(wanted, ", "),
                            given.empty() ? "none" : fmt::format("{}", fmt::join(given, ", ")));
  }

  StatusOr<io::EngineFile> head_engine(models::Model head, const io::Checkpoint* weights) const {
    ASSIGN_OR_RETURN(
        convert::Compiled compiled,
        convert::compile_model(std::move(head), model_.device.registry, device(), build_.compile));
    const std::string dir = compiled.model.graph.model.source_dir;
    ASSIGN_OR_RETURN(const auto engine,
                     convert::ensure_engine(dir, model_.device.registry, std::move(compiled),
                                            weights, device(), build_));
    return convert::take_engine(engine);
  }

  const ModelInstance& model_;
  const io::Plan& target_;
  const ExecutorConfig& config_;
  convert::BuildOptions build_;
};

DraftKind kind_of(const std::filesystem::path& dir) {
  if (dir.empty()) return DraftKind::kMtp;
  if (models::has_eagle3_head(dir)) return DraftKind::kEagle3;
  if (models::has_medusa_heads(dir)) return DraftKind::kMedusa;
  if (models::has_redrafter(dir)) return DraftKind::kRedrafter;
  return models::has_eagle_head(dir) ? DraftKind::kEagle : DraftKind::kModel;
}

// Values of ExecutorConfig::speculation, indexed by DraftKind.
constexpr std::string_view kWords[] = {"draft_model", "medusa", "redrafter",
                                       "eagle",       "eagle",  "mtp"};

// The tree for num_heads heads: from the configuration, else a chain.
StatusOr<DraftTree> medusa_tree(const ExecutorConfig& config, int32_t num_heads) {
  if (config.medusa_choices.empty()) return DraftTree::chain(num_heads);
  auto tree = parse_draft_tree(config.medusa_choices);
  if (!tree.ok()) return annotate(tree.status(), "medusa_choices");
  if (tree->depth() > num_heads)
    return invalid_argument("medusa_choices: a node is {} deep, and '{}' has {} heads",
                            tree->depth(), config.draft_model.string(), num_heads);
  return tree;
}

StatusOr<TreeShape> eagle_tree(const ExecutorConfig& config) {
  constexpr int32_t kUsualDepth = 5;
  if (!config.eagle_choices.empty()) {
    auto tree = parse_draft_tree(config.eagle_choices);
    if (!tree.ok()) return annotate(tree.status(), "eagle_choices");
    return TreeShape{.fixed = *std::move(tree)};
  }
  const int32_t top_k = config.eagle_tree_top_k;
  if (top_k == 0) return TreeShape{.fixed = DraftTree::chain(kMaxDraftLen)};
  const int32_t depth = config.eagle_tree_depth > 0 ? config.eagle_tree_depth : kUsualDepth;
  const int32_t most = config.max_draft_len > 0 ? config.max_draft_len
                                                : std::min(top_k * depth, exec::kMaxTreeDrafts);
  return TreeShape{.top_k = top_k, .depth = depth, .num_drafts = most};
}

Status check_kind(const ExecutorConfig& config, DraftKind kind) {
  const std::string_view word = kWords[static_cast<size_t>(kind)];
  if (!config.medusa_choices.empty() && kind != DraftKind::kMedusa)
    return invalid_argument("medusa_choices: draft_model '{}' is not a folder of Medusa heads",
                            config.draft_model.string());
  if ((!config.eagle_choices.empty() || config.eagle_tree_top_k > 0) && kind < DraftKind::kEagle)
    return invalid_argument("{}: draft_model '{}' is not a folder of an EAGLE head",
                            config.eagle_tree_top_k > 0 ? "eagle_tree_top_k" : "eagle_choices",
                            config.draft_model.string());
  if (config.speculation.empty() || config.speculation == "auto" || config.speculation == word)
    return ok();
  return invalid_argument(
      "speculation: {} does not go with draft_model '{}'; allowed are {}, auto "
      "and none",
      config.speculation, config.draft_model.string(), word);
}

// Hidden states that the target model passes to a head. EAGLE-3: all but the first, which is the
// input of the target model's own head.
HeadInput input_of(DraftKind kind, const io::Plan& target) {
  const auto num_external = static_cast<int32_t>(target.hidden.size());
  HeadInput input{.name = kWords[static_cast<size_t>(kind)], .num_external = num_external};
  if (kind == DraftKind::kEagle3)
    input.first_state = 1, input.num_states = num_external - 1, input.has_own = true;
  return input;
}

}  // namespace

bool wants_draft_engines(const std::filesystem::path& model_dir, const ExecutorConfig& config) {
  if (config.speculation == "none") return false;
  return !config.draft_model.empty() || config.speculation == "mtp" ||
         (config.speculation == "auto" && models::has_mtp_layer(model_dir));
}

StatusOr<std::vector<int32_t>> layers_read_by_drafts(const std::filesystem::path& model_dir,
                                                     const ExecutorConfig& config) {
  const bool is_wanted = config.speculation != "none" && !config.draft_model.empty() &&
                         models::has_eagle3_head(config.draft_model);
  if (!is_wanted || !convert::given_engine(model_dir).empty()) return std::vector<int32_t>();
  ASSIGN_OR_RETURN(const models::Model model, models::read_model(model_dir));
  auto layers = models::eagle3_layers(config.draft_model, model.traits.num_layers);
  if (!layers.ok()) return annotate(layers.status(), "draft_model");
  return layers;
}

StatusOr<DraftEngines> DraftEngines::open(const ModelInstance& model, const io::EngineFile& target,
                                          const ExecutorConfig& config) {
  DraftEngines out;
  out.kind_ = kind_of(config.draft_model);
  RETURN_IF_ERROR(check_kind(config, out.kind_));
  Opener opener(model, target.plan(), config);
  RETURN_IF_ERROR(opener.prepare());
  out.input_ = input_of(out.kind_, target.plan());
  out.vocab_size_ = target.plan().model.vocab_size;
  auto files = out.kind_ == DraftKind::kMedusa      ? opener.medusa_heads()
               : out.kind_ == DraftKind::kRedrafter ? opener.redrafter(out.shape_)
               : out.kind_ == DraftKind::kEagle     ? opener.eagle_head()
               : out.kind_ == DraftKind::kEagle3    ? opener.eagle3_head(out.input_)
               : out.kind_ == DraftKind::kMtp       ? opener.mtp_layer()
                                                    : opener.draft_model();
  if (!files.ok())
    return annotate(files.status(), out.kind_ == DraftKind::kMtp ? "speculation" : "draft_model");
  out.files_ = *std::move(files);
  if (out.kind_ == DraftKind::kMedusa) {
    ASSIGN_OR_RETURN(out.shape_.fixed,
                     medusa_tree(config, static_cast<int32_t>(out.files_.size())));
  }
  if (out.kind_ >= DraftKind::kEagle) {
    ASSIGN_OR_RETURN(out.shape_, eagle_tree(config));
  }
  if (out.kind_ >= DraftKind::kRedrafter) {
    ASSIGN_OR_RETURN(out.embeddings_, EmbeddingRows::open(target.path()));
  }
  return out;
}

// Heads whose tree branches are rows: num_branches rows per sequence up to kSharedRows in total;
// larger batches share.
StatusOr<exec::RunnerLimits> DraftEngines::limits_of(const io::EngineFile& file,
                                                     const ExecutorConfig& config,
                                                     const exec::RunnerLimits& limits) const {
  constexpr int32_t kSharedRows = 64;
  ASSIGN_OR_RETURN(exec::RunnerLimits own, size_draft_cache(file.plan(), config, limits));
  if (kind_ < DraftKind::kRedrafter) return own;
  own.max_rows =
      std::max(limits.max_rows, std::min(limits.max_rows * shape_.num_branches(), kSharedRows));
  own.max_tokens = std::max(own.max_tokens, own.max_rows);
  return own;
}

StatusOr<size_t> DraftEngines::bytes(const ExecutorConfig& config, const exec::RunnerLimits& limits,
                                     const DeviceInfo& device) const {
  size_t bytes = 0;
  for (const io::EngineFile& file : files_) {
    ASSIGN_OR_RETURN(const auto own, limits_of(file, config, limits));
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
    ASSIGN_OR_RETURN(const auto own, limits_of(file, config, limits));
    auto runner = exec::make_runner(std::move(file), *device.device, device.registry, own);
    if (!runner.ok()) return annotate(runner.status(), "draft_model");
    runners.push_back(*std::move(runner));
  }
  std::unique_ptr<Proposer> proposer;
  if (kind_ == DraftKind::kMedusa)
    proposer = std::make_unique<MedusaHeads>(std::move(runners), std::move(shape_.fixed));
  else if (kind_ == DraftKind::kRedrafter)
    proposer = std::make_unique<RecurrentDrafter>(std::move(runners[0]), *std::move(embeddings_),
                                                  std::move(shape_));
  else if (kind_ >= DraftKind::kEagle)
    proposer = std::make_unique<EagleHead>(std::move(runners[0]), *std::move(embeddings_),
                                           std::move(shape_), std::move(input_), vocab_size_);
  else
    proposer = std::make_unique<DraftModel>(std::move(runners[0]));
  return proposer;
}

}  // namespace nereid::runtime
