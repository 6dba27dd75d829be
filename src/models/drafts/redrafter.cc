#include "models/drafts/redrafter.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/config.h"
#include "models/drafts/head_graph.h"

namespace nereid::models {
namespace {

using graph::Builder;
using graph::ValueId;

constexpr int32_t kMostBlocks = 8, kMostBeams = 32;
constexpr std::string_view kRedrafterFiles[] = {"model.safetensors", "model.pt"};
// (older name prefix, current one).
constexpr std::pair<std::string_view, std::string_view> kOldNames[] = {
    {"input_projs.", "input_proj."}, {"lm_heads.", "lm_head."}, {"0.", "lm_head."}};

bool redrafter_ignores(const Traits&, std::string_view) { return false; }
const Family kRedrafterHead{.architecture = "ReDrafterHead", .ignores = redrafter_ignores};

StatusOr<graph::Graph> build_redrafter(const RedrafterConfig& config, io::ModelFacts facts) {
  const int64_t width = facts.hidden_size, vocab = facts.vocab_size, inner = config.exit_dim;
  Builder b(std::move(facts));
  const auto activate = [&](const char* name, ValueId x, kernels::Activation activation) {
    return b.emit(name, graph::Activate{.x = x, .activation = activation}).out;
  };
  const RowOf as_wide{"rnn_w.weight", width, width};
  const ValueId given = external_rows(b, {as_wide, as_wide, as_wide});
  const auto part = [&](const char* name, int64_t index) {
    const ValueId x = b.slice(fmt::format("{}.given", name), given, index * width, width);
    return activate(name, x, kernels::Activation::kNone);
  };
  const auto token =
      b.linear("token", part("embedding", 0), b.matrix("rnn_w", "rnn_w.weight", width, width));
  const auto before =
      b.linear("before", part("own", 1), b.matrix("rnn_u", "rnn_u.weight", width, width),
               b.vector("rnn_u.bias", "rnn_u.bias", width));
  const ValueId own =
      activate("own.next", b.add("own.sum", token, before), kernels::Activation::kSilu);
  ValueId x = b.concat("pair", {part("state", 2), own});
  if (inner != 2 * width) {
    const auto weight = b.matrix("project", "input_proj.weight", inner, 2 * width);
    const auto bias = b.vector("project.bias", "input_proj.bias", inner);
    x = activate("projected", b.linear("project", x, weight, bias), kernels::Activation::kNone);
  }
  const ValueId logits = residual_head(b, x, "lm_head.", config.num_blocks, vocab);
  return std::move(b).finish(b.sampled_rows("logits", logits), own);
}

}  // namespace

bool has_redrafter(const std::filesystem::path& dir) {
  std::error_code error;
  if (!std::filesystem::is_directory(dir, error)) return false;
  const auto config = read_object(dir / "config.json");
  return config.ok() && config->contains("exit_dim") && config->contains("num_draft_layers");
}

StatusOr<RedrafterConfig> read_redrafter_config(const std::filesystem::path& dir,
                                                const io::ModelFacts& target) {
  const std::filesystem::path path = dir / "config.json";
  ASSIGN_OR_RETURN(const json::object object, read_object(path));
  Config config(object, path.string());
  RedrafterConfig out{
      .exit_dim = config.integer("exit_dim", 1, 1 << 20),
      .num_blocks = config.integer("num_draft_layers", 0, kMostBlocks),
      .num_beams = config.integer("redrafter_num_beams", 1, kMostBeams, 5),
      .beam_length = config.integer("redrafter_draft_len_per_beam", 1, kMostBeams, 5)};
  if (!config.boolean("rnn", false)) config.fail("rnn", "false is not supported, only true is");
  config.require("hidden_size", target.hidden_size);
  config.require("vocab_size", target.vocab_size);
  RETURN_IF_ERROR(config.status());
  return out;
}

StatusOr<Model> redrafter_head(const std::filesystem::path& dir, const RedrafterConfig& config,
                               const io::ModelFacts& target) {
  Model model;
  model.family = &kRedrafterHead;
  ASSIGN_OR_RETURN(model.graph, build_redrafter(config, stateless_facts(kRedrafterHead.architecture,
                                                                        dir, target)));
  return model;
}

StatusOr<io::Checkpoint> open_redrafter(const std::filesystem::path& dir) {
  std::error_code error;
  const auto* const name = std::ranges::find_if(kRedrafterFiles, [&](std::string_view file) {
    return std::filesystem::exists(dir / file, error);
  });
  if (name == std::end(kRedrafterFiles))
    return not_found("{}: neither {} nor {} is there", dir.string(), kRedrafterFiles[0],
                     kRedrafterFiles[1]);
  return io::Checkpoint::open_files(
      {dir / *name},
      [](size_t, io::StoredTensor tensor) -> StatusOr<std::vector<io::StoredTensor>> {
        for (const auto& [old, now] : kOldNames)
          if (tensor.name.starts_with(old))
            tensor.name = std::string(now) + tensor.name.substr(old.size());
        return std::vector{std::move(tensor)};
      });
}

}  // namespace nereid::models
