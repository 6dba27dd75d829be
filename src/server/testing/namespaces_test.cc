// Models of one name in several repositories, and folders under other names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "server/testing/client.h"

namespace nereid::server {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr char kEcho[] = "identity", kCount[] = "count";  // behaviours of the test model
constexpr char kAmbiguous[] =
    "There are 2 identifiers of model 'part' in global map, model namespace must be provided to "
    "resolve ambiguity.";

std::string around_part() {
  return "platform: \"ensemble\"\n"
         "input { name: \"IN\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
         "output { name: \"OUT\" data_type: TYPE_INT32 dims: [ -1 ] }\n"
         "ensemble_scheduling { step { model_name: \"part\" input_map { key: \"IN\" value: \"IN\" "
         "} output_map { key: \"OUT\" value: \"OUT\" } } }\n";
}

// Two repositories, "first" and "second".
class Namespaces : public testing::Test {
 protected:
  Namespaces() {
    std::string name = (fs::temp_directory_path() / "nereid-spaces-XXXXXX").string();
    root_ = mkdtemp(name.data());
    for (const char* space : {"first", "second"}) fs::create_directories(root_ / space);
  }
  ~Namespaces() override {
    server_.reset();
    fs::remove_all(root_);
  }

  void add(const fs::path& model, const std::string& config) {
    fs::create_directories(root_ / model / "1");
    std::ofstream(root_ / model / "config.pbtxt") << config;
  }
  void start(TRITONSERVER_ModelControlMode mode, bool has_namespaces = true,
             bool has_second = true) {
    server_ = std::make_unique<TestServer>(root_ / "first", [&](auto* options) {
      if (has_second) {
        TRITONSERVER_ServerOptionsSetModelRepositoryPath(options, (root_ / "second").c_str());
      }
      TRITONSERVER_ServerOptionsSetModelControlMode(options, mode);
      TRITONSERVER_ServerOptionsSetModelNamespacing(options, has_namespaces);
    });
    ASSERT_TRUE(server_->started().ok()) << server_->started().text;
  }
  Outcome load(const char* name) {
    return Outcome(TRITONSERVER_ServerLoadModel(server_->get(), name));
  }
  void poll() { EXPECT_TRUE(Outcome(TRITONSERVER_ServerPollModelRepository(server_->get())).ok()); }
  // The behaviour of the answering model, or the error.
  std::string answer(const std::string& model) {
    TestCall call(server_->get(), model, {4});
    if (!call.created.ok()) return call.created.text;
    const Outcome sent = call.send();
    if (!sent.ok()) return sent.text;
    EXPECT_TRUE(call.wait());
    const auto values = call.joined();
    return values == std::vector<int32_t>{4} ? kEcho : values.size() == 2 ? kCount : "neither";
  }
  Outcome add_repository(const fs::path& path, const char* folder, const char* model) {
    auto* name = TRITONSERVER_ParameterNew(folder, TRITONSERVER_PARAMETER_STRING, model);
    const TRITONSERVER_Parameter* mapping[] = {name};
    const Outcome out(
        TRITONSERVER_ServerRegisterModelRepository(server_->get(), path.c_str(), mapping, 1));
    TRITONSERVER_ParameterDelete(name);
    return out;
  }

  fs::path root_;
  std::unique_ptr<TestServer> server_;
};

TEST_F(Namespaces, EnsemblesTakeTheirOwnPartsAndABareNameIsAmbiguous) {
  add("first/part", test_model(kEcho));
  add("second/part", test_model(kCount));
  add("first/e1", around_part());
  add("second/e2", around_part());
  start(TRITONSERVER_MODEL_CONTROL_NONE);
  EXPECT_EQ(answer("e1"), kEcho);
  EXPECT_EQ(answer("e2"), kCount);
  EXPECT_EQ(answer("part"), kAmbiguous);
  EXPECT_EQ(answer("nope"), "Request for unknown model: 'nope' is not found");
  EXPECT_THAT(server_->metrics(), HasSubstr("nv_inference_count{model=\"part\",namespace=\"" +
                                            (root_ / "second").string() + "\",version=\"1\"} 1"));
}

TEST_F(Namespaces, APartMayComeFromElsewhereWhileItsNameIsClear) {
  add("second/part", test_model(kCount));
  add("first/e1", around_part());
  start(TRITONSERVER_MODEL_CONTROL_POLL);
  EXPECT_EQ(answer("e1"), kCount);
  EXPECT_EQ(answer("part"), kCount);
  add("first/part", test_model(kEcho));
  poll();
  EXPECT_EQ(answer("e1"), kEcho) << "its own repository's comes first";
  EXPECT_EQ(answer("part"), kAmbiguous);
  fs::remove_all(root_ / "first" / "part");
  poll();
  poll();  // an ensemble may sort before its part
  EXPECT_EQ(answer("e1"), kCount);
}

TEST_F(Namespaces, ALoadByNameLoadsAllOfThem) {
  add("first/part", test_model(kEcho));
  add("second/part", test_model(kCount));
  start(TRITONSERVER_MODEL_CONTROL_EXPLICIT);
  ASSERT_TRUE(load("part").ok());
  EXPECT_EQ(answer("part"), kAmbiguous);
  ASSERT_TRUE(Outcome(TRITONSERVER_ServerUnloadModel(server_->get(), "part")).ok());
  EXPECT_EQ(answer("part"), "Request for unknown model: 'part' is not found");
}

TEST_F(Namespaces, ALoadFindsPartsAnew) {
  add("second/part", test_model(kCount));
  add("first/e1", around_part());
  start(TRITONSERVER_MODEL_CONTROL_EXPLICIT);
  ASSERT_TRUE(load("e1").ok());
  EXPECT_EQ(answer("e1"), kCount);
  add("first/part", test_model(kEcho));
  ASSERT_TRUE(load("e1").ok());
  EXPECT_EQ(answer("e1"), kEcho);
  EXPECT_EQ(answer("part"), kAmbiguous) << "the other one is still loaded";
}

TEST_F(Namespaces, WithoutThemANameOfTwoRepositoriesIsNoModel) {
  add("first/part", test_model(kEcho));
  add("second/part", test_model(kCount));
  start(TRITONSERVER_MODEL_CONTROL_EXPLICIT, /*has_namespaces=*/false);
  EXPECT_FALSE(load("part").ok());
}

TEST_F(Namespaces, AFolderUnderAnotherName) {
  add("second/folder", test_model(kEcho) + "name: \"folder\"\n");
  start(TRITONSERVER_MODEL_CONTROL_EXPLICIT, /*has_namespaces=*/false, /*has_second=*/false);
  const fs::path second = root_ / "second";
  EXPECT_EQ(add_repository(second, "folder", "a/b").code, TRITONSERVER_ERROR_INVALID_ARG);
  EXPECT_EQ(add_repository(second, "../first", "model").code, TRITONSERVER_ERROR_INVALID_ARG);
  ASSERT_TRUE(add_repository(second, "folder", "model").ok());
  EXPECT_FALSE(load("folder").ok());
  ASSERT_TRUE(load("model").ok());
  EXPECT_EQ(answer("model"), kEcho);
  TRITONSERVER_Message* index = nullptr;
  ASSERT_TRUE(Outcome(TRITONSERVER_ServerModelIndex(server_->get(), 0, &index)).ok());
  EXPECT_EQ(take_text(index), R"([{"name":"model","version":"1","state":"READY"}])");
  fs::create_directories(root_ / "third");
  EXPECT_EQ(add_repository(root_ / "third", "other", "model").code,
            TRITONSERVER_ERROR_ALREADY_EXISTS);
  EXPECT_TRUE(
      Outcome(TRITONSERVER_ServerUnregisterModelRepository(server_->get(), second.c_str())).ok());
  EXPECT_FALSE(load("model").ok()) << "the name went with the repository";
}

}  // namespace
}  // namespace nereid::server
