// Access checks of a port; see access.h.
#include "front/access.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "front/http/cors.h"
#include "front/http/web_pages.h"
#include "front/kserve/routes.h"
#include "front/openai/error.h"
#include "front/protection/api_keys.h"
#include "front/translate/anthropic.h"
#include "front/translate/ollama.h"

namespace nereid::front {
namespace {

// The checks of a port, in order.
class AccessChecks {
 public:
  static StatusOr<AccessChecks> create(const HttpOptions& options) {
    AccessChecks out;
    ASSIGN_OR_RETURN(out.cors_, Cors::create(options.cors_origins));
    ASSIGN_OR_RETURN(out.hosts_, AllowedHosts::create(options.host, options.allowed_hosts));
    out.has_cors_ = !options.cors_origins.empty();
    out.keys_ = options.api_keys;
    out.restrictions_ = options.restrictions;
    out.admin_ = options.admin;
    for (const auto& group : options.restrictions)
      for (const std::string& api : group.apis)
        if (std::ranges::find(kApiNames, api) == kApiNames.end())
          return invalid_argument("unknown restricted api '{}'", api);
    return out;
  }

  const Cors& cors() const { return cors_; }
  bool has_cors() const { return has_cors_; }

  // The refusal of a request; nullopt if its handler may run, with a permit if its key has limits.
  std::optional<Response> refusal(Request& request, const Target& target) const {
    // CORS preflight requests come without a key.
    if (has_cors_)
      if (auto answer = cors_.preflight(request)) return answer;
    const Cost cost = target.has_handler ? target.traits->cost : Cost::kNothing;
    if (const std::string text = page_refusal(request, cors_, hosts_, cost); !text.empty())
      return error_in_shape(target.errors, 403, text);
    std::optional<ApiKeys::Caller> caller;
    if (keys_) caller = keys_->find(shown_key(request));
    if (caller) request.tenant = caller->tenant;
    const Access access = access_of(target);
    if (keys_ && keys_->are_for_callers() && access != Access::kAnybody && !caller)
      return unauthorized(target);
    bool has_secret = false;
    if (const auto* group = restriction_of(target)) {
      const std::string* sent = find_header(request.headers, group->key);
      has_secret = sent != nullptr && same_secret(*sent, group->value);
      if (!has_secret)
        return error_in_shape(
            target.errors, 403,
            fmt::format("This API is restricted, expecting header '{}'", group->key));
    }
    const AdminCaller admin = {.has_admin_key = caller && caller->is_admin,
                               .has_secret = has_secret,
                               .needs_key = keys_ != nullptr,
                               .is_on_loopback = request.is_on_loopback && !is_forwarded(request)};
    if (const auto text = admin_refusal(access, admin_, admin); !text.empty())
      return keys_ && !caller ? unauthorized(target) : error_in_shape(target.errors, 403, text);
    if (const std::string text = encoding_refusal(request, target); !text.empty())
      return error_in_shape(target.errors, 415, text);
    if (caller) return take_permit(*caller, cost, request, target);
    return std::nullopt;
  }

 private:
  // Error for a compressed body on a route that reads bodies as they are; "": none.
  static std::string encoding_refusal(const Request& request, const Target& target) {
    if (!target.has_handler || target.errors == ErrorShape::kKserve) return "";
    const std::string* const encoding = find_header(request.headers, "Content-Encoding");
    if (!encoding || encoding->empty() || *encoding == "identity") return "";
    return fmt::format(
        "Content-Encoding: '{}' is not supported on this route, only 'identity': send the body "
        "without compression",
        encoding->substr(0, 40));
  }
  static Access access_of(const Target& target) {
    if (target.has_handler) return target.traits->access;
    // The methods of a path (OPTIONS, 405) are answered to its callers; for probes to everybody.
    const bool is_probe = target.has_path && target.traits->access == Access::kAnybody;
    return is_probe ? Access::kAnybody : Access::kCallers;
  }

  static Response unauthorized(const Target& target) {
    Response response = error_in_shape(target.errors, 401, "an API key is missing or not known");
    response.headers.push_back({"WWW-Authenticate", "Bearer"});
    return response;
  }

  // A proxy on this machine forwards requests of others.
  static bool is_forwarded(const Request& request) {
    return find_header(request.headers, "Forwarded") != nullptr ||
           find_header(request.headers, "X-Forwarded-For") != nullptr;
  }

  const HttpRestriction* restriction_of(const Target& target) const {
    if (!target.traits) return nullptr;
    for (const HttpRestriction& group : restrictions_)
      if (std::ranges::find(group.apis, name_of(target.traits->api)) != group.apis.end())
        return &group;
    return nullptr;
  }

  static std::optional<Response> take_permit(const ApiKeys::Caller& caller, Cost cost,
                                             Request& request, const Target& target) {
    if (cost == Cost::kNothing) return std::nullopt;
    if (cost == Cost::kUncounted && caller.limits.tokens_per_minute > 0)
      return error_in_shape(target.errors, 403, kTokensAreNotCounted);
    auto result = caller.use->begin(caller.limits, now());
    if (auto* permit = std::get_if<KeyUse::PermitPtr>(&result)) {
      request.permit = std::move(*permit);
      return std::nullopt;
    }
    const auto& refusal = std::get<KeyRefusal>(result);
    Response response = error_in_shape(target.errors, 429, refusal.reason);
    std::erase_if(response.headers, [](const Header& h) { return h.name == "Retry-After"; });
    response.headers.push_back({"Retry-After", std::to_string(refusal.retry_after_s)});
    return response;
  }

  Cors cors_;
  AllowedHosts hosts_;
  bool has_cors_ = false;
  std::shared_ptr<ApiKeys> keys_;
  std::vector<HttpRestriction> restrictions_;
  AdminRules admin_;
};

}  // namespace

Response error_in_shape(ErrorShape shape, int status, std::string_view message) {
  if (shape == ErrorShape::kKserve) return kserve_error(status, message);
  Response response = openai_error({status, std::string(message), "", ""});
  if (shape == ErrorShape::kAnthropic) response.body = messages_error(status, message);
  if (shape == ErrorShape::kOllama) response.body = ollama_error(message);
  return response;
}

Status set_access(const HttpOptions& options, Router& router) {
  ASSIGN_OR_RETURN(const AccessChecks doors, AccessChecks::create(options));
  if (doors.has_cors()) {
    router.set_finish([cors = doors.cors()](const Request& request, Response& response) {
      cors.add_headers(request, response);
    });
  }
  router.set_guard(
      [doors](Request& request, const Target& target) { return doors.refusal(request, target); });
  return ok();
}

Status set_metrics_access(const HttpOptions& options, const std::string& host, Router& router) {
  ASSIGN_OR_RETURN(const AllowedHosts hosts, AllowedHosts::create(host, options.allowed_hosts));
  router.set_guard([hosts](Request& request, const Target& target) -> std::optional<Response> {
    const std::string text = page_refusal(request, Cors(), hosts, Cost::kNothing);
    if (text.empty()) return std::nullopt;
    return error_in_shape(target.errors, 403, text);
  });
  return ok();
}

}  // namespace nereid::front
