// Inference replies -> infer response bodies; see infer_message.h.
#include "front/bridge/classify.h"
#include "front/http/json_text.h"
#include "front/kserve/infer_message.h"
#include "front/kserve/json_tensor.h"

namespace nereid::front {
namespace {

void append_head(const Tensor& t, std::string& json) {
  json += "{\"name\":";
  append_json_string(json, t.name);
  json += ",\"datatype\":\"";
  json += TRITONSERVER_DataTypeString(t.type);
  json += "\",\"shape\":[";
  for (size_t i = 0; i < t.shape.size(); ++i) {
    if (i > 0) json += ",";
    json += std::to_string(t.shape[i]);
  }
  json += "]";
}

Status append_output(const Tensor& t, bool is_binary, std::string& json, std::string& blobs) {
  append_head(t, json);
  if (t.is_external) {
    json += "}";
  } else if (is_binary) {
    json += ",\"parameters\":{\"binary_data_size\":" + std::to_string(t.bytes.size()) + "}}";
    blobs += t.bytes;
  } else {
    json += ",\"data\":[";
    ASSIGN_OR_RETURN(TensorText text, TensorText::create(t));
    text.append_until(kWhole, json);
    json += "]}";
  }
  return ok();
}

void append_parameters(const std::vector<Parameter>& parameters, std::string& json) {
  if (parameters.empty()) return;
  json += ",\"parameters\":{";
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (i > 0) json += ",";
    append_json_string(json, parameters[i].name);
    json += ":";
    append_parameter(json, parameters[i].value);
  }
  json += "}";
}

}  // namespace

StatusOr<InferReplyBody> format_infer_reply(const InferenceReply& reply,
                                            const InferRequest& request) {
  std::string json = "{", blobs;
  json.reserve(512);
  if (!reply.id.empty()) {
    json += "\"id\":";
    append_json_string(json, reply.id);
    json += ",";
  }
  json += "\"model_name\":";
  append_json_string(json, reply.model_name);
  json += ",\"model_version\":\"" + std::to_string(reply.model_version) + "\"";
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
