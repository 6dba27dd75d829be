// Chats and completions with pictures over real sockets and a scripted model.
#include <absl/strings/escaping.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/testing/loopback_listener.h"
#include "base/testing/source_dir.h"
#include "front/openai/handlers.h"
#include "front/testing/server_fixture.h"
#include "text/testing/quickstart_tokenizer.h"

namespace nereid::front {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kImage = text::kFirstAddedToken;  // id of <image>
constexpr char kTemplate[] =
    "{% for m in messages %}{{ m['role'] }}: "
    "{% if m['content'] is string %}{{ m['content'] }}{% else %}"
    "{% for part in m['content'] %}{% if part['type'] == 'image' %}<image>\n"
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}\n{% endfor %}assistant:";

class PicturesTest : public ServerTest {
 protected:
  void SetUp() override {
    ServerTest::SetUp();
    make_model(kTemplate);
    say(" A boat.");
  }

  static constexpr char kClip[] =
      R"({"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 28},
          "crop_size": {"height": 28, "width": 28}})";

  // The quick-start tokenizer with tokens for pictures, `chat_template`, and a processor for
  // patches of 7 x 7 pixels: CLIP's makes 16 tokens of 28 x 28.
  void make_model(std::string_view chat_template, std::string_view processor = kClip,
                  const std::vector<std::string>& added = {"<image>"}) {
    const std::filesystem::path dir = ::testing::TempDir() + "/pictures_test_model";
    std::filesystem::create_directories(dir);
    text::write_quickstart_tokenizer(dir, added);
    std::ofstream(dir / "chat_template.jinja") << chat_template;
    std::ofstream(dir / "preprocessor_config.json") << processor;
    fake_.tokenizer_dir = dir;
    fake_.picture_patch_width = 3 * 7 * 7;
  }

  static std::string base64(std::string_view bytes) {
    return absl::Base64Escape(absl::string_view(bytes.data(), bytes.size()));
  }
  static std::string file(std::string_view name) {
    return *read_file(source_dir() + "/tests/pictures/" + std::string(name));
  }
  static std::string data_url(std::string_view name) {
    return "data:image/png;base64," + base64(file(name));
  }
  static json::object part(const std::string& url) {
    return {{"type", "image_url"}, {"image_url", {{"url", url}, {"detail", "auto"}}}};
  }
  static json::object chat(json::array parts) {
    return {{"model", "org/tiny"},
            {"max_tokens", 8},
            {"messages", {{{"role", "user"}, {"content", std::move(parts)}}}}};
  }
  static json::object text(std::string_view value) {
    return {{"type", "text"}, {"text", json::string_view(value.data(), value.size())}};
  }
  Reply ask_chat(const json::object& body) {
    return post("/v1/chat/completions", json::serialize(body));
  }

  template <class T>
  std::vector<T> input(const std::string& name) {
    const std::lock_guard lock(fake_.mutex);
    const std::string& bytes = fake_.last_bytes[name];
    std::vector<T> out(bytes.size() / sizeof(T));
    std::memcpy(out.data(), bytes.data(), bytes.size());
    return out;
  }
};

TEST_F(PicturesTest, AChatHasItsPicture) {
  const Reply reply = ask_chat(chat({part(data_url("rgb_28x28.png")), text("What is it?")}));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_THAT(std::string(reply.json().at("choices").at(0).at("message").at("content").as_string()),
              HasSubstr(" A boat."));
  EXPECT_EQ(input<int32_t>("image_grids"), (std::vector<int32_t>{1, 4, 4}));
  EXPECT_EQ(input<float>("image_patches").size(), 16u * 147);
  EXPECT_THAT(fake_.last_inputs, HasSubstr("image_patches[1,16,147]"));
  EXPECT_THAT(fake_.last_inputs, HasSubstr("image_token_spans[1,1,2]"));
  const auto begin = ids("user: ");
  const auto spans = input<int32_t>("image_token_spans");
  EXPECT_EQ(spans, (std::vector<int32_t>{static_cast<int32_t>(begin.size()), 16}));
  std::vector<int32_t> prompt = begin;
  prompt.insert(prompt.end(), 16, kImage);
  for (const int32_t id : ids("\nWhat is it?assistant:")) prompt.push_back(id);
  EXPECT_EQ(fake_.last_prompt, prompt);
  EXPECT_EQ(reply.json().at("usage").at("prompt_tokens").to_number<size_t>(), prompt.size());
}

TEST_F(PicturesTest, ListsOfModelsHavePicturesAmongTheInputs) {
  const json::value list = ask(port_, "GET", "/v1/models", "").json();
  EXPECT_EQ(json::serialize(list.at("data").at(0).at("architecture")),
            R"({"input_modalities":["text","image"],"output_modalities":["text"]})");
}

TEST_F(PicturesTest, SeveralPicturesKeepTheirOrder) {
  const Reply reply = ask_chat(
      chat({text("one"), part(data_url("rgb_2x3.png")), text("two"), part(data_url("grey.png"))}));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const auto spans = input<int32_t>("image_token_spans");
  ASSERT_EQ(spans.size(), 4u);
  EXPECT_LT(spans[0] + spans[1], spans[2]);
  EXPECT_EQ(input<float>("image_patches").size(), 2u * 16 * 147);
  const auto second = input<float>("image_patches");
  ASSERT_EQ(ask_chat(chat({part(data_url("grey.png"))})).status, 200);
  const auto alone = input<float>("image_patches");
  ASSERT_EQ(alone.size(), 16u * 147);
  EXPECT_EQ(std::vector<float>(second.begin() + 16 * 147, second.end()), alone);
}

// Idefics 3: two tiles of 14 x 14 pixels, then the whole picture, are three pictures to the engine.
TEST_F(PicturesTest, TilesArePicturesOfTheirOwn) {
  make_model(
      kTemplate,
      R"({"image_processor_type": "Idefics3ImageProcessor", "size": {"longest_edge": 28},
                 "max_image_size": {"longest_edge": 14}})",
      {"<image>", "<fake_token_around_image>", "<global-img>", "<row_1_col_1>", "<row_1_col_2>"});
  const json::object body = chat({part(data_url("long_5000x1.png")), text("x")});
  const Reply reply = ask_chat(body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  constexpr int32_t kAround = kImage + 1, kWhole = kImage + 2, kFirst = kImage + 3;
  std::vector<int32_t> prompt = ids("user: "), spans;
  const auto add = [&](std::vector<int32_t> more) {
    prompt.insert(prompt.end(), more.begin(), more.end());
  };
  const auto add_tile = [&](int32_t name) {
    add({kAround, name});
    spans.insert(spans.end(), {static_cast<int32_t>(prompt.size()), 4});
    add({kImage, kImage, kImage, kImage});
  };
  add_tile(kFirst), add_tile(kFirst + 1);
  add(ids("\n\n"));
  add_tile(kWhole);
  add({kAround});
  add(ids("\nxassistant:"));
  EXPECT_EQ(fake_.last_prompt, prompt);
  EXPECT_EQ(input<int32_t>("image_token_spans"), spans);
  EXPECT_EQ(input<int32_t>("image_grids"), (std::vector<int32_t>{1, 2, 2, 1, 2, 2, 1, 2, 2}));
  EXPECT_THAT(fake_.last_inputs, HasSubstr("image_patches[1,12,147]"));
  const Reply counted = post("/tokenize", json::serialize(body));
  EXPECT_EQ(counted.json().at("count").to_number<size_t>(), prompt.size());
}

TEST_F(PicturesTest, AChatIsStreamed) {
  json::object body = chat({part(data_url("plain.jpg")), text("x")});
  body["stream"] = true;
  const Reply reply = ask_chat(body);
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(events(reply.body).back(), "[DONE]");
}

TEST_F(PicturesTest, TemplatesWithoutPartsGetMarksInTexts) {
  make_model(
      "{% for m in messages %}{{ m['role'] + ': ' + m['content'] }}\n{% endfor %}assistant:");
  const Reply reply = ask_chat(chat({text("What?"), part(data_url("rgb_28x28.png"))}));
  ASSERT_EQ(reply.status, 200) << reply.body;
  std::vector<int32_t> prompt = ids("user: ");
  prompt.insert(prompt.end(), 16, kImage);
  for (const int32_t id : ids("\nWhat?\nassistant:")) prompt.push_back(id);
  EXPECT_EQ(fake_.last_prompt, prompt);
}

TEST_F(PicturesTest, TextsCannotStandForPictures) {
  const std::string url = data_url("rgb_28x28.png");
  for (const json::object& body : {chat({part(url), text("or <image>?")}), chat({text("<image>")}),
                                   chat({part(url), text("<im"), text("age>")})}) {
    const Reply reply = ask_chat(body);
    EXPECT_EQ(reply.status, 400);
    EXPECT_THAT(reply.body, HasSubstr("<image>"));
  }
}

TEST_F(PicturesTest, FaultsNameThePart) {
  const auto error = [&](const std::string& url) {
    const Reply reply = ask_chat(chat({text("x"), part(url)}));
    EXPECT_EQ(reply.status, 400) << reply.body;
    EXPECT_EQ(reply.json().at("error").at("param"), "messages[0].content[1]");
    return std::string(reply.json().at("error").at("message").as_string());
  };
  const std::string cut = base64(file("plain.jpg").substr(0, 500));
  EXPECT_THAT(error("data:image/jpeg;base64," + cut), HasSubstr("truncated"));
  EXPECT_THAT(error("data:image/png;base64,!!!!"), HasSubstr("is not base64"));
  EXPECT_THAT(error("data:image/png;base64,QUJD\nRA=="), HasSubstr("is not base64"));
  EXPECT_THAT(error("data:image/png;base64,QUI"), HasSubstr("is not base64"));
  EXPECT_THAT(error("data:image/png,QUJD"), HasSubstr("expected data:image/TYPE;base64,DATA"));
  EXPECT_THAT(error("data:video/mp4;base64,QUJD"), HasSubstr("type is 'video/mp4'"));
  EXPECT_THAT(error("data:image/svg+xml;base64," + base64("<svg/>")), HasSubstr("SVG"));
  EXPECT_THAT(error("https://example.com/a.png"), HasSubstr("--allow-media-domain"));
  EXPECT_THAT(error("file:///etc/passwd"), HasSubstr("this server fetches no URLs"));
}

TEST_F(PicturesTest, TilesInThePlaneHaveTheirLayout) {
  make_model(kTemplate,
             R"({"image_processor_type": "LlavaNextImageProcessor", "size": {"shortest_edge": 14},
                 "crop_size": 14, "image_grid_pinpoints": [[14, 28], [28, 14]]})");
  const Reply reply =
      ask_chat(chat({part(data_url("rgb_97x31.png")), part(data_url("rgb_13x77.png"))}));
  ASSERT_EQ(reply.status, 200) << reply.body;
  const auto first = static_cast<int32_t>(ids("user: ").size());
  const auto between = static_cast<int32_t>(ids("\n").size());
  EXPECT_EQ(input<int32_t>("image_tiles"), (std::vector<int32_t>{1, 2, 0, 0, 2, 1, 0, 1}));
  EXPECT_EQ(input<int32_t>("image_grids"), (std::vector<int32_t>{3, 2, 2, 3, 2, 2}));
  EXPECT_EQ(input<int32_t>("image_token_spans"),
            (std::vector<int32_t>{first, 4 + 2 * 5, first + 14 + between, 4 + 4 * 1}));
  EXPECT_THAT(fake_.last_inputs, HasSubstr("image_patches[1,24,147]"));
}

TEST_F(PicturesTest, AModelWithoutPicturesSaysSo) {
  fake_.picture_patch_width = 0;
  const Reply reply = ask_chat(chat({part(data_url("rgb_28x28.png"))}));
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.body, HasSubstr("model 'tensorrt_llm' takes no pictures"));
  EXPECT_THAT(reply.body, HasSubstr("messages[0].content[0]"));
}

TEST_F(PicturesTest, PromptsThatAreCutHaveNoPictures) {
  json::object body = chat({part(data_url("rgb_28x28.png"))});
  body["truncate_prompt_tokens"] = 20;
  EXPECT_THAT(ask_chat(body).body, HasSubstr("'truncate_prompt_tokens': not together with"));
}

TEST_F(PicturesTest, PicturesCountForTheContext) {
  const std::string url = data_url("rgb_28x28.png");
  const Reply reply = ask_chat(chat({part(url), part(url), part(url), part(url)}));
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.body, HasSubstr("maximum context length is 64 tokens"));
}

TEST_F(PicturesTest, CompletionsHaveImages) {
  json::object body = {{"model", "org/tiny"},
                       {"max_tokens", 4},
                       {"prompt", "See <image> here"},
                       {"images", {data_url("rgb_28x28.png")}}};
  const Reply reply = post("/v1/completions", json::serialize(body));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(input<int32_t>("image_token_spans").at(1), 16);
  body["prompt"] = "See here";
  const Reply none = post("/v1/completions", json::serialize(body));
  EXPECT_EQ(none.status, 400);
  EXPECT_THAT(none.body, HasSubstr("has '<image>' 0 times for 1 pictures"));
  body["prompt"] = json::array{"a", "b"};
  EXPECT_THAT(post("/v1/completions", json::serialize(body)).body,
              HasSubstr("only with one prompt"));
}

TEST_F(PicturesTest, TokensOfAChatAreCounted) {
  json::object body = chat({part(data_url("rgb_28x28.png")), text("x")});
  const Reply reply = post("/tokenize", json::serialize(body));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.json().at("count").to_number<size_t>(),
            ids("user: ").size() + 16 + ids("\nxassistant:").size());
}

TEST_F(PicturesTest, ResponsesHaveInputImages) {
  const json::object body = {
      {"model", "org/tiny"},
      {"input",
       {{{"role", "user"},
         {"content",
          {{{"type", "input_image"}, {"image_url", data_url("rgb_28x28.png")}, {"detail", "low"}},
           {{"type", "input_text"}, {"text", "What?"}}}}}}}};
  const Reply reply = post("/v1/responses", json::serialize(body));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(input<int32_t>("image_token_spans").at(1), 16);
}

TEST_F(PicturesTest, AnthropicMessagesHaveImages) {
  const json::object source = {
      {"type", "base64"}, {"media_type", "image/png"}, {"data", base64(file("rgb_28x28.png"))}};
  const auto body = [](const json::object& from) {
    return json::serialize(json::object{
        {"model", "org/tiny"},
        {"max_tokens", 8},
        {"messages",
         {{{"role", "user"},
           {"content",
            {{{"type", "image"}, {"source", from}}, {{"type", "text"}, {"text", "What?"}}}}}}}});
  };
  const Reply reply = post("/v1/messages", body(source));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(input<int32_t>("image_token_spans").at(1), 16);
  EXPECT_THAT(post("/v1/messages", body({{"type", "url"}, {"url", "https://example.com/a"}})).body,
              HasSubstr("--allow-media-domain"));
  EXPECT_THAT(post("/v1/messages", body({{"type", "file"}, {"file_id", "a"}})).body,
              HasSubstr("messages.0.content.0.source.type: 'file' is not supported"));
  EXPECT_THAT(post("/v1/messages",
                   body({{"type", "base64"}, {"media_type", "image/tiff"}, {"data", "QUJD"}}))
                  .body,
              HasSubstr("'image/tiff' is none of"));
}

// Takes connections, reads nothing, and answers when it is destroyed.
class SilentServer {
 public:
  ~SilentServer() { hang_up(); }
  // Waits for a connection.
  void accept() { clients_.push_back(listener_.accept()); }
  // Whether a connection is there.
  bool has_more() const {
    pollfd ready{listener_.socket(), POLLIN, 0};
    return ::poll(&ready, 1, 0) > 0;
  }
  void hang_up() {
    for (const int client : clients_) ::close(client);
    clients_.clear();
  }
  std::string url() const { return fmt::format("http://127.0.0.1:{}/a.png", listener_.port()); }
  std::string host() const { return fmt::format("127.0.0.1:{}", listener_.port()); }

 private:
  LoopbackListener listener_;
  std::vector<int> clients_;
};

class SlowPicturesTest : public PicturesTest {
 protected:
  void SetUp() override {
    openai_.media_domains = {silent_.host()};
    openai_.farthest_media = hub::Reach::kLoopback;
    max_body_bytes_ = 8 << 20;
    PicturesTest::SetUp();
  }
  SilentServer silent_;
};

// More requests with slow URLs than there are workers.
TEST_F(SlowPicturesTest, OtherTextsDoNotWaitForUrls) {
  constexpr size_t kRequests = 20;
  static_assert(kRequests > kTenantFetches);
  const std::string slow = json::serialize(chat({part(silent_.url()), text("What is it?")}));
  std::atomic<size_t> num_answers = 0;
  std::vector<int> statuses(kRequests);
  std::vector<std::thread> clients;
  for (size_t i = 0; i < kRequests; ++i)
    clients.emplace_back([&, i] {
      statuses[i] = post("/v1/chat/completions", slow).status;
      ++num_answers;
    });
  for (size_t i = 0; i < kTenantFetches; ++i) silent_.accept();
  // On the event loop, on a worker, and on the workers for long work.
  for (const size_t size : {size_t{10}, kQuickPromptBytes + 1000, kLongPromptBytes + 1000}) {
    // Blanks that are JSON syntax: the body grows, the prompt does not.
    const std::string body = std::string(size, ' ') + json::serialize(chat({text("What is it?")}));
    EXPECT_EQ(post("/v1/chat/completions", body).status, 200) << size;
  }
  EXPECT_EQ(ask_chat(chat({part(data_url("rgb_28x28.png"))})).status, 200);
  EXPECT_EQ(num_answers, 0u);
  EXPECT_FALSE(silent_.has_more());  // a tenant's URLs are fetched a few at a time
  silent_.hang_up();
  for (size_t i = kTenantFetches; i < kRequests; ++i) {
    silent_.accept();
    silent_.hang_up();
  }
  for (std::thread& client : clients) client.join();
  EXPECT_THAT(statuses, ::testing::Each(400));
}

}  // namespace
}  // namespace nereid::front
