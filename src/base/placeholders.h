// Placeholders of templates left unfilled in a config.pbtxt, outside of its strings.
#pragma once

#include <string>
#include <string_view>

namespace nereid {

// `text` with each bare ${name} replaced: names that end with "data_type" or "datatype" become
// a type (TYPE_FP32 for logits, TYPE_FP16 for features and prompt tables), others 0, the
// values that deployments with unfilled placeholders expect. Strings, comments and line
// numbers stay. `mandatory_line`: the line of the first ${triton_max_batch_size}, which has no
// right default; 0: none.
std::string fill_placeholders(std::string_view text, int* mandatory_line);

}  // namespace nereid
