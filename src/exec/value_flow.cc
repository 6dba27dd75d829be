#include "exec/value_flow.h"

#include <algorithm>
#include <variant>

namespace nereid::exec {
namespace {

// Calls f(id) for the values that a call reads or writes.
template <kernels::Role kRole, class F>
void for_values(const io::Op& op, F f) {
  std::visit(
      [&](const auto& call) {
        kernels::for_fields(call, [&](const auto& field, const auto& operand) {
          if constexpr (std::remove_cvref_t<decltype(field)>::kRole == kRole)
            if (kernels::is_given(operand)) f(operand.index);
        });
      },
      op);
}

// Byte range of a value in each row of its arena.
struct Span {
  io::RowCount extent;
  int64_t offset, stride, begin, end;

  explicit Span(const io::Value& v)
      : extent(v.extent),
        offset(v.offset),
        stride(v.stride * static_cast<int64_t>(size_of(v.dtype))),
        begin(v.column * static_cast<int64_t>(size_of(v.dtype))),
        end((v.column + v.cols) * static_cast<int64_t>(size_of(v.dtype))) {}

  bool has_rows_of(const Span& o) const {
    return extent == o.extent && offset == o.offset && stride == o.stride;
  }
  bool overlaps(const Span& o) const {
    if (has_rows_of(o)) return begin < o.end && o.begin < end;
    return extent == o.extent && offset < o.offset + o.stride && o.offset < offset + stride;
  }
  bool covers(const Span& o) const { return has_rows_of(o) && begin <= o.begin && o.end <= end; }
};

}  // namespace

ValueFlow::ValueFlow(const io::Plan& plan) : num_writes_(plan.values.size()) {
  for (size_t i = 0; i < plan.calls.size(); ++i) {
    writes_.emplace_back();
    sources_.emplace_back();
    for_values<kernels::Role::kIn>(plan.calls[i].op,
                                   [&](io::ValueId id) { add_read(plan, i, id); });
    for_values<kernels::Role::kOut>(plan.calls[i].op, [&](io::ValueId id) {
      writes_.back().push_back({id, {}});
      ++num_writes_[static_cast<size_t>(id)];
    });
  }
  sources_.emplace_back();
  if (plan.logits != io::kNone) add_read(plan, plan.calls.size(), plan.logits);
  for (const io::ValueId id : plan.hidden) add_read(plan, plan.calls.size(), id);
}

void ValueFlow::add_read(const io::Plan& plan, size_t call, io::ValueId id) {
  const Span read(plan.values[static_cast<size_t>(id)]);
  Source source{id, io::kNone};
  int num_sources = 0;
  for (size_t i = std::min(call, plan.calls.size()); i-- > 0;) {
    bool covered = false;
    for (Written& written : writes_[i]) {
      const Span write(plan.values[static_cast<size_t>(written.id)]);
      if (!write.overlaps(read)) continue;
      written.reads.push_back({call, id});
      covered |= write.covers(read);
      source.writer = written.id == id ? static_cast<int32_t>(i) : io::kNone;
      ++num_sources;
    }
    if (covered) break;
  }
  if (num_sources != 1) source.writer = io::kNone;
  sources_[call].push_back(source);
}

const std::vector<ValueFlow::Read>& ValueFlow::reads_of(size_t call, io::ValueId id) const {
  static const std::vector<Read> none;
  for (const Written& written : writes_[call])
    if (written.id == id) return written.reads;
  return none;
}

int32_t ValueFlow::writer_of(size_t call, io::ValueId id) const {
  for (const Source& source : sources_[call])
    if (source.id == id) return source.writer;
  return io::kNone;
}

}  // namespace nereid::exec
