// JPEG by libjpeg-turbo.
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <vector>

// After <cstdio>, which it needs.
#include <jerror.h>
#include <jpeglib.h>

#include "vision/decode/codec.h"

namespace nereid::vision {
namespace {

constexpr int kMostScans = 100;  // of a progressive file; encoders write about ten
constexpr int kExif = JPEG_APP0 + 1;

// One file. Errors of the library jump over frames of its own code only: the functions that set
// the jump have no objects with destructors.
class JpegReader {
 public:
  explicit JpegReader(std::string_view file) {
    std::memset(&codec_, 0, sizeof codec_);
    codec_.err = jpeg_std_error(&errors_);
    codec_.client_data = this;
    errors_.error_exit = [](j_common_ptr codec) { of(codec).fail(codec); };
    errors_.output_message = [](j_common_ptr) {};
    errors_.emit_message = [](j_common_ptr, int) {};
    source_.next_input_byte = reinterpret_cast<const JOCTET*>(file.data());
    source_.bytes_in_buffer = file.size();
    source_.init_source = [](j_decompress_ptr) {};
    source_.term_source = [](j_decompress_ptr) {};
    source_.resync_to_restart = jpeg_resync_to_restart;
    source_.fill_input_buffer = fill;
    source_.skip_input_data = skip;
    progress_.progress_monitor = [](j_common_ptr codec) {
      if (reinterpret_cast<j_decompress_ptr>(codec)->input_scan_number <= kMostScans) return;
      std::snprintf(of(codec).error_, sizeof error_, "more than %d scans", kMostScans);
      std::longjmp(of(codec).jump_, 1);
    };
  }
  ~JpegReader() {
    if (is_created_) jpeg_destroy_decompress(&codec_);
  }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  bool read_header() {
    if (setjmp(jump_)) return false;
    jpeg_create_decompress(&codec_);
    is_created_ = true;
    codec_.src = &source_;
    codec_.progress = &progress_;
    jpeg_save_markers(&codec_, kExif, 0xFFFF);
    jpeg_read_header(&codec_, TRUE);
    return true;
  }
  bool start() {
    if (setjmp(jump_)) return false;
    codec_.out_color_space = codec_.num_components == 4 ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(&codec_);
    return true;
  }
  bool read_row(uint8_t* out) {
    if (setjmp(jump_)) return false;
    JSAMPROW row = out;
    jpeg_read_scanlines(&codec_, &row, 1);
    return true;
  }
  bool finish() {
    if (setjmp(jump_)) return false;
    jpeg_finish_decompress(&codec_);
    return true;
  }

  const char* error() const { return error_; }
  const jpeg_decompress_struct& codec() const { return codec_; }
  bool has_several_scans() { return jpeg_has_multiple_scans(&codec_) != 0; }

  int orientation() const {
    constexpr std::string_view kXmp("http://ns.adobe.com/xap/1.0/\0", 29);
    int by_xmp = 0;
    for (auto* marker = codec_.marker_list; marker != nullptr; marker = marker->next) {
      if (marker->marker != kExif) continue;
      const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
      if (data.starts_with(std::string_view("Exif\0\0", 6)))
        if (const int value = exif_orientation(data)) return value;
      if (data.starts_with(kXmp)) by_xmp = xmp_orientation(data);
    }
    return by_xmp == 0 ? 1 : by_xmp;
  }

 private:
  static JpegReader& of(j_common_ptr codec) {
    return *static_cast<JpegReader*>(codec->client_data);
  }
  static JpegReader& of(j_decompress_ptr codec) {
    return *static_cast<JpegReader*>(codec->client_data);
  }
  [[noreturn]] void fail(j_common_ptr codec) {
    codec->err->format_message(codec, error_);
    std::longjmp(jump_, 1);
  }
  static boolean fill(j_decompress_ptr codec) {
    std::snprintf(of(codec).error_, sizeof error_, "the file is truncated");
    std::longjmp(of(codec).jump_, 1);
  }
  static void skip(j_decompress_ptr codec, long count) {
    if (count <= 0) return;
    jpeg_source_mgr& source = *codec->src;
    if (static_cast<size_t>(count) > source.bytes_in_buffer) fill(codec);
    source.next_input_byte += count;
    source.bytes_in_buffer -= static_cast<size_t>(count);
  }

  jpeg_decompress_struct codec_;
  jpeg_error_mgr errors_ = {};
  jpeg_source_mgr source_ = {};
  jpeg_progress_mgr progress_ = {};
  std::jmp_buf jump_;
  bool is_created_ = false;
  char error_[JMSG_LENGTH_MAX] = "";
};

// Inverted CMYK to RGB: 255 - c becomes k * c / 255, rounded.
void cmyk_to_rgb(const std::vector<uint8_t>& cmyk, uint8_t* out) {
  for (size_t i = 0; i < cmyk.size(); i += 4) {
    const int black = cmyk[i + 3];
    for (size_t c = 0; c < 3; ++c) {
      const int product = (255 - cmyk[i + c]) * black + 128;
      *out++ = static_cast<uint8_t>(black - (((product >> 8) + product) >> 8));
    }
  }
}

}  // namespace

StatusOr<Decoded> decode_jpeg(std::string_view file, const DecodeOptions& options) {
  JpegReader reader(file);
  const auto fault = [&] { return invalid_argument("the JPEG is damaged: {}", reader.error()); };
  if (!reader.read_header()) return fault();
  const jpeg_decompress_struct& codec = reader.codec();
  const int channels = codec.num_components;
  if (channels != 1 && channels != 3 && channels != 4)
    return invalid_argument("the JPEG has {} colour channels; allowed are 1, 3 and 4", channels);
  const size_t width = codec.image_width, height = codec.image_height;
  // Coefficients are held between several scans: 2 bytes each, in blocks of 8 x 8.
  const size_t blocks = (width + 63) * (height + 63);
  const size_t scratch =
      reader.has_several_scans() ? 2 * blocks * static_cast<size_t>(channels) : 0;
  Decoded out;
  ASSIGN_OR_RETURN(out.image, new_image(codec.image_width, codec.image_height, scratch, options));
  if (!reader.start()) return fault();
  std::vector<uint8_t> cmyk(channels == 4 ? 4 * width : 0);
  for (size_t y = 0; y < height; ++y) {
    uint8_t* const row = out.image.rgb.data() + y * 3 * width;
    if (!reader.read_row(channels == 4 ? cmyk.data() : row)) return fault();
    if (channels == 4) cmyk_to_rgb(cmyk, row);
  }
  out.orientation = reader.orientation();  // finish() frees the file's markers
  if (!reader.finish()) return fault();
  return out;
}

}  // namespace nereid::vision
