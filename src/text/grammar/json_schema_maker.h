// Makes rules of a schema; its parts are json_schema.cc (what a schema says as a whole),
// json_schema_types.cc (each type) and json_schema_merge.cc (several schemas at once).
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "base/json.h"
#include "base/status.h"
#include "text/grammar/expr.h"
#include "text/grammar/json_numbers.h"

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

class JsonSchemaMaker {
 public:
  explicit JsonSchemaMaker(const json::value& root);

  StatusOr<Rules> make();

 private:
  int32_t add_rule(ExprPtr expr);
  ExprPtr object_of(ExprPtr members) const;
  void make_any();
  // A call of the rule of a schema.
  StatusOr<ExprPtr> schema(const SchemaAt& at);
  StatusOr<ExprPtr> body(const SchemaAt& at, int depth);
  StatusOr<ExprPtr> merged_body(const SchemaAt& at, std::string_view key, int depth);
  Status check_keywords(const SchemaAt& at) const;
  StatusOr<SchemaAt> target(const SchemaAt& at) const;  // of its $ref
  StatusOr<ExprPtr> values(const SchemaAt& at, std::span<const json::value> values);
  StatusOr<std::vector<std::string_view>> types(const SchemaAt& at) const;
  StatusOr<ExprPtr> of_type(const SchemaAt& at, std::string_view type);

  StatusOr<ExprPtr> string(const SchemaAt& at);
  StatusOr<ExprPtr> number(const SchemaAt& at, bool integer);
  StatusOr<ExprPtr> multiples(const SchemaAt& at);
  StatusOr<ExprPtr> array(const SchemaAt& at);
  StatusOr<ExprPtr> object(const SchemaAt& at);
  struct Member {
    std::string name;
    ExprPtr value;  // null: must not be there
    bool required = false;
  };
  // How many members an object has.
  struct Size {
    int32_t least = 0, most = 0;  // kUnbounded: no limit
  };
  StatusOr<Size> size_of(const SchemaAt& at, size_t num_members) const;
  // What may stand behind `before` named members up to the brace: any number of `other` (null:
  // none). Null: no object is within the limits.
  ExprPtr others(const ExprPtr& other, int32_t before, Size size);
  ExprPtr members_of(const std::vector<Member>& members, const ExprPtr& other, Size size);
  StatusOr<JsonBounds> bounds(const SchemaAt& at, bool integer) const;
  // A count of `key`, which must not be negative.
  StatusOr<int32_t> count(const SchemaAt& at, std::string_view key, int32_t fallback) const;

  // The schema, which lives as long as this. InvalidArgument: too much is kept.
  StatusOr<SchemaAt> keep(json::value schema, std::string pointer);
  // What both schemas allow.
  StatusOr<SchemaAt> merge(const SchemaAt& a, const SchemaAt& b);
  Status merge_member(json::object& all, const SchemaAt& b, std::string_view key);
  Status check_exclusive(const SchemaAt& at);
  bool exclusive(const SchemaAt& a, const SchemaAt& b, int depth);

  const SchemaAt root_;
  Rules rules_;
  ExprPtr blanks_, comma_, colon_, any_;
  int32_t any_object_ = 0, any_string_ = 0, any_number_ = 0, any_integer_ = 0, any_array_ = 0;
  absl::flat_hash_map<const json::value*, int32_t> rule_of_;
  std::deque<json::value> merged_;
  size_t num_merged_values_ = 0;
  int depth_ = 0;
};

// One character of a JSON string.
ExprPtr json_char();
// Quotes and what they hold: a text that spells none of `names` and has no escapes.
// InvalidArgument: a name is too long.
StatusOr<ExprPtr> json_string_except(const std::vector<std::string>& names);
// A string of a "format". InvalidArgument lists those that are supported.
StatusOr<ExprPtr> json_format(std::string_view format);
std::string json_quoted(std::string_view text);

}  // namespace nereid::text
