// Objects of a schema: members that are named come in the order of their names in the schema, then
// all others.
#include <algorithm>

#include "text/grammar/json_schema_maker.h"

namespace nereid::text {
namespace {

constexpr std::string_view kObjectKeys[] = {
    "properties",    "required",      "patternProperties", "additionalProperties",
    "minProperties", "maxProperties", "propertyNames",     "unevaluatedProperties",
    kExceptKey};
constexpr size_t kMaxNameClasses = 64;

bool allows_none(const std::vector<SchemaAt>& schemas) {
  return std::ranges::any_of(schemas,
                             [](const SchemaAt& at) { return *at.value == json::value(false); });
}

}  // namespace

StatusOr<std::vector<JsonSchemaMaker::NamePattern>> JsonSchemaMaker::name_patterns(
    const Parts& parts) {
  std::vector<NamePattern> all;
  for (size_t p = 0; p < parts.all.size(); ++p) {
    const SchemaAt& at = parts.all[p].at;
    if (!at.find("patternProperties")) continue;
    const SchemaAt patterns = at["patternProperties"];
    if (!patterns.value->is_object()) return at.error("must be an object", "patternProperties");
    for (const auto& member : patterns.object()) {
      const std::string_view pattern = member.key();
      ASSIGN_OR_RETURN(const TextSet* names, pattern_set(patterns, pattern, pattern));
      all.push_back({p, patterns[pattern], names});
    }
  }
  return all;
}

JsonSchemaMaker::Schemas JsonSchemaMaker::member_schemas(const Parts& parts,
                                                         const std::vector<NamePattern>& patterns,
                                                         const std::vector<bool>& matches,
                                                         const std::string* name) const {
  Schemas all;
  std::vector<bool> says(parts.all.size());
  for (size_t p = 0; p < parts.all.size(); ++p) {
    const SchemaAt& at = parts.all[p].at;
    const json::value* properties = at.find("properties");
    if (name && properties && properties->is_object() && properties->get_object().contains(*name)) {
      all.push_back(at["properties"][std::string_view(*name)]);
      says[p] = true;
    }
    for (size_t i = 0; i < patterns.size(); ++i)
      if (patterns[i].part == p && matches[i]) all.push_back(patterns[i].schema), says[p] = true;
    if (says[p] || !at.find("additionalProperties")) continue;
    all.push_back(at["additionalProperties"]);
    says[p] = true;
  }
  for (size_t p = parts.all.size(); p-- > 0;) {
    const Part& part = parts.all[p];
    if (!part.at.find("unevaluatedProperties")) continue;
    bool said = false;
    for (size_t q = 0; q < says.size(); ++q) said |= says[q] && parts.all[q].within(part);
    if (!said) all.push_back(part.at["unevaluatedProperties"]);
    says[p] = true;
  }
  return all;
}

StatusOr<std::vector<JsonSchemaMaker::Member>> JsonSchemaMaker::named_members(
    const Parts& parts, const std::vector<NamePattern>& patterns, const TextSet* allowed) {
  std::vector<Member> members;
  absl::flat_hash_map<std::string, size_t> index_of;
  const auto add = [&](std::string_view name) -> Member& {
    const auto [found, is_new] = index_of.try_emplace(std::string(name), members.size());
    if (is_new) members.push_back({.name = std::string(name), .value = {}});
    return members[found->second];
  };
  for (const Part& part : parts.all) {
    const json::value* properties = part.at.find("properties");
    if (!properties) continue;
    if (!properties->is_object()) return part.at.error("must be an object", "properties");
    for (const auto& member : properties->get_object()) add(member.key());
  }
  for (const Part& part : parts.all) {
    const json::value* required = part.at.find("required");
    // Before draft 4 it is a flag of a member's schema.
    if (!required || required->is_bool()) continue;
    if (!required->is_array()) return part.at.error("must be an array", "required");
    for (const json::value& name : required->get_array()) {
      if (!name.is_string()) return part.at.error("must be an array of strings", "required");
      add(name.get_string()).required = true;
    }
  }
  const auto steps = static_cast<int64_t>(20 * (parts.all.size() + patterns.size()));
  for (Member& member : members) {
    RETURN_IF_ERROR(spend(parts.all[0].at, steps));
    std::vector<bool> matches;
    for (const NamePattern& pattern : patterns)
      matches.push_back(pattern.names->contains(member.name));
    const Schemas schemas = member_schemas(parts, patterns, matches, &member.name);
    if ((allowed && !allowed->contains(member.name)) || allows_none(schemas)) continue;
    ASSIGN_OR_RETURN(member.value, all_of(schemas));
  }
  return members;
}

// The name, without quotes, of a member that is none of these.
StatusOr<ExprPtr> JsonSchemaMaker::name_but(const std::vector<Member>& members,
                                            const SchemaAt& at) {
  std::vector<std::string> key;
  for (const Member& member : members) key.push_back(member.name);
  std::ranges::sort(key);
  ExprPtr& name = other_names_[key];
  if (name) return name;
  auto names = TextSet::all().without(TextSet::of_texts({key.begin(), key.end()}), work_);
  if (!names.ok()) return at.error(message(names.status()), "properties");
  return name = call(add_rule(names->in_json(rules_)));
}

// A member with another name: for each set of patterns that can match together, the names that
// match these and no others. Null: there are none.
StatusOr<ExprPtr> JsonSchemaMaker::other_members(const Parts& parts,
                                                 const std::vector<NamePattern>& patterns,
                                                 const TextSet* allowed,
                                                 const std::vector<Member>& members) {
  const SchemaAt& at = parts.all[0].at;
  const auto member = [&](ExprPtr name, ExprPtr value) {
    return sequence({literal("\""), std::move(name), literal("\""), colon_, std::move(value)});
  };
  if (patterns.empty()) {
    const Schemas schemas = member_schemas(parts, patterns, {}, nullptr);
    if (allows_none(schemas)) return ExprPtr();
    if (!allowed) {
      ASSIGN_OR_RETURN(ExprPtr name, name_but(members, at));
      ASSIGN_OR_RETURN(ExprPtr value, all_of(schemas));
      return call(add_rule(member(std::move(name), std::move(value))));
    }
  }
  std::vector<std::string_view> named;
  for (const Member& one : members) named.push_back(one.name);
  auto names = (allowed ? *allowed : TextSet::all()).without(TextSet::of_texts(named), work_);
  if (!names.ok()) return at.error(message(names.status()), "properties");
  std::vector<std::pair<TextSet, std::vector<bool>>> classes;
  classes.emplace_back(*std::move(names), std::vector<bool>());
  for (const NamePattern& pattern : patterns) {
    decltype(classes) parted;
    for (auto& [set, matches] : classes)
      for (const bool match : {true, false}) {
        auto part = match ? set.both(*pattern.names, work_) : set.without(*pattern.names, work_);
        if (!part.ok()) return pattern.schema.error(message(part.status()));
        if (part->empty()) continue;
        parted.emplace_back(*std::move(part), matches);
        parted.back().second.push_back(match);
      }
    if (parted.size() > kMaxNameClasses)
      return pattern.schema.error("too many patterns match the same names");
    classes = std::move(parted);
  }
  std::vector<ExprPtr> ways;
  for (const auto& [set, matches] : classes) {
    const Schemas schemas = member_schemas(parts, patterns, matches, nullptr);
    if (set.empty() || allows_none(schemas)) continue;
    ASSIGN_OR_RETURN(ExprPtr value, all_of(schemas));
    ways.push_back(member(set.in_json(rules_), std::move(value)));
  }
  if (ways.empty()) return ExprPtr();
  return call(add_rule(choice(std::move(ways))));
}

StatusOr<JsonSchemaMaker::Size> JsonSchemaMaker::size_of(const Parts& parts,
                                                         size_t num_members) const {
  constexpr int64_t kMostPlaces = 10'000;
  Size size;
  const Part* of = nullptr;
  for (const Part& part : parts.all) {
    const SchemaAt& at = part.at;
    ASSIGN_OR_RETURN(const int32_t least, schema_count(at, "minProperties", 0));
    ASSIGN_OR_RETURN(const int32_t most, schema_count(at, "maxProperties", kUnbounded));
    size.least = std::max(size.least, least);
    if (most != kUnbounded) size.most = size.most == kUnbounded ? most : std::min(size.most, most);
    if (least > 0 || most != kUnbounded) of = &part;
    if (const json::value* except = at.find(kExceptKey); except && except->is_array())
      for (const json::value& value : except->get_array()) {
        if (!value.is_object()) continue;
        if (!value.get_object().empty())
          return at.error("'not' of a given object that is not empty is not supported");
        size.least = std::max(size.least, 1);
      }
  }
  const auto members = static_cast<int64_t>(num_members);
  const int64_t counted = std::min<int64_t>(members, std::max(size.least, size.most));
  if (of && counted > 1 && members * counted > kMostPlaces)
    return of->at.error(
        "limits of the number of members are not supported beside so many properties",
        of->at.find("minProperties") ? "minProperties" : "maxProperties");
  return size;
}

// Of members that no property names, one counts for "minProperties", since names may be repeated.
ExprPtr JsonSchemaMaker::others(const ExprPtr& other, int32_t before, Size size) {
  if (size.most != kUnbounded && before > size.most) return nullptr;
  const int32_t need = std::max(0, size.least - before);
  const int32_t room = size.most == kUnbounded ? kUnbounded : size.most - before;
  if (need > 1 || (need == 1 && (!other || room == 0))) return nullptr;
  if (!other || room == 0) return before > 0 ? blanks_ : literal("");
  const ExprPtr another = sequence({comma_, other});
  if (before > 0) return sequence({call(add_rule(repeat(another, need, room))), blanks_});
  ExprPtr more = repeat(another, 0, room == kUnbounded ? kUnbounded : room - 1);
  ExprPtr some = sequence({other, call(add_rule(std::move(more))), blanks_});
  return need > 0 ? some : optional(std::move(some));
}

// Chains of rules, from the last property to the first: what may come behind as many members as the
// place in `ways` says, the last place for more as well. Each way ends with the blanks before the
// brace, so that they are not there twice. Null: no object is within the limits.
ExprPtr JsonSchemaMaker::members_of(const std::vector<Member>& members, const ExprPtr& other,
                                    Size size) {
  const auto num_members = static_cast<int32_t>(members.size());
  const int32_t last = std::max(1, std::min(num_members, std::max(size.least, size.most)));
  std::vector<ExprPtr> ways;
  for (int32_t before = 0; before <= last; ++before) ways.push_back(others(other, before, size));
  for (int32_t i = num_members; i-- > 0;) {
    const Member& member = members[static_cast<size_t>(i)];
    if (!member.value && member.required) return nullptr;
    if (!member.value) continue;
    const ExprPtr one = sequence({literal(json_quoted(member.name)), colon_, member.value});
    std::vector<ExprPtr> here(ways.size());
    for (int32_t before = 0; before <= std::min(i, last); ++before) {
      const ExprPtr& without = ways[static_cast<size_t>(before)];
      const ExprPtr& behind = ways[static_cast<size_t>(std::min(before + 1, last))];
      const bool room = size.most == kUnbounded || before < size.most;
      std::vector<ExprPtr> both;
      if (room && behind)
        both.push_back(before > 0 ? sequence({comma_, one, behind}) : sequence({one, behind}));
      if (without && !member.required) both.push_back(without);
      if (!both.empty())
        here[static_cast<size_t>(before)] = call(add_rule(choice(std::move(both))));
    }
    ways = std::move(here);
  }
  return ways[0];
}

StatusOr<ExprPtr> JsonSchemaMaker::object(const Parts& parts) {
  if (std::ranges::none_of(kObjectKeys, [&](auto key) { return parts.with(key); }))
    return call(any_object_);
  ASSIGN_OR_RETURN(const std::vector<NamePattern> patterns, name_patterns(parts));
  std::optional<TextSet> allowed;
  for (const Part& part : parts.all) {
    if (!part.at.find("propertyNames")) continue;
    ASSIGN_OR_RETURN(TextSet names, names_of(part.at["propertyNames"]));
    auto both = allowed ? allowed->both(names, work_) : StatusOr<TextSet>(std::move(names));
    if (!both.ok()) return part.at.error(message(both.status()), "propertyNames");
    allowed = *std::move(both);
  }
  const TextSet* names = allowed ? &*allowed : nullptr;
  ASSIGN_OR_RETURN(const std::vector<Member> members, named_members(parts, patterns, names));
  ASSIGN_OR_RETURN(const ExprPtr other, other_members(parts, patterns, names, members));
  ASSIGN_OR_RETURN(const Size size, size_of(parts, members.size()));
  if (size.most != kUnbounded && size.most < size.least) return nothing();
  const auto num_members = static_cast<int32_t>(members.size());
  if (other && size.least > num_members + 1)
    return parts.with("minProperties")
        ->at.error("of members that no property names, only one counts", "minProperties");
  ExprPtr inner = members_of(members, other, size);
  if (!inner) return nothing();
  return sequence({literal("{"), blanks_, std::move(inner), literal("}")});
}

}  // namespace nereid::text
