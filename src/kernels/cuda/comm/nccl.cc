// The parts of NCCL's interface that are used, declared after its documentation.
#include "kernels/cuda/comm/nccl.h"

#include <dlfcn.h>
#include <stdlib.h>

#include <filesystem>

#include "base/log.h"

namespace nereid::kernels::cuda {
namespace {

using Result = int;  // ncclResult_t
constexpr Result kSuccess = 0;
constexpr int kFloat32 = 7, kBfloat16 = 9;  // ncclDataType_t
constexpr int kSum = 0;                     // ncclRedOp_t

// Functions of the library, without their prefix.
struct NcclApi {
  Result (*get_version)(int* version);
  const char* (*get_error)(Result result);
  Result (*init_all)(void** comms, int size, const int* devices);
  Result (*all_reduce)(const void* in, void* out, size_t count, int type, int op, void* comm,
                       cudaStream_t stream);
  Result (*abort)(void* comm);
  Result (*destroy)(void* comm);
};

template <class F>
bool find_symbol(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

const NcclApi* load_nccl() {
  constexpr char kName[] = "libnccl.so.2";
  // Multicast of switches can put the other programs' GPUs out of service when it fails.
  setenv("NCCL_NVLS_ENABLE", "0", 0);
  std::vector<std::string> candidates;
  if (Dl_info self; dladdr(reinterpret_cast<void*>(&load_nccl), &self) && self.dli_fname)
    candidates.push_back((std::filesystem::path(self.dli_fname).parent_path() / kName).string());
  candidates.push_back(kName);
  for (const std::string& candidate : candidates) {
    void* library = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) continue;
    static NcclApi api;
    if (find_symbol(library, "ncclGetVersion", api.get_version) &&
        find_symbol(library, "ncclGetErrorString", api.get_error) &&
        find_symbol(library, "ncclCommInitAll", api.init_all) &&
        find_symbol(library, "ncclAllReduce", api.all_reduce) &&
        find_symbol(library, "ncclCommAbort", api.abort) &&
        find_symbol(library, "ncclCommDestroy", api.destroy))
      return &api;
    dlclose(library);
  }
  log_info("cuda: {} not found; ranks exchange by our own kernels alone", kName);
  return nullptr;
}

// Never unloaded.
const NcclApi* nccl_api() {
  static const NcclApi* const loaded = load_nccl();
  return loaded;
}

Status nccl_status(Result result, const char* call) {
  if (result == kSuccess) return ok();
  return unavailable("{}: {}", call, nccl_api()->get_error(result));
}

}  // namespace

StatusOr<std::unique_ptr<Nccl>> Nccl::create(std::span<const int> devices) {
  if (!nccl_api()) return unavailable("libnccl.so.2 was not found");
  std::unique_ptr<Nccl> nccl(new Nccl(devices.size()));
  std::vector<void*> comms(devices.size());
  RETURN_IF_ERROR(nccl_status(
      nccl_api()->init_all(comms.data(), static_cast<int>(comms.size()), devices.data()),
      "ncclCommInitAll"));
  for (size_t r = 0; r < comms.size(); ++r) nccl->ranks_[r].handle = comms[r];
  return nccl;
}

Nccl::~Nccl() { end(false); }
void Nccl::abort() { end(true); }

void Nccl::end(bool abort) {
  for (Rank& rank : ranks_) {
    std::lock_guard lock(rank.mutex);
    if (!rank.handle) continue;
    (abort ? nccl_api()->abort : nccl_api()->destroy)(rank.handle);
    rank.handle = nullptr;
  }
}

Status Nccl::all_reduce(int rank, const void* in, void* out, int64_t count, DType type,
                        cudaStream_t stream) {
  Rank& mine = ranks_[static_cast<size_t>(rank)];
  std::lock_guard lock(mine.mutex);
  if (!mine.handle) return unavailable("NCCL's communicator has ended");
  return nccl_status(nccl_api()->all_reduce(in, out, static_cast<size_t>(count),
                                            type == DType::kBF16 ? kBfloat16 : kFloat32, kSum,
                                            mine.handle, stream),
                     "ncclAllReduce");
}

std::string Nccl::version() const {
  int version = 0;
  nccl_api()->get_version(&version);
  return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace nereid::kernels::cuda
