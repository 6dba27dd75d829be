// See infer_fields.h. Numbers of fields are those of proto/infer.proto.
#include "front/grpc/infer_fields.h"

#include <cstdint>
#include <utility>

#include "front/bridge/inference_call.h"

namespace nereid::front {
namespace {

enum RequestField : uint64_t { kParameters = 4, kInputs = 5, kOutputs = 6, kRaw = 7 };
enum TensorField : uint64_t { kShape = 3, kContents = 5 };
constexpr uint64_t kBytesContents = 8;
constexpr uint64_t kHasLength = 2;  // a wire type: bytes, text, messages, packed numbers

struct Field {
  uint64_t number = 0;
  uint64_t wire_type = 0;
  std::string_view value;  // when it has a length
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

// Takes a field from the front of `in`.
bool read_field(std::string_view& in, Field& field) {
  uint64_t tag = 0, number = 0;
  if (!read_varint(in, tag)) return false;
  field = {tag >> 3, tag & 7, {}};
  switch (field.wire_type) {
    case 0:
      return read_varint(in, number);
    case 1:
    case 5: {
      const size_t size = field.wire_type == 1 ? 8 : 4;
      if (in.size() < size) return false;
      in.remove_prefix(size);
      return true;
    }
    case kHasLength:
      if (!read_varint(in, number) || number > in.size()) return false;
      field.value = in.substr(0, number);
      in.remove_prefix(number);
      return true;
    default:
      return false;
  }
}

// Bytes of a parsed number, also as an element of a tensor: a byte of a message can be eight of it.
constexpr size_t kNumberBytes = 16;
// Bytes of a parsed message, text or entry of a map, with its place in a list.
constexpr size_t kObjectBytes = 128;

size_t contents_bytes(std::string_view contents) {
  size_t total = 0;
  for (Field f; !contents.empty() && read_field(contents, f);) {
    if (f.wire_type != kHasLength) {
      total += kNumberBytes;
    } else if (f.number == kBytesContents) {
      total += kObjectBytes / 2 + 2 * f.value.size();
    } else {
      total += kObjectBytes + kNumberBytes * f.value.size();
    }
  }
  return total;
}

size_t tensor_bytes(std::string_view tensor) {
  size_t total = 0;
  for (Field f; !tensor.empty() && read_field(tensor, f);) {
    total += kObjectBytes + (f.number == kShape ? kNumberBytes : 2) * f.value.size();
    if (f.number == kContents) total += contents_bytes(f.value);
  }
  return total;
}

}  // namespace

bool split_infer_message(std::string_view message, InferFields& out) {
  std::string_view rest = message;
  size_t head_end = 0;
  bool is_split = false;
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
    if (!is_split && begin == head_end) {
      head_end = end;
    } else {
      if (!std::exchange(is_split, true)) out.storage.assign(message.substr(0, head_end));
      out.storage.append(message.substr(begin, end - begin));
    }
  }
  out.head = is_split ? std::string_view(out.storage) : message.substr(0, head_end);
  return true;
}

size_t parsed_bytes(std::string_view message) {
  size_t total = 0;
  for (Field f; !message.empty() && read_field(message, f);) {
    if (f.number == kRaw) continue;
    total += kObjectBytes + 2 * f.value.size();
    if (f.number == kInputs || f.number == kOutputs) total += tensor_bytes(f.value);
  }
  return total;
}

}  // namespace nereid::front
