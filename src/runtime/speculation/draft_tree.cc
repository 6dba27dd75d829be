#include "runtime/speculation/draft_tree.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "exec/step_message.h"
#include "kernels/api/sample.h"

namespace nereid::runtime {
namespace {

using Path = std::vector<int32_t>;

std::string text_of(const Path& path) { return fmt::format("{{{}}}", fmt::join(path, ", ")); }

// Reads the paths of the text one by one.
class PathReader {
 public:
  explicit PathReader(std::string_view text) : text_(text) {}

  StatusOr<std::vector<Path>> read() {
    std::vector<Path> paths;
    while (skip_blanks(), at_ < text_.size()) {
      ASSIGN_OR_RETURN(Path path, read_path());
      paths.push_back(std::move(path));
      if (paths.size() > exec::kMaxTreeDrafts)
        return invalid_argument("more than {} nodes", exec::kMaxTreeDrafts);
      if (!take(',') && (skip_blanks(), at_ < text_.size())) return unexpected("','");
    }
    if (paths.empty()) return invalid_argument("has no nodes; expected such as {{0}}, {{0, 0}}");
    return paths;
  }

 private:
  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n')) ++at_;
  }
  bool take(char c) {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  Status unexpected(std::string_view wanted) const {
    return invalid_argument("expected {} at character {} of '{}'", wanted, at_ + 1, text_);
  }

  StatusOr<Path> read_path() {
    if (!take('{')) return unexpected("'{'");
    Path path;
    do {
      skip_blanks();
      const size_t begin = at_;
      int32_t rank = 0;
      for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_)
        rank = std::min(10 * rank + (text_[at_] - '0'), kernels::kMaxTopTokens);
      if (at_ == begin || rank >= kernels::kMaxTopTokens || path.size() >= exec::kMaxTreeDrafts)
        return unexpected(fmt::format("one of at most {} ranks from 0 to {}", exec::kMaxTreeDrafts,
                                      kernels::kMaxTopTokens - 1));
      path.push_back(rank);
    } while (take(','));
    if (!take('}')) return unexpected("'}'");
    return path;
  }

  const std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

DraftTree DraftTree::chain(int32_t length) {
  DraftTree tree;
  for (int32_t i = 0; i < length; ++i) tree.nodes.push_back({.parent = i - 1, .depth = i + 1});
  return tree;
}

bool DraftTree::is_chain() const {
  for (size_t i = 0; i < nodes.size(); ++i)
    if (nodes[i].parent != static_cast<int32_t>(i) - 1 || nodes[i].rank != 0) return false;
  return true;
}

int32_t DraftTree::depth() const {
  int32_t depth = 0;
  for (const Node& node : nodes) depth = std::max(depth, node.depth);
  return depth;
}

StatusOr<DraftTree> parse_draft_tree(std::string_view text) {
  ASSIGN_OR_RETURN(const std::vector<Path> paths, PathReader(text).read());
  std::map<Path, int32_t> places;  // -1: not in the tree yet
  for (const Path& path : paths)
    if (!places.emplace(path, -1).second)
      return invalid_argument("{} appears twice", text_of(path));
  DraftTree tree;
  for (const Path& path : paths) {
    int32_t parent = -1;
    for (size_t depth = 1; depth <= path.size(); ++depth) {
      const auto found = places.find(Path(path.begin(), path.begin() + static_cast<int>(depth)));
      if (found == places.end())
        return invalid_argument(
            "{} has no parent {}", text_of(path),
            text_of(Path(path.begin(), path.begin() + static_cast<int>(depth))));
      if (found->second < 0) {
        found->second = static_cast<int32_t>(tree.nodes.size());
        tree.nodes.push_back(
            {.parent = parent, .depth = static_cast<int32_t>(depth), .rank = path[depth - 1]});
      }
      parent = found->second;
    }
  }
  return tree;
}

}  // namespace nereid::runtime
