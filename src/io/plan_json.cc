// The plan as JSON. Each struct lists its fields once, for reader and writer. Within a format
// version fields are append-only: added ones are maybe(), absent in older files, with the default
// of a new object. Unknown fields are refused.
#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "io/plan.h"

namespace nereid::io {
namespace {

template <class E>
struct Names;
template <>
struct Names<DType> {
  static constexpr std::string_view kNames[] = {"f32", "bf16", "f16", "i32",
                                                "i64", "u8",   "i8",  "f8e4m3"};
};
template <>
struct Names<RowCount> {
  static constexpr std::string_view kNames[] = {"tokens", "sampled"};
};
template <>
struct Names<kernels::WeightLayout> {
  static constexpr std::string_view kNames[] = {"row_major", "panel16", "fragments"};
};
// Attributes of ops carry their names.
template <class E>
std::span<const std::string_view> names_in_file(E e) {
  if constexpr (requires { names_of(e); })
    return names_of(e);
  else
    return Names<E>::kNames;
}
template <class E>
std::string_view name_in_file(E e) {
  return names_in_file(e)[static_cast<size_t>(e)];
}

// A checksum as 16 hex digits: fixed text length.
struct Hex {
  uint64_t& value;
};

template <class V>
void fields(V& v, Value& x) {
  v("name", x.name), v("extent", x.extent), v("dtype", x.dtype), v("cols", x.cols);
  v("stride", x.stride), v.maybe("column", x.column), v("offset", x.offset);
}
template <class V>
void fields(V& v, kernels::WeightFormat& x) {
  v("scheme", x.scheme), v("bits", x.bits), v("group", x.group), v("scales", x.scales);
  v.maybe("zeros", x.zeros), v.maybe("minima", x.minima), v.maybe("ordered", x.ordered);
  v.maybe("inputs", x.inputs);
}
template <class V>
void fields(V& v, Plane& x) {
  v("role", x.shape.role), v("type", x.shape.type), v("rows", x.shape.rows);
  v("cols", x.shape.cols), v("bytes", x.shape.bytes), v("offset", x.offset);
  v("checksum", Hex{x.checksum});
}
template <class V>
void fields(V& v, PlanWeight& x) {
  v("name", x.name), v("format", x.format), v("n", x.n), v("k", x.k), v("layout", x.layout);
  v.maybe("experts", x.experts);
  v("planes", x.planes);
}
template <class V>
void fields(V& v, kernels::Heads& x) {
  v("num", x.num), v("num_kv", x.num_kv), v("dim", x.dim), v.maybe("latent", x.latent);
}
// Fields of an op, without run-time arguments.
template <class V, class Op>
void op_fields(V& v, Op& op) {
  kernels::for_fields(op, [&](const auto& field, auto& x) {
    using Operand = std::remove_cvref_t<decltype(x)>;
    constexpr kernels::Role kRole = std::remove_cvref_t<decltype(field)>::kRole;
    if constexpr (std::is_same_v<Operand, kernels::Id>)
      field.optional ? v.maybe(field.name, x.index) : v(field.name, x.index);
    else if constexpr (kRole == kernels::Role::kAttribute)
      v.maybe(field.name, x);
    else if constexpr (kRole != kernels::Role::kStep)
      v(field.name, x);
  });
}
template <class V>
void fields(V& v, RopeTable& x) {
  v("inverse_frequencies", x.inverse_frequencies), v("attention_factor", x.attention_factor);
  v.maybe("components", x.components);
}
template <class V>
void fields(V& v, PictureFacts& x) {
  v("patch_width", x.patch_width), v("merge", x.merge), v("class_tokens", x.class_tokens);
  v("grid", x.grid), v("max_frames", x.max_frames), v("in_raster", x.in_raster);
  v("row_breaks", x.row_breaks), v("has_components", x.has_components), v("window", x.window);
  v("frame_positions", x.frame_positions);
  v.maybe("whole_pictures", x.whole_pictures), v.maybe("whole_prompts", x.whole_prompts);
  v.maybe("deep_layers", x.deep_layers), v.maybe("tiles_in_plane", x.tiles_in_plane);
  v.maybe("blended_tiles", x.blended_tiles);
  v.maybe("in_cross", x.in_cross), v.maybe("frame_padding", x.frame_padding);
}
template <class V>
void fields(V& v, ModelFacts& x) {
  v("name", x.name), v("architecture", x.architecture), v("source_dir", x.source_dir);
  v("vocab_size", x.vocab_size), v("hidden_size", x.hidden_size), v("num_layers", x.num_layers);
  v("num_heads", x.num_heads), v("num_kv_heads", x.num_kv_heads), v("head_dim", x.head_dim);
  v.maybe("latent", x.latent);
  v("max_positions", x.max_positions), v.maybe("ropes", x.ropes);
  v.maybe("bos_id", x.bos_id), v.maybe("pad_id", x.pad_id), v.maybe("end_ids", x.end_ids);
  v.maybe("kv_dtype", x.kv_dtype);
  v.maybe("num_cross_layers", x.num_cross_layers), v.maybe("decoder_start_id", x.decoder_start_id);
  v.maybe("forced_bos_id", x.forced_bos_id), v.maybe("is_encoder", x.is_encoder);
  v.maybe("encoder_positions", x.encoder_positions), v.maybe("reads_features", x.reads_features);
  v.maybe("pictures", x.pictures);
}
template <class V>
void fields(V& v, Mapping& x) {
  v.maybe("tp", x.tp), v.maybe("pp", x.pp), v.maybe("ep", x.ep), v.maybe("rank", x.rank);
  v.maybe("invariant", x.invariant);
}
template <class V>
void fields(V& v, LayerCache& x) {
  v("layer", x.layer), v("window", x.window), v("num_kv", x.num_kv), v("dim", x.dim);
  v("latent", x.latent);
}
template <class V>
void fields(V& v, RowRun& x) {
  v("first", x.first), v("size", x.size), v("step", x.step);
}
template <class V>
void fields(V& v, AdapterModule& x) {
  v("name", x.name), v("k", x.k), v("n", x.n), v.maybe("column", x.column);
  v.maybe("of_tokens", x.of_tokens);
  v("source", x.source), v("source_rows", x.source_rows), v("rows", x.rows);
}
template <class V>
void fields(V& v, ModulePart& x) {
  v("module", x.module), v("column", x.column), v("runs", x.runs);
}
template <class V>
void fields(V& v, kernels::ProductChoice& x) {
  v("n", x.n), v("k", x.k), v("x", x.x), v("out", x.out), v("rows", x.rows);
  v("algorithm", x.algorithm);
}
template <class V>
void fields(V& v, kernels::AlgorithmChoices& x) {
  v("library", x.library), v("device", x.device), v("products", x.products);
}
template <class V>
void fields(V& v, Plan& x) {
  v("model", x.model), v.maybe("mapping", x.mapping), v.maybe("caches", x.caches);
  v("values", x.values), v("weights", x.weights), v("calls", x.calls);
  v.maybe("modules", x.modules), v.maybe("module_parts", x.module_parts);
  v("logits", x.logits), v.maybe("hidden", x.hidden);
  v("arena_bytes_per_token", x.arena_bytes_per_row[static_cast<int>(RowCount::kTokens)]);
  v("arena_bytes_per_sampled", x.arena_bytes_per_row[static_cast<int>(RowCount::kSampled)]);
  v("blob_bytes", x.blob_bytes), v("device", x.device), v("target", x.target);
  v.maybe("choices", x.choices);
}

class Writer {
 public:
  template <class T>
  void operator()(std::string_view key, T&& x) {
    object_[key] = write(x);
  }
  template <class T>
  void maybe(std::string_view key, T&& x) {
    (*this)(key, x);
  }
  json::object take() { return std::move(object_); }

  template <class T>
  static json::value write(T& x) {
    if constexpr (std::is_enum_v<T>) {
      return json::value(name_in_file(x));
    } else if constexpr (std::is_arithmetic_v<T> || std::is_same_v<T, std::string>) {
      return json::value(x);
    } else if constexpr (std::is_same_v<T, Hex>) {
      return json::value(hex64(x.value));
    } else if constexpr (std::is_same_v<T, Call>) {
      return write_call(x);
    } else {
      Writer inner;
      fields(inner, x);
      return inner.take();
    }
  }
  template <class T>
  static json::value write(std::vector<T>& items) {
    json::array out;
    out.reserve(items.size());
    for (T& item : items) out.push_back(write(item));
    return out;
  }

 private:
  static json::value write_call(Call& call) {
    Writer inner;
    inner.object_["op"] = name_of(call.op);
    std::visit([&](auto& op) { op_fields(inner, op); }, call.op);
    inner("kernel", call.kernel);
    return inner.take();
  }
  json::object object_;
};

class Reader {
 public:
  explicit Reader(const json::value& value) : object_(value.if_object()) {
    if (!object_) status_ = invalid_argument("is not an object");
  }

  template <class T>
  void operator()(std::string_view key, T&& x) {
    if (status_.ok() && !object_->contains(key))
      status_ = annotate(invalid_argument("is missing"), key);
    maybe(key, x);
  }
  // An optional field; absent: unchanged.
  template <class T>
  void maybe(std::string_view key, T&& x) {
    known_.push_back(key);
    if (!status_.ok()) return;
    const json::value* value = object_->if_contains(key);
    const Status status = value ? read(*value, x) : ok();
    if (!status.ok()) status_ = annotate(status, key);
  }
  // Called behind all fields.
  Status finish() {
    if (!status_.ok()) return status_;
    for (const auto& field : *object_)
      if (std::ranges::find(known_, std::string_view(field.key())) == known_.end())
        return annotate(invalid_argument("is not known"), std::string_view(field.key()));
    return ok();
  }

  template <class T>
  static Status read(const json::value& value, T& x) {
    if constexpr (std::is_enum_v<T>) {
      return read_enum(value, x);
    } else if constexpr (std::is_same_v<T, bool>) {
      if (!value.is_bool()) return invalid_argument("is not true or false");
      x = value.get_bool();
      return ok();
    } else if constexpr (std::is_integral_v<T>) {
      return read_int(value, x);
    } else if constexpr (std::is_same_v<T, float>) {
      if (!value.is_number()) return invalid_argument("is not a number");
      x = static_cast<float>(value.to_number<double>());
      return ok();
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!value.is_string()) return invalid_argument("is not a string");
      x = std::string_view(value.get_string());
      return ok();
    } else if constexpr (std::is_same_v<T, Hex>) {
      return read_hex(value, x);
    } else if constexpr (std::is_same_v<T, Call>) {
      return read_call(value, x);
    } else {
      Reader inner(value);
      fields(inner, x);
      return inner.finish();
    }
  }
  template <class T>
  static Status read(const json::value& value, std::vector<T>& items) {
    if (!value.is_array()) return invalid_argument("is not an array");
    items.clear();
    for (const json::value& item : value.get_array()) {
      const Status status = read(item, items.emplace_back());
      if (!status.ok()) return annotate(status, fmt::format("[{}]", items.size() - 1));
    }
    return ok();
  }

 private:
  template <class T>
  static Status read_int(const json::value& value, T& x) {
    if (value.is_uint64() && value.get_uint64() <= std::numeric_limits<T>::max()) {
      x = static_cast<T>(value.get_uint64());
    } else if (value.is_int64() && std::in_range<T>(value.get_int64())) {
      x = static_cast<T>(value.get_int64());
    } else {
      return invalid_argument("is not an integer in range");
    }
    return ok();
  }
  template <class E>
  static Status read_enum(const json::value& value, E& x) {
    const std::span<const std::string_view> names = names_in_file(x);
    for (size_t i = 0; value.is_string() && i < names.size(); ++i) {
      if (std::string_view(value.get_string()) != names[i]) continue;
      x = static_cast<E>(i);
      return ok();
    }
    return invalid_argument("is not a known name");
  }
  static Status read_hex(const json::value& value, Hex& x) {
    if (!value.is_string() || value.get_string().size() != 16)
      return invalid_argument("is not 16 hex digits");
    x.value = 0;
    for (const char c : value.get_string()) {
      const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
      if (digit < 0) return invalid_argument("is not 16 hex digits");
      x.value = x.value << 4 | static_cast<uint64_t>(digit);
    }
    return ok();
  }
  template <size_t I = 0>
  static Status read_call(const json::value& value, Call& call) {
    if constexpr (I == std::variant_size_v<Op>) {
      return invalid_argument("is not a call of a known op");
    } else {
      Op candidate(std::in_place_index<I>);
      const json::value* op = value.is_object() ? value.get_object().if_contains("op") : nullptr;
      if (!op || !op->is_string() || std::string_view(op->get_string()) != name_of(candidate))
        return read_call<I + 1>(value, call);
      call.op = std::move(candidate);
      Reader inner(value);
      op_fields(inner, std::get<I>(call.op));
      inner("kernel", call.kernel);
      inner.known_.push_back("op");
      return inner.finish();
    }
  }

  const json::object* object_ = nullptr;
  std::vector<std::string_view> known_;
  Status status_;
};

}  // namespace

json::value plan_to_json(const Plan& plan) {
  Plan copy = plan;  // the field lists require lvalues
  return Writer::write(copy);
}

StatusOr<Plan> plan_from_json(const json::value& value) {
  Plan plan;
  Status status = Reader::read(value, plan);
  if (status.ok()) status = check_plan(plan);
  if (!status.ok()) return annotate(status, "plan");
  return plan;
}

}  // namespace nereid::io
