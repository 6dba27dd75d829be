// The trace setting extension; see settings.h.
#include <utility>

#include "base/json.h"
#include "front/kserve/json_body.h"
#include "front/kserve/routes.h"
#include "front/kserve/settings.h"

namespace nereid::front {
namespace {

constexpr const char* kNumbers[] = {"trace_rate", "trace_count", "log_frequency"};

StatusOr<std::vector<std::string>> read_levels(const json::value& levels) {
  std::vector<std::string> names;
  if (levels.is_null()) return names;
  if (!levels.is_array()) return wrong_member("trace_level", "an array", levels);
  for (const json::value& level : levels.get_array()) {
    if (!level.is_string()) return wrong_member("trace_level", "strings", level);
    names.emplace_back(level.get_string());
  }
  // An empty list would mean "clear", which null means here.
  if (names.empty()) names.emplace_back("OFF");
  return names;
}

StatusOr<Tracer::Changes> read_changes(const std::string& body) {
  ASSIGN_OR_RETURN(const json::value root, parse_short_body(body));
  Tracer::Changes changes;
  if (member(root, "trace_file") != nullptr) changes["trace_file"];
  for (const char* key : kNumbers) {
    const json::value* found = member(root, key);
    if (found == nullptr) continue;
    auto& values = changes[key];
    if (found->is_null()) continue;
    ASSIGN_OR_RETURN(const auto text, string_member(root, key));
    values.push_back(*text);
    // gRPC's text has a space that HTTP's lacks.
    if (key == kNumbers[1] && text->starts_with('-') && *text != "-1") {
      return invalid_argument("Unable to parse 'trace_count'. Expecting value >= -1, got:{}",
                              *text);
    }
  }
  if (const json::value* levels = member(root, "trace_level")) {
    ASSIGN_OR_RETURN(changes["trace_level"], read_levels(*levels));
  }
  return changes;
}

StatusOr<std::string> update(Tracer& tracer, const std::string& model, const std::string* body) {
  Tracer::Changes changes;
  if (body != nullptr) {
    ASSIGN_OR_RETURN(changes, read_changes(*body));
  }
  ASSIGN_OR_RETURN(const auto settings, tracer.update(model, changes));
  json::object out;
  for (const auto& [key, values] : settings) {
    if (key == "trace_level" || values.size() != 1) {
      out[key] = json::array(values.begin(), values.end());
    } else {
      out[key] = values[0];
    }
  }
  return json::serialize(out);
}

}  // namespace

void add_trace_routes(Router& router, std::shared_ptr<Tracer> tracer) {
  const auto answer = [tracer = std::move(tracer)](const ExchangePtr& x, bool changes) {
    const Request& request = x->request();
    x->send(kserve_response(
        update(*tracer, std::string(request.param("m")), changes ? &request.body : nullptr)));
  };
  constexpr Api kApi = Api::kTrace;
  const RouteTraits shown = {kApi, Access::kCallers, Cost::kNothing, ErrorShape::kKserve};
  const RouteTraits changed = {kApi, Access::kSettings, Cost::kNothing, ErrorShape::kKserve};
  for (const char* path : {"/v2/trace/setting", "/v2/models/{m}/trace/setting"}) {
    router.add("GET", path, shown, [answer](const ExchangePtr& x) { answer(x, false); });
    router.add("POST", path, changed, [answer](const ExchangePtr& x) { answer(x, true); });
  }
}

}  // namespace nereid::front
