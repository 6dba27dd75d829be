// Template placeholders that were not filled in, outside the strings of a config.pbtxt.
#pragma once

#include <string>
#include <string_view>

namespace nereid {

// `text` with each bare ${name} replaced: names that end with "data_type" or "datatype" become a
// type (TYPE_FP32 for logits, TYPE_FP16 for features and prompt tables), others 0, as the
// deployments that leave them so expect. Strings and comments stay as they are. Lines keep their
// numbers. `mandatory_line` is that of the first ${triton_max_batch_size}, for which no default is
// right; 0: there is none.
std::string fill_placeholders(std::string_view text, int* mandatory_line);

}  // namespace nereid
