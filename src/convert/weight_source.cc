#include "convert/weight_source.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <new>
#include <type_traits>
#include <vector>

#include "base/copy_bytes.h"
#include "base/hash.h"
#include "base/progress.h"
#include "base/rng.h"
#include "kernels/api/pack.h"
#include "kernels/api/quantize.h"
#include "tensor/cpu_probe.h"
#include "tensor/thread_pool.h"

namespace nereid::convert {
namespace {

constexpr int64_t kConvertElements = int64_t{1} << 22;  // elements converted at a time

bool is_finite(BF16 x) { return (x.bits & 0x7f80u) != 0x7f80u; }

template <class T>
T load(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

bool is_finite(float x) { return std::isfinite(x); }

void store(float x, float& out) { out = x; }
void store(float x, BF16& out) { out = to_bf16(x); }

// out[i] = element first + i * step of a BF16, F16 or F32 tensor.
template <class T>
void convert(const io::StoredTensor& tensor, int64_t first, int64_t step, std::span<T> out) {
  const auto size = static_cast<int64_t>(nereid::size_of(*tensor.type));
  const std::byte* from = tensor.data.data() + first * size;
  if (std::is_same_v<T, BF16> && tensor.type == DType::kBF16 && step == 1) {
    copy_bytes(out.data(), from, out.size_bytes());
    return;
  }
  for (T& x : out) {
    if (tensor.type == DType::kBF16)
      store(to_float(load<BF16>(from)), x);
    else if (tensor.type == DType::kF16)
      store(to_float(load<F16>(from)), x);
    else
      store(load<float>(from), x);
    from += step * size;
  }
}

// The same for an encoded matrix.
template <class T>
void decode(const io::Encoding& encoding, int64_t row, int64_t col, int64_t row_step,
            int64_t col_step, std::span<T> out) {
  std::array<float, 256> numbers;
  while (!out.empty()) {
    const size_t count = std::min(out.size(), numbers.size());
    encoding.read(row, col, row_step, col_step, std::span(numbers).first(count));
    for (size_t i = 0; i < count; ++i) store(numbers[i], out[i]);
    out = out.subspan(count);
    row += static_cast<int64_t>(count) * row_step, col += static_cast<int64_t>(count) * col_step;
  }
}

// Elements [first, first + out.size()) of WeightPart::elements.
template <class T>
Status read_elements(const io::Checkpoint::Entry& entry, const graph::WeightPart& part,
                     int64_t first, std::span<T> out) {
  const io::StoredTensor& tensor = *entry.tensor;
  const auto needed = static_cast<size_t>(part.total * part.total_cols);
  if (tensor.encoding || !tensor.type ||
      tensor.data.size() / nereid::size_of(*tensor.type) < needed)
    return invalid_argument("{}: tensor '{}' is no plain tensor of {} numbers",
                            entry.file->path().string(), part.tensor, needed);
  for (size_t i = 0; i < out.size(); ++i) {
    convert(tensor, part.elements[static_cast<size_t>(first) + i], 1, out.subspan(i, 1));
    if (!is_finite(out[i]))
      return invalid_argument("{}: tensor '{}': element {} is not a finite number",
                              entry.file->path().string(), part.tensor,
                              part.elements[static_cast<size_t>(first) + i]);
  }
  return ok();
}

// Elements of one part in stored form, see WeightSource::read().
template <class T>
Status read_stored(const io::Checkpoint& checkpoint, const graph::Weight& weight,
                   const graph::WeightPart& part, int64_t first, std::span<T> out) {
  const io::Checkpoint::Entry* entry = checkpoint.find(part.tensor);
  if (!entry) return internal_error("tensor '{}' is missing", part.tensor);
  const io::StoredTensor& tensor = *entry->tensor;
  const size_t size = nereid::size_of(tensor.type.value_or(DType::kU8));
  const int64_t k = weight.is_vector ? 1 : part.width(weight.k);
  const int64_t cols = weight.is_vector ? 1 : part.tensor_cols(weight.k);
  const int64_t begin = part.index * part.tensor_rows() * cols;
  const io::Encoding* encoding = tensor.encoding.get();
  if (!part.elements.empty()) return read_elements(*entry, part, first, out);
  if (!encoding &&
      tensor.data.size() / size < static_cast<size_t>(begin + part.tensor_rows() * cols))
    return internal_error("tensor '{}' is too small", part.tensor);
  // Index of the weight's element (row, column) in the tensor.
  const int64_t row_step = part.transposed ? 1 : cols;
  const int64_t col_step = (part.transposed ? part.tensor_rows() : 1) * part.col_step;
  const bool whole_rows = !encoding && cols == k && !part.transposed && part.pairs == 0 &&
                          part.step == 1 && part.col_step == 1;
  // Rows of a transposed tensor are the weight's columns.
  const bool rows_are_columns = part.transposed != tensor.transposed;
  const int64_t rows_in_front = part.index * (rows_are_columns ? cols : part.tensor_rows());
  for (size_t done = 0; done < out.size();) {
    const int64_t element = first + static_cast<int64_t>(done);
    const int64_t row = part.tensor_row(element / k);
    const int64_t col = part.first_col + element % k * part.col_step;
    const size_t rest = out.size() - done;
    const size_t count = whole_rows ? rest : std::min(rest, static_cast<size_t>(k - element % k));
    if (!encoding)
      convert(tensor, begin + row * row_step + col * (part.transposed ? part.tensor_rows() : 1),
              col_step, out.subspan(done, count));
    else if (rows_are_columns)
      decode(*encoding, rows_in_front + col, row, part.col_step, 0, out.subspan(done, count));
    else
      decode(*encoding, rows_in_front + row, col, 0, part.col_step, out.subspan(done, count));
    done += count;
  }
  const auto bad = std::find_if_not(out.begin(), out.end(), [](T x) { return is_finite(x); });
  if (bad == out.end()) return ok();
  return invalid_argument("{}: tensor '{}': element {} is not a finite number",
                          entry->file->path().string(), part.tensor, first + (bad - out.begin()));
}

// Elements [first, first + out.size()) of a table of positions of `width` columns.
template <class T>
void make_sinusoids(const graph::WeightPart& part, int64_t width, int64_t first, std::span<T> out) {
  const int64_t half = width / 2;
  const bool spans = part.sinusoids == graph::Sinusoids::kSpanned;
  const double period = static_cast<double>(spans ? half - 1 : half);
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t element = first + static_cast<int64_t>(i), col = element % width;
    const double rate = std::pow(10000.0, -static_cast<double>(col % half) / period);
    const double angle = static_cast<double>(part.first + element / width) * rate;
    store(static_cast<float>(col < half ? std::sin(angle) : std::cos(angle)), out[i]);
  }
}

// Elements of a part times the scales of their rows.
template <class T>
Status read_scaled(const io::Checkpoint& checkpoint, const graph::Weight& weight,
                   const graph::WeightPart& part, int64_t first, std::span<T> out) {
  std::vector<float> exact(out.size()), scales(static_cast<size_t>(part.tensor_rows()));
  RETURN_IF_ERROR(read_stored(checkpoint, weight, part, first, std::span(exact)));
  graph::WeightPart all{.tensor = part.row_scales, .size = part.tensor_rows()};
  graph::Weight vector;
  vector.is_vector = true;
  RETURN_IF_ERROR(read_stored(checkpoint, vector, all, 0, std::span(scales)));
  const int64_t width = weight.is_vector ? 1 : part.width(weight.k);
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t row = part.tensor_row((first + static_cast<int64_t>(i)) / width);
    store(exact[i] * scales[static_cast<size_t>(row)], out[i]);
  }
  return ok();
}

// Elements of one part as the weight requires them: unit_rows, added, scaled, sinusoids.
template <class T>
Status read_part(const io::Checkpoint& checkpoint, const graph::Weight& weight,
                 const graph::WeightPart& part, int64_t first, std::span<T> out) {
  if (part.sinusoids != graph::Sinusoids::kNone) {
    make_sinusoids(part, weight.k, first, out);
    return ok();
  }
  if (!part.row_scales.empty()) return read_scaled(checkpoint, weight, part, first, out);
  if (part.added != 0) {
    std::vector<float> exact(out.size());
    RETURN_IF_ERROR(read_stored(checkpoint, weight, part, first, std::span(exact)));
    for (size_t i = 0; i < out.size(); ++i) store(exact[i] + part.added, out[i]);
    return ok();
  }
  if (!part.unit_rows) return read_stored(checkpoint, weight, part, first, out);
  constexpr double kShortest = 1e-12;
  std::vector<float> row(static_cast<size_t>(weight.k));
  for (size_t done = 0; done < out.size();) {
    const int64_t element = first + static_cast<int64_t>(done);
    const auto col = static_cast<size_t>(element % weight.k);
    RETURN_IF_ERROR(
        read_stored(checkpoint, weight, part, element - element % weight.k, std::span(row)));
    double squares = 0;
    for (const float x : row) squares += double{x} * x;
    const double length = std::max(std::sqrt(squares), kShortest);
    const size_t count = std::min(out.size() - done, row.size() - col);
    for (size_t i = 0; i < count; ++i)
      store(static_cast<float>(row[col + i] / length), out[done + i]);
    done += count;
  }
  return ok();
}

class CheckpointSource final : public WeightSource {
 public:
  explicit CheckpointSource(const io::Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  Status read(const graph::Weight& weight, const graph::WeightPart& part, int64_t first,
              std::span<BF16> out) const override {
    return read_part(checkpoint_, weight, part, first, out);
  }
  Status read(const graph::Weight& weight, const graph::WeightPart& part, int64_t first,
              std::span<float> out) const override {
    return read_part(checkpoint_, weight, part, first, out);
  }
  const io::Encoding* encoding(const graph::WeightPart& part) const override {
    const io::Checkpoint::Entry* entry = checkpoint_.find(part.tensor);
    return entry ? entry->tensor->encoding.get() : nullptr;
  }

 private:
  const io::Checkpoint& checkpoint_;
};

class RandomSource final : public WeightSource {
 public:
  Status read(const graph::Weight& weight, const graph::WeightPart& part, int64_t first,
              std::span<BF16> out) const override {
    if (weight.is_vector) {
      const bool is_norm = part.tensor.find("norm") != std::string::npos;
      std::fill(out.begin(), out.end(), to_bf16(is_norm ? 1.0f : 0.0f));
      return ok();
    }
    const uint64_t key = hash64(part.tensor);
    const float scale = std::sqrt(3.0f / static_cast<float>(weight.k)) / 32768.0f;  // variance 1/k
    for (size_t i = 0; i < out.size();) {
      const auto element = static_cast<uint64_t>(first) + i;
      const std::array<uint32_t, 4> bits = philox(key, element / 8);
      for (uint64_t lane = element % 8; lane < 8 && i < out.size(); ++lane, ++i) {
        const uint32_t half = bits[lane / 2] >> (lane % 2 * 16) & 0xffffu;
        out[i] = to_bf16((static_cast<float>(half) - 32767.5f) * scale);
      }
    }
    return ok();
  }
  Status read(const graph::Weight&, const graph::WeightPart&, int64_t,
              std::span<float> out) const override {
    std::fill(out.begin(), out.end(), 0.0f);
    return ok();
  }
};

// Elements [first, first + out.size()) of parts side by side; calls read(part, first, out).
template <class T, class Read>
Status read_beside(std::span<const graph::WeightPart> parts, int64_t k, int64_t first,
                   std::span<T> out, const Read& read) {
  if (parts.size() == 1) return read(parts[0], first, out);
  while (!out.empty()) {
    const int64_t row = first / k, col = first % k;
    int64_t begin = 0;
    const graph::WeightPart* part = parts.data();
    for (; col >= begin + part->cols; ++part) begin += part->cols;
    const auto count = std::min<size_t>(out.size(), static_cast<size_t>(begin + part->cols - col));
    RETURN_IF_ERROR(read(*part, row * part->cols + col - begin, out.first(count)));
    out = out.subspan(count);
    first += static_cast<int64_t>(count);
  }
  return ok();
}

// Elements [first, first + out.size()) of a weight, which may span parts.
template <class T, class Read>
Status read_stacked(const graph::Weight& weight, int64_t first, std::span<T> out,
                    const Read& read) {
  const int64_t k = weight.is_vector ? 1 : weight.k;
  int64_t begin = 0;
  for (size_t i = 0, next = 0; i < weight.parts.size() && !out.empty(); i = next) {
    int64_t col = 0;
    do col += weight.parts[next++].width(k);
    while (col < k && next < weight.parts.size());
    const int64_t end = begin + weight.parts[i].size * k;
    if (first < end) {
      const auto count =
          static_cast<size_t>(std::min<int64_t>(end - first, static_cast<int64_t>(out.size())));
      RETURN_IF_ERROR(read_beside(std::span(weight.parts).subspan(i, next - i), k, first - begin,
                                  out.first(count), read));
      out = out.subspan(count);
      first += static_cast<int64_t>(count);
    }
    begin = end;
  }
  return out.empty() ? ok() : internal_error("weight '{}' has too few parts", weight.name);
}

template <class T>
Status read_stacked(const graph::Weight& weight, const WeightSource& source, int64_t first,
                    std::span<T> out) {
  return read_stacked(weight, first, out,
                      [&](const graph::WeightPart& part, int64_t from, std::span<T> to) {
                        return source.read(weight, part, from, to);
                      });
}

// Encoding of each part if all parts are stored in the weight's format, or in MXFP4 where that has
// its integers; else empty.
std::vector<const io::Encoding*> stored_parts(const graph::Weight& weight,
                                              const WeightSource& source) {
  std::vector<const io::Encoding*> parts;
  const bool widens = weight.stored == kernels::kMxfp4 && weight.format == kernels::kMxfp4Integers;
  if (weight.format != weight.stored && !widens) return parts;
  for (const graph::WeightPart& part : weight.parts) parts.push_back(source.encoding(part));
  if (std::ranges::find(parts, nullptr) != parts.end()) parts.clear();
  return parts;
}

// Copies row `row` of such a weight to row `to` of `planes`.
Status copy_codes(const graph::Weight& weight, std::span<const io::Encoding* const> parts,
                  int64_t row, int64_t to, kernels::QuantizedPlanes& planes) {
  const kernels::WeightFormat& format = weight.format;
  const auto [part, from] = part_row(weight, row);
  const io::Encoding& encoding = *parts[static_cast<size_t>(part - weight.parts.data())];
  const bool widens = format != weight.stored;  // twice the e2m1 number, half the scale
  bool finite = true;
  for (int64_t col = 0; col < weight.k; ++col) {
    uint8_t code = encoding.code(from, part->first_col + col);
    if (widens) code = static_cast<uint8_t>(io::twice_e2m1(code) + format.default_zero());
    finite &= format.scheme != kernels::Scheme::kFloat8 || (code & 0x7fu) != 0x7fu;
    const kernels::IntegerPlace place =
        kernels::integer_place(weight.layout, format, to, col, weight.k);
    planes.data[static_cast<size_t>(place.byte)] |= static_cast<uint8_t>(code << place.shift);
  }
  const int64_t groups = format.num_groups(weight.k);
  const int64_t first_group = part->first_col / format.group_size(part->tensor_cols(weight.k));
  for (int64_t group = 0; group < groups; ++group) {
    const io::CodeGroup codes = encoding.group(from, first_group + group);
    const auto at = static_cast<size_t>(kernels::group_index(weight.layout, to, group, groups));
    finite &= std::isfinite(codes.scale) && std::isfinite(codes.minimum);
    if (format.scheme == kernels::Scheme::kFloat4) {
      const int32_t exponent = finite ? std::ilogb(codes.scale) + 127 : 0;
      if (exponent > kernels::kMaxExponent)
        return invalid_argument(
            "tensor '{}': row {} has a scale of {}; mxfp4 has at most 2: set expert_weights to "
            "int8 or bf16",
            part->tensor, from, codes.scale);
      planes.exponents[at] = static_cast<uint8_t>(exponent);
      continue;
    }
    planes.scales[at] = widens ? codes.scale / 2 : codes.scale;
    if (format.zeros) planes.zeros[at] = static_cast<uint8_t>(codes.zero);
    if (format.minima) planes.minima[at] = codes.minimum;
  }
  if (finite) return ok();
  return invalid_argument("tensor '{}': row {} has a number that is not finite", part->tensor,
                          from);
}

// Calls make(row, count, piece) for pieces of a weight's rows (all experts) in parallel, then
// take(piece) in order. Pieces are whole panels, some megabytes together.
template <class Piece, class Make, class Take>
Status by_pieces(const graph::Weight& weight, ThreadPool& pool, ProgressBar& bar, const Make& make,
                 const Take& take) {
  const int64_t together = pool.num_threads();
  const int64_t unit = kernels::unit_rows(weight.layout);
  const int64_t panels = std::max<int64_t>(1, kConvertElements / together / weight.k / unit);
  const int64_t rows = std::min(panels * unit, weight.n);
  const int64_t of_expert = (weight.n + rows - 1) / rows, pieces = weight.experts * of_expert;
  std::vector<Piece> made(static_cast<size_t>(std::min(together, pieces)));
  std::vector<Status> results(made.size());
  for (int64_t begin = 0; begin < pieces; begin += together) {
    const int64_t count = std::min(together, pieces - begin);
    pool.parallel_for(count, 1, [&](int64_t i, int64_t, int) {
      const int64_t row = (begin + i) % of_expert * rows;
      const auto at = static_cast<size_t>(i);
      try {
        results[at] = make((begin + i) / of_expert * weight.n + row, std::min(rows, weight.n - row),
                           made[at]);
      } catch (const std::bad_alloc&) {
        results[at] = resource_exhausted("no memory to convert weight '{}'", weight.name);
      }
    });
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      RETURN_IF_ERROR(results[i]);
      RETURN_IF_ERROR(take(made[i]));
      const int64_t row = (begin + static_cast<int64_t>(i)) % of_expert * rows;
      bar.add(std::min(rows, weight.n - row) * weight.k * static_cast<int64_t>(sizeof(BF16)));
    }
  }
  return ok();
}

// Reads and rounds the numbers, or copies stored codes; the small group planes are kept in memory
// and follow the data.
Status write_integers(const graph::Weight& weight, const WeightSource& source, ThreadPool& pool,
                      ProgressBar& bar, io::EngineWriter& writer) {
  struct Piece {
    std::vector<BF16> rows;
    kernels::QuantizedPlanes planes;
  };
  const std::vector<const io::Encoding*> stored = stored_parts(weight, source);
  const auto make = [&](int64_t first, int64_t count, Piece& piece) -> Status {
    if (!stored.empty()) {
      piece.planes = kernels::empty_planes(weight.format, weight.layout, count, weight.k);
      for (int64_t to = 0; to < count; ++to)
        RETURN_IF_ERROR(copy_codes(weight, stored, first + to, to, piece.planes));
      return ok();
    }
    piece.rows.resize(static_cast<size_t>(count * weight.k));
    RETURN_IF_ERROR(read_stacked(weight, source, first * weight.k, std::span(piece.rows)));
    return annotate(
        kernels::quantize(weight.format, weight.layout, piece.rows, weight.k, piece.planes),
        weight.name);
  };
  std::vector<float> scales, minima;
  std::vector<uint8_t> exponents, zeros;
  const auto take = [&](const Piece& piece) -> Status {
    const kernels::QuantizedPlanes& planes = piece.planes;
    scales.insert(scales.end(), planes.scales.begin(), planes.scales.end());
    exponents.insert(exponents.end(), planes.exponents.begin(), planes.exponents.end());
    zeros.insert(zeros.end(), planes.zeros.begin(), planes.zeros.end());
    minima.insert(minima.end(), planes.minima.begin(), planes.minima.end());
    return writer.append(std::as_bytes(std::span(planes.data)));
  };
  RETURN_IF_ERROR(by_pieces<Piece>(weight, pool, bar, make, take));
  RETURN_IF_ERROR(writer.append(std::as_bytes(std::span(scales))));
  RETURN_IF_ERROR(writer.append(std::as_bytes(std::span(exponents))));
  RETURN_IF_ERROR(writer.append(std::as_bytes(std::span(zeros))));
  return writer.append(std::as_bytes(std::span(minima)));
}

Status write_weight(const graph::Weight& weight, const WeightSource& source, ThreadPool& pool,
                    ProgressBar& bar, io::EngineWriter& writer) {
  if (weight.format == kernels::kFloat32) {
    std::vector<float> numbers(static_cast<size_t>(weight.k));
    RETURN_IF_ERROR(read_stacked(weight, source, 0, std::span(numbers)));
    return writer.append(std::as_bytes(std::span(numbers)));
  }
  if (!weight.format.is_float()) return write_integers(weight, source, pool, bar, writer);
  struct Piece {
    std::vector<BF16> rows;
    std::vector<std::byte> panels;
  };
  const bool packed = weight.layout == kernels::WeightLayout::kPanel16;
  const auto make = [&](int64_t first, int64_t count, Piece& piece) -> Status {
    piece.rows.resize(static_cast<size_t>(count * weight.k));
    RETURN_IF_ERROR(read_stacked(weight, source, first * weight.k, std::span(piece.rows)));
    if (!packed) return ok();
    piece.panels.resize(kernels::panel16_bytes(count, weight.k));
    const kernels::RowMajorPart whole{piece.rows.data(), count};
    return kernels::pack_panel16({&whole, 1}, weight.k, piece.panels);
  };
  return by_pieces<Piece>(weight, pool, bar, make, [&](const Piece& piece) {
    return writer.append(packed ? std::span<const std::byte>(piece.panels)
                                : std::as_bytes(std::span(piece.rows)));
  });
}

}  // namespace

Status read_values(const graph::Weight& weight, const io::Checkpoint& checkpoint, int64_t first,
                   std::span<float> out) {
  return read_stacked(weight, first, out,
                      [&](const graph::WeightPart& part, int64_t from, std::span<float> to) {
                        return read_part(checkpoint, weight, part, from, to);
                      });
}

PartRow part_row(const graph::Weight& weight, int64_t row) {
  size_t i = 0;
  while (row >= weight.parts[i].size) row -= weight.parts[i++].size;
  const graph::WeightPart& part = weight.parts[i];
  return {&part, part.index * part.tensor_rows() + part.tensor_row(row)};
}

std::unique_ptr<WeightSource> checkpoint_source(const io::Checkpoint& checkpoint) {
  return std::make_unique<CheckpointSource>(checkpoint);
}

std::unique_ptr<WeightSource> random_source() { return std::make_unique<RandomSource>(); }

Status write_weights(const graph::Graph& graph, const WeightSource& source,
                     io::EngineWriter& writer) {
  // At least two threads, so that single-core machines run the same code.
  ThreadPool pool(std::max(2, num_usable_cores()));
  int64_t bytes = 0;  // as bf16; the few numbers in f32 are not counted
  for (const graph::Weight& weight : graph.weights)
    if (weight.format != kernels::kFloat32)
      bytes += weight.experts * weight.n * weight.k * static_cast<int64_t>(sizeof(BF16));
  ProgressBar bar("building the engine", bytes, ProgressUnit::kBytes);
  for (const graph::Weight& weight : graph.weights)
    RETURN_IF_ERROR(write_weight(weight, source, pool, bar, writer));
  return ok();
}

}  // namespace nereid::convert
