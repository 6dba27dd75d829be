// Fields of a ModelInferRequest, found in the message before protobuf parses it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "triton/core/tritonserver.h"

namespace nereid::front {

// Lists of InferTensorContents, by field number.
enum class ContentsList : uint8_t { kBool = 1, kInt, kInt64, kUint, kUint64, kFp32, kFp64, kBytes };
inline constexpr std::array kContentsLists = {
    ContentsList::kBool,   ContentsList::kInt,  ContentsList::kInt64, ContentsList::kUint,
    ContentsList::kUint64, ContentsList::kFp32, ContentsList::kFp64,  ContentsList::kBytes};

// The contents of an input, kept from protobuf, which would make millions of objects of megabytes.
struct InputContents {
  std::string_view input;  // the bytes of the whole input
  bool is_given = false;
  std::array<size_t, kContentsLists.size() + 1> counts{};  // number of elements by ContentsList
  size_t text_bytes = 0;                                   // of all texts

  size_t count(ContentsList list) const { return counts[static_cast<size_t>(list)]; }
};

// A message in two parts: the tensor data, and the rest for protobuf.
struct InferFields {
  std::string_view head;  // the rest; in `storage` unless the data comes last
  std::string storage;
  std::vector<std::string_view> raw;    // raw_input_contents; at most kMaxTensors of them
  std::vector<InputContents> contents;  // one for each input; at most kMaxTensors of them
  size_t num_raw = 0, num_inputs = 0, num_outputs = 0, num_parameters = 0;
};

// False: no protobuf message. `out` refers to `message`.
bool split_infer_message(std::string_view message, InferFields& out);

// The elements of a list in the form of a tensor of that type. The first integer out of range is
// `misfit`, and conversion stops there.
struct ContentsBytes {
  std::string bytes;
  bool fits = true;
  int64_t misfit = 0;
};
ContentsBytes contents_bytes(const InputContents& contents, ContentsList list,
                             TRITONSERVER_DataType type);

// An upper bound of the memory for the parsed head and the tensors made of contents: two bytes of a
// message can become an object of a hundred, and one byte eight of a tensor.
size_t parsed_bytes(std::string_view message);

}  // namespace nereid::front
