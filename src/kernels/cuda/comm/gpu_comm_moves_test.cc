// Bytes that ranks pass on: columns, broadcasts, messages.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/cuda/comm/gpu_comm_fixture.h"

namespace nereid::kernels {

namespace {

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

}  // namespace

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

}  // namespace nereid::kernels
