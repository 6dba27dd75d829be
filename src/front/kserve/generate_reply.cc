// Inference replies -> generate reply objects; see generate_mapping.h.
#include <map>

#include "front/http/json_text.h"
#include "front/kserve/generate_mapping.h"
#include "front/kserve/json_tensor.h"

namespace nereid::front {
namespace {

StatusOr<std::string> format_tensor(const Tensor& t) {
  size_t count = 0;
  ASSIGN_OR_RETURN(std::string out, json_elements(t, count));
  return count == 1 ? out : "[" + out + "]";
}

}  // namespace

StatusOr<std::string> format_generate_reply(const InferenceReply& reply) {
  std::map<std::string, std::string> members;
  if (!reply.id.empty()) members["id"] = json_parameter(reply.id);
  members["model_name"] = json_parameter(reply.model_name);
  members["model_version"] = json_parameter(std::to_string(reply.model_version));
  for (const Parameter& p : reply.parameters) members[p.name] = json_parameter(p.value);
  for (const Tensor& t : reply.outputs) {
    ASSIGN_OR_RETURN(members[t.name], format_tensor(t));
  }
  std::string out = "{";
  for (const auto& [name, value] : members) {
    if (out.size() > 1) out += ",";
    append_json_string(out, name);
    out += ":" + value;
  }
  out += "}";
  return out;
}

}  // namespace nereid::front
