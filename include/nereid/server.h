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

#ifdef __cplusplus
}
#endif

#endif /* NEREID_SERVER_H_ */
