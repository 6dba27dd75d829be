// Memory of parsed JSON, counted in the budget of memory held for clients.
#pragma once

#include <boost/json/memory_resource.hpp>
#include <boost/json/storage_ptr.hpp>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "front/protection/byte_budget.h"

namespace nereid::front {

// The exception for a full budget.
class BudgetIsFull : public std::bad_alloc {
 public:
  explicit BudgetIsFull(const Status& why) : text_(message(why)) {}
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  const std::string text_;
};

// The error text for a client: its request may succeed later, so this is a 503.
inline std::string shortage(const std::bad_alloc& e) {
  const bool is_budget = dynamic_cast<const BudgetIsFull*>(&e) != nullptr;
  return is_budget ? e.what() : "the server has no memory left for this request";
}

// Memory of one JSON document, used by one thread at a time.
class BudgetMemory : public boost::json::memory_resource {
 public:
  explicit BudgetMemory(std::shared_ptr<ByteBudget> budget)
      : budget_(std::move(budget)), share_(budget_) {}

  // A share of the same budget, for values made of the document; an empty one for other memory.
  static BudgetShare share_beside(const boost::json::storage_ptr& memory) {
    const auto* counted = dynamic_cast<const BudgetMemory*>(memory.get());
    return BudgetShare(counted == nullptr ? nullptr : counted->budget_);
  }

 private:
  // The alignment is ignored: a tree needs only the usual one, and names another one
  // when it frees keys.
  void* do_allocate(size_t bytes, size_t) override {
    count(bytes_ + bytes);
    if (!share_.is_large() || !budget_->is_full()) return ::operator new(bytes);
    count(bytes_ - bytes);
    throw BudgetIsFull(budget_->refusal());
  }
  void do_deallocate(void* block, size_t bytes, size_t) override {
    ::operator delete(block);
    count(bytes_ - bytes);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  void count(size_t bytes) { share_.set(bytes_ = bytes); }

  const std::shared_ptr<ByteBudget> budget_;
  BudgetShare share_;
  size_t bytes_ = 0;
};

// Memory for the tree of a body of that many bytes. Small bodies are not counted; a tree can be
// twenty times as large as its text.
inline boost::json::storage_ptr memory_for_json(const std::shared_ptr<ByteBudget>& budget,
                                                size_t body_bytes) {
  constexpr size_t kSmall = 4096;
  if (budget == nullptr || body_bytes <= kSmall) return {};
  return boost::json::make_shared_resource<BudgetMemory>(budget);
}

}  // namespace nereid::front
