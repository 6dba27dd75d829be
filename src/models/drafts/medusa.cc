#include "models/drafts/medusa.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "graph/builder.h"
#include "models/config.h"
#include "models/drafts/head_graph.h"

namespace nereid::models {
namespace {

using graph::Builder;
using graph::ValueId;

constexpr int32_t kMaxBlocks = 8;
constexpr std::string_view kFiles[] = {"medusa_lm_head.safetensors", "medusa_lm_head.pt"};
constexpr std::string_view kOptionalPrefix = "medusa_head.";

bool ignores_nothing(const Traits&, std::string_view) { return false; }
const Family kMedusaHead{.architecture = "MedusaHead", .ignores = ignores_nothing};

StatusOr<graph::Graph> build_head(io::ModelFacts facts, int32_t head, int32_t num_blocks) {
  const int64_t width = facts.hidden_size, vocab = facts.vocab_size;
  Builder b(std::move(facts));
  // The table has one row: it only fixes the width of the external embeddings.
  const graph::WeightId states = b.add(
      {.name = "states",
       .parts = {{.tensor = fmt::format("{}.0.linear.weight", head), .size = 1, .total = width}},
       .n = 1,
       .k = width});
  const ValueId state = b.emit("state", graph::Activate{.x = b.embed("embed", states),
                                                        .activation = kernels::Activation::kNone})
                            .out;
  const ValueId logits = residual_head(b, state, fmt::format("{}.", head), num_blocks, vocab);
  return std::move(b).finish(b.sampled_rows("logits", logits));
}

// Head index of a tensor; -1: none.
int32_t head_of(std::string_view tensor) {
  int32_t head = -1;
  const auto [end, error] = std::from_chars(tensor.data(), tensor.data() + tensor.size(), head);
  const bool is_number = error == std::errc() && end < tensor.data() + tensor.size();
  return is_number && *end == '.' ? head : -1;
}

}  // namespace

bool has_medusa_heads(const std::filesystem::path& dir) {
  std::error_code error;
  if (!std::filesystem::is_directory(dir, error)) return false;
  const auto config = read_object(dir / "config.json");
  return config.ok() && config->contains("medusa_num_heads");
}

StatusOr<MedusaConfig> read_medusa_config(const std::filesystem::path& dir,
                                          const io::ModelFacts& target) {
  const std::filesystem::path path = dir / "config.json";
  ASSIGN_OR_RETURN(const json::object object, read_object(path));
  Config config(object, path.string());
  MedusaConfig out{.num_heads = config.integer("medusa_num_heads", 1, kMaxMedusaHeads),
                   .num_blocks = config.integer("medusa_num_layers", 1, kMaxBlocks, 1)};
  config.require("hidden_size", target.hidden_size);
  config.require("vocab_size", target.vocab_size);
  RETURN_IF_ERROR(config.status());
  return out;
}

StatusOr<Model> medusa_head(const std::filesystem::path& dir, const MedusaConfig& config,
                            const io::ModelFacts& target, int32_t head) {
  io::ModelFacts facts = stateless_facts(kMedusaHead.architecture, dir, target);
  facts.name += fmt::format(" head {}", head);
  Model model;
  model.family = &kMedusaHead;
  ASSIGN_OR_RETURN(model.graph, build_head(std::move(facts), head, config.num_blocks));
  return model;
}

StatusOr<io::Checkpoint> open_medusa_head(const std::filesystem::path& dir,
                                          const MedusaConfig& config, int32_t head) {
  std::error_code error;
  const auto* const name = std::ranges::find_if(
      kFiles, [&](std::string_view file) { return std::filesystem::exists(dir / file, error); });
  if (name == std::end(kFiles))
    return not_found("{}: neither {} nor {} is there", dir.string(), kFiles[0], kFiles[1]);
  return io::Checkpoint::open_files(
      {dir / *name},
      [&](size_t, const io::StoredTensor& stored) -> StatusOr<std::vector<io::StoredTensor>> {
        io::StoredTensor tensor = stored;
        if (tensor.name.starts_with(kOptionalPrefix)) tensor.name.erase(0, kOptionalPrefix.size());
        const int32_t owner = head_of(tensor.name);
        if (owner < 0)
          return invalid_argument(
              "tensor '{}' belongs to no head: names begin with the head's number",
              stored.name.substr(0, 200));
        if (owner >= config.num_heads)
          return invalid_argument("tensor '{}' is of head {}; config.json's medusa_num_heads is {}",
                                  stored.name.substr(0, 200), owner, config.num_heads);
        std::vector<io::StoredTensor> out;
        if (owner == head) out.push_back(std::move(tensor));
        return out;
      });
}

}  // namespace nereid::models
