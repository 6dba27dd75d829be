// Targets of a schema's references.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/json.h"
#include "base/status.h"

namespace nereid::text {

inline constexpr size_t kLongestPointer = 500;

// A schema and its JSON pointer.
struct SchemaAt {
  const json::value* value = nullptr;
  std::string pointer;  // for errors, which quote the first kLongestPointer bytes

  SchemaAt operator[](std::string_view key) const;  // the member, which exists
  SchemaAt operator[](size_t index) const;          // the element, which exists
  const json::value* find(std::string_view key) const;
  std::string pointer_of(std::string_view key) const;
  const json::object& object() const { return value->get_object(); }
  // "schema: 'POINTER': REASON"; `key` names a member.
  Status error(std::string_view reason, std::string_view key = {}) const;
};

// The resources ("$id", and "id" of draft 4) and anchors of a schema, which must outlive this.
class SchemaRefs {
 public:
  explicit SchemaRefs(const SchemaAt& root);

  // Whether "$ref" hides the schema's other keywords, as up to draft 7.
  bool only_refers(const json::value& schema) const { return referring_.contains(&schema); }
  // Whether "$schema" of the root names a draft up to 7.
  bool is_old() const { return is_old_; }

  // The target of "$ref" or "$dynamicRef" under `key` in `at`, an object of the schema itself.
  // InvalidArgument: it is outside of the schema or does not exist.
  StatusOr<SchemaAt> target(const SchemaAt& at, std::string_view key) const;

 private:
  // Properties of the draft in "$schema"; the newest by default.
  struct Draft {
    bool has_old_id = false;    // "id" is the address, up to draft 4
    bool refers_alone = false;  // "$ref" hides other keywords, up to draft 7
  };
  static Draft draft_of(const SchemaAt& at, Draft outer);
  using Base = std::shared_ptr<const std::string>;  // an address shared by many schemas
  void visit(const SchemaAt& at, Base base, Draft draft);
  void visit_all(const SchemaAt& at, const Base& base, Draft draft);
  Base add_address(const SchemaAt& at, std::string_view id, const Base& base);

  absl::flat_hash_map<std::string, SchemaAt> resources_;   // by address, without fragment
  absl::flat_hash_map<std::string, SchemaAt> anchors_;     // by "ADDRESS#NAME"
  std::map<std::string, int, std::less<>> num_dynamic_;    // number of dynamic anchors by name
  absl::flat_hash_map<const json::value*, Base> base_of_;  // bases other than ""
  absl::flat_hash_set<const json::value*> referring_;
  bool is_old_ = false;
  // An "id" that the draft calls "$id", or the reverse: an address that no other schema has.
  struct OtherId {
    SchemaAt at;
    std::string_view id;
    Base base;
  };
  std::vector<OtherId> other_ids_;
};

}  // namespace nereid::text
