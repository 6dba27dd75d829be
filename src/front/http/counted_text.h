// The text of a reply while it is made.
#pragma once

#include <memory>
#include <string>

#include "front/http/budget_memory.h"

namespace nereid::front {

// Counts in the budget until this goes: by then the exchange that sends the text counts it.
class CountedText {
 public:
  explicit CountedText(const std::shared_ptr<ByteBudget>& budget) : share_(budget) {}

  // Before `more` bytes are taken beside the text, up to the next call. Throws BudgetIsFull.
  void expect(size_t more) { check(share_.reserve(text.capacity() + more)); }
  // After a part was appended. Throws BudgetIsFull.
  void count() { check(share_.reserve(text.capacity())); }

  std::string text;

 private:
  static void check(const Status& status) {
    if (!status.ok()) throw BudgetIsFull(status);
  }

  BudgetShare share_;
};

}  // namespace nereid::front
