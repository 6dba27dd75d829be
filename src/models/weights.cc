#include "models/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "base/check.h"
#include "base/log.h"

namespace nereid::models {
namespace {

constexpr std::string_view kStacked = "[*]";  // at the end of a rule's tensor

int64_t size_of(Dim dim, const Traits& t) {
  switch (dim) {
    case Dim::kOne:
      return 1;
    case Dim::kVocab:
      return t.vocab_size;
    case Dim::kPositions:
      return t.max_positions;
    case Dim::kEmbed:
      return t.embed_size;
    case Dim::kHidden:
      return t.hidden_size;
    case Dim::kTwoHidden:
      return 2 * int64_t{t.hidden_size};
    case Dim::kIntermediate:
      return t.intermediate_size;
    case Dim::kExperts:
      return t.num_experts;
    case Dim::kExpertIntermediate:
      return t.expert_intermediate_size;
    case Dim::kSharedIntermediate:
      return t.shared_intermediate_size;
    case Dim::kHead:
      return t.head_dim;
    case Dim::kNumHeads:
      return t.num_heads;
    case Dim::kQuery:
      return int64_t{t.num_heads} * t.head_dim;
    case Dim::kKeyValue:
      return int64_t{t.num_kv_heads} * t.head_dim;
    case Dim::kQueryKeyValue:
      return (int64_t{t.num_heads} + 2 * int64_t{t.num_kv_heads}) * t.head_dim;
    case Dim::kGateUp:
      return 2 * int64_t{t.intermediate_size};
    case Dim::kMelBins:
      return t.mel_bins;
    case Dim::kThreeMelBins:
      return 3 * int64_t{t.mel_bins};
    case Dim::kThreeHidden:
      return 3 * int64_t{t.hidden_size};
    case Dim::kPatch:
      return t.pictures.patch_width;
    case Dim::kMerged:
      return int64_t{t.pictures.merge} * t.pictures.merge * t.hidden_size;
    case Dim::kProjector:
      return t.projector_size;
    case Dim::kFeature:
      return t.feature_size;
    case Dim::kTiles:
      return int64_t{t.num_tilings()} * t.pictures.max_frames;
    case Dim::kTilePlaces:
      return int64_t{t.num_tilings()} * t.pictures.max_frames * t.places_of_tile();
    case Dim::kPlaces:
      return t.places_of_tile();
    case Dim::kTaps:
      return (1 + std::ssize(t.tapped_layers)) * t.hidden_size;
    case Dim::kPlane:
      return int64_t{t.position_side} * t.position_side;
    case Dim::kLatent:
      return t.latent;
    case Dim::kQueryLatent:
      return t.query_latent;
    case Dim::kRotary:
      return t.rotary_dims;
    case Dim::kNonRotary:
      return t.head_dim - t.rotary_dims;
    case Dim::kValue:
      return t.value_dim;
    case Dim::kValues:
      return int64_t{t.num_heads} * t.value_dim;
  }
  return 0;
}

// Division of a dimension among ranks.
graph::Division division_of(Dim dim, const Traits& t) {
  const graph::Units queries = {t.num_heads, t.head_dim};
  const graph::Units keys = {t.num_kv_heads, t.head_dim, true};
  switch (dim) {
    case Dim::kQuery:
      return {queries};
    case Dim::kKeyValue:
      return {keys};
    case Dim::kQueryKeyValue:
      return {queries, keys, keys};
    case Dim::kValues:
      return {{t.num_heads, t.value_dim}};
    case Dim::kGateUp:
      return {{t.intermediate_size, 1}, {t.intermediate_size, 1}};
    case Dim::kVocab:
      return {{t.vocab_size, 1, false, true}};
    default:
      return {{size_of(dim, t), 1}};
  }
}

// Sets the weight's division among ranks.
void divide(const WeightRule& rule, const Traits& t, graph::Weight& weight) {
  const bool heads_are_rows =
      rule.n == Dim::kQuery || rule.n == Dim::kKeyValue || rule.n == Dim::kQueryKeyValue;
  switch (rule.shard) {
    case ShardAxis::kNone:
      return;
    case ShardAxis::kN:
      weight.rows = division_of(rule.n, t);
      return;
    case ShardAxis::kK:
      weight.cols = division_of(rule.k, t);
      return;
    case ShardAxis::kHeads:
      (heads_are_rows ? weight.rows : weight.cols) =
          division_of(heads_are_rows ? rule.n : rule.k, t);
      return;
    case ShardAxis::kExperts:
      weight.by_expert = true;
      if (rule.n == Dim::kExpertIntermediate) weight.rows = division_of(rule.n, t);
      if (rule.k == Dim::kExpertIntermediate) weight.cols = division_of(rule.k, t);
      return;
  }
}

Status check_part(const io::Checkpoint& checkpoint, const graph::WeightPart& part,
                  const std::vector<int64_t>& shape) {
  const io::Checkpoint::Entry* entry = checkpoint.find(part.tensor);
  if (!entry)
    return invalid_argument("{}: tensor '{}' is missing", checkpoint.main_file().string(),
                            part.tensor);
  const io::StoredTensor& tensor = *entry->tensor;
  const bool is_float =
      tensor.type == DType::kBF16 || tensor.type == DType::kF16 || tensor.type == DType::kF32;
  if (!is_float && !tensor.encoding)
    return invalid_argument("{}: tensor '{}' has dtype {}, which cannot be read as a weight",
                            entry->file->path().string(), part.tensor, tensor.dtype);
  const auto product = [](const std::vector<int64_t>& dims) {
    double numbers = 1;
    for (const int64_t dim : dims) numbers *= static_cast<double>(dim);
    return numbers;
  };
  if (part.is_flat ? product(tensor.shape) != product(shape) : tensor.shape != shape)
    return invalid_argument("{}: tensor '{}' has shape {}, config.json asks for [{}]",
                            entry->file->path().string(), part.tensor, tensor.shape_text(),
                            fmt::join(shape, ", "));
  return ok();
}

// The tensor name of each expert.
std::vector<std::string> expert_tensors(const std::string& pattern, int32_t num_experts) {
  const size_t star = pattern.find('*');
  std::vector<std::string> names;
  for (int32_t e = 0; e < num_experts; ++e)
    names.push_back(fmt::format("{}{}{}", std::string_view(pattern).substr(0, star), e,
                                std::string_view(pattern).substr(star + 1)));
  return names;
}

// Parts of a kQueryKeyValue weight whose tensor is ordered by KV heads.
std::vector<graph::WeightPart> parts_by_key_head(const graph::WeightPart& whole, const Traits& t) {
  const int64_t d = t.head_dim, group = t.num_heads / t.num_kv_heads, run = (group + 2) * d;
  std::vector<graph::WeightPart> parts;
  const auto add = [&](int64_t begin, int64_t size) {
    for (int64_t i = 0; i < t.num_kv_heads; ++i) {
      graph::WeightPart& part = parts.emplace_back(whole);
      part.first = i * run + begin, part.size = size, part.total = t.num_kv_heads * run;
    }
  };
  add(0, group * d);
  add(group * d, d);
  add(group * d + d, d);
  return parts;
}

// Parts of a vector over all heads.
std::vector<graph::WeightPart> parts_of_heads(const graph::WeightPart& whole, const Traits& t) {
  const auto heads = static_cast<int32_t>(whole.size / t.head_dim);
  std::vector<graph::WeightPart> parts(static_cast<size_t>(heads), whole);
  std::vector<std::string> tensors = expert_tensors(whole.tensor, heads);
  const bool stacked = whole.tensor.ends_with(kStacked);
  for (int32_t i = 0; i < heads; ++i) {
    graph::WeightPart& part = parts[static_cast<size_t>(i)];
    part.size = t.head_dim;
    if (stacked) {
      part.tensor.resize(whole.tensor.size() - kStacked.size());
      part.stacked = heads, part.index = i;
    } else {
      part.tensor = std::move(tensors[static_cast<size_t>(i)]);
    }
  }
  return parts;
}

// Parts of an MLA weight.
std::vector<graph::WeightPart> parts_of_latent(const WeightRule& rule,
                                               const graph::WeightPart& whole, const Traits& t) {
  std::vector<graph::WeightPart> parts;
  const auto add = [&](int64_t first, int64_t size, int64_t total) {
    graph::WeightPart& part = parts.emplace_back(whole);
    part.first = first, part.size = size, part.total = total;
  };
  const int64_t d = t.head_dim, non_rotary_dims = d - t.rotary_dims,
                both = non_rotary_dims + t.value_dim;
  if (rule.order == Order::kLatentRows) add(0, t.latent, t.latent + t.rotary_dims);
  if (rule.order == Order::kRotaryRows) add(t.latent, t.rotary_dims, t.latent + t.rotary_dims);
  for (int64_t head = 0; head < t.num_heads; ++head) {
    if (rule.order == Order::kRotaryFirst) {
      add(head * d + non_rotary_dims, t.rotary_dims, t.num_heads * d);
      add(head * d, non_rotary_dims, t.num_heads * d);
    } else if (rule.order == Order::kHeadValues) {
      add(head * both + non_rotary_dims, t.value_dim, t.num_heads * both);
    } else if (rule.order == Order::kHeadKeys) {
      add(0, t.latent, t.latent);
      parts.back().transposed = true;
      parts.back().first_col = head * both;
      parts.back().total_cols = t.num_heads * both;
    }
  }
  return parts;
}

// Bucket of a distance j - i (Raffel et al. 2020, "Exploring the limits of transfer learning"):
// one for each small distance, then of logarithmically growing ranges; with two directions half of
// the buckets each. In f32, as published models were trained.
int32_t bucket_of(int32_t distance, const Traits& t) {
  int32_t buckets = t.bias_buckets, first = 0;
  if (t.bidirectional) {
    buckets /= 2;
    if (distance > 0) first = buckets;
    distance = std::abs(distance);
  } else {
    distance = -std::min(distance, 0);
  }
  const int32_t exact = buckets / 2;
  if (distance < exact) return first + distance;
  const float ratio = std::log(static_cast<float>(distance) / static_cast<float>(exact)) /
                      std::log(static_cast<float>(t.bias_distance) / static_cast<float>(exact));
  const auto more = static_cast<int32_t>(ratio * static_cast<float>(buckets - exact));
  return first + std::min(exact + more, buckets - 1);
}

graph::Weight position_bias(const Traits& t, std::string name, const std::string& tensor) {
  const Distances distances = distances_of(t);
  graph::WeightPart part{.tensor = tensor, .total = t.bias_buckets, .total_cols = t.num_heads};
  for (int32_t head = 0; head < t.num_heads; ++head)
    for (int32_t i = 0; i < distances.num; ++i)
      part.elements.push_back(bucket_of(distances.first + i, t) * t.num_heads + head);
  part.size = std::ssize(part.elements);
  graph::Weight weight{.name = std::move(name), .n = 1, .k = part.size, .is_vector = true};
  weight.format = kernels::kFloat32;
  weight.parts = {std::move(part)};
  return weight;
}

// Parts of a convolution's weight: for each position of the window the channels.
std::vector<graph::WeightPart> parts_of_window(const WeightRule& rule,
                                               const graph::WeightPart& whole, int64_t k) {
  std::vector<graph::WeightPart> parts(static_cast<size_t>(rule.window), whole);
  for (int32_t i = 0; i < rule.window; ++i) {
    graph::WeightPart& part = parts[static_cast<size_t>(i)];
    part.first_col = i, part.col_step = rule.window, part.window = rule.window;
    part.cols = k / rule.window, part.total_cols = k;
  }
  return parts;
}

// Rows of the patches of blocks, in runs that are adjacent in the tensor.
std::vector<graph::WeightPart> parts_of_blocks(graph::WeightPart whole, const Traits& t) {
  const io::PictureFacts& p = t.pictures;
  whole.total = t.max_positions, whole.is_flat = true;
  std::vector<graph::WeightPart> parts;
  const auto add = [&](int64_t first, int64_t size) {
    graph::WeightPart& part = parts.emplace_back(whole);
    part.first = first, part.size = size;
  };
  if (p.class_tokens > 0) add(0, p.class_tokens);
  for (int64_t y = 0; y < p.grid; y += p.merge)
    for (int64_t x = 0; x < p.grid; x += p.merge)
      for (int64_t row = y; row < y + p.merge; ++row)
        add(p.class_tokens + row * p.grid + x, p.merge);
  return parts;
}

// Columns of each patch of a block.
std::vector<graph::WeightPart> parts_by_channel(const graph::WeightPart& whole, int64_t k,
                                                int64_t patches) {
  std::vector<graph::WeightPart> parts;
  for (int64_t i = 0; i < patches; ++i) {
    graph::WeightPart& part = parts.emplace_back(whole);
    part.first_col = i, part.col_step = patches;
    part.cols = k / patches, part.total_cols = k;
  }
  return parts;
}

// Columns of the last layer, then of each tapped one.
std::vector<graph::WeightPart> parts_of_taps(const graph::WeightPart& whole, const Traits& t) {
  const int64_t hidden = t.hidden_size, taps = std::ssize(t.tapped_layers);
  std::vector<graph::WeightPart> parts;
  for (int64_t i = -1; i < taps; ++i) {
    graph::WeightPart& part = parts.emplace_back(whole);
    part.cols = hidden, part.total_cols = (1 + taps) * hidden;
    if (i >= 0) part.first_col = hidden + i, part.col_step = taps;
  }
  return parts;
}

graph::Weight make_weight(const WeightRule& rule, const Traits& t, std::string name,
                          const std::string& tensor) {
  if (rule.order == Order::kByDistance) return position_bias(t, std::move(name), tensor);
  graph::Weight weight{.name = std::move(name), .n = size_of(rule.n, t), .k = size_of(rule.k, t)};
  graph::WeightPart part{.tensor = tensor,
                         .size = weight.n,
                         .transposed = rule.transposed,
                         .unit_rows = rule.unit_rows};
  if (rule.skipped > 0) part.first = rule.skipped, part.total = rule.skipped + part.size;
  if (rule.order == Order::kEven || rule.order == Order::kOdd) {
    part.first = rule.order == Order::kOdd ? 1 : 0;
    part.step = 2, part.total = 2 * part.size;
  }
  if (rule.order == Order::kFirstHalf || rule.order == Order::kSecondHalf) {
    part.first = rule.order == Order::kSecondHalf ? part.size : 0;
    part.total = 2 * part.size;
  }
  if (rule.order == Order::kOneRow) part.stacked = 1;
  if (rule.order == Order::kLeading) part.total = part.size + t.extra_embeddings;
  if (rule.order == Order::kExtra)
    part.stacked = t.vocab_size + t.extra_embeddings, part.index = t.vocab_size;
  if (rule.order == Order::kFlat) part.is_flat = true;
  if (rule.order == Order::kBlocks) {
    weight.parts = parts_of_blocks(part, t);
  } else if (rule.order == Order::kByChannel) {
    weight.parts = parts_by_channel(part, weight.k, int64_t{t.pictures.merge} * t.pictures.merge);
  } else if (rule.order == Order::kTapped) {
    weight.parts = parts_of_taps(part, t);
  } else if (rule.order == Order::kByHead) {
    weight.parts = parts_of_heads(part, t);
  } else if (tensor.ends_with(kStacked)) {
    part.tensor.resize(tensor.size() - kStacked.size());
    part.stacked = weight.experts = t.num_experts;
    for (; part.index < part.stacked; ++part.index) weight.parts.push_back(part);
  } else if (tensor.find('*') != std::string::npos) {
    weight.experts = t.num_experts;
    for (std::string& one : expert_tensors(tensor, t.num_experts)) {
      part.tensor = std::move(one);
      weight.parts.push_back(part);
    }
  } else if (rule.order == Order::kByKeyHead) {
    weight.parts = parts_by_key_head(part, t);
  } else if (rule.order == Order::kPowerSinusoids || rule.order == Order::kSpannedSinusoids) {
    part.tensor.clear();
    part.first = rule.skipped;
    part.sinusoids = rule.order == Order::kPowerSinusoids ? graph::Sinusoids::kPowers
                                                          : graph::Sinusoids::kSpanned;
    weight.parts = {std::move(part)};
  } else if (rule.order == Order::kWindow) {
    weight.parts = parts_of_window(rule, part, weight.k);
  } else if (rule.order >= Order::kRotaryFirst && rule.order <= Order::kHeadValues) {
    weight.parts = parts_of_latent(rule, part, t);
    if (rule.order >= Order::kHeadKeys) weight.experts = t.num_heads;
  } else {
    weight.parts = {std::move(part)};
  }
  weight.format = rule.format;
  weight.is_vector = rule.k == Dim::kOne;
  if (weight.is_vector)
    std::swap(weight.n, weight.k);
  else
    divide(rule, t, weight);
  return weight;
}

// The bias rule of a weight rule. The caller sets the names.
WeightRule bias_of(const WeightRule& rule) {
  const bool is_kernel =
      rule.order == Order::kWindow || rule.order == Order::kFlat || rule.order == Order::kTapped;
  return {
      .n = rule.n, .order = is_kernel ? Order::kSame : rule.order, .row_scales = rule.row_scales};
}

}  // namespace

Distances distances_of(const Traits& t) {
  const int32_t side = t.bias_distance;
  return {-side, t.bidirectional ? 2 * side + 1 : side + 1};
}

bool is_of_extra_layer(const Traits& t, std::string_view tensor) {
  for (int32_t i = 0; i < t.num_mtp_layers; ++i)
    if (tensor.starts_with(fmt::format("model.layers.{}.", t.num_layers + i))) return true;
  return false;
}

Weights::Weights(graph::Builder& builder, const Traits& traits, std::span<const WeightRule> rules,
                 const std::string& scope, const std::string& tensor_scope) {
  for (const WeightRule& rule : rules) {
    if (rule.when && !rule.when(traits)) continue;
    const auto add = [&](const WeightRule& one, std::string name, const std::string& tensor) {
      const std::string& front = one.order == Order::kByDistance ? std::string() : tensor_scope;
      graph::Weight weight = make_weight(one, traits, scope + name, front + tensor);
      if (!one.row_scales.empty())
        for (graph::WeightPart& part : weight.parts)
          part.row_scales = tensor_scope + std::string(one.row_scales);
      ids_.emplace_back(name, builder.add(std::move(weight)));
    };
    std::string name(rule.name), tensor(rule.tensor);
    add(rule, name, tensor);
    if (!rule.bias || !rule.bias(traits)) continue;
    NEREID_DCHECK(tensor.ends_with(".weight"));
    tensor.replace(tensor.rfind('.'), std::string::npos, ".bias");
    add(bias_of(rule), name + ".bias", tensor);
  }
}

graph::WeightId Weights::operator[](std::string_view name) const {
  for (const auto& [key, id] : ids_)
    if (key == name) return id;
  return graph::kNone;
}

Status check_tensors(const graph::Graph& graph, const io::Checkpoint& checkpoint,
                     const Traits& traits, Ignores ignores) {
  std::set<std::string_view> wanted;
  for (const graph::Weight& weight : graph.weights)
    for (const graph::WeightPart& part : weight.parts) {
      if (part.sinusoids != graph::Sinusoids::kNone) continue;
      wanted.insert(part.tensor);
      if (!part.row_scales.empty()) {
        wanted.insert(part.row_scales);
        graph::WeightPart scales = part;
        scales.tensor = part.row_scales, scales.is_flat = false;
        RETURN_IF_ERROR(check_part(checkpoint, scales, {part.tensor_rows()}));
      }
      std::vector<int64_t> shape = {part.tensor_rows()};
      if (!weight.is_vector) shape.push_back(part.tensor_cols(weight.k));
      if (!part.elements.empty()) shape = {part.total, part.total_cols};
      if (part.window > 0) shape = {shape[0], shape[1] / part.window, part.window};
      if (part.transposed) std::swap(shape[0], shape[1]);
      if (part.stacked > 0) shape.insert(shape.begin(), part.stacked);
      RETURN_IF_ERROR(check_part(checkpoint, part, shape));
    }
  int64_t num_left_out = 0;
  for (const io::Checkpoint::Entry& entry : checkpoint.entries()) {
    if (wanted.contains(entry.tensor->name)) continue;
    if (!ignores(traits, entry.tensor->name))
      return invalid_argument("{}: tensor '{}' is not part of a model of this config.json",
                              entry.file->path().string(), entry.tensor->name);
    if (is_of_extra_layer(traits, entry.tensor->name)) ++num_left_out;
  }
  if (num_left_out > 0)
    log_info("{}: the {} tensors of {} MTP layer(s) are ignored", checkpoint.main_file().string(),
             num_left_out, traits.num_mtp_layers);
  return ok();
}

namespace {

// The stored format of a part's tensor, if the part consists of whole rows.
std::optional<kernels::WeightFormat> stored_format(const graph::WeightPart& part,
                                                   const io::Checkpoint& checkpoint) {
  const io::Checkpoint::Entry* entry = checkpoint.find(part.tensor);
  const bool whole_rows = part.cols == 0 && part.total_cols == 0 && part.first_col == 0 &&
                          !part.unit_rows && part.row_scales.empty();
  if (!entry || !entry->tensor->encoding || !whole_rows ||
      part.transposed != entry->tensor->transposed)
    return {};
  return entry->tensor->encoding->format();
}

}  // namespace

void use_stored_formats(graph::Graph& graph, const io::Checkpoint& checkpoint) {
  for (graph::Weight& weight : graph.weights) {
    if (weight.is_vector || weight.parts.empty()) continue;
    weight.stored = stored_format(weight.parts.front(), checkpoint);
    for (const graph::WeightPart& part : weight.parts)
      if (stored_format(part, checkpoint) != weight.stored) weight.stored.reset();
  }
}

}  // namespace nereid::models
