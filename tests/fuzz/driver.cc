// Runs a libFuzzer entry point without libFuzzer: mutates the seed files a fixed number of times.
// Every input is a pure function of (seeds, iteration), so a failure repeats. Without a seed there
// is nothing to mutate: inputs of a few bytes would reach no parser. An entry point that can tell
// returns -1 for an input that its parser refuses; a seed that is refused ends the run, for what
// lies behind the parser would not be reached.
// usage: x_fuzz ITERATIONS SEED_FILE...
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/rng.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using nereid::philox;

// One of: flip a bit, replace a byte, insert bytes, erase a range, copy a range, splice in another
// seed, cut the tail.
void mutate(std::string& input, const std::vector<std::string>& seeds, uint64_t iteration,
            uint64_t round) {
  const auto r = philox(iteration, round, 1);
  const auto r2 = philox(iteration, round, 2);
  const size_t at = input.empty() ? 0 : r[0] % input.size();
  const size_t length = 1 + r2[0] % 16;
  switch (input.empty() ? 2 : r[1] % 7) {
    case 0:
      input[at] = static_cast<char>(input[at] ^ (1 << (r[2] % 8)));
      break;
    case 1:
      input[at] = "\0\xff{}[]\":,%\\09-eE.$ \n"[r[2] % 21];
      break;
    case 2:
      input.insert(at, length, static_cast<char>(r[2]));
      break;
    case 3:
      input.erase(at, length);
      break;
    case 4:
      input.insert(at, input.substr(r[2] % input.size(), length * 4));
      break;
    case 5: {
      const std::string& other = seeds[r[2] % seeds.size()];
      if (!other.empty()) input.replace(at, length, other.substr(r[3] % other.size(), length * 8));
      break;
    }
    default:
      input.resize(at);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s ITERATIONS SEED_FILE...\n", argv[0]);
    return 2;
  }
  const uint64_t iterations = std::strtoull(argv[1], nullptr, 10);
  std::vector<std::string> seeds;
  for (int i = 2; i < argc; ++i) {
    auto bytes = nereid::read_file(argv[i]);
    if (!bytes.ok()) {
      std::fprintf(stderr, "%s\n", std::string(nereid::message(bytes.status())).c_str());
      return 2;
    }
    seeds.push_back(*std::move(bytes));
  }
  const auto run = [](const std::string& input) {
    return LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  };
  for (size_t i = 0; i < seeds.size(); ++i)
    if (run(seeds[i]) != 0) {
      std::fprintf(stderr, "%s: the parser refuses this seed\n", argv[i + 2]);
      return 1;
    }
  uint64_t num_bytes = 0, accepted = 0;
  for (uint64_t i = 0; i < iterations; ++i) {
    const auto r = philox(i, 0);
    std::string input = seeds[r[0] % seeds.size()];
    for (uint64_t round = 0; round <= r[1] % 8; ++round) mutate(input, seeds, i, round + 1);
    num_bytes += input.size();
    accepted += run(input) == 0;
  }
  // An entry point that never returns -1 does not say which inputs it refuses.
  const std::string told =
      accepted < iterations ? ", " + std::to_string(accepted) + " passed the parser" : "";
  std::printf("fuzz: %llu inputs of %zu seeds, %llu bytes%s, no finding\n",
              static_cast<unsigned long long>(iterations), seeds.size(),
              static_cast<unsigned long long>(num_bytes), told.c_str());
  return 0;
}
