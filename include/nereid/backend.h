/* Optional exports of a Triton backend for this server beyond tritonbackend.h, which other servers
 * ignore. */
#ifndef NEREID_BACKEND_H_
#define NEREID_BACKEND_H_

#include <stdbool.h>
#include <stdint.h>

#include "nereid/server.h"
#include "triton/core/tritonbackend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether executing `request` alone does not block and takes some tens of microseconds at most. The
 * server may then call TRITONBACKEND_ModelInstanceExecute for it on the thread that received the
 * request: this saves a wake-up of the instance's thread, and delays all other clients of the
 * receiving thread. There is still one execution at a time for each instance. Called on any thread;
 * must not keep or change the request. Without this function requests run on instance threads. */
__attribute__((visibility("default"))) bool NEREID_RequestIsQuick(TRITONBACKEND_Request* request);

/* Whether the thread that sends a response of `model` may, before TRITONBACKEND_ResponseSend
 * returns, execute quick requests of other models that follow from the response: the next step of
 * an ensemble, a call of a model that calls models. This saves a wake-up for each response of a
 * stream and delays the sender. Called for each response; without this function: false. */
__attribute__((visibility("default"))) bool NEREID_LendsThread(TRITONBACKEND_Model* model);

/* The effective values of parameters that the configuration of the loaded `model` leaves open, as a
 * JSON object of strings: {"max_seq_len": "2048"}. The server shows them in the model's
 * configuration where the parameter is missing, empty or an unfilled placeholder. Called once,
 * after TRITONBACKEND_ModelInitialize; the text belongs to the model. */
__attribute__((visibility("default"))) const char* NEREID_OpenParameters(
    TRITONBACKEND_Model* model);

/* A NEREID_View of the loaded `model` as a JSON object (NEREID_ServerModelView). The caller deletes
 * the message. Called on any thread. Without this function the model has no views. */
__attribute__((visibility("default"))) TRITONSERVER_Error* NEREID_ModelView(
    TRITONBACKEND_Model* model, uint32_t view, TRITONSERVER_Message** message);

#ifdef __cplusplus
}
#endif

#endif /* NEREID_BACKEND_H_ */
