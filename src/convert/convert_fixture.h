// Test only: a copy of the tests' tiny Llama, and its engines.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/testing/source_dir.h"
#include "convert/engine_cache.h"
#include "io/engine_file.h"
#include "io/safetensors.h"
#include "kernels/ref/ref.h"

namespace nereid::convert {

inline const std::string kSource = source_dir();

class ConvertTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/convert.XXXXXX";
    dir_ = ::mkdtemp(name.data());
    std::filesystem::copy(kSource + "/tests/models/llama", dir_ / "model");
    kernels::ref::add_kernels(registry_);
    options_.cache_dir = dir_ / "cache";
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  StatusOr<std::filesystem::path> ensure() {
    return ensure_engine(dir_ / "model", registry_, DeviceInfo{}, options_, &report_);
  }
  std::filesystem::path good() {
    const auto path = ensure();
    EXPECT_TRUE(path.ok()) << path.status();
    return path.ok() ? *path : "";
  }
  std::string error() {
    const auto path = ensure();
    return path.ok() ? "" : std::string(message(path.status()));
  }
  // Rewrites the checkpoint with changed tensors; `storage_` owns new data.
  template <class Change>
  void change_tensors(Change change) {
    const auto file = io::TensorFile::open(dir_ / "model/model.safetensors");
    std::vector<io::StoredTensor> tensors = file->tensors();
    for (io::StoredTensor& tensor : tensors) change(tensor);
    const std::string bytes = io::serialize_safetensors(tensors);
    ASSERT_TRUE(write_file_atomic(dir_ / "model/model.safetensors", bytes).ok());
  }
  std::vector<std::byte> blob(const std::filesystem::path& path) {
    const auto file = io::EngineFile::open(path);
    EXPECT_TRUE(file.ok()) << file.status();
    return {file->blob().begin(), file->blob().end()};
  }
  template <class T, class To>
  std::span<const std::byte> converted(const io::StoredTensor& tensor, To to) {
    std::string& out = storage_.emplace_back();
    for (size_t i = 0; i < tensor.data.size(); i += 2) {
      BF16 x;
      std::memcpy(&x, tensor.data.data() + i, 2);
      const T y = to(to_float(x));
      out.append(reinterpret_cast<const char*>(&y), sizeof y);
    }
    return std::as_bytes(std::span(out));
  }

  std::filesystem::path dir_;
  kernels::Registry registry_;
  BuildOptions options_;
  BuildReport report_;
  std::deque<std::string> storage_;
};

}  // namespace nereid::convert
