// Any text up to words that end it.
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
  int32_t rule = -1;  // what comes behind it; -1: the word must not stand anywhere
};

// Makes rule `root` of `rules`, which is there: characters up to the end of the first of `words`
// that stands among them, and that word's rule; where `may_end`, also characters without any of
// the words. Adds rules. InvalidArgument: a word is in another one, or there is no work left.
Status make_free_text(int32_t root, const std::vector<EndWord>& words, bool may_end, Rules& rules,
                      WorkLimit& work);

}  // namespace nereid::text
