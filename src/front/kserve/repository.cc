// Repository routes; see repository.h.
#include "front/kserve/repository.h"

#include <functional>
#include <memory>
#include <optional>

#include "base/base64.h"
#include "front/bridge/model_info.h"
#include "front/kserve/extensions.h"
#include "front/kserve/json_body.h"
#include "front/kserve/routes.h"
#include "front/protection/budget_memory.h"

namespace nereid::front {
namespace {

StatusOr<std::string> index(TRITONSERVER_Server* server, const Request& request) {
  std::optional<bool> only_ready;
  if (!request.body.empty()) {
    ASSIGN_OR_RETURN(const json::value body, parse_short_body(request.body));
    ASSIGN_OR_RETURN(only_ready, bool_member(body, "ready"));
  }
  return model_index_json(server, only_ready.value_or(false));
}

// Runs `work`, which may take minutes, in `queue` (at once where the core only refuses it)
// and sends its result.
void answer_later(const ControlQueuePtr& queue, const ExchangePtr& exchange,
                  std::function<Status()> work) {
  const auto send = [exchange](const Status& status) { exchange->send(kserve_response(status)); };
  if (queue == nullptr) return send(work());
  queue->push([exchange, send, work = std::move(work)]() mutable {
    const Status status = work();
    work = nullptr;
    exchange->post([send, status] { send(status); });
  });
}

using LoadParametersPtr = std::shared_ptr<LoadParameters>;

void start_load(TRITONSERVER_Server* server, const ExchangePtr& exchange,
                const KserveOptions& options) {
  const std::string& body = exchange->request().body;
  const auto read = [exchange, &options]() -> StatusOr<LoadParametersPtr> {
    auto parameters = std::make_shared<LoadParameters>();
    RETURN_IF_ERROR(read_load_parameters(exchange->request().body, *options.extensions,
                                         options.budget, *parameters));
    return parameters;
  };
  const auto start = [server, exchange, &options](StatusOr<LoadParametersPtr> parameters) {
    if (!parameters.ok()) return exchange->send(kserve_error(parameters.status()));
    answer_later(
        options.extensions->loads(), exchange,
        [server, parameters = *parameters, model = std::string(exchange->request().param("m"))] {
          return parameters->load(server, model);
        });
  };
  options.workers->run(exchange, body.size() <= kQuickJsonBytes, read, start);
}

void start_unload(TRITONSERVER_Server* server, const ExchangePtr& exchange,
                  const KserveOptions& options) {
  bool dependents = false;
  // As the stock server does, a body without a valid flag unloads the model alone.
  if (const auto body = parse_short_body(exchange->request().body); body.ok())
    dependents = flag_member(object_member(*body, "parameters"), "unload_dependents");
  answer_later(options.extensions->unloads(), exchange,
               [server, dependents, model = std::string(exchange->request().param("m"))] {
                 return unload_model(server, model, dependents);
               });
}

}  // namespace

Status read_load_parameters(const std::string& body, const Extensions& extensions,
                            const std::shared_ptr<ByteBudget>& budget, LoadParameters& out) {
  if (body.empty()) return ok();
  ASSIGN_OR_RETURN(const json::value root,
                   parse_members_body(body, memory_for_json(budget, body.size())));
  const json::value* parameters = member(root, "parameters");
  if (parameters == nullptr) return ok();
  if (!is_json_object(*parameters)) return wrong_member("parameters", "an object", *parameters);
  for (const auto& entry : parameters->get_object()) {
    const std::string key(entry.key());
    if (!entry.value().is_string()) return wrong_member(key, "a string", entry.value());
    const std::string_view text(entry.value().get_string());
    if (key == "config") {
      out.add_config(std::string(text));
    } else if (key.starts_with("file:")) {
      ASSIGN_OR_RETURN(std::string content, decode_base64(text));
      RETURN_IF_ERROR(out.add_file(key, std::move(content), extensions.allow_code_upload()));
    } else {
      return invalid_argument("unknown load parameter '{}': 'config' and 'file:<path>' are allowed",
                              key);
    }
  }
  return ok();
}

void LoadParameters::add_config(const std::string& json) {
  owned_.emplace_back(
      TRITONSERVER_ParameterNew("config", TRITONSERVER_PARAMETER_STRING, json.c_str()));
}

Status LoadParameters::add_file(const std::string& key, std::string content, bool allow_code) {
  const bool is_code = key.ends_with(".so") || key.find(".so.") != std::string::npos ||
                       content.starts_with(
                           "\x7f"
                           "ELF");
  if (is_code && !allow_code) {
    return unsupported(
        "load parameter '{}' is a shared object, which a load may bring only to a server started "
        "with '--allow-code-upload=true'",
        key);
  }
  files_.push_back(std::move(content));
  owned_.emplace_back(
      TRITONSERVER_ParameterBytesNew(key.c_str(), files_.back().data(), files_.back().size()));
  return ok();
}

Status LoadParameters::load(TRITONSERVER_Server* server, const std::string& model) const {
  std::vector<const TRITONSERVER_Parameter*> parameters;
  for (const auto& p : owned_) parameters.push_back(p.get());
  return take_error(TRITONSERVER_ServerLoadModelWithParameters(
      server, model.c_str(), parameters.data(), parameters.size()));
}

void add_repository_routes(Router& router, TRITONSERVER_Server* server,
                           const KserveOptionsPtr& options) {
  constexpr Api kApi = Api::kModelRepository;
  const RouteTraits shown = {kApi, Access::kCallers, Cost::kNothing, ErrorShape::kKserve};
  const RouteTraits changed = {kApi, Access::kModels, Cost::kNothing, ErrorShape::kKserve};
  for (const char* path : {"/v2/repository/index", "/v2/repository/{repo}/index"}) {
    router.add("POST", path, shown, [server](const ExchangePtr& x) {
      x->send(kserve_response(index(server, x->request())));
    });
  }
  router.add("POST", "/v2/repository/models/{m}/load", changed,
             [=](const ExchangePtr& x) { start_load(server, x, *options); });
  router.add("POST", "/v2/repository/models/{m}/unload", changed,
             [=](const ExchangePtr& x) { start_unload(server, x, *options); });
  for (const char* path :
       {"/v2/repository/{repo}/models/{m}/load", "/v2/repository/{repo}/models/{m}/unload"}) {
    router.add("POST", path, changed, [](const ExchangePtr& x) {
      x->send(kserve_error(501, "'repository_name' specification is not supported"));
    });
  }
}

}  // namespace nereid::front
