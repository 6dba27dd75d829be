// Engine file: a plan and its packed weights, memory-mapped, versioned, checksummed. Layout (little
// endian): 64-byte prefix {magic, format version, header length and checksum, blob offset and
// length, prefix checksum}; JSON header (nereid version, build key, plan); zero padding to 4096
// bytes; weight blob. The nereid version is informative. A file without weights has no blob; its
// header names the checkpoint directory. A rank's file has the whole model's plan and, in place of
// the blob, a safetensors image of the rank's tensors, with rank and checksum in the header; the
// loader merges the ranks.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "base/mapped_file.h"
#include "base/status.h"
#include "io/plan.h"

namespace nereid::io {

// Format version, independent of the program's: engines stay valid across releases until it grows.
// It grows when the file layout, the packing of weights or the meaning of a field changes, or a
// field is removed. Fields may be added: files without them have the default (plan_json.cc:
// maybe()); a reader refuses files with unknown fields, which may change the meaning of calls.
inline constexpr uint32_t kEngineFormatVersion = 14;

// Amount of weights read at opening. Prefix, header (with the plan and each weight's checksum) and
// file size are always verified.
enum class Verify {
  kPlan,    // none; the file may have no weights
  kHeader,  // none
  kAuto,    // all if the blob is at most kAutoVerifyBytes, else none
  kFull,    // all
};
inline constexpr uint64_t kAutoVerifyBytes = uint64_t{1} << 30;

// Contents of a file; `blob` points into the parsed bytes.
struct EngineContents {
  Plan plan;
  std::string writer;      // nereid version of the writer; informative
  std::string build_key;   // cache key
  std::string checkpoint;  // not empty: the weights are in this directory
  std::span<const std::byte> blob;
  std::span<const std::byte> rank_tensors;  // in place of `blob`
  uint64_t rank_checksum = 0;               // weight_checksum() of rank_tensors
  int32_t rank = 0;                         // from 0
};

// Reads a rank's tensors. DataLoss: their checksum differs.
Status verify_rank_tensors(const EngineContents& engine);

// Parses a file's bytes without reading weights. DataLoss with the part.
StatusOr<EngineContents> parse_engine(std::span<const std::byte> file);

// An open engine file, read-only. Spans stay valid when it is moved.
class EngineFile {
 public:
  // NotFound/Unavailable: unreadable. DataLoss with file and part: not an engine file, another
  // format version, truncated, or a checksum differs. InvalidArgument: the file has no weights, or
  // one rank's, and `verify` is not kPlan.
  static StatusOr<EngineFile> open(const std::filesystem::path& path,
                                   Verify verify = Verify::kAuto);

  const Plan& plan() const { return engine_.plan; }
  const std::string& writer() const { return engine_.writer; }
  const std::string& build_key() const { return engine_.build_key; }
  // Directory of the weights if the file has none, or one rank's; else empty. See Verify::kPlan.
  const std::string& checkpoint() const { return engine_.checkpoint; }
  bool is_of_rank() const { return !engine_.rank_tensors.empty(); }
  int32_t rank() const { return engine_.rank; }
  const std::filesystem::path& path() const { return path_; }

  // The file was truncated and missing bytes were used: later results are invalid.
  bool is_lost() const { return file_.is_lost(); }

  // All weights, page aligned; empty: none. Valid as long as this object or its move target.
  std::span<const std::byte> blob() const { return engine_.blob; }
  kernels::WeightView weight(WeightId id) const {
    return view_of(engine_.plan.weights[static_cast<size_t>(id)], engine_.blob.data());
  }
  std::span<const std::byte> bytes(const Plane& plane) const {
    return engine_.blob.subspan(plane.offset, plane.shape.bytes);
  }

  // Reads all weights and verifies their checksums on `num_threads` threads (0 = all; a rank's
  // file: one). DataLoss with file and weight.
  Status verify_weights(int num_threads = 0) const;

 private:
  std::filesystem::path path_;
  MappedFile file_;
  EngineContents engine_;
};

}  // namespace nereid::io
