// Schemas that hold together: references, "allOf", conditions and choices of a schema.
#include <algorithm>
#include <span>

#include "text/grammar/schema/json_schema_maker.h"

namespace nereid::text {
namespace {

constexpr size_t kMaxParts = 256;
constexpr int64_t kPartSteps = 20;  // to add a schema to a list

constexpr std::pair<std::string_view, unsigned> kTypes[] = {
    {"null", kNullType},       {"boolean", kBooleanType},
    {"string", kStringType},   {"number", kIntegerType | kFractionTypes},
    {"integer", kIntegerType}, {"array", kArrayType},
    {"object", kObjectType},   {kFractionType, kFractionTypes}};
// Keywords of the specification that are not supported.
constexpr std::string_view kUnsupported[] = {"$recursiveRef", "$recursiveAnchor"};
constexpr std::string_view kChoices[] = {"anyOf", "oneOf", kChoiceKey, kWaysKey};
constexpr std::string_view kConditions[] = {"if", "dependentRequired", "dependentSchemas",
                                            "dependencies", "not"};
constexpr std::string_view kAsserting[] = {"type",
                                           "enum",
                                           "const",
                                           "minLength",
                                           "maxLength",
                                           "pattern",
                                           "format",
                                           "minimum",
                                           "maximum",
                                           "multipleOf",
                                           "exclusiveMinimum",
                                           "exclusiveMaximum",
                                           "items",
                                           "prefixItems",
                                           "minItems",
                                           "maxItems",
                                           "uniqueItems",
                                           "contains",
                                           "unevaluatedItems",
                                           "properties",
                                           "required",
                                           "minProperties",
                                           "maxProperties",
                                           "additionalProperties",
                                           "propertyNames",
                                           "patternProperties",
                                           "unevaluatedProperties",
                                           kExceptKey,
                                           kUnlikeKey,
                                           kUnlikeMultipleKey,
                                           kSomeKey};

bool has_any(const SchemaAt& at, std::span<const std::string_view> keys) {
  return std::ranges::any_of(keys, [&](std::string_view key) { return at.find(key); });
}

bool has_unevaluated(const SchemaAt& at) {
  return at.find("unevaluatedProperties") || at.find("unevaluatedItems");
}

}  // namespace

bool JsonSchemaMaker::Part::within(const Part& outer) const {
  for (const Scope* s = scope.get(); s; s = s->outer.get())
    if (s->schema == outer.at.value || s->silent) return s->schema == outer.at.value;
  return false;
}

const JsonSchemaMaker::Part* JsonSchemaMaker::Parts::with(std::string_view key) const {
  const auto found = std::ranges::find_if(all, [&](const Part& part) { return part.at.find(key); });
  return found == all.end() ? nullptr : &*found;
}

Status JsonSchemaMaker::check_keywords(const SchemaAt& at) const {
  for (const std::string_view key : kUnsupported)
    if (at.find(key)) return at.error("this keyword is not supported", key);
  return ok();
}

StatusOr<unsigned> JsonSchemaMaker::types_of(const SchemaAt& at) const {
  const json::value* type = at.find("type");
  if (!type) return kAllTypes;
  unsigned types = 0;
  const auto add = [&](const json::value& name) {
    for (const auto& [known, bits] : kTypes)
      if (name.is_string() && std::string_view(name.get_string()) == known) {
        types |= bits;
        return true;
      }
    return false;
  };
  const json::array* list = type->if_array();
  if (list ? !list->empty() && std::ranges::all_of(*list, add) : add(*type)) return types;
  return at.error("must be one or several of null, boolean, string, number, integer, array, object",
                  "type");
}

StatusOr<SchemaAt> JsonSchemaMaker::target(const SchemaAt& at, std::string_view key) const {
  if (key != kPlaceKey) return refs_.target(at, key);
  const int64_t* number = at.find(key)->if_int64();
  if (!number || *number < 0 || static_cast<size_t>(*number) >= places_.size())
    return at.error("this keyword is not supported", key);
  return places_[static_cast<size_t>(*number)];
}

StatusOr<SchemaAt> JsonSchemaMaker::direct(SchemaAt at) const {
  constexpr int kMostSteps = 200;
  for (int step = 0; at.value->is_object(); ++step) {
    const bool places = at.object().size() == 1 && at.find(kPlaceKey);
    if (!places && !refs_.only_refers(*at.value)) break;
    if (step == kMostSteps) return at.error("a schema is a part of itself here");
    ASSIGN_OR_RETURN(at, target(at, places ? kPlaceKey : "$ref"));
  }
  return at;
}

json::value JsonSchemaMaker::place(SchemaAt at) {
  const auto [found, is_new] =
      place_of_.try_emplace(at.value, static_cast<int64_t>(places_.size()));
  if (is_new) places_.push_back(std::move(at));
  return json::object{{kPlaceKey, found->second}};
}

SchemaAt JsonSchemaMaker::opposite_at(const SchemaAt& at) {
  const auto there = direct(at);  // a broken reference is refused where it is used
  const SchemaAt& of = there.ok() ? *there : at;
  SchemaAt& found = opposites_[of.value];
  if (found.value) return found;
  kept_.push_back(json::object{{"not", place(of)}});
  return found = {&kept_.back(), of.pointer};
}

StatusOr<SchemaAt> JsonSchemaMaker::made(const SchemaAt& at, std::string_view key,
                                         const std::function<StatusOr<json::value>()>& make) {
  const auto found = made_.find({at.value, std::string(key)});
  if (found != made_.end()) return found->second;
  ASSIGN_OR_RETURN(json::value value, make());
  kept_.push_back(std::move(value));
  return made_[{at.value, std::string(key)}] = {&kept_.back(), at.pointer_of(key)};
}

// "if" and "dependent...": an equivalent schema made of choices.
StatusOr<json::value> JsonSchemaMaker::conditions(const SchemaAt& at, std::string_view key) {
  if (key == "if") {
    json::array yes = {place(at["if"])}, no = {opposite(at["if"])};
    if (at.find("then")) yes.push_back(place(at["then"]));
    if (at.find("else")) no.push_back(place(at["else"]));
    return json::object{{kChoiceKey, json::array{json::object{{"allOf", std::move(yes)}},
                                                 json::object{{"allOf", std::move(no)}}}}};
  }
  const SchemaAt all = at[key];
  if (!all.value->is_object()) return at.error("must be an object", key);
  json::array every;
  for (const auto& [name, value] : all.object()) {
    const json::object absent = {{"properties", json::object{{name, false}}}};
    json::object present = {{"type", "object"}, {"required", json::array{json::string(name)}}};
    if (value.is_array() && key != "dependentSchemas") {
      for (const json::value& other : value.get_array())
        present["required"].get_array().push_back(other);
    } else if (key == "dependentRequired") {
      return all.error("must be an array", name);
    } else {
      present["allOf"] = json::array{place(all[std::string_view(name)])};
    }
    every.push_back(json::object{{kChoiceKey, json::array{absent, std::move(present)}}});
  }
  return json::object{{"allOf", std::move(every)}};
}

Status JsonSchemaMaker::add_part(Open& open, const Part& part) {
  const SchemaAt& at = part.at;
  RETURN_IF_ERROR(check_keywords(at));
  if (open.parts.all.size() >= kMaxParts) return at.error("too many schemas hold at once here");
  RETURN_IF_ERROR(spend(at, kPartSteps));
  const auto add = [&](SchemaAt inner, bool silent = false) {
    auto scope = std::make_shared<const Scope>(Scope{inner.value, part.scope, silent});
    open.todo.push_back({std::move(inner), std::move(scope)});
  };
  if (refs_.only_refers(*at.value)) {
    static const json::value kAnything = json::object();
    open.parts.all.push_back({{&kAnything, at.pointer}, part.scope});
    ASSIGN_OR_RETURN(SchemaAt there, target(at, "$ref"));
    add(std::move(there));
    return ok();
  }
  ASSIGN_OR_RETURN(const unsigned types, types_of(at));
  open.parts.types &= types;
  open.parts.all.push_back(part);
  open.has_unevaluated |= has_unevaluated(at);
  for (const std::string_view key :
       {std::string_view("$ref"), std::string_view("$dynamicRef"), kPlaceKey})
    if (at.find(key)) {
      ASSIGN_OR_RETURN(SchemaAt there, target(at, key));
      add(std::move(there));
    }
  if (at.find("allOf")) {
    const SchemaAt list = at["allOf"];
    if (!list.value->is_array()) return list.error("must be an array of schemas");
    for (size_t i = 0; i < list.value->get_array().size(); ++i) add(list[i]);
  }
  for (const std::string_view key : kConditions) {
    if (!at.find(key)) continue;
    const bool said = at.find("then") || at.find("else") || open.has_unevaluated;
    if (key == "if" && !said) continue;
    ASSIGN_OR_RETURN(SchemaAt same, made(at, key, [&] {
                       return key == "not" ? negation(at["not"]) : conditions(at, key);
                     }));
    add(std::move(same), key == "not");
  }
  for (const std::string_view key : kChoices)
    if (at.find(key)) open.choices.push_back({.of = part, .key = std::string(key), .left = {}});
  return ok();
}

Status JsonSchemaMaker::flatten(Open& open) {
  while (!open.todo.empty() && open.parts.types != 0) {
    std::vector<Part> todo = std::exchange(open.todo, {});
    for (const Part& part : todo) {
      const json::value& value = *part.at.value;
      if (const bool* all = value.if_bool()) {
        if (!*all) open.parts.types = 0;
        continue;
      }
      if (!value.is_object()) return part.at.error("a schema must be an object or a boolean");
      for (const Scope* s = part.scope->outer.get(); s; s = s->outer.get())
        if (s->schema == &value) return part.at.error("a schema is a part of itself here");
      RETURN_IF_ERROR(add_part(open, part));
    }
  }
  return ok();
}

// The alternatives of a choice, as lists of schemas. `together`: also combinations, for their joint
// evaluation of members and elements.
StatusOr<const std::vector<JsonSchemaMaker::Schemas>*> JsonSchemaMaker::options(
    const Choice& choice, bool together) {
  const std::pair key(choice.of.at.value, std::pair(choice.key, together));
  if (const auto found = options_.find(key); found != options_.end()) return &found->second;
  ASSIGN_OR_RETURN(std::vector<Schemas> all, find_options(choice, together));
  return &(options_[key] = std::move(all));
}

StatusOr<std::vector<JsonSchemaMaker::Schemas>> JsonSchemaMaker::find_options(const Choice& choice,
                                                                              bool together) {
  constexpr size_t kMostTogether = 4, kMost = 1024;
  const SchemaAt list = choice.of.at[choice.key];
  if (!list.value->is_array() ||
      (list.value->get_array().empty() && choice.key != kChoiceKey && choice.key != kWaysKey))
    return list.error("must be an array with at least one schema");
  const size_t size = list.value->get_array().size();
  if (size > kMost) return list.error(fmt::format("more than {} schemas", kMost));
  std::vector<Schemas> all;
  if (choice.key == "anyOf" && together && size <= kMostTogether) {
    for (size_t set = 1; set < size_t{1} << size; ++set) {
      Schemas& some = all.emplace_back();
      for (size_t i = 0; i < size; ++i)
        if (set >> i & 1) some.push_back(list[i]);
    }
    return all;
  }
  for (size_t i = 0; i < size; ++i) all.push_back({list[i]});
  if (choice.key != "oneOf") return all;
  for (size_t i = 0; i < size; ++i)
    for (size_t j = 0; j < size; ++j) {
      if (i == j || exclusive(list[std::min(i, j)], list[std::max(i, j)])) continue;
      all[i].push_back(opposite_at(list[j]));
    }
  return all;
}

// Finds the alternatives that the parts do not obviously exclude.
StatusOr<bool> JsonSchemaMaker::find_left(const Open& open, Choice& choice) {
  ASSIGN_OR_RETURN(const std::vector<Schemas>* all, options(choice, open.has_unevaluated));
  if (choice.all != all) {
    choice.all = all;
    choice.num_seen = 0;
    choice.left.clear();
    for (uint32_t i = 0; i < all->size(); ++i) choice.left.push_back(i);
  }
  const std::vector<Part>& parts = open.parts.all;
  const size_t num_new = parts.size() - choice.num_seen;
  RETURN_IF_ERROR(
      spend(choice.of.at, kPartSteps + static_cast<int64_t>(choice.left.size() * num_new)));
  if (choice.key == kChoiceKey || choice.key == kWaysKey)
    for (const uint32_t i : choice.left)
      if (implied(open.parts, (*all)[i][0])) return false;
  std::erase_if(choice.left, [&](uint32_t i) {
    return std::ranges::any_of((*all)[i], [&](const SchemaAt& at) {
      return std::any_of(parts.begin() + static_cast<ptrdiff_t>(choice.num_seen), parts.end(),
                         [&](const Part& part) { return exclusive(at, part.at); });
    });
  });
  if (num_new > 0) {
    std::vector<uint32_t> left;
    for (const uint32_t i : choice.left) {
      ASSIGN_OR_RETURN(const bool is_none, conflicts(open, (*all)[i]));
      if (!is_none) left.push_back(i);
    }
    choice.left = std::move(left);
  }
  choice.num_seen = parts.size();
  return true;
}

bool JsonSchemaMaker::asserts(const SchemaAt& at) {
  const auto [found, is_new] = asserts_.try_emplace(at.value, false);
  if (is_new) found->second = has_any(at, kAsserting);
  return found->second;
}

void JsonSchemaMaker::add_alternative(Open& open, const Choice& choice, uint32_t way) {
  for (const SchemaAt& at : (*choice.all)[way])
    open.todo.push_back({at, std::make_shared<const Scope>(Scope{at.value, choice.of.scope})});
}

StatusOr<bool> JsonSchemaMaker::settle(Open& open, size_t& best) {
  constexpr size_t kManyChoices = 8, kFewWays = 8, kMostLooked = 16;
  for (bool is_forced = true; is_forced;) {
    RETURN_IF_ERROR(flatten(open));
    if (open.parts.types == 0) return false;
    for (; open.num_listed < open.parts.all.size(); ++open.num_listed)
      RETURN_IF_ERROR(add_listed(open.parts.all[open.num_listed], open.listed));
    ASSIGN_OR_RETURN(const bool is_none, conflicts(open, {}));
    if (is_none) return false;
    if (open.most_ways == 0)
      open.most_ways = open.choices.size() > kManyChoices ? kFewWays : most_ways_;
    is_forced = false;
    best = 0;
    for (size_t i = 0; !is_forced && i < std::min(open.choices.size(), kMostLooked);) {
      Choice& choice = open.choices[i];
      ASSIGN_OR_RETURN(const bool open_yet, find_left(open, choice));
      if (open_yet && choice.left.empty()) return false;
      is_forced = open_yet && choice.left.size() == 1;
      if (is_forced) add_alternative(open, choice, choice.left[0]);
      if (is_forced || !open_yet) {
        open.choices.erase(open.choices.begin() + static_cast<ptrdiff_t>(i));
        continue;
      }
      if (choice.left.size() < open.choices[best].left.size()) best = i;
      ++i;
    }
  }
  return true;
}

Status JsonSchemaMaker::expand(Open open, std::vector<Parts>& out) {
  size_t best = 0;
  ASSIGN_OR_RETURN(const bool has_values, settle(open, best));
  if (!has_values) return ok();
  if (open.choices.empty()) {
    Parts& parts = open.parts;
    // Parts without assertions are dropped, except one for error messages.
    const auto rest = std::stable_partition(parts.all.begin(), parts.all.end(),
                                            [&](const Part& part) { return asserts(part.at); });
    parts.all.erase(rest == parts.all.begin() && rest != parts.all.end() ? rest + 1 : rest,
                    parts.all.end());
    out.push_back(std::move(parts));
    return ok();
  }
  const Choice choice = std::move(open.choices[best]);
  open.choices.erase(open.choices.begin() + static_cast<ptrdiff_t>(best));
  const size_t before = out.size();
  for (const uint32_t way : choice.left) {
    if (choice.key == kWaysKey &&
        out.size() - before >= std::max(open.most_ways, choice.left.size())) {
      cut_at_ = open.most_ways;
      break;
    }
    RETURN_IF_ERROR(spend(choice.of.at, kPartSteps * static_cast<int64_t>(open.parts.all.size())));
    Open next = open;
    add_alternative(next, choice, way);
    RETURN_IF_ERROR(expand(std::move(next), out));
  }
  return ok();
}

StatusOr<std::vector<JsonSchemaMaker::Parts>> JsonSchemaMaker::alternatives(const Schemas& schemas,
                                                                            size_t most_ways) {
  Open open;
  open.most_ways = most_ways;
  for (const SchemaAt& at : schemas)
    open.todo.push_back({at, std::make_shared<const Scope>(Scope{at.value, nullptr})});
  std::vector<Parts> out;
  RETURN_IF_ERROR(expand(std::move(open), out));
  return out;
}

StatusOr<ExprPtr> JsonSchemaMaker::body(const Schemas& schemas) {
  // A schema that only refers or only chooses shares the rules of its target.
  if (schemas.size() == 1 && schemas[0].value->is_object()) {
    const SchemaAt& at = schemas[0];  // except pure references, which all_of() resolves
    RETURN_IF_ERROR(check_keywords(at));
    const bool says_more = has_any(at, kAsserting) || has_any(at, kConditions) ||
                           at.find("allOf") || at.find("$dynamicRef") || at.find(kPlaceKey);
    const auto num_choices =
        std::ranges::count_if(kChoices, [&](auto key) { return at.find(key); });
    if (!says_more && num_choices == 0 && !at.find("$ref")) return any_;
    if (!says_more && num_choices == 0) {
      ASSIGN_OR_RETURN(SchemaAt there, target(at, "$ref"));
      return all_of({std::move(there)});
    }
    if (!says_more && num_choices == 1 && !at.find("$ref")) {
      const auto key = *std::ranges::find_if(kChoices, [&](auto k) { return at.find(k); });
      ASSIGN_OR_RETURN(const std::vector<Schemas>* all,
                       options({.of = {at, nullptr}, .key = std::string(key), .left = {}}, false));
      std::vector<ExprPtr> ways;
      for (const Schemas& some : *all) {
        ASSIGN_OR_RETURN(ExprPtr way, all_of(some));
        if (!is_nothing(way)) ways.push_back(std::move(way));
      }
      return choice(std::move(ways));
    }
  }
  std::vector<ExprPtr> ways;
  // First a few alternatives of many "not", all of which may turn out empty.
  for (const size_t most_ways : {size_t{0}, most_ways_}) {
    cut_at_ = 0;
    ASSIGN_OR_RETURN(const std::vector<Parts> all, alternatives(schemas, most_ways));
    const size_t cut_at = cut_at_;
    for (const Parts& parts : all) {
      ASSIGN_OR_RETURN(ExprPtr way, of_parts(parts));
      if (!is_nothing(way)) ways.push_back(std::move(way));
    }
    if (!ways.empty() || cut_at == 0) break;
    if (cut_at < most_ways_) continue;
    is_cut_ = true;
    break;
  }
  return choice(std::move(ways));
}

StatusOr<ExprPtr> JsonSchemaMaker::all_of(Schemas schemas) {
  constexpr int kMaxDepth = 200;  // nested schemas, by name or by position
  for (SchemaAt& at : schemas) {
    ASSIGN_OR_RETURN(at, direct(std::move(at)));
    if (*at.value == json::value(false)) return nothing();
  }
  std::vector<const json::value*> key;
  std::erase_if(schemas, [&](const SchemaAt& at) {
    const bool known = std::ranges::find(key, at.value) != key.end();
    if (!known && *at.value != json::value(true)) key.push_back(at.value);
    return known || *at.value == json::value(true);
  });
  if (schemas.empty()) return any_;
  std::ranges::sort(key);  // the same schemas in another order are the same values
  const auto [found, is_new] = rule_of_.try_emplace(key, static_cast<int32_t>(rules_.size()));
  const int32_t index = found->second;
  const auto made = [&] {
    const ExprPtr& rule = rules_[static_cast<size_t>(index)];
    const bool passes = rule && (is_nothing(rule) || rule->kind == Expr::Kind::kRule);
    return passes ? rule : call(index);
  };
  if (!is_new) return made();
  add_rule(nullptr);
  for (size_t i = 0; i < schemas.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if (exclusive(schemas[j], schemas[i])) return rules_[static_cast<size_t>(index)] = nothing();
  if (++depth_ > kMaxDepth)
    return schemas[0].error(fmt::format("more than {} schemas within each other", kMaxDepth));
  ASSIGN_OR_RETURN(ExprPtr rule, body(schemas));
  set_rule(index, std::move(rule));
  --depth_;
  return made();
}

}  // namespace nereid::text
