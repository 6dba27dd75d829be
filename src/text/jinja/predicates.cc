// The tests of "is": defined, string, mapping and the rest.
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/args.h"
#include "text/jinja/filters.h"
#include "text/jinja/objects.h"
#include "text/jinja/operators.h"
#include "text/jinja/strings.h"

namespace nereid::text::jinja {

namespace {

using Test = bool (*)(Evaluator&, const Value&, const ArgReader&);

// Whether value % by == `rest`.
bool leaves(Evaluator& evaluator, const Value& value, const Value& by, int64_t rest) {
  return equals(binary(evaluator, "%", value, by), Value(rest), evaluator.budget());
}

bool is_iterable(Evaluator&, const Value& v, const ArgReader&) {
  return v.is_string() || v.is_list() || v.is_dict() || v.is_undefined() ||
         (v.is_object() && v.object().kind_of_items() != Object::Items::kNone);
}

bool is_sequence(Evaluator& e, const Value& v, const ArgReader& a) {
  return v.is_object() ? v.object().kind_of_items() == Object::Items::kIndexed
                       : is_iterable(e, v, a);
}

bool cased(Evaluator& evaluator, const Value& value, bool want_upper) {
  const Value text(evaluator.str(value));
  return call_method(evaluator, text, want_upper ? "isupper" : "islower", {}).truthy();
}

struct NamedTest {
  std::string_view name;
  size_t arguments;
  Test test;
};

constexpr Test kEqual = [](Evaluator& e, const Value& v, const ArgReader& a) {
  return equals(v, *a.get(0), e.budget());
};
constexpr Test kNotEqual = [](Evaluator& e, const Value& v, const ArgReader& a) {
  return !equals(v, *a.get(0), e.budget());
};
constexpr Test kLess = [](Evaluator& e, const Value& v, const ArgReader& a) {
  return less(v, *a.get(0), e.budget());
};
constexpr Test kGreater = [](Evaluator& e, const Value& v, const ArgReader& a) {
  return less(*a.get(0), v, e.budget());
};
constexpr Test kLessEqual = [](Evaluator& e, const Value& v, const ArgReader& a) {
  return less(v, *a.get(0), e.budget()) || equals(v, *a.get(0), e.budget());
};
constexpr Test kGreaterEqual = [](Evaluator& e, const Value& v, const ArgReader& a) {
  return less(*a.get(0), v, e.budget()) || equals(v, *a.get(0), e.budget());
};

constexpr NamedTest kTests[] = {
    {"defined", 0, [](Evaluator&, const Value& v, const ArgReader&) { return !v.is_undefined(); }},
    {"undefined", 0, [](Evaluator&, const Value& v, const ArgReader&) { return v.is_undefined(); }},
    {"none", 0, [](Evaluator&, const Value& v, const ArgReader&) { return v.is_none(); }},
    {"string", 0, [](Evaluator&, const Value& v, const ArgReader&) { return v.is_string(); }},
    {"number", 0, [](Evaluator&, const Value& v, const ArgReader&) { return v.is_number(); }},
    {"integer", 0, [](Evaluator&, const Value& v, const ArgReader&) { return v.is_whole(); }},
    {"float", 0,
     [](Evaluator&, const Value& v, const ArgReader&) { return v.is_float() && !v.is_whole(); }},
    {"boolean", 0, [](Evaluator&, const Value& v, const ArgReader&) { return v.is_bool(); }},
    {"mapping", 0, [](Evaluator&, const Value& v, const ArgReader&) { return v.is_dict(); }},
    {"sequence", 0, is_sequence},
    {"iterable", 0, is_iterable},
    {"callable", 0,
     [](Evaluator&, const Value& v, const ArgReader&) {
       return v.is_object() && v.object().callable();
     }},
    {"true", 0,
     [](Evaluator&, const Value& v, const ArgReader&) { return v.is_bool() && v.truthy(); }},
    {"false", 0,
     [](Evaluator&, const Value& v, const ArgReader&) { return v.is_bool() && !v.truthy(); }},
    {"even", 0,
     [](Evaluator& e, const Value& v, const ArgReader&) { return leaves(e, v, int64_t{2}, 0); }},
    {"odd", 0,
     [](Evaluator& e, const Value& v, const ArgReader&) { return leaves(e, v, int64_t{2}, 1); }},
    {"divisibleby", 1,
     [](Evaluator& e, const Value& v, const ArgReader& a) { return leaves(e, v, *a.get(0), 0); }},
    {"upper", 0, [](Evaluator& e, const Value& v, const ArgReader&) { return cased(e, v, true); }},
    {"lower", 0, [](Evaluator& e, const Value& v, const ArgReader&) { return cased(e, v, false); }},
    {"in", 1,
     [](Evaluator& e, const Value& v, const ArgReader& a) { return e.contains(*a.get(0), v); }},
    {"sameas", 1,
     [](Evaluator& e, const Value& v, const ArgReader& a) {
       return v.type_name() == a.get(0)->type_name() && equals(v, *a.get(0), e.budget());
     }},
    {"escaped", 0, [](Evaluator&, const Value&, const ArgReader&) { return false; }},
    {"eq", 1, kEqual},
    {"equalto", 1, kEqual},
    {"==", 1, kEqual},
    {"ne", 1, kNotEqual},
    {"!=", 1, kNotEqual},
    {"lt", 1, kLess},
    {"lessthan", 1, kLess},
    {"<", 1, kLess},
    {"gt", 1, kGreater},
    {"greaterthan", 1, kGreater},
    {">", 1, kGreater},
    {"le", 1, kLessEqual},
    {"<=", 1, kLessEqual},
    {"ge", 1, kGreaterEqual},
    {">=", 1, kGreaterEqual},
};

}  // namespace

bool Evaluator::apply_test(std::string_view name, const Value& subject, const Args& args) {
  budget_.work();
  for (const NamedTest& entry : kTests) {
    if (entry.name != name) continue;
    const ArgReader reader = entry.arguments == 0
                                 ? ArgReader(*this, args, name, {})
                                 : ArgReader(*this, args, name, {"other"}, entry.arguments);
    return entry.test(*this, subject, reader);
  }
  if (name == "filter") {
    return subject.is_string() && has_filter(subject.string());
  }
  if (name == "test") {
    return subject.is_string() &&
           (subject.string() == "filter" || subject.string() == "test" ||
            std::any_of(std::begin(kTests), std::end(kTests),
                        [&](const NamedTest& entry) { return entry.name == subject.string(); }));
  }
  throw Error{fmt::format("no test named '{}'", name)};
}

}  // namespace nereid::text::jinja
