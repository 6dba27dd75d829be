// The quick-start model on a GPU: greedy ids and logits against the golden files. A program of its
// own, because it needs a GPU; tools/gpu_test.sh runs it.
// usage: gpu_model_test MODEL_DIR GOLDEN_DIR [DEVICE]
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "convert/engine_cache.h"
#include "exec/test_harness.h"
#include "exec/tree_fixture.h"
#include "io/safetensors.h"
#include "kernels/open.h"

namespace nereid::exec {
namespace {

constexpr int32_t kSteps = 48;
constexpr int32_t kMaxLength = 2048;
constexpr int32_t kChunk = 512;
// Largest error of a logit as a share of the spread of its row's logits. bf16 inputs of every
// product (relative rounding 2^-9, 25 of them in a row of layers) give about 0.02.
constexpr double kLogitTolerance = 0.08;

struct GoldenCase {
  Ids prompt, greedy;
  int32_t num_clear = 0;  // first steps whose token any correct engine gives
};

StatusOr<std::vector<GoldenCase>> read_cases(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const json::value root, read_json_file(path));
  const auto ids = [](const json::value& list) {
    Ids out;
    for (const json::value& id : list.as_array()) out.push_back(id.to_number<int32_t>());
    return out;
  };
  std::vector<GoldenCase> cases;
  for (const json::value& c : root.at("cases").as_array())
    cases.push_back({ids(c.at("prompt_ids")), ids(c.at("greedy_ids")),
                     c.at("clear_steps").to_number<int32_t>()});
  return cases;
}

// Ids that are the golden ones, before the case's first other one, of those that are compared.
struct Agreement {
  int num_right = 0, num_compared = 0;

  void add(const GoldenCase& c, const Ids& got) {
    int32_t step = 0;
    while (step < c.num_clear && got[static_cast<size_t>(step)] == c.greedy[step]) ++step;
    num_right += step;
    num_compared += c.num_clear;
    if (step < c.num_clear)
      std::printf("a prompt of %zu ids, step %d: token %d, golden %d\n", c.prompt.size(), step,
                  got[static_cast<size_t>(step)], c.greedy[step]);
  }
  bool is_good(double share) const { return num_right >= share * num_compared; }
};

// All cases decoded together after a prefill in chunks; 1 if less than `share` of the ids are
// right, else 0.
int check_ids(Harness& harness, const std::vector<GoldenCase>& cases, double share) {
  std::vector<Sequence> sequences;
  std::vector<Ids> got(cases.size());
  for (size_t i = 0; i < cases.size(); ++i) {
    sequences.emplace_back(static_cast<int32_t>(i), harness.runner().limits());
    int32_t first = 0;
    harness.prefill(sequences[i], cases[i].prompt, kChunk, &first);
    got[i].push_back(first);
  }
  const Time start = now();
  for (int32_t step = 1; step < kSteps; ++step) {
    std::vector<RowSpec> rows;
    for (size_t i = 0; i < cases.size(); ++i)
      rows.push_back(sequences[i].row(std::span(got[i]).last(1),
                                      static_cast<int32_t>(cases[i].prompt.size()) + step - 1, 1));
    const Ids ids = harness.step(rows);
    for (size_t i = 0; i < cases.size(); ++i) got[i].push_back(ids[i]);
  }
  const double elapsed = seconds(now() - start);
  Agreement agreement;
  for (size_t i = 0; i < cases.size(); ++i) agreement.add(cases[i], got[i]);
  const bool good = agreement.is_good(share);
  std::printf("%s  greedy ids: %zu cases, %d of %d ids agree; %.2f ms per step of %zu rows\n",
              good ? "PASS" : "FAIL", cases.size(), agreement.num_right, agreement.num_compared,
              elapsed * 1e3 / (kSteps - 1), cases.size());
  return good ? 0 : 1;
}

double spread_of(const std::vector<float>& row) {
  double mean = 0, squares = 0;
  for (const float x : row) mean += x / static_cast<double>(row.size());
  for (const float x : row) squares += (x - mean) * (x - mean);
  return std::sqrt(squares / static_cast<double>(row.size()));
}

// Every stored row of logits; the number of rows over the tolerance.
StatusOr<int> check_logits(Harness& harness, const std::vector<GoldenCase>& cases,
                           const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(const auto file, io::TensorFile::open(path));
  int num_rows = 0, num_wrong = 0;
  double worst = 0;
  for (const io::StoredTensor& tensor : file.tensors()) {
    int index = 0, position = 0;
    if (std::sscanf(tensor.name.c_str(), "logits.%d.%d", &index, &position) != 2) continue;
    std::vector<float> expected(tensor.data.size() / sizeof(float));
    std::memcpy(expected.data(), tensor.data.data(), tensor.data.size());
    Ids tokens = cases.at(static_cast<size_t>(index)).prompt;
    const Ids& greedy = cases[static_cast<size_t>(index)].greedy;
    tokens.insert(tokens.end(), greedy.begin(), greedy.end());
    tokens.resize(static_cast<size_t>(position) + 1);
    const std::vector<float> got =
        harness.prefill(Sequence(0, harness.runner().limits()), tokens, kChunk);
    if (got.size() != expected.size())
      return internal_error("{}: {} logits, golden {}", tensor.name, got.size(), expected.size());
    double error = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double difference = std::abs(double{got[i]} - expected[i]);
      if (!(difference <= error)) error = difference;
    }
    const double share = error / spread_of(expected);
    ++num_rows;
    num_wrong += !(share <= kLogitTolerance);
    if (!(share <= worst)) worst = share;
  }
  std::printf("%s  logits: %d rows, worst error %.4f of a row's spread, allowed %.2f\n",
              num_wrong == 0 && num_rows > 0 ? "PASS" : "FAIL", num_rows, worst, kLogitTolerance);
  return num_rows > 0 ? num_wrong : 1;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return !a.empty() && a.size() == b.size() &&
         std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Each case alone: recorded steps against the same steps issued call by call, the same bits of
// every logit; and the ids, as above.
int check_recording(Harness& harness, const std::vector<GoldenCase>& cases, double share) {
  int num_wrong = 0;
  Agreement agreement;
  for (const GoldenCase& c : cases) {
    std::vector<float> logits[2];
    for (const bool recorded : {false, true}) {
      harness.runner().set_recording(recorded);
      const Ids ids = harness.generate(Sequence(0, harness.runner().limits()), c.prompt, kSteps,
                                       kChunk, &logits[recorded]);
      if (recorded) agreement.add(c, ids);
    }
    num_wrong += !same_bits(logits[0], logits[1]);
  }
  num_wrong += !agreement.is_good(share);
  std::printf(
      "%s  recorded steps of one row: %zu cases of %d steps, %d differ or are wrong; %d of %d ids "
      "agree\n",
      num_wrong == 0 ? "PASS" : "FAIL", cases.size(), kSteps, num_wrong, agreement.num_right,
      agreement.num_compared);
  return num_wrong;
}

// Logits of kSteps tokens of each case, all cases in the same steps: a step takes up to kShare
// tokens of each, so that those with short prompts decode beside the others' chunks.
std::vector<std::vector<float>> generate_together(Harness& harness,
                                                  const std::vector<GoldenCase>& cases) {
  const int32_t share = kChunk / static_cast<int32_t>(cases.size());
  struct Progress {
    Sequence sequence;
    Ids tokens;
    int32_t done = 0, drawn = 0;
  };
  std::vector<Progress> all;
  for (size_t i = 0; i < cases.size(); ++i)
    all.push_back({Sequence(static_cast<int32_t>(i), harness.runner().limits()), cases[i].prompt});
  std::vector<std::vector<float>> kept(cases.size());
  while (true) {
    std::vector<RowSpec> rows;
    std::vector<size_t> drawing;
    for (size_t i = 0; i < all.size(); ++i) {
      Progress& p = all[i];
      if (p.drawn == kSteps) continue;
      const auto size = static_cast<int32_t>(p.tokens.size());
      const int32_t count = std::min(share, size - p.done);
      const bool draws = p.done + count == size;
      rows.push_back(
          p.sequence.row(std::span(p.tokens).subspan(p.done, count), p.done, draws ? 1 : 0));
      p.done += count;
      if (draws) drawing.push_back(i);
    }
    if (rows.empty()) return kept;
    std::vector<float> logits;
    const Ids ids = harness.step(rows, &logits);
    for (size_t r = 0; r < drawing.size(); ++r) {
      const std::span<const float> row =
          std::span(logits).subspan(r * harness.vocab(), harness.vocab());
      kept[drawing[r]].insert(kept[drawing[r]].end(), row.begin(), row.end());
      all[drawing[r]].tokens.push_back(ids[r]);
      ++all[drawing[r]].drawn;
    }
  }
}

// The same bits of every logit alone, in other chunks and beside others.
int check_invariance(Harness& harness, const std::vector<GoldenCase>& cases) {
  constexpr int32_t kSmallChunk = 7;
  const std::vector<std::vector<float>> together = generate_together(harness, cases);
  int num_chunks_differ = 0, num_batches_differ = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    std::vector<float> alone, chunked;
    const Sequence sequence(0, harness.runner().limits());
    harness.generate(sequence, cases[i].prompt, kSteps, kChunk, &alone);
    harness.generate(sequence, cases[i].prompt, kSteps, kSmallChunk, &chunked);
    num_chunks_differ += !same_bits(alone, chunked);
    num_batches_differ += !same_bits(alone, together[i]);
  }
  const int num_wrong = num_chunks_differ + num_batches_differ;
  std::printf(
      "%s  deterministic: %zu cases of %d steps, %d differ in other chunks, %d in a batch\n",
      num_wrong == 0 ? "PASS" : "FAIL", cases.size(), kSteps, num_chunks_differ,
      num_batches_differ);
  return num_wrong;
}

// Trees of drafts against rows that say one of their paths: the same bits where results do not
// depend on the batch; else logits within the tolerance, with a cache that is not rounded further.
StatusOr<int> check_trees(const std::filesystem::path& engine, const std::string& device,
                          bool deterministic) {
  int num_nodes = 0, num_wrong = 0;
  double worst = 0;
  for (const DType type : {DType::kBF16, DType::kI8, DType::kF8E4M3})
    for (const int32_t window : {0, 20}) {
      if (!deterministic && type != DType::kBF16) continue;
      RunnerLimits limits = tree_limits(500, 32);
      limits.max_tokens = 500;
      limits.kv_type = type, limits.window = window, limits.sink = window / 8;
      TreeRunner runner(engine, limits, kernels::open_device(device));
      for (const int32_t length : {1, 17, 125, 250}) {
        ASSIGN_OR_RETURN(const TreeRunner::Nodes nodes, runner.nodes_after(length));
        for (size_t i = 0; i < nodes.alone.size(); ++i, ++num_nodes) {
          const std::vector<float>&got = nodes.in_tree.at(i), &expected = nodes.alone[i];
          double error = 0;
          for (size_t c = 0; c < expected.size(); ++c) {
            const double difference = std::abs(double{got.at(c)} - expected[c]);
            if (!(difference <= error)) error = difference;
          }
          error /= spread_of(expected);
          if (!(error <= worst)) worst = error;
          num_wrong += deterministic ? !same_bits(got, expected) : !(error <= kLogitTolerance);
        }
      }
    }
  std::printf("%s  trees of drafts: %d nodes, %d differ from their paths%s, worst error %.4f\n",
              num_wrong == 0 ? "PASS" : "FAIL", num_nodes, num_wrong,
              deterministic ? " in bits" : "", worst);
  return num_wrong;
}

// One way to build the model.
struct Variant {
  kernels::Choices forced;
  std::optional<kernels::WeightFormat> weights;
  double share = 1;  // of the golden ids that must agree
  bool deterministic = false;
  kernels::WeightFormat head = {};
};

// The number of failures. Logits are compared with the golden ones where weights are not rounded.
StatusOr<int> run(const std::filesystem::path& model, const std::filesystem::path& golden,
                  const std::string& device, const Variant& variant) {
  std::printf("%s, linear kernel: %s, weights: %s, head: %s\n", device.c_str(),
              variant.forced.empty() ? "the cheapest" : variant.forced[0].c_str(),
              variant.weights ? kernels::text_of(*variant.weights).c_str() : "bf16",
              kernels::text_of(variant.head).c_str());
  ASSIGN_OR_RETURN(const auto cases, read_cases(golden / "target.json"));
  ASSIGN_OR_RETURN(auto opened, kernels::open_device(device));
  convert::BuildOptions options;
  options.cache_dir = std::filesystem::temp_directory_path() / "nereid-gpu-model-test";
  options.compile.forced = variant.forced;
  options.compile.weights = variant.weights;
  options.compile.head = variant.head;
  options.rebuild = true;  // so that its products are measured on this device
  options.measure_on = opened.device.get();
  ASSIGN_OR_RETURN(const auto engine,
                   convert::ensure_engine(model, opened.registry, opened.device->info(), options));
  const RunnerLimits limits =
      roomy_limits(static_cast<int32_t>(cases.size()), kChunk, kMaxLength, 32);
  Harness harness(engine, limits, StatusOr<kernels::OpenedDevice>(std::move(opened)));
  int num_wrong = check_ids(harness, cases, variant.share);
  if (!variant.weights) {
    ASSIGN_OR_RETURN(const int wrong_logits,
                     check_logits(harness, cases, golden / "nereid-tiny_logits.safetensors"));
    num_wrong += wrong_logits;
  }
  if (variant.deterministic) num_wrong += check_invariance(harness, cases);
  if (variant.deterministic || !variant.weights) {
    ASSIGN_OR_RETURN(const int wrong_trees, check_trees(engine, device, variant.deterministic));
    num_wrong += wrong_trees;
  }
  return num_wrong + check_recording(harness, cases, variant.share);
}

}  // namespace
}  // namespace nereid::exec

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: gpu_model_test MODEL_DIR GOLDEN_DIR [DEVICE]\n");
    return 2;
  }
  int num_failed = 0;
  const nereid::kernels::Choices kInvariant = {"linear:invariant", "attention:invariant"};
  for (const nereid::exec::Variant& variant :
       {nereid::exec::Variant{}, nereid::exec::Variant{{"linear:plain"}},
        nereid::exec::Variant{kInvariant, {}, 1, true},
        nereid::exec::Variant{kInvariant, nereid::kernels::kFp8PerRow, .95, true},
        nereid::exec::Variant{kInvariant, nereid::kernels::kInt4Groups, .65, true},
        nereid::exec::Variant{{}, nereid::kernels::kFp8PerRow, .95},
        nereid::exec::Variant{{}, nereid::kernels::kInt8PerRow, .99},
        nereid::exec::Variant{
            {}, nereid::kernels::kInt8PerRow, .97, false, nereid::kernels::kInt8PerRow},
        nereid::exec::Variant{{}, nereid::kernels::kInt4Groups, .65}}) {
    const auto result = nereid::exec::run(argv[1], argv[2], argc > 3 ? argv[3] : "cuda:0", variant);
    num_failed += result.ok() ? *result : 1;
    if (!result.ok())
      std::printf("FAIL  %s\n", std::string(nereid::message(result.status())).c_str());
  }
  return num_failed == 0 ? 0 : 1;
}
