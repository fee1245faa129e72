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

// The two numbers of a pair.
__device__ inline float low_of(unsigned pair) { return __uint_as_float(pair << 16); }
__device__ inline float high_of(unsigned pair) { return __uint_as_float(pair & 0xffff0000u); }
#else
#include "host/bf16.h"
#endif
