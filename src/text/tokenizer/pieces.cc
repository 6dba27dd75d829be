#include "text/tokenizer/pieces.h"

#include <algorithm>

namespace nereid::text {

namespace {

struct Part {
  Span span;
  bool match;
};

// Matches and the gaps between them, in order.
void list_parts(const std::vector<Span>& matches, size_t size, bool invert,
                std::vector<Part>& parts) {
  parts.clear();
  size_t at = 0;
  for (const Span& m : matches) {
    if (m.begin > at) parts.push_back({{at, m.begin}, invert});
    parts.push_back({m, !invert});
    at = m.end;
  }
  if (at < size) parts.push_back({{at, size}, invert});
}

// Joins each part to the span before it when `joins(part, previous part was a match)`.
template <class Iterator, class Joins>
void join_parts(Iterator begin, Iterator end, const Joins& joins, std::vector<Span>& out) {
  const size_t first = out.size();
  bool previous_match = false;
  for (Iterator part = begin; part != end; ++part) {
    if (joins(*part, previous_match) && out.size() > first) {
      out.back() = {std::min(out.back().begin, part->span.begin),
                    std::max(out.back().end, part->span.end)};
    } else {
      out.push_back(part->span);
    }
    previous_match = part->match;
  }
}

void apply_behavior(const std::vector<Part>& parts, SplitBehavior behavior,
                    std::vector<Span>& out) {
  const auto after_gap = [](const Part& part, bool previous_match) {
    return part.match && !previous_match;
  };
  const size_t first = out.size();
  switch (behavior) {
    case SplitBehavior::kRemoved:
      for (const Part& part : parts) {
        if (!part.match) out.push_back(part.span);
      }
      break;
    case SplitBehavior::kIsolated:
      for (const Part& part : parts) out.push_back(part.span);
      break;
    case SplitBehavior::kContiguous:
      join_parts(
          parts.begin(), parts.end(),
          [](const Part& part, bool previous_match) { return part.match == previous_match; }, out);
      break;
    case SplitBehavior::kMergedWithPrevious:
      join_parts(parts.begin(), parts.end(), after_gap, out);
      break;
    case SplitBehavior::kMergedWithNext:
      join_parts(parts.rbegin(), parts.rend(), after_gap, out);
      std::reverse(out.begin() + static_cast<ptrdiff_t>(first), out.end());
      break;
  }
}

struct BehaviorRow {
  std::string_view name;
  SplitBehavior behavior;
};

constexpr BehaviorRow kBehaviors[] = {{"Removed", SplitBehavior::kRemoved},
                                      {"Isolated", SplitBehavior::kIsolated},
                                      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
                                      {"MergedWithNext", SplitBehavior::kMergedWithNext},
                                      {"Contiguous", SplitBehavior::kContiguous}};

}  // namespace

void Pieces::reset(std::string_view input, bool input_at_start, EncodeWork& work_of_text) {
  work = &work_of_text;
  text = input;
  spans.clear();
  if (!input.empty()) spans.push_back({0, input.size()});
  at_start = input_at_start;
}

StatusOr<SplitBehavior> read_split_behavior(const JsonNode& name) {
  ASSIGN_OR_RETURN(const std::string_view text, name.string());
  for (const BehaviorRow& row : kBehaviors) {
    if (row.name == text) return row.behavior;
  }
  return name.wrong("Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
}

Status split_pieces(Pieces& pieces, const FindMatches& find, SplitBehavior behavior, bool invert) {
  std::vector<Span> matches, cut, out;
  std::vector<Part> parts;
  out.reserve(pieces.spans.size());
  for (size_t i = 0; i < pieces.spans.size(); ++i) {
    const size_t offset = pieces.spans[i].begin;
    matches.clear();
    cut.clear();
    RETURN_IF_ERROR(find(pieces.piece(i), matches, *pieces.work));
    list_parts(matches, pieces.piece(i).size(), invert, parts);
    apply_behavior(parts, behavior, cut);
    if (i == 0 && (cut.empty() || cut[0].begin != 0)) pieces.at_start = false;
    for (const Span& span : cut) {
      if (span.end > span.begin) out.push_back({offset + span.begin, offset + span.end});
    }
  }
  pieces.spans = std::move(out);
  return ok();
}

void rewrite_pieces(Pieces& pieces, const RewritePiece& rewrite) {
  std::string out;
  out.reserve(pieces.text.size() + pieces.text.size() / 2);
  for (size_t i = 0; i < pieces.spans.size(); ++i) {
    const size_t begin = out.size();
    rewrite(pieces.piece(i), i == 0 && pieces.at_start, out);
    pieces.spans[i] = {begin, out.size()};
  }
  pieces.owned = std::move(out);
  pieces.text = pieces.owned;
}

}  // namespace nereid::text
