// The tables of filters: on text and numbers (filters.cc), on sequences (filters_seq.cc).
#pragma once

#include <string_view>

#include "text/jinja/evaluator.h"

namespace nereid::text::jinja {

using Filter = Value (*)(Evaluator&, const Value& subject, const Args&);

// Null for unknown names.
Filter find_text_filter(std::string_view name);
Filter find_sequence_filter(std::string_view name);
bool has_filter(std::string_view name);

}  // namespace nereid::text::jinja
