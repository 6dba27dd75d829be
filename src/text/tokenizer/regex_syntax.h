// From the Oniguruma dialect of tokenizer files to PCRE2's.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace nereid::text {

// \s becomes White_Space, \w Alphabetic, M, Nd and Pc, \h a hexadecimal digit; names of scripts
// mean the Script property; (?m) lets a dot match line breaks; classes may be nested and
// intersected
// ([a[b]&&[^c]]). InvalidArgument or Unimplemented names pattern and offset.
StatusOr<std::string> to_pcre2(std::string_view pattern);

}  // namespace nereid::text
