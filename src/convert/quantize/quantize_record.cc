#include "convert/quantize/quantize_record.h"

#include <bit>
#include <system_error>

#include "base/copy_bytes.h"
#include "base/file.h"
#include "base/json.h"
#include "convert/content_key.h"

namespace nereid::convert {
namespace {

constexpr std::string_view kRecord = "progress.json", kMatrices = "rounded-";

// Floats as their bit patterns: lossless.
json::object vectors_to_json(const ChangedVectors& vectors) {
  json::object out;
  for (const auto& [name, numbers] : vectors) {
    json::array& bits = out[name].emplace_array();
    for (const float x : numbers) bits.emplace_back(std::bit_cast<uint32_t>(x));
  }
  return out;
}

ChangedVectors vectors_from_json(const json::value& value) {
  ChangedVectors out;
  for (const auto& [name, bits] : value.as_object())
    for (const json::value& one : bits.as_array())
      out[name].push_back(std::bit_cast<float>(one.to_number<uint32_t>()));
  return out;
}

}  // namespace

std::optional<QuantizeRecord> RecordFile::read() const {
  const StatusOr<json::value> file = read_json_file(dir_ / kRecord);
  if (!file.ok()) return std::nullopt;
  try {
    const json::object& from = file->as_object();
    if (from.at("key").as_string() != key_) return std::nullopt;
    QuantizeRecord record;
    record.num_inputs = from.at("inputs").to_number<size_t>();
    record.bytes = from.at("bytes").to_number<uint64_t>();
    record.progress.layers_done = from.at("layers").to_number<int32_t>();
    record.progress.matrices_done = from.at("matrices").to_number<int64_t>();
    record.progress.num_unseen = from.at("unseen").to_number<int64_t>();
    record.changed = vectors_from_json(from.at("changed"));
    return record;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

Status RecordFile::write(const QuantizeRecord& record) const {
  const json::object to = {{"key", key_},
                           {"inputs", record.num_inputs},
                           {"bytes", record.bytes},
                           {"layers", record.progress.layers_done},
                           {"matrices", record.progress.matrices_done},
                           {"unseen", record.progress.num_unseen},
                           {"changed", vectors_to_json(record.changed)}};
  return write_file_atomic(dir_ / kRecord, json::serialize(to));
}

std::filesystem::path RecordFile::matrices_path(size_t input) const {
  return dir_ / fmt::format("{}{}", kMatrices, input);
}

Status RecordFile::write_matrices(size_t input, std::span<const BF16> matrices) const {
  return write_file_atomic(matrices_path(input),
                           {reinterpret_cast<const char*>(matrices.data()), matrices.size_bytes()});
}

StatusOr<std::vector<BF16>> RecordFile::read_matrices(size_t input) const {
  constexpr size_t kMostBytes = size_t{1} << 40;
  ASSIGN_OR_RETURN(const std::string bytes, read_file(matrices_path(input), kMostBytes));
  std::vector<BF16> matrices(bytes.size() / sizeof(BF16));
  copy_bytes(matrices.data(), bytes.data(), matrices.size() * sizeof(BF16));
  return matrices;
}

void RecordFile::remove() const {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir_, error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kRecord) || name.starts_with(kMatrices))
      std::filesystem::remove(entry.path(), error);
  }
}

std::string quantize_key(const QuantizeOptions& options, const models::Model& model,
                         const io::Checkpoint& checkpoint) {
  ContentKey key;
  key.add("nereid", NEREID_VERSION);
  key.add("format", kernels::text_of(options.format));
  key.add("flags", fmt::format("{} {} {} {} {} {}", options.search_scales, options.quantize_head,
                               options.error_feedback, options.act_order, options.sequential,
                               options.one_scale));
  key.add("smoothing", fmt::format("{}", options.smoothing.value_or(-1)));
  key.add("more bits", fmt::format("{}", options.more_bits));
  key.add("damping", fmt::format("{}", options.damping));
  for (const std::string& pattern : options.exclude) key.add("exclude", pattern);
  for (const std::string& pattern : options.int8_modules) key.add("int8", pattern);
  key.add("calibration", options.calibration);
  key.add("config", json::serialize(model.config));
  key.add(checkpoint);
  return key.text();
}

}  // namespace nereid::convert
