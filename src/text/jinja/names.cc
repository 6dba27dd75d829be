#include "text/jinja/names.h"

namespace nereid::text::jinja {

const Value* Names::find(std::string_view name, Budget& budget) const {
  const size_t at = position(name, budget);
  return at == HashIndex::kNone ? nullptr : &entries_[at].second;
}

size_t Names::position(std::string_view name, Budget& budget) const {
  budget.scan(name.size());
  const auto is_name = [&](size_t i) { return entries_[i].first == name; };
  if (entries_.size() > HashIndex::kFew) return index_.find(hash_of_text(name), is_name);
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (is_name(i)) return i;
  }
  return HashIndex::kNone;
}

void Names::set(std::string_view name, Value value, Budget& budget) {
  if (const size_t at = position(name, budget); at != HashIndex::kNone) {
    entries_[at].second = std::move(value);
    return;
  }
  budget.memory(sizeof(entries_[0]) + name.size());
  entries_.emplace_back(std::string(name), std::move(value));
  const size_t count = entries_.size();
  if (count <= HashIndex::kFew) return;
  budget.memory(HashIndex::kEntryBytes);
  for (size_t i = count == HashIndex::kFew + 1 ? 0 : count - 1; i < count; ++i) {
    index_.add(hash_of_text(entries_[i].first), i);
  }
}

void Names::clear() {
  entries_.clear();
  index_.clear();
}

}  // namespace nereid::text::jinja
