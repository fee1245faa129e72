// What the kernels for Hopper build of its instructions: tiles, the ring in which they come, and
// the two products in which they take part.
#pragma once

#include "common.cuh"
#include "hopper.cuh"

// A row in shared memory is 64 columns, what a swizzle spans; 128 are two such parts.
template <int rows> struct Tile {
    // The swizzle is that of addresses, so its pattern of eight rows must begin where a part does.
    static_assert(rows % 8 == 0, "a part is a whole number of patterns");
    Bf16 part[D / 64][rows][64];
};

// ANCHOR: ring
// Tile number t of a sequence is in stage t mod `stages`, which it is the (t / stages)-th to use.
// The phases of the stage's barriers count just that, so their parity follows from t.
//
// A consumer waits until the tile is there; the producer until the stage's previous tile was used.
// The first tile of a stage follows none: the phase before a barrier's first counts as over.
template <int stages> __device__ void wait_full(Barrier (&full)[stages], int t) {
    mbarrier_wait(full[t % stages], t / stages % 2);
}
template <int stages> __device__ void wait_empty(Barrier (&empty)[stages], int t) {
    mbarrier_wait(empty[t % stages], t / stages % 2 ^ 1);
}

// A warp has no more use for the tile. Its lanes have all waited for their products, which also
// brings them together: what they read themselves, they have read.
template <int stages> __device__ void release(Barrier (&empty)[stages], int t) {
    if (threadIdx.x % 32 == 0) mbarrier_arrive(empty[t % stages]);
}
// ANCHOR_END: ring

// `full` waits for so many copies, `empty` for so many warps.
template <int stages>
__device__ void init_ring(Barrier (&full)[stages], Barrier (&empty)[stages], int copies, int warps) {
    for (int i = 0; i < stages; ++i) {
        mbarrier_init(full[i], copies);
        mbarrier_init(empty[i], warps);
    }
}

// A tile, from row `first` of the head on, in boxes of `box` rows; `full` learns of its bytes as
// they come.
template <int box, int rows>
__device__ void load(Tile<rows>& tile, const TensorMap& map, Barrier& full, int first, int head) {
    mbarrier_arrive_expecting(full, sizeof(tile));
    for (int c = 0; c < D / 64; ++c)
        for (int row = 0; row < rows; row += box)
            tma_load(tile.part[c][row], map, full, 64 * c, first + row, head);
}

// ANCHOR: products
// Begins S (64, n) = A Bᵀ, where A are 64 rows of a tile: 16 columns of A and B a product.
template <int rows, int n>
__device__ void begin_product(float (&s)[n / 2], const Tile<rows>& a, int first_row,
                              const Tile<n>& b) {
    const auto a_rows = descriptor(&a.part[0][first_row]), b_rows = descriptor(&b);
    pin(s);
    wgmma_fence();
#pragma unroll
    for (int c = 0; c < D; c += 16) {
        const int within = c % 64 * int(sizeof(Bf16));
        wgmma(s, advance(a_rows, c / 64 * int(sizeof(a.part[0])) + within),
              advance(b_rows, c / 64 * int(sizeof(b.part[0])) + within), c > 0);
    }
    wgmma_commit();
}

// Begins O (64, D) += W B: 16 rows of B a product. W is in registers.
template <int n>
__device__ void begin_sum(float (&o)[D / 2], unsigned (&w)[n / 16][4], const Tile<n>& b) {
    const auto b_rows = descriptor(&b, sizeof(b.part[0]));
    pin(o);
    pin(w);
    wgmma_fence();
#pragma unroll
    for (int j = 0; j < n / 16; ++j) wgmma(o, w[j], advance(b_rows, j * 16 * SWIZZLED_ROW));
    wgmma_commit();
}
// ANCHOR_END: products

// What a product gave, as the left factor of the next: no lane needs anything of another.
template <int groups>
__device__ void to_bf16(unsigned (&w)[groups][4], const float (&s)[8 * groups]) {
#pragma unroll
    for (int i = 0; i < 4 * groups; ++i) w[i / 4][i % 4] = pack_bf16(s[2 * i], s[2 * i + 1]);
}

// Writes a warp's 16 rows of O, times a factor for each of the thread's two rows, to `to` (n, D)
// from row `first` on. They go through rows `place` to `place` + 15 of a tile, which no thread, no
// product and no copy uses any more, so that 16 bytes a lane go out, whole rows by neighbouring
// lanes.
template <int rows>
__device__ void store_rows(const float (&o)[D / 2], const float (&factors)[2], Tile<rows>& tile,
                           int place, Bf16* to, int first, int n) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) { // rows g and g + 8
        const int g = 8 * half + lane / 4;
#pragma unroll
        for (int j = 0; j < D / 8; ++j) {
            const float* pair = &o[4 * j + 2 * half];
            Bf16* chunk = &tile.part[j / 8][place + g][8 * swizzled(g, j % 8)];
            reinterpret_cast<unsigned*>(chunk)[lane % 4] =
                pack_bf16(factors[half] * pair[0], factors[half] * pair[1]);
        }
    }
    __syncwarp(); // the rows are there
#pragma unroll
    for (int entry = lane; entry < 16 * D / 8; entry += 32) {
        const int row = entry / (D / 8), j = entry % (D / 8);
        const Bf16* chunk = &tile.part[j / 8][place + row][8 * swizzled(row, j % 8)];
        if (first + row < n)
            reinterpret_cast<uint4*>(to)[size_t(first + row) * (D / 8) + j] =
                *reinterpret_cast<const uint4*>(chunk);
    }
}
