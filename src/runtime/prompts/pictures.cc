// Digests are SHA-256, because equal digests are taken for equal pictures.
#include "runtime/prompts/pictures.h"

#include <openssl/evp.h>
#include <openssl/sha.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include "base/blended_plane.h"
#include "base/check.h"
#include "kernels/api/op.h"

namespace nereid::runtime {
namespace {

int64_t num_patches(const Picture& p) { return int64_t{p.frames} * p.height * p.width; }

// Rows and columns of features of the plane of tiles, cut ones included.
PlaneSize plane_of(const Picture& p, const io::PictureFacts& facts) {
  return {int64_t{p.tile_rows} * (p.height / facts.merge),
          int64_t{p.tile_columns} * (p.width / facts.merge)};
}

// Rows and columns of the plane that are not cut.
PlaneSize uncut_plane(const Picture& p, const io::PictureFacts& facts) {
  const PlaneSize plane = plane_of(p, facts);
  return {plane.rows - 2 * int64_t{p.cut_rows}, plane.columns - 2 * int64_t{p.cut_columns}};
}

// Frames that are no tiles: the whole picture, or without tiles all of a video.
int32_t num_whole_frames(const Picture& p) { return p.tile_rows == 0 ? p.frames : 1; }

// Rows and columns of tokens of these; a video's are half as many.
PlaneSize shown_frame(const Picture& p, const io::PictureFacts& facts) {
  const int32_t height = p.height / facts.merge, width = p.width / facts.merge;
  if (num_whole_frames(p) == 1) return {height, width};
  return {(height + 1) / 2, (width + 1) / 2};
}

// Rows and columns of tokens of the plane; without tiles the end of a row alone.
PlaneSize shown_plane(const Picture& p, const io::PictureFacts& facts) {
  if (p.tile_rows == 0) return {1, 0};
  return blended_size(uncut_plane(p, facts), p.height / facts.merge, facts.blended_tiles);
}

// Tokens that stand for a picture, breaks of rows included.
int64_t num_tokens(const Picture& p, const io::PictureFacts& facts) {
  if (facts.in_cross) return 1;
  if (facts.tiles_in_plane) {
    const PlaneSize frame = shown_frame(p, facts), plane = shown_plane(p, facts);
    return num_whole_frames(p) * frame.rows * frame.columns + plane.rows * (plane.columns + 1);
  }
  const int64_t row = p.width / facts.merge + (facts.row_breaks ? 1 : 0);
  return int64_t{p.frames} * (p.height / facts.merge) * row;
}

// Positions that a picture takes.
int32_t positions_of(const Picture& p, const io::PictureFacts& facts) {
  return std::max(
      {(p.frames - 1) * facts.frame_positions + 1, p.height / facts.merge, p.width / facts.merge});
}

// See PromptPositions::offset.
int64_t prompt_offset(std::span<const Picture> pictures, const io::PictureFacts& facts) {
  int64_t offset = 0;
  for (const Picture& p : pictures) offset += positions_of(p, facts) - int64_t{p.num_tokens};
  return offset;
}

// A picture that is all tiles.
Status check_arrangement(const Picture& p) {
  if (p.tile_rows < 1 || p.tile_columns < 1 || p.tile_rows > p.frames ||
      p.frames != int64_t{p.tile_rows} * p.tile_columns)
    return invalid_argument("tile_rows, tile_columns: {} x {} tiles of {} frames", p.tile_rows,
                            p.tile_columns, p.frames);
  if (p.cut_rows == 0 && p.cut_columns == 0) return ok();
  return invalid_argument("cut_rows, cut_columns: {}, {}; the model's pictures have 0", p.cut_rows,
                          p.cut_columns);
}

Status check_tiles(const Picture& p, const io::PictureFacts& facts) {
  if (facts.in_cross) return check_arrangement(p);
  if (!facts.tiles_in_plane) {
    if (p.tile_rows == 0 && p.tile_columns == 0 && p.cut_rows == 0 && p.cut_columns == 0)
      return ok();
    return invalid_argument(
        "tile_rows, tile_columns, cut_rows, cut_columns: {}, {}, {}, {}; the "
        "model's pictures have 0",
        p.tile_rows, p.tile_columns, p.cut_rows, p.cut_columns);
  }
  const int32_t most = facts.max_frames - 1;
  const bool has_none =
      p.tile_rows == 0 && p.tile_columns == 0 && p.cut_rows == 0 && p.cut_columns == 0;
  if (facts.blended_tiles > 0 && has_none) return ok();
  if (p.tile_rows < 1 || p.tile_columns < 1 || p.tile_rows > most || p.tile_columns > most ||
      p.frames - 1 != int64_t{p.tile_rows} * p.tile_columns)
    return invalid_argument("tile_rows, tile_columns: {} x {} tiles; {} frames have {}",
                            p.tile_rows, p.tile_columns, p.frames, p.frames - 1);
  const PlaneSize plane = plane_of(p, facts);
  if (p.cut_rows < 0 || p.cut_columns < 0 || p.cut_rows > plane.rows / 2 ||
      p.cut_columns > plane.columns / 2)
    return invalid_argument("cut_rows, cut_columns: {}, {}; allowed are [0, {}] and [0, {}]",
                            p.cut_rows, p.cut_columns, plane.rows / 2, plane.columns / 2);
  return ok();
}

Status check_grid(const Picture& p, const PictureRules& rules) {
  const io::PictureFacts& facts = rules.facts;
  if (p.frames < 1 || p.frames > facts.max_frames)
    return invalid_argument("frames: {} is not in [1, {}]", p.frames, facts.max_frames);
  const int32_t most = rules.max_patches;
  if (p.height < 1 || p.width < 1 || p.height > most || p.width > most ||
      p.height % facts.merge != 0 || p.width % facts.merge != 0)
    return invalid_argument(
        "height, width: {} x {} patches; allowed are multiples of {} in [1, {}]", p.height, p.width,
        facts.merge, most);
  if (facts.grid > 0 && (p.height != facts.grid || p.width != facts.grid))
    return invalid_argument("height, width: {} x {} patches; the model takes {} x {}", p.height,
                            p.width, facts.grid, facts.grid);
  if (num_patches(p) > most)
    return invalid_argument("{} frames of {} x {} patches; at most {} patches are allowed",
                            p.frames, p.height, p.width, most);
  return check_tiles(p, facts);
}

Status check_picture(const Picture& p, const PictureRules& rules, int64_t begin, int64_t end) {
  RETURN_IF_ERROR(check_grid(p, rules));
  const int64_t tokens = num_tokens(p, rules.facts);
  if (p.num_tokens != tokens)
    return invalid_argument("num_tokens: {}; {} frames of {} x {} patches make {}", p.num_tokens,
                            p.frames, p.height, p.width, tokens);
  if (p.first_token < begin || p.first_token > end - tokens)
    return invalid_argument("first_token: {}; {} tokens from there on are not in [{}, {})",
                            p.first_token, tokens, begin, end);
  const int64_t numbers = num_patches(p) * rules.facts.patch_width;
  if (std::ssize(p.patches) != numbers)
    return invalid_argument("patches: {} numbers; {} patches of {} have {}", p.patches.size(),
                            num_patches(p), rules.facts.patch_width, numbers);
  constexpr uint16_t kExponent = 0x7f80;
  const auto bad = std::ranges::find_if(
      p.patches, [](uint16_t bits) { return (bits & kExponent) == kExponent; });
  if (bad != p.patches.end())
    return invalid_argument("patches: number {} is not finite", bad - p.patches.begin());
  return ok();
}

struct Place {
  int32_t y = 0, x = 0;
};

// A frame's patches in the encoder's order: window by window, inside block by block.
struct PlaneOrder {
  std::vector<Place> patches;
  std::vector<int32_t> windows;  // patches of each
};

PlaneOrder plane_order(const Picture& p, const io::PictureFacts& facts) {
  PlaneOrder out;
  const int32_t merge = facts.merge;
  const int32_t side = facts.window > 0 ? facts.window : std::max(p.height, p.width);
  for (int32_t top = 0; top < p.height; top += side)
    for (int32_t left = 0; left < p.width; left += side) {
      const size_t before = out.patches.size();
      for (int32_t y = top; y < std::min(top + side, p.height); y += merge)
        for (int32_t x = left; x < std::min(left + side, p.width); x += merge)
          for (int32_t i = 0; i < merge * merge; ++i)
            out.patches.push_back({y + i / merge, x + i % merge});
      out.windows.push_back(static_cast<int32_t>(out.patches.size() - before));
    }
  return out;
}

// Place of a patch among those of its frame, as the client sends them.
int64_t sent_index(Place at, const Picture& p, const io::PictureFacts& facts) {
  if (facts.in_raster) return int64_t{at.y} * p.width + at.x;
  const int32_t m = facts.merge;
  const int64_t block = int64_t{at.y / m} * (p.width / m) + at.x / m;
  return block * m * m + at.y % m * m + at.x % m;
}

std::string picture_digest(const Picture& p, const std::string& cache_salt) {
  const int64_t sizes[] = {std::ssize(cache_salt), p.frames,   p.height,     p.width, p.tile_rows,
                           p.tile_columns,         p.cut_rows, p.cut_columns};
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> hash(EVP_MD_CTX_new(),
                                                                     EVP_MD_CTX_free);
  std::string key(SHA256_DIGEST_LENGTH, '\0');
  auto* const out = reinterpret_cast<unsigned char*>(key.data());
  NEREID_CHECK(hash && EVP_DigestInit_ex(hash.get(), EVP_sha256(), nullptr) == 1 &&
               EVP_DigestUpdate(hash.get(), sizes, sizeof(sizes)) == 1 &&
               EVP_DigestUpdate(hash.get(), cache_salt.data(), cache_salt.size()) == 1 &&
               EVP_DigestUpdate(hash.get(), p.patches.data(),
                                p.patches.size() * sizeof(p.patches[0])) == 1 &&
               EVP_DigestFinal_ex(hash.get(), out, nullptr) == 1);
  return key;
}

// The encoder's rows of each frame: class tokens, then patches.
std::vector<uint16_t> patch_rows(const Picture& p, const PlaneOrder& order,
                                 const io::PictureFacts& facts) {
  const int64_t width = facts.patch_width, frame_patches = int64_t{p.height} * p.width;
  std::vector<uint16_t> rows;
  rows.reserve(static_cast<size_t>(p.frames * (frame_patches + facts.class_tokens) * width));
  for (int64_t frame = 0; frame < p.frames; ++frame) {
    rows.resize(rows.size() + static_cast<size_t>(facts.class_tokens * width));
    for (const Place& at : order.patches) {
      const auto from =
          p.patches.begin() + (frame * frame_patches + sent_index(at, p, facts)) * width;
      rows.insert(rows.end(), from, from + width);
    }
  }
  return rows;
}

void set_windows(const Picture& p, const PlaneOrder& order, const io::PictureFacts& facts,
                 EncoderRows& out) {
  const int32_t block = facts.merge * facts.merge, line = p.width / facts.merge;
  const int32_t frame_tokens = p.height / facts.merge * line;
  out.result_rows.resize(static_cast<size_t>(p.frames * frame_tokens));
  for (int32_t frame = 0; frame < p.frames; ++frame) {
    out.windows.insert(out.windows.end(), order.windows.begin(), order.windows.end());
    for (int32_t i = 0; i < frame_tokens; ++i) {
      const Place& at = order.patches[static_cast<size_t>(i * block)];
      const int32_t token = at.y / facts.merge * line + at.x / facts.merge;
      out.result_rows[static_cast<size_t>(frame * frame_tokens + token)] = frame * frame_tokens + i;
    }
  }
}

// The features that tokens read: those of the whole picture, then the plane of tiles row by row.
std::vector<int32_t> plane_rows(const Picture& p, const io::PictureFacts& facts) {
  const int32_t height = p.height / facts.merge, width = p.width / facts.merge;
  const PlaneSize plane = plane_of(p, facts);
  std::vector<int32_t> out(static_cast<size_t>(height * width));
  std::iota(out.begin(), out.end(), 0);
  for (int64_t y = p.cut_rows; y < plane.rows - p.cut_rows; ++y) {
    for (int64_t x = p.cut_columns; x < plane.columns - p.cut_columns; ++x) {
      const int64_t frame = 1 + y / height * p.tile_columns + x / width;
      out.push_back(static_cast<int32_t>((frame * height + y % height) * width + x % width));
    }
    out.push_back(-1);
  }
  return out;
}

// Two places on a side of `count` places, and the weight of the second: the middle of place `at` of
// `shown` on the same side. As torch's interpolate() without align_corners, in f32.
struct MiddlePlace {
  int64_t first = 0, next = 0;
  float fraction = 0;
};
MiddlePlace middle_place(int64_t at, int64_t shown, int64_t count) {
  const float scale = static_cast<float>(count) / static_cast<float>(shown);
  const float place = std::max((static_cast<float>(at) + 0.5f) * scale - 0.5f, 0.0f);
  const int64_t first = std::min(static_cast<int64_t>(place), count - 1);
  return {first, std::min(first + 1, count - 1), place - static_cast<float>(first)};
}

// Appends tokens for `shown` places on a plane, whose features are `feature_at(row, column)`.
template <class F>
void add_blends(PlaneSize plane, PlaneSize shown, bool ends_rows, F feature_at, EncoderRows& out) {
  for (int64_t row = 0; row < shown.rows; ++row) {
    const MiddlePlace y = middle_place(row, shown.rows, plane.rows);
    for (int64_t column = 0; column < shown.columns; ++column) {
      const MiddlePlace x = middle_place(column, shown.columns, plane.columns);
      out.result_rows.push_back(static_cast<int32_t>(out.blends.size()));
      out.blends.push_back({{feature_at(y.first, x.first), feature_at(y.first, x.next),
                             feature_at(y.next, x.first), feature_at(y.next, x.next)},
                            {(1 - y.fraction) * (1 - x.fraction), (1 - y.fraction) * x.fraction,
                             y.fraction * (1 - x.fraction), y.fraction * x.fraction}});
    }
    if (ends_rows) out.result_rows.push_back(-1);
  }
}

// Blends of a picture: of the whole one, then of its plane of tiles; or of a video's frames.
void set_blends(const Picture& p, const io::PictureFacts& facts, EncoderRows& out) {
  const int32_t size = p.height * p.width;
  for (int32_t frame = 0; frame < num_whole_frames(p); ++frame)
    add_blends(
        {p.height, p.width}, shown_frame(p, facts), /*ends_rows=*/false,
        [&](int64_t y, int64_t x) { return static_cast<int32_t>(frame * size + y * p.width + x); },
        out);
  // Without tiles the end of a row alone.
  add_blends(
      uncut_plane(p, facts), shown_plane(p, facts), /*ends_rows=*/true,
      [&](int64_t y, int64_t x) {
        y += p.cut_rows, x += p.cut_columns;
        const int64_t tile = 1 + y / p.height * p.tile_columns + x / p.width;
        return static_cast<int32_t>(tile * size + y % p.height * p.width + x % p.width);
      },
      out);
  out.num_results = static_cast<int32_t>(out.blends.size());
}

// Number of the arrangement of tiles, from 1 on: by rows, then by columns.
int32_t arrangement_of(const Picture& p, int32_t max_tiles) {
  int32_t number = p.tile_columns;
  for (int32_t rows = 1; rows < p.tile_rows; ++rows) number += max_tiles / rows;
  return number;
}

// The places of all tiles, missing ones behind the picture's, then the padding of each.
void add_tile_rows(const Picture& p, const PlaneOrder& order, const io::PictureFacts& facts,
                   EncoderRows& out) {
  const int32_t tiles = facts.max_frames, places = facts.grid * facts.grid + facts.class_tokens;
  int32_t num_tilings = 1;
  for (int32_t rows = 1; rows <= tiles; ++rows) num_tilings += tiles / rows;
  const int32_t first = arrangement_of(p, tiles) * tiles, none = num_tilings * tiles;
  for (int32_t tile = 0; tile < tiles; ++tile)
    for (int32_t place = 0; place < places; ++place)
      out.components.insert(
          out.components.end(),
          {first + tile, place, place < facts.class_tokens ? none : first + tile});
  for (int32_t tile = 0; tile < tiles; ++tile)
    for (int32_t i = 0; i < facts.frame_padding; ++i)
      out.components.insert(out.components.end(), {first + tile, places, none});
  out.length = tiles * (places + facts.frame_padding);
  out.num_results = p.frames * places;
  out.num_padding = out.length - out.num_results;
  out.rows = patch_rows(p, order, facts);
  out.rows.resize(static_cast<size_t>(out.length) * static_cast<size_t>(facts.patch_width));
}

// A token reads the pictures of the last group of tokens that stand for some, without others
// between. Source: get_cross_attention_token_mask() of transformers.
void set_seen(std::vector<EncoderRows>& inputs) {
  int32_t end = sched::EncoderSpec::kAllTokens;
  for (size_t i = inputs.size(); i-- > 0;) {
    const bool has_next = i + 1 < inputs.size();
    if (has_next && inputs[i + 1].begin > inputs[i].begin + 1) end = inputs[i + 1].begin;
    inputs[i].seen_end = end;
  }
}

EncoderRows input_across(const Picture& p, const PictureRules& rules,
                         const std::string& cache_salt) {
  EncoderRows out;
  out.key = picture_digest(p, cache_salt);
  out.begin = p.first_token;
  out.has_mark = true;
  add_tile_rows(p, plane_order(p, rules.facts), rules.facts, out);
  return out;
}

EncoderRows input_of(const Picture& p, const PictureRules& rules, const std::string& cache_salt) {
  const io::PictureFacts& facts = rules.facts;
  if (facts.in_cross) return input_across(p, rules, cache_salt);
  const PlaneOrder order = plane_order(p, facts);
  EncoderRows out;
  out.key = picture_digest(p, cache_salt);
  out.length = static_cast<int32_t>(num_patches(p)) + p.frames * facts.class_tokens;
  out.num_parts = p.frames;
  out.num_results = static_cast<int32_t>(num_patches(p) / (facts.merge * facts.merge));
  if (facts.row_breaks) out.row_tokens = p.width / facts.merge;
  out.begin = p.first_token, out.end = p.first_token + p.num_tokens;
  if (facts.has_components)
    for (int32_t frame = 0; frame < p.frames; ++frame)
      for (const Place& at : order.patches)
        out.components.insert(out.components.end(), {frame, at.y, at.x});
  if (facts.window > 0) set_windows(p, order, facts, out);
  if (facts.blended_tiles > 0)
    set_blends(p, facts, out);
  else if (facts.tiles_in_plane)
    out.result_rows = plane_rows(p, facts);
  out.rows = patch_rows(p, order, facts);
  return out;
}

}  // namespace

Status check_pictures(const Request& request, const PictureRules& rules) {
  if (request.pictures.empty()) return ok();
  if (rules.facts.patch_width == 0)
    return invalid_argument("pictures: {} of them; the model takes none", request.pictures.size());
  if (rules.facts.in_cross && request.pictures.size() > kMaxAcross)
    return invalid_argument("pictures: {} of them; at most {} are allowed", request.pictures.size(),
                            kMaxAcross);
  int64_t begin = 0;
  size_t bytes = 0;
  for (size_t i = 0; i < request.pictures.size(); ++i) {
    const Picture& picture = request.pictures[i];
    const Status status = check_picture(picture, rules, begin, std::ssize(request.input_token_ids));
    if (!status.ok()) return annotate(status, fmt::format("pictures[{}]", i));
    begin = int64_t{picture.first_token} + picture.num_tokens;
    bytes += picture.patches.size() * sizeof(picture.patches[0]);
  }
  if (rules.has_components) {
    const auto end = std::ssize(request.input_token_ids);
    const int64_t offset = prompt_offset(request.pictures, rules.facts);
    if (end + request.max_tokens + offset > rules.max_positions)
      return invalid_argument("pictures: positions up to {}; at most {} are allowed",
                              end + request.max_tokens + offset, rules.max_positions);
  }
  if (bytes > kMaxPictureBytes)
    return invalid_argument("pictures: {} bytes of patches; at most {} are allowed", bytes,
                            kMaxPictureBytes);
  return ok();
}

std::vector<EncoderRows> picture_inputs(std::vector<Picture> pictures, const PictureRules& rules,
                                        const std::string& cache_salt) {
  std::vector<EncoderRows> inputs;
  inputs.reserve(pictures.size());
  for (Picture& picture : pictures) {
    inputs.push_back(input_of(picture, rules, cache_salt));
    picture.patches = {};
  }
  if (rules.facts.in_cross) set_seen(inputs);
  return inputs;
}

void add_picture_keys(std::span<const EncoderRows> inputs, size_t num_tokens,
                      std::vector<sched::InputKey>& keys) {
  if (inputs.empty()) return;
  keys.resize(num_tokens);
  for (const EncoderRows& input : inputs) {
    sched::InputKey key;
    static_assert(sizeof(key) <= SHA256_DIGEST_LENGTH);
    std::memcpy(&key, input.key.data(), sizeof(key));
    const int32_t end = input.has_mark ? input.begin + 1 : input.end;
    for (int32_t at = input.begin; at < end; ++at, ++key.low) keys[static_cast<size_t>(at)] = key;
  }
}

void add_prompt_keys(std::span<const TokenId> tokens, std::vector<sched::InputKey>& keys) {
  keys.resize(tokens.size());
  std::vector<unsigned char> digest(SHA256_DIGEST_LENGTH);
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> hash(EVP_MD_CTX_new(),
                                                                     EVP_MD_CTX_free);
  NEREID_CHECK(hash && EVP_DigestInit_ex(hash.get(), EVP_sha256(), nullptr) == 1 &&
               EVP_DigestUpdate(hash.get(), tokens.data(), tokens.size_bytes()) == 1 &&
               EVP_DigestUpdate(hash.get(), keys.data(), keys.size() * sizeof(keys[0])) == 1 &&
               EVP_DigestFinal_ex(hash.get(), digest.data(), nullptr) == 1);
  sched::InputKey key;
  std::memcpy(&key, digest.data(), sizeof(key));
  std::ranges::fill(keys, key);
}

std::vector<sched::WholeSpan> whole_spans(const Request& request, const io::PictureFacts& facts) {
  std::vector<sched::WholeSpan> spans;
  if (facts.whole_prompts) return {{0, static_cast<int32_t>(request.input_token_ids.size())}};
  if (facts.whole_pictures)
    for (const Picture& p : request.pictures)
      spans.push_back({p.first_token, p.first_token + p.num_tokens});
  return spans;
}

PromptPositions prompt_positions(std::span<const Picture> pictures, size_t num_tokens,
                                 const io::PictureFacts& facts) {
  const int32_t merge = facts.merge, step = facts.frame_positions;
  PromptPositions out;
  std::vector<int32_t>& all = out.components;
  all.reserve(num_tokens * kernels::kPositionComponents);
  int32_t next = 0;  // position behind the largest component
  const auto add_text = [&](int32_t end) {
    while (std::ssize(all) < int64_t{end} * kernels::kPositionComponents) {
      all.insert(all.end(), {next, next, next});
      ++next;
    }
  };
  for (const Picture& p : pictures) {
    add_text(p.first_token);
    const int32_t height = p.height / merge, width = p.width / merge;
    for (int32_t frame = 0; frame < p.frames; ++frame)
      for (int32_t y = 0; y < height; ++y)
        for (int32_t x = 0; x < width; ++x)
          all.insert(all.end(), {next + frame * step, next + y, next + x});
    next += positions_of(p, facts);
  }
  add_text(static_cast<int32_t>(num_tokens));
  out.offset = next - static_cast<int32_t>(num_tokens);
  return out;
}

}  // namespace nereid::runtime
