// Inference replies to infer response bodies; see infer_message.h.
#include <algorithm>

#include "front/bridge/classify.h"
#include "front/http/json_text.h"
#include "front/kserve/infer_message.h"

namespace nereid::front {
namespace {

constexpr size_t kCountedBytes = size_t{64} << 10;  // formatted at once

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

Status InferReplyText::add_output(const Tensor& t, bool is_binary) {
  std::string& json = pieces_.back().text;
  append_head(t, json);
  if (t.is_external) {
    json += "}";
  } else if (is_binary) {
    json += ",\"parameters\":{\"binary_data_size\":" + std::to_string(t.bytes.size()) + "}}";
    if (!t.bytes.empty()) blobs_.push_back(t.bytes);
  } else {
    json += ",\"data\":[";
    ASSIGN_OR_RETURN(pieces_.back().elements, TensorText::create(t));
    pieces_.push_back({"]}", {}});
  }
  return ok();
}

StatusOr<InferReplyText> InferReplyText::create(const InferenceReply& reply,
                                                const InferRequest& request) {
  InferReplyText out;
  out.pieces_.reserve(1 + reply.outputs.size());
  out.pieces_.push_back({"{", {}});
  std::string& json = out.pieces_.back().text;
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
    if (!std::exchange(is_first, false)) out.pieces_.back().text += ",";
    const auto said = request.binary.find(output.name);
    const bool is_binary = said == request.binary.end() ? request.binary_by_default : said->second;
    const auto classes = request.classifications.find(output.name);
    if (classes == request.classifications.end()) {
      RETURN_IF_ERROR(out.add_output(output, is_binary));
      continue;
    }
    ASSIGN_OR_RETURN(Classes labelled, classify(output, classes->second, output.shape.size() > 1));
    RETURN_IF_ERROR(
        out.add_output(out.labelled_.emplace_back(std::move(labelled)).tensor, is_binary));
  }
  out.pieces_.back().text += "]}";
  return out;
}

bool InferReplyText::append_json(size_t size, std::string& out) {
  for (; next_ < pieces_.size(); ++next_) {
    Piece& piece = pieces_[next_];
    if (!std::exchange(piece.is_inside, true)) {
      out.empty() ? out.swap(piece.text) : static_cast<void>(out += piece.text);
    }
    if (piece.elements && piece.elements->append_until(size, out)) return true;
  }
  return false;
}

size_t InferReplyText::json_size() const {
  InferReplyText copy;
  copy.pieces_ = pieces_;
  size_t sum = 0;
  std::string part;
  for (bool has_more = true; has_more; sum += part.size()) {
    part.clear();
    has_more = copy.append_json(kCountedBytes, part);
  }
  return sum;
}

bool InferReplyText::append_until(size_t size, std::string& out) {
  if (append_json(size, out)) return true;
  for (; next_blob_ < blobs_.size(); ++next_blob_) {
    std::string_view& blob = blobs_[next_blob_];
    const size_t room = size - std::min(size, out.size());
    out += blob.substr(0, room);
    blob.remove_prefix(std::min(room, blob.size()));
    if (!blob.empty()) return true;
  }
  return false;
}

}  // namespace nereid::front
