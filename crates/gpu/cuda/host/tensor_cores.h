// The instructions of `tensor_cores.cuh` on a CPU, as PTX ISA 9.7 defines them.
#pragma once

#include "cp_async.h"

namespace host {

// ---- Matrices -----------------------------------------------------------------------------------

// One row of an 8 × 8 matrix of 16-bit numbers.
struct Row {
    unsigned short of[8];
};

// Lane 8 · i + r says where row r of matrix i begins. Lane 4 · g + t gets in register i, of matrix
// i, row g, columns 2t and 2t + 1; transposed: column g, rows 2t and 2t + 1.
inline void ldmatrix_x4(unsigned (&to)[4], SharedAddress address, bool transposed) {
    if (address % 16 != 0) fail("ldmatrix: a row begins at a multiple of 16 bytes");
    struct Given {
        SharedAddress address;
        Row row;
    } given{address, {}};
    std::memcpy(&given.row, at_address(address), sizeof given.row); // the lane's own read
    const char* all = exchange(&given, sizeof given, 32);
    const unsigned g = lane() / 4, t = lane() % 4;
    for (unsigned matrix = 0; matrix < 4; ++matrix) {
        Given rows[8];
        copy(rows, all + 8 * matrix * sizeof(Given), sizeof rows);
        // Not forbidden, only slow: rows in the same banks are read one after the other. What is
        // here is meant to be fast.
        unsigned banks = 0;
        for (const Given& row : rows) banks |= 1u << row.address / 16 % 8;
        if (banks != 0xff) fail("ldmatrix: two rows of a matrix are in the same banks");
        to[matrix] = transposed ? pair(rows[2 * t].row.of[g], rows[2 * t + 1].row.of[g])
                                : pair(rows[g].row.of[2 * t], rows[g].row.of[2 * t + 1]);
    }
}

} // namespace host

inline void ldmatrix_x4(unsigned (&to)[4], SharedAddress row) { host::ldmatrix_x4(to, row, false); }
inline void ldmatrix_x4_trans(unsigned (&to)[4], SharedAddress row) {
    host::ldmatrix_x4(to, row, true);
}

// Lane 4 · g + t gives
// - of A (16, 16), in registers 0 to 3, two columns of a row: (g, 2t), (g + 8, 2t), (g, 2t + 8),
//   (g + 8, 2t + 8), each with the column after it;
// - of B (16, 8), in two registers, two rows of column g: 2t and 2t + 8, each with the next row.
// It gets of C (16, 8) the entries (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).
inline void mma_bf16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    struct Given {
        Bf16 a[4][2], b[2][2];
    } given, all[32];
    const unsigned b[2] = {b0, b1};
    std::memcpy(given.a, a, sizeof given.a);
    std::memcpy(given.b, b, sizeof given.b);
    host::copy(all, host::exchange(&given, sizeof given, 32), sizeof all);
    const unsigned g = host::lane() / 4, t = host::lane() % 4;
    for (unsigned entry = 0; entry < 4; ++entry) {
        const unsigned lower = entry / 2, column = 2 * t + entry % 2; // of C; row g + 8 · lower
        for (unsigned k = 0; k < 16; ++k) {
            const unsigned right = k / 8, of = k % 8 / 2; // k = 8 · right + 2 · of + k % 2
            c[entry] += host::from_bf16(all[4 * g + of].a[lower + 2 * right][k % 2])
                      * host::from_bf16(all[4 * column + of].b[right][k % 2]);
        }
    }
}
