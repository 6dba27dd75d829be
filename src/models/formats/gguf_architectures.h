// GGUF architectures: mapping of metadata to config.json fields, and of tensors to weights.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "models/family.h"

namespace nereid::models {

// A file's metadata, and the config.json being built.
struct GgufFields {
  const json::object& metadata;
  const GgufLayout& layout;
  json::object config = {};

  // nullptr: absent. Keys without the architecture prefix: "block_count".
  const json::value* find(std::string_view key) const;
  // A number or boolean; `fallback` if absent or of another type.
  double number(std::string_view key, double fallback) const;
  bool has(std::string_view tensor) const { return layout.tensors.contains(tensor); }
  // Layers without MTP layers; 0: not a valid number.
  int64_t layers() const;
  double head_dim() const;
  // Sets `layer_types`: the file's window pattern, else no window in every `period`th layer.
  void set_windows(int64_t period);
};

struct GgufKeyRow {
  std::string_view key;
  std::string_view field;  // in config.json; empty: read by `complete`
};
using GgufPair = std::pair<std::string_view, std::string_view>;

// A per-layer number in the metadata: a list, or one number for all layers.
struct GgufLayerNumber {
  std::string_view key;  // complete, without an architecture prefix
  // The graph's weight, and the word for it in tensor names.
  std::string_view weight = {}, word = {};
  double only = 0;  // required value (within 1 %), if it is no weight
};

struct GgufArchitecture {
  std::string_view name;    // general.architecture
  std::string_view family;  // config.json's
  // Keys that differ from those of most architectures.
  std::span<const GgufKeyRow> keys = {};
  // Fields derived from whether the first layer has a tensor.
  std::span<const GgufPair> flags = {};
  // Tensor words that differ from those of most architectures.
  std::span<const GgufPair> words = {};
  std::span<const GgufLayerNumber> numbers = {};
  bool is_paired = false;  // rows of Q and K: the two rows of a rotary pair are adjacent
  void (*complete)(GgufFields&) = nullptr;  // fields derived from several keys or tensors
};

// nullptr: unknown name.
const GgufArchitecture* find_gguf_architecture(std::string_view name);
std::string gguf_architecture_names();  // comma-separated

}  // namespace nereid::models
