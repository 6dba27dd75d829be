// Values by name: the variables of a scope, the attributes of a namespace.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/hash_index.h"
#include "text/jinja/value.h"

namespace nereid::text::jinja {

class Names {
 public:
  // Null: no such name.
  const Value* find(std::string_view name, Budget& budget) const;
  // Replaces the value of that name, or adds it.
  void set(std::string_view name, Value value, Budget& budget);
  void clear();

 private:
  size_t position(std::string_view name, Budget& budget) const;

  std::vector<std::pair<std::string, Value>> entries_;
  HashIndex index_;  // of all entries, if more than HashIndex::kFew
};

}  // namespace nereid::text::jinja
