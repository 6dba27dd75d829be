// The reflection service; see control.h.
#include <absl/strings/escaping.h>

#include "base/json.h"
#include "front/grpc/control.h"

namespace nereid::front {
namespace {

json::value error_of(const Status& status) {
  return json::object{{"error_code", static_cast<int>(status.code())},
                      {"error_message", message(status)}};
}

void add_files(const StatusOr<std::vector<std::string>>& files, json::object& out) {
  if (!files.ok()) {
    out["error_response"] = error_of(files.status());
    return;
  }
  json::array list;
  for (const std::string& file : *files) {
    std::string text;
    absl::Base64Escape(file, &text);
    list.emplace_back(text);
  }
  out["file_descriptor_response"] = json::object{{"file_descriptor_proto", std::move(list)}};
}

json::object answer_to(const ProtoMessages& messages, const json::value& request) {
  json::object out;
  const json::object& members = request.as_object();
  out["original_request"] = request;
  if (const json::value* host = members.if_contains("host")) out["valid_host"] = *host;
  if (const json::value* name = members.if_contains("file_by_filename")) {
    add_files(messages.file_by_name(json::value_to<std::string>(*name)), out);
  } else if (const json::value* symbol = members.if_contains("file_containing_symbol")) {
    add_files(messages.file_by_symbol(json::value_to<std::string>(*symbol)), out);
  } else if (members.contains("list_services")) {
    json::array list;
    for (const std::string& name : messages.services())
      list.push_back(json::object{{"name", name}});
    out["list_services_response"] = json::object{{"service", std::move(list)}};
  } else if (const json::value* type = members.if_contains("all_extension_numbers_of_type")) {
    // proto3 has no extensions.
    const auto known = messages.file_by_symbol(json::value_to<std::string>(*type));
    if (known.ok()) {
      out["all_extension_numbers_response"] = json::object{{"base_type_name", *type}};
    } else {
      out["error_response"] = error_of(known.status());
    }
  } else {
    out["error_response"] = error_of(members.contains("file_containing_extension")
                                         ? not_found("no such extension")
                                         : invalid_argument("the request asks for nothing"));
  }
  return out;
}

class Reflection final : public StreamHandler {
 public:
  Reflection(ControlContextPtr context, CallPtr call, const std::string& version)
      : context_(std::move(context)),
        call_(std::move(call)),
        package_("grpc.reflection." + version + ".") {}

  void on_message(std::string message) override {
    const ProtoMessages& messages = context_->messages;
    const auto text = messages.to_json(package_ + "ServerReflectionRequest", message);
    const auto request = text.ok() ? parse_json(*text) : text.status();
    if (!request.ok()) return call_->finish(internal_error("Unable to parse request"));
    auto reply = messages.from_json(package_ + "ServerReflectionResponse",
                                    json::serialize(answer_to(messages, *request)));
    if (!reply.ok()) return call_->finish(reply.status());
    call_->send(*std::move(reply));
  }

  void on_half_close() override { call_->finish(ok()); }
  void on_stop() override { call_->finish(ok()); }

 private:
  const ControlContextPtr context_;
  const CallPtr call_;
  const std::string package_;
};

}  // namespace

std::shared_ptr<StreamHandler> start_reflection(const ControlContextPtr& context,
                                                const CallPtr& call, const std::string& version) {
  return std::make_shared<Reflection>(context, call, version);
}

}  // namespace nereid::front
