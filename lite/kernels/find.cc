// Which kernels this machine can run.
#include "kernels.h"

#include <string.h>

namespace lite {

namespace baseline { extern const Kernels kKernels; }
#ifdef LITE_X86
namespace avx2 { extern const Kernels kKernels; }
namespace avx512 { extern const Kernels kKernels; }
#endif

const Kernels* find_kernels(const char* name) {
#ifdef LITE_X86
  __builtin_cpu_init();
  bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
              __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
  bool middle = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (wide && (!name || !strcmp(name, "avx512"))) return &avx512::kKernels;
  if (middle && (!name || !strcmp(name, "avx2"))) return &avx2::kKernels;
#endif
  return !name || !strcmp(name, "baseline") ? &baseline::kKernels : nullptr;
}

}  // namespace lite
