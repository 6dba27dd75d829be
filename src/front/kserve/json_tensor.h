// Tensor elements <-> JSON, for infer and generate.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "front/bridge/tensor.h"

namespace nereid::front {

// Appends the elements of nested arrays (or one scalar), depth first, as `type`; `count` grows by
// their number. InvalidArgument: wrong JSON type, out of range, or a type that JSON cannot carry.
Status append_json_elements(std::string_view input, DataType type, const json::value& value,
                            std::string& bytes, int64_t& count);

// Appends the elements of a tensor, separated by commas; their number. InvalidArgument for types
// that JSON cannot carry.
StatusOr<size_t> append_tensor(std::string& out, const Tensor& tensor);

// Appends a parameter's value as JSON.
void append_parameter(std::string& out, const ParameterValue& value);

// The parameter in a JSON value: string, bool, integer (double above int64), double.
// InvalidArgument for other types.
StatusOr<Parameter> parse_parameter(std::string_view key, const json::value& value);

}  // namespace nereid::front
