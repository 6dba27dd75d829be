#include "convert/random_model.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <map>

#include "convert/inspect.h"
#include "kernels/ref/ref.h"

namespace nereid::convert {
namespace {

using testing::HasSubstr;

// Parameter counts as published.
TEST(RandomModel, HasTheDimensionsOfItsName) {
  std::string name = testing::TempDir() + "/random.XXXXXX";
  const std::filesystem::path cache = ::mkdtemp(name.data());
  const std::map<std::string, double> parameters = {
      {"llama-3.1-8b", 8030261248},
      {"llama-3.1-70b", 70553706496},
      {"llama-3.2-1b", 1235814400},
      {"qwen2.5-0.5b", 494032768},
      {"qwen2.5-7b", 7615616512},
      {"mixtral-8x7b", 46702792704},
      // An engine's decoder and encoder have an embedding each, and tables of positions by sines.
      {"t5-base", 222903552 + 32128 * 768 - 2 * 32 * 12},
      {"nllb-200-600m", 615073792 + 256206 * 1024 + 2 * 1024 * 1024},
      {"whisper-small", 241734912},
      {"whisper-large-v3", 1543490560},
      {"whisper-large-v3-turbo", 808878080},
  };
  kernels::Registry registry;
  kernels::ref::add_kernels(registry);
  for (const std::string& model : random_model_names()) {
    const auto dir = random_model_dir(model, cache);
    ASSERT_TRUE(dir.ok()) << dir.status();
    const auto text = inspect(*dir, registry, DeviceInfo{});
    ASSERT_TRUE(text.ok()) << text.status();
    // bf16, with alignment of each part of the file.
    double sum = 0;
    for (size_t at = 0; (at = text->find("\nweights ", at)) != text->npos; at += 9)
      if (text->find("MiB", at) < text->find('\n', at + 1)) sum += std::stod(text->substr(at + 9));
    const double wanted = parameters.at(model) * 2 / 1048576;
    // Encoder-decoder models: position biases by distance, and vectors of f32.
    const bool has_encoder = text->find("\nencoder: ") != text->npos;
    EXPECT_NEAR(sum, wanted, has_encoder ? wanted * 0.003 : 0.1) << model;
  }
  const auto other = random_model_dir("llama-9", cache);
  EXPECT_THAT(std::string(message(other.status())), HasSubstr("'llama-9', only for: llama-3.1-8b"));
  std::filesystem::remove_all(cache);
}

}  // namespace
}  // namespace nereid::convert
