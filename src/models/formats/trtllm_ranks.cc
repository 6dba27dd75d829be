// Ranks of a TensorRT-LLM checkpoint; one file of weights per rank.
#include <utility>

#include <fmt/format.h>

#include "models/config.h"
#include "models/formats/trtllm.h"

namespace nereid::models {

std::string rank_file_name(int32_t rank, bool in_engine) {
  return fmt::format("rank{}.{}", rank, in_engine ? "engine" : "safetensors");
}

StatusOr<Ranks> check_ranks(Ranks ranks) {
  for (const auto& [field, value] :
       {std::pair("tp_size", ranks.tp), std::pair("pp_size", ranks.pp)})
    if (value < 1 || value > kMaxRanks || int64_t{ranks.tp} * ranks.pp > kMaxRanks)
      return invalid_argument(
          "{}: {} is not allowed; tp_size and pp_size are at least 1 and at "
          "most {} together",
          field, value, kMaxRanks);
  for (const auto& [field, value] :
       {std::pair("moe_tp_size", ranks.moe_tp), std::pair("moe_ep_size", ranks.moe_ep)})
    if (value != -1 && (value < 1 || ranks.tp % value != 0))
      return invalid_argument("{}: {} does not divide tp_size {}; allowed are -1 and its divisors",
                              field, value, ranks.tp);
  if (ranks.moe_ep == -1) ranks.moe_ep = ranks.moe_tp == -1 ? 1 : ranks.tp / ranks.moe_tp;
  if (ranks.moe_tp == -1) ranks.moe_tp = ranks.tp / ranks.moe_ep;
  if (int64_t{ranks.moe_tp} * ranks.moe_ep != ranks.tp)
    return invalid_argument("moe_tp_size: {} times moe_ep_size {} is not tp_size {}", ranks.moe_tp,
                            ranks.moe_ep, ranks.tp);
  return ranks;
}

StatusOr<Ranks> read_ranks(const json::object& config, const std::string& where) {
  Config outer(config, where);
  Ranks ranks;
  ranks.parallel_embedding = outer.boolean("use_parallel_embedding", false);
  ranks.embedding_dim = outer.integer("embedding_sharding_dim", 0, 1, 0);
  const json::object* mapping = outer.object("mapping");
  RETURN_IF_ERROR(outer.status());
  if (!mapping) return ranks;
  Config inner(*mapping, where + ": mapping");
  ranks.tp = inner.integer("tp_size", 1, kMaxRanks, 1);
  ranks.pp = inner.integer("pp_size", 1, kMaxRanks, 1);
  ranks.moe_tp = inner.integer("moe_tp_size", -1, kMaxRanks, -1);
  ranks.moe_ep = inner.integer("moe_ep_size", -1, kMaxRanks, -1);
  inner.require("moe_cluster_size", 1);
  const int32_t contexts = inner.integer("cp_size", 1, kMaxRanks, 1);  // ranks that share a file
  const int64_t product = int64_t{ranks.tp} * ranks.pp * contexts;
  const int32_t world = inner.integer("world_size", 1, kMaxRanks, product);
  if (inner.status().ok() && world != product)
    inner.fail("world_size", fmt::format("{} is not tp_size {} times pp_size {} times cp_size {}",
                                         world, ranks.tp, ranks.pp, contexts));
  RETURN_IF_ERROR(inner.status());
  StatusOr<Ranks> checked = check_ranks(ranks);
  if (!checked.ok()) return annotate(checked.status(), inner.where());
  return checked;
}

}  // namespace nereid::models
