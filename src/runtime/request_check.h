// Checks of what a client sends, before anything is queued.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "nereid/executor.h"
#include "sched/scheduler.h"

namespace nereid::runtime {

// Generous bounds that keep one request's checks per token cheap.
inline constexpr size_t kMaxEndIds = 128;
inline constexpr size_t kMaxStopWords = 128;
inline constexpr size_t kMaxStopWordTokens = 256;
inline constexpr size_t kMaxStopStrings = 128;
inline constexpr size_t kMaxStopStringBytes = 4096;

// InvalidArgument naming field, value and what is allowed.
Status check_request(const Request& request, const sched::Limits& limits, int32_t vocab_size,
                     bool has_tokenizer);

// The same for the options of an executor.
Status check_config(const ExecutorConfig& config);

}  // namespace nereid::runtime
