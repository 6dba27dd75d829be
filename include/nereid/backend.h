/* What a Triton backend may export for this server beyond tritonbackend.h. Other servers do not
 * look for it. */
#ifndef NEREID_BACKEND_H_
#define NEREID_BACKEND_H_

#include <stdbool.h>

#include "triton/core/tritonbackend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether executing `request` alone waits for nothing and takes some tens of microseconds at most.
 * The server may then call TRITONBACKEND_ModelInstanceExecute for it on the thread that received
 * the request, which saves waking the instance's own thread and costs every other client of that
 * thread the time that it takes. Still one execution at a time for each instance. Called on any
 * thread; must not keep or change the request. Without this function requests run on instance
 * threads. */
__attribute__((visibility("default"))) bool NEREID_RequestIsQuick(TRITONBACKEND_Request* request);

/* Whether the thread that sends a response of `model` may, before TRITONBACKEND_ResponseSend
 * returns, execute quick requests of other models to which the response leads: the next step of an
 * ensemble, a call of a model that calls models. Saves waking a thread for each response of a
 * stream and delays the sender by what they take. Asked for each response; without this function
 * the answer is no. */
__attribute__((visibility("default"))) bool NEREID_LendsThread(TRITONBACKEND_Model* model);

/* What the loaded `model` makes of parameters that its configuration leaves open, as a JSON object
 * of strings: {"max_seq_len": "2048"}. The server shows them in the model's configuration where the
 * parameter is missing, empty or a placeholder that nobody filled in. Asked once, after
 * TRITONBACKEND_ModelInitialize; the text belongs to the model. */
__attribute__((visibility("default"))) const char* NEREID_OpenParameters(
    TRITONBACKEND_Model* model);

#ifdef __cplusplus
}
#endif

#endif /* NEREID_BACKEND_H_ */
