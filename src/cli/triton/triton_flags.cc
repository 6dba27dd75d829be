#include "cli/triton/triton_flags.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "cli/flags/arg_table.h"
#include "cli/flags/flag_values.h"
#include "cli/process/server_process.h"

namespace nereid::cli {
namespace {

StatusOr<const config::Option*> find_triton_flag(const config::Options& flags,
                                                 std::string_view name) {
  const FoundOption found = find_option(flags, name, /*same_dash=*/false);
  if (found.option) return found.option;
  if (!found.candidates.empty())
    return invalid_argument("option '{}' is ambiguous; possibilities: '{}'", name,
                            fmt::join(found.candidates, "' '"));
  return invalid_argument("unrecognized option '{}'.{}", name, nearest_option(flags, name));
}

// A listening port of this process.
struct Port {
  const char* what;
  const std::string& host;
  int number;
  bool reuse;
};

Status check_ports(const std::vector<Port>& ports) {
  for (size_t i = 0; i < ports.size(); ++i) {
    for (size_t j = i + 1; j < ports.size(); ++j) {
      const Port &a = ports[i], &b = ports[j];
      if (a.number == 0 || a.number != b.number || a.host != b.host || (a.reuse && b.reuse)) {
        continue;
      }
      return invalid_argument(
          "The server cannot listen to {} requests and {} requests at the same address and port "
          "{}:{}",
          a.what, b.what, a.host, a.number);
    }
  }
  return ok();
}

// Merges the settings of deprecated flags as in the stock server: their replacements override them,
// in any order on the command line.
void merge_deprecated(TritonOptions& o) {
  bool is_strict = o.strict_model_config.value_or(false);
  if (o.uses_config_as_written && !std::exchange(is_strict, true) && o.strict_model_config) {
    o.warnings.push_back(
        "Overriding deprecated '--strict-model-config' from False to True in favor of "
        "'--disable-auto-complete-config'!");
  }
  o.core.emplace_back("--disable-auto-complete-config", [is_strict](Core core) {
    return TRITONSERVER_ServerOptionsSetStrictModelConfig(core, is_strict);
  });
  for (const auto& entry : o.deprecated_trace) {
    const std::string setting = entry.substr(0, entry.find('=') + 1);
    if (std::any_of(o.trace.begin(), o.trace.end(),
                    [&](const std::string& newer) { return newer.starts_with(setting); })) {
      o.warnings.push_back(fmt::format(
          "Overriding '{}' of a deprecated flag in favor of the value in --trace-config!", entry));
    }
  }
  o.trace.insert(o.trace.begin(), o.deprecated_trace.begin(), o.deprecated_trace.end());
}

Status check(TritonOptions& o) {
  if (o.repositories.empty()) return invalid_argument("--model-repository must be specified");
  if (!o.load_models.empty() && o.control_mode != "explicit") {
    return invalid_argument(
        "Error: Use of '--load-model' requires setting '--model-control-mode=explicit' as well.");
  }
  if (o.has_old_cache_size && !o.cache_name.empty()) {
    return invalid_argument(
        "Error: Incompatible flags --response-cache-byte-size and --cache-config both provided. "
        "Please provide one or the other.");
  }
  if (o.has_old_cache_size) o.cache_name = "local";
  merge_deprecated(o);
  for (front::TlsOptions* tls : {&o.http.tls, &o.grpc.tls}) {
    tls->enabled |= tls->is_mutual;
    if (!tls->enabled && !(tls->server_cert + tls->server_key + tls->root_cert).empty()) {
      o.warnings.push_back(fmt::format(
          "--{0}-server-cert, --{0}-server-key, --{0}-root-cert: no effect without --{0}-use-ssl",
          tls->flags));
    }
  }
  if (o.http.metrics_use_tls && !o.http.tls.enabled) {
    return invalid_argument(
        "--metrics-use-ssl=true needs --http-use-ssl=true, whose certificate it uses");
  }
  if (o.http.metrics_host.empty()) o.http.metrics_host = o.http.host;
  std::vector<Port> ports;
  if (o.allow_http) ports.push_back({"HTTP", o.http.host, o.http.http_port, o.http.reuse_port});
  if (o.allow_grpc) ports.push_back({"GRPC", o.grpc.host, o.grpc.port, o.grpc.reuse_port});
  if (o.allow_metrics) {
    ports.push_back({"metrics", o.http.metrics_host, o.http.metrics_port, false});
  }
  return check_ports(ports);
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

}  // namespace

config::Option row(const char* name, const char* value, const char* help, config::Field field,
                   config::Range range, const char* fallback) {
  return {.name = name + 2,
          .field = std::move(field),
          .help = help,
          .range = range,
          .flag = name,
          .default_text = fallback,
          .value_name = value};
}

config::Option core_bool(TritonOptions& o, const char* name, const char* help, bool fallback,
                         TRITONSERVER_Error* (*set)(Core, bool), bool* copy) {
  const auto act = [&o, set, copy](const config::Option& flag, const std::string& v) -> Status {
    ASSIGN_OR_RETURN(const bool on, value_of<bool>(v));
    if (copy) *copy = on;
    o.set_core(flag, [set, on](Core core) { return set(core, on); });
    return ok();
  };
  return row(name, "BOOL", help, act, {}, fallback ? "true" : "false");
}

config::Option core_text(TritonOptions& o, const char* name, const char* value, const char* help,
                         TRITONSERVER_Error* (*set)(Core, const char*), const char* fallback,
                         std::string* copy) {
  const auto act = [&o, set, copy](const config::Option& flag, const std::string& v) {
    if (copy) *copy = v;
    o.set_core(flag, [set, v](Core core) { return set(core, v.c_str()); });
    return ok();
  };
  return row(name, value, help, act, {}, fallback);
}

config::Options triton_flags(TritonOptions& o) {
  config::Options flags;
  add_server_flags(flags, o);
  add_endpoint_flags(flags, o);
  add_report_flags(flags, o);
  return flags;
}

StatusOr<TritonOptions> parse_triton_flags(const std::vector<std::string>& words) {
  TritonOptions options;
  const config::Options flags = triton_flags(options);
  std::set<std::string> deprecated;  // the deprecated ones given
  options.http.threads = options.grpc.threads = default_event_loops();
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    // mpirun's separator of ranks; launchers also put it behind the last rank.
    if (word == ":" && i + 1 == words.size()) break;
    if (!word.starts_with("--") || word.size() == 2) {
      return invalid_argument("Unexpected argument: {}", word);
    }
    const size_t equals = word.find('=');
    const std::string_view name = word.substr(0, equals);
    if (name == "--help") {
      options.wants_help = true;
      return options;
    }
    ASSIGN_OR_RETURN(const config::Option* flag, find_triton_flag(flags, name));
    const bool takes_value = *flag->value_name != '\0';
    if (!takes_value && equals != word.npos) {
      return invalid_argument("option '{}' doesn't allow an argument", flag->flag);
    }
    if (takes_value && equals == word.npos && i + 1 == words.size()) {
      return invalid_argument("option '{}' requires an argument", flag->flag);
    }
    std::string value;
    if (takes_value)
      value = equals == word.npos ? words[++i] : std::string(word.substr(equals + 1));
    if (flag->is_deprecated && deprecated.insert(flag->flag).second) {
      options.warnings.push_back(fmt::format(
          "Warning: '{}' has been deprecated. Please use {} instead.", flag->flag, flag->help));
    }
    if (const Status status = parse_value(*flag, value); !status.ok()) {
      return Status(status.code(),
                    fmt::format("Bad option: \"{}\".\n{}", flag->flag, message(status)));
    }
  }
  RETURN_IF_ERROR(check(options));
  return options;
}

std::string what_is_open(const TritonOptions& options) {
  std::vector<std::string> ports;
  const auto add = [&](bool is_on, const char* what, const std::string& host) {
    if (is_on && !is_loopback(host)) ports.push_back(fmt::format("{} on {}", what, host));
  };
  add(options.allow_http, "HTTP", options.http.host);
  add(options.allow_grpc, "gRPC", options.grpc.host);
  add(options.allow_metrics, "metrics", options.http.metrics_host);
  if (ports.empty()) return "";
  std::vector<std::string> rights;
  if (options.api_keys.empty() && options.api_key_file.empty()) rights.push_back("no --api-key");
  if (options.http.allow_shared_memory) rights.push_back("client shared memory");
  if (options.control_mode == "explicit") rights.push_back("model control");
  return fmt::format("open to the network: {}; with {}; see docs/security.md",
                     fmt::join(ports, ", "),
                     rights.empty() ? "API keys" : fmt::format("{}", fmt::join(rights, ", ")));
}

std::string triton_usage(const std::string& program) {
  std::string text = fmt::format("Usage: {} [options]\n", program), group;
  TritonOptions options;
  for (const config::Option& flag : triton_flags(options)) {
    if (group != flag.group) text += fmt::format("\n{}:\n", group = flag.group);
    const bool takes_value = *flag.value_name != '\0';
    constexpr size_t kColumn = 30;
    const std::string name = fmt::format("{}{}{}{}", flag.flag, takes_value ? " <" : "",
                                         flag.value_name, takes_value ? ">" : "");
    text += name.size() < kColumn ? fmt::format("  {:{}}", name, kColumn)
                                  : fmt::format("  {}\n{:{}}", name, "", kColumn + 2);
    text += sentence_of(flag) + "\n";
  }
  return wrapped(text);
}

}  // namespace nereid::cli
