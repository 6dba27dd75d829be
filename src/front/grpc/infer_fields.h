// Fields of a ModelInferRequest, found where they lie, before protobuf makes objects of them.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace nereid::front {

// A message in two parts: the tensor data, and the rest for protobuf.
struct InferFields {
  std::string_view head;  // the rest; in `storage` unless the data comes last
  std::string storage;
  std::vector<std::string_view> raw;  // raw_input_contents; at most kMaxTensors of them
  size_t num_raw = 0, num_inputs = 0, num_outputs = 0, num_parameters = 0;
};

// False when the bytes are no protobuf message. `out` refers to `message`.
bool split_infer_message(std::string_view message, InferFields& out);

// How much memory the parsed form of the head may take, and the tensors that are made of it: two
// bytes of a message can be an object of a hundred.
size_t parsed_bytes(std::string_view message);

}  // namespace nereid::front
