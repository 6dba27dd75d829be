#include "models/formats/quantized.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "io/quantized_tensors.h"
#include "models/config.h"

namespace nereid::models {
namespace {

using io::StoredTensor;

constexpr int64_t kMostColumns = int64_t{1} << 31;
constexpr int64_t kDefaultBlock = 128;  // block size of fp8 with block scales

// The value must be one of `allowed`, upper case included.
void check_word(Config& c, std::string_view key, std::initializer_list<std::string_view> allowed) {
  if (!c.has(key)) return;
  const std::string word = absl::AsciiStrToLower(c.string(key));
  if (std::ranges::find(allowed, word) == allowed.end())
    c.fail(key, fmt::format("'{}' is not one of {}", word.substr(0, 40), fmt::join(allowed, ", ")));
}

void read_packed(Config& c, Quantization& q) {
  const int32_t group = c.integer("group_size", -1, kMostColumns - 1, 128);
  if (group == 0) c.fail("group_size", "0 is not -1 or above 0");
  q.group = std::max(0, group);
}

void read_gptq(Config& c, Quantization& q) {
  read_packed(c, q);
  q.bits = c.integer("bits", 2, 8);
  if (q.bits != 2 && q.bits != 4 && q.bits != 8)
    c.fail("bits", fmt::format("{} is not one of 2, 4, 8", q.bits));
  check_word(c, "checkpoint_format", {"gptq", "gptq_v2"});
  q.shifted = absl::AsciiStrToLower(c.string("checkpoint_format", "gptq")) != "gptq_v2";
  if (const json::object* rules = c.object("dynamic"); rules && !rules->empty())
    c.fail("dynamic", "rules for single modules are not supported");
}

void read_awq(Config& c, Quantization& q) {
  read_packed(c, q);
  c.integer("bits", 4, 4, 4);
  check_word(c, "version", {"gemm"});
}

// Whether all config_groups have 8-bit integer activations.
bool has_byte_inputs(Config& c) {
  const json::object* groups = c.object("config_groups");
  const auto is_bytes = [](const json::object::value_type& group) {
    const json::value* inputs = group.value().is_object()
                                    ? group.value().get_object().if_contains("input_activations")
                                    : nullptr;
    if (!inputs || !inputs->is_object()) return false;
    const json::value* type = inputs->get_object().if_contains("type");
    const json::value* bits = inputs->get_object().if_contains("num_bits");
    return type && *type == "int" && bits && *bits == 8;
  };
  return groups && !groups->empty() && std::ranges::all_of(*groups, is_bytes);
}

void read_cache_scheme(Config& c, Quantization& q) {
  c.inside("kv_cache_scheme", [&](Config& scheme) {
    scheme.integer("num_bits", 8, 8);
    check_word(scheme, "type", {"float", "int"});
    q.cache = scheme.string("type") == "int" ? DType::kI8 : DType::kF8E4M3;
  });
}

void read_compressed(Config& c, Quantization& q) {
  read_cache_scheme(c, q);
  q.byte_inputs = has_byte_inputs(c);
  check_word(c, "format",
             {"pack-quantized", "int-quantized", "float-quantized", "naive-quantized",
              "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mxfp8-quantized", "mixed-precision",
              "dense"});
  if (const json::object* sparsity = c.object("sparsity_config")) {
    Config inner(*sparsity, c.where() + ": sparsity_config");
    check_word(inner, "format", {"dense"});
    c.add(inner.status());
  }
  if (const json::object* transforms = c.object("transform_config")) {
    const json::value* groups = transforms->if_contains("config_groups");
    if (groups && groups->is_object() && !groups->get_object().empty())
      c.fail("transform_config", "rotated weights are not supported");
  }
}

void read_fp8(Config& c, Quantization& q) {
  check_word(c, "fmt", {"e4m3"});
  const std::vector<int32_t> blocks = c.integers("weight_block_size", 1, kMostColumns - 1);
  if (blocks.empty()) return;
  if (blocks.size() != 2) return c.fail("weight_block_size", "is not rows and columns");
  q.block_rows = blocks[0], q.block_cols = blocks[1];
}

void read_model_optimizer(Config& c, Quantization& q) {
  q.cache = cache_algorithm(c);
  read_cache_scheme(c, q);
}

// Configuration of all modules, by torchao's class name.
void read_torchao(Config& c, Quantization& q) {
  constexpr std::string_view kByteInputs[] = {"Int8DynamicActivationInt8WeightConfig",
                                              "Int8StaticActivationInt8WeightConfig"};
  std::string type;
  c.inside("quant_type", [&](Config& modules) {
    modules.inside("default", [&](Config& all) { type = all.string("_type", ""); });
  });
  q.byte_inputs = std::ranges::find(kByteInputs, type) != std::end(kByteInputs);
}

void read_nothing(Config&, Quantization&) {}

struct Method {
  std::string_view name;
  void (*read)(Config& config, Quantization& out);
};
constexpr Method kMethods[] = {{"gptq", read_gptq},
                               {"awq", read_awq},
                               {"compressed-tensors", read_compressed},
                               {"fp8", read_fp8},
                               {"fbgemm_fp8", read_nothing},
                               {"bitsandbytes", read_nothing},
                               {"modelopt", read_model_optimizer},
                               {"mxfp4", read_nothing},
                               {"torchao", read_torchao}};

// Scales of activations and caches, and order marks, which follow from the tensors.
constexpr std::string_view kLeftOut[] = {".input_scale",
                                         ".input_zero_point",
                                         ".input_global_scale",
                                         ".output_scale",
                                         ".q_scale",
                                         ".k_scale",
                                         ".v_scale",
                                         ".weight_format",
                                         ".weight_g_idx",
                                         ".input_activation_scale",
                                         "._weight_act_quant_scale",
                                         "._weight_act_quant_zero_point"};

// Finds the tensors of each matrix.
class Joiner {
 public:
  Joiner(const Quantization& q, const io::Checkpoint& checkpoint)
      : q_(q), checkpoint_(checkpoint) {}

  Status join(const StoredTensor& tensor, const io::TensorFile& file) {
    file_ = &file;
    const std::string_view name = tensor.name;
    const auto ends = [&](std::string_view suffix) {
      if (!name.ends_with(suffix)) return false;
      stem_ = name.substr(0, name.size() - suffix.size());
      return true;
    };
    for (const std::string_view suffix : kLeftOut)
      if (ends(suffix)) return take({&tensor}, std::nullopt);
    if (ends(".qweight")) return words(tensor);
    if (ends(".weight_packed"))
      return tensor.type == DType::kI32 ? packed_rows(tensor) : packed_floats(tensor);
    if (ends("_blocks")) return mxfp4(tensor);
    if (ends("._weight_qdata")) return torchao(tensor);
    if (!ends(".weight")) return ok();
    if (tensor.type == DType::kI8 || tensor.type == DType::kF8E4M3) return scaled(tensor);
    if (tensor.type != DType::kU8) return ok();
    if (find(".weight.absmax")) return table(tensor);
    return find(".weight_scale_2") ? packed_floats(tensor) : pairs_of_rows(tensor);
  }
  std::vector<io::Checkpoint::Joined> joined() && { return std::move(joined_); }

 private:
  const StoredTensor* find(std::string_view suffix) const {
    const auto* entry = checkpoint_.find(stem_ + std::string(suffix));
    return entry ? entry->tensor : nullptr;
  }
  Status take(std::initializer_list<const StoredTensor*> parts, std::optional<StoredTensor> whole) {
    io::Checkpoint::Joined& out = joined_.emplace_back();
    for (const StoredTensor* part : parts)
      if (part) out.parts.push_back(part->name);
    out.whole = std::move(whole);
    return ok();
  }
  std::string whole_name() const { return stem_ + ".weight"; }

  Status words(const StoredTensor& data) {
    const bool awq = q_.method == "awq";
    const io::PackedTensors parts{&data, find(".scales"), find(".qzeros"), find(".g_idx")};
    const io::PackedLayout layout{awq ? io::Packing::kOutputs : io::Packing::kInputs,
                                  awq ? 4 : q_.bits, q_.group, !awq && q_.shifted ? 1 : 0};
    ASSIGN_OR_RETURN(StoredTensor whole, io::packed_integers(whole_name(), parts, layout));
    return take({&data, parts.scales, parts.zeros, parts.index}, std::move(whole));
  }

  // compressed-tensors integers; bits and groups follow from the shapes.
  Status packed_rows(const StoredTensor& data) {
    const StoredTensor* shape = find(".weight_shape");
    const io::PackedTensors parts{&data, find(".weight_scale"), find(".weight_zero_point"),
                                  nullptr};
    if (!parts.scales || parts.scales->shape.size() != 2 || !shape || data.shape.size() != 2 ||
        shape->type != DType::kI64 || shape->data.size() != 16)
      return invalid_argument(
          "tensor '{}': '{}.weight_scale' (a matrix) or '{}.weight_shape' (two I64) is missing",
          data.name, stem_, stem_);
    if (find(".weight_g_idx"))
      return unsupported("tensor '{}': reordered columns (weight_g_idx)", data.name);
    int64_t size[2];
    std::memcpy(size, shape->data.data(), sizeof size);
    const int64_t count = data.shape[1], groups = parts.scales->shape[1];
    io::PackedLayout layout{io::Packing::kRows};
    layout.bits = count > 0 && size[1] == count * 8 ? 4 : 8;
    if (size[1] != count * (32 / layout.bits) || groups < 1 || size[1] % groups != 0)
      return invalid_argument(
          "tensor '{}': {} words a row for {} columns in {} groups are not 4 or 8 bits for each "
          "in equal groups",
          data.name, count, size[1], groups);
    layout.group = groups == 1 ? 0 : size[1] / groups;
    ASSIGN_OR_RETURN(StoredTensor whole, io::packed_integers(whole_name(), parts, layout));
    return take({&data, parts.scales, parts.zeros, shape}, std::move(whole));
  }

  // Model Optimizer's integers.
  Status pairs_of_rows(const StoredTensor& data) {
    const io::PackedTensors parts{&data, find(".weight_scale"), nullptr, nullptr,
                                  find(".pre_quant_scale")};
    if (!parts.scales || parts.scales->shape.size() != 2 || data.shape.size() != 2 ||
        parts.scales->shape[1] < 1 || data.shape[1] % parts.scales->shape[1] != 0)
      return invalid_argument("tensor '{}': U8 without '{}.weight_scale' of equal groups",
                              data.name, stem_);
    const int64_t groups = parts.scales->shape[1];
    const io::PackedLayout layout{io::Packing::kPairsOfRows, 4,
                                  groups == 1 ? 0 : data.shape[1] / groups};
    ASSIGN_OR_RETURN(StoredTensor whole, io::packed_integers(whole_name(), parts, layout));
    return take({&data, parts.scales, parts.inputs}, std::move(whole));
  }

  // nvfp4 of compressed-tensors (divides by the global scale) and of Model Optimizer (multiplies).
  Status packed_floats(const StoredTensor& data) {
    const StoredTensor* divisor = find(".weight_global_scale");
    io::E2m1Tensors parts{&data, find(".weight_scale"), divisor, divisor != nullptr};
    if (!divisor) parts.factor = find(".weight_scale_2");
    ASSIGN_OR_RETURN(StoredTensor whole, io::e2m1_blocks(whole_name(), parts));
    return take({&data, parts.scales, parts.factor}, std::move(whole));
  }

  Status mxfp4(const StoredTensor& data) {
    const io::E2m1Tensors parts{&data, find("_scales"), nullptr, false, true};
    ASSIGN_OR_RETURN(StoredTensor whole, io::e2m1_blocks(stem_, parts));
    return take({&data, parts.scales}, std::move(whole));
  }

  // 8-bit numbers with scales per row, group or block; 4-bit pairs with float zero points.
  Status torchao(const StoredTensor& data) {
    const StoredTensor* const inputs = find("._weight_act_pre_scale");
    const StoredTensor* const zeros = find("._weight_zero_point");
    const StoredTensor* const scales = find("._weight_scale");
    if (const StoredTensor* pairs = find("._weight_scale_and_zero")) {
      ASSIGN_OR_RETURN(const auto size, size_in_header());
      const io::TiledTensors parts{&data, pairs, inputs};
      ASSIGN_OR_RETURN(StoredTensor whole,
                       io::tiled_nibbles(whole_name(), parts, size.first, size.second));
      return take({&data, pairs, inputs}, std::move(whole));
    }
    if (zeros && zeros->type != DType::kI8) {
      const io::NibbleTensors parts{&data, scales, zeros, inputs};
      ASSIGN_OR_RETURN(StoredTensor whole, io::offset_nibbles(whole_name(), parts));
      return take({&data, scales, zeros, inputs}, std::move(whole));
    }
    return scaled({&data, scales, zeros, inputs}, {1, 0, 1, q_.byte_inputs});
  }

  // Rows and columns from the file's `__metadata__`, a JSON text per tensor; zeros: absent.
  StatusOr<std::pair<int64_t, int64_t>> size_in_header() {
    constexpr size_t kLength = 8;  // bytes of the length in front of the header
    if (header_of_ != file_) {
      header_of_ = file_, header_ = {};
      const auto bytes = file_->header();
      const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
      const auto parsed = parse_json(text.substr(std::min(kLength, text.size())));
      const json::object* all = parsed.ok() ? parsed->if_object() : nullptr;
      const json::value* said = all ? all->if_contains("__metadata__") : nullptr;
      if (said && said->is_object()) header_ = said->get_object();
    }
    const json::value* const said = header_.if_contains(whole_name());
    if (!said || !said->is_string()) return std::pair<int64_t, int64_t>();
    const std::string where = fmt::format("__metadata__: '{}'", whole_name());
    ASSIGN_OR_RETURN(const json::value parsed,
                     parse_state(std::string_view(said->get_string()), where));
    if (!parsed.is_object()) return invalid_argument("{}: is not a JSON object", where);
    Config c(parsed.get_object(), where);
    std::vector<int32_t> shape;
    c.inside("_data", [&](Config& inner) { shape = inner.integers("shape", 1, kMostColumns - 1); });
    if (!shape.empty() && shape.size() != 2) c.fail("shape", "is not rows and columns");
    RETURN_IF_ERROR(c.status());
    if (shape.empty()) return std::pair<int64_t, int64_t>();
    return std::pair<int64_t, int64_t>(shape[0], shape[1]);
  }

  Status scaled(const StoredTensor& data) {
    io::ScaledTensors parts{&data, find(".weight_scale"), find(".weight_zero_point")};
    io::ScaledLayout layout{q_.block_rows, q_.block_cols, 1, q_.byte_inputs};
    if (const StoredTensor* blocks = find(".weight_scale_inv")) parts.scales = blocks;
    if (const StoredTensor* largest = find(".SCB"))
      parts.scales = largest, layout.factor = 1 / 127.0f;
    return scaled(parts, layout);
  }

  Status scaled(const io::ScaledTensors& parts, io::ScaledLayout layout) {
    const StoredTensor& data = *parts.data;
    if (!parts.scales)
      return invalid_argument(
          "tensor '{}': has dtype {}, and its scales ('{}.weight_scale') are missing", data.name,
          data.dtype, stem_);
    const std::vector<int64_t>& shape = parts.scales->shape;
    if (q_.method != "fp8" && shape.size() == 2 && data.shape.size() == 2 && shape[1] > 1) {
      const bool rows = shape[0] == data.shape[0] && data.shape[1] % shape[1] == 0;
      layout.block_rows = rows ? 1 : kDefaultBlock;
      layout.block_cols = rows ? data.shape[1] / shape[1] : kDefaultBlock;
    }
    ASSIGN_OR_RETURN(StoredTensor whole, io::scaled_bytes(whole_name(), parts, layout));
    return take({&data, parts.scales, parts.zeros, parts.inputs}, std::move(whole));
  }

  Status table(const StoredTensor& data) {
    const io::TableTensors parts{&data, find(".weight.quant_map"), find(".weight.absmax"),
                                 find(".weight.nested_quant_map"), find(".weight.nested_absmax")};
    const StoredTensor* state = find(".weight.quant_state.bitsandbytes__nf4");
    if (!state) state = find(".weight.quant_state.bitsandbytes__fp4");
    if (!state)
      return invalid_argument("tensor '{}': '{}.weight.quant_state.bitsandbytes__nf4' is missing",
                              data.name, stem_);
    const std::string_view text(reinterpret_cast<const char*>(state->data.data()),
                                state->data.size());
    ASSIGN_OR_RETURN(const json::value parsed, parse_state(text, state->name));
    if (!parsed.is_object())
      return invalid_argument("tensor '{}': is not a JSON object", state->name);
    Config c(parsed.get_object(), state->name);
    const std::vector<int32_t> shape = c.integers("shape", 1, kMostColumns - 1);
    if (shape.size() != 2) c.fail("shape", "is not rows and columns");
    const io::TableLayout layout{shape.size() == 2 ? shape[0] : 1, shape.size() == 2 ? shape[1] : 2,
                                 c.integer("blocksize", 1, 1 << 20),
                                 c.integer("nested_blocksize", 1, 1 << 20, 256),
                                 static_cast<float>(c.number("nested_offset", -1e6, 1e6, 0))};
    RETURN_IF_ERROR(c.status());
    ASSIGN_OR_RETURN(StoredTensor whole, io::table_nibbles(whole_name(), parts, layout));
    return take(
        {&data, parts.table, parts.largest, parts.largest_table, parts.largest_scale, state},
        std::move(whole));
  }

  static StatusOr<json::value> parse_state(std::string_view text, std::string_view where) {
    StatusOr<json::value> parsed = parse_json(text);
    if (!parsed.ok()) return annotate(parsed.status(), where);
    return parsed;
  }

  const Quantization& q_;
  const io::Checkpoint& checkpoint_;
  std::string stem_;
  const io::TensorFile* file_ = nullptr;  // of the current tensor
  const io::TensorFile* header_of_ = nullptr;
  json::object header_;  // `__metadata__` of that file
  std::vector<io::Checkpoint::Joined> joined_;
};

}  // namespace

DType cache_algorithm(Config& c) {
  const std::string name = c.string("kv_cache_quant_algo", "NO_QUANT");
  if (name == "INT8") return DType::kI8;
  if (name == "FP8") return DType::kF8E4M3;
  if (name != "NO_QUANT")
    c.fail("kv_cache_quant_algo",
           fmt::format("'{}' is not one of null, NO_QUANT, INT8, FP8", name.substr(0, 40)));
  return DType::kBF16;
}

StatusOr<Quantization> read_quantization(const json::object& config,
                                         const std::filesystem::path& dir) {
  Quantization out;
  const json::value* found = config.if_contains("quantization_config");
  std::string where = (dir / "config.json").string() + ": quantization_config";
  if (!found || found->is_null()) {
    found = config.if_contains("compression_config");
    where = (dir / "config.json").string() + ": compression_config";
  }
  if (!found || found->is_null()) {
    const std::filesystem::path path = dir / "hf_quant_config.json";
    std::error_code error;
    if (std::filesystem::exists(path, error)) {
      ASSIGN_OR_RETURN(const json::object object, read_object(path));
      Config c(object, path.string());
      c.inside("quantization", [&](Config& inner) { out.cache = cache_algorithm(inner); });
      RETURN_IF_ERROR(c.status());
      out.method = "modelopt";
    }
    return out;
  }
  if (!found->is_object()) return invalid_argument("{}: is not an object", where);
  Config c(found->get_object(), where);
  out.method = absl::AsciiStrToLower(c.string("quant_method", ""));
  const auto* method = std::ranges::find(kMethods, out.method, &Method::name);
  if (method == std::end(kMethods)) {
    std::vector<std::string_view> names;
    for (const Method& row : kMethods) names.push_back(row.name);
    c.fail("quant_method",
           fmt::format("'{}' is not one of {}", out.method.substr(0, 40), fmt::join(names, ", ")));
  } else {
    method->read(c, out);
  }
  RETURN_IF_ERROR(c.status());
  return out;
}

Status join_quantized(const Quantization& quantization, io::Checkpoint& checkpoint) {
  if (quantization.empty()) return ok();
  Joiner joiner(quantization, checkpoint);
  for (const io::Checkpoint::Entry& entry : checkpoint.entries())
    RETURN_IF_ERROR(annotate(joiner.join(*entry.tensor, *entry.file), entry.file->path().string()));
  return checkpoint.join(std::move(joiner).joined());
}

}  // namespace nereid::models
