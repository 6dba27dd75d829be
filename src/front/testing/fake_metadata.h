// Metadata of the fake server's models, as JSON text.
#pragma once

namespace nereid::front {

inline const char kLlmMetadata[] =
    R"({"name":"tensorrt_llm","versions":["1"],"platform":"tensorrtllm","inputs":[
{"name":"input_ids","datatype":"INT32","shape":[-1,-1]},
{"name":"input_lengths","datatype":"INT32","shape":[-1,1]},
{"name":"request_output_len","datatype":"INT32","shape":[-1,1]},
{"name":"end_id","datatype":"INT32","shape":[-1,1]},
{"name":"stop_words_list","datatype":"INT32","shape":[-1,2,-1]},
{"name":"temperature","datatype":"FP32","shape":[-1,1]},
{"name":"runtime_top_k","datatype":"INT32","shape":[-1,1]},
{"name":"runtime_top_p","datatype":"FP32","shape":[-1,1]},
{"name":"random_seed","datatype":"UINT64","shape":[-1,1]},
{"name":"min_length","datatype":"INT32","shape":[-1,1]},
{"name":"num_return_sequences","datatype":"INT32","shape":[-1,1]},
{"name":"exclude_input_in_output","datatype":"BOOL","shape":[-1,1]},
{"name":"best_of","datatype":"INT32","shape":[-1,1]},
{"name":"beam_width","datatype":"INT32","shape":[-1,1]},
{"name":"len_penalty","datatype":"FP32","shape":[-1,1]},
{"name":"early_stopping","datatype":"BOOL","shape":[-1,1]},
{"name":"repetition_penalty","datatype":"FP32","shape":[-1,1]},
{"name":"presence_penalty","datatype":"FP32","shape":[-1,1]},
{"name":"frequency_penalty","datatype":"FP32","shape":[-1,1]},
{"name":"prompt_ignore_length","datatype":"INT32","shape":[-1,1]},
{"name":"temperature_last","datatype":"BOOL","shape":[-1,1]},
{"name":"logit_bias_ids","datatype":"INT32","shape":[-1,-1]},
{"name":"logit_bias_values","datatype":"FP32","shape":[-1,-1]},
{"name":"bad_words_list","datatype":"INT32","shape":[-1,2,-1]},
{"name":"stop_strings","datatype":"BYTES","shape":[-1,-1]},
{"name":"return_log_probs","datatype":"BOOL","shape":[-1,1]},
{"name":"raw_log_probs","datatype":"BOOL","shape":[-1,1]},
{"name":"num_top_log_probs","datatype":"INT32","shape":[-1,1]},
{"name":"num_prompt_log_probs","datatype":"INT32","shape":[-1,1]},
{"name":"priority","datatype":"FP32","shape":[-1,1]},
{"name":"guided_decoding_guide_type","datatype":"BYTES","shape":[-1,1]},
{"name":"guided_decoding_guide","datatype":"BYTES","shape":[-1,1]},
{"name":"prompt_embeds","datatype":"BF16","shape":[-1,-1,-1]},
{"name":"pooling","datatype":"BYTES","shape":[-1,1]},
{"name":"lora_task_id","datatype":"UINT64","shape":[-1,1]},
{"name":"lora_path","datatype":"BYTES","shape":[-1,1]},
{"name":"streaming","datatype":"BOOL","shape":[-1,1]}],
"outputs":[{"name":"output_ids","datatype":"INT32","shape":[-1,-1,-1]},
{"name":"sequence_length","datatype":"INT32","shape":[-1,-1]},
{"name":"embedding","datatype":"FP32","shape":[-1,-1]}]})";

// In front of the inputs of a language model.
inline const char kSpeechInputs[] = R"("inputs":[
{"name":"encoder_input_features","datatype":"FP32","shape":[-1,-1,-1]},
{"name":"encoder_output_lengths","datatype":"INT32","shape":[-1,1]},
{"name":"decoder_input_ids","datatype":"INT32","shape":[-1,-1]},
{"name":"allowed_token_ids","datatype":"INT32","shape":[-1,-1]},
{"name":"timestamp_rules","datatype":"INT32","shape":[-1,4]},
{"name":"begin_suppress_tokens","datatype":"INT32","shape":[-1,-1]},
{"name":"alignment_heads","datatype":"INT32","shape":[-1,-1]},)";

inline const char kPictureInputs[] = R"("inputs":[
{"name":"image_patches","datatype":"FP32","shape":[-1,-1,-1]},
{"name":"image_grids","datatype":"INT32","shape":[-1,-1,3]},
{"name":"image_token_spans","datatype":"INT32","shape":[-1,-1,2]},
{"name":"image_tiles","datatype":"INT32","shape":[-1,-1,4]},)";

inline const char kTypesMetadata[] =
    R"({"name":"types","versions":["1"],"platform":"x","inputs":[
{"name":"text","datatype":"BYTES","shape":[-1,1]},{"name":"words","datatype":"BYTES","shape":[-1,-1]},
{"name":"count","datatype":"INT32","shape":[-1,1]},{"name":"small","datatype":"UINT8","shape":[-1,1]},
{"name":"seed","datatype":"UINT64","shape":[-1,1]},{"name":"flag","datatype":"BOOL","shape":[-1,1]},
{"name":"heat","datatype":"FP32","shape":[-1,1]},{"name":"pair","datatype":"INT32","shape":[-1,2]},
{"name":"table","datatype":"FP32","shape":[-1,2,2]},{"name":"half","datatype":"FP16","shape":[-1,1]}],
"outputs":[]})";

}  // namespace nereid::front
