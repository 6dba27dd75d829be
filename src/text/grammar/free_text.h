// Free text up to one of several end words.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "text/grammar/expr.h"
#include "text/grammar/work_limit.h"

namespace nereid::text {

struct EndWord {
  std::string text;   // UTF-8, not empty
  int32_t rule = -1;  // rule behind the word; -1: the word must not occur
};

// Defines rule `root`, which exists: characters up to the first occurrence of one of `words`, then
// that word's rule; if `may_end`, also characters without any of the words. Adds rules.
// InvalidArgument: a word contains another one, or the work limit is reached.
Status make_free_text(int32_t root, const std::vector<EndWord>& words, bool may_end, Rules& rules,
                      WorkLimit& work);

}  // namespace nereid::text
