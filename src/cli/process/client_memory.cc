#include "cli/process/client_memory.h"

#include <string>
#include <vector>

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
  // Never destroyed: the core may use a budget until the process ends.
  static auto* const budgets = new std::vector<std::shared_ptr<front::ByteBudget>>;
  budgets->push_back(budget);
  NEREID_ServerCountMemory(hold_memory, release_memory, budget.get());
}

}  // namespace nereid::cli
