// A pass of a speech model as a request to the engine, and its replies as a result. Internal.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "front/bridge/inference_call.h"
#include "front/openai/audio/served_speech.h"
#include "speech/features/log_mel.h"
#include "speech/transcription.h"

namespace nereid::front {

// Inputs of the engine. A request has, beside those of other requests:
//   encoder_input_features [1, frames, num_mels], encoder_output_lengths [1, 1] (frames / 2), and
// decoder_input_ids [1, n], the prompt.
//   timestamp_rules [1, 4]: first time stamp, <|notimestamps|>, the end of text, index of the
//   latest
// first time stamp (-1: any); see Request::timestamp_rules. begin_suppress_tokens [1, n].
//   alignment_heads [1, 2 n]: layer, head, ... of which alignment_scores [1, n, prompt's tokens,
// encoder's positions] FP32 are given, the decoder's attention before its softmax.
inline constexpr char kFeaturesInput[] = "encoder_input_features";
inline constexpr char kRulesInput[] = "timestamp_rules";
inline constexpr char kSuppressFirstInput[] = "begin_suppress_tokens";
inline constexpr char kAlignmentInput[] = "alignment_heads";
inline constexpr char kAlignmentOutput[] = "alignment_scores";

// Computes the features: some 10 ms. Unimplemented names an input that the engine lacks.
StatusOr<InferenceSpec> pass_request(const ServedSpeech& speech, const ModelInfo& engine,
                                     const speech::Features& features, const speech::Pass& pass);

// Adds one of the pass's replies to the result. Internal: tensors that are not of the pass.
Status add_reply(const InferenceReply& reply, const speech::Pass& pass, speech::PassResult& result);

}  // namespace nereid::front
