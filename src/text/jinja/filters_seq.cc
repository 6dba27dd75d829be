// Filters on sequences and mappings.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "text/jinja/args.h"
#include "text/jinja/filters.h"
#include "text/jinja/objects.h"
#include "text/jinja/operators.h"
#include "text/jinja/strings.h"
#include "text/unicode/python.h"

namespace nereid::text::jinja {

namespace {

std::vector<Value> items_of(Evaluator& e, const Value& v) {
  const ListPtr list = e.iterate(v);
  e.budget().memory(list->items.size() * sizeof(Value));
  return list->items;
}

// The attribute path "a.b.0" of a value; an integer is an index.
Value get_path(Evaluator& e, Value value, const Value& path) {
  if (path.is_integral()) return e.get_item(value, path);
  const std::string names = e.str(path);
  e.budget().work(names.size() / 8);
  for (const std::string_view part : split(names, ".", -1, false)) {
    int64_t index = 0;
    const char* end = part.data() + part.size();
    const auto [stop, error] = std::from_chars(part.data(), end, index);
    const bool is_index = error == std::errc() && stop == end && !part.empty();
    value = e.get_item(value, is_index ? Value(index) : Value(part));
  }
  return value;
}

// The key of sort, unique, min, max and groupby: the attribute, in lower
// case unless case_sensitive.
Value sort_key(Evaluator& e, const Value& item, const Value* attribute, bool case_sensitive) {
  Value key = attribute != nullptr && !attribute->is_none() ? get_path(e, item, *attribute) : item;
  if (key.is_string() && !case_sensitive) {
    e.budget().memory(key.string().size() * 2);
    e.budget().classify(key.string().size());
    key = Value(python::lower(key.string()));
  }
  return key;
}

void sort_items(Evaluator& e, std::vector<Value>& items, const Value* attribute,
                bool case_sensitive, bool reverse) {
  std::vector<std::pair<Value, Value>> keyed;
  e.budget().memory(items.size() * 2 * sizeof(Value));
  for (Value& item : items) {
    Value key = sort_key(e, item, attribute, case_sensitive);
    keyed.emplace_back(std::move(key), std::move(item));
  }
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? less(b.first, a.first, e.budget()) : less(a.first, b.first, e.budget());
  });
  for (size_t i = 0; i < keyed.size(); ++i) items[i] = std::move(keyed[i].second);
}

Value f_length(Evaluator& e, const Value& v, const Args&) {
  return static_cast<int64_t>(e.length(v));
}
Value f_list(Evaluator& e, const Value& v, const Args&) { return Value::list(items_of(e, v)); }

Value f_first(Evaluator& e, const Value& v, const Args&) {
  const ListPtr items = e.iterate(v);
  return items->items.empty() ? Value::undefined("no first item, sequence was empty")
                              : items->items.front();
}
Value f_last(Evaluator& e, const Value& v, const Args&) {
  if (v.is_object() && v.object().kind_of_items() == Object::Items::kOnce) {
    throw Error{fmt::format("'{}' object is not reversible", v.type_name())};
  }
  const ListPtr items = e.iterate(v);
  return items->items.empty() ? Value::undefined("no last item, sequence was empty")
                              : items->items.back();
}

Value f_reverse(Evaluator& e, const Value& v, const Args&) {
  std::vector<Value> items = items_of(e, v);
  std::reverse(items.begin(), items.end());
  if (!v.is_string()) return generator(std::move(items));
  std::string out;
  for (const Value& item : items) out += item.string();
  return out;
}

Value f_join(Evaluator& e, const Value& v, const Args& args) {
  const ArgReader reader(e, args, "join", {"d", "attribute"});
  const std::string separator = reader.text(0, "");
  std::string out;
  bool first = true;
  for (const ListPtr all = e.iterate(v); const Value& item : all->items) {
    e.budget().memory(separator.size());
    if (!std::exchange(first, false)) out += separator;
    const bool by_attribute = reader.given(1) && !reader.get(1)->is_none();
    append_str(out, by_attribute ? get_path(e, item, *reader.get(1)) : item, e.budget());
  }
  return out;
}

Value f_items(Evaluator& e, const Value& v, const Args&) {
  if (v.is_undefined()) return generator({});
  if (!v.is_dict()) throw Error{"can only get item pairs from a mapping"};
  return generator(items_of(e, call_method(e, v, "items", {})));
}

Value f_dictsort(Evaluator& e, const Value& v, const Args& args) {
  const ArgReader reader(e, args, "dictsort", {"case_sensitive", "by", "reverse"});
  if (!v.is_dict()) throw Error{"dictsort() needs a mapping"};
  const std::string by = reader.text(1, "key");
  if (by != "key" && by != "value") throw Error{"you can only sort by either \"key\" or \"value\""};
  std::vector<Value> items = items_of(e, call_method(e, v, "items", {}));
  const Value position(int64_t{by == "value"});
  sort_items(e, items, &position, reader.flag(0, false), reader.flag(2, false));
  return Value::list(std::move(items));
}

Value f_sort(Evaluator& e, const Value& v, const Args& args) {
  const ArgReader reader(e, args, "sort", {"reverse", "case_sensitive", "attribute"});
  std::vector<Value> items = items_of(e, v);
  sort_items(e, items, reader.get(2), reader.flag(1, false), reader.flag(0, false));
  return Value::list(std::move(items));
}

Value f_unique(Evaluator& e, const Value& v, const Args& args) {
  const ArgReader reader(e, args, "unique", {"case_sensitive", "attribute"});
  std::vector<Value> out, seen;
  for (const ListPtr all = e.iterate(v); const Value& item : all->items) {
    const Value key = sort_key(e, item, reader.get(1), reader.flag(0, false));
    const bool known = std::any_of(seen.begin(), seen.end(), [&](const Value& other) {
      return equals(other, key, e.budget());
    });
    if (known) continue;
    e.budget().memory(2 * sizeof(Value));
    seen.push_back(key);
    out.push_back(item);
  }
  return generator(std::move(out));
}

Value extreme(Evaluator& e, const Value& v, const Args& args, bool want_max) {
  const ArgReader reader(e, args, want_max ? "max" : "min", {"case_sensitive", "attribute"});
  const ListPtr items = e.iterate(v);
  if (items->items.empty()) return Value::undefined("no aggregated item, sequence was empty");
  const Value* best = nullptr;
  Value best_key;
  for (const Value& item : items->items) {
    Value key = sort_key(e, item, reader.get(1), reader.flag(0, false));
    if (best != nullptr &&
        !(want_max ? less(best_key, key, e.budget()) : less(key, best_key, e.budget()))) {
      continue;
    }
    best = &item;
    best_key = std::move(key);
  }
  return *best;
}
Value f_min(Evaluator& e, const Value& v, const Args& args) { return extreme(e, v, args, false); }
Value f_max(Evaluator& e, const Value& v, const Args& args) { return extreme(e, v, args, true); }

Value f_sum(Evaluator& e, const Value& v, const Args& args) {
  const ArgReader reader(e, args, "sum", {"attribute", "start"});
  Value total = reader.value(1, int64_t{0});
  for (const ListPtr all = e.iterate(v); const Value& item : all->items) {
    const bool by_attribute = reader.given(0) && !reader.get(0)->is_none();
    total = binary(e, "+", total, by_attribute ? get_path(e, item, *reader.get(0)) : item);
  }
  return total;
}

// The arguments from position `from` on, for a filter or test named in another filter.
Args rest_of(const Args& args, size_t from) {
  Args rest{{args.positional.begin() + static_cast<ptrdiff_t>(from), args.positional.end()},
            args.named};
  return rest;
}

Value f_map(Evaluator& e, const Value& v, const Args& args) {
  std::vector<Value> out;
  if (!v.truthy()) return generator({});  // of any type
  const ListPtr items = e.iterate(v);
  e.budget().memory(items->items.size() * sizeof(Value));
  if (args.positional.empty()) {
    const ArgReader reader(e, args, "map", {"attribute", "default"}, 1);
    for (const Value& item : items->items) {
      Value value = get_path(e, item, *reader.get(0));
      out.push_back(value.is_undefined() && reader.given(1) ? *reader.get(1) : std::move(value));
    }
    return generator(std::move(out));
  }
  const std::string name = e.str(args.positional[0]);
  const Args rest = rest_of(args, 1);
  for (const Value& item : items->items) out.push_back(e.apply_filter(name, item, rest));
  return generator(std::move(out));
}

// select, reject, selectattr and rejectattr.
Value choose(Evaluator& e, const Value& v, const Args& args, bool by_attribute, bool keep) {
  const size_t skip = by_attribute ? 1 : 0;
  if (args.positional.size() < skip) throw Error{"missing attribute name"};
  const bool has_test = args.positional.size() > skip;
  const std::string test = has_test ? e.str(args.positional[skip]) : "";
  const Args rest = has_test ? rest_of(args, skip + 1) : Args{};
  std::vector<Value> out;
  if (!v.truthy()) return generator({});
  for (const ListPtr all = e.iterate(v); const Value& item : all->items) {
    const Value value = by_attribute ? get_path(e, item, args.positional[0]) : item;
    const bool holds = has_test ? e.apply_test(test, value, rest) : value.truthy();
    if (holds != keep) continue;
    e.budget().memory(sizeof(Value));
    out.push_back(item);
  }
  return generator(std::move(out));
}
Value f_select(Evaluator& e, const Value& v, const Args& a) { return choose(e, v, a, false, true); }
Value f_reject(Evaluator& e, const Value& v, const Args& a) {
  return choose(e, v, a, false, false);
}
Value f_selectattr(Evaluator& e, const Value& v, const Args& a) {
  return choose(e, v, a, true, true);
}
Value f_rejectattr(Evaluator& e, const Value& v, const Args& a) {
  return choose(e, v, a, true, false);
}

Value f_batch(Evaluator& e, const Value& v, const Args& args) {
  const ArgReader reader(e, args, "batch", {"linecount", "fill_with"}, 1);
  const int64_t size = reader.integer(0, 1);
  if (size < 1) throw Error{"batch() linecount must be positive"};
  std::vector<Value> rows, row;
  for (Value& item : items_of(e, v)) {
    e.budget().memory(2 * sizeof(Value));
    row.push_back(std::move(item));
    if (static_cast<int64_t>(row.size()) < size) continue;
    rows.push_back(Value::list(std::exchange(row, {})));
  }
  if (!row.empty()) {
    if (reader.given(1) && !reader.get(1)->is_none()) {
      const size_t missing = static_cast<size_t>(size) - row.size();
      e.budget().memory(std::min(missing, SIZE_MAX / 64) * sizeof(Value));
      row.insert(row.end(), missing, *reader.get(1));
    }
    rows.push_back(Value::list(std::move(row)));
  }
  return generator(std::move(rows));
}

Value f_slice(Evaluator& e, const Value& v, const Args& args) {
  const ArgReader reader(e, args, "slice", {"slices", "fill_with"}, 1);
  const int64_t count = reader.integer(0, 1);
  if (count < 1 || count > 100'000) throw Error{"slice() needs 1 to 100000 slices"};
  std::vector<Value> items = items_of(e, v);
  e.budget().memory(static_cast<size_t>(count) * sizeof(Value) * 4);
  const size_t slices = static_cast<size_t>(count);
  const size_t base = items.size() / slices;
  const size_t longer = items.size() % slices;
  std::vector<Value> rows;
  auto next = items.begin();
  for (size_t i = 0; i < slices; ++i) {
    const auto end = next + static_cast<ptrdiff_t>(base + (i < longer));
    std::vector<Value> row(next, end);
    next = end;
    const bool fill = reader.given(1) && !reader.get(1)->is_none();
    if (fill && longer > 0 && i >= longer) row.push_back(*reader.get(1));
    rows.push_back(Value::list(std::move(row)));
  }
  return generator(std::move(rows));
}

Value f_groupby(Evaluator& e, const Value& v, const Args& args) {
  const ArgReader reader(e, args, "groupby", {"attribute", "default", "case_sensitive"}, 1);
  const bool case_sensitive = reader.flag(2, false);
  const auto key_of = [&](const Value& item) {
    Value key = get_path(e, item, *reader.get(0));
    return key.is_undefined() && reader.given(1) ? *reader.get(1) : key;
  };
  std::vector<Value> pairs;  // (key to compare, key to show, item)
  for (const Value& item : items_of(e, v)) {
    const Value key = key_of(item);
    e.budget().memory(8 * sizeof(Value));
    pairs.push_back(Value::tuple({sort_key(e, key, nullptr, case_sensitive), key, item}));
  }
  const Value position(int64_t{0});
  sort_items(e, pairs, &position, true, false);
  std::vector<Value> groups;
  for (size_t i = 0; i < pairs.size();) {
    const auto& head = pairs[i].items().items;
    std::vector<Value> members;
    for (; i < pairs.size() && equals(pairs[i].items().items[0], head[0], e.budget()); ++i) {
      members.push_back(pairs[i].items().items[2]);
    }
    if (members.empty()) {  // a key that does not equal itself
      members.push_back(head[2]);
      ++i;
    }
    groups.emplace_back(std::make_shared<GroupObject>(head[1], Value::list(std::move(members))));
  }
  return Value::list(std::move(groups));
}

constexpr std::pair<std::string_view, Filter> kSequenceFilters[] = {{"length", f_length},
                                                                    {"count", f_length},
                                                                    {"list", f_list},
                                                                    {"first", f_first},
                                                                    {"last", f_last},
                                                                    {"reverse", f_reverse},
                                                                    {"join", f_join},
                                                                    {"items", f_items},
                                                                    {"dictsort", f_dictsort},
                                                                    {"sort", f_sort},
                                                                    {"unique", f_unique},
                                                                    {"min", f_min},
                                                                    {"max", f_max},
                                                                    {"sum", f_sum},
                                                                    {"map", f_map},
                                                                    {"select", f_select},
                                                                    {"reject", f_reject},
                                                                    {"selectattr", f_selectattr},
                                                                    {"rejectattr", f_rejectattr},
                                                                    {"batch", f_batch},
                                                                    {"slice", f_slice},
                                                                    {"groupby", f_groupby}};

}  // namespace

Filter find_sequence_filter(std::string_view name) {
  for (const auto& [own, filter] : kSequenceFilters) {
    if (own == name) return filter;
  }
  return nullptr;
}

}  // namespace nereid::text::jinja
