// Inference replies -> generate reply objects; see generate_mapping.h.
#include <algorithm>
#include <variant>
#include <vector>

#include "front/http/json_text.h"
#include "front/kserve/generate_mapping.h"
#include "front/kserve/json_tensor.h"

namespace nereid::front {
namespace {

struct Member {
  std::string_view name;
  std::variant<const std::string*, const ParameterValue*, const Tensor*> value;
};

// One element as a scalar, others as an array.
Status append_value(std::string& out, const Member& member) {
  if (const auto* text = std::get_if<const std::string*>(&member.value)) {
    append_json_string(out, **text);
    return ok();
  }
  if (const auto* parameter = std::get_if<const ParameterValue*>(&member.value)) {
    append_parameter(out, **parameter);
    return ok();
  }
  const size_t begin = out.size();
  ASSIGN_OR_RETURN(const size_t count, append_tensor(out, *std::get<const Tensor*>(member.value)));
  if (count == 1) return ok();
  out.insert(begin, 1, '[');
  out += ']';
  return ok();
}

}  // namespace

StatusOr<std::string> format_generate_reply(const InferenceReply& reply) {
  const std::string version = std::to_string(reply.model_version);
  std::vector<Member> members;
  members.reserve(3 + reply.parameters.size() + reply.outputs.size());
  if (!reply.id.empty()) members.push_back({"id", &reply.id});
  members.push_back({"model_name", &reply.model_name});
  members.push_back({"model_version", &version});
  for (const Parameter& p : reply.parameters) members.push_back({p.name, &p.value});
  for (const Tensor& t : reply.outputs) members.push_back({t.name, &t});
  std::stable_sort(members.begin(), members.end(),
                   [](const Member& a, const Member& b) { return a.name < b.name; });
  std::string out = "{";
  out.reserve(512);
  for (size_t i = 0; i < members.size(); ++i) {
    if (i + 1 < members.size() && members[i + 1].name == members[i].name) continue;  // last counts
    if (out.size() > 1) out += ',';
    append_json_string(out, members[i].name);
    out += ':';
    RETURN_IF_ERROR(append_value(out, members[i]));
  }
  out += '}';
  return out;
}

}  // namespace nereid::front
