#define LITE_ISA baseline
#define LITE_NAME "baseline"
#include "kernels.inc"
