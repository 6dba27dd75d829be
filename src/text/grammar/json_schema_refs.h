// What the references of a schema lead to.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/json.h"
#include "base/status.h"

namespace nereid::text {

// A schema and where it stands.
struct SchemaAt {
  const json::value* value = nullptr;
  std::string pointer;

  SchemaAt operator[](std::string_view key) const;  // of an object that has it
  SchemaAt operator[](size_t index) const;          // of an array
  const json::value* find(std::string_view key) const;
  std::string pointer_of(std::string_view key) const;
  const json::object& object() const { return value->get_object(); }
  // "schema: 'POINTER': REASON"; `key` names a member.
  Status error(std::string_view reason, std::string_view key = {}) const;
};

// The resources ("$id") and anchors of a schema, which must outlive this.
class SchemaRefs {
 public:
  explicit SchemaRefs(const SchemaAt& root);

  // Of the "$ref" or "$dynamicRef" that `at`, an object of the schema itself, has under `key`.
  // InvalidArgument: it leads out of the schema or to nothing.
  StatusOr<SchemaAt> target(const SchemaAt& at, std::string_view key) const;

 private:
  void visit(const SchemaAt& at, std::string base);
  void visit_all(const SchemaAt& at, const std::string& base);

  absl::flat_hash_map<std::string, SchemaAt> resources_;          // by address, without fragment
  absl::flat_hash_map<std::string, SchemaAt> anchors_;            // by "ADDRESS#NAME"
  std::map<std::string, int, std::less<>> num_dynamic_;           // anchors of a name
  absl::flat_hash_map<const json::value*, std::string> base_of_;  // where it is not ""
};

}  // namespace nereid::text
