// Speed of every kernel on the shapes of nereid-tiny and Llama-3.2-1B, against limits measured in
// the same run. usage: kernels_bench [--filter TEXT] [--threads N] [--isa NAME] [--device NAME]
// [--clock wall|cpu] (cpu: processor time per thread, for machines that are busy with other work)
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "kernels/api/keys.h"
#include "kernels/api/pack.h"
#include "kernels/open.h"
#include "kernels/roofline.h"

namespace nereid::kernels {
namespace {

struct Model {
  const char* name;
  int32_t hidden, ffn, heads, kv_heads, head_dim, vocab;
  int32_t latent = 0;  // columns of a value that lie in its key
};
constexpr Model kModels[] = {{"tiny", 256, 768, 4, 2, 64, 4096},
                             {"llama-1b", 2048, 8192, 32, 8, 64, 128256}};
// Attention alone.
constexpr Model kLatentModels[] = {{"deepseek-v2-lite", 2048, 0, 16, 1, 576, 0, 512},
                                   {"deepseek-v2", 5120, 0, 128, 1, 576, 0, 512}};
constexpr int32_t kBlock = 32;

struct Options {
  std::string filter, isa, device = "cpu";
  int threads = 0;
  bool cpu_clock = false;
};

class Bench {
 public:
  Bench(OpenedDevice& opened, const Roofline& roofline, const Options& options)
      : opened_(opened),
        roofline_(roofline),
        filter_(options.filter),
        cpu_clock_(options.cpu_clock) {}

  // Times every kernel that can run the problem. `args(i)` varies the memory it works on with i, so
  // that weights do not stay in a cache. `bytes`, `flops`: what one call has to move and compute.
  template <class Op>
  void run(const std::string& shape, double bytes, double flops,
           const std::function<Op(int)>& args) {
    for (const Kernel<Op>& kernel : opened_.registry.table<Op>()) {
      const std::string name = fmt::format("{:<11} {:<12} {}", Op::kName, kernel.name, shape);
      if (kernel.name == "ref" || name.find(filter_) == std::string::npos) continue;
      if (!kernel.can(args(0), opened_.device->info())) continue;
      const double time = median_seconds([&](Stream& s, int i) { return kernel.run(args(i), s); });
      print(name, std::string(kernel.name), time, bytes, flops);
    }
  }

  DeviceKind device() const { return opened_.device->info().kind; }

  Buffer memory(size_t bytes, int byte) {
    StatusOr<Buffer> buffer = opened_.device->allocate(bytes);
    NEREID_CHECK(buffer.ok());
    submit([&](Stream& s) { return s.fill(buffer->data(), byte, bytes); });
    return *std::move(buffer);
  }
  template <class T>
  Buffer upload(const std::vector<T>& values) {
    const size_t bytes = values.size() * sizeof(T);
    StatusOr<Buffer> device = opened_.device->allocate(bytes);
    StatusOr<Buffer> host = opened_.device->allocate_host(bytes);
    NEREID_CHECK(device.ok() && host.ok());
    std::memcpy(host->data(), values.data(), bytes);
    submit([&](Stream& s) { return s.copy(device->data(), host->data(), bytes); });
    return *std::move(device);
  }

 private:
  void submit(std::function<Status(Stream&)> work) {
    if (!stream_) stream_ = *opened_.device->create_stream();
    StatusOr<std::unique_ptr<Event>> event = stream_->submit(std::move(work));
    NEREID_CHECK(event.ok());
    const Status status = (*event)->wait();
    if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(message(status)).c_str());
    NEREID_CHECK(status.ok());
  }

  double clock_seconds() const {
    if (!cpu_clock_) return seconds(now().time_since_epoch());
    timespec t = {};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec)) /
           opened_.device->info().num_units;
  }

  double median_seconds(const std::function<Status(Stream&, int)>& call) {
    constexpr double kBudget = 0.4;
    int next = 0;
    const auto time_of = [&](int calls) {
      const double start = clock_seconds();
      submit([&](Stream& s) -> Status {
        for (int i = 0; i < calls; ++i) RETURN_IF_ERROR(call(s, next++));
        return ok();
      });
      return (clock_seconds() - start) / calls;
    };
    time_of(1);
    // Enough calls per sample to hide the cost of submitting one.
    const int calls = static_cast<int>(std::clamp(2e-3 / time_of(3), 1.0, 500.0));
    std::vector<double> samples;
    const Time start = now();
    while (samples.size() < 5 || (seconds(now() - start) < kBudget && samples.size() < 200))
      samples.push_back(time_of(calls));
    std::nth_element(samples.begin(), samples.begin() + samples.size() / 2, samples.end());
    return samples[samples.size() / 2];
  }

  void print(const std::string& name, const std::string& kernel, double time, double bytes,
             double flops) {
    double peak = roofline_.flops_per_s;
    for (const Roofline::Flops& f : roofline_.flops_by_kernel)
      if (f.kernel == kernel) peak = f.per_s;
    std::printf("%-72s %10.1f us %8.2f GB/s %4.0f%% %9.1f GFLOP/s %4.0f%%\n", name.c_str(),
                time * 1e6, bytes / time * 1e-9, 100 * bytes / time / roofline_.read_bytes_per_s,
                flops / time * 1e-9, peak > 0 ? 100 * flops / time / peak : 0);
    std::fflush(stdout);
  }

  OpenedDevice& opened_;
  const Roofline& roofline_;
  std::string filter_;
  bool cpu_clock_;
  std::unique_ptr<Stream> stream_;
};

constexpr int kOne = 0x3c;  // 0x3c3c: 0.0115 as bf16 and f32; products stay far from the limits

// One weight of [n, k] under each number of rows; copies of it until the caches are exceeded.
void bench_linear(Bench& bench, const Model& m, const char* name, int64_t n, int64_t k) {
  constexpr size_t kSpread = size_t{640} << 20;
  const size_t weight_bytes = panel16_bytes(n, k);
  const bool small = m.hidden < 1024;  // a small model's weights are in a cache in real life
  const int copies = small ? 1 : static_cast<int>(std::max<size_t>(1, kSpread / weight_bytes));
  const Buffer weights = bench.memory(weight_bytes * static_cast<size_t>(copies), kOne);
  constexpr int64_t kMaxTokens = 512;
  const int64_t most = n > 100000 ? 8 : kMaxTokens;
  const Buffer x = bench.memory(static_cast<size_t>(most * k) * 2, kOne);
  const Buffer out = bench.memory(static_cast<size_t>(most * n) * 4, 0);
  for (const WeightLayout layout : {WeightLayout::kPanel16, WeightLayout::kRowMajor}) {
    for (const int64_t tokens : {1, 8, 32, 128, 512}) {
      if (tokens > most) continue;
      const auto args = [&](int i) {
        Linear a;
        a.x = View::matrix(x.data(), DType::kBF16, tokens, k);
        a.weight = {weights.bytes() + static_cast<size_t>(i % copies) * weight_bytes, layout, n, k};
        a.out = View::matrix(out.data(), DType::kF32, tokens, n);
        return a;
      };
      const double bytes = static_cast<double>(n * k * 2 + tokens * (k * 2 + n * 4));
      bench.run<Linear>(fmt::format("{} {} tokens={} n={} k={}", m.name, name, tokens, n, k), bytes,
                        2.0 * static_cast<double>(tokens * n * k), args);
    }
  }
}

// The same with weights of fewer bits, and inputs as they go with them; all planes are copied.
void bench_narrow(Bench& bench, const Model& m, const char* name, int64_t n, int64_t k) {
  constexpr uint64_t kSpread = uint64_t{640} << 20;
  WeightFormat int4_small = kInt4Groups;
  int4_small.group = 32;
  for (const WeightFormat& format :
       {kInt8PerRow, kInt8Both, kInt4Groups, int4_small, kFp8PerRow, kFp8Groups}) {
    WeightView all = {nullptr, WeightLayout::kPanel16, n, k, format};
    const uint64_t bytes_of_one = stored_bytes(all);
    all.experts = static_cast<int64_t>(std::max<uint64_t>(1, kSpread / bytes_of_one));
    std::vector<Buffer> planes;
    for (const PlaneShape& plane : planes_of(format, all.layout, n, k, all.experts)) {
      planes.push_back(bench.memory(plane.bytes, kOne));
      void* const data = planes.back().data();
      if (plane.role == PlaneRole::kData) all.data = data;
      if (plane.role == PlaneRole::kScales) all.scales = static_cast<const float*>(data);
    }
    constexpr int64_t kMaxTokens = 512;
    // CPUs multiply no rows of f8e4m3.
    const DType x_type = format.inputs == DType::kI8 ? DType::kI8 : DType::kBF16;
    const auto x_size = static_cast<int64_t>(size_of(x_type));
    const Buffer x = bench.memory(static_cast<size_t>(kMaxTokens * k * x_size), kOne);
    const Buffer scales = bench.memory(kMaxTokens * 4, kOne);
    const Buffer out = bench.memory(static_cast<size_t>(kMaxTokens * n) * 4, 0);
    for (const int64_t tokens : {1, 8, 32, 512}) {
      const auto args = [&](int i) {
        Linear a;
        a.x = View::matrix(x.data(), x_type, tokens, k);
        if (x_type == DType::kI8) a.scales = View::matrix(scales.data(), DType::kF32, tokens, 1);
        a.weight = expert_of(all, i % all.experts);
        a.out = View::matrix(out.data(), DType::kF32, tokens, n);
        return a;
      };
      const auto bytes =
          static_cast<double>(bytes_of_one) + static_cast<double>(tokens * (k * x_size + n * 4));
      bench.run<Linear>(
          fmt::format("{} {} {} tokens={} n={} k={}", m.name, name, text_of(format), tokens, n, k),
          bytes, 2.0 * static_cast<double>(tokens * n * k), args);
    }
  }
}

void bench_rows(Bench& bench, const Model& m, int64_t tokens) {
  const auto rows = static_cast<double>(tokens);
  const int64_t qkv_width = int64_t{m.heads + 2 * m.kv_heads} * m.head_dim;
  const Buffer a = bench.memory(static_cast<size_t>(tokens * m.ffn * 2) * 4, kOne);
  const Buffer b = bench.memory(static_cast<size_t>(tokens * m.ffn * 2) * 4, kOne);
  const Buffer positions = bench.memory(static_cast<size_t>(tokens) * 4, 0);
  const std::string shape = fmt::format("{} tokens={}", m.name, tokens);
  const auto view = [&](const Buffer& buffer, DType type, int64_t cols) {
    return View::matrix(buffer.data(), type, tokens, cols);
  };
  bench.run<Norm>(shape, rows * m.hidden * 14, rows * m.hidden * 5, [&](int) {
    Norm n;
    n.x = n.sum = view(a, DType::kF32, m.hidden);
    n.add = {a.bytes() + tokens * m.hidden * 4, DType::kF32, tokens, m.hidden, m.hidden};
    n.weight = {b.data(), WeightLayout::kRowMajor, 1, m.hidden};
    n.eps = 1e-5f;
    n.out = {b.bytes() + m.hidden * 4, DType::kBF16, tokens, m.hidden, m.hidden};
    return n;
  });
  bench.run<Glu>(shape, rows * m.ffn * 10, rows * m.ffn * 2, [&](int) {
    Glu g;
    g.x = view(a, DType::kF32, 2 * m.ffn);
    g.out = view(b, DType::kBF16, m.ffn);
    return g;
  });
  bench.run<Add>(shape, rows * m.hidden * 12, rows * m.hidden, [&](int) {
    Add x;
    x.x = x.out = view(a, DType::kF32, m.hidden);
    x.y = view(b, DType::kF32, m.hidden);
    return x;
  });
  bench.run<Rope>(shape, rows * static_cast<double>(qkv_width) * 8,
                  rows * static_cast<double>(qkv_width) * 3, [&](int) {
                    Rope r;
                    r.heads = {m.heads, m.kv_heads, m.head_dim};
                    r.qkv = r.out = view(a, DType::kF32, qkv_width);
                    r.step.positions = static_cast<const int32_t*>(positions.data());
                    r.angles = {static_cast<const float*>(b.data()), m.head_dim};
                    return r;
                  });
  bench.run<Embed>(shape, rows * m.hidden * 6, 0, [&](int) {
    Embed e;
    e.step.tokens = static_cast<const int32_t*>(positions.data());
    e.table = {b.data(), WeightLayout::kPanel16, 16, m.hidden};
    e.out = view(a, DType::kF32, m.hidden);
    return e;
  });
}

// Kinds of attention: a decoder's; an encoder's, without and with a relative position bias; cross.
enum class Kind : uint8_t { kCausal, kBidirectional, kBias, kCross };
constexpr const char* kKindNames[] = {"", " bidirectional", " bidirectional bias", " cross"};
constexpr int32_t kBiasWidth = 255;

// `sequences` sequences of `context` positions, each with `count` new tokens at the end; cross
// attention: `context` positions of an encoder.
void bench_attention(Bench& bench, const Model& m, int32_t sequences, int32_t context,
                     int32_t count, DType kv = DType::kBF16, Kind kind = Kind::kCausal) {
  const int32_t blocks = (context + kBlock - 1) / kBlock;
  const int64_t tokens = int64_t{sequences} * count;
  std::vector<int32_t> positions, row_of_token, row_begin = {0}, table;
  for (int32_t s = 0; s < sequences; ++s) {
    for (int32_t i = 0; i < count; ++i) {
      positions.push_back(context - count + i);
      row_of_token.push_back(s);
    }
    row_begin.push_back(static_cast<int32_t>(positions.size()));
    for (int32_t b = 0; b < blocks; ++b) table.push_back(b * sequences + s);
  }
  const Buffer d_positions = bench.upload(positions), d_rows = bench.upload(row_of_token);
  const Buffer d_begin = bench.upload(row_begin), d_table = bench.upload(table);
  const Heads heads = {m.heads, m.kv_heads, m.head_dim, m.latent};
  const int64_t out_width = int64_t{m.heads} * heads.value_dim();
  const int64_t line = int64_t{m.kv_heads} * m.head_dim;
  const int64_t cells = int64_t{blocks} * sequences * kBlock * line;
  const Buffer k = bench.memory(static_cast<size_t>(cells) * size_of(kv), kOne);
  const Buffer v = bench.memory(static_cast<size_t>(cells) * size_of(kv), kOne);
  const size_t scale_bytes = static_cast<size_t>(cells / m.head_dim) * sizeof(float);
  const Buffer k_scales = bench.memory(scale_bytes, kOne);
  const Buffer v_scales = bench.memory(scale_bytes, kOne);
  const Buffer qkv = bench.memory(static_cast<size_t>(tokens * heads.width()) * 4, kOne);
  const Buffer out = bench.memory(static_cast<size_t>(tokens * out_width) * 2, 0);
  const Buffer angles = bench.memory(static_cast<size_t>(context) * m.head_dim * 4, kOne);
  const KeyLayout keys = key_layout(bench.device(), m.head_dim, kBlock);
  double pairs = 0;  // query-key pairs
  for (int32_t p : positions) pairs += kind == Kind::kCausal ? p + 1 : context;
  const Buffer bias = bench.memory(static_cast<size_t>(m.heads) * kBiasWidth * 4, kOne);
  const Buffer lengths = bench.upload(std::vector(static_cast<size_t>(sequences), context));
  const double bytes = static_cast<double>(sequences) * context * static_cast<double>(line) *
                       (m.latent > 0 ? 1 : 2) * static_cast<double>(size_of(kv));
  const double flops = pairs * m.heads * (m.head_dim + heads.value_dim()) * 2;
  const std::string shape =
      fmt::format("{} {} sequences={} context={} new={}{}", m.name, name_of(kv), sequences, context,
                  count, kKindNames[static_cast<size_t>(kind)]);
  const CacheView cache = {.keys = k.data(),
                           .values = v.data(),
                           .key_scales = static_cast<float*>(k_scales.data()),
                           .value_scales = static_cast<float*>(v_scales.data()),
                           .block_stride = line * kBlock,
                           .scale_stride = int64_t{m.kv_heads} * kBlock,
                           .block_tokens = kBlock,
                           .type = kv,
                           .layout = keys};
  constexpr float kScale = 0.125f;
  const View result = View::matrix(out.data(), DType::kBF16, tokens, out_width);
  BatchView step;
  step.num_rows = sequences;
  step.row_begin = static_cast<const int32_t*>(d_begin.data());
  step.row_of_token = static_cast<const int32_t*>(d_rows.data());
  if (kind == Kind::kCross) {
    step.cross_lengths = static_cast<const int32_t*>(lengths.data());
    step.cross_table = static_cast<const int32_t*>(d_table.data());
    step.max_cross_blocks = blocks;
    return bench.run<CrossAttention>(shape, bytes, flops, [&](int) {
      const View q = View::matrix(qkv.data(), DType::kF32, tokens, out_width);
      return CrossAttention{
          .q = q, .heads = heads, .cache = cache, .scale = kScale, .out = result, .step = step};
    });
  }
  step.positions = static_cast<const int32_t*>(d_positions.data());
  step.block_table = static_cast<const int32_t*>(d_table.data());
  step.max_blocks = blocks;
  bench.run<Attention>(shape, bytes, flops, [&](int) {
    Attention a = {.heads = heads, .cache = cache, .scale = kScale, .out = result, .step = step};
    a.qkv = View::matrix(qkv.data(), DType::kF32, tokens, heads.width());
    a.bidirectional = kind != Kind::kCausal;
    if (kind == Kind::kBias) {
      a.bias = {bias.data(), WeightLayout::kRowMajor, 1, int64_t{m.heads} * kBiasWidth};
      a.bias.format = kFloat32;
      a.bias_first = -kBiasWidth / 2;
      a.bias_width = kBiasWidth;
    }
    a.angles = {static_cast<const float*>(angles.data()), m.head_dim};
    return a;
  });
}

// `history`: tokens of each row before the drawn one.
void bench_sample(Bench& bench, const Model& m, const char* name, int64_t rows, SampleParams wish,
                  int32_t history = 0) {
  std::vector<float> logits;
  for (int64_t i = 0; i < rows * m.vocab; ++i)
    logits.push_back(static_cast<float>(i * 7919 % 10007) * 1e-3f);
  wish.keeps_history = history > 0;
  const std::vector<SampleParams> params(static_cast<size_t>(rows), wish);
  std::vector<SampleRow> sample_rows;
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < rows; ++i) {
    sample_rows.push_back({i, history, i});
    for (int32_t t = 0; t < history; ++t) tokens.push_back((t * 31 + i) % 997);
  }
  tokens.push_back(0);
  const Buffer d_logits = bench.upload(logits), d_params = bench.upload(params);
  const Buffer d_rows = bench.upload(sample_rows), d_history = bench.upload(tokens);
  const auto num_rows = static_cast<size_t>(rows);
  const Buffer results = bench.memory(num_rows * sizeof(SampleResult), 0);
  const Buffer top = bench.memory(num_rows * kMaxTopTokens * sizeof(TopToken), 0);
  const Buffer slots = bench.memory(num_rows * 4, 0);
  const double bytes = static_cast<double>(rows) * m.vocab * 4;
  bench.run<Sample>(fmt::format("{} {} rows={} vocab={}", m.name, name, rows, m.vocab), bytes, 0,
                    [&](int) {
                      Sample a;
                      a.problem = {rows, m.vocab, wish.temperature == 0};
                      a.logits = View::matrix(d_logits.data(), DType::kF32, rows, m.vocab);
                      a.rows = static_cast<const SampleRow*>(d_rows.data());
                      a.params = static_cast<const SampleParams*>(d_params.data());
                      a.history = static_cast<int32_t*>(d_history.data());
                      a.history_stride = std::max(history, 1);
                      a.results = static_cast<SampleResult*>(results.data());
                      a.top = static_cast<TopToken*>(top.data());
                      a.top_stride = wish.num_top > 0 ? kMaxTopTokens : 0;
                      a.slot_tokens = static_cast<int32_t*>(slots.data());
                      return a;
                    });
}

void bench_model(Bench& bench, const Model& m) {
  const int64_t q = int64_t{m.heads} * m.head_dim, kv = int64_t{m.kv_heads} * m.head_dim;
  bench_linear(bench, m, "qkv", q + 2 * kv, m.hidden);
  bench_linear(bench, m, "out", m.hidden, q);
  bench_linear(bench, m, "gate_up", 2 * m.ffn, m.hidden);
  bench_linear(bench, m, "down", m.hidden, m.ffn);
  bench_linear(bench, m, "head", m.vocab, m.hidden);
  bench_narrow(bench, m, "gate_up", 2 * m.ffn, m.hidden);
  bench_narrow(bench, m, "down", m.hidden, m.ffn);
  for (const int64_t tokens : {1, 8, 512}) bench_rows(bench, m, tokens);
  for (const int32_t context : {128, 2048}) bench_attention(bench, m, 1, context, 1);
  for (const DType kv : {DType::kBF16, DType::kI8, DType::kF8E4M3}) {
    bench_attention(bench, m, 8, 512, 1, kv);
    bench_attention(bench, m, 1, 16384, 1, kv);
    bench_attention(bench, m, 1, 512, 512, kv);
    for (const Kind kind : {Kind::kBidirectional, Kind::kBias})
      bench_attention(bench, m, 1, 512, 512, kv, kind);
    bench_attention(bench, m, 8, 512, 1, kv, Kind::kCross);
  }
  for (const int64_t rows : {1, 32}) {
    constexpr int32_t kHistory = 2048;
    bench_sample(bench, m, "greedy", rows, {.temperature = 0});
    bench_sample(bench, m, "top_k=50", rows, {.top_k = 50});
    bench_sample(bench, m, "top_p=0.9", rows, {.top_p = 0.9f});
    bench_sample(bench, m, "top_p=0.9 flat", rows, {.top_p = 0.9f, .temperature = 100});
    bench_sample(bench, m, "penalties", rows,
                 {.top_k = 50, .repetition = 1.0001f, .presence = 1e-5f, .frequency = 1e-5f},
                 kHistory);
    bench_sample(bench, m, "top 20 log-probs", rows,
                 {.top_p = 0.9f, .num_top = 20, .log_probs = LogProbs::kProcessed});
  }
}

int bench_main(const Options& options) {
  StatusOr<OpenedDevice> opened =
      open_device(options.device, {.num_threads = options.threads, .isa = options.isa});
  if (!opened.ok()) {
    std::fprintf(stderr, "%s\n", std::string(message(opened.status())).c_str());
    return 1;
  }
  const DeviceInfo& info = opened->device->info();
  const StatusOr<Roofline> roofline = measure_roofline(*opened->device);
  if (!roofline.ok()) {
    std::fprintf(stderr, "%s\n", std::string(message(roofline.status())).c_str());
    return 1;
  }
  std::printf("%s, %d units\nread %.1f GB/s\n", info.name.c_str(), info.num_units,
              roofline->read_bytes_per_s * 1e-9);
  for (const Roofline::Flops& f : roofline->flops_by_kernel)
    std::printf("%s %.0f GFLOP/s\n", f.kernel.c_str(), f.per_s * 1e-9);
  Bench bench(*opened, *roofline, options);
  for (const Model& model : kModels) bench_model(bench, model);
  for (const Model& model : kLatentModels)
    for (const int32_t sequences : {1, 8}) bench_attention(bench, model, sequences, 2048, 1);
  return 0;
}

}  // namespace
}  // namespace nereid::kernels

int main(int argc, char** argv) {
  nereid::kernels::Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string key = argv[i];
    if (key == "--filter") options.filter = argv[i + 1];
    if (key == "--isa") options.isa = argv[i + 1];
    if (key == "--device") options.device = argv[i + 1];
    if (key == "--clock") options.cpu_clock = std::strcmp(argv[i + 1], "cpu") == 0;
    if (key == "--threads") options.threads = std::atoi(argv[i + 1]);
  }
  return nereid::kernels::bench_main(options);
}
