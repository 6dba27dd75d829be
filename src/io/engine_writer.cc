#include "io/engine_writer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/file.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/round_up.h"
#include "io/engine_file.h"
#include "io/engine_format.h"

namespace nereid::io {
namespace {

constexpr uint64_t kWeightAlignment = 64;
constexpr const char* kMemoryEngine = "nereid-engine";

}  // namespace

void place_weights(Plan& plan) {
  uint64_t end = 0;
  for (PlanWeight& w : plan.weights) {
    w.planes.clear();
    for (const kernels::PlaneShape& shape :
         kernels::planes_of(w.format, w.layout, w.n, w.k, w.experts)) {
      const uint64_t offset = round_up(end, kWeightAlignment);
      w.planes.push_back({shape, offset, 0});
      end = offset + shape.bytes;
    }
  }
  plan.blob_bytes = end;
}

StatusOr<EngineWriter> EngineWriter::create(const std::filesystem::path& path, Plan plan,
                                            std::string build_key) {
  std::error_code error;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), error);
  if (error) return unavailable("{}: {}", path.parent_path().string(), error.message());
  EngineWriter out;
  out.path_ = path;
  out.temporary_ = path.string() + ".tmp.XXXXXX";
  out.fd_ = ::mkostemp(out.temporary_.data(), O_CLOEXEC);
  if (out.fd_ < 0) {
    const std::string name = std::exchange(out.temporary_, {});
    return unavailable("{}: {}", name, std::strerror(errno));
  }
  ::fchmod(out.fd_, 0644);
  RETURN_IF_ERROR(out.begin(std::move(plan), std::move(build_key)));
  return out;
}

StatusOr<EngineWriter> EngineWriter::create_in_memory(Plan plan, std::string build_key) {
  EngineWriter out;
  out.fd_ = ::memfd_create(kMemoryEngine, MFD_CLOEXEC);
  if (out.fd_ < 0) return unavailable("memory for an engine: {}", std::strerror(errno));
  out.path_ = fmt::format("/proc/self/fd/{}", out.fd_);
  RETURN_IF_ERROR(out.begin(std::move(plan), std::move(build_key)));
  return out;
}

Status EngineWriter::begin(Plan plan, std::string build_key) {
  const Status valid = check_plan(plan);
  if (!valid.ok()) return internal_error("cannot write an invalid plan: {}", message(valid));
  plan_ = std::move(plan);
  // A plan read from a file has old checksums.
  for (PlanWeight& weight : plan_.weights)
    for (Plane& plane : weight.planes) plane.checksum = 0;
  build_key_ = std::move(build_key);
  measure_header();
  buffer_.reserve(kChecksumPiece);
  return ok();
}

EngineWriter::EngineWriter(EngineWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      fd_(std::exchange(other.fd_, -1)),
      plan_(std::move(other.plan_)),
      build_key_(std::move(other.build_key_)),
      checkpoint_(std::move(other.checkpoint_)),
      rank_checksum_(std::move(other.rank_checksum_)),
      rank_(other.rank_),
      blob_offset_(other.blob_offset_),
      header_bytes_(other.header_bytes_),
      weight_(other.weight_),
      plane_(other.plane_),
      written_(other.written_),
      buffer_(std::move(other.buffer_)) {}

EngineWriter::~EngineWriter() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

std::string EngineWriter::header_text() const {
  json::object header;
  header["nereid_version"] = NEREID_VERSION;
  header["build_key"] = build_key_;
  if (!checkpoint_.empty()) header["checkpoint"] = checkpoint_;
  if (!rank_checksum_.empty()) {
    header["rank"] = rank_;
    header["rank_checksum"] = rank_checksum_;
  }
  header["plan"] = plan_to_json(plan_);
  return json::serialize(header);
}

// Checksums have a fixed width, so the header's size is known in advance.
void EngineWriter::measure_header() {
  header_bytes_ = header_text().size();
  blob_offset_ = round_up(sizeof(EnginePrefix) + header_bytes_, kBlobAlignment);
}

Status EngineWriter::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return unavailable("{}: {}", temporary_.empty() ? path_.string() : temporary_,
                         std::strerror(n < 0 ? errno : EIO));
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return ok();
}

Status EngineWriter::flush() {
  std::vector<Plane>& planes = plan_.weights[weight_].planes;
  Plane& plane = planes[plane_];
  plane.checksum = hash64(buffer_.data(), buffer_.size(), plane.checksum);
  RETURN_IF_ERROR(write_at(blob_offset_ + plane.offset + written_, buffer_));
  written_ += buffer_.size();
  buffer_.clear();
  if (written_ < plane.shape.bytes) return ok();
  written_ = 0;
  if (++plane_ == planes.size()) ++weight_, plane_ = 0;
  return ok();
}

Status EngineWriter::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (weight_ >= plan_.weights.size())
      return internal_error("{}: more weights than the plan has", path_.string());
    const Plane& plane = plan_.weights[weight_].planes[plane_];
    const uint64_t missing = plane.shape.bytes - written_ - buffer_.size();
    if (bytes.size() > missing)
      return internal_error("{}: weight '{}' is larger than planned", path_.string(),
                            plan_.weights[weight_].name);
    const size_t n = std::min(bytes.size(), kChecksumPiece - buffer_.size());
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n));
    bytes = bytes.subspan(n);
    if (buffer_.size() == kChecksumPiece || n == missing) RETURN_IF_ERROR(flush());
  }
  return ok();
}

Status EngineWriter::finish() {
  if (weight_ != plan_.weights.size())
    return internal_error("{}: weight '{}' is incomplete", path_.string(),
                          plan_.weights[weight_].name);
  return write_header(plan_.blob_bytes);
}

Status EngineWriter::write_plan(const std::filesystem::path& path, Plan plan, std::string build_key,
                                std::string checkpoint) {
  ASSIGN_OR_RETURN(EngineWriter out, create(path, std::move(plan), std::move(build_key)));
  out.checkpoint_ = std::move(checkpoint);
  out.measure_header();
  if (::ftruncate(out.fd_, static_cast<off_t>(out.blob_offset_)) != 0)
    return unavailable("{}: {}", out.temporary_, std::strerror(errno));
  return out.write_header(0);
}

Status EngineWriter::write_rank(const std::filesystem::path& path, Plan plan, std::string build_key,
                                int32_t rank, std::span<const std::byte> tensors) {
  ASSIGN_OR_RETURN(EngineWriter out, create(path, std::move(plan), std::move(build_key)));
  out.rank_ = rank;
  out.rank_checksum_ = hex64(weight_checksum(tensors.data(), tensors.size()));
  out.measure_header();
  RETURN_IF_ERROR(out.write_at(out.blob_offset_, tensors));
  return out.write_header(tensors.size());
}

Status EngineWriter::write_header(uint64_t blob_bytes) {
  const std::string header = header_text();
  if (header.size() != header_bytes_) return internal_error("{}: header grew", path_.string());
  EnginePrefix prefix;
  std::memcpy(prefix.magic, kEngineMagic, sizeof kEngineMagic);
  prefix.format_version = kEngineFormatVersion;
  prefix.header_bytes = header.size();
  prefix.header_checksum = hash64(header);
  prefix.blob_offset = blob_offset_;
  prefix.blob_bytes = blob_bytes;
  prefix.checksum = prefix.compute_checksum();
  RETURN_IF_ERROR(write_at(0, std::as_bytes(std::span(&prefix, 1))));
  RETURN_IF_ERROR(write_at(sizeof prefix, std::as_bytes(std::span(header))));
  if (temporary_.empty()) {  // in memory: the descriptor is the file
    fd_ = -1;
    return ok();
  }
  RETURN_IF_ERROR(rename_durably(temporary_, path_));
  temporary_.clear();
  return ok();
}

bool close_memory_engine(const std::filesystem::path& path) {
  std::error_code error;
  const std::string target = std::filesystem::read_symlink(path, error).string();
  if (error || !target.starts_with(fmt::format("/memfd:{}", kMemoryEngine))) return false;
  return ::close(std::atoi(path.filename().c_str())) == 0;
}

}  // namespace nereid::io
