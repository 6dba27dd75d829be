// Rows of prompt tables: the message of a step takes those that its tokens stand for.
#pragma once

#include <cstdint>

#include "runtime/step_module.h"

namespace nereid::runtime {

class PromptEmbeddings : public StepModule {
 public:
  // `width`: numbers of an embedding.
  PromptEmbeddings(int32_t vocab_size, int32_t width) : vocab_size_(vocab_size), width_(width) {}

  void write(const sched::ScheduledRow& row, const RowMessage& to) override;

 private:
  const TokenId vocab_size_;
  const int32_t width_;
};

}  // namespace nereid::runtime
