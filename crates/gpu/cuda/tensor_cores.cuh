// The instructions of kernels 3 and 6, one small function each: matrices from shared memory into
// registers, and the matrix product of a warp. Both are there from compute capability 8.0 on. The
// names of PTX are kept; its manual (PTX ISA, section 9.7) defines them. In the end, how both keep
// rows in shared memory.
//
// How a warp holds a matrix. Its 32 lanes are eight groups of four: lane = 4 · g + t. Two bf16
// share a register, the one of the lower column (or, of a right factor, the lower row) in the lower
// half.
//
//   8 × 8 matrix     a register a lane: row g, columns 2t and 2t + 1
//   A, 16 × 16       four of these: rows 0–7 and 8–15 of the left half, then of the right half
//   B, 16 × 8        two, transposed: column g, rows 2t and 2t + 1; then the same of rows 8–15
//   C, 16 × 8        four floats: row g, columns 2t and 2t + 1; then the same of row g + 8
#pragma once

#include "bf16.cuh"
#include "cp_async.cuh"

#ifdef __CUDACC__

// ANCHOR: ldmatrix
// Four 8 × 8 matrices from shared memory. A row is 16 bytes; lanes 0–7 say where those of the first
// matrix lie, lanes 8–15 those of the second, and so on.
__device__ inline void ldmatrix_x4(unsigned (&to)[4], SharedAddress row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row) : "memory");
}

// The same, and each matrix is transposed on its way: a lane gets column g, rows 2t and 2t + 1.
__device__ inline void ldmatrix_x4_trans(unsigned (&to)[4], SharedAddress row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(row) : "memory");
}
// ANCHOR_END: ldmatrix

// ANCHOR: mma
// C += A B by the whole warp: A (16, 16) and B (16, 8) of bf16, C (16, 8) of floats. 2048 products.
__device__ inline void mma_bf16(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// ANCHOR_END: mma

#else
#include "host/tensor_cores.h"
#endif

__device__ inline int lane() { return threadIdx.x % 32; }

constexpr int CHUNKS = D / 8; // of 16 bytes in a row: what one copy brings

// Rows of bf16, cut into chunks of 16 bytes. A row is 128 or 256 bytes long, so that the same chunk
// of all rows would lie in the same four banks. Chunk c of row r is therefore kept at
// c XOR (r mod 8): eight rows that follow each other have it in eight different places, which cover
// all 32 banks.
template <int rows> struct Tile {
    uint4 chunks[rows][CHUNKS];

    __device__ uint4* at(int row, int chunk) { return &chunks[row][chunk ^ row % 8]; }
};

// From the address of chunk 0 or 1 of a row to the one `down` rows below and `right` chunks to its
// right. With `down` a multiple of 8 and `right` even, that is one XOR and one sum.
__device__ inline SharedAddress move(SharedAddress from, int down, int right) {
    return (from ^ right * int(sizeof(uint4))) + down * CHUNKS * int(sizeof(uint4));
}
