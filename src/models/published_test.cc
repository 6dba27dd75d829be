// config.json of published checkpoints (lines of tests/configs/published.jsonl) with the number of
// parameters in transformers (multimodal models: the text part's, but all of
// those with cross attention to pictures): the graph has as many.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "base/file.h"
#include "base/testing/source_dir.h"
#include "graph/verify.h"
#include "models/family.h"

namespace nereid::models {
namespace {

// Adds the sizes of distinct tensors; unit norms and tables of positions by sines are in no file,
// the bias of BART's logits is no parameter.
void add_sizes(const Model& model, std::map<std::string, int64_t>& sizes) {
  for (const graph::Weight& weight : model.graph.weights) {
    if (has_ones(model.traits, weight.name)) continue;
    for (const graph::WeightPart& part : weight.parts) {
      if (part.sinusoids != graph::Sinusoids::kNone || part.tensor == "final_logits_bias") continue;
      const int64_t cols = !part.elements.empty() ? part.total_cols
                           : weight.is_vector     ? 1
                                                  : part.tensor_cols(weight.k);
      sizes[part.tensor] = part.tensor_rows() * cols * std::max<int64_t>(part.stacked, 1);
    }
  }
}

int64_t num_parameters(const Model& model, const std::filesystem::path& dir) {
  std::map<std::string, int64_t> sizes;
  add_sizes(model, sizes);
  if (model.family->encoder || model.graph.model.pictures.in_cross) {
    const auto encoder = read_model(dir, Half::kEncoder);
    EXPECT_TRUE(encoder.ok()) << encoder.status();
    if (encoder.ok()) add_sizes(*encoder, sizes);
  }
  int64_t sum = 0;
  for (const auto& [tensor, size] : sizes) sum += size;
  return sum;
}

TEST(Published, ConfigurationsAreReadAndWantTheirParameters) {
  std::string name = testing::TempDir() + "/published.XXXXXX";
  const std::filesystem::path dir = ::mkdtemp(name.data());
  const auto text = read_file(source_dir() + "/tests/configs/published.jsonl");
  ASSERT_TRUE(text.ok()) << text.status();
  std::istringstream lines(*text);
  std::set<std::string_view> families_read;
  for (std::string line; std::getline(lines, line);) {
    const auto row = parse_json(line);
    ASSERT_TRUE(row.ok()) << row.status() << " in " << line;
    SCOPED_TRACE(std::string(row->at("name").as_string()));
    const std::string config = json::serialize(row->at("config"));
    ASSERT_TRUE(write_file_atomic(dir / "config.json", config).ok());
    const auto model = read_model(dir);
    EXPECT_TRUE(model.ok()) << model.status();
    if (!model.ok()) continue;
    families_read.insert(model->family->architecture);
    EXPECT_EQ(num_parameters(*model, dir), row->at("parameters").to_number<int64_t>());
    EXPECT_TRUE(graph::verify(model->graph).ok());
  }
  for (const Family& family : families())
    EXPECT_TRUE(families_read.contains(family.architecture)) << family.architecture;
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace nereid::models
