// Exchange between GPUs: every call of a group, on one card with two ranks and on all cards found,
// against sums on the host, bit by bit. A separate program: it needs a GPU and opens
// libnereid_cuda.so as the server does.
// usage: gpu_comm_test [--once] [--only TEXT] [--ranks 0,0]
//   --once: each size once, without long sequences (for compute-sanitizer)
//   --only: tests whose name contains TEXT
//   --ranks: cards of the ranks; several groups: more than once. Default: card 0 twice, the first
//            two, the first three, ..., all
#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <barrier>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "kernels/open.h"

namespace nereid::kernels {
namespace {

using Bytes = std::vector<std::byte>;

struct TestOptions {
  bool once = false;
  std::string only;
  std::vector<std::vector<int>> groups;
};

// The ranks of a group: their cards, endpoints and streams, a thread for each during a test.
class Ranks {
 public:
  static StatusOr<std::unique_ptr<Ranks>> open(const std::vector<int>& cards) {
    auto ranks = std::make_unique<Ranks>();
    for (const int card : cards) {
      ASSIGN_OR_RETURN(OpenedDevice opened, open_device(fmt::format("cuda:{}", card)));
      ranks->opened_.push_back(std::make_unique<OpenedDevice>(std::move(opened)));
      ASSIGN_OR_RETURN(auto stream, ranks->opened_.back()->device->create_stream());
      ranks->streams_.push_back(std::move(stream));
    }
    return ranks;
  }

  Status join(const comm::GroupOptions& options) {
    endpoints_.clear();
    std::vector<const OpenedDevice*> devices;
    for (const auto& opened : opened_) devices.push_back(opened.get());
    ASSIGN_OR_RETURN(endpoints_, join_devices(devices, options));
    return ok();
  }
  void leave() { endpoints_.clear(); }

  int size() const { return static_cast<int>(opened_.size()); }
  OpenedDevice& opened(int rank) { return *opened_[static_cast<size_t>(rank)]; }
  comm::Communicator& endpoint(int rank) { return *endpoints_[static_cast<size_t>(rank)]; }
  Stream& stream(int rank) { return *streams_[static_cast<size_t>(rank)]; }

  // Runs work(rank) in a thread for each rank; the first error.
  Status each(const std::function<Status(int)>& work) {
    std::vector<Status> results(opened_.size());
    std::vector<std::thread> threads;
    meeting_.emplace(size());
    for (int rank = 0; rank < size(); ++rank)
      threads.emplace_back([&, rank] {
        Status& result = results[static_cast<size_t>(rank)];
        result = work(rank);
        if (!result.ok()) meeting_->arrive_and_drop();
      });
    for (std::thread& thread : threads) thread.join();
    for (int rank = 0; rank < size(); ++rank)
      if (const Status& result = results[static_cast<size_t>(rank)]; !result.ok())
        return annotate(result, fmt::format("rank {}", rank));
    return ok();
  }

  // run_alone() in each(), when all ranks call it. Taking and freeing memory waits for the card's
  // kernels, which on one card wait for the other rank: so all do that at the same time.
  Status run(int rank, const std::function<Status(Stream&)>& work) {
    meeting_->arrive_and_wait();
    const Status status = run_alone(rank, work);
    meeting_->arrive_and_wait();
    return status;
  }

  // Submits work and waits for it; its error, or the failure of the group.
  Status run_alone(int rank, const std::function<Status(Stream&)>& work) {
    ASSIGN_OR_RETURN(const auto event, stream(rank).submit(work));
    RETURN_IF_ERROR(event->wait());
    return endpoint(rank).failure();
  }

  StatusOr<Buffer> upload(int rank, const Bytes& bytes) {
    return opened(rank).device->upload(bytes.data(), bytes.size());
  }
  StatusOr<Bytes> download(int rank, const Buffer& buffer) {
    Bytes bytes(buffer.size());
    ASSIGN_OR_RETURN(const Buffer host, opened(rank).device->allocate_host(buffer.size()));
    ASSIGN_OR_RETURN(const auto event, stream(rank).submit([&](Stream& s) {
      return s.copy(host.data(), buffer.data(), buffer.size());
    }));
    RETURN_IF_ERROR(event->wait());
    std::memcpy(bytes.data(), host.data(), bytes.size());
    return bytes;
  }

 private:
  std::vector<std::unique_ptr<OpenedDevice>> opened_;
  std::vector<std::unique_ptr<comm::Communicator>> endpoints_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::optional<std::barrier<>> meeting_;
};

float number_at(const Bytes& bytes, DType type, int64_t i) {
  if (type == DType::kF32) {
    float x;
    std::memcpy(&x, bytes.data() + 4 * i, 4);
    return x;
  }
  uint16_t x;
  std::memcpy(&x, bytes.data() + 2 * i, 2);
  return std::bit_cast<float>(uint32_t{x} << 16);
}
void set_number(Bytes& bytes, DType type, int64_t i, float x) {
  if (type == DType::kF32) {
    std::memcpy(bytes.data() + 4 * i, &x, 4);
  } else {
    const BF16 rounded = to_bf16(x);
    std::memcpy(bytes.data() + 2 * i, &rounded, 2);
  }
}

// Numbers of very different sizes, some zeros of both signs; with `odd` also the words that stand
// for empty places, and infinities.
Bytes random_numbers(DType type, int64_t count, uint64_t seed, bool odd = false) {
  Bytes bytes(static_cast<size_t>(count) * size_of(type));
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto bits = static_cast<uint32_t>(state >> 32);
    float x = (static_cast<float>(bits >> 8) * 0x1p-23f - 1.0f) *
              std::ldexp(1.0f, static_cast<int>(bits % 9) - 4);
    if (bits % 31 == 0) x = bits % 2 == 0 ? 0.0f : -0.0f;
    if (odd && bits % 97 == 0) x = INFINITY;
    set_number(bytes, type, i, x);
    if (odd && bits % 53 == 0)
      std::memset(bytes.data() + static_cast<size_t>(i) * size_of(type), 0xff, size_of(type));
  }
  return bytes;
}

float tree_sum(const std::vector<Bytes>& x, DType type, int64_t i, size_t first, size_t count) {
  if (count == 1) return number_at(x[first], type, i);
  const size_t half = std::bit_floor(count - 1);
  return tree_sum(x, type, i, first, half) + tree_sum(x, type, i, first + half, count - half);
}
Bytes sum_of(const std::vector<Bytes>& x, DType type, int64_t first, int64_t count) {
  Bytes sum(static_cast<size_t>(count) * size_of(type));
  for (int64_t i = 0; i < count; ++i)
    set_number(sum, type, i, tree_sum(x, type, first + i, 0, x.size()));
  return sum;
}

// Compares numbers: equal bits, or both NaN.
Status compare(const Bytes& got, const Bytes& wanted, DType type, std::string_view what) {
  if (got.size() != wanted.size())
    return internal_error("{}: {} bytes, not {}", what, got.size(), wanted.size());
  if (got == wanted) return ok();
  const auto element = size_of(type);
  for (size_t i = 0; i < got.size() / element; ++i) {
    if (std::memcmp(got.data() + i * element, wanted.data() + i * element, element) == 0) continue;
    if (type == DType::kF32 || type == DType::kBF16) {
      const float a = number_at(got, type, static_cast<int64_t>(i));
      const float b = number_at(wanted, type, static_cast<int64_t>(i));
      if (std::isnan(a) && std::isnan(b)) continue;
      return internal_error("{}: number {} is {}, not {}", what, i, a, b);
    }
    return internal_error("{}: element {} differs", what, i);
  }
  return ok();
}

Bytes poison(size_t bytes) { return Bytes(bytes, std::byte{0x5a}); }

// Sums of many sizes, in place and not, at addresses that are not aligned too.
Status test_sums(Ranks& ranks, const TestOptions& options) {
  std::vector<int64_t> counts = {1, 8, 1000, 4096, 4099, 32768, 70000, 1 << 20};
  if (!options.once) counts.insert(counts.end(), {(3 << 20) + 8, 9 << 20});
  for (const DType type : {DType::kBF16, DType::kF32})
    for (const int64_t count : counts)
      for (const bool in_place : {false, true}) {
        if (options.once && in_place != (count % 16 == 0)) continue;
        std::vector<Bytes> x;
        for (int r = 0; r < ranks.size(); ++r)
          x.push_back(random_numbers(type, count, static_cast<uint64_t>(count + r), !in_place));
        const Bytes wanted = sum_of(x, type, 0, count);
        RETURN_IF_ERROR(ranks.each([&](int r) -> Status {
          ASSIGN_OR_RETURN(const Buffer in, ranks.upload(r, x[static_cast<size_t>(r)]));
          ASSIGN_OR_RETURN(const Buffer other, ranks.upload(r, poison(in.size())));
          ASSIGN_OR_RETURN(const Buffer seen, ranks.upload(r, poison(in.size())));
          const Buffer& out = in_place ? in : other;
          // Copied at once: what comes later than the end of the call is missed.
          RETURN_IF_ERROR(ranks.run(r, [&](Stream& s) -> Status {
            RETURN_IF_ERROR(ranks.endpoint(r).all_reduce(in.data(), out.data(), count, type, s));
            return s.copy(seen.data(), out.data(), out.size());
          }));
          ASSIGN_OR_RETURN(const Bytes got, ranks.download(r, seen));
          return compare(got, wanted, type,
                         fmt::format("sum of {} {}, in place: {}", count, name_of(type), in_place));
        }));
      }
  return ok();
}

// Sums of changing sizes behind each other in a captured graph, replayed many times.
Status test_sequences(Ranks& ranks, const TestOptions& options) {
  const int64_t sizes[] = {8,    4096, 64,   32768, 1 << 20, 8,     512,  2048,
                           4096, 4096, 4096, 1000,  100000,  65536, 4099, 16};
  const int replays = options.once ? 2 : 200;
  std::vector<std::vector<Bytes>> x(std::size(sizes));  // by call, by rank
  std::vector<Bytes> wanted;
  for (size_t i = 0; i < std::size(sizes); ++i) {
    for (int r = 0; r < ranks.size(); ++r)
      x[i].push_back(random_numbers(DType::kBF16, sizes[i], 100 * i + static_cast<uint64_t>(r)));
    wanted.push_back(sum_of(x[i], DType::kBF16, 0, sizes[i]));
  }
  return ranks.each([&](int r) -> Status {
    std::vector<Buffer> in, out;
    for (const auto& of_ranks : x) {
      ASSIGN_OR_RETURN(Buffer a, ranks.upload(r, of_ranks[static_cast<size_t>(r)]));
      ASSIGN_OR_RETURN(Buffer b, ranks.upload(r, poison(a.size())));
      in.push_back(std::move(a));
      out.push_back(std::move(b));
    }
    const auto sums = [&](Stream& s) -> Status {
      for (size_t i = 0; i < in.size(); ++i) {
        if (i % 5 == 4) RETURN_IF_ERROR(ranks.endpoint(r).barrier(s));
        RETURN_IF_ERROR(
            ranks.endpoint(r).all_reduce(in[i].data(), out[i].data(), sizes[i], DType::kBF16, s));
      }
      return ok();
    };
    RETURN_IF_ERROR(ranks.run(r, sums));
    std::unique_ptr<Recording> recording;
    RETURN_IF_ERROR(ranks.run(r, [&](Stream& s) -> Status {
      ASSIGN_OR_RETURN(recording, s.record(sums));
      for (Buffer& buffer : out) RETURN_IF_ERROR(s.fill(buffer.data(), 0x5a, buffer.size()));
      return ok();
    }));
    for (int i = 0; i < replays; ++i)
      RETURN_IF_ERROR(ranks.run(r, [&](Stream& s) -> Status {
        RETURN_IF_ERROR(s.replay(*recording));
        return i % 3 == 0 ? sums(s) : s.replay(*recording);
      }));
    for (size_t i = 0; i < in.size(); ++i) {
      ASSIGN_OR_RETURN(const Bytes got, ranks.download(r, out[i]));
      RETURN_IF_ERROR(compare(got, wanted[i], DType::kBF16, fmt::format("sum {}", i)));
    }
    return ok();
  });
}

// One shape of a norm behind a sum.
struct NormCase {
  int64_t rows, width;
  DType out;
  DType x = DType::kBF16;
};

// The fused form against all_reduce and the kernel of Norm.
Status check_norm(Ranks& ranks, const NormCase& c) {
  const int64_t count = c.rows * c.width;
  std::vector<Bytes> x;
  for (int r = 0; r < ranks.size(); ++r)
    x.push_back(random_numbers(c.x, count, static_cast<uint64_t>(7 * count + r)));
  const Bytes residual = random_numbers(DType::kF32, count, 5);
  const Bytes weight = random_numbers(DType::kBF16, c.width, 6);
  const bool is_f8 = c.out == DType::kF8E4M3;
  return ranks.each([&](int r) -> Status {
    OpenedDevice& opened = ranks.opened(r);
    struct Copy {
      Buffer x, sum, out, scales;
    } copies[2];
    ASSIGN_OR_RETURN(const Buffer weights, ranks.upload(r, weight));
    for (Copy& copy : copies) {
      ASSIGN_OR_RETURN(copy.x, ranks.upload(r, x[static_cast<size_t>(r)]));
      ASSIGN_OR_RETURN(copy.sum, ranks.upload(r, residual));
      ASSIGN_OR_RETURN(copy.out,
                       ranks.upload(r, poison(static_cast<size_t>(count) * size_of(c.out))));
      ASSIGN_OR_RETURN(copy.scales, ranks.upload(r, poison(static_cast<size_t>(c.rows) * 4)));
    }
    const auto args_of = [&](const Copy& copy) {
      comm::ReducedNorm a;
      a.x = View::matrix(copy.x.data(), c.x, c.rows, c.width);
      a.sum = View::matrix(copy.sum.data(), DType::kF32, c.rows, c.width);
      a.weight = weights.data();
      a.eps = 1e-5f;
      a.weight_offset = c.rows % 2 == 0 ? 1.0f : 0.0f;
      a.out = View::matrix(copy.out.data(), c.out, c.rows, c.width);
      if (is_f8) a.scales = View::matrix(copy.scales.data(), DType::kF32, c.rows, 1);
      return a;
    };
    const comm::ReducedNorm fused = args_of(copies[0]), apart = args_of(copies[1]);
    Norm norm = {};
    norm.x = norm.sum = apart.sum;
    norm.add = apart.x;
    norm.weight.data = weights.data();
    norm.weight.n = 1;
    norm.weight.k = c.width;
    norm.eps = apart.eps;
    norm.weight_offset = apart.weight_offset;
    norm.out = apart.out;
    norm.scales = apart.scales;
    ASSIGN_OR_RETURN(const Kernel<Norm>* kernel,
                     select(opened.registry.table<Norm>(), norm, opened.device->info()));
    RETURN_IF_ERROR(ranks.run(r, [&](Stream& s) -> Status {
      RETURN_IF_ERROR(ranks.endpoint(r).all_reduce_norm(fused, s));
      RETURN_IF_ERROR(ranks.endpoint(r).all_reduce(apart.x.data, apart.x.data, count, c.x, s));
      return kernel->run(norm, s);
    }));
    const std::string what = fmt::format("norm of [{}, {}] as {}", c.rows, c.width, name_of(c.out));
    const auto same = [&](Buffer Copy::*part, DType type, std::string_view name) -> Status {
      ASSIGN_OR_RETURN(const Bytes a, ranks.download(r, copies[0].*part));
      ASSIGN_OR_RETURN(const Bytes b, ranks.download(r, copies[1].*part));
      return compare(a, b, type, fmt::format("{}: {}", what, name));
    };
    RETURN_IF_ERROR(same(&Copy::sum, DType::kF32, "sum"));
    RETURN_IF_ERROR(same(&Copy::out, c.out, "out"));
    return is_f8 ? same(&Copy::scales, DType::kF32, "scales") : ok();
  });
}

Status test_norms(Ranks& ranks, const TestOptions& options) {
  for (const int64_t width : {4096, 8192, 5120, 896, 2880, 100})
    for (const int64_t rows : {1, 2, 5, 16, 33, 64, 130, 300}) {
      if (options.once && (rows != 2 && rows != 33)) continue;
      for (const DType out : {DType::kBF16, DType::kF8E4M3})
        RETURN_IF_ERROR(check_norm(ranks, {rows, width, out}));
    }
  RETURN_IF_ERROR(check_norm(ranks, {3, 4096, DType::kF32}));
  return check_norm(ranks, {3, 4096, DType::kBF16, DType::kF32});
}

// all_gather and reduce_scatter, also in place.
Status test_parts(Ranks& ranks, const TestOptions&) {
  for (const int64_t count : {1, 24, 1000, 40000, 300000})
    for (const DType type : {DType::kBF16, DType::kF32}) {
      const int64_t all = count * ranks.size();
      std::vector<Bytes> x;
      for (int r = 0; r < ranks.size(); ++r)
        x.push_back(random_numbers(type, all, static_cast<uint64_t>(all + r)));
      Bytes gathered;
      for (const Bytes& one : x)
        gathered.insert(gathered.end(), one.begin(),
                        one.begin() + count * static_cast<int64_t>(size_of(type)));
      RETURN_IF_ERROR(ranks.each([&](int r) -> Status {
        const auto bytes = static_cast<size_t>(count) * size_of(type);
        ASSIGN_OR_RETURN(const Buffer in, ranks.upload(r, x[static_cast<size_t>(r)]));
        ASSIGN_OR_RETURN(const Buffer out, ranks.upload(r, poison(bytes * ranks.size())));
        ASSIGN_OR_RETURN(const Buffer part, ranks.upload(r, poison(bytes)));
        RETURN_IF_ERROR(ranks.run(r, [&](Stream& s) -> Status {
          RETURN_IF_ERROR(ranks.endpoint(r).all_gather(in.data(), out.data(), count, type, s));
          return ranks.endpoint(r).reduce_scatter(in.data(), part.data(), count, type, s);
        }));
        ASSIGN_OR_RETURN(const Bytes got, ranks.download(r, out));
        RETURN_IF_ERROR(compare(got, gathered, type, fmt::format("all_gather of {}", count)));
        ASSIGN_OR_RETURN(const Bytes sum, ranks.download(r, part));
        return compare(sum, sum_of(x, type, r * count, count), type,
                       fmt::format("reduce_scatter of {}", count));
      }));
    }
  return ok();
}

Status check_columns(Ranks& ranks, int64_t rows, int64_t units, int64_t unit, DType type) {
  const int size = ranks.size();
  const auto first = [&](int64_t r) { return units * r / size * unit; };
  const auto element = static_cast<int64_t>(size_of(type));
  const int64_t width = unit * ((units + size - 1) / size) + 3, cols = unit * units;
  const auto x_of = [&](int r) {
    return random_numbers(DType::kF32, (rows * width * element + 3) / 4,
                          static_cast<uint64_t>(cols + r));
  };
  Bytes wanted(static_cast<size_t>(rows * cols * element));
  for (int r = 0; r < size; ++r) {
    const Bytes x = x_of(r);
    for (int64_t row = 0; row < rows; ++row)
      if (const int64_t bytes = (first(r + 1) - first(r)) * element; bytes > 0)
        std::memcpy(wanted.data() + (row * cols + first(r)) * element,
                    x.data() + row * width * element, static_cast<size_t>(bytes));
  }
  return ranks.each([&](int r) -> Status {
    ASSIGN_OR_RETURN(const Buffer in, ranks.upload(r, x_of(r)));
    ASSIGN_OR_RETURN(const Buffer out, ranks.upload(r, poison(wanted.size())));
    const View x = View::matrix(in.data(), type, rows, width);
    const View y = View::matrix(out.data(), type, rows, cols);
    RETURN_IF_ERROR(
        ranks.run(r, [&](Stream& s) { return ranks.endpoint(r).gather_columns(x, unit, y, s); }));
    ASSIGN_OR_RETURN(const Bytes got, ranks.download(r, out));
    if (got == wanted) return ok();
    return internal_error("gather_columns [{}, {} x {}] of {} differs", rows, units, unit,
                          name_of(type));
  });
}

Status test_columns(Ranks& ranks, const TestOptions&) {
  for (const DType type : {DType::kBF16, DType::kF32, DType::kU8}) {
    RETURN_IF_ERROR(check_columns(ranks, 3, 8, 16, type));
    RETURN_IF_ERROR(check_columns(ranks, 5, 7, 3, type));
    RETURN_IF_ERROR(check_columns(ranks, 4, 1, 64, type));
    RETURN_IF_ERROR(check_columns(ranks, 17, 32064, 4, type));
  }
  return ok();
}

Status test_broadcasts(Ranks& ranks, const TestOptions&) {
  for (const size_t bytes : {1, 64, 1028, 1 << 20})
    for (int from = 0; from < ranks.size(); ++from) {
      const auto data = [&](int r) {
        return random_numbers(DType::kF32, static_cast<int64_t>(bytes / 4 + 1),
                              static_cast<uint64_t>(r) + bytes, true);
      };
      RETURN_IF_ERROR(ranks.each([&](int r) -> Status {
        ASSIGN_OR_RETURN(const Buffer buffer, ranks.upload(r, data(r)));
        RETURN_IF_ERROR(ranks.run(r, [&](Stream& s) {
          return ranks.endpoint(r).broadcast(buffer.data(), bytes, from, s);
        }));
        ASSIGN_OR_RETURN(const Bytes got, ranks.download(r, buffer));
        const Bytes wanted = data(from);
        if (std::equal(got.begin(), got.begin() + static_cast<int64_t>(bytes), wanted.begin()))
          return ok();
        return internal_error("broadcast of {} bytes from {} differs", bytes, from);
      }));
    }
  return ok();
}

// Around the ring, each message as soon as it has come; twice, between sums.
Status test_messages(Ranks& ranks, const TestOptions& options) {
  const int last = ranks.size() - 1;
  for (const size_t bytes : {1, 16, 5000, 1 << 16, 3 << 20}) {
    const Bytes first = random_numbers(DType::kF32, static_cast<int64_t>(bytes / 4 + 1), 3, true);
    RETURN_IF_ERROR(ranks.each([&](int r) -> Status {
      ASSIGN_OR_RETURN(const Buffer data, ranks.upload(r, r == 0 ? first : poison(first.size())));
      ASSIGN_OR_RETURN(const Buffer back, ranks.upload(r, poison(first.size())));
      ASSIGN_OR_RETURN(const Buffer x, ranks.upload(r, Bytes(256)));
      comm::Communicator& endpoint = ranks.endpoint(r);
      const auto round = [&](Stream& s) -> Status {
        if (r > 0) RETURN_IF_ERROR(endpoint.recv(data.data(), bytes, r - 1, s));
        RETURN_IF_ERROR(endpoint.send(data.data(), bytes, r < last ? r + 1 : 0, s));
        if (r == 0) RETURN_IF_ERROR(endpoint.recv(back.data(), bytes, last, s));
        return endpoint.all_reduce(x.data(), x.data(), 64, DType::kF32, s);
      };
      for (int i = 0; i < (options.once ? 1 : 20); ++i) RETURN_IF_ERROR(ranks.run(r, round));
      ASSIGN_OR_RETURN(const Bytes got, ranks.download(r, r == 0 ? back : data));
      if (std::equal(got.begin(), got.begin() + static_cast<int64_t>(bytes), first.begin()))
        return ok();
      return internal_error("message of {} bytes differs", bytes);
    }));
  }
  return ok();
}

// A rank that does not come: the others' wait ends with an error, and so does every later call.
Status test_missing(Ranks& ranks, const TestOptions&) {
  constexpr Duration kLimit = std::chrono::milliseconds(300);
  RETURN_IF_ERROR(ranks.join({.time_limit = kLimit, .deterministic = true, .way = "one-shot"}));
  const Time start = now();
  const int absent = ranks.size() - 1;
  RETURN_IF_ERROR(ranks.each([&](int r) -> Status {
    if (r == absent) return ok();
    ASSIGN_OR_RETURN(const Buffer x, ranks.upload(r, Bytes(1 << 16)));
    const Status status = ranks.run_alone(r, [&](Stream& s) -> Status {
      for (int i = 0; i < 50; ++i)
        RETURN_IF_ERROR(ranks.endpoint(r).all_reduce(x.data(), x.data(), 1 << 14, DType::kF32, s));
      return ranks.endpoint(r).barrier(s);
    });
    if (status.code() != absl::StatusCode::kDeadlineExceeded)
      return internal_error("the wait ended with '{}'", message(status));
    return ok();
  }));
  const double took = seconds(now() - start);
  std::printf("      %s, after %.2f s\n", std::string(message(ranks.endpoint(0).failure())).c_str(),
              took);
  if (took > 3 * seconds(kLimit) + 1) return internal_error("the waits took {:.2f} s", took);
  const Status later =
      ranks.run_alone(absent, [&](Stream& s) { return ranks.endpoint(absent).barrier(s); });
  return later.code() == absl::StatusCode::kDeadlineExceeded
             ? ok()
             : internal_error("a later call gives '{}'", message(later));
}

// abort() ends waits under way.
Status test_abort(Ranks& ranks, const TestOptions&) {
  RETURN_IF_ERROR(ranks.join(
      {.time_limit = std::chrono::seconds(60), .deterministic = true, .way = "two-shot"}));
  const Time start = now();
  RETURN_IF_ERROR(ranks.each([&](int r) -> Status {
    if (r == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      ranks.endpoint(0).abort(cancelled("as the test wants"));
      return ok();
    }
    ASSIGN_OR_RETURN(const Buffer x, ranks.upload(r, Bytes(4096)));
    const Status status = ranks.run_alone(r, [&](Stream& s) -> Status {
      RETURN_IF_ERROR(ranks.endpoint(r).recv(x.data(), 4096, 0, s));
      return ranks.endpoint(r).all_reduce(x.data(), x.data(), 1024, DType::kF32, s);
    });
    if (status.code() == absl::StatusCode::kCancelled) return ok();
    return internal_error("the wait ended with '{}'", message(status));
  }));
  if (seconds(now() - start) > 10) return internal_error("the waits went on");
  return ok();
}

// Calls that are refused end the group.
Status test_refusals(Ranks& ranks, const TestOptions&) {
  RETURN_IF_ERROR(ranks.join({.deterministic = true, .way = "direct"}));
  const Status status = ranks.run_alone(0, [&](Stream& s) {
    return ranks.endpoint(0).all_reduce(nullptr, nullptr, 8, DType::kU8, s);
  });
  if (status.code() != absl::StatusCode::kInvalidArgument)
    return internal_error("a sum of bytes gives '{}'", message(status));
  if (ranks.endpoint(1).failure().code() != absl::StatusCode::kInvalidArgument)
    return internal_error("the group goes on after a wrong call");
  if (ranks.join({.deterministic = true, .way = "pigeon"}).code() !=
      absl::StatusCode::kInvalidArgument)
    return internal_error("a way that does not exist is taken");
  return ok();
}

// NCCL's sums: exact with two ranks, else each rounded addition may err.
Status test_library(Ranks& ranks, const TestOptions& options) {
  const bool shares = ranks.opened(0).device->info().index == ranks.opened(1).device->info().index;
  if (options.once || shares) return ok();
  const Status joined = ranks.join({.way = "nccl"});
  if (joined.code() == absl::StatusCode::kUnavailable) {
    std::printf("      %s\n", std::string(message(joined)).c_str());
    return ok();
  }
  RETURN_IF_ERROR(joined);
  constexpr int64_t kCount = 1 << 20;
  std::vector<Bytes> x;
  for (int r = 0; r < ranks.size(); ++r)
    x.push_back(random_numbers(DType::kF32, kCount, static_cast<uint64_t>(r)));
  const Bytes wanted = sum_of(x, DType::kF32, 0, kCount);
  return ranks.each([&](int r) -> Status {
    ASSIGN_OR_RETURN(const Buffer in, ranks.upload(r, x[static_cast<size_t>(r)]));
    RETURN_IF_ERROR(ranks.run(r, [&](Stream& s) {
      return ranks.endpoint(r).all_reduce(in.data(), in.data(), kCount, DType::kF32, s);
    }));
    ASSIGN_OR_RETURN(const Bytes got, ranks.download(r, in));
    for (int64_t i = 0; i < kCount; ++i) {
      float most = 0;
      for (const Bytes& one : x) most += std::abs(number_at(one, DType::kF32, i));
      const float error =
          std::abs(number_at(got, DType::kF32, i) - number_at(wanted, DType::kF32, i));
      if (error > (ranks.size() == 2 ? 0 : most * 0x1p-21f))
        return internal_error("number {} errs by {} of {}", i, error, most);
    }
    return ok();
  });
}

struct Test {
  std::string_view name;
  Status (*run)(Ranks&, const TestOptions&);
  bool each_way;  // joins by itself otherwise
};
constexpr Test kTests[] = {
    {"sums", test_sums, true},          {"sequences", test_sequences, true},
    {"norms", test_norms, true},        {"parts", test_parts, false},
    {"columns", test_columns, false},   {"broadcasts", test_broadcasts, false},
    {"messages", test_messages, false}, {"missing", test_missing, false},
    {"abort", test_abort, false},       {"refusals", test_refusals, false},
    {"library", test_library, false},
};

bool report(std::string_view group, std::string_view name, const Status& status, Time start) {
  std::printf("%s  %-10s %-22s %6.2f s  %s\n", status.ok() ? "PASS" : "FAIL",
              std::string(group).c_str(), std::string(name).c_str(), seconds(now() - start),
              std::string(message(status)).c_str());
  std::fflush(stdout);
  return status.ok();
}

// All tests of a group of cards; the number of failures.
int check_group(const std::vector<int>& cards, const TestOptions& options) {
  const std::string name = fmt::format("{}", fmt::join(cards, ","));
  StatusOr<std::unique_ptr<Ranks>> ranks = Ranks::open(cards);
  if (!ranks.ok()) return report(name, "open", ranks.status(), now()) ? 0 : 1;
  int num_failed = 0;
  for (const Test& test : kTests) {
    if (test.name.find(options.only) == std::string_view::npos) continue;
    for (const std::string& way : std::vector<std::string>{"one-shot", "two-shot", "direct", ""}) {
      // A sanitizer may run graphs of two ranks one after the other: no measurement under it.
      if (test.each_way ? options.once && way.empty() : way != (options.once ? "direct" : ""))
        continue;
      const Time start = now();
      Status status = (*ranks)->join(
          {.time_limit = std::chrono::seconds(20), .deterministic = true, .way = way});
      if (status.ok()) status = test.run(**ranks, options);
      num_failed += !report(name, fmt::format("{} {}", test.name, way), status, start);
      (*ranks)->leave();
    }
  }
  return num_failed;
}

int run(TestOptions options) {
  int num_cards = 0;
  while (num_cards < 8 && open_device(fmt::format("cuda:{}", num_cards)).ok()) ++num_cards;
  if (num_cards == 0) {
    std::printf("FAIL  no GPU: %s\n", std::string(message(open_device("cuda:0").status())).c_str());
    return 1;
  }
  if (options.groups.empty()) {
    options.groups.push_back({0, 0});
    std::vector<int> cards = {0};
    for (int card = 1; card < num_cards; ++card) {
      cards.push_back(card);
      options.groups.push_back(cards);
    }
  }
  int num_failed = 0;
  for (const std::vector<int>& group : options.groups) num_failed += check_group(group, options);
  std::printf("%d cards, %zu groups, %d failed\n", num_cards, options.groups.size(), num_failed);
  return num_failed == 0 ? 0 : 1;
}

std::vector<int> read_cards(std::string_view text) {
  std::vector<int> cards;
  for (const char c : text)
    if (c >= '0' && c <= '9') cards.push_back(c - '0');
  return cards;
}

}  // namespace
}  // namespace nereid::kernels

int main(int argc, char** argv) {
  // Loading a kernel waits for those that run: on one card they would wait for the rank that loads.
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  nereid::kernels::TestOptions options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--once") {
      options.once = true;
    } else if (arg == "--only" && i + 1 < argc) {
      options.only = argv[++i];
    } else if (arg == "--ranks" && i + 1 < argc) {
      options.groups.push_back(nereid::kernels::read_cards(argv[++i]));
    } else {
      std::fprintf(stderr, "usage: gpu_comm_test [--once] [--only TEXT] [--ranks 0,0]\n");
      return 2;
    }
  }
  return nereid::kernels::run(options);
}
