// The identity of a model.
#pragma once

#include <compare>
#include <string>

namespace nereid::server {

struct ModelId {
  std::string space;  // with namespaces the repository's root, else ""
  std::string name;

  std::string text() const { return space.empty() ? name : space + "::" + name; }
  auto operator<=>(const ModelId&) const = default;
};

}  // namespace nereid::server
