// Options, settings, files, spans and their export.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <filesystem>
#include <future>

#include "base/file.h"
#include "base/json.h"
#include "front/http/self_signed.h"
#include "front/trace/otel_trace.h"
#include "front/trace/setting.h"
#include "front/trace/tensor_text.h"
#include "front/trace/tracer.h"
#include "front/trace/triton_trace.h"

namespace nereid::front {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
namespace fs = std::filesystem;

class Scratch {
 public:
  Scratch() : dir_(fs::temp_directory_path() / ("trace_test." + std::to_string(::getpid()))) {
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }
  ~Scratch() { fs::remove_all(dir_); }
  std::string path() const { return (dir_ / "t.json").string(); }
  std::string text(const std::string& suffix = "") const {
    auto text = read_file(path() + suffix, 1 << 20);
    return text.ok() ? *text : "none";
  }

 private:
  fs::path dir_;
};

TEST(TraceOptions, Parses) {
  const auto parsed = parse_trace_config({"level=TIMESTAMPS", "level=TENSORS", "rate=3", "count=5",
                                          "triton,file=/tmp/a=b", "triton,log-frequency=7"});
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(parsed->level, 12u);
  EXPECT_EQ(parsed->rate, 3u);
  EXPECT_EQ(parsed->count, 5);
  EXPECT_EQ(parsed->file, "/tmp/a=b");
  EXPECT_EQ(parsed->log_frequency, 7u);
  const auto otel = parse_trace_config(
      {"mode=opentelemetry", "level=TIMESTAMPS", "opentelemetry,url=http://[::1]:9/v1/traces?x=1",
       "opentelemetry,resource=a.b=c=d", "opentelemetry,bsp_max_queue_size=100"});
  ASSERT_TRUE(otel.ok()) << otel.status();
  EXPECT_EQ(otel->otlp.resource.at("a.b"), "c=d");
  EXPECT_TRUE(parse_trace_config({"mode=opentelemetry", "opentelemetry,url=h:9/v1"}).ok());
  EXPECT_EQ(otel->otlp.resource.at("service.name"), "triton-inference-server");
  EXPECT_EQ(otel->otlp.max_batch_size, 100u);
}

TEST(TraceOptions, RefusesByName) {
  const auto error = [](std::vector<std::string> entries) {
    const auto parsed = parse_trace_config(entries);
    return parsed.ok() ? std::string("accepted") : std::string(message(parsed.status()));
  };
  EXPECT_THAT(error({"level=ALL"}), HasSubstr("none of OFF, TIMESTAMPS, TENSORS"));
  EXPECT_THAT(error({"rate=0"}), HasSubstr("rate\".\n'0' is for mode opentelemetry only"));
  EXPECT_THAT(error({"rate=5x"}), HasSubstr("Bad option: \"--trace-config rate\".\n'5x' is not"));
  EXPECT_THAT(error({"opentelemetry,bsp_schedule_delay=x"}),
              HasSubstr("Bad option: \"--trace-config opentelemetry,bsp_schedule_delay\""));
  EXPECT_THAT(error({"count=-2"}), HasSubstr("[-1,"));
  EXPECT_THAT(error({"mode=jaeger"}), HasSubstr("triton, opentelemetry"));
  EXPECT_THAT(error({"triton,url=x"}), HasSubstr("triton,file=PATH"));
  EXPECT_THAT(error({"level"}), HasSubstr("KEY=VALUE"));
  EXPECT_THAT(error({"level=TIMESTAMPS"}), HasSubstr("triton,file=PATH"));
  EXPECT_THAT(error({"mode=opentelemetry", "level=TENSORS"}), HasSubstr("TIMESTAMPS only"));
  EXPECT_THAT(error({"mode=opentelemetry", "opentelemetry,url=ftp://x"}), HasSubstr("http[s]"));
  EXPECT_THAT(error({"mode=opentelemetry", "opentelemetry,url=http://x:1a"}), HasSubstr("port"));
  EXPECT_THAT(error({"opentelemetry,resource=x"}), HasSubstr("KEY=VALUE"));
}

TEST(TraceOptions, AVariableOfTheEnvironmentIsNamed) {
  ::setenv("OTEL_BSP_MAX_QUEUE_SIZE", "many", 1);
  const auto parsed = parse_trace_config({"mode=opentelemetry"});
  const auto off = parse_trace_config({});
  ::unsetenv("OTEL_BSP_MAX_QUEUE_SIZE");
  EXPECT_THAT(std::string(message(parsed.status())),
              HasSubstr("Bad option: \"OTEL_BSP_MAX_QUEUE_SIZE\".\n'many' is not a number"));
  EXPECT_TRUE(off.ok());
}

TEST(TraceSetting, EachRateThWhileTheCountLasts) {
  TraceSetting setting({4, 3, 2, 0}, TraceMode::kTriton, std::make_shared<TraceFile>("x"));
  std::string taken;
  for (int i = 0; i < 12; ++i) taken += setting.take_sample() ? '1' : '0';
  EXPECT_EQ(taken, "001001000000");
  EXPECT_EQ(setting.values().count, 0);
}

TEST(TraceSetting, FilesByFrequencyAndCount) {
  Scratch scratch;
  auto file = std::make_shared<TraceFile>(scratch.path());
  {
    TraceSetting direct({4, 1, -1, 0}, TraceMode::kTriton, file);
    direct.write("1");
    EXPECT_EQ(scratch.text(), "[1]");
    direct.write("2");
    EXPECT_EQ(scratch.text(), "[1,2]");
  }
  {
    TraceSetting by_two({4, 1, -1, 2}, TraceMode::kTriton, file);
    by_two.write("3");
    EXPECT_EQ(scratch.text(".0"), "none");
    by_two.write("4");
    EXPECT_EQ(scratch.text(".0"), "[3,4]");
    by_two.write("5");
  }
  EXPECT_EQ(scratch.text(".1"), "[5]");
  {
    TraceSetting counted({4, 1, 2, 0}, TraceMode::kTriton, file);
    EXPECT_TRUE(counted.take_sample());
    counted.write("6");
    EXPECT_TRUE(counted.take_sample());
    counted.write("7");
    EXPECT_EQ(scratch.text(".2"), "[6,7]");
  }
  EXPECT_EQ(scratch.text(), "[1,2]");
}

TEST(TraceFile, BadPathIsNoCrash) {
  TraceFile file("/nonexistent/dir/t.json");
  file.append("1");
  file.append("2");
  file.write_numbered("3");
}

TEST(TritonTrace, RecordsInTheOrderOfEvents) {
  Scratch scratch;
  auto setting = std::make_shared<TraceSetting>(TraceValues{4, 1, -1, 0}, TraceMode::kTriton,
                                                std::make_shared<TraceFile>(scratch.path()));
  RequestTracePtr trace = make_triton_trace(setting);
  trace->report("HTTP_RECV_START", 10);
  trace->report("A\"B", 11);
  trace.reset();
  const auto json = parse_json(scratch.text());
  ASSERT_TRUE(json.ok());
  const auto& records = json->get_array();
  ASSERT_EQ(records.size(), 2u);
  const auto& first = records[0].at("timestamps").at(0);
  EXPECT_EQ(first.at("name"), "HTTP_RECV_START");
  EXPECT_EQ(first.at("ns"), 10);
  EXPECT_EQ(records[1].at("timestamps").at(0).at("name"), "A\"B");
}

TEST(TritonTrace, OfARefusedRequestLeavesNothing) {
  Scratch scratch;
  auto setting = std::make_shared<TraceSetting>(TraceValues{4, 1, -1, 0}, TraceMode::kTriton,
                                                std::make_shared<TraceFile>(scratch.path()));
  RequestTracePtr trace = make_triton_trace(setting);
  trace->report("HTTP_RECV_START", 10);
  trace->drop(trace->begin());
  trace.reset();
  EXPECT_EQ(scratch.text(), "none");
}

TEST(TensorText, Types) {
  const float f[] = {1.5f, -2.f};
  EXPECT_EQ(tensor_text(TRITONSERVER_TYPE_FP32, f, sizeof f), "1.5,-2");
  const uint16_t half[] = {0x3c00, 0xc000, 0x0001, 0x7c00};
  EXPECT_EQ(tensor_text(TRITONSERVER_TYPE_FP16, half, sizeof half), "1,-2,5.96046e-08,inf");
  const uint16_t bf[] = {0x3f80};
  EXPECT_EQ(tensor_text(TRITONSERVER_TYPE_BF16, bf, sizeof bf), "1");
  const uint8_t u[] = {0, 255};
  EXPECT_EQ(tensor_text(TRITONSERVER_TYPE_UINT8, u, sizeof u), "0,255");
  const std::string s("\2\0\0\0hi\377\377\377\377", 10);
  EXPECT_EQ(tensor_text(TRITONSERVER_TYPE_BYTES, s.data(), 6), "\"hi\"");
  EXPECT_EQ(tensor_text(TRITONSERVER_TYPE_BYTES, s.data(), 10), "\"hi\",...");
}

TEST(TraceParent, OnlyWhatTheFormatAllows) {
  const std::string good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  ASSERT_TRUE(parse_traceparent(good).has_value());
  EXPECT_EQ(parse_traceparent(good)->trace_id, "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(parse_traceparent(good)->span_id, "b7ad6b7169203331");
  EXPECT_TRUE(parse_traceparent("01" + good.substr(2) + "-more").has_value());
  EXPECT_FALSE(parse_traceparent(good + "-more").has_value());
  EXPECT_FALSE(parse_traceparent("ff" + good.substr(2)).has_value());
  EXPECT_FALSE(parse_traceparent("").has_value());
  EXPECT_FALSE(parse_traceparent(good.substr(1)).has_value());
  EXPECT_FALSE(
      parse_traceparent("00-00000000000000000000000000000000-b7ad6b7169203331-01").has_value());
  EXPECT_FALSE(
      parse_traceparent("00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").has_value());
}

namespace asio = boost::asio;

// Reads one POST from `stream`, answers with `status`, and returns its body.
std::string take_post(auto& stream, unsigned status = 200) {
  namespace http = boost::beast::http;
  boost::beast::flat_buffer buffer;
  http::request<http::string_body> request;
  http::read(stream, buffer, request);
  http::response<http::string_body> response(static_cast<http::status>(status), 11);
  response.body() = "{}";
  response.prepare_payload();
  http::write(stream, response);
  return request.target() == "/v1/traces" ? request.body() : "wrong target";
}

class Collector {
 public:
  OtlpOptions options(const std::string& scheme, const std::string& host = "127.0.0.1") const {
    OtlpOptions out;
    out.url = fmt::format("{}://{}:{}/v1/traces", scheme, host, acceptor_.local_endpoint().port());
    return out;
  }
  asio::ip::tcp::socket accept() { return acceptor_.accept(); }

 private:
  asio::io_context io_;
  asio::ip::tcp::acceptor acceptor_{io_, {asio::ip::make_address("127.0.0.1"), 0}};
};

TEST(OtelTrace, ReachesTheCollector) {
  Collector collector;
  auto body = std::async(std::launch::async, [&] {
    auto socket = collector.accept();
    return take_post(socket);
  });
  const OtlpOptions options = collector.options("http");
  auto exporter = OtlpExporter::create(options);
  ASSERT_TRUE(exporter.ok());
  std::shared_ptr<OtlpExporter> shared(std::move(*exporter));
  const std::string parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  auto trace = make_otel_trace(shared, 4, parse_traceparent(parent), "vendor=1");
  trace->report_now("HTTP_RECV_START");
  trace.reset();
  shared.reset();  // sends at once
  const auto json = parse_json(body.get());
  ASSERT_TRUE(json.ok());
  const auto& resource = json->at("resourceSpans").at(0);
  EXPECT_EQ(resource.at("resource").at("attributes").at(0).at("value").at("stringValue"),
            "triton-inference-server");
  const auto& span = resource.at("scopeSpans").at(0).at("spans").at(0);
  EXPECT_EQ(span.at("name"), "InferRequest");
  EXPECT_EQ(span.at("traceId"), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(span.at("parentSpanId"), "b7ad6b7169203331");
  EXPECT_EQ(span.at("traceState"), "vendor=1");
  EXPECT_EQ(span.at("spanId").as_string().size(), 16u);
  EXPECT_EQ(span.at("events").at(0).at("name"), "HTTP_RECV_START");
  EXPECT_GT(std::stoull(std::string(span.at("startTimeUnixNano").as_string())), 1700000000u);
}

TEST(OtlpExporter, AsksABusyCollectorAgain) {
  Collector collector;
  auto options = collector.options("http");
  options.retry_delay_ms = 1;
  options.schedule_delay_ms = 0;
  auto exporter = OtlpExporter::create(options);
  ASSERT_TRUE(exporter.ok());
  (*exporter)->add({Span{.name = "first"}});
  std::vector<std::string> bodies;
  for (const unsigned status : {503, 429, 200}) {
    auto socket = collector.accept();
    bodies.push_back(take_post(socket, status));
  }
  EXPECT_THAT(bodies[0], HasSubstr("first"));
  EXPECT_EQ(bodies[1], bodies[0]);
  EXPECT_EQ(bodies[2], bodies[0]);
  // A refused request is not retried.
  (*exporter)->add({Span{.name = "second"}});
  auto socket = collector.accept();
  EXPECT_THAT(take_post(socket, 400), HasSubstr("second"));
  (*exporter)->add({Span{.name = "third"}});
  socket = collector.accept();
  EXPECT_THAT(take_post(socket), Not(HasSubstr("second")));
}

TEST(OtlpExporter, TriesOnceMoreWhenItEnds) {
  Collector collector;
  auto options = collector.options("http");
  options.schedule_delay_ms = 1;
  options.retry_delay_ms = 3600000;
  auto exporter = OtlpExporter::create(options);
  ASSERT_TRUE(exporter.ok());
  (*exporter)->add({Span{.name = "late"}});
  auto socket = collector.accept();
  take_post(socket, 503);
  auto again = std::async(std::launch::async, [&] {
    auto next = collector.accept();
    return take_post(next);
  });
  exporter->reset();
  EXPECT_THAT(again.get(), HasSubstr("late"));
}

TEST(OtlpExporter, Tls) {
  const fs::path dir = fs::temp_directory_path() / ("otlp_test." + std::to_string(::getpid()));
  fs::create_directories(dir);
  const SelfSigned server(dir, "server"), other(dir, "other");
  asio::ssl::context context(asio::ssl::context::tls_server);
  context.use_certificate_file(server.cert, asio::ssl::context::pem);
  context.use_private_key_file(server.key, asio::ssl::context::pem);
  Collector collector;
  const auto serve = [&] {
    asio::ssl::stream<asio::ip::tcp::socket> stream(collector.accept(), context);
    boost::system::error_code error;
    stream.handshake(asio::ssl::stream_base::server, error);
    return error ? "no handshake" : take_post(stream);
  };
  const auto sent = [&](const OtlpOptions& options) {
    auto body = std::async(std::launch::async, serve);
    auto exporter = OtlpExporter::create(options);
    if (!exporter.ok()) return std::string(message(exporter.status()));
    (*exporter)->add({Span{.name = "one"}});
    exporter->reset();  // sends it, once
    return body.get();
  };
  auto options = collector.options("https", "localhost");
  options.ca_file = server.cert;
  EXPECT_THAT(sent(options), HasSubstr("\"one\""));
  auto other_name = collector.options("https", "127.0.0.1");
  other_name.ca_file = server.cert;
  EXPECT_EQ(sent(other_name), "no handshake");
  options.ca_file = other.cert;
  EXPECT_EQ(sent(options), "no handshake");
  options.ca_file = (dir / "none").string();
  EXPECT_THAT(std::string(message(OtlpExporter::create(options).status())),
              HasSubstr("OTEL_EXPORTER_OTLP_CERTIFICATE"));
  fs::remove_all(dir);
}

TEST(OtlpExporter, FullQueueAndDeadCollectorNeverBlock) {
  OtlpOptions options;
  options.url = "http://127.0.0.1:1/";
  options.max_queue_size = options.max_batch_size = 2;
  auto exporter = OtlpExporter::create(options);
  ASSERT_TRUE(exporter.ok());
  for (int i = 0; i < 100; ++i) (*exporter)->add(std::vector<Span>(3));
}

TEST(Tracer, RateZeroLeavesItToTheClients) {
  TraceOptions options;
  options.mode = TraceMode::kOpenTelemetry;
  options.otlp.url = "http://127.0.0.1:1/";
  options.otlp.max_retries = 0;
  options.level = TRITONSERVER_TRACE_LEVEL_TIMESTAMPS;
  options.rate = 0;
  const auto tracer = Tracer::create(nullptr, options);
  ASSERT_TRUE(tracer.ok()) << tracer.status();
  EXPECT_EQ((*tracer)->sample("m", "", ""), nullptr);
  EXPECT_NE((*tracer)->sample("m", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", ""),
            nullptr);
}

TEST(Tracer, SettingsOfGlobalAndModel) {
  Scratch scratch;
  TraceOptions options;
  options.file = scratch.path();
  auto made = Tracer::create(nullptr, options);
  ASSERT_TRUE(made.ok());
  Tracer& tracer = **made;
  EXPECT_FALSE(tracer.is_on());
  EXPECT_EQ(tracer.sample("m", "", ""), nullptr);
  const auto show = [&](const Tracer::Changes& changes) -> std::string {
    const auto settings = tracer.update("", changes);
    if (!settings.ok()) return std::string(message(settings.status()));
    std::string out;
    for (const auto& [key, values] : *settings) {
      for (const auto& value : values) out += value + " ";
    }
    return out.substr(0, out.find('/'));
  };
  EXPECT_EQ(show({}), "OFF 1000 -1 0 ");
  EXPECT_EQ(show({{"trace_level", {"TIMESTAMPS", "TENSORS"}}, {"trace_rate", {"1"}}}),
            "TIMESTAMPS TENSORS 1 -1 0 ");
  EXPECT_TRUE(tracer.is_on());
  EXPECT_EQ(show({{"trace_count", {"2"}}}), "TIMESTAMPS TENSORS 1 2 0 ");
  EXPECT_NE(tracer.sample("m", "", ""), nullptr);
  EXPECT_EQ(show({{"log_frequency", {"5"}}}), "TIMESTAMPS TENSORS 1 1 5 ");  // the count continues
  EXPECT_EQ(show({{"trace_rate", {"-1"}}}), "TIMESTAMPS TENSORS 4294967295 1 5 ");
  EXPECT_THAT(show({{"trace_rate", {"0"}}}), HasSubstr("sample rate must be non-zero"));
  for (const std::string key : {"trace_rate", "trace_count", "log_frequency"}) {
    for (const std::string number : {"10000000000", "-10000000000", "99999999999999999999"}) {
      EXPECT_THAT(show({{key, {number}}}),
                  HasSubstr("Unable to parse '" + key + "', value is out of range [ "));
    }
  }
  EXPECT_THAT(show({{"trace_rate", {"1", "2"}}}), "expect only 1 value for 'trace_rate'");
  EXPECT_THAT(show({{"trace_level", {"OFF", "TENSORS"}}}), HasSubstr("Expect only one"));
  EXPECT_THAT(show({{"trace_file", {"x"}}}), HasSubstr("can not be updated"));
  EXPECT_EQ(show({{"trace_level", {}},
                  {"trace_rate", {}},
                  {"trace_count", {}},
                  {"log_frequency", {}},
                  {"unknown", {"1"}}}),
            "OFF 1000 -1 0 ");
}

}  // namespace
}  // namespace nereid::front
