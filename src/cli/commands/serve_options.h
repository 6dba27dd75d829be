// Options of `nereid serve`.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "cli/flags/options.h"
#include "cli/process/joined.h"
#include "cli/process/server_process.h"

namespace nereid::cli {

struct AccessFlags {
  std::vector<std::string> http_groups, grpc_groups, origins, hosts;
  front::TlsOptions tls;
};

struct ServeOptions {
  ModelOptions model;
  std::filesystem::path config_file;  // empty: the default one, if it is there
  bool no_config = false;
  std::string model_name;
  std::string port_file;
  ServerProcessOptions process;
  AccessFlags access;
  HostFlags hosts;
  std::vector<std::string> lora;  // name=DIR
  std::filesystem::path lora_load_dir;
  std::filesystem::path tokenizer;  // empty: the model's own
  std::string chat_template;        // a file or the text; empty: the tokenizer's
  std::function<void(const std::string& url)> when_ready;
  int32_t exit_timeout_seconds = 30;
  bool ui = true;  // browsers get the web page
};

// The options of the server itself, beside those of the engine.
config::Options server_options(ServeOptions& options);

// Adds the flags of `nereid serve` to `command`, which fill `options`.
void declare_serve_flags(CLI::App& command, ServeOptions& options);

}  // namespace nereid::cli
