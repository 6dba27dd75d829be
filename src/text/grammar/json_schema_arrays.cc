// Arrays of a schema.
#include <algorithm>
#include <bit>

#include "text/grammar/json_schema_maker.h"

namespace nereid::text {
namespace {

constexpr int64_t kMostPlaces = 10'000;  // rules of one array
constexpr size_t kMostDistinct = 10;
constexpr int64_t kMostTried = 1000;  // integers between bounds

}  // namespace

// What all parts say of an array.
struct JsonSchemaMaker::Elements {
  std::vector<Schemas> front;  // of the first elements
  Schemas rest;                // of all behind them
  int32_t least = 0, most = kUnbounded;
  const Part* unique = nullptr;
  const Part* contains = nullptr;
  int32_t least_contained = 0, most_contained = kUnbounded;

  const Schemas& at(size_t i) const { return i < front.size() ? front[i] : rest; }
};

StatusOr<ElementKeys> element_keys(const SchemaAt& at) {
  const json::value* items = at.find("items");
  const bool listed = items && items->is_array();
  ElementKeys keys{.front = listed ? "items" : "prefixItems",
                   .rest = listed ? "additionalItems" : "items"};
  const json::value* front = at.find(keys.front);
  if (front && !front->is_array()) return at.error("must be an array", keys.front);
  if (front) keys.size = front->get_array().size();
  return keys;
}

Status JsonSchemaMaker::add_limits(const Part& part, Elements& e) const {
  const SchemaAt& at = part.at;
  ASSIGN_OR_RETURN(const int32_t least, schema_count(at, "minItems", 0));
  ASSIGN_OR_RETURN(const int32_t most, schema_count(at, "maxItems", kUnbounded));
  e.least = std::max(e.least, least);
  if (most != kUnbounded) e.most = e.most == kUnbounded ? most : std::min(e.most, most);
  const json::value *unique = at.find("uniqueItems"), *except = at.find(kExceptKey);
  if (unique && !unique->is_bool()) return at.error("must be true or false", "uniqueItems");
  if (unique && unique->get_bool()) e.unique = &part;
  if (except && except->is_array())
    for (const json::value& value : except->get_array()) {
      if (!value.is_array()) continue;
      if (!value.get_array().empty())
        return at.error("'not' of a given array that is not empty is not supported");
      e.least = std::max(e.least, 1);
    }
  if (!at.find("contains")) return ok();
  if (e.contains) return at.error("beside another one this is not supported", "contains");
  e.contains = &part;
  ASSIGN_OR_RETURN(e.least_contained, schema_count(at, "minContains", 1));
  ASSIGN_OR_RETURN(e.most_contained, schema_count(at, "maxContains", kUnbounded));
  return ok();
}

// What is said of the element at place `i`; the places behind all fronts are alike.
StatusOr<JsonSchemaMaker::Schemas> JsonSchemaMaker::element_schemas(const Parts& parts,
                                                                    const Elements& e,
                                                                    size_t i) const {
  Schemas all;
  std::vector<bool> says(parts.all.size());
  for (size_t p = 0; p < parts.all.size(); ++p) {
    const SchemaAt& at = parts.all[p].at;
    ASSIGN_OR_RETURN(const ElementKeys keys, element_keys(at));
    says[p] = i < keys.size || at.find(keys.rest);
    if (says[p]) all.push_back(i < keys.size ? at[keys.front][i] : at[keys.rest]);
  }
  for (size_t p = parts.all.size(); p-- > 0;) {
    const Part& part = parts.all[p];
    if (!part.at.find("unevaluatedItems")) continue;
    bool said = false;
    for (size_t q = 0; q < says.size(); ++q) said |= says[q] && parts.all[q].within(part);
    if (!said) all.push_back(part.at["unevaluatedItems"]);
    says[p] = true;
    if (e.contains && e.contains->within(part))
      return part.at.error("beside 'contains' this is not supported", "unevaluatedItems");
  }
  return all;
}

StatusOr<JsonSchemaMaker::Elements> JsonSchemaMaker::elements(const Parts& parts) {
  Elements e;
  size_t fixed = 0;
  for (const Part& part : parts.all) {
    RETURN_IF_ERROR(add_limits(part, e));
    ASSIGN_OR_RETURN(const ElementKeys keys, element_keys(part.at));
    fixed = std::max(fixed, keys.size);
  }
  for (size_t i = 0; i <= fixed; ++i) {
    ASSIGN_OR_RETURN(Schemas all, element_schemas(parts, e, i));
    const bool none = std::ranges::any_of(
        all, [](const SchemaAt& at) { return *at.value == json::value(false); });
    if (none) {
      const auto most = static_cast<int32_t>(i);
      if (e.most == kUnbounded || e.most > most) e.most = most;
      break;
    }
    if (i < fixed)
      e.front.push_back(std::move(all));
    else
      e.rest = std::move(all);
  }
  if (e.most != kUnbounded && e.front.size() > static_cast<size_t>(e.most))
    e.front.resize(static_cast<size_t>(e.most));
  return e;
}

StatusOr<ExprPtr> JsonSchemaMaker::array(const Parts& parts) {
  ASSIGN_OR_RETURN(const Elements e, elements(parts));
  if (e.most != kUnbounded && e.most < e.least) return nothing();
  const bool counts = e.contains && (e.least_contained > 0 || e.most_contained != kUnbounded);
  const bool distinct = e.unique && (e.most == kUnbounded || e.most > 1);
  if (counts && distinct)
    return e.unique->at.error("beside 'contains' this is not supported", "uniqueItems");
  ExprPtr inner;
  if (distinct) {
    ASSIGN_OR_RETURN(inner, distinct_array(e));
  } else if (counts) {
    ASSIGN_OR_RETURN(inner, counted_array(e));
  } else if (e.front.empty() && e.rest.empty() && e.least == 0 && e.most == kUnbounded) {
    return call(any_array_);
  } else {
    ASSIGN_OR_RETURN(inner, plain_array(e));
  }
  return sequence({literal("["), blanks_, std::move(inner), literal("]")});
}

// The first elements have rules of their own, each of which goes on with the next one.
StatusOr<ExprPtr> JsonSchemaMaker::plain_array(const Elements& e) {
  const auto fixed = static_cast<int32_t>(e.front.size());
  ExprPtr tail = literal("");
  const int32_t least = std::max(0, e.least - fixed);
  const int32_t most = e.most == kUnbounded ? kUnbounded : e.most - fixed;
  if (most != 0) {
    ASSIGN_OR_RETURN(const ExprPtr item, all_of(e.rest));
    const ExprPtr more = sequence({comma_, item});
    tail = fixed > 0 ? repeat(more, least, most)
                     : sequence({item, repeat(more, std::max(0, least - 1),
                                              most == kUnbounded ? kUnbounded : most - 1)});
  }
  for (int32_t i = fixed; i-- > 0;) {
    ASSIGN_OR_RETURN(ExprPtr item, all_of(e.front[static_cast<size_t>(i)]));
    ExprPtr here =
        i > 0 ? sequence({comma_, std::move(item), tail}) : sequence({std::move(item), tail});
    if (i > 0 && i >= e.least) here = optional(std::move(here));
    tail = call(add_rule(std::move(here)));
  }
  tail = sequence({tail, blanks_});
  if (e.most == 0) tail = literal("");
  if (e.least == 0) tail = optional(std::move(tail));
  return tail;
}

// A rule for each number of elements so far and of those that "contains" counts. An element that
// it allows need not be counted, unless there is a limit.
StatusOr<ExprPtr> JsonSchemaMaker::counted_array(const Elements& e) {
  const bool limited = e.most_contained != kUnbounded;
  const int32_t counted = limited ? e.most_contained : e.least_contained;
  const auto places = std::max<int64_t>(
      {1, static_cast<int64_t>(e.front.size()), e.least, e.most == kUnbounded ? 0 : e.most});
  if (limited && e.most_contained < e.least_contained) return nothing();
  if ((places + 1) * (int64_t{counted} + 1) > kMostPlaces)
    return e.contains->at.error("so many elements are not supported", "contains");
  const auto rule = [&, first = static_cast<int32_t>(rules_.size())](int64_t place, int32_t count) {
    return first + static_cast<int32_t>(std::min(place, places) * (counted + 1)) + count;
  };
  rules_.resize(rules_.size() + static_cast<size_t>((places + 1) * (counted + 1)));
  const SchemaAt found = e.contains->at["contains"];
  SchemaAt other;
  if (limited) {
    ASSIGN_OR_RETURN(other, made(e.contains->at, "contains", [&] { return negation(found); }));
  }
  for (int32_t i = 0; i <= places; ++i) {
    Schemas counting = e.at(static_cast<size_t>(i)), skipping = counting;
    counting.push_back(found);
    if (limited) skipping.push_back(other);
    ASSIGN_OR_RETURN(const ExprPtr counted_item, all_of(counting));
    ASSIGN_OR_RETURN(const ExprPtr skipped_item, all_of(skipping));
    for (int32_t count = 0; count <= counted; ++count) {
      std::vector<ExprPtr> ways;
      const auto add = [&](const ExprPtr& item, int32_t next) {
        ExprPtr behind = call(rule(i + 1, next));
        ways.push_back(i > 0 ? sequence({comma_, item, std::move(behind)})
                             : sequence({item, std::move(behind)}));
      };
      if (e.most == kUnbounded || i < e.most) {
        add(skipped_item, count);
        if (count < counted) add(counted_item, count + 1);
      }
      if (i >= e.least && count >= e.least_contained) ways.push_back(i > 0 ? blanks_ : literal(""));
      rules_[static_cast<size_t>(rule(i, count))] = choice(std::move(ways));
    }
  }
  return call(rule(0, 0));
}

// The values of all of the schemas where those are few: given ones, or all of types that have few.
StatusOr<std::optional<json::array>> JsonSchemaMaker::few_values(const Schemas& schemas) {
  json::array values;
  ASSIGN_OR_RETURN(const std::vector<Parts> ways, alternatives(schemas));
  for (const Parts& parts : ways) {
    ASSIGN_OR_RETURN(auto some, listed_values(parts));
    if (!some) {
      ASSIGN_OR_RETURN(some, values_of_types(parts));
    }
    if (!some) return some;
    for (const json::value& value : *some)
      if (std::ranges::none_of(values, [&](const auto& v) { return same_value(v, value); }))
        values.push_back(value);
  }
  return std::optional(std::move(values));
}

StatusOr<std::optional<json::array>> JsonSchemaMaker::values_of_types(const Parts& parts) {
  const std::optional<json::array> too_many;
  if ((parts.types & ~(kNullType | kBooleanType | kIntegerType)) != 0) return too_many;
  json::array all;
  if (parts.types & kNullType) all.push_back(nullptr);
  if (parts.types & kBooleanType) all.push_back(true), all.push_back(false);
  if (parts.types & kIntegerType) {
    ASSIGN_OR_RETURN(const JsonBounds given, bounds(parts));
    const JsonBounds b = given.whole();
    const auto least = b.least ? b.least->integer() : std::nullopt;
    const auto most = b.most ? b.most->integer() : std::nullopt;
    if (!least || !most || *most - *least >= kMostTried) return too_many;
    for (int64_t i = *least; i <= *most; ++i) all.push_back(i);
  }
  json::array kept;
  for (const json::value& value : all) {
    bool good = true;
    for (size_t i = 0; good && i < parts.all.size(); ++i) {
      ASSIGN_OR_RETURN(good, allows(parts.all[i].at, value, /*alone=*/true, 0));
    }
    if (good) kept.push_back(value);
  }
  return std::optional(std::move(kept));
}

// A rule for each set of values that are there already; so many are in front of the next one.
StatusOr<ExprPtr> JsonSchemaMaker::distinct_array(const Elements& e) {
  const Status refused = e.unique->at.error(
      fmt::format("this is supported only for elements that are one of at most {} given values",
                  kMostDistinct),
      "uniqueItems");
  json::array values;
  std::vector<size_t> sets;  // of each place, which of the values
  for (size_t i = 0; i <= e.front.size(); ++i) {
    if (e.most != kUnbounded && i >= static_cast<size_t>(e.most)) break;
    ASSIGN_OR_RETURN(const auto some, few_values(e.at(i)));
    if (!some) return refused;
    size_t& set = sets.emplace_back();
    for (const json::value& value : *some) {
      const auto same = [&](const auto& v) { return same_value(v, value); };
      const auto at = static_cast<size_t>(std::ranges::find_if(values, same) - values.begin());
      if (at == values.size()) values.push_back(value);
      if (values.size() > kMostDistinct) return refused;
      set |= size_t{1} << at;
    }
  }
  const auto first = static_cast<int32_t>(rules_.size());
  rules_.resize(rules_.size() + (size_t{1} << values.size()));
  for (size_t set = 0; set < size_t{1} << values.size(); ++set) {
    const auto count = static_cast<size_t>(std::popcount(set));
    const size_t allowed = sets[std::min(count, sets.size() - 1)];
    std::vector<ExprPtr> next;
    for (size_t i = 0; i < values.size(); ++i) {
      if ((set >> i & 1) || !(allowed >> i & 1)) continue;
      if (e.most != kUnbounded && count >= static_cast<size_t>(e.most)) continue;
      std::vector<ExprPtr> one = {value_expr(values[i]),
                                  call(first + static_cast<int32_t>(set | size_t{1} << i))};
      if (count > 0) one.insert(one.begin(), comma_);
      next.push_back(sequence(std::move(one)));
    }
    if (count >= static_cast<size_t>(e.least)) next.push_back(count > 0 ? blanks_ : literal(""));
    rules_[static_cast<size_t>(first) + set] = choice(std::move(next));
  }
  return call(first);
}

}  // namespace nereid::text
