// Format: magic, counts and lengths as uint64 in host byte order; texts after their length.
#include "server/cache/cached_response.h"

#include <cstring>

namespace nereid::server {
namespace {

constexpr uint64_t kMagic = 0x31534552444e5243;  // differs in the other byte order

class Writer {
 public:
  void number(uint64_t value) { out.append(reinterpret_cast<const char*>(&value), sizeof value); }
  void text(std::string_view value) {
    number(value.size());
    out.append(value);
  }
  std::string out;
};

// A reader that returns zeros and empty texts after the end; `good` is then false.
class Reader {
 public:
  explicit Reader(std::string_view text) : rest_(text) {}
  uint64_t number() {
    uint64_t value = 0;
    if (rest_.size() < sizeof value) {
      fail();
      return 0;
    }
    std::memcpy(&value, rest_.data(), sizeof value);
    rest_.remove_prefix(sizeof value);
    return value;
  }
  // Reads a count, bounded by the bytes left: every item takes at least one number.
  uint64_t count() {
    const uint64_t value = number();
    if (value <= rest_.size() / sizeof(uint64_t)) return value;
    fail();
    return 0;
  }
  std::string_view text() {
    const uint64_t size = number();
    if (size > rest_.size()) {
      fail();
      return {};
    }
    const std::string_view out = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return out;
  }
  bool good() const { return good_; }
  bool at_end() const { return rest_.empty(); }

 private:
  void fail() {
    good_ = false;
    rest_ = {};
  }
  std::string_view rest_;
  bool good_ = true;
};

TRITONSERVER_Parameter read_parameter(Reader& in) {
  TRITONSERVER_Parameter p;
  p.name = in.text();
  switch (in.number()) {
    case TRITONSERVER_PARAMETER_STRING:
      p.value = std::string(in.text());
      break;
    case TRITONSERVER_PARAMETER_INT:
      p.value = static_cast<int64_t>(in.number());
      break;
    case TRITONSERVER_PARAMETER_BOOL:
      p.value = in.number() != 0;
      break;
    default: {
      const uint64_t bits = in.number();
      double value = 0;
      std::memcpy(&value, &bits, sizeof value);
      p.value = value;
    }
  }
  return p;
}

}  // namespace

std::optional<std::string> serialize(const InferenceResponse& response) {
  Writer w;
  w.number(kMagic);
  w.number(response.outputs.size());
  for (const OutputTensor& t : response.outputs) {
    if (t.memory_type == TRITONSERVER_MEMORY_GPU) return std::nullopt;
    w.text(t.name);
    w.number(t.datatype);
    w.number(t.shape.size());
    for (int64_t d : t.shape) w.number(static_cast<uint64_t>(d));
    w.text(t.buffer == nullptr ? std::string_view()
                               : std::string_view(static_cast<const char*>(t.buffer), t.byte_size));
  }
  w.number(response.parameters.size());
  for (const TRITONSERVER_Parameter& p : response.parameters) {
    if (p.type() == TRITONSERVER_PARAMETER_BYTES) return std::nullopt;
    w.text(p.name);
    w.number(p.type());
    if (const auto* text = std::get_if<std::string>(&p.value)) {
      w.text(*text);
    } else if (const auto* number = std::get_if<int64_t>(&p.value)) {
      w.number(static_cast<uint64_t>(*number));
    } else if (const auto* flag = std::get_if<bool>(&p.value)) {
      w.number(*flag ? 1 : 0);
    } else {
      uint64_t bits = 0;
      std::memcpy(&bits, &std::get<double>(p.value), sizeof bits);
      w.number(bits);
    }
  }
  return std::move(w.out);
}

StatusOr<CachedResponse> parse_cached_response(std::string_view text) {
  Reader in(text);
  CachedResponse out;
  if (in.number() != kMagic) return internal_error("cached response: not one of this server's");
  for (uint64_t n = in.count(); n > 0 && in.good(); --n) {
    CachedOutput& t = out.outputs.emplace_back();
    t.name = in.text();
    t.datatype = static_cast<TRITONSERVER_DataType>(in.number());
    for (uint64_t d = in.count(); d > 0 && in.good(); --d) {
      t.shape.push_back(static_cast<int64_t>(in.number()));
    }
    t.bytes = in.text();
  }
  for (uint64_t n = in.count(); n > 0 && in.good(); --n) {
    out.parameters.push_back(read_parameter(in));
  }
  if (!in.good() || !in.at_end()) return internal_error("cached response: broken");
  return out;
}

}  // namespace nereid::server
