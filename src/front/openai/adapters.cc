// POST /v1/load_lora_adapter and /v1/unload_lora_adapter, as in vLLM: adapters by name, from
// folders that the server may read. Only where the engine has a lora_load_dir.
#include <memory>
#include <utility>
#include <variant>

#include "front/openai/generation.h"
#include "front/openai/handlers.h"
#include "front/openai/requests/fields.h"
#include "front/openai/requests/request_fields.h"

namespace nereid::front {
namespace {

constexpr size_t kMaxNameBytes = 256;

struct AdapterRequest {
  LanguageModelPtr model;
  backend::LoraModule adapter;
  bool in_place = false;
};

// A valid name fits into a log line and into a URL path.
bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameBytes &&
         std::ranges::all_of(name, [](char c) { return c > ' ' && c <= '~'; });
}

void answer(const ExchangePtr& exchange, const std::string& name, std::string_view what) {
  exchange->send({200,
                  "text/plain; charset=utf-8",
                  {},
                  fmt::format("Success: LoRA adapter '{}' {} successfully.", name, what)});
}

std::variant<AdapterRequest, ApiError> read_adapter_request(const OpenAiContext& context,
                                                            const Request& http, bool loads) {
  const auto root = parse_body(http.body, memory_for_json(context.budget, http.body.size()));
  if (const auto* error = std::get_if<ApiError>(&root)) return *error;
  Fields fields(std::get<json::object>(root));
  AdapterRequest out;
  CommonOptions common;
  out.adapter.name = fields.text("lora_name").value_or("");
  out.adapter.by_request = true;
  if (!is_name(out.adapter.name))
    fields.fail("lora_name",
                fmt::format("1 to {} printable characters are needed, no blanks", kMaxNameBytes));
  if (loads) {
    out.adapter.folder = fields.text("lora_path").value_or("");
    out.in_place = fields.flag("load_inplace").value_or(false);
    if (out.adapter.folder.empty()) fields.fail("lora_path", "required");
  } else {
    fields.integer("lora_int_id", INT64_MIN, INT64_MAX);  // unused: the name identifies the adapter
  }
  // Needed if there are several models.
  const std::string wanted = fields.text("model").value_or("");
  if (fields.error()) return *fields.error();
  common.unknown = fields.unknown();
  if (auto error = refuse_unknown(context, common)) return *std::move(error);
  auto model = context.models.get(wanted);
  if (!model.ok()) return api_error(model.status());
  out.model = *std::move(model);
  const std::string& name = out.adapter.name;
  const std::filesystem::path& root_folder = out.model->lora_load_dir;
  if (root_folder.empty())
    return ApiError{404,
                    "this server loads no adapters by request (nereid serve --lora-load-dir, "
                    "parameter lora_load_dir)",
                    "", ""};
  if (!loads) return out;
  const Status is_free = context.models.check_adapter(out.model->engine_name, name, out.in_place);
  if (!is_free.ok()) {
    ApiError error = api_error(is_free);
    error.param = "lora_name";
    return error;
  }
  const auto folder = backend::find_lora_folder(root_folder, out.adapter.folder);
  if (!folder.ok()) {
    ApiError error = api_error(folder.status());
    error.param = "lora_path";
    return error;
  }
  out.adapter.folder = folder->string();
  out.adapter.task_id = context.models.new_task_id();
  return out;
}

// Generates one token with the adapter, which proves that it was read, fits the model and runs.
void load(const OpenAiContextPtr& context, const ExchangePtr& exchange, AdapterRequest request) {
  SamplingOptions sampling;
  sampling.temperature = 0, sampling.max_tokens = 1;
  use_adapter(request.adapter, sampling);
  LanguageModelPtr model = request.model;
  const auto finish = [context, exchange, request = std::move(request)](const Piece& piece) {
    if (!piece.done) return;
    Status status = piece.status;
    if (status.ok())
      status = context->models.add_adapter(request.model->engine_name, request.adapter,
                                           request.in_place);
    if (!status.ok()) return exchange->send(openai_error(api_error(status)));
    answer(exchange, request.adapter.name, "added");
  };
  const auto started = Generation::start(context->models.server(), *context->tracer,
                                         std::move(model), exchange, {0}, sampling, finish);
  if (!started.ok()) return exchange->send(openai_error(api_error(started.status())));
  exchange->on_disconnect([generation = *started] { generation->cancel(); });
}

void handle(const OpenAiContextPtr& context, const ExchangePtr& exchange, bool loads) {
  context->workers.run(
      exchange, false,
      [context, exchange, loads] {
        return read_adapter_request(*context, exchange->request(), loads);
      },
      [context, exchange, loads](std::variant<AdapterRequest, ApiError> read) {
        if (const auto* error = std::get_if<ApiError>(&read))
          return exchange->send(openai_error(*error));
        auto& request = std::get<AdapterRequest>(read);
        if (loads) return load(context, exchange, std::move(request));
        const Status status = context->models.remove_adapter(request.adapter.name);
        if (!status.ok()) return exchange->send(openai_error(api_error(status)));
        answer(exchange, request.adapter.name, "removed");
      });
}

}  // namespace

void add_adapter_routes(Router& router, const OpenAiContextPtr& context) {
  // A load computes a token.
  const auto traits = [](Cost cost) {
    return RouteTraits(Api::kModelRepository, Access::kModels, cost, ErrorShape::kOpenAi);
  };
  router.add("POST", "/v1/load_lora_adapter", traits(Cost::kTokens),
             [context](const ExchangePtr& x) { handle(context, x, true); });
  router.add("POST", "/v1/unload_lora_adapter", traits(Cost::kNothing),
             [context](const ExchangePtr& x) { handle(context, x, false); });
}

}  // namespace nereid::front
