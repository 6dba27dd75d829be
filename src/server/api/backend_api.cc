// C API for backends: backend, model and instance objects, statistics, memory.
#include <algorithm>
#include <cstdlib>

#include "server/api/accessors.h"
#include "server/api/error.h"
#include "server/api/values.h"
#include "server/memory/pinned_pool.h"
#include "server/model/backend_model.h"
#include "server/request/response.h"
#include "server/server.h"

using namespace nereid;          // NOLINT: this file is the C face of what is in there
using namespace nereid::server;  // NOLINT
using nereid::server::of;

TRITONSERVER_Error* TRITONBACKEND_ApiVersion(uint32_t* major, uint32_t* minor) {
  *major = TRITONBACKEND_API_VERSION_MAJOR;
  *minor = TRITONBACKEND_API_VERSION_MINOR;
  return nullptr;
}

NEREID_GETTER(TRITONBACKEND_BackendName, TRITONBACKEND_Backend, const char*, of(x)->name.c_str())
NEREID_GETTER(TRITONBACKEND_BackendConfig, TRITONBACKEND_Backend, TRITONSERVER_Message*,
              &of(x)->config)
NEREID_GETTER(TRITONBACKEND_BackendExecutionPolicy, TRITONBACKEND_Backend,
              TRITONBACKEND_ExecutionPolicy, of(x)->policy)

TRITONSERVER_Error* TRITONBACKEND_BackendSetExecutionPolicy(
    TRITONBACKEND_Backend* backend, TRITONBACKEND_ExecutionPolicy policy) try {
  if (policy != TRITONBACKEND_EXECUTION_BLOCKING &&
      policy != TRITONBACKEND_EXECUTION_DEVICE_BLOCKING) {
    return to_error(
        invalid_argument("TRITONBACKEND_BackendSetExecutionPolicy: unknown execution policy {}",
                         static_cast<int>(policy)));
  }
  of(backend)->policy = policy;
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONBACKEND_BackendArtifacts(TRITONBACKEND_Backend* backend,
                                                   TRITONBACKEND_ArtifactType* artifact_type,
                                                   const char** location) {
  *artifact_type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  *location = of(backend)->dir.c_str();
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_BackendMemoryManager(TRITONBACKEND_Backend* backend,
                                                       TRITONBACKEND_MemoryManager** manager) {
  *manager = reinterpret_cast<TRITONBACKEND_MemoryManager*>(backend);  // stateless
  return nullptr;
}

NEREID_GETTER(TRITONBACKEND_BackendState, TRITONBACKEND_Backend, void*, of(x)->state)
NEREID_SETTER(TRITONBACKEND_BackendSetState, TRITONBACKEND_Backend, void*, of(x)->state = value)
NEREID_SETTER(TRITONBACKEND_BackendAttributeSetParallelModelInstanceLoading,
              TRITONBACKEND_BackendAttribute, bool,
              reinterpret_cast<Backend*>(x)->parallel_instances = value)

TRITONSERVER_Error* TRITONBACKEND_BackendAttributeAddPreferredInstanceGroup(
    TRITONBACKEND_BackendAttribute* attribute, TRITONSERVER_InstanceGroupKind kind, uint64_t count,
    const uint64_t* device_ids, uint64_t id_count) try {
  PreferredGroup group;
  group.kind = kind;
  group.count = static_cast<int32_t>(std::min<uint64_t>(count, INT32_MAX));
  group.gpus.assign(device_ids, device_ids + id_count);
  reinterpret_cast<Backend*>(attribute)->preferred_groups.push_back(std::move(group));
  return nullptr;
}
NEREID_CATCH

NEREID_GETTER(TRITONBACKEND_ModelName, TRITONBACKEND_Model, const char*,
              of(x)->config().name.c_str())
NEREID_GETTER(TRITONBACKEND_ModelVersion, TRITONBACKEND_Model, uint64_t,
              static_cast<uint64_t>(of(x)->version()))

TRITONSERVER_Error* TRITONBACKEND_ModelRepository(TRITONBACKEND_Model* model,
                                                  TRITONBACKEND_ArtifactType* artifact_type,
                                                  const char** location) try {
  *artifact_type = TRITONBACKEND_ARTIFACT_FILESYSTEM;
  *location = of(model)->dir().c_str();
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONBACKEND_ModelConfig(TRITONBACKEND_Model* model, uint32_t config_version,
                                              TRITONSERVER_Message** model_config) try {
  if (config_version != 1) return refuse_config_version(config_version);
  *model_config = new TRITONSERVER_Message{of(model)->config().json};
  return nullptr;
}
NEREID_CATCH

NEREID_GETTER(TRITONBACKEND_ModelAutoCompleteConfig, TRITONBACKEND_Model, bool,
              of(x)->may_auto_complete())

TRITONSERVER_Error* TRITONBACKEND_ModelSetConfig(TRITONBACKEND_Model* model,
                                                 const uint32_t config_version,
                                                 TRITONSERVER_Message* model_config) try {
  if (config_version != 1) return refuse_config_version(config_version);
  return to_error(of(model)->auto_complete(model_config->text));
}
NEREID_CATCH

TRITONSERVER_Error* TRITONBACKEND_ModelServer(TRITONBACKEND_Model* model,
                                              TRITONSERVER_Server** server) try {
  of(model)->mark_calls_models();
  *server = reinterpret_cast<TRITONSERVER_Server*>(of(model)->server());
  return nullptr;
}
NEREID_CATCH

NEREID_GETTER(TRITONBACKEND_ModelBackend, TRITONBACKEND_Model, TRITONBACKEND_Backend*,
              reinterpret_cast<TRITONBACKEND_Backend*>(of(x)->backend()))
NEREID_GETTER(TRITONBACKEND_ModelState, TRITONBACKEND_Model, void*, of(x)->state)
NEREID_SETTER(TRITONBACKEND_ModelSetState, TRITONBACKEND_Model, void*, of(x)->state = value)
NEREID_GETTER(TRITONBACKEND_ModelInstanceName, TRITONBACKEND_ModelInstance, const char*,
              of(x)->name.c_str())
NEREID_GETTER(TRITONBACKEND_ModelInstanceKind, TRITONBACKEND_ModelInstance,
              TRITONSERVER_InstanceGroupKind, of(x)->group.kind)
NEREID_GETTER(TRITONBACKEND_ModelInstanceDeviceId, TRITONBACKEND_ModelInstance, int32_t,
              of(x)->device)
NEREID_GETTER(TRITONBACKEND_ModelInstanceHostPolicy, TRITONBACKEND_ModelInstance,
              TRITONSERVER_Message*, &of(x)->host_policy)
NEREID_GETTER(TRITONBACKEND_ModelInstanceIsPassive, TRITONBACKEND_ModelInstance, bool,
              of(x)->group.is_passive)
NEREID_GETTER(TRITONBACKEND_ModelInstanceProfileCount, TRITONBACKEND_ModelInstance, uint32_t,
              static_cast<uint32_t>(of(x)->group.profiles.size()))

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceProfileName(TRITONBACKEND_ModelInstance* instance,
                                                           const uint32_t index,
                                                           const char** profile_name) try {
  const auto& profiles = of(instance)->group.profiles;
  if (index >= profiles.size())
    return out_of_bounds("instance", "profiles", index, profiles.size());
  *profile_name = profiles[index].c_str();
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceSecondaryDeviceProperties(
    TRITONBACKEND_ModelInstance* instance, uint32_t index, const char** kind, int64_t* id) try {
  const auto& devices = of(instance)->group.secondary_devices;
  if (index >= devices.size())
    return out_of_bounds("instance", "secondary devices", index, devices.size());
  *kind = devices[index].kind.c_str();
  *id = devices[index].id;
  return nullptr;
}
NEREID_CATCH

NEREID_GETTER(TRITONBACKEND_ModelInstanceSecondaryDeviceCount, TRITONBACKEND_ModelInstance,
              uint32_t, static_cast<uint32_t>(of(x)->group.secondary_devices.size()))
NEREID_GETTER(TRITONBACKEND_ModelInstanceModel, TRITONBACKEND_ModelInstance, TRITONBACKEND_Model*,
              reinterpret_cast<TRITONBACKEND_Model*>(of(x)->model))
NEREID_GETTER(TRITONBACKEND_ModelInstanceState, TRITONBACKEND_ModelInstance, void*, of(x)->state)
NEREID_SETTER(TRITONBACKEND_ModelInstanceSetState, TRITONBACKEND_ModelInstance, void*,
              of(x)->state = value)

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportStatistics(
    TRITONBACKEND_ModelInstance* instance, TRITONBACKEND_Request* request, bool success,
    uint64_t exec_start_ns, uint64_t compute_start_ns, uint64_t compute_end_ns,
    uint64_t exec_end_ns) try {
  InferenceRequest* r = of(request);
  auto& statistics = of(instance)->model->statistics();
  if (r->is_padding) return nullptr;
  r->report(TRITONSERVER_TRACE_COMPUTE_START, exec_start_ns);
  r->report(TRITONSERVER_TRACE_COMPUTE_INPUT_END, compute_start_ns);
  r->report(TRITONSERVER_TRACE_COMPUTE_OUTPUT_START, compute_end_ns);
  r->report(TRITONSERVER_TRACE_COMPUTE_END, exec_end_ns);
  if (success) {
    const RequestTimes times = {r->start_ns, exec_start_ns, compute_start_ns, compute_end_ns,
                                exec_end_ns};
    statistics.success(r->batch_size, times);
    if (r->stage_sums != nullptr) r->stage_sums->add(times);
  } else {
    statistics.failure(
        r->context()->was_cancelled_by_error() ? FailureReason::kCanceled : FailureReason::kBackend,
        r->start_ns);
  }
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportBatchStatistics(
    TRITONBACKEND_ModelInstance* instance, uint64_t batch_size, uint64_t exec_start_ns,
    uint64_t compute_start_ns, uint64_t compute_end_ns, uint64_t exec_end_ns) try {
  of(instance)->model->statistics().execution(
      batch_size, {0, exec_start_ns, compute_start_ns, compute_end_ns, exec_end_ns});
  return nullptr;
}
NEREID_CATCH

// Response statistics of a decoupled model, as a backend reports them.
struct TRITONBACKEND_ModelInstanceResponseStatistics {
  Instance* instance = nullptr;
  ResponseFactory factory;
  ResponseTimes times;
};

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsNew(
    TRITONBACKEND_ModelInstanceResponseStatistics** response_statistics) try {
  *response_statistics = new TRITONBACKEND_ModelInstanceResponseStatistics;
  return nullptr;
}
NEREID_CATCH

NEREID_DELETER(TRITONBACKEND_ModelInstanceResponseStatisticsDelete,
               TRITONBACKEND_ModelInstanceResponseStatistics, x)
NEREID_SETTER(TRITONBACKEND_ModelInstanceResponseStatisticsSetModelInstance,
              TRITONBACKEND_ModelInstanceResponseStatistics, TRITONBACKEND_ModelInstance*,
              x->instance = of(value))
NEREID_SETTER(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseFactory,
              TRITONBACKEND_ModelInstanceResponseStatistics, TRITONBACKEND_ResponseFactory*,
              x->factory = *of(value))
NEREID_SETTER(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseStart,
              TRITONBACKEND_ModelInstanceResponseStatistics, uint64_t, x->times.start = value)
NEREID_SETTER(TRITONBACKEND_ModelInstanceResponseStatisticsSetComputeOutputStart,
              TRITONBACKEND_ModelInstanceResponseStatistics, uint64_t,
              x->times.output_start = value)
NEREID_SETTER(TRITONBACKEND_ModelInstanceResponseStatisticsSetResponseEnd,
              TRITONBACKEND_ModelInstanceResponseStatistics, uint64_t, x->times.end = value)

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceResponseStatisticsSetError(
    TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics, TRITONSERVER_Error* error) {
  auto& kind = response_statistics->times.kind;
  kind = ResponseTimes::Kind::kSuccess;
  if (error == nullptr) return nullptr;
  kind = error->code == TRITONSERVER_ERROR_CANCELLED ? ResponseTimes::Kind::kCancel
                                                     : ResponseTimes::Kind::kFail;
  return nullptr;
}

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportResponseStatistics(
    TRITONBACKEND_ModelInstanceResponseStatistics* response_statistics) try {
  const auto& s = *response_statistics;
  if (s.instance == nullptr || s.factory == nullptr) {
    return to_error(invalid_argument(
        "response statistics without a model instance or without a response factory"));
  }
  s.instance->model->statistics().response(s.factory->next_reported_response(), s.times);
  return nullptr;
}
NEREID_CATCH

namespace {

void report_memory(Model& model, const void* owner, TRITONSERVER_BufferAttributes** usage,
                   uint32_t count) {
  std::vector<MemoryUse> uses;
  for (uint32_t i = 0; i < count; ++i) {
    uses.push_back({TRITONSERVER_MemoryTypeString(usage[i]->memory_type), usage[i]->memory_type_id,
                    usage[i]->byte_size});
  }
  model.statistics().set_memory(owner, std::move(uses));
}

}  // namespace

TRITONSERVER_Error* TRITONBACKEND_ModelReportMemoryUsage(TRITONBACKEND_Model* model,
                                                         TRITONSERVER_BufferAttributes** usage,
                                                         uint32_t usage_size) try {
  report_memory(*of(model), model, usage, usage_size);
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONBACKEND_ModelInstanceReportMemoryUsage(
    TRITONBACKEND_ModelInstance* instance, TRITONSERVER_BufferAttributes** usage,
    uint32_t usage_size) try {
  report_memory(*of(instance)->model, instance, usage, usage_size);
  return nullptr;
}
NEREID_CATCH

TRITONSERVER_Error* TRITONBACKEND_MemoryManagerAllocate(TRITONBACKEND_MemoryManager*, void** buffer,
                                                        TRITONSERVER_MemoryType memory_type,
                                                        int64_t, uint64_t byte_size) try {
  if (memory_type == TRITONSERVER_MEMORY_CPU_PINNED) {
    auto pinned = PinnedPool::get().allocate(byte_size);
    if (!pinned.ok()) return to_error(pinned.status());
    *buffer = *pinned;
    return nullptr;
  }
  if (memory_type != TRITONSERVER_MEMORY_CPU) {
    return to_error(unsupported("TRITONBACKEND_MemoryManagerAllocate: memory type {} has no pool",
                                TRITONSERVER_MemoryTypeString(memory_type)));
  }
  *buffer = std::malloc(byte_size);
  if (*buffer != nullptr || byte_size == 0) return nullptr;
  return to_error(unavailable("out of memory for {} bytes", byte_size));
}
NEREID_CATCH

TRITONSERVER_Error* TRITONBACKEND_MemoryManagerFree(TRITONBACKEND_MemoryManager*, void* buffer,
                                                    TRITONSERVER_MemoryType memory_type,
                                                    int64_t) try {
  if (memory_type == TRITONSERVER_MEMORY_CPU_PINNED) {
    if (PinnedPool::get().free(buffer)) return nullptr;
    return to_error(invalid_argument("unexpected pinned memory address, or freed before"));
  }
  std::free(buffer);
  return nullptr;
}
NEREID_CATCH
