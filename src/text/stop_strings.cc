#include "text/stop_strings.h"

#include <algorithm>
#include <utility>

namespace nereid::text {

StopStrings::StopStrings(std::vector<std::string> stops) {
  for (size_t index = 0; index < stops.size(); ++index) {
    if (stops[index].empty()) continue;
    Pattern pattern;
    pattern.text = std::move(stops[index]);
    pattern.index = index;
    const std::string& text = pattern.text;
    pattern.fallback.assign(text.size(), 0);
    for (size_t i = 1, k = 0; i < text.size(); ++i) {
      while (k > 0 && text[i] != text[k]) k = pattern.fallback[k - 1];
      if (text[i] == text[k]) ++k;
      pattern.fallback[i] = k;
    }
    patterns_.push_back(std::move(pattern));
  }
}

const StopStrings::Pattern* StopStrings::advance(char byte) {
  const Pattern* found = nullptr;
  for (Pattern& p : patterns_) {
    while (p.matched > 0 && p.text[p.matched] != byte) p.matched = p.fallback[p.matched - 1];
    if (p.text[p.matched] == byte) ++p.matched;
    if (p.matched < p.text.size()) continue;
    if (found == nullptr || p.text.size() > found->text.size()) found = &p;
  }
  return found;
}

StopStrings::Out StopStrings::push(std::string_view piece, bool final) {
  if (stopped_) return {{}, true, which_};
  const size_t held = held_.size();
  held_ += piece;
  for (size_t i = 0; i < piece.size(); ++i) {
    const Pattern* found = advance(piece[i]);
    if (found == nullptr) continue;
    stopped_ = true;
    which_ = found->index;
    held_.resize(held + i + 1 - found->text.size());
    return {std::exchange(held_, {}), true, which_};
  }
  size_t keep = 0;
  for (Pattern& p : patterns_) {
    if (final) p.matched = 0;
    keep = std::max(keep, p.matched);
  }
  Out out;
  out.text = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return out;
}

}  // namespace nereid::text
