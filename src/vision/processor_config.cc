// Reads preprocessor_config.json; see processor.h. Defaults are those of transformers' processors.
#include <algorithm>
#include <cmath>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/blended_plane.h"
#include "base/json_members.h"
#include "vision/processor.h"

namespace nereid::vision {
namespace {

constexpr int32_t kMostSide = 8192;
constexpr std::array<double, 3> kClipMean = {0.48145466, 0.4578275, 0.40821073};

struct KnownProcessor {
  std::string_view name;
  ProcessorKind kind;
  bool resizes_to_edge;  // without "size": by the shortest edge
};

// Names with "Fast" behind them are the same.
constexpr KnownProcessor kKnown[] = {
    {"CLIPImageProcessor", ProcessorKind::kPlain, true},
    {"CLIPFeatureExtractor", ProcessorKind::kPlain, true},
    {"SiglipImageProcessor", ProcessorKind::kPlain, false},
    {"ViTImageProcessor", ProcessorKind::kPlain, false},
    {"Gemma3ImageProcessor", ProcessorKind::kPlain, false},
    {"Qwen2VLImageProcessor", ProcessorKind::kQwen2Vl, false},
    {"PixtralImageProcessor", ProcessorKind::kPixtral, false},
    {"GotOcr2ImageProcessor", ProcessorKind::kTiles, false},
    {"Idefics3ImageProcessor", ProcessorKind::kIdefics3, false},
    {"SmolVLMImageProcessor", ProcessorKind::kIdefics3, false},
    {"LlavaNextImageProcessor", ProcessorKind::kAnyResolution, true},
    {"LlavaOnevisionImageProcessor", ProcessorKind::kOneVision, false},
    {"MllamaImageProcessor", ProcessorKind::kCanvas, false},
};

// Members of the file's object; keeps the first fault.
class Reader {
 public:
  explicit Reader(const json::object& object) : object_(object) {}

  bool flag(std::string_view name, bool otherwise) {
    const json::value& value = member_or_null(object_, name);
    if (value.is_null()) return otherwise;
    if (!value.is_bool()) fail(name, "is not true or false");
    return value.is_bool() && value.get_bool();
  }
  int64_t integer(const json::object& from, std::string_view name, int64_t otherwise, int64_t min,
                  int64_t max) {
    const json::value& value = member_or_null(from, name);
    if (value.is_null()) return otherwise;
    if (value.is_int64() && value.get_int64() >= min && value.get_int64() <= max)
      return value.get_int64();
    fail(name, fmt::format("is not an integer in [{}, {}]", min, max));
    return otherwise;
  }
  int64_t integer(std::string_view name, int64_t otherwise, int64_t min, int64_t max) {
    return integer(object_, name, otherwise, min, max);
  }
  double number(std::string_view name, double otherwise) {
    const json::value& value = member_or_null(object_, name);
    if (value.is_null()) return otherwise;
    if (!value.is_number() || !std::isfinite(value.to_number<double>())) {
      fail(name, "is not a finite number");
      return otherwise;
    }
    return value.to_number<double>();
  }
  // One number for each channel, or one for all.
  std::array<double, 3> channels(std::string_view name, std::array<double, 3> otherwise) {
    const json::value& value = member_or_null(object_, name);
    if (value.is_null()) return otherwise;
    std::array<double, 3> out = otherwise;
    const json::array* const list = value.if_array();
    if (!value.is_number() && (!list || list->size() != 3)) {
      fail(name, "is not a list of 3 numbers");
      return otherwise;
    }
    for (size_t c = 0; c < 3; ++c) {
      const json::value& number = list ? (*list)[c] : value;
      if (number.is_number())
        out[c] = number.to_number<double>();
      else
        fail(name, "is not a list of 3 numbers");
    }
    return out;
  }
  // Width and height of an object, or one integer for both; {0, 0}: absent, or without these.
  std::pair<int32_t, int32_t> sides(std::string_view name) {
    const json::value& value = member_or_null(object_, name);
    if (!value.is_object()) {
      const auto side = static_cast<int32_t>(integer(name, 0, 1, kMostSide));
      return {side, side};
    }
    const json::object& object = value.get_object();
    return {static_cast<int32_t>(integer(object, "width", 0, 1, kMostSide)),
            static_cast<int32_t>(integer(object, "height", 0, 1, kMostSide))};
  }
  // A list of pairs of integers; absent: empty.
  std::vector<std::array<int32_t, 2>> pairs(std::string_view name, int64_t min, int64_t max) {
    std::vector<std::array<int32_t, 2>> out;
    const json::value& value = member_or_null(object_, name);
    if (value.is_null()) return out;
    const auto is_side = [&](const json::value& side) {
      return side.is_int64() && side.get_int64() >= min && side.get_int64() <= max;
    };
    const auto is_pair = [&](const json::value& item) {
      const json::array* const pair = item.if_array();
      return pair && pair->size() == 2 && is_side((*pair)[0]) && is_side((*pair)[1]);
    };
    const json::array* const list = value.if_array();
    if (!list || list->size() > 1024 || !std::ranges::all_of(*list, is_pair)) {
      fail(name, fmt::format("is not a list of pairs of integers in [{}, {}]", min, max));
      return out;
    }
    for (const json::value& item : *list)
      out.push_back({static_cast<int32_t>(item.get_array()[0].get_int64()),
                     static_cast<int32_t>(item.get_array()[1].get_int64())});
    return out;
  }
  bool has(std::string_view name) const { return !member_or_null(object_, name).is_null(); }
  const json::object& object(std::string_view name) const { return object_member(object_, name); }
  std::string text(std::string_view name) const { return text_member(object_, name); }

  void fail(std::string_view name, std::string_view what) {
    if (status_.ok()) status_ = invalid_argument("'{}' {}", name, what);
  }
  const Status& status() const { return status_; }

 private:
  const json::object& object_;
  Status status_;
};

const KnownProcessor* find_known(std::string_view name) {
  constexpr std::string_view kFast = "Fast";
  if (name.ends_with(kFast)) name.remove_suffix(kFast.size());
  const auto* const found = std::ranges::find(kKnown, name, &KnownProcessor::name);
  return found == std::end(kKnown) ? nullptr : found;
}

// Fills the table of values. As in transformers, the product is rounded to float32 first.
void read_values(Reader& reader, bool is_siglip, ProcessorConfig& out) {
  constexpr std::array<double, 3> kHalf = {0.5, 0.5, 0.5};
  constexpr std::array<double, 3> kClipStd = {0.26862954, 0.26130258, 0.27577711};
  const bool rescales = reader.flag("do_rescale", true);
  const bool normalises = reader.flag("do_normalize", true);
  const double factor = reader.number("rescale_factor", 1.0 / 255);
  const auto mean = reader.channels("image_mean", is_siglip ? kHalf : kClipMean);
  const auto deviation = reader.channels("image_std", is_siglip ? kHalf : kClipStd);
  for (size_t c = 0; c < 3; ++c) {
    if (!(deviation[c] > 0)) reader.fail("image_std", "has a number that is not above 0");
    for (size_t byte = 0; byte < 256; ++byte) {
      const auto exact = static_cast<double>(byte);
      auto value = static_cast<float>(rescales ? exact * factor : exact);
      if (normalises)
        value = (value - static_cast<float>(mean[c])) / static_cast<float>(deviation[c]);
      out.values[c][byte] = value;
    }
  }
}

void read_filter(Reader& reader, ProcessorConfig& out) {
  constexpr int64_t kLast = static_cast<int64_t>(Filter::kHamming);
  const bool is_siglip = out.name.starts_with("Siglip") || out.name.starts_with("Gemma3");
  const bool is_vit = out.name.starts_with("ViT");
  const bool is_idefics = out.kind == ProcessorKind::kIdefics3;
  const bool is_canvas = out.kind == ProcessorKind::kCanvas;
  const auto usual = is_vit || is_canvas || out.name.starts_with("Gemma3") ? Filter::kBilinear
                     : is_idefics                                          ? Filter::kLanczos
                                                                           : Filter::kBicubic;
  out.filter =
      static_cast<Filter>(reader.integer("resample", static_cast<int64_t>(usual), 1, kLast));
  read_values(reader, is_siglip || is_vit || is_idefics || is_canvas, out);
}

void read_plain(Reader& reader, bool by_edge, ProcessorConfig& out) {
  if (reader.flag("do_pan_and_scan", false))
    reader.fail("do_pan_and_scan", "is true: pictures are not cut into crops");
  std::tie(out.width, out.height) = reader.sides("size");
  out.shortest_edge =
      static_cast<int32_t>(reader.integer(reader.object("size"), "shortest_edge", 0, 1, kMostSide));
  const bool is_number = reader.object("size").empty() && out.width > 0;
  if (is_number && by_edge) {
    out.shortest_edge = out.width;
    out.width = out.height = 0;
  }
  if (out.shortest_edge == 0 && (out.width == 0 || out.height == 0)) {
    if (by_edge)
      out.shortest_edge = 224;
    else
      out.width = out.height = 224;
  }
  out.crops = reader.flag("do_center_crop", by_edge);
  if (!out.crops) {
    if (out.shortest_edge > 0) reader.fail("do_center_crop", "is false: sizes would differ");
    return;
  }
  std::tie(out.crop_width, out.crop_height) = reader.sides("crop_size");
  if (out.crop_width == 0) out.crop_width = out.crop_height = 224;
  if (out.crop_height == 0) reader.fail("crop_size", "has no height");
}

void read_qwen(Reader& reader, ProcessorConfig& out) {
  constexpr int64_t kMost = int64_t{1} << 40;
  const json::object& size = reader.object("size");
  out.min_pixels = reader.integer(size, "shortest_edge", 56 * 56, 1, kMost);
  out.max_pixels = reader.integer(size, "longest_edge", 28 * 28 * 1280, 1, kMost);
  out.min_pixels = reader.integer("min_pixels", out.min_pixels, 1, kMost);
  out.max_pixels = reader.integer("max_pixels", out.max_pixels, 1, kMost);
  out.patch = static_cast<int32_t>(reader.integer("patch_size", 14, 1, 256));
  out.temporal = static_cast<int32_t>(reader.integer("temporal_patch_size", 2, 1, 16));
  out.merge = static_cast<int32_t>(reader.integer("merge_size", 2, 1, 16));
}

void read_tiles(Reader& reader, ProcessorConfig& out) {
  std::tie(out.width, out.height) = reader.sides("size");
  if (out.width == 0 || out.height == 0) reader.fail("size", "needs width and height");
  // Default of InternVL's processor; that of GotOcr2 alone is false.
  const bool cuts = reader.flag("crop_to_patches", true);
  out.min_tiles = static_cast<int32_t>(reader.integer("min_patches", 1, 1, 64));
  out.max_tiles = static_cast<int32_t>(reader.integer("max_patches", 12, 1, 64));
  if (!cuts) out.min_tiles = out.max_tiles = 1;
}

void read_idefics3(Reader& reader, ProcessorConfig& out) {
  constexpr int32_t kTile = 364;
  const json::object& tile = reader.object("max_image_size");
  out.width = out.height =
      static_cast<int32_t>(reader.integer(tile, "longest_edge", kTile, 1, kMostSide));
  out.longest_edge = static_cast<int32_t>(
      reader.integer(reader.object("size"), "longest_edge", 4 * kTile, 1, kMostSide));
  if (out.longest_edge > kMaxTilesOnSide * out.width)
    reader.fail("size", fmt::format("has longest_edge {}, more than {} tiles of {}",
                                    out.longest_edge, kMaxTilesOnSide, out.width));
  out.splits = reader.flag("do_image_splitting", true);
  if (!reader.flag("do_pad", true)) reader.fail("do_pad", "is false");
}

void read_canvas(Reader& reader, ProcessorConfig& out) {
  std::tie(out.width, out.height) = reader.sides("size");
  if (out.width == 0 && out.height == 0) out.width = out.height = 224;
  if (out.width != out.height) reader.fail("size", "is no square");
  out.max_tiles = static_cast<int32_t>(reader.integer("max_image_tiles", 4, 1, 32));
  if (!reader.flag("do_resize", true)) reader.fail("do_resize", "is false");
  if (!reader.flag("do_pad", true)) reader.fail("do_pad", "is false");
}

// `side`, `sizes`: without "size" and "image_grid_pinpoints".
void read_any_resolution(Reader& reader, bool by_edge, int32_t side,
                         std::vector<std::array<int32_t, 2>> sizes, ProcessorConfig& out) {
  constexpr std::string_view kSizes = "image_grid_pinpoints";
  constexpr int32_t kMostTiles = 64;
  read_plain(reader, by_edge, out);
  if (out.shortest_edge > 0) out.width = out.height = out.shortest_edge;
  if (!reader.has("size")) out.width = out.height = side;
  if (out.width != out.height || (out.crops && out.crop_width != out.width) ||
      (out.crops && out.crop_height != out.height))
    reader.fail("crop_size", "is not the square of 'size'");
  out.sizes = reader.pairs(kSizes, 1, kMostSide);
  if (out.sizes.empty()) out.sizes = std::move(sizes);
  for (const auto& [height, width] : out.sizes)
    if (height % out.width != 0 || width % out.width != 0 ||
        int64_t{height / out.width} * (width / out.width) > kMostTiles)
      reader.fail(kSizes, fmt::format("has {} x {}; allowed are up to {} squares of {}", height,
                                      width, kMostTiles, out.width));
}

void read_one_vision(Reader& reader, ProcessorConfig& out) {
  constexpr int32_t kSide = 384, kMost = 6;
  std::vector<std::array<int32_t, 2>> sizes;
  for (int32_t rows = 1; rows <= kMost; ++rows)
    for (int32_t columns = 1; columns <= kMost; ++columns)
      sizes.push_back({rows * kSide, columns * kSide});
  read_any_resolution(reader, /*by_edge=*/false, kSide, std::move(sizes), out);
  const auto [width, height] = reader.sides("crop_size");
  if (width > 0 && (width != out.width || height != out.height))
    reader.fail("crop_size", "is not the square of 'size'");
  const auto mean = reader.channels("image_mean", kClipMean);
  for (size_t c = 0; c < 3; ++c)
    out.background[c] = static_cast<uint8_t>(std::clamp(mean[c] * 255, 0.0, 255.0));
}

void read_kind(Reader& reader, const KnownProcessor& known, ProcessorConfig& out) {
  out.resizes = reader.flag("do_resize", true);
  if (!out.resizes &&
      !(known.kind == ProcessorKind::kPlain && reader.flag("do_center_crop", false)))
    reader.fail("do_resize", "is false: pictures of any size do not fit the encoder");
  read_filter(reader, out);
  switch (known.kind) {
    case ProcessorKind::kPlain:
      return read_plain(reader, known.resizes_to_edge, out);
    case ProcessorKind::kQwen2Vl:
      return read_qwen(reader, out);
    case ProcessorKind::kPixtral:
      out.longest_edge = static_cast<int32_t>(
          reader.integer(reader.object("size"), "longest_edge", 1024, 1, kMostSide));
      return;
    case ProcessorKind::kTiles:
      return read_tiles(reader, out);
    case ProcessorKind::kIdefics3:
      return read_idefics3(reader, out);
    case ProcessorKind::kAnyResolution:
      return read_any_resolution(reader, /*by_edge=*/true, 224,
                                 {{336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}},
                                 out);
    case ProcessorKind::kOneVision:
      return read_one_vision(reader, out);
    case ProcessorKind::kCanvas:
      return read_canvas(reader, out);
  }
}

// The side of a patch in a row of the encoder; 0: rows are of no square patch.
int32_t patch_of(const EncoderFacts& encoder, int32_t temporal) {
  const int64_t pixels = encoder.patch_width / (3 * temporal);
  const auto side = static_cast<int64_t>(std::lround(std::sqrt(static_cast<double>(pixels))));
  const bool is_square = side > 0 && 3 * temporal * side * side == encoder.patch_width;
  return is_square ? static_cast<int32_t>(side) : 0;
}

StatusOr<json::object> read_object(const std::filesystem::path& dir) {
  std::error_code ec;
  for (const char* name : {"preprocessor_config.json", "processor_config.json"}) {
    if (!std::filesystem::exists(dir / name, ec)) continue;
    ASSIGN_OR_RETURN(const json::value file, read_json_file(dir / name));
    const json::object& inner = object_member(file, "image_processor");
    const json::object& object = inner.empty() ? object_or_empty(file) : inner;
    if (object.contains("image_processor_type") || object.contains("feature_extractor_type"))
      return object;
  }
  return not_found("{} has no preprocessor_config.json of a picture processor", dir.string());
}

// The model's configuration in a config.json, also of an engine folder.
const json::object& model_config(const json::value& file) {
  const json::object& built = object_member(file, "pretrained_config");
  return built.empty() ? object_or_empty(file) : built;
}

// See ProcessorConfig::blended_tiles; the engine checks the field.
int32_t read_blended_tiles(const std::filesystem::path& dir) {
  const auto file = read_json_file(dir / "config.json");
  const std::string ratio =
      file.ok() ? text_member(model_config(*file), "vision_aspect_ratio") : "";
  return blended_tiles_of(ratio.empty() ? "anyres_max_9" : std::string_view(ratio));
}

// Patches on a side that make one token: stated, or found from the tokens of a square picture.
int64_t merge_of(const json::object& config, const json::object& vision, int64_t patch) {
  if (const int64_t merge = integer_member(vision, "spatial_merge_size"); merge > 0) return merge;
  if (const int64_t merge = integer_member(config, "spatial_merge_size"); merge > 0) return merge;
  if (const int64_t merge = integer_member(config, "scale_factor"); merge > 0) return merge;
  const json::value& ratio = member_or_null(config, "downsample_ratio");
  if (ratio.is_number() && ratio.to_number<double>() > 0)
    return std::lround(1 / ratio.to_number<double>());
  const int64_t tokens = integer_member(config, "mm_tokens_per_image");
  const int64_t side = integer_member(vision, "image_size") / patch;
  if (tokens <= 0 || side <= 0) return 1;
  return std::lround(std::sqrt(static_cast<double>(side * side) / static_cast<double>(tokens)));
}

}  // namespace

StatusOr<EncoderFacts> read_encoder_facts(const std::filesystem::path& dir, int64_t max_patches) {
  ASSIGN_OR_RETURN(const json::value file, read_json_file(dir / "config.json"));
  const json::object& config = model_config(file);
  const json::object& vision = object_member(config, "vision_config");
  const json::value& patch_size = member_or_null(vision, "patch_size");
  const json::array* const sides = patch_size.if_array();
  const json::value& side = sides && !sides->empty() ? sides->front() : patch_size;
  if (!side.is_int64() || side.get_int64() < 1 || side.get_int64() > 256)
    return unsupported("{}: there is no vision_config with a patch_size in [1, 256]",
                       (dir / "config.json").string());
  const int64_t patch = side.get_int64();
  const int64_t frames = std::clamp<int64_t>(integer_member(vision, "temporal_patch_size"), 1, 16);
  return EncoderFacts{3 * frames * patch * patch, merge_of(config, vision, patch), max_patches};
}

StatusOr<ProcessorConfig> read_processor(const std::filesystem::path& dir,
                                         const EncoderFacts& encoder) {
  ASSIGN_OR_RETURN(const json::object object, read_object(dir));
  Reader reader(object);
  ProcessorConfig out;
  out.name = reader.text("image_processor_type");
  if (out.name.empty()) out.name = reader.text("feature_extractor_type");
  const KnownProcessor* const known = find_known(out.name);
  if (known == nullptr)
    return invalid_argument("{}: processor '{}' is not supported", dir.string(), out.name);
  out.kind = known->kind;
  out.merge = static_cast<int32_t>(std::clamp<int64_t>(encoder.merge, 1, 64));
  if (out.kind == ProcessorKind::kOneVision) out.blended_tiles = read_blended_tiles(dir);
  read_kind(reader, *known, out);
  const int32_t patch = patch_of(encoder, out.temporal);
  if (patch == 0 || (out.patch > 0 && out.patch != patch))
    reader.fail("patch_size", fmt::format("{} and temporal_patch_size {} do not fit the model's "
                                          "rows of {} numbers",
                                          out.patch, out.temporal, encoder.patch_width));
  if (out.merge != encoder.merge)
    reader.fail("merge_size", fmt::format("{} is not the model's {}", out.merge, encoder.merge));
  out.patch = patch;
  if (!reader.status().ok())
    return annotate(reader.status(), (dir / "preprocessor_config.json").string());
  return out;
}

}  // namespace nereid::vision
