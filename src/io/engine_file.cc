#include "io/engine_file.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <thread>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/round_up.h"
#include "io/engine_format.h"

namespace nereid::io {
namespace {

StatusOr<EnginePrefix> read_prefix(std::span<const std::byte> file) {
  EnginePrefix prefix;
  if (file.size() < sizeof prefix) return data_loss("{} bytes are too few", file.size());
  std::memcpy(&prefix, file.data(), sizeof prefix);
  if (std::memcmp(prefix.magic, kEngineMagic, sizeof kEngineMagic) != 0)
    return data_loss("not an engine file");
  if (prefix.checksum != prefix.compute_checksum()) return data_loss("prefix is damaged");
  if (prefix.format_version != kEngineFormatVersion)
    return data_loss(
        "format version {} of {} nereid, this is {} and reads version {}: build the engine again "
        "from its checkpoint, or use the nereid that wrote it",
        prefix.format_version,
        prefix.format_version > kEngineFormatVersion ? "a newer" : "an older", NEREID_VERSION,
        kEngineFormatVersion);
  if (prefix.header_bytes > kMaxEngineHeaderBytes)
    return data_loss("header of {} bytes, at most {} are allowed", prefix.header_bytes,
                     kMaxEngineHeaderBytes);
  if (prefix.blob_offset != round_up(sizeof prefix + prefix.header_bytes, kBlobAlignment))
    return data_loss("weights at byte {} do not follow the header", prefix.blob_offset);
  if (prefix.blob_offset > file.size() || file.size() - prefix.blob_offset != prefix.blob_bytes)
    return data_loss("{} bytes, {} + {} are expected", file.size(), prefix.blob_offset,
                     prefix.blob_bytes);
  return prefix;
}

StatusOr<json::value> read_header(std::span<const std::byte> file, const EnginePrefix& prefix) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + sizeof prefix,
                              prefix.header_bytes);
  if (hash64(text) != prefix.header_checksum) return data_loss("header is damaged");
  StatusOr<json::value> header = parse_json(text, 16);
  if (!header.ok()) return annotate(header.status(), "header");
  if (!header->is_object()) return data_loss("header is not an object");
  return header;
}

// Adds the writer's version to errors of unreadable files.
Status annotate_writer(const Status& status, const std::string& writer) {
  if (status.ok() || writer == NEREID_VERSION) return status;
  return data_loss(
      "{} (written by nereid {}, this is {}: build the engine again from its checkpoint)",
      message(status), writer.empty() ? "of an unknown version" : writer, NEREID_VERSION);
}

Status check_known(const json::object& header) {
  constexpr std::string_view kKnown[] = {"nereid_version", "build_key",     "checkpoint",
                                         "rank",           "rank_checksum", "plan"};
  for (const auto& field : header)
    if (std::ranges::find(kKnown, std::string_view(field.key())) == std::end(kKnown))
      return data_loss("header: field '{}' is not known", std::string_view(field.key()));
  return ok();
}

StatusOr<std::string> string_field(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  if (!value || !value->is_string()) return data_loss("header: field '{}' is not a string", key);
  return std::string(value->get_string());
}

Status read_rank(const json::object& header, EngineContents& engine) {
  ASSIGN_OR_RETURN(const std::string text, string_field(header, "rank_checksum"));
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, engine.rank_checksum, 16);
  if (error != std::errc() || stop != end)
    return data_loss("header: field 'rank_checksum' is not a checksum");
  const json::value* rank = header.if_contains("rank");
  if (!rank || !rank->is_int64() || rank->get_int64() < 0 || rank->get_int64() > INT32_MAX)
    return data_loss("header: field 'rank' is not a rank");
  engine.rank = static_cast<int32_t>(rank->get_int64());
  return ok();
}

}  // namespace

StatusOr<EngineContents> parse_engine(std::span<const std::byte> file) {
  EngineContents engine;
  ASSIGN_OR_RETURN(const EnginePrefix prefix, read_prefix(file));
  ASSIGN_OR_RETURN(const json::value header, read_header(file, prefix));
  if (header.get_object().contains("nereid_version")) {
    ASSIGN_OR_RETURN(engine.writer, string_field(header.get_object(), "nereid_version"));
  }
  RETURN_IF_ERROR(annotate_writer(check_known(header.get_object()), engine.writer));
  ASSIGN_OR_RETURN(engine.build_key, string_field(header.get_object(), "build_key"));
  const json::value* plan = header.get_object().if_contains("plan");
  if (!plan) return data_loss("header: field 'plan' is missing");
  StatusOr<Plan> read = plan_from_json(*plan);
  if (!read.ok()) return annotate_writer(read.status(), engine.writer);
  engine.plan = *std::move(read);
  if (header.get_object().contains("checkpoint")) {
    ASSIGN_OR_RETURN(engine.checkpoint, string_field(header.get_object(), "checkpoint"));
    if (engine.checkpoint.empty() || prefix.blob_bytes != 0)
      return data_loss("header: field 'checkpoint' belongs to files without weights");
    return engine;
  }
  if (header.get_object().contains("rank_checksum")) {
    RETURN_IF_ERROR(read_rank(header.get_object(), engine));
    engine.rank_tensors = file.subspan(prefix.blob_offset);
    if (engine.rank_tensors.empty())
      return data_loss("there are no tensors of rank {}", engine.rank);
    return engine;
  }
  if (engine.plan.blob_bytes != prefix.blob_bytes)
    return data_loss("plan has {} bytes of weights, the file {}", engine.plan.blob_bytes,
                     prefix.blob_bytes);
  engine.blob = file.subspan(prefix.blob_offset);
  return engine;
}

StatusOr<EngineFile> EngineFile::open(const std::filesystem::path& path, Verify verify) {
  EngineFile out;
  out.path_ = path;
  ASSIGN_OR_RETURN(out.file_, MappedFile::open(path));
  StatusOr<EngineContents> engine = parse_engine(out.file_.bytes());
  if (!engine.ok()) return data_loss("{}: {}", path.string(), message(engine.status()));
  out.engine_ = *std::move(engine);
  if (out.is_of_rank()) {
    std::error_code error;
    out.engine_.checkpoint = std::filesystem::absolute(path, error).parent_path().string();
  }
  if (verify == Verify::kPlan) return out;
  if (!out.checkpoint().empty())
    return invalid_argument("{}: has no weights; trtllm-refit fills it", path.string());
  const bool small = out.engine_.plan.blob_bytes <= kAutoVerifyBytes;
  if (verify == Verify::kFull || (verify == Verify::kAuto && small))
    RETURN_IF_ERROR(out.verify_weights());
  return out;
}

Status verify_rank_tensors(const EngineContents& engine) {
  if (weight_checksum(engine.rank_tensors.data(), engine.rank_tensors.size()) !=
      engine.rank_checksum)
    return data_loss("tensors of rank {} are damaged", engine.rank);
  return ok();
}

Status EngineFile::verify_weights(int num_threads) const {
  if (is_of_rank()) return annotate(verify_rank_tensors(engine_), path_.string());
  std::vector<std::pair<const PlanWeight*, const Plane*>> planes;
  for (const PlanWeight& w : engine_.plan.weights)
    for (const Plane& plane : w.planes) planes.emplace_back(&w, &plane);
  if (num_threads <= 0) num_threads = static_cast<int>(std::thread::hardware_concurrency());
  constexpr uint64_t kBytesPerThread = uint64_t{4} << 20;  // minimum work of a thread
  const uint64_t useful = 1 + engine_.plan.blob_bytes / kBytesPerThread;
  num_threads = static_cast<int>(std::clamp<uint64_t>(num_threads, 1, useful));
  std::atomic<size_t> next = 0;
  std::atomic<size_t> damaged = planes.size();
  const auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < planes.size();) {
      const Plane& plane = *planes[i].second;
      if (weight_checksum(bytes(plane).data(), plane.shape.bytes) != plane.checksum) damaged = i;
    }
  };
  std::vector<std::jthread> helpers;
  for (int i = 1; i < num_threads; ++i) helpers.emplace_back(work);
  work();
  helpers.clear();
  if (damaged < planes.size())
    return data_loss("{}: weight '{}' is damaged", path_.string(), planes[damaged].first->name);
  return ok();
}

}  // namespace nereid::io
