// Plans of ranks, interpreted side by side: golden ids for every model and mapping, and the bits of
// one rank with `invariant`.
#include <gmock/gmock.h>
#include <unistd.h>

#include <cstring>
#include <deque>
#include <memory>
#include <set>

#include "base/file.h"
#include "base/json.h"
#include "base/testing/source_dir.h"
#include "convert/engine_cache.h"
#include "convert/engine_dir.h"
#include "convert/interpreter_fixture.h"
#include "convert/trtllm_checkpoint.h"
#include "io/engine_file.h"
#include "kernels/ref/ref.h"
#include "models/family.h"

namespace nereid::convert {
namespace {

using testing::HasSubstr;

const std::string kSourceRoot = source_dir();

float tree_sum(const std::vector<float>& x, size_t first, size_t count) {
  if (count == 1) return x[first];
  size_t half = 1;
  while (half * 2 < count) half *= 2;
  return tree_sum(x, first, half) + tree_sum(x, first + half, count - half);
}

// All ranks of a mapping; exchanges copy between their arenas.
class Ranks {
 public:
  explicit Ranks(const std::vector<io::EngineFile>& engines) {
    for (const io::EngineFile& engine : engines)
      ranks_.push_back(std::make_unique<Interpreter>(engine));
    mail_.resize(ranks_.size());
  }

  std::vector<float> run(const std::vector<int32_t>& tokens) {
    for (const auto& rank : ranks_) rank->begin(tokens);
    const io::Mapping& m = ranks_[0]->plan().mapping;
    for (int32_t stage = 0; stage < m.pp; ++stage) {
      const size_t first = static_cast<size_t>(stage) * static_cast<size_t>(m.tp);
      team_ = std::span(ranks_).subspan(first, static_cast<size_t>(m.tp));
      first_ = first;
      while (exchange()) {
      }
    }
    return ranks_[ranks_.size() - static_cast<size_t>(m.tp)]->logits();
  }

 private:
  // Runs the team's next exchange; false: all ranks are done.
  bool exchange() {
    std::vector<const io::Op*> ops;
    for (const auto& rank : team_) ops.push_back(rank->run_to_exchange());
    if (!ops[0]) {
      for (const io::Op* op : ops) EXPECT_EQ(op, nullptr);
      return false;
    }
    for (const io::Op* op : ops) {
      EXPECT_TRUE(op && op->index() == ops[0]->index());
      if (!op || op->index() != ops[0]->index()) return false;
    }
    std::visit(
        [&]<class Op>(const Op&) {
          if constexpr (kernels::kIsExchange<Op>) {
            std::vector<kernels::in_form<Op, kernels::Views>> views;
            for (size_t r = 0; r < ops.size(); ++r)
              views.push_back(kernels::look_up(std::get<Op>(*ops[r]), *team_[r]));
            exchange(views);
          }
        },
        *ops[0]);
    for (const auto& rank : team_) rank->skip_exchange();
    return true;
  }

  void exchange(const std::vector<kernels::AllReduce>& ops) {
    const View& out = ops[0].out;
    for (int64_t i = 0; i < out.rows; ++i)
      for (int64_t c = 0; c < out.cols; ++c) {
        std::vector<float> parts;
        for (const auto& op : ops) parts.push_back(op.x.row<float>(i)[c]);
        for (const auto& op : ops) op.out.row<float>(i)[c] = tree_sum(parts, 0, parts.size());
      }
  }
  void exchange(const std::vector<kernels::AllReduceNorm>& ops) {
    std::vector<kernels::AllReduce> sums;
    for (const auto& op : ops) sums.push_back({.x = op.x, .out = op.x});
    exchange(sums);
    for (const auto& op : ops)
      reference(kernels::Norm{.x = op.residual,
                              .add = op.x,
                              .weight = op.weight,
                              .eps = op.eps,
                              .weight_offset = op.weight_offset,
                              .out = op.out,
                              .sum = op.sum,
                              .scales = op.scales});
  }
  void exchange(const std::vector<kernels::AllGather>& ops) {
    const auto ranks = static_cast<int64_t>(ops.size());
    const int64_t pieces = ops[0].pieces, unit = ops[0].unit;
    const int64_t width = ops[0].out.cols / pieces, units = width / unit;
    const size_t size = size_of(ops[0].out.dtype);
    for (int64_t r = 0; r < ranks; ++r) {
      const int64_t begin = kernels::share_begin(units, ranks, r);
      const int64_t count = kernels::share_begin(units, ranks, r + 1) - begin;
      const View& x = ops[static_cast<size_t>(r)].x;
      for (const auto& op : ops)
        for (int64_t i = 0; i < op.out.rows; ++i)
          for (int64_t p = 0; p < pieces; ++p)
            std::memcpy(at(op.out, i, p * width + begin * unit), at(x, i, p * (x.cols / pieces)),
                        static_cast<size_t>(count * unit) * size);
    }
  }
  void exchange(const std::vector<kernels::TakeColumns>& ops) {
    for (const auto& op : ops)
      for (int64_t i = 0; i < op.out.rows; ++i)
        std::memcpy(at(op.out, i, 0), at(op.x, i, op.column),
                    static_cast<size_t>(op.out.cols) * size_of(op.out.dtype));
  }
  void exchange(const std::vector<kernels::Send>& ops) {
    for (size_t r = 0; r < ops.size(); ++r)
      for (int64_t i = 0; i < ops[r].x.rows; ++i) {
        const auto* const row = at(ops[r].x, i, 0);
        const size_t bytes = static_cast<size_t>(ops[r].x.cols) * size_of(ops[r].x.dtype);
        mail_[first_ + ops.size() + r].emplace_back(row, row + bytes);
      }
  }
  void exchange(const std::vector<kernels::Recv>& ops) {
    for (size_t r = 0; r < ops.size(); ++r)
      for (int64_t i = 0; i < ops[r].out.rows; ++i) {
        auto& mail = mail_[first_ + r];
        ASSERT_FALSE(mail.empty());
        ASSERT_EQ(mail.front().size(),
                  static_cast<size_t>(ops[r].out.cols) * size_of(ops[r].out.dtype));
        std::memcpy(at(ops[r].out, i, 0), mail.front().data(), mail.front().size());
        mail.pop_front();
      }
  }

  static std::byte* at(const View& v, int64_t row, int64_t col) {
    return static_cast<std::byte*>(v.data) +
           (row * v.stride + col) * static_cast<int64_t>(size_of(v.dtype));
  }

  std::vector<std::unique_ptr<Interpreter>> ranks_;
  std::span<std::unique_ptr<Interpreter>> team_;          // of a stage
  size_t first_ = 0;                                      // rank of team_[0]
  std::vector<std::deque<std::vector<std::byte>>> mail_;  // by rank
};

class PartitionTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "/partition.XXXXXX";
    dir_ = ::mkdtemp(name.data());
    kernels::ref::add_kernels(registry_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  StatusOr<std::vector<io::EngineFile>> engines(const std::string& model, io::Mapping mapping,
                                                bool adapters = false) {
    return engines_of(kSourceRoot + "/tests/models/" + model, mapping, adapters);
  }
  StatusOr<std::vector<io::EngineFile>> engines_of(const std::filesystem::path& model,
                                                   io::Mapping mapping, bool adapters) {
    std::vector<io::EngineFile> files;
    for (mapping.rank = 0; mapping.rank < mapping.world(); ++mapping.rank) {
      BuildOptions options;
      options.cache_dir = dir_;
      options.compile.mapping = mapping;
      options.compile.adapters = adapters;
      ASSIGN_OR_RETURN(const auto path, ensure_engine(model, registry_, DeviceInfo{}, options));
      ASSIGN_OR_RETURN(io::EngineFile file, io::EngineFile::open(path));
      files.push_back(std::move(file));
    }
    return files;
  }

  // A mapping with these sizes as far as the model's heads and experts allow.
  static io::Mapping fit(const std::string& model, io::Mapping m) {
    const models::Traits t = models::read_model(kSourceRoot + "/tests/models/" + model)->traits;
    const auto divides = [&](int32_t tp) {
      return t.num_heads % tp == 0 && (t.num_kv_heads % tp == 0 || tp % t.num_kv_heads == 0) &&
             t.intermediate_size % tp == 0;
    };
    // Equal bits need parts of equal sizes for every number of ranks.
    const auto is_power = [](int32_t tp) { return (tp & (tp - 1)) == 0; };
    while (m.tp > 1 && (!divides(m.tp) || (m.invariant && !is_power(m.tp)))) --m.tp;
    m.pp = std::min(m.pp, t.num_layers);
    m.ep = t.num_experts > 0 && m.tp % m.ep == 0 && t.num_experts % m.ep == 0 ? m.ep : 1;
    if (m.invariant && t.num_experts > 0) m.ep = m.tp;
    return m;
  }

  std::filesystem::path dir_;
  kernels::Registry registry_;
};

std::vector<std::string> tiny_models() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kSourceRoot + "/tests/models"))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  EXPECT_FALSE(names.empty());
  return names;
}

std::vector<int32_t> ids_of(const json::value& list) {
  std::vector<int32_t> out;
  for (const json::value& id : list.as_array()) out.push_back(id.to_number<int32_t>());
  return out;
}

constexpr size_t kSteps = 4;

// The first greedy ids of a model's first case.
void expect_golden_ids(const std::vector<io::EngineFile>& engines, const std::string& name) {
  const auto golden = read_json_file(kSourceRoot + "/tests/golden/arch/" + name + ".json");
  ASSERT_TRUE(golden.ok()) << golden.status();
  const json::value& item = golden->at("cases").as_array().at(0);
  const std::vector<int32_t> greedy = ids_of(item.at("greedy_ids"));
  Ranks ranks(engines);
  std::vector<float> out = ranks.run(ids_of(item.at("prompt_ids")));
  for (size_t step = 0; step < std::min(greedy.size(), kSteps); ++step) {
    ASSERT_EQ(std::ranges::max_element(out) - out.begin(), greedy[step])
        << name << " on " << io::text_of(engines[0].plan().mapping) << " step " << step;
    out = ranks.run(std::vector{greedy[step]});
  }
}

TEST_F(PartitionTest, RanksGiveTheGoldenIds) {
  for (const std::string& name : tiny_models())
    for (const io::Mapping& wanted :
         {io::Mapping{.tp = 2}, io::Mapping{.tp = 4}, io::Mapping{.pp = 2},
          io::Mapping{.tp = 2, .pp = 2}, io::Mapping{.tp = 2, .ep = 2}}) {
      const io::Mapping mapping = fit(name, wanted);
      if (mapping.is_single() || (wanted.ep > 1 && mapping.ep == 1)) continue;
      const auto files = engines(name, mapping);
      ASSERT_TRUE(files.ok()) << name << " on " << io::text_of(mapping) << ": " << files.status();
      expect_golden_ids(*files, name);
    }
}

// Every module has its columns on the ranks of its stage, once or on all of them.
TEST_F(PartitionTest, AdaptersHaveTheirColumnsOnTheRanks) {
  for (const std::string& name : tiny_models()) {
    io::Mapping wanted = {.tp = 2, .pp = 2};
    if (models::read_model(kSourceRoot + "/tests/models/" + name)->traits.num_experts > 0)
      wanted.ep = 2;
    const io::Mapping mapping = fit(name, wanted);
    if (mapping.is_single()) continue;
    const auto files = engines(name, mapping, true);
    ASSERT_TRUE(files.ok()) << name << ": " << files.status();
    expect_golden_ids(*files, name);
    const std::vector<io::AdapterModule>& modules = (*files)[0].plan().modules;
    ASSERT_FALSE(modules.empty()) << name;
    std::vector<std::set<int64_t>> columns(modules.size());
    for (const io::EngineFile& file : *files) {
      ASSERT_EQ(file.plan().modules.size(), modules.size());
      for (const io::ModulePart& part : file.plan().module_parts)
        for (const io::RowRun& run : part.runs)
          for (int64_t i = 0; i < run.size; ++i)
            columns[static_cast<size_t>(part.module)].insert(run.first + i);
    }
    for (size_t i = 0; i < modules.size(); ++i)
      EXPECT_EQ(std::ssize(columns[i]), modules[i].n) << name << ' ' << modules[i].name;
  }
}

TEST_F(PartitionTest, InvariantRanksHaveTheBitsOfOne) {
  const std::vector<int32_t> prompt = {5, 9, 3, 17, 2, 30, 11};
  for (const std::string& name : tiny_models()) {
    std::vector<float> wanted;
    for (const int32_t tp : {1, 2, 4}) {
      const io::Mapping mapping = fit(name, {.tp = tp, .pp = tp == 2 ? 2 : 1, .invariant = true});
      const auto files = engines(name, mapping);
      ASSERT_TRUE(files.ok()) << name << " on " << io::text_of(mapping) << ": " << files.status();
      const std::vector<float> got = Ranks(*files).run(prompt);
      if (tp == 1) wanted = got;
      ASSERT_EQ(std::memcmp(got.data(), wanted.data(), wanted.size() * sizeof(float)), 0)
          << name << " on " << io::text_of(mapping);
    }
  }
}

// Engines of `nereid build` for two ranks, on two ranks.
TEST_F(PartitionTest, EnginesOfRanksRunOnRanks) {
  for (const std::string name : {"llama", "gemma2", "mixtral", "qwen2"}) {
    ConvertOptions convert{.model_dir = kSourceRoot + "/tests/models/" + name,
                           .output_dir = dir_ / name};
    convert.ranks.tp = 2, convert.ranks.moe_tp = -1;
    const auto converted = convert_checkpoint(convert);
    ASSERT_TRUE(converted.ok()) << converted.status();
    const EngineDirOptions build{.checkpoint_dir = dir_ / name,
                                 .output_dir = dir_ / (name + "-engines")};
    ASSERT_TRUE(build_engine_dir(build, registry_, DeviceInfo{}).ok());
    const auto files = engines_of(build.output_dir, {.tp = 2}, false);
    ASSERT_TRUE(files.ok()) << files.status();
    expect_golden_ids(*files, name);
  }
}

TEST_F(PartitionTest, RefusesWhatCannotBeDivided) {
  const auto refusal = [&](const std::string& model, const io::Mapping& mapping,
                           std::optional<kernels::WeightFormat> weights = {}) {
    CompileOptions options;
    options.mapping = mapping;
    options.weights = weights;
    const auto compiled =
        compile_model(kSourceRoot + "/tests/models/" + model, registry_, DeviceInfo{}, options);
    return std::string(message(compiled.status()));
  };
  // Four query heads and two key heads of 16.
  EXPECT_THAT(refusal("llama", {.tp = 3}),
              HasSubstr("weight 'layers.0.attn.qkv': 4 units of 16 cannot be divided among 3"));
  EXPECT_THAT(refusal("llama", {.tp = 8}), HasSubstr("among 8 ranks"));
  EXPECT_EQ(refusal("llama", {.tp = 4}), "");
  EXPECT_THAT(refusal("llama", {.pp = 9}), HasSubstr("pp: 9 stages, but the model has 2 layers"));
  EXPECT_THAT(refusal("llama", {.tp = 0}), HasSubstr("mapping.tp: 0 is not in [1, 64]"));
  EXPECT_THAT(refusal("llama", {.tp = 2, .rank = 2}), HasSubstr("mapping.rank: 2"));
  EXPECT_THAT(refusal("llama", {.tp = 3, .ep = 2}), HasSubstr("mapping.ep: 2 does not divide"));
  EXPECT_THAT(refusal("llama", {.tp = 33, .pp = 2}), HasSubstr("more than 64 ranks"));
  // Columns are cut between groups, because scales are per group.
  const kernels::WeightFormat groups = {
      .scheme = kernels::Scheme::kInteger, .bits = 4, .group = 48};
  EXPECT_THAT(refusal("llama", {.tp = 2}, groups), HasSubstr("are not whole groups of 48"));
  EXPECT_THAT(refusal("mixtral", {.tp = 2, .invariant = true}),
              HasSubstr("tp_invariant: experts are divided by index only"));
}

}  // namespace
}  // namespace nereid::convert
