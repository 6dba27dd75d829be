// config.pbtxt: any bytes give a configuration or an error.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "server/model_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = nereid::server::parse_model_config(text, "m/config.pbtxt", "m");
  if (config.ok() && config->json.empty()) __builtin_trap();
  return 0;
}
