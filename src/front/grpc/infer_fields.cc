// Field numbers are those of proto/infer.proto; see infer_fields.h.
#include "front/grpc/infer_fields.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "front/bridge/inference_call.h"

namespace nereid::front {
namespace {

enum RequestField : uint64_t { kParameters = 4, kInputs = 5, kOutputs = 6, kRaw = 7 };
constexpr uint64_t kContents = 5;  // field of an input
enum WireType : uint64_t { kVarint, kEightBytes, kHasLength, kFourBytes = 5 };

struct Field {
  uint64_t number = 0;
  uint64_t wire_type = 0;
  uint64_t bits = 0;       // of a numeric field
  std::string_view value;  // of a length-delimited field
};

bool read_varint(std::string_view& in, uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64 && !in.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(in.front());
    in.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) return true;
  }
  return false;
}

bool read_fixed(std::string_view& in, size_t size, uint64_t& value) {
  value = 0;
  if (in.size() < size) return false;
  std::memcpy(&value, in.data(), size);  // little-endian, as in a tensor
  in.remove_prefix(size);
  return true;
}

bool read_number(std::string_view& in, uint64_t wire_type, uint64_t& value) {
  if (wire_type == kVarint) return read_varint(in, value);
  return read_fixed(in, wire_type == kEightBytes ? 8 : 4, value);
}

// Reads a field from the front of `in`.
bool read_field(std::string_view& in, Field& field) {
  uint64_t tag = 0, length = 0;
  if (!read_varint(in, tag) || tag > std::numeric_limits<uint32_t>::max()) return false;
  field = {tag >> 3, tag & 7, 0, {}};
  if (field.number == 0) return false;
  switch (field.wire_type) {
    case kVarint:
    case kEightBytes:
    case kFourBytes:
      return read_number(in, field.wire_type, field.bits);
    case kHasLength:
      if (!read_varint(in, length) || length > in.size()) return false;
      field.value = in.substr(0, length);
      in.remove_prefix(length);
      return true;
    default:
      return false;
  }
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

// The wire type of the list's numbers; texts are length-delimited.
uint64_t wire_type_of(ContentsList list) {
  if (list == ContentsList::kFp32) return kFourBytes;
  return list == ContentsList::kFp64 ? kEightBytes : kVarint;
}

// Calls `number(list, bits)` and `text(list, value)` for the elements of all lists in order, packed
// or not, as protobuf accepts them. False: malformed.
template <class Number, class Text>
bool visit_elements(std::string_view contents, Number number, Text text) {
  for (Field f; !contents.empty();) {
    if (!read_field(contents, f)) return false;
    if (f.number > kContentsLists.size()) continue;
    const auto list = static_cast<ContentsList>(f.number);
    if (list == ContentsList::kBytes) {
      if (f.wire_type == kHasLength) text(list, f.value);
      continue;
    }
    const uint64_t wire_type = wire_type_of(list);
    if (f.wire_type == wire_type) number(list, f.bits);
    if (f.wire_type != kHasLength) continue;
    for (uint64_t bits = 0; !f.value.empty();) {
      if (!read_number(f.value, wire_type, bits)) return false;
      number(list, bits);
    }
  }
  return true;
}

// Finds the contents, which may come in several parts between other fields. Appends the other
// fields to `rest` unless it is null.
bool scan_input(std::string_view input, InputContents& out, std::string* rest) {
  out.input = input;
  const auto count = [&](ContentsList list) { ++out.counts[static_cast<size_t>(list)]; };
  for (std::string_view left = input; !left.empty();) {
    const size_t begin = input.size() - left.size();
    Field f;
    if (!read_field(left, f)) return false;
    if (f.number != kContents || f.wire_type != kHasLength) {
      if (rest != nullptr) rest->append(input.substr(begin, input.size() - left.size() - begin));
      continue;
    }
    out.is_given = true;
    const auto count_text = [&](ContentsList list, std::string_view text) {
      count(list);
      out.text_bytes += text.size();
    };
    if (rest == nullptr &&
        !visit_elements(
            f.value, [&](ContentsList list, uint64_t) { count(list); }, count_text))
      return false;
  }
  return true;
}

// An InferInputTensor field of ModelInferRequest, serialized without its `contents`.
std::string without_contents(std::string_view input) {
  InputContents ignored;
  std::string rest, out;
  scan_input(input, ignored, &rest);
  out += static_cast<char>(kInputs << 3 | kHasLength);
  put_varint(out, rest.size());
  return out + rest;
}

// Largest bytes of an element of a tensor.
size_t element_size(ContentsList list) {
  switch (list) {
    case ContentsList::kBool:
      return 1;
    case ContentsList::kInt64:
    case ContentsList::kUint64:
    case ContentsList::kFp64:
      return 8;
    default:
      return 4;  // also the length of a text
  }
}

// Estimated bytes of a parsed message, text or map entry, with its place in a list.
constexpr size_t kObjectBytes = 128;
// Estimated bytes of a parsed dimension of a shape.
constexpr size_t kDimBytes = 16;

size_t fields_bytes(std::string_view message) {
  constexpr uint64_t kShape = 3;
  size_t total = 0;
  for (Field f; !message.empty() && read_field(message, f);) {
    if (f.number == kContents && f.wire_type == kHasLength) continue;
    total += kObjectBytes + (f.number == kShape ? kDimBytes : 2) * f.value.size();
  }
  return total;
}

size_t tensor_bytes(std::string_view input) {
  InputContents contents;
  scan_input(input, contents, nullptr);
  size_t total = contents.text_bytes;
  for (const ContentsList list : kContentsLists) total += contents.count(list) * element_size(list);
  return total;
}

// Whether an int or uint fits into `T`.
template <class T>
bool fits_in(ContentsList list, uint64_t bits, int64_t& value) {
  value = list == ContentsList::kUint ? int64_t{static_cast<uint32_t>(bits)}
                                      : int64_t{static_cast<int32_t>(bits)};
  return std::in_range<T>(value);
}

bool fits_type(TRITONSERVER_DataType type, ContentsList list, uint64_t bits, int64_t& value) {
  switch (type) {
    case TRITONSERVER_TYPE_INT8:
      return fits_in<int8_t>(list, bits, value);
    case TRITONSERVER_TYPE_INT16:
      return fits_in<int16_t>(list, bits, value);
    case TRITONSERVER_TYPE_UINT8:
      return fits_in<uint8_t>(list, bits, value);
    case TRITONSERVER_TYPE_UINT16:
      return fits_in<uint16_t>(list, bits, value);
    default:
      return true;
  }
}

}  // namespace

bool split_infer_message(std::string_view message, InferFields& out) {
  std::string_view rest = message;
  size_t head_end = 0;
  bool is_split = false;
  // The head is a view of the message until a part before it is left out.
  const auto add_to_head = [&](size_t begin, size_t end) {
    if (!is_split && begin == head_end) {
      head_end = end;
      return;
    }
    if (!std::exchange(is_split, true)) out.storage.assign(message.substr(0, head_end));
    out.storage.append(message.substr(begin, end - begin));
  };
  while (!rest.empty()) {
    const size_t begin = message.size() - rest.size();
    Field field;
    if (!read_field(rest, field)) return false;
    const size_t end = message.size() - rest.size();
    if (field.number == kRaw && field.wire_type == kHasLength) {
      if (++out.num_raw <= kMaxTensors) out.raw.push_back(field.value);
      continue;
    }
    out.num_inputs += field.number == kInputs;
    out.num_outputs += field.number == kOutputs;
    out.num_parameters += field.number == kParameters;
    if (field.number == kInputs && field.wire_type == kHasLength &&
        out.contents.size() < kMaxTensors) {
      InputContents& contents = out.contents.emplace_back();
      if (!scan_input(field.value, contents, nullptr)) return false;
      if (contents.is_given) {
        if (!std::exchange(is_split, true)) out.storage.assign(message.substr(0, head_end));
        out.storage += without_contents(field.value);
        continue;
      }
    }
    add_to_head(begin, end);
  }
  out.head = is_split ? std::string_view(out.storage) : message.substr(0, head_end);
  return true;
}

ContentsBytes contents_bytes(const InputContents& contents, ContentsList wanted,
                             TRITONSERVER_DataType type) {
  ContentsBytes out;
  const bool is_text = wanted == ContentsList::kBytes;
  const size_t size = is_text ? sizeof(uint32_t) : TRITONSERVER_DataTypeByteSize(type);
  out.bytes.resize(contents.count(wanted) * size + (is_text ? contents.text_bytes : 0));
  char* to = out.bytes.data();
  const auto add_number = [&](ContentsList list, uint64_t bits) {
    if (list != wanted || !out.fits) return;
    if (!(out.fits = fits_type(type, list, bits, out.misfit))) return;
    if (list == ContentsList::kBool) bits = bits != 0;
    std::memcpy(to, &bits, size);
    to += size;
  };
  const auto add_text = [&](ContentsList list, std::string_view text) {
    if (list != wanted) return;
    const auto length = static_cast<uint32_t>(text.size());
    std::memcpy(to, &length, size);
    to = std::copy(text.begin(), text.end(), to + size);
  };
  for (std::string_view left = contents.input; !left.empty();) {
    Field f;
    if (!read_field(left, f)) break;
    if (f.number == kContents && f.wire_type == kHasLength)
      visit_elements(f.value, add_number, add_text);
  }
  return out;
}

size_t parsed_bytes(std::string_view message) {
  size_t total = 0;
  for (Field f; !message.empty() && read_field(message, f);) {
    if (f.number == kRaw) continue;
    total += kObjectBytes;
    if (f.number == kInputs || f.number == kOutputs) {
      total += fields_bytes(f.value);
      if (f.number == kInputs) total += tensor_bytes(f.value);
    } else {
      total += 2 * f.value.size();
    }
  }
  return total;
}

}  // namespace nereid::front
