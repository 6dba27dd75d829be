// The engine file: a plan and its packed weights, memory-mapped, versioned and checksummed. Layout
// (little endian): 64-byte prefix {magic, format version, header length and checksum, blob offset
// and length, prefix checksum}, JSON header (nereid version, build key, plan), zero padding to 4096
// bytes, weight blob. The version of nereid says who wrote it and is not compared. A file without
// weights has no blob; its header names the checkpoint directory that they come from. A rank's file
// has a plan of the whole model and, instead of the blob, a safetensors image of the rank's
// tensors; the header has its rank and their checksum. Whoever loads it merges the ranks.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "base/mapped_file.h"
#include "base/status.h"
#include "io/plan.h"

namespace nereid::io {

// The version of the format, apart from that of the program: an engine outlives releases until this
// grows. It grows when the layout of the file, the packing of weights or the meaning of a field
// changes, or a field goes. A field may be added without that: files without it have the value that
// it stands for by default (plan_json.cc: maybe()), and a reader that does not know a field refuses
// the file, because the field may change what a call does.
inline constexpr uint32_t kEngineFormatVersion = 13;

// How much of the weights is read when a file is opened. The prefix and the header (which holds the
// plan and each weight's checksum) are always verified, as is the file's size.
enum class Verify {
  kPlan,    // nothing more, and the file may be one without weights
  kHeader,  // nothing more
  kAuto,    // all weights when the blob is at most kAutoVerifyBytes, else nothing more
  kFull,    // all weights
};
inline constexpr uint64_t kAutoVerifyBytes = uint64_t{1} << 30;

// What a file holds; `blob` points into the parsed bytes.
struct Engine {
  Plan plan;
  std::string writer;      // the version of nereid that wrote it; for people
  std::string build_key;   // the cache key it was built for
  std::string checkpoint;  // not empty: there are no weights, they come from this directory
  std::span<const std::byte> blob;
  std::span<const std::byte> rank_tensors;  // instead of `blob`
  uint64_t rank_checksum = 0;               // weight_checksum() of them
  int32_t rank = 0;                         // from 0
};

// DataLoss when the tensors of a rank's file are not those that were written; reads them all.
Status verify_rank_tensors(const Engine& engine);

// Parses a whole file's bytes without reading the weights. DataLoss naming the part.
StatusOr<Engine> parse_engine(std::span<const std::byte> file);

// A read-only open engine file. Moving it keeps spans valid.
class EngineFile {
 public:
  // NotFound/Unavailable: cannot be read. DataLoss: not an engine file, another format, truncated,
  // or a checksum differs; the message names the file and the part.
  // InvalidArgument: the file has no weights (of all ranks) and `verify` is not kPlan.
  static StatusOr<EngineFile> open(const std::filesystem::path& path,
                                   Verify verify = Verify::kAuto);

  const Plan& plan() const { return engine_.plan; }
  const std::string& writer() const { return engine_.writer; }
  const std::string& build_key() const { return engine_.build_key; }
  // Where the weights come from when the file has none, or those of one rank; else empty. See
  // Verify::kPlan.
  const std::string& checkpoint() const { return engine_.checkpoint; }
  bool is_of_rank() const { return !engine_.rank_tensors.empty(); }
  int32_t rank() const { return engine_.rank; }
  const std::filesystem::path& path() const { return path_; }

  // The file became smaller and what has gone was used: results since then are worthless.
  bool is_lost() const { return file_.is_lost(); }

  // All weights; page aligned, empty when the file has none. Valid while this object (or the one it
  // is moved to) lives.
  std::span<const std::byte> blob() const { return engine_.blob; }
  kernels::WeightView weight(WeightId id) const {
    return view_of(engine_.plan.weights[static_cast<size_t>(id)], engine_.blob.data());
  }
  std::span<const std::byte> bytes(const Plane& plane) const {
    return engine_.blob.subspan(plane.offset, plane.shape.bytes);
  }

  // Reads all weights and compares their checksums, on `num_threads` threads (0 = all; those of one
  // rank on one). DataLoss naming the file and a damaged weight.
  Status verify_weights(int num_threads = 0) const;

 private:
  std::filesystem::path path_;
  MappedFile file_;
  Engine engine_;
};

}  // namespace nereid::io
