// Encodes a file over and over on one thread and prints the best rate by the thread's CPU time.
// usage: tokenizer_speed TOKENIZER TEXT_FILE [SECONDS]. tokenizer_speed.py compares it with the
// `tokenizers` package.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/clock.h"
#include "base/file.h"
#include "text/detokenizer.h"
#include "text/tokenizer/tokenizer.h"

namespace nereid {
namespace {

constexpr double kMib = 1 << 20;

// Neighbours on the machine do not count.
double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

Status run(const char* tokenizer_path, const char* text_path, double limit) {
  ASSIGN_OR_RETURN(const auto tokenizer, text::Tokenizer::load(tokenizer_path));
  ASSIGN_OR_RETURN(const std::string text, read_file(text_path));
  double best = 1e9, best_decode = 1e9;
  std::vector<int32_t> ids;
  const Time start = now();
  do {
    const double before_encode = cpu_seconds();
    ASSIGN_OR_RETURN(ids, tokenizer->encode(text));
    best = std::min(best, cpu_seconds() - before_encode);
    const double before_decode = cpu_seconds();
    if (tokenizer->decode(ids, false).empty()) return internal_error("no text");
    best_decode = std::min(best_decode, cpu_seconds() - before_decode);
  } while (nereid::seconds(now() - start) < limit);
  const double mib = static_cast<double>(text.size()) / kMib;
  std::printf("{\"encode_mib_s\": %.1f, \"decode_mib_s\": %.1f, \"tokens\": %zu, \"bytes\": %zu}\n",
              mib / best, mib / best_decode, ids.size(), text.size());
  return ok();
}

}  // namespace
}  // namespace nereid

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: tokenizer_speed TOKENIZER TEXT_FILE [SECONDS]\n");
    return 2;
  }
  const double seconds = argc > 3 ? std::strtod(argv[3], nullptr) : 5;
  const nereid::Status status = nereid::run(argv[1], argv[2], seconds);
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(nereid::message(status)).c_str());
  return status.ok() ? 0 : 1;
}
