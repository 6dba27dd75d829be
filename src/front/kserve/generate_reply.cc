// Inference replies -> generate reply objects; see generate_mapping.h.
#include <algorithm>
#include <vector>

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
  struct Member {
    std::string_view name;
    std::string value;
  };
  std::vector<Member> members;
  members.reserve(3 + reply.parameters.size() + reply.outputs.size());
  if (!reply.id.empty()) members.push_back({"id", json_parameter(reply.id)});
  members.push_back({"model_name", json_parameter(reply.model_name)});
  members.push_back({"model_version", json_parameter(std::to_string(reply.model_version))});
  for (const Parameter& p : reply.parameters) members.push_back({p.name, json_parameter(p.value)});
  for (const Tensor& t : reply.outputs) {
    ASSIGN_OR_RETURN(std::string value, format_tensor(t));
    members.push_back({t.name, std::move(value)});
  }
  std::stable_sort(members.begin(), members.end(),
                   [](const Member& a, const Member& b) { return a.name < b.name; });
  std::string out = "{";
  out.reserve(512);
  for (size_t i = 0; i < members.size(); ++i) {
    if (i + 1 < members.size() && members[i + 1].name == members[i].name) continue;  // last counts
    if (out.size() > 1) out += ',';
    append_json_string(out, members[i].name);
    out += ':';
    out += members[i].value;
  }
  out += '}';
  return out;
}

}  // namespace nereid::front
