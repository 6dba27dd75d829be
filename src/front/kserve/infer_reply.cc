// Inference replies -> infer response bodies; see infer_message.h.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "front/http/json_text.h"
#include "front/kserve/infer_message.h"
#include "front/kserve/json_tensor.h"

namespace nereid::front {
namespace {

// One number of a tensor, for sorting and for printing.
struct Score {
  double value;
  std::string text;
};

template <class T>
Score score_at(const char* data, size_t i) {
  T value;
  std::memcpy(&value, data + i * sizeof(T), sizeof(T));
  if constexpr (std::is_floating_point_v<T>) {
    return {static_cast<double>(value), fmt::format("{:f}", value)};
  } else {
    return {static_cast<double>(value), std::to_string(value)};
  }
}

StatusOr<Score> read_score(const Tensor& t, size_t i) {
  const char* data = t.bytes.data();
  switch (t.type) {
    case TRITONSERVER_TYPE_UINT8:
      return score_at<uint8_t>(data, i);
    case TRITONSERVER_TYPE_UINT16:
      return score_at<uint16_t>(data, i);
    case TRITONSERVER_TYPE_UINT32:
      return score_at<uint32_t>(data, i);
    case TRITONSERVER_TYPE_UINT64:
      return score_at<uint64_t>(data, i);
    case TRITONSERVER_TYPE_INT8:
      return score_at<int8_t>(data, i);
    case TRITONSERVER_TYPE_INT16:
      return score_at<int16_t>(data, i);
    case TRITONSERVER_TYPE_INT32:
      return score_at<int32_t>(data, i);
    case TRITONSERVER_TYPE_INT64:
      return score_at<int64_t>(data, i);
    case TRITONSERVER_TYPE_FP32:
      return score_at<float>(data, i);
    case TRITONSERVER_TYPE_FP64:
      return score_at<double>(data, i);
    default:
      return invalid_argument(
          "class result not available for output '{}' due to unsupported type "
          "'{}'",
          t.name, TRITONSERVER_DataTypeString(t.type));
  }
}

// "<score>:<index>[:<label>]" of the `num` best classes of each row.
StatusOr<Tensor> classify(const Tensor& t, uint64_t num, bool batched) {
  const size_t element = TRITONSERVER_DataTypeByteSize(t.type);
  const size_t total = element == 0 ? 0 : t.bytes.size() / element;
  const size_t rows = batched && !t.shape.empty() ? static_cast<size_t>(t.shape[0]) : 1;
  const size_t classes = rows == 0 ? 0 : total / rows;
  const size_t kept = std::min<uint64_t>(num, classes);
  Tensor out{t.name, TRITONSERVER_TYPE_BYTES, {}, {}};
  if (batched) out.shape.push_back(static_cast<int64_t>(rows));
  out.shape.push_back(static_cast<int64_t>(kept));
  if (element == 0) RETURN_IF_ERROR(read_score(t, 0).status());
  for (size_t row = 0; row < rows; ++row) {
    std::vector<Score> scores;
    for (size_t i = 0; i < classes; ++i) {
      ASSIGN_OR_RETURN(Score score, read_score(t, row * classes + i));
      scores.push_back(std::move(score));
    }
    std::vector<size_t> order(classes);
    std::iota(order.begin(), order.end(), size_t{0});
    // NaN sorts last.
    const auto key = [&](size_t i) {
      return scores[i].value == scores[i].value ? scores[i].value : -1e308;
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return key(a) > key(b); });
    for (size_t i = 0; i < kept; ++i) {
      std::string text = fmt::format("{}:{}", scores[order[i]].text, order[i]);
      if (order[i] < t.labels.size() && !t.labels[order[i]].empty()) {
        text += ":" + t.labels[order[i]];
      }
      append_string_element(out.bytes, text);
    }
  }
  return out;
}

std::string head_of(const Tensor& t) {
  std::string out = "{\"name\":";
  append_json_string(out, t.name);
  out += fmt::format(",\"datatype\":\"{}\",\"shape\":[{}]", TRITONSERVER_DataTypeString(t.type),
                     fmt::join(t.shape, ","));
  return out;
}

Status append_output(const Tensor& t, bool is_binary, std::string& json, std::string& blobs) {
  json += head_of(t);
  if (t.is_external) {
    json += "}";
  } else if (is_binary) {
    json += fmt::format(",\"parameters\":{{\"binary_data_size\":{}}}}}", t.bytes.size());
    blobs += t.bytes;
  } else {
    size_t count = 0;
    ASSIGN_OR_RETURN(const std::string elements, json_elements(t, count));
    json += ",\"data\":[" + elements + "]}";
  }
  return ok();
}

void append_parameters(const std::vector<Parameter>& parameters, std::string& json) {
  if (parameters.empty()) return;
  json += ",\"parameters\":{";
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (i > 0) json += ",";
    append_json_string(json, parameters[i].name);
    json += ":" + json_parameter(parameters[i].value);
  }
  json += "}";
}

}  // namespace

StatusOr<InferReplyBody> format_infer_reply(const InferenceReply& reply,
                                            const InferRequest& request) {
  std::string json = "{", blobs;
  if (!reply.id.empty()) {
    json += "\"id\":";
    append_json_string(json, reply.id);
    json += ",";
  }
  json += "\"model_name\":";
  append_json_string(json, reply.model_name);
  json += fmt::format(",\"model_version\":\"{}\"", reply.model_version);
  append_parameters(reply.parameters, json);
  json += ",\"outputs\":[";
  bool is_first = true;
  for (const Tensor& output : reply.outputs) {
    if (!std::exchange(is_first, false)) json += ",";
    const auto said = request.binary.find(output.name);
    const bool is_binary = said == request.binary.end() ? request.binary_by_default : said->second;
    const auto classes = request.classifications.find(output.name);
    if (classes == request.classifications.end()) {
      RETURN_IF_ERROR(append_output(output, is_binary, json, blobs));
      continue;
    }
    ASSIGN_OR_RETURN(const Tensor labelled,
                     classify(output, classes->second, output.shape.size() > 1));
    RETURN_IF_ERROR(append_output(labelled, is_binary, json, blobs));
  }
  json += "]}";
  InferReplyBody out;
  out.json_size = json.size();
  out.has_binary = !blobs.empty();
  out.bytes = std::move(json) + blobs;
  return out;
}

}  // namespace nereid::front
