// Streaming search for stop strings in generated text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace nereid::text {

// The occurrence that is complete first wins (among those the longest), so the result does not
// depend on the division of the text into pieces. Empty stop strings never match. One object per
// output sequence; not thread safe.
class StopStrings {
 public:
  struct Out {
    std::string text;      // text that may be sent; ends where the match starts
    bool stopped = false;  // a stop string was found, now or in an earlier call
    size_t which = 0;      // its index in the list given to the constructor; valid when stopped
  };

  StopStrings() = default;
  explicit StopStrings(std::vector<std::string> stops);

  // Takes the next piece. Holds back only the longest suffix that a stop string could start with;
  // `final` releases it. After a match all further text is dropped.
  Out push(std::string_view piece, bool final);

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t> fallback;  // Knuth-Morris-Pratt failure function, per matched length
    size_t matched = 0;            // bytes of `text` that the input so far ends with
    size_t index = 0;              // position in the caller's list
  };

  // Consumes one byte; returns the completed pattern or null.
  const Pattern* advance(char byte);

  std::vector<Pattern> patterns_;
  std::string held_;
  bool stopped_ = false;
  size_t which_ = 0;
};

}  // namespace nereid::text
