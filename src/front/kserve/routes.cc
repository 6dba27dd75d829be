// Health, metadata and configuration handlers, and the KServe error body; see routes.h.
#include "front/kserve/routes.h"

#include <cstdlib>

#include "front/bridge/model_info.h"
#include "front/http/json_text.h"
#include "front/kserve/extensions.h"
#include "front/kserve/generate.h"
#include "front/kserve/infer.h"
#include "front/kserve/model_path.h"
#include "front/kserve/repository.h"
#include "front/kserve/settings.h"
#include "front/kserve/shared_memory.h"

namespace nereid::front {
namespace {

Response health(TRITONSERVER_Server* server, bool draining, ServerQuestion question) {
  if (draining) return kserve_error(503, "Server exiting");
  const StatusOr<bool> yes = ask_server(server, question);
  if (!yes.ok()) return kserve_error(yes.status());
  return {*yes ? 200 : 400, "text/plain", {}, ""};
}

Response model_ready(TRITONSERVER_Server* server, const Request& request) {
  const StatusOr<ModelPath> path = model_path(request);
  if (!path.ok()) return kserve_error(path.status());
  const StatusOr<bool> ready = model_is_ready(server, path->name, path->version);
  if (!ready.ok()) return kserve_error(ready.status());
  if (!*ready) return kserve_error(400, "Model version not ready");
  return {200, "text/plain", {}, ""};
}

using ModelText = StatusOr<std::string> (*)(TRITONSERVER_Server*, const std::string&, int64_t);

Response model_text(TRITONSERVER_Server* server, const Request& request, ModelText read) {
  const StatusOr<ModelPath> path = model_path(request);
  if (!path.ok()) return kserve_error(path.status());
  return kserve_response(read(server, path->name, path->version));
}

}  // namespace

Response kserve_response(StatusOr<std::string> json) {
  return json.ok() ? json_response(*std::move(json)) : kserve_error(json.status());
}

Response kserve_response(const Status& status) {
  return status.ok() ? json_response("") : kserve_error(status);
}

Response kserve_error(const Status& status) {
  return kserve_error(http_status(status), message(status));
}

Response kserve_error(int status, std::string_view message) {
  Response response = json_response(kserve_error_body(message), status);
  if (status == 503) response.headers.push_back({"Retry-After", "1"});
  return response;
}

StatusOr<ModelPath> model_path(const Request& request) {
  ModelPath path{std::string(request.param("m")), -1};
  const std::string version(request.param("v"));
  if (version.empty()) return path;
  // The route matches digits only, so overflow is the only error.
  if (version.size() > 18) {
    return invalid_argument(
        "failed to get model version from specified version string '{}' (details: stol), version "
        "should be an integral value > 0",
        version);
  }
  path.version = std::strtoll(version.c_str(), nullptr, 10);
  return path;
}

namespace {

RouteTraits kserve_traits(Api api, Access access, Cost cost) {
  return {api, access, cost, ErrorShape::kKserve};
}

RouteTraits kserve_shown(Api api) { return kserve_traits(api, Access::kCallers, Cost::kNothing); }

// Routes beside the protocol's that other servers have, too.
void add_common_routes(Router& router, TRITONSERVER_Server* server,
                       const std::function<bool()>& draining) {
  for (const char* path : {"/health", "/ping"}) {
    router.add("GET", path, kserve_traits(Api::kHealth, Access::kAnybody, Cost::kNothing),
               [server, draining](const ExchangePtr& x) {
                 x->send(health(server, draining(), &TRITONSERVER_ServerIsReady));
               });
  }
  // A route of Triton's OpenAI front end.
  router.add(
      "GET", "/health/ready", kserve_traits(Api::kHealth, Access::kAnybody, Cost::kNothing),
      [server, draining](const ExchangePtr& x) {
        Response answer = health(server, draining(), &TRITONSERVER_ServerIsReady);
        if (answer.status == 400) {
          answer.content_type = "application/json";
          answer.body =
              R"({"detail":"Attached inference engine is not ready for inference requests."})";
        }
        x->send(std::move(answer));
      });
  router.add("GET", "/version", kserve_shown(Api::kMetadata), [](const ExchangePtr& x) {
    x->send(json_response(R"({"version":")" NEREID_VERSION R"("})"));
  });
}

void add_model_routes(Router& router, TRITONSERVER_Server* server, const std::string& base,
                      const std::shared_ptr<SharedMemory>& regions,
                      const KserveOptionsPtr& options) {
  const auto add_text = [&](const std::string& path, Api api, ModelText read) {
    router.add("GET", path, kserve_shown(api), [server, read](const ExchangePtr& x) {
      x->send(model_text(server, x->request(), read));
    });
  };
  add_text(base, Api::kMetadata, &model_metadata_json);
  add_text(base + "/config", Api::kModelConfig, &model_config_json);
  add_text(base + "/stats", Api::kStatistics, &model_statistics_json);
  add_text(base + "/batch", Api::kStatistics, &model_batch_json);
  add_text(base + "/prefix_tree", Api::kStatistics, &prefix_tree_json);
  add_text(base + "/plan", Api::kStatistics, &model_plan_json);
  router.add("GET", base + "/ready", kserve_shown(Api::kHealth),
             [server](const ExchangePtr& x) { x->send(model_ready(server, x->request())); });
  const RouteTraits infers = kserve_traits(Api::kInference, Access::kCallers, Cost::kUncounted);
  router.add("POST", base + "/infer", infers, [server, regions, options](const ExchangePtr& x) {
    start_infer(server, x, regions, options);
  });
  router.add("POST", base + "/generate", infers, [server, options](const ExchangePtr& x) {
    start_generate(server, x, /*stream=*/false, options);
  });
  router.add("POST", base + "/generate_stream", infers, [server, options](const ExchangePtr& x) {
    start_generate(server, x, /*stream=*/true, options);
  });
}

}  // namespace

void add_kserve_routes(Router& router, TRITONSERVER_Server* server, std::function<bool()> draining,
                       KserveOptions options) {
  add_common_routes(router, server, draining);
  if (!options.allow_protocol) return;
  const RouteTraits probed = kserve_traits(Api::kHealth, Access::kAnybody, Cost::kNothing);
  router.add("GET", "/v2/health/live", probed, [server, draining](const ExchangePtr& x) {
    x->send(health(server, draining(), &TRITONSERVER_ServerIsLive));
  });
  router.add("GET", "/v2/health/ready", probed, [server, draining](const ExchangePtr& x) {
    x->send(health(server, draining(), &TRITONSERVER_ServerIsReady));
  });
  router.add("GET", "/v2", kserve_shown(Api::kMetadata), [server](const ExchangePtr& x) {
    x->send(kserve_response(server_metadata_json(server)));
  });
  if (options.extensions == nullptr) options.extensions = std::make_shared<Extensions>();
  const auto shared = std::make_shared<const KserveOptions>(options);
  add_repository_routes(router, server, shared);
  add_logging_routes(router, options.extensions);
  add_trace_routes(router, options.tracer);
  add_shared_memory_routes(router, options.extensions, options.allow_shared_memory);
  const std::shared_ptr<SharedMemory> regions(options.extensions, &options.extensions->regions());
  // Before the model routes: "stats" is no model's name here.
  router.add("GET", "/v2/models/stats", kserve_shown(Api::kStatistics),
             [server](const ExchangePtr& x) {
               x->send(model_text(server, x->request(), &model_statistics_json));
             });
  for (const char* base : {"/v2/models/{m}", "/v2/models/{m}/versions/{v:digits}"})
    add_model_routes(router, server, base, regions, shared);
}

}  // namespace nereid::front
