// Inference replies to generate reply objects; see generate_mapping.h.
#include <algorithm>
#include <utility>

#include "front/http/json_text.h"
#include "front/kserve/generate_mapping.h"

namespace nereid::front {

StatusOr<GenerateReplyText> GenerateReplyText::create(const InferenceReply& reply) {
  GenerateReplyText out;
  std::vector<Member>& members = out.members_;
  members.reserve(3 + reply.parameters.size() + reply.outputs.size());
  if (!reply.id.empty()) members.push_back({"id", reply.id});
  members.push_back({"model_name", reply.model_name});
  members.push_back({"model_version", std::to_string(reply.model_version)});
  for (const Parameter& p : reply.parameters) members.push_back({p.name, &p.value});
  for (const Tensor& t : reply.outputs) {
    ASSIGN_OR_RETURN(TensorText text, TensorText::create(t));
    members.push_back({t.name, std::move(text)});
  }
  std::stable_sort(members.begin(), members.end(),
                   [](const Member& a, const Member& b) { return a.name < b.name; });
  // The last of duplicate members counts.
  const auto first =
      std::unique(members.rbegin(), members.rend(), [](const auto& a, const auto& b) {
        return a.name == b.name;
      }).base();
  members.erase(members.begin(), first);
  return out;
}

bool GenerateReplyText::append_until(size_t size, std::string& out) {
  if (next_ == 0 && !is_inside_) out += '{';
  for (; next_ < members_.size(); ++next_) {
    Member& member = members_[next_];
    auto* tensor = std::get_if<TensorText>(&member.value);
    if (!is_inside_) {
      if (next_ > 0 && out.size() >= size) return true;
      if (next_ > 0) out += ',';
      append_json_string(out, member.name);
      out += ':';
      if (tensor != nullptr && tensor->count() != 1) out += '[';
    }
    if (const auto* text = std::get_if<std::string>(&member.value)) append_json_string(out, *text);
    if (const auto* parameter = std::get_if<const ParameterValue*>(&member.value)) {
      append_parameter(out, **parameter);
    }
    if (tensor == nullptr) continue;
    is_inside_ = tensor->append_until(size, out);
    if (is_inside_) return true;
    if (tensor->count() != 1) out += ']';
  }
  out += '}';
  return false;
}

}  // namespace nereid::front
