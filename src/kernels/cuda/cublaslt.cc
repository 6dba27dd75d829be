#include "kernels/cuda/cublaslt.h"

#include <cublasLt.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/round_up.h"
#include "kernels/cuda/launch.h"
#include "tensor/cuda_check.h"

namespace nereid::kernels::cuda {
namespace {

constexpr int kHeuristics = 8;
constexpr size_t kMaxChoices = 16384;

// Functions of the library, without their prefix.
struct Api {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtGetStatusString) status_string;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) get_heuristic;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) get_config;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
};

template <class F>
bool find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  return function != nullptr;
}

bool fill(void* library, Api& api) {
  return find(library, "cublasLtCreate", api.create) &&
         find(library, "cublasLtDestroy", api.destroy) &&
         find(library, "cublasLtGetStatusString", api.status_string) &&
         find(library, "cublasLtMatmul", api.matmul) &&
         find(library, "cublasLtMatmulAlgoGetHeuristic", api.get_heuristic) &&
         find(library, "cublasLtMatmulAlgoConfigGetAttribute", api.get_config) &&
         find(library, "cublasLtGetVersion", api.version) &&
         find(library, "cublasLtMatmulDescCreate", api.desc_create) &&
         find(library, "cublasLtMatmulDescDestroy", api.desc_destroy) &&
         find(library, "cublasLtMatmulDescSetAttribute", api.desc_set) &&
         find(library, "cublasLtMatrixLayoutCreate", api.layout_create) &&
         find(library, "cublasLtMatrixLayoutDestroy", api.layout_destroy) &&
         find(library, "cublasLtMatmulPreferenceCreate", api.preference_create) &&
         find(library, "cublasLtMatmulPreferenceDestroy", api.preference_destroy) &&
         find(library, "cublasLtMatmulPreferenceSetAttribute", api.preference_set);
}

const Api* load() {
  const std::string name = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
  std::vector<std::string> candidates;
  if (Dl_info self; dladdr(reinterpret_cast<void*>(&has_cublaslt), &self) && self.dli_fname)
    candidates.push_back((std::filesystem::path(self.dli_fname).parent_path() / name).string());
  candidates.push_back(name);
  candidates.push_back("/usr/local/cuda/lib64/" + name);
  for (const std::string& candidate : candidates) {
    void* library = dlopen(candidate.c_str(), RTLD_LAZY | RTLD_LOCAL);
    if (!library) continue;
    static Api api;
    if (fill(library, api)) {
      log_info("cuda: products by {}", candidate);
      return &api;
    }
    dlclose(library);
  }
  log_info("cuda: {} not found; products by our own kernel", name);
  return nullptr;
}

// Never unloaded: handles of streams may live until the process ends.
const Api* api() {
  static const Api* const loaded = load();
  return loaded;
}

Status lt_status(cublasStatus_t status, const char* call, const Linear& a) {
  if (status == CUBLAS_STATUS_SUCCESS) return ok();
  return internal_error("linear [{}, {}] x [{}, {}]: {}: {}", a.x.rows, a.weight.k, a.weight.n,
                        a.weight.k, call, api()->status_string(status));
}

#define RETURN_IF_LT_ERROR(product, call) RETURN_IF_ERROR(lt_status((call), #call, (product)))

// Descriptors of a product D [n, m] = W^T [n, k] . X [k, m], all column-major: the op's transposed.
class Descriptors {
 public:
  Descriptors() = default;
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;
  ~Descriptors() {
    if (operation) api()->desc_destroy(operation);
    for (cublasLtMatrixLayout_t layout : {weight, x, out})
      if (layout) api()->layout_destroy(layout);
  }

  Status make(const Linear& a, int64_t tokens) {
    const cudaDataType_t type = a.out.dtype == DType::kBF16 ? CUDA_R_16BF : CUDA_R_32F;
    const auto n = static_cast<uint64_t>(a.weight.n), k = static_cast<uint64_t>(a.weight.k);
    const auto m = static_cast<uint64_t>(tokens);
    RETURN_IF_LT_ERROR(a, api()->desc_create(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const cublasOperation_t transposed = CUBLAS_OP_T;
    RETURN_IF_LT_ERROR(a, api()->desc_set(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                          sizeof(transposed)));
    const bool fp8 = a.x.dtype == DType::kF8E4M3;
    const cudaDataType_t input = fp8 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
    RETURN_IF_LT_ERROR(a, api()->layout_create(&weight, input, k, n, a.weight.k));
    RETURN_IF_LT_ERROR(a, api()->layout_create(&x, input, k, m, a.x.stride));
    if (fp8) RETURN_IF_ERROR(scale(a));
    RETURN_IF_LT_ERROR(a, api()->layout_create(&out, type, n, m, a.out.stride));
    return ok();
  }

  // f8e4m3: one scale per output and per row of x; tensor-core accumulation.
  Status scale(const Linear& a) {
    const auto set = [&](cublasLtMatmulDescAttributes_t attribute, auto value) {
      return lt_status(api()->desc_set(operation, attribute, &value, sizeof(value)),
                       "cublasLtMatmulDescSetAttribute", a);
    };
    const auto mode = static_cast<int32_t>(CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode));
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode));
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, a.weight.scales));
    RETURN_IF_ERROR(
        set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const float*>(a.scales.data)));
    return set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, int8_t{1});
  }

  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t weight = nullptr, x = nullptr, out = nullptr;
};

// Largest power of two <= 256 that divides the address.
uint32_t alignment_of(const void* p) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  uint32_t alignment = 256;
  while (address % alignment != 0) alignment /= 2;
  return alignment;
}

// Token counts that share an algorithm: each small count alone, then in steps of little waste.
int64_t bucket_of(int64_t tokens) {
  const int64_t unit = tokens <= 64 ? 1 : tokens <= 1024 ? 64 : 256;
  return round_up(tokens, unit);
}

using Algorithm = cublasLtMatmulAlgo_t;

template <class T>
int32_t number_of(const Algorithm& algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute) {
  T number = 0;
  size_t written = 0;
  (void)api()->get_config(&algorithm, attribute, &number, sizeof number, &written);
  return static_cast<int32_t>(number);
}

// Identifies an algorithm among those listed by the heuristic.
std::vector<int32_t> numbers_of(const Algorithm& a) {
  return {number_of<int32_t>(a, CUBLASLT_ALGO_CONFIG_ID),
          number_of<uint32_t>(a, CUBLASLT_ALGO_CONFIG_TILE_ID),
          number_of<uint32_t>(a, CUBLASLT_ALGO_CONFIG_STAGES_ID),
          number_of<uint32_t>(a, CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
          number_of<uint32_t>(a, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME),
          number_of<uint32_t>(a, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING),
          number_of<uint32_t>(a, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION),
          number_of<uint16_t>(a, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID),
          number_of<uint16_t>(a, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID)};
}

// A stream's handle and algorithm choices.
class Chooser {
 public:
  Chooser() = default;
  Chooser(const Chooser&) = delete;
  Chooser& operator=(const Chooser&) = delete;
  ~Chooser() {
    if (handle_) api()->destroy(handle_);
  }

  StatusOr<cublasLtHandle_t> handle(const Linear& a) {
    if (!handle_) RETURN_IF_LT_ERROR(a, api()->create(&handle_));
    return handle_;
  }

  void set(const AlgorithmChoices& choices) {
    measured_.clear();
    choices_.clear();
    for (const ProductChoice& c : choices.products)
      measured_[{c.n, c.k, static_cast<int64_t>(c.x), static_cast<int64_t>(c.out)}][c.rows] =
          c.algorithm;
  }

  // The algorithm for this product with `tokens` rows.
  StatusOr<Algorithm> choose(const Linear& a, int64_t tokens) {
    const Key key = {tokens,
                     a.weight.n,
                     a.weight.k,
                     a.x.stride,
                     a.out.stride,
                     static_cast<int64_t>(a.out.dtype),
                     static_cast<int64_t>(a.x.dtype),
                     alignment_of(a.x.data),
                     alignment_of(a.weight.data),
                     alignment_of(a.out.data)};
    if (const auto found = choices_.find(key); found != choices_.end()) return found->second;
    ASSIGN_OR_RETURN(const std::vector<Algorithm> listed, list(a, tokens));
    Algorithm algorithm = listed[0];
    if (const std::vector<int32_t>* const wanted = measured(a, tokens))
      for (const Algorithm& one : listed)
        if (numbers_of(one) == *wanted) algorithm = one;
    if (choices_.size() >= kMaxChoices) choices_.clear();
    choices_.emplace(key, algorithm);
    return algorithm;
  }

  // The heuristic's list, best first; not empty.
  StatusOr<std::vector<Algorithm>> list(const Linear& a, int64_t tokens) {
    Descriptors d;
    RETURN_IF_ERROR(d.make(a, tokens));
    cublasLtMatmulPreference_t preference = nullptr;
    RETURN_IF_LT_ERROR(a, api()->preference_create(&preference));
    const std::unique_ptr<void, cublasStatus_t (*)(void*)> release(preference, [](void* it) {
      return api()->preference_destroy(static_cast<cublasLtMatmulPreference_t>(it));
    });
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      return lt_status(api()->preference_set(preference, attribute, &value, sizeof(value)),
                       "cublasLtMatmulPreferenceSetAttribute", a);
    };
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kCudaWorkspaceBytes}));
    // Split-k sums in f32 only, never in the output's type.
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                        static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)));
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(a.weight.data)));
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(a.x.data)));
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(a.out.data)));
    RETURN_IF_ERROR(set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(a.out.data)));
    std::array<cublasLtMatmulHeuristicResult_t, kHeuristics> results = {};
    int count = 0;
    const cublasStatus_t asked =
        api()->get_heuristic(handle_, d.operation, d.weight, d.x, d.out, d.out, preference,
                             kHeuristics, results.data(), &count);
    if (asked != CUBLAS_STATUS_NOT_SUPPORTED)
      RETURN_IF_ERROR(lt_status(asked, "cublasLtMatmulAlgoGetHeuristic", a));
    std::vector<Algorithm> listed;
    for (int i = 0; i < count; ++i)
      if (results[i].state == CUBLAS_STATUS_SUCCESS) listed.push_back(results[i].algo);
    if (!listed.empty()) return listed;
    return unsupported("cublasLt has no algorithm for [{}, {}] x [{}, {}]", tokens, a.weight.k,
                       a.weight.n, a.weight.k);
  }

 private:
  using Key = std::array<int64_t, 10>;
  using Product = std::array<int64_t, 4>;  // n, k, types of x and out

  // Null: the library's first choice.
  const std::vector<int32_t>* measured(const Linear& a, int64_t tokens) const {
    const auto found = measured_.find({a.weight.n, a.weight.k, static_cast<int64_t>(a.x.dtype),
                                       static_cast<int64_t>(a.out.dtype)});
    if (found == measured_.end()) return nullptr;
    auto at = found->second.lower_bound(tokens);
    if (at == found->second.end()) --at;
    return at->second.empty() ? nullptr : &at->second;
  }

  cublasLtHandle_t handle_ = nullptr;
  std::map<Key, Algorithm> choices_;
  std::map<Product, std::map<int64_t, std::vector<int32_t>>> measured_;  // by rows
};

}  // namespace

bool has_cublaslt() { return api() != nullptr; }

std::string cublaslt_name() {
  return has_cublaslt() ? fmt::format("cublasLt {}", api()->version()) : "";
}

StatusOr<std::vector<std::vector<int32_t>>> list_algorithms(const Linear& a, CudaStream& stream) {
  auto& chooser = stream.local<Chooser>();
  RETURN_IF_ERROR(chooser.handle(a).status());
  ASSIGN_OR_RETURN(const std::vector<Algorithm> listed, chooser.list(a, bucket_of(a.x.rows)));
  std::vector<std::vector<int32_t>> numbers;
  for (const Algorithm& one : listed) numbers.push_back(numbers_of(one));
  return numbers;
}

void set_choices(const AlgorithmChoices& choices, CudaStream& stream) {
  stream.local<Chooser>().set(choices);
}

Status run_cublaslt(const Linear& a, CudaStream& stream) {
  if (is_given(a.scales) && a.scales.stride != 1)
    return unsupported("cublasLt takes scales one behind the other");
  auto& chooser = stream.local<Chooser>();
  ASSIGN_OR_RETURN(const cublasLtHandle_t handle, chooser.handle(a));
  // The bias is written to `out` first and added with beta = 1: exact, and independent of the
  // epilogue's type rules.
  const float one = 1, beta = is_given(a.bias) ? 1 : 0;
  if (is_given(a.bias))
    RETURN_IF_CUDA_ERROR(stream.device().info().index, launch_bias(a, stream.handle()));
  Descriptors d;
  RETURN_IF_ERROR(d.make(a, a.x.rows));
  const auto product = [&](const Algorithm& algorithm) {
    return api()->matmul(handle, d.operation, &one, a.weight.data, d.weight, a.x.data, d.x, &beta,
                         a.out.data, d.out, a.out.data, d.out, &algorithm, stream.workspace(),
                         kCudaWorkspaceBytes, stream.handle());
  };
  const int64_t bucket = bucket_of(a.x.rows);
  ASSIGN_OR_RETURN(Algorithm algorithm, chooser.choose(a, bucket));
  cublasStatus_t status = product(algorithm);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) {
    // The bucket's algorithm does not support this token count.
    ASSIGN_OR_RETURN(algorithm, chooser.choose(a, a.x.rows));
    status = product(algorithm);
  }
  return lt_status(status, "cublasLtMatmul", a);
}

}  // namespace nereid::kernels::cuda
