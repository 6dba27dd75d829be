// The text of a reply under construction.
#pragma once

#include <memory>
#include <string>

#include "front/protection/budget_memory.h"

namespace nereid::front {

// Counted in the budget until the destructor: by then the exchange that sends the text counts it.
class CountedText {
 public:
  explicit CountedText(const std::shared_ptr<ByteBudget>& budget) : share_(budget) {}

  // Counts `more` bytes to be allocated beside the text, until the next call. Throws BudgetIsFull.
  void expect(size_t more) { check(share_.reserve(text.capacity() + more)); }
  // To be called after an append. Throws BudgetIsFull.
  void count() { check(share_.reserve(text.capacity())); }

  std::string text;

 private:
  static void check(const Status& status) {
    if (!status.ok()) throw BudgetIsFull(status);
  }

  BudgetShare share_;
};

}  // namespace nereid::front
