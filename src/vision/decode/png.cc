// PNG by libpng.
#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "vision/decode/codec.h"

namespace nereid::vision {
namespace {

constexpr size_t kMostChunkBytes = size_t{8} << 20;  // of a chunk that is held
constexpr int kMostChunks = 1000;                    // that are held

// One file. Errors of the library jump over frames of its own code only: the functions that set
// the jump have no objects with destructors.
class PngReader {
 public:
  explicit PngReader(std::string_view file) : rest_(file) {}
  ~PngReader() {
    if (png_ != nullptr) png_destroy_read_struct(&png_, &info_, nullptr);
  }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  bool read_header(uint32_t max_side) {
    if (setjmp(jump_)) return false;
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, fail, ignore);
    if (png_ == nullptr || (info_ = png_create_info_struct(png_)) == nullptr) return false;
    png_set_read_fn(png_, this, read);
    png_set_user_limits(png_, max_side, max_side);
    png_set_chunk_malloc_max(png_, kMostChunkBytes);
    png_set_chunk_cache_max(png_, kMostChunks);
    png_read_info(png_, info_);
    return true;
  }
  // Sets what the library makes of pixels: `channels()` of 8 bits each, or grey of 16.
  bool start() {
    if (setjmp(jump_)) return false;
    if (bit_depth() == 16 && !is_deep_grey()) png_set_strip_16(png_);
    if (bit_depth() < 8 && color_type() == PNG_COLOR_TYPE_GRAY)
      png_set_expand_gray_1_2_4_to_8(png_);
    png_set_packing(png_);
    png_set_strip_alpha(png_);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }
  bool read_rows(uint8_t** rows) {
    if (setjmp(jump_)) return false;
    png_read_image(png_, rows);
    png_read_end(png_, info_);
    return true;
  }

  uint32_t width() const { return png_get_image_width(png_, info_); }
  uint32_t height() const { return png_get_image_height(png_, info_); }
  int bit_depth() const { return png_get_bit_depth(png_, info_); }
  int color_type() const { return png_get_color_type(png_, info_); }
  bool is_deep_grey() const { return bit_depth() == 16 && color_type() == PNG_COLOR_TYPE_GRAY; }
  size_t row_bytes() const { return png_get_rowbytes(png_, info_); }
  const char* error() const { return error_; }

  // Writes [256, 3]; entries that the file lacks are black.
  void read_palette(uint8_t* out) const {
    std::memset(out, 0, 256 * 3);
    png_colorp colors = nullptr;
    int count = 0;
    if (png_get_PLTE(png_, info_, &colors, &count) == 0) return;
    for (int i = 0; i < std::min(count, 256); ++i) {
      const uint8_t rgb[] = {colors[i].red, colors[i].green, colors[i].blue};
      std::memcpy(out + 3 * i, rgb, 3);
    }
  }

  int orientation() const {
    png_bytep exif = nullptr;
    png_uint_32 size = 0;
    if (png_get_eXIf_1(png_, info_, &size, &exif) != 0)
      if (const int value = exif_orientation({reinterpret_cast<const char*>(exif), size}))
        return value;
    png_textp texts = nullptr;
    int count = 0;
    png_get_text(png_, info_, &texts, &count);
    int by_xmp = 0;
    for (int i = 0; i < count; ++i) {
      const size_t length = std::max(texts[i].text_length, texts[i].itxt_length);
      const std::string_view key(texts[i].key), text(texts[i].text, length);
      if (key == "Raw profile type exif")
        if (const int value = exif_orientation(profile_bytes(text))) return value;
      if (key == "XML:com.adobe.xmp") by_xmp = xmp_orientation(text);
    }
    return by_xmp == 0 ? 1 : by_xmp;
  }

 private:
  static PngReader& of(png_structp png) { return *static_cast<PngReader*>(png_get_error_ptr(png)); }
  static void fail(png_structp png, png_const_charp message) {
    std::snprintf(of(png).error_, sizeof error_, "%s", message);
    std::longjmp(of(png).jump_, 1);
  }
  static void ignore(png_structp, png_const_charp) {}
  static void read(png_structp png, png_bytep out, size_t count) {
    std::string_view& rest = of(png).rest_;
    if (count > rest.size()) png_error(png, "the file is truncated");
    std::memcpy(out, rest.data(), count);
    rest.remove_prefix(count);
  }
  // EXIF data as hexadecimal digits behind three lines, as ImageMagick writes it.
  static std::string profile_bytes(std::string_view text) {
    for (int line = 0; line < 3; ++line)
      text.remove_prefix(std::min(text.size(), text.find('\n') + 1));
    const auto digit = [](char c) {
      return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    };
    std::string out;
    int half = -1;
    for (const char c : text) {
      if (digit(c) < 0) continue;
      if (half >= 0) out += static_cast<char>(half * 16 + digit(c));
      half = half >= 0 ? -1 : digit(c);
    }
    return out;
  }

  std::string_view rest_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::jmp_buf jump_;
  char error_[200] = "";
};

// In place, from the last pixel on: a pixel of `row` takes 1 byte (2 of deep grey), then 3.
void grey_to_rgb(uint8_t* row, size_t width, bool is_deep) {
  for (size_t x = width; x-- > 0;) {
    const uint8_t upper = is_deep ? row[2 * x] : 0;
    const uint8_t value = upper > 0 ? 255 : row[is_deep ? 2 * x + 1 : x];
    std::memset(row + 3 * x, value, 3);
  }
}

void palette_to_rgb(uint8_t* row, size_t width, const uint8_t* palette) {
  for (size_t x = width; x-- > 0;) std::memmove(row + 3 * x, palette + 3 * size_t{row[x]}, 3);
}

}  // namespace

StatusOr<Decoded> decode_png(std::string_view file, const DecodeOptions& options) {
  PngReader reader(file);
  const auto fault = [&] { return invalid_argument("the PNG is damaged: {}", reader.error()); };
  if (!reader.read_header(static_cast<uint32_t>(options.limits.max_side))) return fault();
  const size_t width = reader.width(), height = reader.height();
  Decoded out;
  ASSIGN_OR_RETURN(out.image, new_image(reader.width(), reader.height(),
                                        height * sizeof(uint8_t*) + 16 * width, options));
  const bool is_deep = reader.is_deep_grey();
  const int type = reader.color_type();
  if (!reader.start() || reader.row_bytes() > 3 * width) return fault();
  std::vector<uint8_t*> rows(height);
  for (size_t y = 0; y < height; ++y) rows[y] = out.image.rgb.data() + y * 3 * width;
  if (!reader.read_rows(rows.data())) return fault();
  uint8_t palette[256 * 3];
  if (type == PNG_COLOR_TYPE_PALETTE) reader.read_palette(palette);
  for (uint8_t* const row : rows) {
    if (type == PNG_COLOR_TYPE_PALETTE)
      palette_to_rgb(row, width, palette);
    else if ((type & PNG_COLOR_MASK_COLOR) == 0)
      grey_to_rgb(row, width, is_deep);
  }
  out.orientation = reader.orientation();
  return out;
}

}  // namespace nereid::vision
