// The models of all_models/multimodal on a tiny LLaVA: golden ids of tests/golden/pictures, and the
// same answer by every way that a picture takes.
#include <absl/strings/escaping.h>
#include <unistd.h>

#include <algorithm>

#include "backend/common/float_tensors.h"
#include "backend/testing/backend_fixture.h"
#include "io/safetensors.h"

namespace nereid::backend {
namespace {

constexpr int32_t kLlavaVocab = 520, kLlavaMark = 512, kLlavaRows = 16, kLlavaSide = 28,
                  kLlavaWidth = 48;

// The 256 bytes, special tokens, and the mark.
std::string tokenizer_json() {
  json::object vocab;
  json::array added;
  int32_t hidden = 0;
  for (int32_t byte = 0; byte < 256; ++byte) {
    const bool is_shown = (byte > 0x20 && byte < 0x7f) || (byte > 0xa0 && byte != 0xad);
    const int32_t shown = is_shown ? byte : 256 + hidden++;
    std::string name(1, static_cast<char>(shown));
    if (shown > 0x7f)
      name = {static_cast<char>(0xc0 | (shown >> 6)), static_cast<char>(0x80 | (shown & 0x3f))};
    vocab[name] = byte;
  }
  for (int32_t id = 256; id <= kLlavaMark; ++id)
    added.push_back(
        json::object{{"id", id},
                     {"content", id == kLlavaMark ? "<image>" : fmt::format("<|{}|>", id)},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  const json::object level{{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  return json::serialize(json::object{
      {"version", "1.0"},
      {"added_tokens", added},
      {"normalizer", nullptr},
      {"pre_tokenizer", level},
      {"post_processor", nullptr},
      {"decoder", level},
      {"model", json::object{{"type", "BPE"}, {"vocab", vocab}, {"merges", json::array()}}}});
}

const fs::path kLlava = fs::path(source_dir()) / "tests/picture_models/llava";

class MultimodalTest : public BackendTest {
 protected:
  static void SetUpTestSuite() {
    model_ = fs::temp_directory_path() / fmt::format("nereid-llava-{}", ::getpid());
    fs::create_directories(model_);
    for (const char* name : {"config.json", "model.safetensors", "preprocessor_config.json"})
      fs::copy_file(kLlava / name, model_ / name, fs::copy_options::overwrite_existing);
    ASSERT_TRUE(write_file_atomic(model_ / "tokenizer.json", tokenizer_json()).ok());
    const std::map<std::string, std::string> values = {
        {"engine_dir", model_},
        {"tokenizer_dir", model_},
        {"multimodal_model_path", model_},
        {"multimodal_encoders_name", "multimodal_encoders"},
        {"max_num_images", "3"},
        {"decoupled_mode", "false"},
        {"exclude_input_in_output", "true"},
        {"triton_max_batch_size", "4"},
        {"logits_datatype", "TYPE_FP32"},
        {"num_threads", "2"},
        {"max_tokens_in_paged_kv_cache", "2048"},
        {"prompt_embedding_table_data_type", "TYPE_FP16"}};
    start(server_, dir_, values, [&](const fs::path& dir) {
      auto more = values;
      more["cache_dir"] = (dir / ".cache").string();
      write_repository(dir, more, "multimodal");
      // So that the encoder reads the numbers that the golden outputs are of.
      edit_config(dir / "preprocessing", "\"PIXEL_VALUES\" data_type: TYPE_FP16",
                  "\"PIXEL_VALUES\" data_type: TYPE_FP32");
      edit_config(dir / "multimodal_encoders", "\"pixel_values\" data_type: TYPE_FP16",
                  "\"pixel_values\" data_type: TYPE_FP32");
    });
  }
  static void TearDownTestSuite() {
    BackendTest::TearDownTestSuite();
    fs::remove_all(model_);
  }

  static std::string picture_url() {
    return "data:image/png;base64," + absl::Base64Escape(*read_file(kLlava / "image.png"));
  }
  static std::vector<float> golden_pixels() {
    const auto file =
        io::TensorFile::open(fs::path(source_dir()) / "tests/golden/pictures/llava.safetensors");
    for (const io::StoredTensor& tensor : file->tensors()) {
      if (tensor.name != "pixel_values") continue;
      std::vector<float> out(tensor.data.size() / sizeof(float));
      std::memcpy(out.data(), tensor.data.data(), tensor.data.size());
      return out;
    }
    return {};
  }
  static Output pixels(const std::vector<float>& values, int64_t batch = 1) {
    const auto count = std::ssize(values) / (3 * kLlavaSide * kLlavaSide) / batch;
    return make_output("pixel_values", {batch, count, 3, kLlavaSide, kLlavaSide}, values);
  }
  static Output half_pixels(const char* name, const std::vector<float>& values) {
    Output out = pixels(values);
    out.name = name;
    out.datatype = TRITONSERVER_TYPE_FP16;
    out.bytes = *float_bytes(name, values, out.datatype);
    return out;
  }
  static Conversation encode(std::vector<Output> inputs) {
    return Talk(server_, "multimodal_encoders", std::move(inputs)).wait();
  }
  // The table's bytes.
  static std::string table(std::vector<Output> inputs) {
    const Conversation got = encode(std::move(inputs));
    EXPECT_TRUE(got.status.ok()) << got.status;
    for (const auto& outputs : got.outputs)
      for (const Output& output : outputs)
        if (output.name == "OUT_PROMPT_EMBEDDING_TABLE") return output.bytes;
    return "";
  }
  static std::string error(const Conversation& got) {
    EXPECT_FALSE(got.status.ok());
    return std::string(message(got.status));
  }

  static inline fs::path model_;
};

TEST_F(MultimodalTest, GoldenIdsByThePromptTable) {
  const Conversation encoded = encode({pixels(golden_pixels())});
  ASSERT_TRUE(encoded.status.ok()) << encoded.status;
  ASSERT_EQ(encoded.outputs.size(), 1u);
  EXPECT_EQ(shape_of(encoded.outputs[0], "OUT_PROMPT_EMBEDDING_TABLE"),
            Shape({1, kLlavaRows, kLlavaWidth}));
  EXPECT_EQ(elements<int32_t>(encoded.outputs[0], "OUT_PROMPT_VOCAB_SIZE"), Ids{kLlavaRows});
  const json::value golden =
      *read_json_file(fs::path(source_dir()) / "tests/golden/pictures/llava.json");
  size_t num_tested = 0;
  for (const json::value& c : golden.at("cases").as_array()) {
    Ids ids, expected;
    for (const json::value& v : c.at("prompt_ids").as_array())
      ids.push_back(v.to_number<int32_t>());
    for (const json::value& v : c.at("greedy_ids").as_array())
      expected.push_back(v.to_number<int32_t>());
    int32_t row = kLlavaVocab;
    for (int32_t& id : ids)
      if (id == kLlavaMark) id = row++;
    if (row != kLlavaVocab + kLlavaRows) continue;
    ++num_tested;
    std::vector<Output> inputs = {
        make_output("input_ids", {1, std::ssize(ids)}, ids),
        int_input("input_lengths", static_cast<int32_t>(ids.size())),
        int_input("request_output_len", static_cast<int32_t>(expected.size())),
        int_input("end_id", -1),
        int_input("runtime_top_k", 1),
        int_input("prompt_vocab_size", kLlavaRows)};
    for (const Output& output : encoded.outputs[0])
      if (output.name == "OUT_PROMPT_EMBEDDING_TABLE")
        inputs.push_back({"prompt_embedding_table", output.datatype, output.shape, output.bytes});
    const Conversation got = Talk(server_, "tensorrt_llm", std::move(inputs)).wait();
    ASSERT_TRUE(got.status.ok()) << got.status;
    EXPECT_EQ(elements<int32_t>(got.outputs.at(0), "output_ids"), expected);
  }
  EXPECT_GT(num_tested, 0u);
}

TEST_F(MultimodalTest, APictureHasTheSameRowsAloneAndWithOthers) {
  const std::vector<float> first = golden_pixels();
  std::vector<float> second = first;
  std::ranges::reverse(second);
  std::vector<float> both = first;
  both.insert(both.end(), second.begin(), second.end());
  const std::string a = table({pixels(first)}), b = table({pixels(second)});
  ASSERT_EQ(a.size(), size_t{kLlavaRows * kLlavaWidth * 2});
  EXPECT_NE(a, b);
  EXPECT_EQ(table({pixels(both)}), a + b);
  EXPECT_EQ(table({pixels(both, /*batch=*/2)}), a + b);
  // More pictures than one step of the encoder takes.
  std::vector<float> many;
  std::string expected;
  for (int i = 0; i < 64; ++i) {
    const auto& one = i % 3 == 0 ? second : first;
    many.insert(many.end(), one.begin(), one.end());
    expected += i % 3 == 0 ? b : a;
  }
  EXPECT_EQ(table({pixels(many)}), expected);
}

TEST_F(MultimodalTest, TheSameTextByEveryWay) {
  const std::string prompt = "What is it?";
  const Conversation by_url =
      ask("ensemble", prompt, 12, {text_input("image_url_input", {picture_url()})});
  ASSERT_TRUE(by_url.status.ok()) << by_url.status;
  ASSERT_EQ(by_url.texts.size(), 1u);
  EXPECT_FALSE(by_url.texts[0].empty());
  const auto same = [&](const char* model, const std::string& text, std::vector<Output> more) {
    const Conversation got = ask(model, text, 12, std::move(more));
    EXPECT_TRUE(got.status.ok()) << model << ": " << got.status;
    EXPECT_EQ(got.texts, by_url.texts) << model;
  };
  same("tensorrt_llm_bls", prompt, {text_input("image_url_input", {picture_url()})});
  // The TensorRT-LLM backend's prompt of LLaVA, with the mark in its place.
  same("ensemble",
       "USER:\n<image>What is it? ASSISTANT:", {text_input("image_url_input", {picture_url()})});
  // Pictures that the client has prepared go past the preprocessing model.
  const Conversation prepared =
      Talk(server_, "preprocessing",
           {text_input("QUERY", {prompt}), int_input("REQUEST_OUTPUT_LEN", 12),
            text_input("IMAGE_URL", {picture_url()})})
          .wait();
  ASSERT_TRUE(prepared.status.ok()) << prepared.status;
  const auto values = elements<float>(prepared.outputs.at(0), "PIXEL_VALUES");
  EXPECT_EQ(values, golden_pixels());
  EXPECT_TRUE(shape_of(prepared.outputs[0], "IMAGE_PATCHES").empty());
  const Ids ids = elements<int32_t>(prepared.outputs[0], "INPUT_ID");
  EXPECT_EQ(std::ranges::count_if(ids, [](int32_t id) { return id >= kLlavaVocab; }), kLlavaRows);
  same("ensemble", prompt, {half_pixels("image_input", values)});
  same("tensorrt_llm_bls", prompt, {half_pixels("image_input", values)});
}

TEST_F(MultimodalTest, FaultsAreNamed) {
  EXPECT_THAT(error(ask("ensemble", "What is it?", 4)),
              HasSubstr("input 'pixel_values' or 'IMAGE' is required"));
  EXPECT_THAT(error(ask("tensorrt_llm_bls", "What is it?", 4)),
              HasSubstr("input 'pixel_values' or 'IMAGE' is required"));
  EXPECT_THAT(error(ask("ensemble", "<image><image>?", 4,
                        {text_input("image_url_input", {picture_url()})})),
              HasSubstr("the prompt has '<image>' 2 times for 1 pictures"));
  EXPECT_THAT(error(ask("ensemble", "<image><image><image><image>?", 4)),
              HasSubstr("The number of images in the request (4) exceeds the maximum allowed (3)"));
  EXPECT_THAT(
      error(ask("ensemble", "<image><image>?", 4, {half_pixels("image_input", golden_pixels())})),
      HasSubstr("536"));  // a row that the table does not have
  std::vector<float> odd = golden_pixels();
  odd[7] = INFINITY;
  EXPECT_THAT(error(encode({pixels(odd)})), HasSubstr("number 7 is not finite"));
  EXPECT_THAT(error(encode({make_output("pixel_values", {1, 1, 3, 14, 56}, golden_pixels())})),
              HasSubstr("expected [batch, pictures, 3, 28, 28]"));
  EXPECT_THAT(error(encode({pixels(golden_pixels()),
                            make_output("aspect_ratio_ids", {1, 1}, std::vector<int64_t>{1})})),
              HasSubstr("input 'aspect_ratio_ids' is not supported"));
  EXPECT_THAT(error(encode({pixels(golden_pixels()), bool_input("is_video_input", true)})),
              HasSubstr("'is_video_input' is true"));
  std::vector<float> many;
  for (int i = 0; i < 65; ++i) {
    const auto one = golden_pixels();
    many.insert(many.end(), one.begin(), one.end());
  }
  EXPECT_THAT(error(encode({pixels(many)})), HasSubstr("1 x 65 pictures; allowed are 64"));
  EXPECT_THAT(
      error(ask("tensorrt_llm_bls", "x", 4,
                {half_pixels("image_input", golden_pixels()), int_input("num_draft_tokens", 2)})),
      HasSubstr("draft"));
}

TEST_F(MultimodalTest, ModelsWhosePicturesHaveSeveralSizesAreRefusedAtLoad) {
  TRITONSERVER_Server* server = nullptr;
  fs::path dir;
  const std::string qwen = source_dir() + "/tests/picture_models/qwen2_vl";
  const Status status = try_to_start(server, dir, {}, [&](const fs::path& repository) {
    write_repository(repository, {{"triton_max_batch_size", "4"}, {"multimodal_model_path", qwen}},
                     "multimodal");
    for (const char* other :
         {"ensemble", "preprocessing", "postprocessing", "tensorrt_llm_bls", "tensorrt_llm"})
      fs::remove_all(repository / other);
  });
  EXPECT_THAT(std::string(message(status)), HasSubstr("have several sizes; allowed are models"));
  stop(server, dir);
}

}  // namespace
}  // namespace nereid::backend
