// Readable JSON: one member per line, four spaces per level.
#pragma once

#include <string>

#include "base/json.h"

namespace nereid::convert {

std::string pretty_json(const json::value& value);

}  // namespace nereid::convert
