#include "text/grammar/schema/json_schema.h"

#include "base/check.h"
#include "text/grammar/schema/json_schema_maker.h"

namespace nereid::text {
namespace {

constexpr size_t kMaxRules = 100'000;

}  // namespace

JsonSchemaMaker::JsonSchemaMaker(const json::value& root, WorkLimit& work, size_t most_ways)
    : root_{&root, ""}, refs_(root_), work_(work), most_ways_(most_ways) {
  rules_.push_back(nullptr);  // rule 0, the root's
  CharSet blanks(' ', ' ');
  blanks.add('\t', '\n'), blanks.add('\r', '\r');
  blanks_ = shareable(repeat(one_of(blanks), 0, kMaxJsonBlanks));
  comma_ = shareable(sequence({blanks_, literal(","), blanks_}));
  colon_ = shareable(sequence({blanks_, literal(":"), blanks_}));
  char_ = json_char();
  make_any();
}

int32_t JsonSchemaMaker::add_rule(ExprPtr expr) {
  const auto next = static_cast<int32_t>(rules_.size());
  if (expr) {
    const auto [found, is_new] = rule_with_.try_emplace(numbers_.of(expr), next);
    if (!is_new) return found->second;
  }
  rules_.push_back(std::move(expr));
  return next;
}

void JsonSchemaMaker::set_rule(int32_t index, ExprPtr expr) {
  const auto [found, is_new] = rule_with_.try_emplace(numbers_.of(expr), index);
  rules_[static_cast<size_t>(index)] = is_new ? std::move(expr) : call(found->second);
}

Status JsonSchemaMaker::spend(const SchemaAt& at, int64_t steps) {
  constexpr int64_t kExprSteps = 3;  // to number one
  steps += kExprSteps * (numbers_.num_seen() - num_numbered_);
  num_numbered_ = numbers_.num_seen();
  const Status status = work_.spend(steps);
  return status.ok() ? status : at.error(message(status));
}

ExprPtr JsonSchemaMaker::object_of(ExprPtr members) const {
  return sequence(
      {literal("{"), blanks_, optional(sequence({std::move(members), blanks_})), literal("}")});
}

void JsonSchemaMaker::make_any() {
  any_string_ = add_rule(sequence({literal("\""), repeat(char_, 0, kUnbounded), literal("\"")}));
  any_number_ = add_rule(json_number({}));
  any_integer_ = add_rule(json_integer({}));
  const int32_t any = add_rule(nullptr);
  any_ = call_of_some(any);
  const ExprPtr member = sequence({call(any_string_), colon_, any_});
  any_object_ =
      add_rule(object_of(sequence({member, repeat(sequence({comma_, member}), 0, kUnbounded)})));
  const ExprPtr elements = sequence({any_, repeat(sequence({comma_, any_}), 0, kUnbounded)});
  any_array_ = add_rule(
      sequence({literal("["), blanks_, optional(sequence({elements, blanks_})), literal("]")}));
  rules_[static_cast<size_t>(any)] =
      choice({literal("null"), literal("true"), literal("false"), call(any_string_),
              call(any_number_), call(any_array_), call(any_object_)});
}

StatusOr<Rules> JsonSchemaMaker::make() {
  ASSIGN_OR_RETURN(rules_[0], all_of({root_}));
  ASSIGN_OR_RETURN(const bool has_end, drop_endless(rules_, work_));
  if (!has_end) {
    has_more_ways_ = is_cut_;
    return root_.error(is_partial_ || is_cut_
                           ? "no value of this schema was found, and some of its alternatives "
                             "cannot be generated"
                           : "no value is of this schema");
  }
  return std::move(rules_);
}

StatusOr<ExprPtr> JsonSchemaMaker::of_parts(const Parts& parts) {
  ASSIGN_OR_RETURN(const auto listed, listed_values(parts));
  std::vector<ExprPtr> ways;
  if (listed) {
    for (const json::value& value : *listed) ways.push_back(value_expr(value));
    return choice(std::move(ways));
  }
  RETURN_IF_ERROR(spend(parts.all[0].at, 20 * static_cast<int64_t>(parts.all.size())));
  if (rules_.size() > kMaxRules)
    return parts.all[0].at.error(fmt::format("more than {} rules are needed", kMaxRules));
  const auto excepted = [&](const json::value& value) {
    return std::ranges::any_of(parts.all, [&](const Part& part) {
      const json::value* list = part.at.find(kExceptKey);
      return list && list->is_array() &&
             std::ranges::find(list->get_array(), value) != list->get_array().end();
    });
  };
  const auto add = [&](unsigned types,
                       StatusOr<ExprPtr> (JsonSchemaMaker::*make)(const Parts&)) -> Status {
    if ((parts.types & types) == 0) return ok();
    ASSIGN_OR_RETURN(ExprPtr way, (this->*make)(parts));
    if (!is_nothing(way)) ways.push_back(std::move(way));
    return ok();
  };
  if ((parts.types & kNullType) && !excepted(nullptr)) ways.push_back(literal("null"));
  for (const bool value : {true, false})
    if ((parts.types & kBooleanType) && !excepted(value))
      ways.push_back(literal(value ? "true" : "false"));
  RETURN_IF_ERROR(add(kStringType, &JsonSchemaMaker::string));
  RETURN_IF_ERROR(add(kIntegerType | kFractionTypes, &JsonSchemaMaker::number));
  RETURN_IF_ERROR(add(kArrayType, &JsonSchemaMaker::array));
  RETURN_IF_ERROR(add(kObjectType, &JsonSchemaMaker::object));
  return choice(std::move(ways));
}

StatusOr<Rules> json_schema_rules(const json::value& schema, WorkLimit& work) {
  JsonSchemaMaker maker(schema, work);
  StatusOr<Rules> rules = maker.make();
  if (!maker.has_more_ways()) return rules;
  return JsonSchemaMaker(schema, work, JsonSchemaMaker::kManyWays).make();
}

Rules json_object_rules() {
  const json::value schema = {{"type", "object"}};
  WorkLimit work;
  auto rules = json_schema_rules(schema, work);
  NEREID_CHECK(rules.ok());
  return *std::move(rules);
}

}  // namespace nereid::text
