// nereid ps: what the servers of this machine, or the one at a URL, serve.
#include <CLI/Option.hpp>
#include <cstdlib>
#include <ctime>
#include <memory>

#include <fmt/ranges.h>

#include "base/clock.h"
#include "base/json_members.h"
#include "base/progress.h"
#include "cli/commands/commands.h"
#include "cli/flags/options.h"
#include "cli/process/running.h"
#include "convert/pretty_json.h"
#include "front/client/http_client.h"

namespace nereid::cli {
namespace {

constexpr Duration kPatience = std::chrono::seconds(3);
constexpr size_t kMaxAnswer = size_t{4} << 20;

struct PsOptions {
  std::string url, api_key;
  bool as_json = false;
};

struct Asked {
  std::string state;                // "ready", "not ready", or why there is no answer
  std::vector<std::string> models;  // ids of /v1/models
};

// The answer to a GET; its body in `body`.
StatusOr<int> get(const std::string& url, const std::string& path, const std::string& key,
                  std::string& body) {
  ASSIGN_OR_RETURN(const front::Url parsed, front::parse_url(url));
  front::HttpCall call{.method = "GET", .path = path};
  if (!key.empty()) call.headers.emplace_back("Authorization", "Bearer " + key);
  std::shared_ptr<const front::TlsClient> tls;
  if (parsed.is_tls) {
    ASSIGN_OR_RETURN(tls, front::TlsClient::create(""));
  }
  const auto keep = [&](std::string_view piece) {
    if (body.size() + piece.size() <= kMaxAnswer) body += piece;
  };
  ASSIGN_OR_RETURN(const front::HttpAnswer answer,
                   front::send_call(parsed, call, now() + kPatience, keep, tls.get()));
  return answer.status;
}

// The state of a server that refuses to answer with this key.
std::string refused_state(int status, const std::string& key) {
  if (key.empty()) return "wants a key: --api-key or $NEREID_API_KEY";
  return fmt::format("refuses the key of --api-key or $NEREID_API_KEY: HTTP {}", status);
}

Asked ask(const std::string& url, const std::string& key) {
  std::string body;
  const auto ready = get(url, "/v2/health/ready", key, body);
  if (!ready.ok()) return {fmt::format("no answer: {}", message(ready.status())), {}};
  if (*ready == 401 || *ready == 403) return {refused_state(*ready, key), {}};
  // Servers of other makes have no such route.
  const char* const state = *ready == 200 ? "ready" : *ready == 404 ? "answers" : "not ready";
  Asked asked{state, {}};
  body.clear();
  const auto models = get(url, "/v1/models", key, body);
  if (models.ok() && (*models == 401 || *models == 403)) asked.state = refused_state(*models, key);
  const auto parsed = models.ok() && *models == 200 ? parse_json(body) : StatusOr<json::value>();
  if (parsed.ok())
    for (const json::value& model : array_member(*parsed, "data"))
      if (std::string id = text_member(model, "id"); !id.empty())
        asked.models.push_back(std::move(id));
  return asked;
}

struct PsRow {
  RunningServer server;
  Asked asked;
};

void print_table(const std::vector<PsRow>& rows) {
  fmt::print("{:>8}  {:9}  {:32}  {}\n", "PID", "UP", "URL", "MODELS");
  for (const PsRow& row : rows) {
    const std::string pid = row.server.pid > 0 ? std::to_string(row.server.pid) : "-";
    const std::string up =
        row.server.since > 0
            ? duration_text(static_cast<double>(std::time(nullptr) - row.server.since))
            : "-";
    const std::string models = row.asked.models.empty()
                                   ? row.server.model
                                   : fmt::format("{}", fmt::join(row.asked.models, ", "));
    const std::string state =
        row.asked.state == "ready" ? "" : fmt::format(" ({})", row.asked.state);
    fmt::print("{:>8}  {:9}  {:32}  {}{}\n", pid, up, row.server.url, models, state);
  }
}

Status ps(const PsOptions& options) {
  std::vector<PsRow> rows;
  if (!options.url.empty()) {
    RETURN_IF_ERROR(front::parse_url(options.url).status());
    rows.push_back({{.url = options.url}, ask(options.url, options.api_key)});
    if (rows[0].asked.state.starts_with("no answer"))
      return unavailable("{}: {}", options.url, rows[0].asked.state);
  } else {
    for (RunningServer& server : running_servers(running_dir())) {
      Asked asked = ask(server.url, options.api_key);
      rows.push_back({std::move(server), std::move(asked)});
    }
  }
  if (!options.as_json) {
    print_table(rows);
    return ok();
  }
  json::array all;
  for (const PsRow& row : rows)
    all.push_back({{"pid", row.server.pid},
                   {"since", row.server.since},
                   {"url", row.server.url},
                   {"model", row.server.model},
                   {"source", row.server.source},
                   {"state", row.asked.state},
                   {"models", json::value_from(row.asked.models)}});
  fmt::print("{}\n", convert::pretty_json(json::object{{"servers", all}}));
  return ok();
}

}  // namespace

void add_ps(CLI::App& app, int& exit_code) {
  CLI::App* const command =
      app.add_subcommand("ps", "list running servers and the models that they answer for");
  auto options = std::make_shared<PsOptions>();
  command->add_option("--url", options->url,
                      "ask this server alone, of any make with OpenAI's API");
  command->add_option("--api-key", options->api_key, "key to show [$NEREID_API_KEY]")
      ->envname("NEREID_API_KEY");
  command->add_flag("--json", options->as_json, "as a JSON object");
  command->footer(
      "Each `nereid serve` leaves a note in the folder run of the cache ($NEREID_CACHE_DIR, else "
      "~/.cache/nereid) while it runs; ps asks the URLs of these notes for their models.");
  command->callback([options, &exit_code] {
    if (const Status status = ps(*options); !status.ok()) exit_code = fail(status);
  });
}

}  // namespace nereid::cli
