// Members of objects that have listed values, which conditions ask for ("if": {"properties":
// {"kind":
// {"const": "a"}}}). Alternatives whose lists have no value in common are dropped before they are
// combined with others: n conditions on one member leave some n objects, not 2^n.
#include <algorithm>
#include <span>

#include "text/grammar/schema/json_schema_maker.h"

namespace nereid::text {
namespace {

// The values of "const" or "enum", if all are texts, numbers, booleans or null.
std::span<const json::value> plain_values(const SchemaAt& at) {
  const json::value *only = at.find("const"), *list = at.find("enum");
  std::span<const json::value> values;
  if (only)
    values = {only, 1};
  else if (list && list->is_array())
    values = list->get_array();
  const bool is_plain = std::ranges::none_of(
      values, [](const json::value& value) { return value.is_object() || value.is_array(); });
  return is_plain ? values : std::span<const json::value>();
}

// Whether nothing but listed values limits the schema's values.
bool only_lists(const SchemaAt& at) {
  constexpr std::string_view kKeys[] = {"const",       "enum",    "title",
                                        "description", "default", "examples"};
  return std::ranges::all_of(at.object(), [&](const auto& member) {
    return std::ranges::find(kKeys, std::string_view(member.key())) != std::end(kKeys);
  });
}

}  // namespace

const std::vector<JsonSchemaMaker::ListedMember>& JsonSchemaMaker::listed_members(
    const SchemaAt& at) {
  const auto [found, is_new] = listed_members_.try_emplace(at.value);
  const json::value* all = at.find("properties");
  if (!is_new || !all || !all->is_object() || refs_.only_refers(*at.value)) return found->second;
  const SchemaAt properties = at["properties"];
  for (const auto& member : all->get_object()) {
    ListedMember listed{.name = member.key(), .values = {}};
    const auto add = [&](const SchemaAt& schema) {
      for (const json::value& value : plain_values(schema)) listed.values.push_back(&value);
      return !listed.values.empty();
    };
    const auto schema = direct(properties[listed.name]);
    if (!schema.ok()) continue;
    bool is_listed = *schema->value == json::value(false);  // no value
    if (schema->value->is_object() && !refs_.only_refers(*schema->value)) {
      is_listed = add(*schema);
      const auto other = schema->find("not") ? direct((*schema)["not"]) : *schema;
      if (!is_listed && schema->find("not") && other.ok() && other->value->is_object() &&
          only_lists(*other))
        is_listed = listed.is_opposite = add(*other);
    }
    if (is_listed) found->second.push_back(std::move(listed));
  }
  return found->second;
}

// Drops values that the member may not have.
std::vector<const json::value*> JsonSchemaMaker::keep_values(std::vector<const json::value*> values,
                                                             const ListedMember& member) const {
  std::erase_if(values, [&](const json::value* value) {
    const bool is_listed = std::ranges::any_of(
        member.values, [&](const json::value* other) { return same_value(*value, *other); });
    return is_listed == member.is_opposite;
  });
  return values;
}

Status JsonSchemaMaker::add_listed(const Part& part, ListedMembers& members) {
  if (const json::value* names = part.at.find("required"); names && names->is_array())
    for (const json::value& name : names->get_array())
      if (name.is_string()) members.required.insert(std::string_view(name.get_string()));
  for (const ListedMember& member : listed_members(part.at)) {
    ListedMembers::Values& known = members.values[member.name];
    const size_t num_left = known.left ? known.left->size() : 1;
    RETURN_IF_ERROR(spend(part.at, static_cast<int64_t>(num_left * member.values.size())));
    if (known.left) {
      known.left = keep_values(*std::move(known.left), member);
    } else if (member.is_opposite) {
      known.opposites.push_back(&member);
    } else {
      known.left = member.values;
      for (const ListedMember* other : known.opposites)
        known.left = keep_values(*std::move(known.left), *other);
    }
  }
  return ok();
}

StatusOr<bool> JsonSchemaMaker::conflicts(const Open& open, const Schemas& alternative) {
  if (open.parts.all.empty()) return false;
  // The schemas that the alternative surely adds.
  Schemas added;
  unsigned types = open.parts.types;
  for (const SchemaAt& from : alternative) {
    ASSIGN_OR_RETURN(const SchemaAt at, direct(from));
    if (!at.value->is_object() || refs_.only_refers(*at.value)) continue;
    added.push_back(at);
    const json::value* list = at.find("allOf");
    for (size_t i = 0; list && list->is_array() && i < list->get_array().size(); ++i) {
      ASSIGN_OR_RETURN(const SchemaAt inner, direct(at["allOf"][i]));
      if (inner.value->is_object() && !refs_.only_refers(*inner.value)) added.push_back(inner);
    }
  }
  RETURN_IF_ERROR(spend(open.parts.all[0].at,
                        static_cast<int64_t>(1 + added.size() + open.listed.values.size())));
  for (const SchemaAt& at : added) {
    ASSIGN_OR_RETURN(const unsigned of_schema, types_of(at));
    types &= of_schema;
  }
  if (types != kObjectType) return false;
  const auto lacks = [&](std::string_view name, const ListedMembers::Values& values) {
    return values.left && values.left->empty() &&
           (open.listed.required.contains(name) ||
            std::ranges::any_of(added,
                                [&](const SchemaAt& at) { return requires_member(at, name); }));
  };
  for (const auto& [name, values] : open.listed.values)
    if (lacks(name, values)) return true;
  ListedMembers both;
  for (const SchemaAt& at : added)
    for (const ListedMember& member : listed_members(at)) {
      const auto known = open.listed.values.find(member.name);
      if (known != open.listed.values.end()) both.values.insert(*known);
    }
  for (const SchemaAt& at : added) RETURN_IF_ERROR(add_listed({at, nullptr}, both));
  return std::ranges::any_of(
      both.values, [&](const auto& member) { return lacks(member.first, member.second); });
}

}  // namespace nereid::text
