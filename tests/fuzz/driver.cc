// Runs a libFuzzer entry point without libFuzzer: mutates the seed files a fixed number of times.
// Every input is a pure function of (seed files, number, iteration). The number is the date (UTC,
// as 20251231) unless --seed or $NEREID_FUZZ_SEED sets another, so each day's run has inputs of its
// own; it is printed, and a finding names the iteration, which --only runs alone. Without a seed
// file there is nothing to mutate: inputs of a few bytes would reach no parser. An entry point that
// can tell returns -1 for an input that its parser refuses; a seed file that is refused ends the
// run, for what lies behind the parser would not be reached.
// usage: x_fuzz [--seed NUMBER] [--only ITERATION] ITERATIONS SEED_FILE...
#include <signal.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/rng.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// A function of a sanitizer's runtime, where there is one.
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace {

using nereid::philox;

// One of: flip a bit, replace a byte, insert bytes, erase a range, copy a range, splice in another
// seed, cut the tail.
void mutate(std::string& input, const std::vector<std::string>& seeds, uint64_t number,
            uint64_t iteration, uint64_t round) {
  const auto r = philox(number, iteration, 2 * round);
  const auto r2 = philox(number, iteration, 2 * round + 1);
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

std::string make_input(const std::vector<std::string>& seeds, uint64_t number, uint64_t iteration) {
  const auto r = philox(number, iteration, 0);
  std::string input = seeds[r[0] % seeds.size()];
  for (uint64_t round = 0; round <= r[1] % 8; ++round)
    mutate(input, seeds, number, iteration, round + 1);
  return input;
}

// The running input, for the message of a finding.
const char* program = "";
uint64_t number = 0;
std::optional<uint64_t> running;  // the iteration; nothing: a seed file

void say_finding() {
  if (running)
    std::fprintf(stderr, "fuzz: a finding; %s --seed %llu --only %llu, with the same seed files\n",
                 program, static_cast<unsigned long long>(number),
                 static_cast<unsigned long long>(*running));
  else
    std::fprintf(stderr, "fuzz: a finding in a seed file as it is\n");
}
void on_signal(int signal_number) {
  say_finding();
  ::signal(signal_number, SIG_DFL);
  ::raise(signal_number);
}
void watch_findings() {
  if (__sanitizer_set_death_callback != nullptr) __sanitizer_set_death_callback(say_finding);
  ::signal(SIGABRT, on_signal);
  if (__sanitizer_set_death_callback == nullptr) ::signal(SIGSEGV, on_signal);
}

uint64_t date() {
  const std::time_t now = std::time(nullptr);
  std::tm day{};
  gmtime_r(&now, &day);
  return static_cast<uint64_t>((day.tm_year + 1900) * 10000 + (day.tm_mon + 1) * 100 + day.tm_mday);
}

int run(const std::string& input) {
  return LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

// Runs the inputs [begin, end) of the seed files.
void run_all(const std::vector<std::string>& seeds, uint64_t begin, uint64_t end) {
  uint64_t num_bytes = 0, accepted = 0;
  for (uint64_t i = begin; i < end; ++i) {
    running = i;
    const std::string input = make_input(seeds, number, i);
    num_bytes += input.size();
    accepted += run(input) == 0;
  }
  // An entry point that never returns -1 does not say which inputs it refuses.
  const std::string told =
      accepted < end - begin ? ", " + std::to_string(accepted) + " passed the parser" : "";
  std::printf("fuzz: %llu inputs of %zu seeds with the number %llu, %llu bytes%s, no finding\n",
              static_cast<unsigned long long>(end - begin), seeds.size(),
              static_cast<unsigned long long>(number), static_cast<unsigned long long>(num_bytes),
              told.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  program = argv[0];
  const char* const said = std::getenv("NEREID_FUZZ_SEED");
  number = said ? std::strtoull(said, nullptr, 10) : date();
  std::optional<uint64_t> only;
  int first = 1;
  for (; first + 1 < argc && argv[first][0] == '-'; first += 2) {
    const std::string_view option = argv[first];
    const uint64_t value = std::strtoull(argv[first + 1], nullptr, 10);
    if (option == "--seed")
      number = value;
    else if (option == "--only")
      only = value;
    else
      break;
  }
  if (argc < first + 2 || argv[first][0] == '-') {
    std::fprintf(stderr, "usage: %s [--seed NUMBER] [--only ITERATION] ITERATIONS SEED_FILE...\n",
                 argv[0]);
    return 2;
  }
  const uint64_t iterations = std::strtoull(argv[first], nullptr, 10);
  std::vector<std::string> seeds;
  for (int i = first + 1; i < argc; ++i) {
    auto bytes = nereid::read_file(argv[i]);
    if (!bytes.ok()) {
      std::fprintf(stderr, "%s\n", std::string(nereid::message(bytes.status())).c_str());
      return 2;
    }
    seeds.push_back(*std::move(bytes));
  }
  watch_findings();
  if (only) {
    run_all(seeds, *only, *only + 1);
    return 0;
  }
  for (size_t i = 0; i < seeds.size(); ++i)
    if (run(seeds[i]) != 0) {
      std::fprintf(stderr, "%s: the parser refuses this seed\n", argv[first + 1 + i]);
      return 1;
    }
  run_all(seeds, 0, iterations);
  return 0;
}
