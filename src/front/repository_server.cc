// A server over a model repository for tests: the flags of the stock server that the replay needs.
#include <signal.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "base/log.h"
#include "front/grpc/server.h"
#include "front/kserve/extensions.h"
#include "front/server.h"

namespace {

int usage(const char* flag) {
  std::fprintf(stderr, "unknown flag or missing value: %s\n", flag);
  return 2;
}

TRITONSERVER_ModelControlMode control_mode(const std::string& value) {
  if (value == "explicit") return TRITONSERVER_MODEL_CONTROL_EXPLICIT;
  return value == "poll" ? TRITONSERVER_MODEL_CONTROL_POLL : TRITONSERVER_MODEL_CONTROL_NONE;
}

}  // namespace

int main(int argc, char** argv) {
  nereid::init_logging();
  nereid::front::HttpOptions http;
  http.host = "127.0.0.1";
  http.metrics_port = -1;
  nereid::front::GrpcOptions grpc;
  grpc.host = http.host;
  grpc.port = -1;  // none
  std::vector<std::string> trace;
  TRITONSERVER_ServerOptions* options = nullptr;
  TRITONSERVER_ServerOptionsNew(&options);
  TRITONSERVER_ServerOptionsSetStrictModelConfig(options, false);
  TRITONSERVER_ServerOptionsSetExitOnError(options, false);
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    const size_t equals = flag.find('=');
    if (equals == std::string::npos) return usage(argv[i]);
    const std::string name = flag.substr(0, equals), value = flag.substr(equals + 1);
    if (name == "--model-repository") {
      TRITONSERVER_ServerOptionsSetModelRepositoryPath(options, value.c_str());
    } else if (name == "--backend-directory") {
      TRITONSERVER_ServerOptionsSetBackendDirectory(options, value.c_str());
    } else if (name == "--model-control-mode") {
      TRITONSERVER_ServerOptionsSetModelControlMode(options, control_mode(value));
    } else if (name == "--load-model") {
      TRITONSERVER_ServerOptionsSetStartupModel(options, value.c_str());
    } else if (name == "--cache-size") {
      const std::string json = "{\"size\":\"" + value + "\"}";
      TRITONSERVER_ErrorDelete(
          TRITONSERVER_ServerOptionsSetCacheConfig(options, "local", json.c_str()));
    } else if (name == "--http-header-forward-pattern") {
      http.header_forward_pattern = value;
    } else if (name == "--trace-config") {
      trace.push_back(value);
    } else if (name == "--http-port") {
      http.http_port = std::stoi(value);
    } else if (name == "--grpc-port") {
      grpc.port = std::stoi(value);
    } else if (name == "--grpc-threads") {
      grpc.threads = std::stoi(value);
    } else if (name == "--grpc-header-forward-pattern") {
      grpc.header_forward_pattern = value;
    } else if (name == "--grpc-response-compression") {
      grpc.response_compression_level = value;
    } else {
      return usage(argv[i]);
    }
  }
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  TRITONSERVER_Server* server = nullptr;
  TRITONSERVER_Error* error = TRITONSERVER_ServerNew(&server, options);
  TRITONSERVER_ServerOptionsDelete(options);
  if (error != nullptr) {
    std::fprintf(stderr, "error: creating server: %s - %s\n", TRITONSERVER_ErrorCodeString(error),
                 TRITONSERVER_ErrorMessage(error));
    TRITONSERVER_ErrorDelete(error);
    return 1;
  }
  {
    auto trace_options = nereid::front::parse_trace_config(trace);
    if (!trace_options.ok()) {
      std::fprintf(stderr, "%s\n", trace_options.status().ToString().c_str());
      return 1;
    }
    auto tracer = nereid::front::Tracer::create(server, *trace_options);
    if (!tracer.ok()) {
      std::fprintf(stderr, "%s\n", tracer.status().ToString().c_str());
      return 1;
    }
    http.tracer = grpc.tracer = *tracer;
    http.extensions = grpc.extensions = std::make_shared<nereid::front::Extensions>();
    std::unique_ptr<nereid::front::GrpcServer> grpc_server;
    if (grpc.port >= 0) {
      auto started = nereid::front::GrpcServer::start(server, grpc);
      if (!started.ok()) {
        std::fprintf(stderr, "%s\n", started.status().ToString().c_str());
        return 1;
      }
      grpc_server = *std::move(started);
    }
    auto front = nereid::front::HttpServer::start(server, http);
    if (!front.ok()) {
      std::fprintf(stderr, "%s\n", front.status().ToString().c_str());
      return 1;
    }
    std::printf("http=%d\n", (*front)->http_port());
    if (grpc_server) std::printf("grpc=%d\n", grpc_server->port());
    std::fflush(stdout);
    int received = 0;
    sigwait(&signals, &received);
    if (grpc_server) grpc_server->stop(std::chrono::seconds(5));
    (*front)->stop(std::chrono::seconds(5));
  }
  error = TRITONSERVER_ServerStop(server);
  const int code = error == nullptr ? 0 : 1;
  TRITONSERVER_ErrorDelete(error);
  TRITONSERVER_ErrorDelete(TRITONSERVER_ServerDelete(server));
  return code;
}
