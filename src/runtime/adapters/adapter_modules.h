// Modules of an engine by their names in adapters.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/plan.h"
#include "runtime/adapters/lora_module_names.h"

namespace nereid::runtime {

class AdapterModules {
 public:
  explicit AdapterModules(std::span<const io::AdapterModule> modules) {
    for (const io::AdapterModule& m : modules) {
      const auto index = static_cast<int32_t>(&m - modules.data());
      by_source_[m.source].push_back(index);
      // An encoder's layers, which come behind the decoder's, have no numbers of their own.
      if (const auto id = lora_module_of(m.source)) by_id_.emplace(*id, index);
    }
  }

  // Modules made of a matrix, by its Hugging Face name, which may have a prefix.
  std::span<const int32_t> find(std::string_view source) const {
    for (;;) {
      if (const auto found = by_source_.find(source); found != by_source_.end())
        return found->second;
      const size_t dot = source.find('.');
      if (dot == std::string_view::npos) return {};
      source.remove_prefix(dot + 1);
    }
  }

  std::optional<int32_t> find(const LoraModuleId& id) const {
    const auto found = by_id_.find(id);
    if (found == by_id_.end()) return std::nullopt;
    return found->second;
  }

  int32_t num_experts(int32_t layer) const {
    int32_t count = 0;
    while (by_id_.contains({kMoe4HToH, layer, count})) ++count;
    return count;
  }

 private:
  std::map<std::string, std::vector<int32_t>, std::less<>> by_source_;
  std::map<LoraModuleId, int32_t> by_id_;
};

}  // namespace nereid::runtime
