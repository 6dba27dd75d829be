#include "runtime/adapters/adapter_cache.h"

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

namespace nereid::runtime {

Status AdapterCache::load(const LoraDirectory& directory) {
  ASSIGN_OR_RETURN(auto adapter, read_adapter(directory, bounds_));
  const std::lock_guard lock(mutex_);
  if (entries_.contains(directory.task_id))
    return invalid_argument("{}: task id {} is taken", directory.path.string(), directory.task_id);
  const Status status = put(std::move(adapter), /*stays=*/true);
  return status.ok() ? ok() : annotate(status, directory.path.string());
}

Status AdapterCache::prefetch(const std::filesystem::path& folder) {
  std::error_code error;
  std::vector<std::filesystem::path> paths;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error))
    paths.push_back(at->path());
  if (error) return invalid_argument("{}: {}", folder.string(), error.message());
  std::ranges::sort(paths);
  for (const std::filesystem::path& path : paths) {
    const std::string name = path.filename().string();
    LoraDirectory directory{.path = path};
    const char* const end = name.data() + name.size();
    const auto [last, wrong] = std::from_chars(name.data(), end, directory.task_id);
    if (wrong != std::errc() || last != end)
      return invalid_argument("{}: '{}' is not a task id", folder.string(), name);
    ASSIGN_OR_RETURN(auto adapter, read_adapter(directory, bounds_));
    const std::lock_guard lock(mutex_);
    if (entries_.contains(directory.task_id))
      return invalid_argument("{}: task id {} is taken", path.string(), directory.task_id);
    RETURN_IF_ERROR(put(std::move(adapter), /*stays=*/false));
  }
  return ok();
}

StatusOr<std::shared_ptr<const Adapter>> AdapterCache::find(const LoraConfig& lora) {
  if (bounds_.modules.empty())
    return invalid_argument("lora: task id {} is not allowed; the model takes no adapters",
                            lora.task_id);
  std::shared_ptr<const Adapter> given, held;
  if (!lora.weights.empty() || !lora.config.empty()) {
    ASSIGN_OR_RETURN(given, adapter_of(lora, bounds_));
  }
  std::unique_lock lock(mutex_);
  held = use(lora.task_id);
  ++(held ? num_hits_ : num_misses_);
  if (!held && !given && !lora.folder.empty()) {
    lock.unlock();  // files are read without the lock
    ASSIGN_OR_RETURN(given, read_adapter({lora.task_id, lora.folder, lora.root}, bounds_));
    lock.lock();
    held = use(lora.task_id);
  }
  if (!held && !given)
    return invalid_argument(
        "lora: task id {} is not in the cache of {} adapters; its first request, and the first "
        "after it was evicted, must bring weights and config",
        lora.task_id, entries_.size());
  if (!held) {
    RETURN_IF_ERROR(put(given, /*stays=*/false));
    return given;
  }
  if (given && given->key != held->key)
    return invalid_argument("lora: task id {} has other weights already; give these another id",
                            lora.task_id);
  return held;
}

std::shared_ptr<const Adapter> AdapterCache::use(uint64_t task_id) {
  const auto found = entries_.find(task_id);
  if (found == entries_.end()) return nullptr;
  found->second.last_use = ++num_uses_;
  return found->second.adapter;
}

void AdapterCache::add_stats(AdapterStats& stats) const {
  const std::lock_guard lock(mutex_);
  stats.num_held = std::ssize(entries_);
  stats.bytes = static_cast<int64_t>(bytes_);
  stats.max_bytes = static_cast<int64_t>(max_bytes_);
  stats.num_hits = num_hits_;
  stats.num_misses = num_misses_;
  stats.num_evictions = num_evictions_;
}

Status AdapterCache::put(std::shared_ptr<const Adapter> adapter, bool stays) {
  const size_t bytes = adapter->bytes();
  while (bytes_ + bytes > max_bytes_) {
    auto victim = entries_.end();
    for (auto it = entries_.begin(); it != entries_.end(); ++it)
      if (!it->second.stays && it->second.adapter.use_count() == 1 &&
          (victim == entries_.end() || it->second.last_use < victim->second.last_use))
        victim = it;
    if (victim == entries_.end())
      return resource_exhausted(
          "lora: {} bytes of task id {} do not fit beside {} bytes of adapters in use; at most {} "
          "together are allowed (host_cache_bytes)",
          bytes, adapter->task_id, bytes_, max_bytes_);
    bytes_ -= victim->second.adapter->bytes();
    entries_.erase(victim);
    ++num_evictions_;
  }
  bytes_ += bytes;
  const uint64_t id = adapter->task_id;
  entries_[id] = {std::move(adapter), ++num_uses_, stays};
  return ok();
}

}  // namespace nereid::runtime
