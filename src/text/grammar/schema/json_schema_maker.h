// From a JSON schema to rules. A value must match all schemas of a list at once:
// references and "allOf" add to the list, "anyOf" and similar keywords choose from
// alternatives (json_schema_parts.cc); each type has its keywords (json_schema_strings.cc,
// ..numbers, ..arrays, ..objects); "not" becomes a schema (json_schema_not.cc); listed
// values are tested (json_schema_values.cc).
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/json.h"
#include "base/status.h"
#include "text/grammar/expr.h"
#include "text/grammar/schema/json_numbers.h"
#include "text/grammar/schema/json_schema_refs.h"
#include "text/grammar/text_set.h"

namespace nereid::text {

// Internal keywords, in schemas derived from the client's.
inline constexpr std::string_view kPlaceKey = "\x01place";  // the schema with this number
inline constexpr std::string_view kChoiceKey =
    "\x01"
    "choice";  // "anyOf" of which one alternative at a time is enough
// "anyOf" of which a part of the alternatives is enough.
inline constexpr std::string_view kWaysKey = "\x01ways";
inline constexpr std::string_view kExceptKey =
    "\x01"
    "except";                                                 // none of these values
inline constexpr std::string_view kUnlikeKey = "\x01unlike";  // no string that matches "pattern"
inline constexpr std::string_view kUnlikeMultipleKey =
    "\x01unlike multiple";  // no integer that "multipleOf" allows
// [{"names": SCHEMA, "value": SCHEMA}]: objects with a member of such a name and value.
inline constexpr std::string_view kSomeKey = "\x01some";
inline constexpr std::string_view kFractionType =
    "\x01"
    "fraction";  // a number that is no integer

// Types of values, one bit each.
inline constexpr unsigned kNullType = 1, kBooleanType = 2, kStringType = 4, kIntegerType = 8,
                          kFractionTypes = 16, kArrayType = 32, kObjectType = 64, kAllTypes = 127;

class JsonSchemaMaker {
 public:
  static constexpr size_t kMostWays = 32;
  static constexpr size_t kManyWays = 1024;  // where kMostWays alternatives have no value

  // `most_ways`: bound for the alternatives of a "not".
  JsonSchemaMaker(const json::value& root, WorkLimit& work, size_t most_ways = kMostWays);

  StatusOr<Rules> make();
  // Whether make() found no value, but has left out alternatives of a "not" beyond most_ways.
  bool has_more_ways() const { return has_more_ways_; }

 private:
  // A schema, and the schemas that contain it and apply to the same value.
  struct Scope {
    const json::value* schema = nullptr;
    std::shared_ptr<const Scope> outer;
    bool silent = false;  // members and elements evaluated here do not count for outer schemas
  };
  struct Part {
    SchemaAt at;
    std::shared_ptr<const Scope> scope;
    bool within(const Part& outer) const;
  };
  // Schemas that hold together, references and combinations resolved.
  struct Parts {
    std::vector<Part> all;
    unsigned types = kAllTypes;
    // The first part with this keyword, or null.
    const Part* with(std::string_view key) const;
  };
  using Schemas = std::vector<SchemaAt>;
  // A member that "properties" gives listed values, or all values but listed ones.
  struct ListedMember {
    std::string_view name;
    std::vector<const json::value*> values;  // no arrays and objects
    bool is_opposite = false;                // all but these
  };
  // Members of all parts together: the values that lists leave, by name, and required names.
  struct ListedMembers {
    struct Values {
      std::optional<std::vector<const json::value*>> left;  // absent: no list yet
      std::vector<const ListedMember*> opposites;           // before there was a list
    };
    std::map<std::string_view, Values> values;
    absl::flat_hash_set<std::string_view> required;
  };
  struct Choice {
    Part of;
    std::string key;
    const std::vector<Schemas>* all = nullptr;  // the alternatives; null: not computed yet
    std::vector<uint32_t> left;  // indices of those that the first num_seen parts do not exclude
    size_t num_seen = 0;         // parts compared so far
  };
  struct Open {
    Parts parts;
    std::vector<Part> todo;
    std::vector<Choice> choices;
    bool has_unevaluated = false;  // a part has an "unevaluated..." keyword
    size_t most_ways = 0;          // see alternatives()
    ListedMembers listed;          // of the first num_listed parts
    size_t num_listed = 0;
  };

  // The number of a rule with this expression, which may be an earlier one; null: a new rule.
  int32_t add_rule(ExprPtr expr);
  // Fills a rule that was added as null; with the expression of another rule it calls that one.
  void set_rule(int32_t index, ExprPtr expr);
  Status spend(const SchemaAt& at, int64_t steps);
  ExprPtr object_of(ExprPtr members) const;
  ExprPtr json_char();  // one character of a JSON string
  void make_any();

  // The values that all schemas allow: a call of their rule.
  StatusOr<ExprPtr> all_of(Schemas schemas);
  StatusOr<ExprPtr> body(const Schemas& schemas);
  StatusOr<ExprPtr> of_parts(const Parts& parts);
  // Disjunctive form: lists of parts such that each value of the schemas matches one.
  // `most_ways`: bound for the alternatives of "not"; 0: a lower one, if many "not" hold together.
  // Sets cut_at_ where alternatives are left out.
  StatusOr<std::vector<Parts>> alternatives(const Schemas& schemas, size_t most_ways);
  StatusOr<std::vector<Parts>> alternatives(const Schemas& schemas) {
    return alternatives(schemas, most_ways_);
  }
  Status expand(Open open, std::vector<Parts>& out);
  static void add_alternative(Open& open, const Choice& choice, uint32_t way);
  // Adds what the parts and choices with a single alternative left say. `best`: the choice with the
  // fewest alternatives. False: no value is left.
  StatusOr<bool> settle(Open& open, size_t& best);
  // Moves `todo` into the parts; `types` becomes 0 where no value is possible.
  Status flatten(Open& open);
  Status add_part(Open& open, const Part& part);
  StatusOr<const std::vector<Schemas>*> options(const Choice& choice, bool together);
  StatusOr<std::vector<Schemas>> find_options(const Choice& choice, bool together);
  // The schema's members with listed values; computed once.
  const std::vector<ListedMember>& listed_members(const SchemaAt& at);
  std::vector<const json::value*> keep_values(std::vector<const json::value*> values,
                                              const ListedMember& member) const;
  Status add_listed(const Part& part, ListedMembers& members);
  // Whether objects of the parts obviously lack a member that the alternative and they require.
  StatusOr<bool> conflicts(const Open& open, const Schemas& alternative);
  // False: a single alternative holds already, and nothing is added.
  StatusOr<bool> find_left(const Open& open, Choice& choice);
  bool asserts(const SchemaAt& at);  // has keywords of its own that combine no schemas
  Status check_keywords(const SchemaAt& at) const;
  StatusOr<unsigned> types_of(const SchemaAt& at) const;
  StatusOr<SchemaAt> target(const SchemaAt& at, std::string_view key) const;

  // A derived schema, made once for each keyword of a schema; `make` returns its value.
  StatusOr<SchemaAt> made(const SchemaAt& at, std::string_view key,
                          const std::function<StatusOr<json::value>()>& make);
  // Resolves a kPlaceKey schema.
  StatusOr<SchemaAt> direct(SchemaAt at) const;
  json::value place(SchemaAt at);
  // The complement of a schema, one object for each schema, so that recursive schemas end.
  SchemaAt opposite_at(const SchemaAt& at);
  json::value opposite(const SchemaAt& at) { return place(opposite_at(at)); }
  StatusOr<json::value> conditions(const SchemaAt& at, std::string_view key);
  StatusOr<json::value> negation(SchemaAt at);
  StatusOr<bool> negate(const SchemaAt& at, std::string_view key, json::array& ways);
  StatusOr<bool> negate_multiples(const SchemaAt& at, json::array& ways);
  StatusOr<json::object> unlike(const SchemaAt& at, const json::array& values);
  Status negate_limits(const SchemaAt& at, std::string_view key, json::array& ways);
  Status negate_combined(const SchemaAt& at, std::string_view key, json::array& ways);
  Status negate_elements(const SchemaAt& at, std::string_view key, json::array& ways);
  Status negate_members(const SchemaAt& at, std::string_view key, json::array& ways);
  // Whether it is obvious that no value matches both; false if unknown.
  bool exclusive(const SchemaAt& a, const SchemaAt& b, int depth = 0);
  // Whether it is obvious that all values of the first match the second.
  bool implies(const SchemaAt& from_a, const SchemaAt& from_b);
  bool implied(const Parts& parts, const SchemaAt& way);
  bool find_exclusive(const SchemaAt& from_a, const SchemaAt& from_b, int depth);
  bool objects_exclusive(const SchemaAt& a, const SchemaAt& b, int depth);

  // "enum" and "const": the values in all parts; nullopt if no part has either.
  StatusOr<std::optional<json::array>> listed_values(const Parts& parts);
  ExprPtr value_expr(const json::value& value) const;
  // Whether the value matches the schema; `alone`: without the schemas that it combines.
  StatusOr<bool> allows(const SchemaAt& from, const json::value& value, bool alone, int depth);
  StatusOr<bool> allows_combined(const SchemaAt& at, const json::value& value, int depth);
  StatusOr<bool> allows_string(const SchemaAt& at, std::string_view text);
  StatusOr<bool> allows_number(const SchemaAt& at, const json::value& value) const;
  StatusOr<bool> is_listed(const SchemaAt& at, std::string_view key, const json::value& value);
  StatusOr<bool> allows_array(const SchemaAt& at, const json::array& array, int depth);
  StatusOr<bool> allows_object(const SchemaAt& at, const json::object& object, int depth);
  StatusOr<bool> has_some(const SchemaAt& list, const json::object& object, int depth);

  ExprPtr block();
  ExprPtr chars_of(int32_t least, int32_t most);  // a string's characters, `least` to `most`
  StatusOr<ExprPtr> string(const Parts& parts);
  StatusOr<ExprPtr> new_string(const Parts& parts);
  StatusOr<TextSet> string_set(const Parts& parts);
  // The texts of `all` that `at` alone allows; lengths are ignored.
  StatusOr<TextSet> keep_texts(const SchemaAt& at, TextSet all);
  StatusOr<TextSet> keep_lengths(const Parts& parts, const TextSet& all);
  StatusOr<const TextSet*> names_of(const SchemaAt& at);  // strings of a schema
  StatusOr<TextSet> matched(std::string_view pattern, int depth);
  StatusOr<const TextSet*> pattern_set(const SchemaAt& at, std::string_view pattern,
                                       std::string_view key);
  StatusOr<const TextSet*> format_set(const SchemaAt& at);  // null: any string
  StatusOr<ExprPtr> number(const Parts& parts);
  StatusOr<JsonBounds> bounds(const Parts& parts) const;
  StatusOr<ExprPtr> multiples(const Parts& parts, const JsonBounds& bounds, const Part& part);

  struct Contained;
  class Counts;
  struct Elements;
  StatusOr<Elements> elements(const Parts& parts);
  Status add_limits(const Part& part, Elements& e) const;
  StatusOr<Schemas> element_schemas(const Parts& parts, const Elements& e, size_t i) const;
  StatusOr<ExprPtr> array(const Parts& parts);
  StatusOr<ExprPtr> plain_array(const Elements& elements);
  StatusOr<ExprPtr> counted_array(const Elements& elements);
  Schemas counted_schemas(Schemas all, const Elements& e, unsigned set);
  StatusOr<std::vector<ExprPtr>> counted_items(const Schemas& all, const Elements& e);
  // Elements by position, kind and set of "contains"; null: none.
  using Distinct = std::vector<std::vector<std::vector<ExprPtr>>>;
  StatusOr<std::optional<Distinct>> distinct_values(const Elements& e);
  StatusOr<Distinct> distinct_kinds(const Elements& e);
  StatusOr<json::value> kinds_of(const Schemas& schemas, int depth);
  StatusOr<ExprPtr> distinct_array(const Elements& elements);
  StatusOr<std::optional<json::array>> few_values(const Schemas& schemas);
  StatusOr<std::optional<json::array>> values_of_types(const Parts& parts);

  struct Member {
    std::string name;
    ExprPtr value;  // null: the member is forbidden
    bool required = false;
    // Its value where it satisfies this set of SomeMembers.
    std::vector<std::pair<unsigned, ExprPtr>> as_some;
  };
  // A required member, of kSomeKey.
  struct SomeMember {
    const TextSet* names = nullptr;
    SchemaAt value;
  };
  // Names not in "properties", and which patterns match them.
  struct NameClass {
    TextSet names;
    std::vector<bool> matches;
  };
  using Endings = std::vector<std::pair<int32_t, ExprPtr>>;  // number of members, and their texts
  // Limits of an object's number of members.
  struct Size {
    int32_t least = 0, most = kUnbounded;
  };
  struct NamePattern {
    size_t part = 0;
    SchemaAt schema;
    const TextSet* names = nullptr;
  };
  StatusOr<ExprPtr> object(const Parts& parts);
  StatusOr<std::vector<NamePattern>> name_patterns(const Parts& parts);
  // The schemas of a member of this name (null: a name not in "properties"), given which
  // patterns match it.
  Schemas member_schemas(const Parts& parts, const std::vector<NamePattern>& patterns,
                         const std::vector<bool>& matches, const std::string* name) const;
  static Status check_some(const SchemaAt& at);
  StatusOr<std::vector<SomeMember>> some_members(const Parts& parts);
  static Schemas with_values(Schemas schemas, const std::vector<SomeMember>& some, unsigned set);
  StatusOr<std::vector<Member>> named_members(const Parts& parts,
                                              const std::vector<NamePattern>& patterns,
                                              const TextSet* allowed,
                                              const std::vector<SomeMember>& some);
  ExprPtr member_of(ExprPtr name, ExprPtr value) const;
  // As JSON; `texts` is not empty.
  StatusOr<ExprPtr> written(const TextSet& texts, const SchemaAt& at);
  StatusOr<std::vector<NameClass>> name_classes(const Parts& parts,
                                                const std::vector<NamePattern>& patterns,
                                                const TextSet* allowed,
                                                const std::vector<Member>& members);
  StatusOr<std::vector<Endings>> endings(const Parts& parts,
                                         const std::vector<NamePattern>& patterns,
                                         const TextSet* allowed, const std::vector<Member>& members,
                                         const std::vector<SomeMember>& some);
  StatusOr<ExprPtr> other_members(const Parts& parts, const std::vector<NamePattern>& patterns,
                                  const TextSet* allowed, const std::vector<Member>& members);
  StatusOr<ExprPtr> name_but(const std::vector<Member>& members,
                             const std::vector<const TextSet*>& all_of, const SchemaAt& at);
  StatusOr<Size> size_of(const Parts& parts, size_t num_members) const;
  ExprPtr others(const ExprPtr& other, int32_t before, Size size);
  ExprPtr others_and(const Endings& endings, const ExprPtr& other, int32_t before, Size size);
  ExprPtr members_of(const std::vector<Member>& members, const ExprPtr& other,
                     const std::vector<Endings>& endings, Size size);

  const SchemaAt root_;
  const SchemaRefs refs_;
  WorkLimit& work_;
  Rules rules_;
  ExprNumbers numbers_;
  int64_t num_numbered_ = 0;  // of numbers_.num_seen(), those that spend() has counted
  absl::flat_hash_map<int32_t, int32_t> rule_with_;  // by number of the expression
  ExprPtr blanks_, comma_, colon_, char_, any_;
  int32_t any_object_ = 0, any_string_ = 0, any_number_ = 0, any_integer_ = 0, any_array_ = 0;
  std::map<std::vector<const json::value*>, int32_t> rule_of_;
  std::deque<json::value> kept_;
  std::map<std::pair<const json::value*, std::string>, SchemaAt> made_;
  absl::flat_hash_map<const json::value*, bool> asserts_;
  std::map<const json::value*, std::vector<ListedMember>> listed_members_;
  const size_t most_ways_;
  size_t cut_at_ = 0;    // bound at which alternatives() has left some out; 0: none left out
  bool is_cut_ = false;  // some rule has no value since alternatives beyond most_ways are left out
  bool is_partial_ = false;  // some alternatives of the schema cannot be generated
  bool has_more_ways_ = false;
  std::vector<SchemaAt> places_;
  std::map<const json::value*, int64_t> place_of_;
  std::map<const json::value*, SchemaAt> opposites_;
  absl::flat_hash_map<std::pair<const json::value*, const json::value*>, bool> exclusive_;
  std::map<std::pair<const json::value*, std::pair<std::string, bool>>, std::vector<Schemas>>
      options_;
  std::map<std::string, TextSet, std::less<>> pattern_sets_;
  std::map<const json::value*, TextSet> name_sets_;      // results of names_of()
  std::map<std::vector<std::string>, ExprPtr> strings_;  // by their keywords
  ExprPtr block_;
  // By excluded names and the sets that the name must be in; null: no name.
  std::map<std::pair<std::vector<std::string>, std::vector<const TextSet*>>, ExprPtr> other_names_;
  int depth_ = 0;
};

// The expression without texts.
inline ExprPtr nothing() { return choice({}); }
inline bool is_nothing(const ExprPtr& expr) {
  return expr->kind == Expr::Kind::kChoice && expr->parts.empty();
}
// Regular expressions of a "format".
struct JsonFormat {
  std::string texts;  // strings that are generated
  std::string all;    // a superset of the strings that a validator may accept
};
// Null: any string, since the specification has no such format.
const JsonFormat* json_format(std::string_view format);
std::string json_quoted(std::string_view text);
// The count under `key` in `at`, or `fallback`. InvalidArgument: no count.
StatusOr<int32_t> schema_count(const SchemaAt& at, std::string_view key, int32_t fallback);
// Keywords for array elements: older drafts list the first ones in "items".
struct ElementKeys {
  std::string_view front, rest;
  size_t size = 0;  // number of elements in front
};
// InvalidArgument: the front is no array.
StatusOr<ElementKeys> element_keys(const SchemaAt& at);
// Whether the schema's own "required" has the name.
bool requires_member(const SchemaAt& at, std::string_view name);
// The bit of the value's type; an integer is a number without fraction.
unsigned type_of(const json::value& value);
// Equality as in JSON Schema: numbers by value.
bool same_value(const json::value& a, const json::value& b);

}  // namespace nereid::text
