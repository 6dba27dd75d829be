// Objects of a schema: members named in the schema come first, in its order, then all others.
#include <algorithm>

#include "text/grammar/schema/json_schema_maker.h"

namespace nereid::text {
namespace {

constexpr std::string_view kObjectKeys[] = {
    "properties",    "required",      "patternProperties", "additionalProperties",
    "minProperties", "maxProperties", "propertyNames",     "unevaluatedProperties",
    kExceptKey,      kSomeKey};
constexpr size_t kMaxNameClasses = 64;
constexpr size_t kMostSome = 4;  // kSomeKey members that one object may need

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

// Checks one entry of kSomeKey, which a client's schema may contain too.
Status JsonSchemaMaker::check_some(const SchemaAt& at) {
  if (at.value->is_object() && at.find("names") && at.find("value")) return ok();
  return at.error("this keyword is not supported");
}

StatusOr<std::vector<JsonSchemaMaker::SomeMember>> JsonSchemaMaker::some_members(
    const Parts& parts) {
  std::vector<SomeMember> all;
  for (const Part& part : parts.all) {
    if (!part.at.find(kSomeKey)) continue;
    const SchemaAt list = part.at[kSomeKey];
    if (!list.value->is_array()) return list.error("must be an array");
    for (size_t i = 0; i < list.value->get_array().size(); ++i) {
      RETURN_IF_ERROR(check_some(list[i]));
      ASSIGN_OR_RETURN(const TextSet* names, names_of(list[i]["names"]));
      all.push_back({names, list[i]["value"]});
    }
  }
  return all;
}

StatusOr<std::vector<JsonSchemaMaker::Member>> JsonSchemaMaker::named_members(
    const Parts& parts, const std::vector<NamePattern>& patterns, const TextSet* allowed,
    const std::vector<SomeMember>& some) {
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
    // Before draft 4 "required" is a boolean of the member's schema.
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
    ASSIGN_OR_RETURN(ExprPtr value, all_of(schemas));
    if (is_nothing(value)) continue;
    member.value = std::move(value);
    unsigned can_be = 0;
    for (size_t i = 0; i < some.size(); ++i)
      if (some[i].names->contains(member.name)) can_be |= 1u << i;
    for (unsigned set = can_be; set != 0; set = (set - 1) & can_be) {
      ASSIGN_OR_RETURN(ExprPtr value, all_of(with_values(schemas, some, set)));
      if (!is_nothing(value)) member.as_some.emplace_back(set, std::move(value));
    }
  }
  return members;
}

JsonSchemaMaker::Schemas JsonSchemaMaker::with_values(Schemas schemas,
                                                      const std::vector<SomeMember>& some,
                                                      unsigned set) {
  for (size_t i = 0; i < some.size(); ++i)
    if (set >> i & 1) schemas.push_back(some[i].value);
  return schemas;
}

// The unquoted name of a member other than these and in each of the sets.
StatusOr<ExprPtr> JsonSchemaMaker::name_but(const std::vector<Member>& members,
                                            const std::vector<const TextSet*>& all_of,
                                            const SchemaAt& at) {
  std::vector<std::string> key;
  for (const Member& member : members) key.push_back(member.name);
  std::ranges::sort(key);
  RETURN_IF_ERROR(spend(at, static_cast<int64_t>(members.size())));
  const auto [found, is_new] = other_names_.try_emplace({key, all_of});
  if (!is_new) return found->second;
  auto names = TextSet::all().without(TextSet::of_texts({key.begin(), key.end()}), work_);
  for (const TextSet* set : all_of)
    if (names.ok()) names = names->both(*set, work_);
  if (!names.ok()) return at.error(message(names.status()), "properties");
  if (names->empty()) return ExprPtr();
  ASSIGN_OR_RETURN(ExprPtr name, written(*names, at));
  return found->second = call(add_rule(std::move(name)));
}

StatusOr<ExprPtr> JsonSchemaMaker::written(const TextSet& texts, const SchemaAt& at) {
  constexpr int64_t kStateSteps = 40;
  RETURN_IF_ERROR(spend(at, kStateSteps * static_cast<int64_t>(texts.num_states())));
  return texts.in_json(rules_);
}

ExprPtr JsonSchemaMaker::member_of(ExprPtr name, ExprPtr value) const {
  return sequence({literal("\""), std::move(name), literal("\""), colon_, std::move(value)});
}

// Names not in "properties", by the set of patterns that they match.
StatusOr<std::vector<JsonSchemaMaker::NameClass>> JsonSchemaMaker::name_classes(
    const Parts& parts, const std::vector<NamePattern>& patterns, const TextSet* allowed,
    const std::vector<Member>& members) {
  std::vector<std::string_view> named;
  for (const Member& one : members) named.push_back(one.name);
  auto names = (allowed ? *allowed : TextSet::all()).without(TextSet::of_texts(named), work_);
  if (!names.ok()) return parts.all[0].at.error(message(names.status()), "properties");
  std::vector<NameClass> classes;
  classes.push_back({*std::move(names), {}});
  for (const NamePattern& pattern : patterns) {
    std::vector<NameClass> parted;
    for (auto& [set, matches] : classes)
      for (const bool match : {true, false}) {
        auto part = match ? set.both(*pattern.names, work_) : set.without(*pattern.names, work_);
        if (!part.ok()) return pattern.schema.error(message(part.status()));
        if (part->empty()) continue;
        parted.push_back({*std::move(part), matches});
        parted.back().matches.push_back(match);
      }
    if (parted.size() > kMaxNameClasses)
      return pattern.schema.error("too many patterns match the same names");
    classes = std::move(parted);
  }
  return classes;
}

// A member with another name. Null: none.
StatusOr<ExprPtr> JsonSchemaMaker::other_members(const Parts& parts,
                                                 const std::vector<NamePattern>& patterns,
                                                 const TextSet* allowed,
                                                 const std::vector<Member>& members) {
  if (patterns.empty()) {
    const Schemas schemas = member_schemas(parts, patterns, {}, nullptr);
    if (allows_none(schemas)) return ExprPtr();
    if (!allowed) {
      ASSIGN_OR_RETURN(ExprPtr name, name_but(members, {}, parts.all[0].at));
      ASSIGN_OR_RETURN(ExprPtr value, all_of(schemas));
      if (is_nothing(value)) return ExprPtr();
      return call(add_rule(member_of(std::move(name), std::move(value))));
    }
  }
  ASSIGN_OR_RETURN(const auto classes, name_classes(parts, patterns, allowed, members));
  std::vector<ExprPtr> ways;
  for (const auto& [set, matches] : classes) {
    const Schemas schemas = member_schemas(parts, patterns, matches, nullptr);
    if (set.empty() || allows_none(schemas)) continue;
    ASSIGN_OR_RETURN(ExprPtr value, all_of(schemas));
    if (is_nothing(value)) continue;
    ASSIGN_OR_RETURN(ExprPtr name, written(set, parts.all[0].at));
    ways.push_back(member_of(std::move(name), std::move(value)));
  }
  if (ways.empty()) return ExprPtr();
  return call(add_rule(choice(std::move(ways))));
}

// For each set of required members, members with other names that satisfy it: one, or several
// with different names.
StatusOr<std::vector<JsonSchemaMaker::Endings>> JsonSchemaMaker::endings(
    const Parts& parts, const std::vector<NamePattern>& patterns, const TextSet* allowed,
    const std::vector<Member>& members, const std::vector<SomeMember>& some) {
  std::vector<Endings> all(size_t{1} << some.size());
  if (some.empty()) return all;
  const SchemaAt& at = parts.all[0].at;
  const bool plain = patterns.empty() && !allowed;  // one class of names
  std::vector<NameClass> classes(1);
  if (!plain) {
    ASSIGN_OR_RETURN(classes, name_classes(parts, patterns, allowed, members));
  }
  std::vector<TextSet> names(all.size(), TextSet::all());  // names that satisfy all of a set
  for (unsigned set = 1; set < all.size(); ++set) {
    const unsigned first = set & -set;
    std::vector<const TextSet*> sets;
    for (size_t i = 0; i < some.size(); ++i)
      if (set >> i & 1) sets.push_back(some[i].names);
    auto both = names[set - first].both(*sets[0], work_);
    if (!both.ok()) return at.error(message(both.status()));
    names[set] = *std::move(both);
    std::vector<ExprPtr> ways;
    for (const auto& [of_class, matches] : classes) {
      const Schemas schemas =
          with_values(member_schemas(parts, patterns, matches, nullptr), some, set);
      if (allows_none(schemas)) continue;
      ExprPtr name;
      if (plain) {
        ASSIGN_OR_RETURN(name, name_but(members, sets, at));
      } else {
        auto here = of_class.both(names[set], work_);
        if (!here.ok()) return at.error(message(here.status()));
        if (here->empty()) continue;
        ASSIGN_OR_RETURN(name, written(*here, at));
      }
      if (!name) continue;
      ASSIGN_OR_RETURN(ExprPtr value, all_of(schemas));
      if (is_nothing(value)) continue;
      ways.push_back(member_of(std::move(name), std::move(value)));
    }
    if (!ways.empty()) all[set].emplace_back(1, call(add_rule(choice(std::move(ways)))));
    for (unsigned part = (set - 1) & set; part != 0; part = (part - 1) & set) {
      if ((part & first) == 0 || all[part].empty() || all[part][0].first != 1) continue;
      bool differ = true;
      for (size_t i = 0; i < some.size(); ++i)
        for (size_t j = 0; j < some.size(); ++j)
          if ((part >> i & 1) && ((set & ~part) >> j & 1))
            differ &= names[size_t{1} << i | size_t{1} << j].empty();
      if (!differ) continue;
      for (const auto& [count, rest] : all[set & ~part])
        all[set].emplace_back(count + 1, sequence({all[part][0].second, comma_, rest}));
    }
  }
  return all;
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
        "limits of the number of members are not supported beside this number of properties",
        of->at.find("minProperties") ? "minProperties" : "maxProperties");
  return size;
}

// Members with other names; they count as one for "minProperties", since a name may be repeated.
// Required ones come last, so that no name behind repeats them.
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

ExprPtr JsonSchemaMaker::others_and(const Endings& endings, const ExprPtr& other, int32_t before,
                                    Size size) {
  std::vector<ExprPtr> ways;
  for (const auto& [count, ending] : endings) {
    if (size.least > before + count) continue;
    if (size.most != kUnbounded && size.most < before + count) continue;
    const int32_t room = size.most == kUnbounded ? kUnbounded : size.most - before - count;
    std::vector<ExprPtr> parts;
    if (before > 0) parts.push_back(comma_);
    if (other && room != 0) parts.push_back(repeat(sequence({other, comma_}), 0, room));
    parts.push_back(ending);
    parts.push_back(blanks_);
    ways.push_back(sequence(std::move(parts)));
  }
  return ways.empty() ? nullptr : call(add_rule(choice(std::move(ways))));
}

// Chains of rules, from the last property to the first. `ways` by number of earlier members (the
// last entry for more): the texts that may follow while some required members are missing. Each
// ends with the blanks before the brace, so that they are not generated twice. Null: no object is
// within the limits.
ExprPtr JsonSchemaMaker::members_of(const std::vector<Member>& members, const ExprPtr& other,
                                    const std::vector<Endings>& endings, Size size) {
  const auto num_members = static_cast<int32_t>(members.size());
  const int32_t last = std::max(1, std::min(num_members, std::max(size.least, size.most)));
  const auto place = [&](size_t missing, int32_t before) {
    return missing * (static_cast<size_t>(last) + 1) + static_cast<size_t>(before);
  };
  std::vector<ExprPtr> ways;
  for (size_t missing = 0; missing < endings.size(); ++missing)
    for (int32_t before = 0; before <= last; ++before)
      ways.push_back(missing == 0 ? others(other, before, size)
                                  : others_and(endings[missing], other, before, size));
  for (int32_t i = num_members; i-- > 0;) {
    const Member& member = members[static_cast<size_t>(i)];
    if (!member.value && member.required) return nullptr;
    if (!member.value) continue;
    const ExprPtr name = sequence({literal(json_quoted(member.name)), colon_});
    std::vector<ExprPtr> here(ways.size());
    for (size_t missing = 0; missing < endings.size(); ++missing)
      for (int32_t before = 0; before <= std::min(i, last); ++before) {
        const bool room = size.most == kUnbounded || before < size.most;
        std::vector<ExprPtr> all;
        const auto add = [&](const ExprPtr& value, size_t still_missing) {
          const ExprPtr& behind = ways[place(still_missing, std::min(before + 1, last))];
          if (!room || !behind) return;
          all.push_back(before > 0 ? sequence({comma_, name, value, behind})
                                   : sequence({name, value, behind}));
        };
        add(member.value, missing);
        for (const auto& [set, value] : member.as_some)
          if ((set & ~missing) == 0) add(value, missing & ~size_t{set});
        const ExprPtr& without = ways[place(missing, before)];
        if (without && !member.required) all.push_back(without);
        if (!all.empty()) here[place(missing, before)] = call(add_rule(choice(std::move(all))));
      }
    ways = std::move(here);
  }
  return ways[place(endings.size() - 1, 0)];
}

StatusOr<ExprPtr> JsonSchemaMaker::object(const Parts& parts) {
  if (std::ranges::none_of(kObjectKeys, [&](auto key) { return parts.with(key); }))
    return call(any_object_);
  ASSIGN_OR_RETURN(const std::vector<NamePattern> patterns, name_patterns(parts));
  std::optional<TextSet> allowed;
  for (const Part& part : parts.all) {
    if (!part.at.find("propertyNames")) continue;
    ASSIGN_OR_RETURN(const TextSet* names, names_of(part.at["propertyNames"]));
    auto both = allowed ? allowed->both(*names, work_) : StatusOr<TextSet>(*names);
    if (!both.ok()) return part.at.error(message(both.status()), "propertyNames");
    allowed = *std::move(both);
  }
  const TextSet* names = allowed ? &*allowed : nullptr;
  ASSIGN_OR_RETURN(const std::vector<SomeMember> some, some_members(parts));
  // One alternative of several, so it may be left out.
  if (some.size() > kMostSome) return nothing();
  ASSIGN_OR_RETURN(const std::vector<Member> members, named_members(parts, patterns, names, some));
  if (std::ranges::any_of(members, [](const Member& m) { return m.required && !m.value; }))
    return nothing();
  ASSIGN_OR_RETURN(const ExprPtr other, other_members(parts, patterns, names, members));
  ASSIGN_OR_RETURN(const std::vector<Endings> behind,
                   endings(parts, patterns, names, members, some));
  ASSIGN_OR_RETURN(const Size size, size_of(parts, members.size()));
  if (size.most != kUnbounded && size.most < size.least) return nothing();
  const auto num_members = static_cast<int32_t>(members.size());
  if (other && size.least > num_members + 1)
    return parts.with("minProperties")
        ->at.error("only one member outside of 'properties' counts", "minProperties");
  ExprPtr inner = members_of(members, other, behind, size);
  if (!inner) return nothing();
  return sequence({literal("{"), blanks_, std::move(inner), literal("}")});
}

}  // namespace nereid::text
