// Infer messages in both directions: sources of tensor data, parameters, errors, replies.
#include "front/grpc/infer_message.h"

#include <gtest/gtest.h>

#include <climits>

#include "front/grpc/infer.pb.h"
#include "front/grpc/infer_fields.h"
#include "front/grpc/messages.h"

namespace nereid::front {
namespace {

using inference::ModelInferRequest;

const CheckModel kAnyModel = [](const InferenceSpec&, InferTicket&) { return ok(); };

struct Parsed {
  Status status;
  GrpcInferRequest request;
  std::string data(const std::string& input) const {
    const auto it = request.spec.input_memory.find(input);
    if (it != request.spec.input_memory.end()) return {it->second.base, it->second.size};
    for (const Tensor& t : request.spec.inputs) {
      if (t.name == input) return t.bytes;
    }
    return "<none>";
  }
};

Parsed parse(const std::string& bytes) {
  Parsed out;
  const SharedMemory regions;
  out.status = parse_infer_message(bytes, kAnyModel, regions, out.request);
  return out;
}
Parsed parse(const ModelInferRequest& request) { return parse(request.SerializeAsString()); }
std::string error_of(const ModelInferRequest& request) {
  return std::string(parse(request).status.message());
}

ModelInferRequest request_of(const std::string& datatype, std::vector<int64_t> shape) {
  ModelInferRequest request;
  request.set_model_name("m");
  auto* input = request.add_inputs();
  input->set_name("IN");
  input->set_datatype(datatype);
  for (const int64_t dim : shape) input->add_shape(dim);
  return request;
}

TEST(InferMessage, TextThatIsNoUtf8FillsNoLog) {
  const ProtoMessages messages;
  ModelInferRequest request = request_of("INT32", {2});
  request.set_id("id");
  std::string bytes = request.SerializeAsString();
  bytes[bytes.find("id")] = '\xff';
  testing::internal::CaptureStderr();
  EXPECT_EQ(message(parse(bytes).status), "Unable to parse request");
  EXPECT_FALSE(messages.to_json("inference.ModelReadyRequest", "\x0a\x01\xff").ok());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(InferMessage, RawDataIsNotCopied) {
  ModelInferRequest request = request_of("INT32", {2});
  request.set_id("7");
  request.add_raw_input_contents("abcdefgh");
  const Parsed parsed = parse(request);
  ASSERT_TRUE(parsed.status.ok()) << parsed.status;
  EXPECT_EQ(parsed.request.spec.model, "m");
  EXPECT_EQ(parsed.request.spec.id, "7");
  EXPECT_EQ(parsed.request.spec.version, -1);
  EXPECT_EQ(parsed.request.spec.inputs.at(0).shape, std::vector<int64_t>{2});
  EXPECT_TRUE(parsed.request.spec.inputs[0].bytes.empty());
  EXPECT_EQ(parsed.data("IN"), "abcdefgh");
}

TEST(InferMessage, FieldsInAnyOrder) {
  ModelInferRequest data, rest = request_of("INT32", {2});
  data.add_raw_input_contents("abcdefgh");
  ModelInferRequest second;
  second.set_id("late");
  for (const std::string& bytes :
       {data.SerializeAsString() + rest.SerializeAsString() + second.SerializeAsString(),
        rest.SerializeAsString() + data.SerializeAsString() + second.SerializeAsString()}) {
    const Parsed parsed = parse(bytes);
    ASSERT_TRUE(parsed.status.ok()) << parsed.status;
    EXPECT_EQ(parsed.data("IN"), "abcdefgh");
    EXPECT_EQ(parsed.request.spec.id, "late");
  }
}

TEST(InferMessage, BrokenBytes) {
  ModelInferRequest request = request_of("INT32", {2});
  request.add_raw_input_contents("abcdefgh");
  const std::string bytes = request.SerializeAsString();
  for (size_t n = 1; n < bytes.size(); ++n) parse(bytes.substr(0, n));  // no crash
  for (const std::string& bad :
       {std::string("\xff\xff\xff\xff"), bytes.substr(0, bytes.size() - 1),
        std::string("\x3a\xff\xff\xff\xff\x7f"), std::string("\x0a\x02\xff\xfe")}) {
    EXPECT_EQ(parse(bad).status.message(), "Unable to parse request");
  }
}

TEST(InferMessage, TypedContents) {
  ModelInferRequest request = request_of("INT8", {2});
  request.mutable_inputs(0)->mutable_contents()->add_int_contents(-128);
  request.mutable_inputs(0)->mutable_contents()->add_int_contents(127);
  EXPECT_EQ(parse(request).data("IN"), "\x80\x7f");
  request.mutable_inputs(0)->mutable_contents()->set_int_contents(1, 300);
  EXPECT_EQ(error_of(request), "input 'IN': 300 is not in [-128, 127]");

  request = request_of("BYTES", {2});
  request.mutable_inputs(0)->mutable_contents()->add_bytes_contents("ab");
  request.mutable_inputs(0)->mutable_contents()->add_bytes_contents("");
  EXPECT_EQ(parse(request).data("IN"), std::string("\2\0\0\0ab\0\0\0\0", 10));

  request = request_of("INT32", {1});
  request.mutable_inputs(0)->mutable_contents()->add_fp32_contents(1);
  EXPECT_EQ(error_of(request),
            "unexpected explicit tensor data for input tensor 'IN' for model 'm' of type 'FP32', "
            "expected datatype 'INT32'");
  request.mutable_inputs(0)->mutable_contents()->add_int_contents(1);
  EXPECT_EQ(error_of(request),
            "unexpected explicit tensor data for input tensor 'IN' for model 'm', binary data was "
            "already supplied.");
}

template <class T, class Add>
std::string contents_of(const std::string& datatype, const std::vector<T>& values, Add add) {
  ModelInferRequest request = request_of(datatype, {static_cast<int64_t>(values.size())});
  for (const T value : values) add(*request.mutable_inputs(0)->mutable_contents(), value);
  return parse(request).data("IN");
}
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

TEST(InferMessage, ContentsOfEveryType) {
  using C = inference::InferTensorContents;
  const auto of = [](const auto& datatype, const auto& values, auto add) {
    EXPECT_EQ(contents_of(datatype, values, add), bytes_of(values)) << datatype;
  };
  const auto add_int = [](C& c, int32_t v) { c.add_int_contents(v); };
  const auto add_uint = [](C& c, uint32_t v) { c.add_uint_contents(v); };
  of("INT8", std::vector<int8_t>{-128, 0, 127}, add_int);
  of("INT16", std::vector<int16_t>{-32768, 7, 32767}, add_int);
  of("INT32", std::vector<int32_t>{INT_MIN, -1, 0, 300, INT_MAX}, add_int);
  of("UINT8", std::vector<uint8_t>{0, 255}, add_uint);
  of("UINT16", std::vector<uint16_t>{0, 65535}, add_uint);
  of("UINT32", std::vector<uint32_t>{0, UINT_MAX}, add_uint);
  of("INT64", std::vector<int64_t>{LLONG_MIN, -1, 0, LLONG_MAX},
     [](C& c, int64_t v) { c.add_int64_contents(v); });
  of("UINT64", std::vector<uint64_t>{0, ULLONG_MAX},
     [](C& c, uint64_t v) { c.add_uint64_contents(v); });
  of("FP32", std::vector<float>{-0.0f, 1.5f, 3e38f}, [](C& c, float v) { c.add_fp32_contents(v); });
  of("FP64", std::vector<double>{-0.0, 1.5, 1e300}, [](C& c, double v) { c.add_fp64_contents(v); });
  EXPECT_EQ(contents_of("BOOL", std::vector<char>{0, 1, 1},
                        [](C& c, char v) { c.add_bool_contents(v != 0); }),
            std::string("\0\1\1", 3));
}

// Source: protobuf.dev, "Encoding": parts of a message are merged, lists may be packed or not, and
// unknown fields are skipped.
TEST(InferMessage, ContentsInPartsPackedOrNot) {
  using std::string_literals::operator""s;
  const auto with_contents = [](const std::string& contents) {
    ModelInferRequest request = request_of("INT32", {3});
    std::string input = contents + request.inputs(0).SerializeAsString();
    request.clear_inputs();
    return parse(request.SerializeAsString() + "\x2a" + static_cast<char>(input.size()) + input);
  };
  // One number by itself, two packed, a text of field 15, and a float that is no element of a list.
  const Parsed parsed =
      with_contents("\x2a\x02\x10\x01"s + "\x2a\x0c\x12\x02\x02\x03\x7a\x01x\x15\0\0\0\0"s);
  ASSERT_TRUE(parsed.status.ok()) << parsed.status;
  EXPECT_EQ(parsed.data("IN"), bytes_of(std::vector<int32_t>{1, 2, 3}));
  for (const std::string& broken : {"\x2a\x03\x12\x01\x80"s, "\x2a\x05\x32\x03\0\0\0"s,
                                    "\x2a\x02\x02\x00"s, "\x2a\x02\x10\x80"s, "\x2a\x01\x42"s})
    EXPECT_EQ(with_contents(broken).status.message(), "Unable to parse request");
}

// A text takes two bytes of the message, and is not made an object.
TEST(InferMessage, ContentsTakeWhatTheirTensorTakes) {
  ModelInferRequest request = request_of("BYTES", {1000});
  for (int i = 0; i < 1000; ++i)
    request.mutable_inputs(0)->mutable_contents()->add_bytes_contents("");
  EXPECT_LT(parsed_bytes(request.SerializeAsString()), 4000u + 1000);
  EXPECT_EQ(parse(request).data("IN").size(), 4000u);
}

// Two bytes per field, so a message of megabytes has millions of fields.
TEST(InferMessage, FieldsAreCountedBeforeTheyAreParsed) {
  const auto times = [](const char* field, int count) {
    std::string out("\x0a\x01m");
    for (int i = 0; i < count; ++i) out.append(field, 2);
    return out;
  };
  const auto error = [](const std::string& bytes) {
    return std::string(parse(bytes).status.message());
  };
  EXPECT_EQ(error(times("\x22\0", 1025)),
            "the request has 1025 parameters, at most 1024 are allowed");
  EXPECT_EQ(error(times("\x2a\0", 4097)), "the request has 4097 inputs, at most 4096 are allowed");
  EXPECT_EQ(error(times("\x32\0", 4097)), "the request has 4097 outputs, at most 4096 are allowed");
  EXPECT_EQ(error(times("\x3a\0", 4097)),
            "the request has 4097 raw input contents, at most 4096 are allowed");
}

TEST(InferMessage, DataErrors) {
  ModelInferRequest request = request_of("INT32", {1});
  EXPECT_EQ(error_of(request),
            "unable to find data for input tensor 'IN' for model 'm' in request.");
  request.add_raw_input_contents("abcd");
  request.mutable_inputs(0)->mutable_contents()->add_int_contents(1);
  EXPECT_EQ(error_of(request),
            "contents field must not be specified when using raw_input_contents for 'IN' for model "
            "'m'");
  request = request_of("INT32", {1});
  *request.add_inputs() = request.inputs(0);
  request.add_raw_input_contents("abcd");
  request.add_raw_input_contents("abcd");
  EXPECT_EQ(error_of(request), "[request id: <id_unknown>] input 'IN' already exists in request");
  while (request.inputs_size() <= 4096) request.add_inputs();
  EXPECT_EQ(error_of(request), "the request has 4097 inputs, at most 4096 are allowed");
  request = request_of("BYTES", {1});
  request.add_raw_input_contents(std::string("\x09\0\0\0abc", 7));
  EXPECT_EQ(
      error_of(request),
      "incomplete string data for inference input 'IN', expecting string of length 9 but only "
      "3 bytes available");
  request = request_of("INT32", {1});
  (*request.mutable_inputs(0)->mutable_parameters())["shared_memory_region"].set_string_param("r");
  EXPECT_EQ(error_of(request),
            "'shared_memory_byte_size' must be specified along with 'shared_memory_region' "
            "parameter for tensor 'IN'");
  (*request.mutable_inputs(0)->mutable_parameters())["shared_memory_byte_size"].set_int64_param(4);
  EXPECT_EQ(error_of(request), "Unable to find shared memory region: 'r'");
}

TEST(InferMessage, Parameters) {
  ModelInferRequest request;
  auto& parameters = *request.mutable_parameters();
  parameters["sequence_id"].set_string_param("s");
  parameters["sequence_start"].set_bool_param(true);
  parameters["priority"].set_uint64_param(3);
  parameters["timeout"].set_int64_param(-1);
  parameters["mine"].set_double_param(0.5);
  parameters["triton_enable_empty_final_response"].set_bool_param(true);
  const Parsed parsed = parse(request);
  ASSERT_TRUE(parsed.status.ok()) << parsed.status;
  const InferenceSpec& spec = parsed.request.spec;
  EXPECT_EQ(std::get<std::string>(spec.correlation_id), "s");
  EXPECT_EQ(spec.flags, static_cast<uint32_t>(TRITONSERVER_REQUEST_FLAG_SEQUENCE_START));
  EXPECT_EQ(spec.priority, 3u);
  EXPECT_EQ(spec.timeout_us, UINT64_MAX);
  ASSERT_EQ(spec.parameters.size(), 1u);
  EXPECT_EQ(std::get<double>(spec.parameters[0].value), 0.5);
  EXPECT_TRUE(parsed.request.ticket.empty_final);

  const auto bad = [](const std::string& key, auto set) {
    ModelInferRequest r;
    set((*r.mutable_parameters())[key]);
    return error_of(r);
  };
  const auto integer = [](inference::InferParameter& p) { p.set_int64_param(-1); };
  const auto natural = [](inference::InferParameter& p) { p.set_uint64_param(1); };
  EXPECT_EQ(bad("priority", integer), "invalid value for 'priority', expected value >= 0.");
  EXPECT_EQ(bad("sequence_end", integer),
            "invalid value type for 'sequence_end' parameter, expected bool_param.");
  EXPECT_EQ(bad("a", natural),
            "invalid value type for 'a' parameter, expected int64_param, bool_param, or "
            "string_param.");
  EXPECT_NE(bad("triton_x", integer).find("are reserved"), std::string::npos);
}

TEST(InferMessage, Versions) {
  EXPECT_EQ(*parse_version(""), -1);
  EXPECT_EQ(*parse_version("1x"), 1);
  EXPECT_EQ(
      parse_version("x").status().message(),
      "failed to get model version from specified version string 'x' (details: stol), version "
      "should be an integral value > 0");
  EXPECT_FALSE(parse_version("99999999999999999999").ok());
  EXPECT_EQ(parse_version("-5").status().message(),
            "invalid model version specified '-5' , version should be an integral value > 0");
}

InferenceReply reply_of() {
  InferenceReply reply;
  reply.final = true;
  reply.model_name = "m";
  reply.model_version = 3;
  reply.id = "i";
  reply.parameters.push_back({"p", int64_t{5}});
  reply.outputs.push_back({"A", TRITONSERVER_TYPE_INT32, {2}, std::string("\1\0\0\0\2\0\0\0", 8)});
  reply.outputs.push_back({"B", TRITONSERVER_TYPE_FP32, {0}, ""});
  return reply;
}

TEST(InferMessage, Replies) {
  const auto bytes = format_infer_response(reply_of(), {});
  inference::ModelInferResponse response;
  ASSERT_TRUE(bytes.ok() && response.ParseFromString(bytes->substr(kGrpcPrefixBytes)));
  EXPECT_EQ(response.model_version(), "3");
  EXPECT_EQ(response.parameters().at("p").int64_param(), 5);
  EXPECT_EQ(response.outputs(0).datatype(), "INT32");
  ASSERT_EQ(response.raw_output_contents_size(), 2);
  EXPECT_EQ(response.raw_output_contents(0).size(), 8u);
  EXPECT_EQ(response.raw_output_contents(1), "");
  InferTicket ticket;
  ticket.classifications["A"] = 1;
  const auto classified = format_infer_response(reply_of(), ticket);
  ASSERT_TRUE(classified.ok() && response.ParseFromString(classified->substr(kGrpcPrefixBytes)));
  EXPECT_EQ(response.outputs(0).datatype(), "BYTES");
  EXPECT_EQ(response.raw_output_contents(0), std::string("\3\0\0\0"
                                                         "2:1",
                                                         7));
}

TEST(InferMessage, StreamReplies) {
  InferTicket ticket;
  ticket.model = "asked";
  ticket.id = "x";
  inference::ModelStreamInferResponse response;
  const auto good = format_stream_response(reply_of(), ticket);
  ASSERT_TRUE(response.ParseFromString(good->substr(kGrpcPrefixBytes)));
  EXPECT_EQ(response.infer_response().id(), "i");
  EXPECT_TRUE(response.infer_response().parameters().at("triton_final_response").bool_param());
  EXPECT_EQ(response.infer_response().raw_output_contents_size(), 2);
  InferenceReply failed;
  failed.status = unavailable("busy");
  const auto bad = format_stream_response(failed, ticket);
  ASSERT_TRUE(response.ParseFromString(bad->substr(kGrpcPrefixBytes)));
  EXPECT_EQ(response.error_message(), "busy");
  EXPECT_EQ(response.infer_response().model_name(), "asked");
  EXPECT_FALSE(response.infer_response().parameters().at("triton_final_response").bool_param());
  ASSERT_TRUE(response.ParseFromString(
      format_stream_refusal(not_found("nope"), ticket).substr(kGrpcPrefixBytes)));
  EXPECT_EQ(response.infer_response().id(), "x");
  EXPECT_EQ(response.infer_response().parameters_size(), 0);
}

}  // namespace
}  // namespace nereid::front
