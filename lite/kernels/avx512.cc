#define LITE_ISA avx512
#define LITE_NAME "avx512"
#include "kernels.inc"
