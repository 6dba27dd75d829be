#include "cli/process/client_memory.h"

#include "nereid/server.h"

namespace nereid::cli {
namespace {

TRITONSERVER_Error* hold_memory(void* budget, uint64_t byte_size) {
  const Status status = static_cast<front::ByteBudget*>(budget)->hold(byte_size);
  if (status.ok()) return nullptr;
  return TRITONSERVER_ErrorNew(TRITONSERVER_ERROR_UNAVAILABLE,
                               std::string(message(status)).c_str());
}

void release_memory(void* budget, uint64_t byte_size) {
  static_cast<front::ByteBudget*>(budget)->release(byte_size);
}

}  // namespace

void count_client_memory(const std::shared_ptr<front::ByteBudget>& budget) {
  // Leaked: the core may use it until the process ends.
  const auto* kept = new std::shared_ptr(budget);
  NEREID_ServerCountMemory(hold_memory, release_memory, kept->get());
}

}  // namespace nereid::cli
