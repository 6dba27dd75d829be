// The modules of an engine by what adapters call them.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "io/plan.h"
#include "runtime/lora_module_names.h"

namespace nereid::runtime {

class AdapterModules {
 public:
  explicit AdapterModules(std::span<const io::AdapterModule> modules) {
    for (const io::AdapterModule& m : modules) {
      const auto index = static_cast<int32_t>(&m - modules.data());
      by_name_[m.name] = index;
      if (const auto id = lora_module_of(m.name)) by_id_[*id] = index;
    }
  }

  // By its name in the checkpoint, in front of which there may be more.
  std::optional<int32_t> find(std::string_view name) const {
    for (;;) {
      if (const auto found = by_name_.find(name); found != by_name_.end()) return found->second;
      const size_t dot = name.find('.');
      if (dot == std::string_view::npos) return std::nullopt;
      name.remove_prefix(dot + 1);
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
  std::map<std::string, int32_t, std::less<>> by_name_;
  std::map<LoraModuleId, int32_t> by_id_;
};

}  // namespace nereid::runtime
