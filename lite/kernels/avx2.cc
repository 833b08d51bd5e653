#define LITE_ISA avx2
#define LITE_NAME "avx2"
#include "kernels.inc"
