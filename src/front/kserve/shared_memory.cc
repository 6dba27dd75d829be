// Mapping, bounds and routes; see shared_memory.h.
#include "front/kserve/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base64.h"
#include "front/kserve/extensions.h"
#include "front/kserve/json_body.h"
#include "front/kserve/routes.h"

namespace nereid::front {
namespace {

constexpr size_t kMaxRegions = 4096;
constexpr size_t kCudaHandleBytes = 64;
constexpr std::string_view kReservedPrefix = "triton_python_backend_shm_region_";

StatusOr<std::shared_ptr<GuardedRegion>> map_region(const std::string& key, uint64_t offset,
                                                    uint64_t byte_size) {
  // A key is a name, not a path.
  const size_t slash = key.find('/', 1);
  const int fd = slash != std::string::npos || key.find('\0') != std::string::npos
                     ? -1
                     : ::shm_open(key.c_str(), O_RDWR | O_NONBLOCK, 0);
  if (fd < 0) return internal_error("Unable to open shared memory region: '{}'", key);
  struct stat info = {};
  const bool known = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  const auto total = known ? static_cast<uint64_t>(info.st_size) : 0;
  if (byte_size == 0 || offset > total || byte_size > total - offset) {
    ::close(fd);
    return invalid_argument(
        "failed to register shared memory region '{}': invalid args: {} bytes from {} are not in "
        "its {}",
        key, byte_size, offset, total);
  }
  auto region = GuardedRegion::map(fd, offset, byte_size);
  ::close(fd);
  if (!region.ok() && region.status().code() == absl::StatusCode::kInternal) {
    return internal_error("Unable to map shared memory region: '{}'", key);
  }
  return region;
}

Status register_region(SharedMemory& regions, const Request& request) {
  ASSIGN_OR_RETURN(const json::value body, parse_short_body(request.body));
  ASSIGN_OR_RETURN(const auto key, string_member(body, "key"));
  if (!key) return invalid_argument("Shared memory register request has no 'key' field");
  ASSIGN_OR_RETURN(const auto offset, uint_member(body, "offset"));
  ASSIGN_OR_RETURN(const auto byte_size, uint_member(body, "byte_size"));
  if (!byte_size)
    return invalid_argument("Shared memory register request has no 'byte_size' field");
  return regions.add(std::string(request.param("r")), *key, offset.value_or(0), *byte_size);
}

Status register_cuda_region(const Request& request) {
  ASSIGN_OR_RETURN(const json::value body, parse_short_body(request.body));
  const json::value* handle = member(body, "raw_handle");
  if (handle == nullptr) {
    return invalid_argument("Shared memory register request has no 'raw_handle' field");
  }
  ASSIGN_OR_RETURN(const auto text, string_member(*handle, "b64"));
  const auto bytes = decode_base64(text.value_or(""));
  if (!bytes.ok() || bytes->size() != kCudaHandleBytes) {
    return invalid_argument("'raw_handle' must be a valid base64 encoded cudaIpcMemHandle_t");
  }
  return unsupported(
      "CUDA shared memory is not supported: this server has no device memory to "
      "share");
}

}  // namespace

Status SharedMemory::add(const std::string& name, const std::string& key, uint64_t offset,
                         uint64_t byte_size) {
  // shm_open() opens the same object with and without the slash.
  const std::string_view object = std::string_view(key).substr(key.starts_with('/') ? 1 : 0);
  if (object.starts_with(kReservedPrefix)) {
    return invalid_argument(
        "cannot register shared memory region '{}' with key '{}' as the key contains the reserved "
        "prefix '{}'",
        name, key, kReservedPrefix);
  }
  std::lock_guard lock(mutex_);
  if (regions_.contains(name)) {
    return already_exists("shared memory region '{}' already in manager", name);
  }
  if (regions_.size() >= kMaxRegions) {
    return resource_exhausted("{} shared memory regions are registered, no more are allowed",
                              kMaxRegions);
  }
  ASSIGN_OR_RETURN(auto memory, map_region(key, offset, byte_size));
  regions_[name] = {key, offset, byte_size, std::move(memory), std::make_shared<char>()};
  return ok();
}

Status SharedMemory::remove(const std::string& name) {
  std::lock_guard lock(mutex_);
  const auto it = regions_.find(name);
  if (it == regions_.end()) return ok();
  if (it->second.is_in_use()) {
    return internal_error("Cannot unregister shared memory region '{}', it is currently in use.",
                          name);
  }
  regions_.erase(it);
  return ok();
}

Status SharedMemory::remove_all() {
  std::lock_guard lock(mutex_);
  std::erase_if(regions_, [](const auto& row) { return !row.second.is_in_use(); });
  if (regions_.empty()) return ok();
  std::string names;
  for (const auto& [name, _] : regions_) names += name + " ,";
  return internal_error("Failed to unregister the following system shared memory regions: {}",
                        names);
}

StatusOr<std::string> SharedMemory::status(const std::string& name) const {
  std::lock_guard lock(mutex_);
  if (!name.empty() && !regions_.contains(name)) {
    return not_found("Unable to find system shared memory region: '{}'", name);
  }
  json::array out;
  for (const auto& [region, r] : regions_) {
    if (!name.empty() && region != name) continue;
    out.push_back(json::object{
        {"name", region}, {"key", r.key}, {"offset", r.offset}, {"byte_size", r.byte_size}});
  }
  return json::serialize(out);
}

StatusOr<ExternalMemory> SharedMemory::find(const std::string& name, uint64_t offset,
                                            uint64_t byte_size) const {
  std::lock_guard lock(mutex_);
  const auto it = regions_.find(name);
  if (it == regions_.end()) {
    return not_found("Unable to find shared memory region: '{}'", name);
  }
  const Region& r = it->second;
  if (offset >= r.byte_size) {
    return invalid_argument("Invalid offset for shared memory region: '{}'", name);
  }
  if (byte_size > r.byte_size - offset) {
    return invalid_argument("Invalid offset + byte size for shared memory region: '{}'", name);
  }
  if (r.memory->is_lost()) {
    return invalid_argument(
        "shared memory region '{}': its object '{}' has become smaller since it was registered",
        name, r.key);
  }
  return ExternalMemory{
      r.memory->data() + offset, byte_size, r.memory, {r.memory, &r.memory->is_lost()}, r.uses};
}

void add_shared_memory_routes(Router& router, std::shared_ptr<Extensions> extensions,
                              bool is_allowed) {
  const std::shared_ptr<SharedMemory> regions(extensions, &extensions->regions());
  const std::string system = "/v2/systemsharedmemory", cuda = "/v2/cudasharedmemory";
  // Clients use their own regions for inference, so this needs no administrator.
  const auto add = [&](const char* method, const std::string& path, const Handler& handler) {
    const Handler refuse = [](const ExchangePtr& x) {
      x->send(kserve_error(unsupported("{}", kSharedMemoryIsOff)));
    };
    router.add(method, path,
               {Api::kSharedMemory, Access::kCallers, Cost::kNothing, ErrorShape::kKserve},
               is_allowed ? handler : refuse);
  };
  add("POST", system + "/region/{r}/register", [regions](const ExchangePtr& x) {
    x->send(kserve_response(register_region(*regions, x->request())));
  });
  add("POST", cuda + "/region/{r}/register",
      [](const ExchangePtr& x) { x->send(kserve_response(register_cuda_region(x->request()))); });
  add("POST", system + "/register", [](const ExchangePtr& x) {
    x->send(
        kserve_error(400, "'region name' is necessary to register system shared memory region"));
  });
  add("POST", cuda + "/register", [](const ExchangePtr& x) {
    x->send(kserve_error(400, "'region name' is necessary to register cuda shared memory region"));
  });
  for (const std::string path : {"/unregister", "/region/{r}/unregister"}) {
    add("POST", system + path, [regions](const ExchangePtr& x) {
      const std::string name(x->request().param("r"));
      x->send(kserve_response(name.empty() ? regions->remove_all() : regions->remove(name)));
    });
    add("POST", cuda + path, [](const ExchangePtr& x) { x->send(kserve_response(ok())); });
  }
  for (const std::string path : {"/status", "/region/{r}/status"}) {
    add("GET", system + path, [regions](const ExchangePtr& x) {
      x->send(kserve_response(regions->status(std::string(x->request().param("r")))));
    });
    add("GET", cuda + path, [](const ExchangePtr& x) {
      const std::string name(x->request().param("r"));
      if (name.empty()) return x->send(json_response("[]"));
      x->send(
          kserve_error(404, fmt::format("Unable to find cuda shared memory region: '{}'", name)));
    });
  }
}

}  // namespace nereid::front
