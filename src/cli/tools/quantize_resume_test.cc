// A quantize run that is killed, and the one that continues it.
#include <sys/wait.h>

#include <csignal>
#include <fstream>

#include "base/hash.h"
#include "cli/tools/quantize_fixture.h"
#include "convert/new_directory.h"

namespace nereid::cli {
namespace {

using testing::HasSubstr;

// A run killed after some layers, also during a write, leaves no checkpoint; the next one does the
// rest, and the bytes equal those of one run.
enum class Run { kFactors, kSequential, kExperts };
class ResumeTest : public QuantizeTest, public testing::WithParamInterface<Run> {
 protected:
  void SetUp() override {
    QuantizeTest::SetUp();
    const bool experts = GetParam() == Run::kExperts;
    options_.model_dir = source_dir() + "/tests/models/" + (experts ? "gpt_oss" : "llama");
    per_record_ = experts ? 5 : 1;  // tensors without experts, and four experts
    options_.format = {.scheme = kernels::Scheme::kInteger, .bits = 4, .group = 16};
    options_.statistics_bytes = 1;  // one layer at a time
    options_.sequential = GetParam() == Run::kSequential;
    options_.error_feedback = GetParam() != Run::kFactors;
    options_.search_scales = GetParam() != Run::kSequential;
    options_.collect = [this](const auto& wanted) -> Status {
      if (collected_ == allowed_) return unavailable("the power is gone");
      ++collected_;
      for (const auto& [name, statistics] : wanted) seen_ += name + " ";
      return make_up(wanted, *products_);
    };
    options_.use_rounded = [this](const std::string& weight, std::span<const BF16> matrix,
                                  int64_t) {
      rounded_[weight] = hash64(matrix.data(), matrix.size_bytes());
      return ok();
    };
  }
  Status run(int allowed) {
    collected_ = 0, allowed_ = allowed;
    rounded_.clear(), seen_.clear();
    return quantize(options_);
  }
  // Runs in a process that SIGKILL ends when the text was computed `collected` times, or when
  // `rounded` matrices were rounded one after the other. It starts its own threads: a forked child
  // has none of its parent's.
  void run_killed(int collected, int rounded) {
    const pid_t child = ::fork();
    ASSERT_NE(child, -1);
    if (child == 0) {
      const auto device = kernels::open_device("cpu", {.num_threads = 1}).value();
      const auto products = quant::ColumnProducts::create(device.registry, *device.device).value();
      ThreadPool pool(1);
      options_.collect = [&](const auto& wanted) {
        if (collected-- == 0) ::raise(SIGKILL);
        return make_up(wanted, *products);
      };
      options_.use_rounded = [&](const std::string&, std::span<const BF16>, int64_t) {
        if (rounded-- == 0) ::raise(SIGKILL);
        return ok();
      };
      options_.output_dir = out_;
      ::_exit(convert::quantize_checkpoint(options_, pool).ok() ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << status;
    EXPECT_EQ(WTERMSIG(status), SIGKILL);
  }
  std::string bytes(const char* name) { return read_file(out_ / name).value(); }
  std::filesystem::path partial() { return out_.string() + ".partial"; }

  convert::QuantizeOptions options_;
  int collected_ = 0, allowed_ = 0;
  int per_record_ = 1;  // computations of the text between two progress records
  std::string seen_;
  std::map<std::string, uint64_t> rounded_;
};

TEST_P(ResumeTest, GivesTheBytesOfOneRun) {
  ASSERT_TRUE(run(1000).ok());
  const int all = collected_;
  ASSERT_GT(all, 1);
  const std::string whole = bytes("model.safetensors"), config = bytes("config.json"), seen = seen_;
  const auto rounded = rounded_;
  for (int done = 1; done < all; ++done) {
    std::filesystem::remove_all(out_);
    EXPECT_THAT(run(done).message(), HasSubstr("the power is gone"));
    EXPECT_FALSE(std::filesystem::exists(out_));
    std::ofstream(partial() / "model.safetensors.part", std::ios::app) << "half a layer";
    ASSERT_TRUE(run(1000).ok());
    EXPECT_EQ(collected_, all - done / per_record_ * per_record_);
    EXPECT_TRUE(seen.ends_with(seen_));
    EXPECT_EQ(rounded_, rounded);
    EXPECT_EQ(bytes("model.safetensors"), whole);
    EXPECT_EQ(bytes("config.json"), config);
    EXPECT_FALSE(std::filesystem::exists(partial()));
    for (const auto& entry : std::filesystem::directory_iterator(out_))
      EXPECT_THAT(entry.path().extension(), testing::Not(testing::AnyOf(".part", ".tmp")));
    EXPECT_FALSE(std::filesystem::exists(out_ / "progress.json"));
  }
}

// Killed before the first layer is written, after every one, and between a layer's matrices on disk
// and their progress record.
TEST_P(ResumeTest, GoesOnBehindAKilledProcess) {
  constexpr int kNever = 1000;
  ASSERT_TRUE(run(kNever).ok());
  const int all = collected_;
  const std::string whole = bytes("model.safetensors");
  const auto goes_on = [&](int done) {
    EXPECT_FALSE(std::filesystem::exists(out_));
    ASSERT_TRUE(run(kNever).ok());
    EXPECT_EQ(collected_, all - done / per_record_ * per_record_);
    EXPECT_EQ(bytes("model.safetensors"), whole);
    std::filesystem::remove_all(out_);
  };
  std::filesystem::remove_all(out_);
  for (int done = 0; done < all; ++done) {
    SCOPED_TRACE(done);
    run_killed(done, kNever);
    goes_on(done);
  }
  if (GetParam() != Run::kSequential) return;
  run_killed(kNever, 0);
  goes_on(0);
}

TEST_P(ResumeTest, OthersOrDamagedOnesBeginAnew) {
  ASSERT_TRUE(run(1000).ok());
  const int all = collected_;
  const std::string whole = bytes("model.safetensors");
  options_.calibration = "another text";
  ASSERT_FALSE(run(1).ok());
  options_.calibration.clear();
  ASSERT_TRUE(run(1000).ok());
  EXPECT_EQ(collected_, all);
  EXPECT_EQ(bytes("model.safetensors"), whole);
  for (const char* file : {"progress.json", "model.safetensors.part"}) {
    ASSERT_FALSE(run(per_record_).ok());
    std::filesystem::resize_file(partial() / file, 100);
    ASSERT_TRUE(run(1000).ok()) << file;
    EXPECT_EQ(collected_, all) << file;
    EXPECT_EQ(bytes("model.safetensors"), whole) << file;
  }
}

TEST_P(ResumeTest, OneProcessWrites) {
  const auto other = convert::NewDirectory::resume(out_, [](std::string_view) { return true; });
  ASSERT_TRUE(other.ok());
  EXPECT_THAT(run(1000).message(), HasSubstr("another process writes"));
}

INSTANTIATE_TEST_SUITE_P(Quantize, ResumeTest,
                         testing::Values(Run::kFactors, Run::kSequential, Run::kExperts),
                         [](const auto& info) {
                           return info.param == Run::kFactors      ? "Factors"
                                  : info.param == Run::kSequential ? "Sequential"
                                                                   : "Experts";
                         });

}  // namespace
}  // namespace nereid::cli
