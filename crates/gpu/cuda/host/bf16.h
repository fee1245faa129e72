// `bf16.cuh` on a CPU.
#pragma once

#include "cuda.h"

namespace host {

inline float from_bf16(Bf16 x) {
    const uint32_t bits = uint32_t(x) << 16;
    float result;
    std::memcpy(&result, &bits, sizeof result);
    return result;
}

// Rounds to the nearest, ties to even. cvt.rn.bf16x2 gives 0x7fff for every NaN.
inline Bf16 to_bf16(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    if (x != x) return 0x7fff;
    return Bf16((bits + 0x7fff + (bits >> 16 & 1)) >> 16); // a carry may reach the exponent
}

// A pair of 16-bit numbers in a register, the first in the lower half.
inline unsigned pair(Bf16 low, Bf16 high) { return low | unsigned(high) << 16; }

} // namespace host

inline unsigned pack_bf16(float low, float high) {
    return host::pair(host::to_bf16(low), host::to_bf16(high));
}

inline float low_of(unsigned pair) { return host::from_bf16(Bf16(pair)); }
inline float high_of(unsigned pair) { return host::from_bf16(Bf16(pair >> 16)); }
