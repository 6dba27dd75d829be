// Sums over ranks, alone, in sequences, in front of norms and in parts, against sums on the host.
#include <cmath>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/cuda/comm/gpu_comm_fixture.h"

namespace nereid::kernels {

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
          // The copy follows the call on its stream: numbers written later are not in it.
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

namespace {

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

}  // namespace

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

}  // namespace nereid::kernels
