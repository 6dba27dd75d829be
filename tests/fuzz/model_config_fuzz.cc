// Configurations: any bytes give a configuration or an error. Behind a first byte 'j' they are the
// JSON of a load, which comes over the network; otherwise they are a config.pbtxt.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "server/config/model_config.h"

namespace {

nereid::StatusOr<nereid::server::ModelConfig> parse(std::string_view text) {
  if (!text.starts_with('j')) {
    return nereid::server::parse_model_config(text, "m/config.pbtxt", "m");
  }
  nereid::server::ConfigSource source;
  source.text = text.substr(1);
  source.is_json = true;
  source.model = "m";
  return nereid::server::parse_model_config(source);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto config = parse({reinterpret_cast<const char*>(data), size});
  if (config.ok() && config->json.empty()) __builtin_trap();
  return 0;
}
