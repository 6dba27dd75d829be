// Instruction sets and name of the processor.
#include "tensor/cpu_probe.h"

#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#endif

namespace nereid {
namespace {

constexpr std::array kIsas = {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16, Isa::kAmx};

#if defined(__x86_64__)

struct Registers {
  uint32_t a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(uint32_t leaf, uint32_t subleaf = 0) {
  Registers r;
  if (!__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d)) return {};
  return r;
}

constexpr bool bit(uint32_t word, int index) { return (word >> index & 1) != 0; }

// XCR0: register state that the operating system saves; 0 without xsave.
uint64_t enabled_state() {
  constexpr int kOsXsave = 27;
  if (!bit(cpuid(1).c, kOsXsave)) return 0;
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

// AMX tile data requires a permission request (Linux 5.16, Documentation/arch/x86/xstate.rst).
bool request_tile_permission() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// Bit positions: Intel SDM volume 2, CPUID leaves 1 and 7; state components: volume 1, chapter 13.
Isa best_isa() {
  const uint64_t state = enabled_state();
  const auto has_state = [&](uint64_t mask) { return (state & mask) == mask; };
  constexpr uint64_t kYmm = 0x6, kZmm = 0xe6, kTiles = 0x60000;
  const Registers one = cpuid(1), seven = cpuid(7), seven_one = cpuid(7, 1);
  const bool avx2 = has_state(kYmm) && bit(one.c, 12) /*FMA*/ && bit(one.c, 28) /*AVX*/ &&
                    bit(one.c, 29) /*F16C*/ && bit(seven.b, 5) /*AVX2*/;
  if (!avx2) return Isa::kGeneric;
  const bool avx512 = has_state(kZmm) && bit(seven.b, 16) /*F*/ && bit(seven.b, 17) /*DQ*/ &&
                      bit(seven.b, 30) /*BW*/ && bit(seven.b, 31) /*VL*/;
  if (!avx512) return Isa::kAvx2;
  if (!bit(seven_one.a, 5) /*AVX512_BF16*/) return Isa::kAvx512;
  const bool tiles = has_state(kTiles) && bit(seven.d, 22) /*AMX-BF16*/ &&
                     bit(seven.d, 24) /*AMX-TILE*/ && bit(seven.d, 25) /*AMX-INT8*/ &&
                     bit(seven.c, 1) /*AVX512_VBMI*/ && request_tile_permission();
  return tiles ? Isa::kAmx : Isa::kAvx512Bf16;
}

bool finds_vnni() { return bit(cpuid(7).c, 11); }

#else

Isa best_isa() { return Isa::kGeneric; }
bool finds_vnni() { return false; }

#endif

}  // namespace

std::vector<Isa> usable_isas() {
  static const Isa best = best_isa();
  std::vector<Isa> usable;
  for (const Isa isa : kIsas)
    if (isa <= best) usable.push_back(isa);
  return usable;
}

bool has_avx512_vnni() {
  static const bool has = usable_isas().back() >= Isa::kAvx512 && finds_vnni();
  return has;
}

StatusOr<Isa> choose_isa(std::string_view name) {
  const std::vector<Isa> usable = usable_isas();
  if (name.empty()) return usable.back();
  std::string names;
  for (const Isa isa : usable) {
    if (name == name_of(isa)) return isa;
    names += names.empty() ? "" : ", ";
    names += name_of(isa);
  }
  return invalid_argument("isa '{}' cannot be used on this processor ({}); usable: {}", name,
                          processor_name(), names);
}

std::string processor_name() {
#if defined(__x86_64__)
  char brand[49] = {};
  for (uint32_t i = 0; i < 3; ++i) {
    const Registers r = cpuid(0x80000002u + i);
    std::memcpy(brand + 16 * i, &r, 16);
  }
  std::string name(brand);
  while (!name.empty() && name.back() == ' ') name.pop_back();
  name.erase(0, name.find_first_not_of(' ') == std::string::npos ? name.size()
                                                                 : name.find_first_not_of(' '));
  if (!name.empty()) return name;
#endif
  return "unknown";
}

}  // namespace nereid
