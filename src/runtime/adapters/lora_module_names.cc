// See lora_module_names.h. Source: LoraModuleType of TensorRT-LLM.
#include "runtime/adapters/lora_module_names.h"

#include <algorithm>
#include <charconv>
#include <tuple>
#include <vector>

namespace nereid::runtime {
namespace {

constexpr std::string_view kNoCross = "no model with cross-attention is served";
constexpr std::string_view kNoState = "no model with state spaces is served";

struct Module {
  int32_t id;
  std::string_view name;  // TensorRT-LLM's
  // Name suffixes in checkpoints; earlier rows of the table take precedence.
  std::vector<std::string_view> endings;
  std::string_view reason = {};  // error text: adapters may not change it
};

const std::vector<Module>& modules() {
  static const std::vector<Module> all = {
      {19, "shared_expert_h_to_4h", {"shared_expert.gate_proj", "shared_experts.gate_proj"}},
      {20, "shared_expert_4h_to_h", {"shared_expert.down_proj", "shared_experts.down_proj"}},
      {21, "shared_expert_gate", {"shared_expert.up_proj", "shared_experts.up_proj"}},
      {16, "moe_router", {"mlp.gate", "mlp.router", "block_sparse_moe.gate"}},
      {0, "attn_qkv", {"qkv_proj", "query_key_value", "c_attn", "W_pack", "Wqkv", "wqkv"}},
      {1, "attn_q", {"q_proj"}},
      {2, "attn_k", {"k_proj"}},
      {3, "attn_v", {"v_proj"}},
      {4,
       "attn_dense",
       {"o_proj", "attn.out_proj", "attention.out_proj", "self_attn.out_proj", "attn.c_proj",
        "attention.dense", "self_attention.dense", "self_attn.dense", "attention.wo"}},
      {5,
       "mlp_h_to_4h",
       {"gate_proj", "fc1", "c_fc", "dense_h_to_4h", "fc_in", "feed_forward.w1", "ffn.up_proj"}},
      {6,
       "mlp_4h_to_h",
       {"down_proj", "fc2", "mlp.c_proj", "dense_4h_to_h", "fc_out", "feed_forward.w2"}},
      {7, "mlp_gate", {"up_proj", "feed_forward.w3"}},
      {18, "mlp_gate_up", {"gate_up_proj"}},
      {8, "cross_attn_qkv", {}, kNoCross},
      {9, "cross_attn_q", {}, kNoCross},
      {10, "cross_attn_k", {}, kNoCross},
      {11, "cross_attn_v", {}, kNoCross},
      {12, "cross_attn_dense", {}, kNoCross},
      {13, "moe_h_to_4h", {}},
      {14, "moe_4h_to_h", {}},
      {15, "moe_gate", {}},
      {17, "mlp_router", {}, "no model with a router of blocks is served"},
      {22, "mamba_in_proj", {}, kNoState},
      {23, "mamba_out_proj", {}, kNoState},
  };
  return all;
}

}  // namespace

std::optional<int32_t> layer_of(std::string_view name) {
  for (size_t dot = name.find('.'); dot != std::string_view::npos; dot = name.find('.', dot + 1)) {
    int32_t layer = 0;
    const char* const end = name.data() + name.size();
    const auto [last, error] = std::from_chars(name.data() + dot + 1, end, layer);
    if (error == std::errc() && layer >= 0 && last != end && *last == '.') return layer;
  }
  return std::nullopt;
}

namespace {

// "3" of "3.gate_proj": the number before `behind`.
std::optional<int32_t> number_before(std::string_view text, char behind, std::string_view& rest) {
  int32_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || number < 0 || last == end || *last != behind) return std::nullopt;
  rest = text.substr(static_cast<size_t>(last + 1 - text.data()));
  return number;
}

// Module of an expert's matrix; `name` behind "experts.": "3.gate_proj", or "down_proj[3]" and
// "gate_up_proj[3][0::2]" for tensors with all experts.
std::optional<LoraModuleId> expert_module_of(std::string_view name, int32_t layer) {
  std::string_view part = name;
  std::optional<int32_t> expert = number_before(name, '.', part);
  if (!expert) {
    const size_t open = name.find('[');
    if (open == std::string_view::npos) return std::nullopt;
    expert = number_before(name.substr(open + 1), ']', part);
    if (!expert) return std::nullopt;
    const std::string_view tensor = name.substr(0, open);
    if (tensor == "gate_up_proj")
      part = part == "[0::2]" ? "gate_proj" : part == "[1::2]" ? "up_proj" : "";
    else
      part = part.empty() ? tensor : "";
  }
  for (const auto& [id, own, mixtral] :
       {std::tuple(kMoeHTo4H, "gate_proj", "w1"), std::tuple(kMoe4HToH, "down_proj", "w2"),
        std::tuple(kMoeGate, "up_proj", "w3")})
    if (part == own || part == mixtral) return LoraModuleId{id, layer, *expert};
  return std::nullopt;
}

}  // namespace

std::optional<LoraModuleId> lora_module_of(std::string_view name) {
  const std::optional<int32_t> layer = layer_of(name);
  if (!layer) return std::nullopt;
  constexpr std::string_view kExperts = ".experts.";
  if (const size_t at = name.find(kExperts); at != std::string_view::npos)
    return expert_module_of(name.substr(at + kExperts.size()), *layer);
  for (const Module& module : modules())
    for (const std::string_view ending : module.endings)
      if (name.ends_with(ending) && name[name.size() - ending.size() - 1] == '.')
        return LoraModuleId{module.id, *layer};
  return std::nullopt;
}

StatusOr<std::string_view> lora_module_name(int32_t id) {
  const auto known = std::ranges::find(modules(), id, &Module::id);
  if (known == modules().end()) return invalid_argument("module {} is not known", id);
  if (!known->reason.empty())
    return invalid_argument("module {} ({}): {}", id, known->name, known->reason);
  return known->name;
}

StatusOr<int32_t> lora_module_id(std::string_view name) {
  const auto known = std::ranges::find(modules(), name, &Module::name);
  if (known == modules().end()) return invalid_argument("module '{}' is not known", name);
  RETURN_IF_ERROR(lora_module_name(known->id).status());
  return known->id;
}

}  // namespace nereid::runtime
