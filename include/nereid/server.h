/* What this server's library exports beyond tritonserver.h. Other servers do not have it. */
#ifndef NEREID_SERVER_H_
#define NEREID_SERVER_H_

#include <stdint.h>

#include "triton/core/tritonserver.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A number that has another value whenever models have become ready or stopped being it, those that
 * were loaded again too: who has read what the server shows of its models needs to read it again
 * only then. Take the number first. On any thread; waits for nothing. */
__attribute__((visibility("default"))) uint64_t NEREID_ServerModelChanges(
    TRITONSERVER_Server* server);

/* Whose request it is, by any number (0: nobody's in particular): tenants take turns where requests
 * wait to be prepared. The steps of an ensemble have their request's. To be set before the request
 * is sent. */
__attribute__((visibility("default"))) void NEREID_ServerSetTenant(
    TRITONSERVER_InferenceRequest* request, uint64_t tenant);
/* For backends: of a request that they have. */
struct TRITONBACKEND_Request;
__attribute__((visibility("default"))) uint64_t NEREID_ServerTenant(
    struct TRITONBACKEND_Request* request);

/* Memory that the process holds for its clients, beside what front ends hold themselves: tensors
 * between the steps of an ensemble, outputs of models, what our backends make of inputs. Whoever
 * runs the front ends may count it. `hold` is told of bytes before they are allocated and returns
 * an error, which the client gets, to refuse them; `release` of those that were not refused. Both
 * on any thread. For all servers of the process, before any of them has requests. Without a call
 * nothing is counted. */
typedef TRITONSERVER_Error* (*NEREID_HoldMemoryFn_t)(void* userp, uint64_t byte_size);
typedef void (*NEREID_ReleaseMemoryFn_t)(void* userp, uint64_t byte_size);
__attribute__((visibility("default"))) void NEREID_ServerCountMemory(
    NEREID_HoldMemoryFn_t hold, NEREID_ReleaseMemoryFn_t release, void* userp);

/* Tell them, also from response allocators and backends. */
__attribute__((visibility("default"))) TRITONSERVER_Error* NEREID_ServerHoldMemory(
    uint64_t byte_size);
__attribute__((visibility("default"))) void NEREID_ServerReleaseMemory(uint64_t byte_size);

#ifdef __cplusplus
}
#endif

#endif /* NEREID_SERVER_H_ */
