// zlib streams; see compression.h.
#include "front/http/compression.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>

#include "base/check.h"

namespace nereid::front {
namespace {

constexpr size_t kChunk = size_t{64} << 10;
constexpr int kAnyHeader = 32;   // zlib: gzip or zlib, detected in the data
constexpr int kGzipHeader = 16;  // zlib: write gzip

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Inflates `data` piece by piece: `take` gets each piece and returns the buffer for the next one,
// nullptr to stop. At most `room` bytes at a time. False: invalid gzip or zlib data.
template <class Take>
StatusOr<bool> inflate_all(std::string_view data, char* to, size_t room, Take take) {
  z_stream stream = {};
  if (inflateInit2(&stream, MAX_WBITS + kAnyHeader) != Z_OK)
    return resource_exhausted("no memory to decompress the request");
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data.data()));
  stream.avail_in = static_cast<uInt>(data.size());
  int result = Z_OK;
  while (result == Z_OK && to != nullptr) {
    stream.next_out = reinterpret_cast<Bytef*>(to);
    stream.avail_out = static_cast<uInt>(room);
    result = inflate(&stream, Z_NO_FLUSH);
    to = take(to, room - stream.avail_out);
  }
  inflateEnd(&stream);
  return result == Z_STREAM_END || (result == Z_OK && to == nullptr);
}

}  // namespace

Encoding preferred_encoding(std::string_view accept) {
  Encoding best = Encoding::kIdentity;
  double best_weight = 0;
  while (!accept.empty()) {
    const size_t end = std::min(accept.find(','), accept.size());
    std::string_view item = trim(accept.substr(0, end));
    accept.remove_prefix(std::min(end + 1, accept.size()));
    double weight = 1;
    if (const size_t semicolon = item.find(';'); semicolon != std::string_view::npos) {
      const std::string_view q = trim(item.substr(semicolon + 1));
      if (q.starts_with("q=")) weight = std::strtod(std::string(q.substr(2)).c_str(), nullptr);
      item = trim(item.substr(0, semicolon));
    }
    Encoding encoding = Encoding::kIdentity;
    if (item == "gzip") {
      encoding = Encoding::kGzip;
    } else if (item == "deflate") {
      encoding = Encoding::kDeflate;
    } else if (item != "identity") {
      continue;
    }
    if (weight <= best_weight) continue;
    best = encoding;
    best_weight = weight;
  }
  return best;
}

StatusOr<std::string> decompress(std::string_view data, Encoding encoding, size_t max_bytes,
                                 BudgetShare& share) {
  if (encoding == Encoding::kIdentity) {
    RETURN_IF_ERROR(share.reserve(data.size()));
    return std::string(data);
  }
  // A first pass finds the size, so that the text is allocated once: a growing string would take
  // twice the memory while it moves.
  std::array<char, kChunk> chunk;
  size_t size = 0;
  const auto count = [&](char* to, size_t num_bytes) {
    size += num_bytes;
    return size > max_bytes ? nullptr : to;
  };
  ASSIGN_OR_RETURN(const bool is_valid, inflate_all(data, chunk.data(), chunk.size(), count));
  if (size > max_bytes)
    return resource_exhausted("the decompressed data has more than {} bytes", max_bytes);
  if (!is_valid) return invalid_argument("the request body is not valid gzip or zlib");
  RETURN_IF_ERROR(share.reserve(size));
  std::string out;
  out.reserve(size);
  const auto append = [&](char* to, size_t num_bytes) {
    out.append(to, num_bytes);
    return to;
  };
  RETURN_IF_ERROR(inflate_all(data, chunk.data(), chunk.size(), append).status());
  share.set(out.size());
  return out;
}

struct Compressor::State {
  z_stream stream = {};
};

Compressor::Compressor(Encoding encoding, int level) {
  if (encoding == Encoding::kIdentity) return;
  state_ = std::make_unique<State>();
  const int window = MAX_WBITS + (encoding == Encoding::kGzip ? kGzipHeader : 0);
  const int made = deflateInit2(&state_->stream, level, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY);
  if (made != Z_OK) throw std::bad_alloc();
}

Compressor::~Compressor() {
  if (state_ != nullptr) deflateEnd(&state_->stream);
}

std::string Compressor::add(std::string_view part, bool is_last) {
  if (state_ == nullptr) return std::string(part);
  z_stream& stream = state_->stream;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(part.data()));
  stream.avail_in = static_cast<uInt>(part.size());
  std::string out;
  do {
    const size_t begin = out.size();
    out.resize(begin + kChunk);
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + begin);
    stream.avail_out = kChunk;
    const int result = deflate(&stream, is_last ? Z_FINISH : Z_NO_FLUSH);
    NEREID_CHECK(result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR);
    out.erase(out.size() - stream.avail_out);
  } while (stream.avail_out == 0);
  return out;
}

std::string compress(std::string_view data, Encoding encoding, int level) {
  return Compressor(encoding, level).add(data, true);
}

}  // namespace nereid::front
