// Bodies of type multipart/form-data: the fields and files of a form.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace nereid::front {

struct FormPart {
  std::string name;
  std::optional<std::string> file_name;  // as the client wrote it; never a path of this machine
  std::string content_type;              // "": none
  std::string_view body;                 // into the parsed bytes
};

inline constexpr size_t kMaxFormParts = 100;

// Whether the header Content-Type names a form.
bool is_form(std::string_view content_type);

// The parts in order. InvalidArgument names what is wrong and what is allowed: no boundary, a
// boundary that is no token of at most 70 characters, no end, more than kMaxFormParts parts,
// headers of a part beyond 4 KiB or without a name, forms inside forms, encodings. `body` must
// outlive the parts. Time is linear in `body`. Source: RFC 7578.
StatusOr<std::vector<FormPart>> parse_form(std::string_view content_type, std::string_view body);

}  // namespace nereid::front
