#include "server/start_tables.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "base/log.h"
#include "server/batching/rate_limiter.h"

namespace nereid::server {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  for (size_t begin = 0, end = 0; end != std::string::npos; begin = end + 1) {
    end = text.find('\n', begin);
    out.push_back(text.substr(begin, end - begin));
  }
  return out;
}

const char* mode_name(TRITONSERVER_ModelControlMode mode) {
  switch (mode) {
    case TRITONSERVER_MODEL_CONTROL_NONE:
      return "MODE_NONE";
    case TRITONSERVER_MODEL_CONTROL_POLL:
      return "MODE_POLL";
    case TRITONSERVER_MODEL_CONTROL_EXPLICIT:
      return "MODE_EXPLICIT";
  }
  return "MODE_NONE";
}

}  // namespace

std::string format_table(const std::vector<TableRow>& rows) {
  const size_t num_columns = rows.front().size();
  std::vector<size_t> width(num_columns, 0);
  std::vector<std::vector<std::vector<std::string>>> cells;  // row, column, line
  for (const auto& row : rows) {
    auto& lines = cells.emplace_back();
    for (size_t c = 0; c < num_columns; ++c) {
      lines.push_back(lines_of(row[c]));
      for (const auto& line : lines.back()) width[c] = std::max(width[c], line.size());
    }
  }
  std::string rule = "+";
  for (const size_t w : width) rule += fmt::format("{:-^{}}+", "", w + 2);
  std::string text = "\n" + rule + "\n";
  for (size_t r = 0; r < cells.size(); ++r) {
    size_t height = 0;
    for (const auto& lines : cells[r]) height = std::max(height, lines.size());
    for (size_t line = 0; line < height; ++line) {
      text += "|";
      for (size_t c = 0; c < num_columns; ++c) {
        const auto& lines = cells[r][c];
        text += fmt::format(" {:{}} |", line < lines.size() ? lines[line] : "", width[c]);
      }
      text += "\n";
    }
    if (r == 0) text += rule + "\n";
  }
  return text + rule + "\n";
}

void log_loaded(ModelManager& models) {
  std::vector<TableRow> agents = {{"Repository Agent", "Path"}};
  for (const auto& agent : models.agents()) agents.push_back({agent.name, agent.path});
  log_lines(format_table(agents));
  std::vector<TableRow> backends = {{"Backend", "Path", "Config"}};
  for (const auto& backend : models.backends()) {
    backends.push_back({backend.name, backend.path, backend.config});
  }
  log_lines(format_table(backends));
  std::vector<TableRow> rows = {{"Model", "Version", "Status"}};
  for (const auto& model : models.table()) {
    std::string status = model.reason;
    if (model.version > 0) {
      status = state_name(model.state) + (status.empty() ? "" : ": " + status);
    }
    rows.push_back({model.name, model.version > 0 ? std::to_string(model.version) : "-", status});
  }
  log_lines(format_table(rows));
}

void log_options(const ServerOptions& options, const UsableGpus& gpus, std::string_view version,
                 const std::vector<std::string>& extensions) {
  std::vector<TableRow> rows = {
      {"Option", "Value"},
      {"server_id", options.id},
      {"server_version", std::string(version)},
      {"server_extensions", fmt::format("{}", fmt::join(extensions, " "))}};
  for (size_t i = 0; i < options.repositories.size(); ++i) {
    rows.push_back({fmt::format("model_repository_path[{}]", i), options.repositories[i]});
  }
  rows.push_back({"model_control_mode", mode_name(options.control_mode)});
  size_t number = 0;
  for (const auto& model : options.startup_models) {
    rows.push_back({fmt::format("startup_models_{}", number++), model});
  }
  const auto flag = [](bool on) { return std::string(on ? "1" : "0"); };
  rows.push_back({"strict_model_config", flag(options.strict_model_config)});
  rows.push_back({"model_config_name", options.model_config_name});
  rows.push_back({"rate_limit", options.limit_rates ? "EXEC_COUNT" : "OFF"});
  number = 0;
  for (const auto& [key, count] : options.rate_resources) {
    const auto& [device, name] = key;
    const std::string where = device == RateLimiter::kGlobal ? "global"
                              : device == RateLimiter::kEveryDevice
                                  ? "every device"
                                  : fmt::format("device {}", device);
    rows.push_back({fmt::format("rate_limit_resource[{}]", number++),
                    fmt::format("{}: {}, {}", name, count, where)});
  }
  rows.push_back({"pinned_memory_pool_byte_size", std::to_string(options.pinned_pool_bytes)});
  for (const int32_t gpu : gpus.ids) {
    rows.push_back({fmt::format("cuda_memory_pool_byte_size{{{}}}", gpu), "0"});
  }
  rows.push_back(
      {"min_supported_compute_capability", fmt::format("{:.1f}", options.min_compute_capability)});
  rows.push_back({"strict_readiness", flag(options.strict_readiness)});
  rows.push_back({"exit_timeout", std::to_string(options.exit_timeout_s)});
  rows.push_back({"cache_enabled", flag(!options.cache_name.empty())});
  log_lines(format_table(rows));
}

}  // namespace nereid::server
