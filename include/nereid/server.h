/* Exports of this server's library beyond tritonserver.h, which other servers do not have. */
#ifndef NEREID_SERVER_H_
#define NEREID_SERVER_H_

#include <stdint.h>

#include "triton/core/tritonserver.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A counter that changes whenever a model becomes ready or ceases to be, also on a reload. A caller
 * that has read the server's models needs to read them again only after a change; it must take the
 * counter first. Any thread; does not block. */
__attribute__((visibility("default"))) uint64_t NEREID_ServerModelChanges(
    TRITONSERVER_Server* server);

/* Views of a loaded model, for a person who watches it. */
typedef enum NEREID_view_enum {
  NEREID_VIEW_BATCH,       /* what the sequences did in the batch over the last seconds */
  NEREID_VIEW_PREFIX_TREE, /* the prefixes in the KV cache */
  NEREID_VIEW_PLAN         /* the plan that runs, and a picture of it */
} NEREID_View;

/* A NEREID_View of a model as a JSON object. The caller deletes the message.
 * Unsupported: the model's backend has no views. */
__attribute__((visibility("default"))) TRITONSERVER_Error* NEREID_ServerModelView(
    TRITONSERVER_Server* server, const char* model_name, int64_t model_version, uint32_t view,
    TRITONSERVER_Message** message);

/* Sets the tenant of a request: any id of the client that it belongs to, 0 = unknown. Grammars are
 * compiled by turns of tenants. The steps of an ensemble get their request's tenant. Set before the
 * request is sent. */
__attribute__((visibility("default"))) void NEREID_ServerSetTenant(
    TRITONSERVER_InferenceRequest* request, uint64_t tenant);
/* The tenant of a request that a backend executes. */
struct TRITONBACKEND_Request;
__attribute__((visibility("default"))) uint64_t NEREID_ServerTenant(
    struct TRITONBACKEND_Request* request);

/* Sets a counter for the memory that the core and our backends hold for clients: tensors between
 * the steps of an ensemble, outputs of models, data made of inputs. `hold` is called before bytes
 * are allocated; its error refuses them and is sent to the client. `release` is called for bytes
 * that were not refused. Both are called on any thread. To be set before any server of the process
 * has requests, for all of them; by default nothing is counted. */
typedef TRITONSERVER_Error* (*NEREID_HoldMemoryFn_t)(void* userp, uint64_t byte_size);
typedef void (*NEREID_ReleaseMemoryFn_t)(void* userp, uint64_t byte_size);
__attribute__((visibility("default"))) void NEREID_ServerCountMemory(
    NEREID_HoldMemoryFn_t hold, NEREID_ReleaseMemoryFn_t release, void* userp);

/* Call the counter; for response allocators and backends, too. */
__attribute__((visibility("default"))) TRITONSERVER_Error* NEREID_ServerHoldMemory(
    uint64_t byte_size);
__attribute__((visibility("default"))) void NEREID_ServerReleaseMemory(uint64_t byte_size);

#ifdef __cplusplus
}
#endif

#endif /* NEREID_SERVER_H_ */
