// Parses the metrics page; see load_report.h.
#include "front/kserve/load_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <optional>
#include <string_view>

#include "base/log.h"
#include "front/bridge/server_metrics.h"

namespace nereid::front {
namespace {

constexpr char kFormatHeader[] = "endpoint-load-metrics-format";
constexpr std::string_view kFamily = "nv_trt_llm_kv_cache_block_metrics{";

struct CacheBlocks {
  double max = 0, used = 0, tokens_per = 0;
};

struct CacheLoad {
  double utilization = 0;
  double capacity = 0;  // tokens
};

// Parses one line of the family, from behind the "{". The other labels identify the cache.
void read_series(std::string_view line, std::map<std::string, CacheBlocks>& caches) {
  constexpr std::string_view kKind = "kv_cache_block_type=\"";
  const size_t close = line.rfind('}');
  const size_t begin = line.find(kKind);
  if (close == line.npos || begin == line.npos || begin > close) return;
  const size_t value = begin + kKind.size();
  const size_t end = line.find('"', value);
  if (end == line.npos || end > close) return;
  const std::string_view kind = line.substr(value, end - value);
  std::string owner(line.substr(0, begin));
  owner += line.substr(end, close - end);
  CacheBlocks& blocks = caches[owner];
  const double number = std::strtod(std::string(line.substr(close + 1)).c_str(), nullptr);
  if (kind == "max") blocks.max = number;
  if (kind == "used") blocks.used = number;
  if (kind == "tokens_per") blocks.tokens_per = number;
}

std::optional<CacheLoad> read_load(std::string_view page) {
  std::map<std::string, CacheBlocks> caches;
  while (!page.empty()) {
    const std::string_view line = page.substr(0, page.find('\n'));
    page.remove_prefix(std::min(page.size(), line.size() + 1));
    if (line.starts_with(kFamily)) read_series(line.substr(kFamily.size()), caches);
  }
  double used = 0, capacity = 0;
  for (const auto& [owner, blocks] : caches) {
    used += blocks.used * blocks.tokens_per;
    capacity += blocks.max * blocks.tokens_per;
  }
  if (capacity <= 0) return std::nullopt;
  return CacheLoad{used / capacity, capacity};
}

}  // namespace

bool LoadReport::is_asked(const Request& request) {
  const std::string* format = find_header(request.headers, kFormatHeader);
  return format != nullptr && (*format == "json" || *format == "text");
}

LoadReport::LoadReport(TRITONSERVER_Server* server, const Request& request) {
  if (!is_asked(request)) return;
  const auto page = server_metrics_text(server);
  const auto load = page.ok() ? read_load(*page) : std::nullopt;
  if (!load) {
    log_error("endpoint-load-metrics: no model reports nv_trt_llm_kv_cache_block_metrics");
    return;
  }
  const auto capacity = static_cast<uint64_t>(load->capacity);
  text_ =
      *find_header(request.headers, kFormatHeader) == "json"
          ? fmt::format(
                R"(JSON {{"named_metrics":{{"kv_cache_utilization":{},"max_token_capacity":{}}}}})",
                load->utilization, capacity)
          : fmt::format(
                "TEXT named_metrics.kv_cache_utilization={}, "
                "named_metrics.max_token_capacity={}",
                load->utilization, capacity);
}

void LoadReport::add_to(Response& head) const {
  if (!text_.empty()) head.headers.push_back({"endpoint-load-metrics", text_});
}

}  // namespace nereid::front
