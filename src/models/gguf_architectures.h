// The architectures of GGUF files: which fields of config.json a family's metadata stand for, and
// what its tensors are called.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "models/family.h"

namespace nereid::models {

// A file's metadata, and the config.json that is being made of it.
struct GgufFields {
  const json::object& metadata;
  const GgufLayout& layout;
  json::object config = {};

  // nullptr when absent. Keys stand behind the architecture: "block_count".
  const json::value* find(std::string_view key) const;
  // What a number or a boolean is; `fallback` where it is absent or something else.
  double number(std::string_view key, double fallback) const;
  bool has(std::string_view tensor) const { return layout.tensors.contains(tensor); }
  // Without those that predict further tokens; 0 where it is no number that can be one.
  int64_t layers() const;
  double head_dim() const;
  // `layer_types`: the window's pattern that the file has, else every `period`th layer has none.
  void set_windows(int64_t period);
};

struct GgufKeyRow {
  std::string_view key;
  std::string_view field;  // config.json's; empty: `complete` reads the key
};
using GgufPair = std::pair<std::string_view, std::string_view>;

// A number of each layer that stands in the metadata: a list, or one number for all layers.
struct GgufLayerNumber {
  std::string_view key;  // whole: no architecture in front
  // The graph's weight that it is, and the word of a tensor that stands for it.
  std::string_view weight = {}, word = {};
  double only = 0;  // of one that is no weight: what it must be, within a hundredth
};

struct GgufArchitecture {
  std::string_view name;    // general.architecture
  std::string_view family;  // config.json's
  // Keys that stand for other fields than with most architectures.
  std::span<const GgufKeyRow> keys = {};
  // Fields that say whether the first layer has a tensor.
  std::span<const GgufPair> flags = {};
  // The graph's weights that have other words than with most architectures.
  std::span<const GgufPair> words = {};
  std::span<const GgufLayerNumber> numbers = {};
  bool is_paired = false;  // the rows of queries and keys of a rotary pair lie side by side
  void (*complete)(GgufFields&) = nullptr;  // what follows from several keys or tensors
};

// nullptr for a name that is not known.
const GgufArchitecture* find_gguf_architecture(std::string_view name);
std::string gguf_architecture_names();  // "llama, qwen2"

}  // namespace nereid::models
