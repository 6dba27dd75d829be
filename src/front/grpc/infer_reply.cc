// Formats responses; see infer_message.h.
#include <google/protobuf/arena.h>

#include <climits>
#include <list>
#include <type_traits>
#include <variant>
#include <vector>

#include "front/bridge/classify.h"
#include "front/grpc/infer.pb.h"
#include "front/grpc/infer_message.h"

namespace nereid::front {
namespace {

using google::protobuf::Arena;
using inference::ModelInferResponse;

// Tags of length-delimited fields.
constexpr char kRawOutputTag = 6 << 3 | 2;      // ModelInferResponse.raw_output_contents
constexpr char kErrorTag = 1 << 3 | 2;          // ModelStreamInferResponse.error_message
constexpr char kInferResponseTag = 2 << 3 | 2;  // ModelStreamInferResponse.infer_response

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

size_t varint_size(uint64_t value) {
  size_t n = 1;
  for (; value >= 0x80; value >>= 7) ++n;
  return n;
}

void append_field(std::string& out, char tag, std::string_view value) {
  out += tag;
  append_varint(out, value.size());
  out += value;
}

size_t field_size(size_t value_size) { return 1 + varint_size(value_size) + value_size; }

void set_parameter(const ParameterValue& value, inference::InferParameter& out) {
  if (const auto* text = std::get_if<std::string>(&value)) {
    out.set_string_param(*text);
  } else if (const auto* integer = std::get_if<int64_t>(&value)) {
    out.set_int64_param(*integer);
  } else if (const auto* flag = std::get_if<bool>(&value)) {
    out.set_bool_param(*flag);
  } else {
    out.set_double_param(std::get<double>(value));
  }
}

// A response in parts: the message without tensor data, and the tensors' bytes,
// appended without a copy.
struct Parts {
  Arena arena;
  ModelInferResponse* head = Arena::CreateMessage<ModelInferResponse>(&arena);
  std::vector<std::string_view> raw;
  std::list<Classes> owned;  // owners of some of `raw`

  // Bytes of the serialised message.
  size_t size() {
    size_t n = head->ByteSizeLong();
    for (const std::string_view r : raw) n += field_size(r.size());
    return n;
  }

  // To be called after size().
  void append_to(std::string& out) const {
    const size_t at = out.size();
    out.resize(at + static_cast<size_t>(head->GetCachedSize()));
    head->SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(out.data() + at));
    for (const std::string_view r : raw) append_field(out, kRawOutputTag, r);
  }
};

Status fill(const InferenceReply& reply, const InferTicket& ticket, Parts& parts) {
  ModelInferResponse& head = *parts.head;
  head.set_model_name(reply.model_name);
  head.set_model_version(std::to_string(reply.model_version));
  head.set_id(reply.id);
  for (const Parameter& p : reply.parameters) {
    set_parameter(p.value, (*head.mutable_parameters())[p.name]);
  }
  for (const Tensor& output : reply.outputs) {
    const Tensor* t = &output;
    const auto classes = ticket.classifications.find(output.name);
    if (classes != ticket.classifications.end()) {
      ASSIGN_OR_RETURN(Classes labelled,
                       classify(output, classes->second, output.shape.size() > 1));
      t = &parts.owned.emplace_back(std::move(labelled)).tensor;
    }
    auto* meta = head.add_outputs();
    meta->set_name(t->name);
    meta->set_datatype(TRITONSERVER_DataTypeString(t->type));
    for (const int64_t dim : t->shape) meta->add_shape(dim);
    parts.raw.push_back(t->is_external ? std::string_view() : std::string_view(t->bytes));
  }
  return ok();
}

Status check_size(size_t size) {
  if (size <= INT_MAX) return ok();
  return invalid_argument("Response has byte size {} which exceeds gRPC's byte size limit {}.",
                          size, INT_MAX);
}

std::string wrap(Parts& parts, std::string_view error) {
  const size_t size = parts.size();
  std::string out;
  out.reserve(kGrpcPrefixBytes + field_size(size) + field_size(error.size()));
  out.resize(kGrpcPrefixBytes);
  if (!error.empty()) append_field(out, kErrorTag, error);
  out += kInferResponseTag;
  append_varint(out, size);
  parts.append_to(out);
  return out;
}

}  // namespace

StatusOr<std::string> format_infer_response(const InferenceReply& reply,
                                            const InferTicket& ticket) {
  Parts parts;
  RETURN_IF_ERROR(fill(reply, ticket, parts));
  const size_t size = parts.size();
  RETURN_IF_ERROR(check_size(size));
  std::string out;
  out.reserve(kGrpcPrefixBytes + size);
  out.resize(kGrpcPrefixBytes);
  parts.append_to(out);
  return out;
}

StatusOr<std::string> format_stream_response(const InferenceReply& reply,
                                             const InferTicket& ticket) {
  Parts parts;
  Status status = reply.status;
  if (status.ok() && !reply.empty) {
    status = fill(reply, ticket, parts);
    if (status.ok()) status = check_size(parts.size());
    if (!status.ok()) {
      parts.head->Clear();
      parts.raw.clear();
    }
  }
  if (!status.ok() || reply.empty) {
    // No response of the model: labelled with the request's names.
    parts.head->set_model_name(ticket.model);
    parts.head->set_model_version(ticket.version);
    parts.head->set_id(ticket.id);
  }
  (*parts.head->mutable_parameters())["triton_final_response"].set_bool_param(reply.final);
  return wrap(parts, status.ok() ? std::string_view() : message(status));
}

std::string format_stream_refusal(const Status& status, const InferTicket& ticket) {
  Parts parts;
  parts.head->set_id(ticket.id);
  return wrap(parts, message(status));
}

}  // namespace nereid::front
