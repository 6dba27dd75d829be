// Arrays of a schema.
#include <algorithm>
#include <bit>

#include "text/grammar/schema/json_schema_maker.h"

namespace nereid::text {
namespace {

constexpr int64_t kMostPlaces = 10'000;  // rules of one array
// Largest numbers of distinct elements with "uniqueItems": from few values, and from many.
constexpr size_t kMostKinds = 10, kMostOpenKinds = 8;
constexpr int64_t kMostTried = 1000;  // integers between bounds that are tried

// Whether the schema allows a single value, so that no two elements differ.
bool is_one_value(const json::value& schema) {
  if (!schema.is_object()) return schema.is_bool();
  const json::value *type = schema.get_object().if_contains("type"),
                    *list = schema.get_object().if_contains("enum");
  return schema.get_object().contains("const") ||
         (list && list->is_array() && list->get_array().size() < 2) ||
         (type && (*type == json::value("null") || *type == json::value("boolean")));
}

// Schemas of numbers in adjacent intervals.
std::vector<json::object> number_kinds(const std::optional<Decimal>& least,
                                       const std::optional<Decimal>& most) {
  const auto low = least ? least->integer() : std::nullopt;
  const auto high = most ? most->integer() : std::nullopt;
  std::vector<int64_t> borders = {0, 1, 2, 5, 10, 100, 1000};
  if (low) {
    const int64_t from = *low;
    const int64_t step = high ? std::max<int64_t>(1, *high / 8 - from / 8) : 0;
    for (size_t i = 0; i < borders.size(); ++i)
      borders[i] = from + (step > 0 ? step * static_cast<int64_t>(i + 1) : borders[i] + 1);
  }
  std::vector<json::object> kinds;
  for (size_t i = 0; i <= borders.size(); ++i) {
    json::object& kind = kinds.emplace_back(json::object{{"type", "number"}});
    if (i > 0) kind["minimum"] = borders[i - 1];
    if (i < borders.size()) kind["exclusiveMaximum"] = borders[i];
  }
  return kinds;
}

}  // namespace

// A "contains" with its limits of the number of elements.
struct JsonSchemaMaker::Contained {
  const Part* part = nullptr;
  SchemaAt schema;
  int32_t least = 0, most = kUnbounded;
  bool limited() const { return most != kUnbounded; }
};

// How many elements each "contains" has counted. Without an upper limit it counts no further than
// to its lower one. A set of "contains" is a bitmask by their index.
class JsonSchemaMaker::Counts {
 public:
  explicit Counts(const std::vector<Contained>& all) : all_(all) {
    for (const Contained& one : all) {
      sizes_.push_back((one.limited() ? one.most : one.least) + 1);
      size_ = std::min(size_ * sizes_.back(), kMostPlaces + 1);
    }
  }
  // Combinations of counts, at most kMostPlaces + 1. 0 is the start.
  int64_t size() const { return size_; }
  unsigned num_sets() const { return 1u << all_.size(); }
  // Whether each "contains" has its least count.
  bool is_enough(int64_t at) const {
    for (size_t i = 0; i < all_.size(); at /= sizes_[i++])
      if (at % sizes_[i] < all_[i].least) return false;
    return true;
  }
  // The counts after an element that `set` counts; nullopt: a limit is exceeded, or, with `needed`,
  // a count has no effect.
  std::optional<int64_t> after(int64_t at, unsigned set, bool needed) const {
    int64_t next = at, unit = 1;
    for (size_t i = 0; i < all_.size(); unit *= sizes_[i++]) {
      if ((set >> i & 1) == 0) continue;
      const bool full = at / unit % sizes_[i] == sizes_[i] - 1;
      if (full && (needed || all_[i].limited())) return std::nullopt;
      if (!full) next += unit;
    }
    return next;
  }

 private:
  const std::vector<Contained>& all_;
  std::vector<int64_t> sizes_;  // numbers of counts of each
  int64_t size_ = 1;
};

// The array keywords of all parts together.
struct JsonSchemaMaker::Elements {
  std::vector<Schemas> front;  // of the first elements, by position
  Schemas rest;                // of all further elements
  int32_t least = 0, most = kUnbounded;
  const Part* unique = nullptr;
  std::vector<Contained> contained;
  bool is_empty = false;  // limits that no array keeps

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
  ASSIGN_OR_RETURN(const int32_t least_contained, schema_count(at, "minContains", 1));
  ASSIGN_OR_RETURN(const int32_t most_contained, schema_count(at, "maxContains", kUnbounded));
  if (least_contained == 0 && most_contained == kUnbounded) return ok();
  Contained one{
      .part = &part, .schema = at["contains"], .least = least_contained, .most = most_contained};
  const auto same = std::ranges::find_if(
      e.contained, [&](const Contained& c) { return c.schema.value == one.schema.value; });
  if (same == e.contained.end()) {
    e.contained.push_back(std::move(one));
    return ok();
  }
  same->least = std::max(same->least, one.least);
  if (!same->limited() || (one.limited() && one.most < same->most)) same->most = one.most;
  return ok();
}

// The schemas of the element at position `i`; all positions behind the fronts have the same.
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
    if (std::ranges::any_of(e.contained, [&](const auto& c) { return c.part->within(part); }))
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
  // A "contains" that counts no element is a schema of all elements.
  for (const Contained& one : e.contained) {
    if (one.most != 0) continue;
    if (one.least > 0) e.is_empty = true;
    const SchemaAt other = opposite_at(one.schema);
    for (Schemas& all : e.front) all.push_back(other);
    e.rest.push_back(other);
  }
  std::erase_if(e.contained, [](const Contained& one) { return one.most == 0; });
  return e;
}

StatusOr<ExprPtr> JsonSchemaMaker::array(const Parts& parts) {
  ASSIGN_OR_RETURN(Elements e, elements(parts));
  constexpr size_t kMostContained = 8;
  for (const Contained& one : e.contained) e.is_empty |= one.limited() && one.most < one.least;
  if (e.is_empty || (e.most != kUnbounded && e.most < e.least)) return nothing();
  if (e.contained.size() > kMostContained) {
    is_partial_ = true;
    return nothing();
  }
  const bool distinct = e.unique && (e.most == kUnbounded || e.most > 1);
  ExprPtr inner;
  if (distinct) {
    ASSIGN_OR_RETURN(inner, distinct_array(e));
  } else if (!e.contained.empty()) {
    ASSIGN_OR_RETURN(inner, counted_array(e));
  } else if (e.front.empty() && e.rest.empty() && e.least == 0 && e.most == kUnbounded) {
    return call(any_array_);
  } else {
    ASSIGN_OR_RETURN(inner, plain_array(e));
  }
  return sequence({literal("["), blanks_, std::move(inner), literal("]")});
}

// A rule for each of the first elements, which continues with the next one's.
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

// The schemas of an element that satisfies the "contains" of `set`, and of the others none that
// limits its count.
JsonSchemaMaker::Schemas JsonSchemaMaker::counted_schemas(Schemas all, const Elements& e,
                                                          unsigned set) {
  for (size_t i = 0; i < e.contained.size(); ++i)
    if (set >> i & 1)
      all.push_back(e.contained[i].schema);
    else if (e.contained[i].limited())
      all.push_back(opposite_at(e.contained[i].schema));
  return all;
}

// By set of "contains", the element that satisfies it; null: none.
StatusOr<std::vector<ExprPtr>> JsonSchemaMaker::counted_items(const Schemas& all,
                                                              const Elements& e) {
  std::vector<ExprPtr> items(size_t{1} << e.contained.size());
  const bool limited = std::ranges::any_of(e.contained, &Contained::limited);
  for (unsigned set = 0; set < items.size(); ++set) {
    bool is_none = false;  // a smaller set has no value already
    for (size_t i = 0; !limited && i < e.contained.size(); ++i)
      is_none |= (set >> i & 1) && !items[set & ~(1u << i)];
    if (is_none) continue;
    ASSIGN_OR_RETURN(ExprPtr item, all_of(counted_schemas(all, e, set)));
    if (!is_nothing(item)) items[set] = std::move(item);
  }
  return items;
}

// A rule for each pair (elements so far, elements counted by each "contains").
StatusOr<ExprPtr> JsonSchemaMaker::counted_array(const Elements& e) {
  const Counts counts(e.contained);
  const auto places = std::max<int64_t>(
      {1, static_cast<int64_t>(e.front.size()), e.least, e.most == kUnbounded ? 0 : e.most});
  if ((places + 1) * counts.size() > kMostPlaces)
    return e.contained[0].part->at.error("this number of elements is not supported", "contains");
  const auto rule = [&, first = static_cast<int32_t>(rules_.size())](int64_t place, int64_t at) {
    return first + static_cast<int32_t>(std::min(place, places) * counts.size() + at);
  };
  rules_.resize(rules_.size() + static_cast<size_t>((places + 1) * counts.size()));
  for (int64_t i = 0; i <= places; ++i) {
    ASSIGN_OR_RETURN(const std::vector<ExprPtr> items,
                     counted_items(e.at(static_cast<size_t>(i)), e));
    RETURN_IF_ERROR(spend(e.contained[0].part->at, counts.size() * counts.num_sets()));
    for (int64_t at = 0; at < counts.size(); ++at) {
      std::vector<ExprPtr> ways;
      for (unsigned set = 0; set < counts.num_sets(); ++set) {
        const auto next = counts.after(at, set, /*needed=*/true);
        if (!items[set] || !next || (e.most != kUnbounded && i >= e.most)) continue;
        ExprPtr behind = call(rule(i + 1, *next));
        ways.push_back(i > 0 ? sequence({comma_, items[set], std::move(behind)})
                             : sequence({items[set], std::move(behind)}));
      }
      if (i >= e.least && counts.is_enough(at)) ways.push_back(i > 0 ? blanks_ : literal(""));
      rules_[static_cast<size_t>(rule(i, at))] = choice(std::move(ways));
    }
  }
  return call(rule(0, 0));
}

// The values that all schemas allow, where they are few: listed ones, or those of
// types with few values.
StatusOr<std::optional<json::array>> JsonSchemaMaker::few_values(const Schemas& schemas) {
  json::array values;
  cut_at_ = 0;
  ASSIGN_OR_RETURN(const std::vector<Parts> ways, alternatives(schemas));
  if (cut_at_ != 0) return std::optional<json::array>();
  for (const Parts& parts : ways) {
    ASSIGN_OR_RETURN(auto some, listed_values(parts));
    if (!some) {
      ASSIGN_OR_RETURN(some, values_of_types(parts));
    }
    if (!some) return some;
    for (const json::value& value : *some) {
      RETURN_IF_ERROR(spend(schemas[0], static_cast<int64_t>(1 + values.size() / 4)));
      if (std::ranges::none_of(values, [&](const auto& v) { return same_value(v, value); }))
        values.push_back(value);
    }
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

// By position, the possible values of the element; nullopt where they are not few.
StatusOr<std::optional<JsonSchemaMaker::Distinct>> JsonSchemaMaker::distinct_values(
    const Elements& e) {
  json::array values;
  std::vector<std::vector<bool>> can_be;  // by position and value
  for (size_t i = 0; i <= e.front.size(); ++i) {
    if (e.most != kUnbounded && i >= static_cast<size_t>(e.most)) break;
    ASSIGN_OR_RETURN(const auto some, few_values(e.at(i)));
    if (!some) return std::optional<Distinct>();
    std::vector<bool>& here = can_be.emplace_back(values.size());
    for (const json::value& value : *some) {
      const auto same = [&](const auto& v) { return same_value(v, value); };
      const auto at = static_cast<size_t>(std::ranges::find_if(values, same) - values.begin());
      RETURN_IF_ERROR(spend(e.unique->at, static_cast<int64_t>(1 + at / 4)));
      if (at == values.size()) values.push_back(value);
      here.resize(values.size());
      here[at] = true;
    }
  }
  std::vector<unsigned> sets(values.size());  // by value: the "contains" that it satisfies
  for (size_t i = 0; i < values.size(); ++i)
    for (size_t j = 0; j < e.contained.size(); ++j) {
      ASSIGN_OR_RETURN(const bool good, allows(e.contained[j].schema, values[i], false, 0));
      if (good) sets[i] |= 1u << j;
    }
  const size_t num_kinds = std::min(values.size(), kMostKinds);
  const size_t num_sets = size_t{1} << e.contained.size();
  Distinct items(can_be.size(),
                 std::vector<std::vector<ExprPtr>>(num_kinds, std::vector<ExprPtr>(num_sets)));
  for (size_t place = 0; place < items.size(); ++place)
    for (size_t kind = 0; kind < num_kinds; ++kind) {
      std::vector<std::vector<ExprPtr>> ways(num_sets);
      for (size_t i = kind; i < can_be[place].size(); i += num_kinds)
        if (can_be[place][i]) ways[sets[i]].push_back(value_expr(values[i]));
      for (size_t set = 0; set < num_sets; ++set)
        if (!ways[set].empty())
          items[place][kind][set] = call(add_rule(choice(std::move(ways[set]))));
    }
  return std::optional(std::move(items));
}

// Elements of many values: by disjoint kinds, each element of another kind.
StatusOr<JsonSchemaMaker::Distinct> JsonSchemaMaker::distinct_kinds(const Elements& e) {
  ASSIGN_OR_RETURN(const SchemaAt kinds,
                   made(e.unique->at, "uniqueItems", [&] { return kinds_of(e.rest, 0); }));
  Distinct items;
  for (size_t i = 0; i <= e.front.size(); ++i) {
    if (e.most != kUnbounded && i >= static_cast<size_t>(e.most)) break;
    std::vector<std::vector<ExprPtr>>& here = items.emplace_back();
    for (size_t kind = 0; kind < kMostOpenKinds; ++kind) {
      Schemas all = e.at(i);
      all.push_back(kinds[kind]);
      ASSIGN_OR_RETURN(std::vector<ExprPtr> ways, counted_items(all, e));
      here.push_back(std::move(ways));
    }
  }
  return items;
}

// Disjoint subsets of the schemas' values. Strings differ in their first character, or in the last
// one if they begin alike; numbers are in different intervals; arrays have different lengths;
// objects differ in one property.
StatusOr<json::value> JsonSchemaMaker::kinds_of(const Schemas& schemas, int depth) {
  constexpr int kMaxDepth = 3;
  constexpr std::string_view kChars[kMostOpenKinds] = {"a-cA-C", "d-fD-F", "g-lG-L", "m-oM-O",
                                                       "p-rP-R", "s-zS-Z", "0-4",    "5-9"};
  bool begins_alike = false;
  std::optional<Decimal> least, most;
  std::string property;
  Schemas of_property;
  ASSIGN_OR_RETURN(const std::vector<Parts> ways, alternatives(schemas));
  for (const Parts& parts : ways) {
    begins_alike |= parts.with("pattern") || parts.with("format");
    ASSIGN_OR_RETURN(const JsonBounds b, bounds(parts));
    if (b.least) least = b.least;
    if (b.most) most = b.most;
    for (const Part& part : parts.all) {
      const json::value* all = part.at.find("properties");
      if (!all || !all->is_object() || !of_property.empty() || depth == kMaxDepth) continue;
      for (const bool needed : {true, false})
        for (const auto& [name, schema] : all->get_object())
          if (of_property.empty() && (!needed || requires_member(part.at, name)) &&
              !is_one_value(schema)) {
            property = std::string(name);
            of_property = {part.at["properties"][std::string_view(name)]};
          }
    }
  }
  json::array inner;
  if (!of_property.empty()) {
    ASSIGN_OR_RETURN(const json::value kinds, kinds_of(of_property, depth + 1));
    inner = kinds.get_array();
  }
  const std::vector<json::object> numbers = number_kinds(least, most);
  json::array kinds;
  for (size_t kind = 0; kind < kMostOpenKinds; ++kind) {
    const bool last = kind + 1 == kMostOpenKinds;
    const std::string chars = last ? "[^0-4a-zA-Z]" : fmt::format("[{}]", kChars[kind]);
    const auto count = static_cast<int64_t>(kind);
    json::object array = {{"type", "array"}, {"minItems", count}};
    if (!last) array["maxItems"] = count;
    json::array types = {
        json::object{{"type", "string"}, {"pattern", begins_alike ? chars + "$" : "^" + chars}},
        std::move(array)};
    if (kind < numbers.size()) types.push_back(numbers[kind]);
    if (!inner.empty())
      types.push_back(json::object{{"type", "object"},
                                   {"required", json::array{json::string(property)}},
                                   {"properties", json::object{{property, inner[kind]}}}});
    else if (kind == 0)
      types.push_back(json::object{{"type", "object"}});
    if (kind == 0) types.push_back(json::object{{"type", "null"}});
    if (kind <= 1) types.push_back(json::object{{"const", kind == 1}});
    kinds.push_back(json::object{{kChoiceKey, std::move(types)}});
  }
  return json::value(std::move(kinds));
}

// A rule for each set of kinds used so far and the counts of "contains"; the number of elements
// follows from the set.
StatusOr<ExprPtr> JsonSchemaMaker::distinct_array(const Elements& e) {
  ASSIGN_OR_RETURN(std::optional<Distinct> few, distinct_values(e));
  Distinct items;
  if (few) {
    items = *std::move(few);
  } else {
    ASSIGN_OR_RETURN(items, distinct_kinds(e));
  }
  const size_t num_kinds = items.empty() ? 0 : items[0].size();
  if (static_cast<size_t>(e.least) > num_kinds) {
    if (few && num_kinds < kMostKinds) return nothing();
    return e.unique->at.error(
        fmt::format("more than {} elements are not supported here", num_kinds), "uniqueItems");
  }
  const Counts counts(e.contained);
  const auto num_rules = counts.size() << num_kinds;
  if (num_rules > kMostPlaces)
    return e.unique->at.error("beside these limits of 'contains' this is not supported",
                              "uniqueItems");
  const ExprPtr comma = call(add_rule(comma_));
  const auto first = static_cast<int32_t>(rules_.size());
  RETURN_IF_ERROR(spend(e.unique->at, 40 * num_rules * counts.num_sets()));
  const auto rule = [&](size_t kinds, int64_t at) {
    return first + static_cast<int32_t>(static_cast<int64_t>(kinds) * counts.size() + at);
  };
  rules_.resize(rules_.size() + static_cast<size_t>(num_rules));
  for (size_t kinds = 0; kinds < size_t{1} << num_kinds; ++kinds)
    for (int64_t at = 0; at < counts.size(); ++at) {
      const auto count = static_cast<size_t>(std::popcount(kinds));
      std::vector<ExprPtr> next;
      for (size_t kind = 0; kind < num_kinds; ++kind) {
        if (kinds >> kind & 1) continue;
        if (e.most != kUnbounded && count >= static_cast<size_t>(e.most)) continue;
        const auto& ways = items[std::min(count, items.size() - 1)][kind];
        for (unsigned set = 0; set < counts.num_sets(); ++set) {
          const auto then = counts.after(at, set, /*needed=*/!few);
          if (ways[set] && then)
            next.push_back(sequence({ways[set], call(rule(kinds | size_t{1} << kind, *then))}));
        }
      }
      std::vector<ExprPtr> ways;
      if (!next.empty()) ways.push_back(choice(std::move(next)));
      if (!ways.empty() && count > 0) ways[0] = sequence({comma, ways[0]});
      if (count >= static_cast<size_t>(e.least) && counts.is_enough(at))
        ways.push_back(count > 0 ? blanks_ : literal(""));
      rules_[static_cast<size_t>(rule(kinds, at))] = choice(std::move(ways));
    }
  return call(first);
}

}  // namespace nereid::text
