// See find_model.h.
#include "cli/hub/find_model.h"

#include <cstdio>

#include "base/log.h"
#include "base/progress.h"
#include "cli/process/process_signals.h"
#include "cli/process/stop_flag.h"

namespace nereid::cli {

StatusOr<hub::HubSettings> hub_settings(const std::filesystem::path& cache_dir) {
  ASSIGN_OR_RETURN(hub::HubSettings settings, hub::settings_from_environment(cache_dir));
  settings.user_agent = "nereid/" NEREID_VERSION;
  return settings;
}

StatusOr<hub::Pulled> pull_model(const hub::HubSettings& settings, const hub::ModelName& model,
                                 bool asks_hub) {
  StatusOr<hub::Pulled> pulled;
  int signal = 0;
  {
    const StopFlag stop;
    pulled = asks_hub ? hub::pull(settings, model, stop.is_set())
                      : hub::find_or_pull(settings, model, stop.is_set());
    signal = stop.signal();
  }
  if (pulled.ok() || signal == 0) return pulled;
  std::fprintf(stderr, "nereid: stopped; the next pull of %s goes on from here\n",
               model.text().c_str());
  end_by(signal);
}

StatusOr<std::filesystem::path> find_hub_model(const std::string& address,
                                               const std::filesystem::path& cache_dir) {
  ASSIGN_OR_RETURN(const hub::ModelName model, hub::parse_model_name(address));
  ASSIGN_OR_RETURN(const hub::HubSettings settings, hub_settings(cache_dir));
  ASSIGN_OR_RETURN(const hub::Pulled pulled, pull_model(settings, model, /*asks_hub=*/false));
  if (pulled.downloaded > 0)
    log_info("pulled {} of {}", size_text(static_cast<double>(pulled.downloaded)), model.text());
  return pulled.model.path;
}

StatusOr<std::optional<std::filesystem::path>> find_cached_model(
    const std::string& address, const std::filesystem::path& cache_dir) {
  ASSIGN_OR_RETURN(const hub::ModelName model, hub::parse_model_name(address));
  ASSIGN_OR_RETURN(const hub::HubSettings settings, hub_settings(cache_dir));
  ASSIGN_OR_RETURN(const auto cached, hub::find_cached(settings, model));
  if (!cached) return std::nullopt;
  return cached->path;
}

}  // namespace nereid::cli
