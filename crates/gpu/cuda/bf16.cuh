// Numbers of 16 bits with the exponent of a float: bf16.
#pragma once

using Bf16 = unsigned short; // the upper half of a float

#ifdef __CUDACC__
// Two floats, each rounded to the nearest bf16 (ties to even), `low` in the lower half.
__device__ inline unsigned pack_bf16(float low, float high) {
    unsigned pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
#else
#include "host/bf16.h"
#endif
