#include "hub/cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

namespace nereid::hub {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kCommit(40, 'c'), kOther(40, 'd');

class CacheTest : public ::testing::Test {
 protected:
  CacheTest() {
    fs::remove_all(dir_);
    settings_.models_dir = dir_ / "models";
    settings_.hub_cache = dir_ / "hub";
  }
  ~CacheTest() override { fs::remove_all(dir_); }

  static void put(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  // A pulled model of two files; its folder.
  fs::path pulled(const std::string& commit = kCommit) {
    const fs::path folder = folder_of(settings_, model_) / commit;
    put(folder / "config.json", "{}");
    put(folder / "model.safetensors", "12345");
    const Checksum checksum{ChecksumKind::kGitBlob, std::string(40, '1')};
    EXPECT_TRUE(
        write_record(folder, {"a/b",
                              commit,
                              true,
                              {{"config.json", 2, checksum}, {"model.safetensors", 5, checksum}}})
            .ok());
    EXPECT_TRUE(remember_commit(settings_, model_, commit).ok());
    return folder;
  }
  // A model of the hub's own tools: links into blobs.
  fs::path foreign() {
    const fs::path folder = settings_.hub_cache / "models--a--b",
                   snapshot = folder / "snapshots" / kCommit;
    put(folder / "refs/main", kCommit);
    fs::create_directories(snapshot);
    for (const char* name : {"config.json", "model.safetensors", "tokenizer.json"}) {
      put(folder / "blobs" / name, name);
      fs::create_symlink(fs::path("../../blobs") / name, snapshot / name);
    }
    return snapshot;
  }
  std::optional<CachedModel> find(const ModelName& model) {
    auto found = find_cached(settings_, model);
    EXPECT_TRUE(found.ok()) << found.status();
    return found.value_or(std::nullopt);
  }

  const fs::path dir_ = fs::path(::testing::TempDir()) / "hub_cache";
  HubSettings settings_;
  ModelName model_{"a", "b"};
};

TEST_F(CacheTest, CompleteModelIsFoundByBranchAndCommit) {
  EXPECT_EQ(find(model_), std::nullopt);
  const fs::path folder = pulled();
  EXPECT_EQ(find(model_)->path, folder);
  EXPECT_EQ(find({"a", "b", kCommit})->path, folder);
  EXPECT_EQ(find({"a", "b", kOther}), std::nullopt);
  EXPECT_EQ(find({"a", "b", "main", "x.gguf"}), std::nullopt);
}

TEST_F(CacheTest, PartsAndDamageAreNotComplete) {
  const fs::path folder = pulled();
  fs::resize_file(folder / "model.safetensors", 4);
  EXPECT_EQ(find(model_), std::nullopt);
  fs::remove(folder / "model.safetensors");
  EXPECT_EQ(find(model_), std::nullopt);
  put(dir_ / "elsewhere", "12345");
  fs::create_symlink(dir_ / "elsewhere", folder / "model.safetensors");
  EXPECT_EQ(find(model_), std::nullopt);
  fs::remove(folder / "model.safetensors");
  pulled();
  put(folder / kRecordName, R"({"files": [{"name": "../x", "size": 1, "checksum": "1"}]})");
  EXPECT_EQ(find(model_), std::nullopt);
  EXPECT_THAT(std::string(message(read_record(folder).status())), HasSubstr("'../x' leads out"));
}

TEST_F(CacheTest, ModelOfTheHubsOwnToolsIsRead) {
  const fs::path snapshot = foreign();
  EXPECT_EQ(find(model_)->path, snapshot);
  EXPECT_TRUE(find(model_)->is_foreign);
  fs::remove(settings_.hub_cache / "models--a--b/blobs/model.safetensors");
  EXPECT_EQ(find(model_), std::nullopt);
  put(dir_ / "secret", "x");
  fs::remove(snapshot / "model.safetensors");
  fs::create_symlink(dir_ / "secret", snapshot / "model.safetensors");
  EXPECT_THAT(std::string(message(find_cached(settings_, model_).status())),
              HasSubstr("leads out of"));
}

TEST_F(CacheTest, ForeignIndexNamesWhatIsNeeded) {
  const fs::path snapshot = foreign();
  put(snapshot / "model.safetensors.index.json",
      R"({"weight_map": {"x": "model-00001-of-00001.safetensors"}})");
  EXPECT_EQ(find(model_), std::nullopt);
  put(snapshot / "model-00001-of-00001.safetensors", "x");
  EXPECT_EQ(find(model_)->path, snapshot);
}

TEST_F(CacheTest, ListHasBothCachesAndUnfinishedPulls) {
  pulled();
  put(folder_of(settings_, model_) / kOther / "model.safetensors.part", "123");
  foreign();
  const auto rows = list_models(settings_);
  ASSERT_EQ(rows.size(), 3U);
  int num_complete = 0, num_foreign = 0;
  for (const ListedModel& row : rows) {
    EXPECT_EQ(row.model, "a/b");
    num_complete += row.is_complete;
    num_foreign += row.is_foreign;
    if (row.is_complete) {
      EXPECT_THAT(row.revisions, ElementsAre("main"));
    } else {
      EXPECT_EQ(row.bytes, 3);
    }
  }
  EXPECT_EQ(num_complete, 2);
  EXPECT_EQ(num_foreign, 1);
}

TEST_F(CacheTest, RemovesWhatItPulledAndNothingElse) {
  EXPECT_TRUE(absl::IsNotFound(remove_model(settings_, model_, false).status()));
  const fs::path snapshot = foreign();
  EXPECT_THAT(std::string(message(remove_model(settings_, model_, false).status())),
              HasSubstr("own tools"));
  pulled();
  pulled(kOther);
  EXPECT_GT(remove_model(settings_, model_, false).value(), 7);
  EXPECT_FALSE(fs::exists(folder_of(settings_, model_) / kOther));
  EXPECT_TRUE(fs::exists(folder_of(settings_, model_) / kCommit));
  {
    const auto lock = ModelLock::try_take(folder_of(settings_, model_));
    ASSERT_TRUE(lock.ok());
    EXPECT_TRUE(absl::IsResourceExhausted(remove_model(settings_, model_, true).status()));
  }
  EXPECT_TRUE(remove_model(settings_, model_, true).ok());
  EXPECT_FALSE(fs::exists(folder_of(settings_, model_)));
  EXPECT_TRUE(fs::exists(snapshot / "config.json"));
  EXPECT_THAT(std::string(message(remove_model(settings_, {"a", "c"}, true).status())),
              HasSubstr("Did you mean 'a/b'?"));
}

TEST_F(CacheTest, LinksInAModelsFolderAreNotFollowedByRemoval) {
  const fs::path folder = pulled();
  put(dir_ / "mine/file", "x");
  fs::create_directory_symlink(dir_ / "mine", folder / "link");
  EXPECT_TRUE(remove_model(settings_, model_, true).ok());
  EXPECT_TRUE(fs::exists(dir_ / "mine/file"));
}

TEST_F(CacheTest, SecondProcessWaitsAndCanBeStopped) {
  const auto lock = ModelLock::take(dir_ / "m", false);
  ASSERT_TRUE(lock.ok());
  EXPECT_TRUE(absl::IsCancelled(ModelLock::take(dir_ / "m", true).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(ModelLock::try_take(dir_ / "m").status()));
}

}  // namespace
}  // namespace nereid::hub
