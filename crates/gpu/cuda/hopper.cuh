// The instructions of kernels 4 and 6, one small function each: barriers that count bytes, bulk copies
// of tensors (TMA), matrix products of a warpgroup (wgmma), and registers that change hands. They
// are Hopper's alone, and compile for sm_90a only. The PTX ISA defines them, under the names that
// the functions quote; for wgmma see "Asynchronous Warpgroup Level Matrix Multiply-Accumulate".
// Where a layout is hard to read there, CUTLASS (mma_sm90_desc.hpp, mma_traits_sm90_gmma.hpp)
// says the same.
//
// A warpgroup is four warps whose first has a number that divides by four: 128 threads.
#pragma once

#include "bf16.cuh"

using Barrier = unsigned long long; // an mbarrier: 64 bits in shared memory, known to it alone

// ---- layouts, for the GPU and for the CPU that imitates it ------------------------------------

// Where a copy with 128-byte swizzle puts things, and where wgmma looks for them. A row is 128
// bytes, eight chunks of 16; eight rows repeat. Chunk c of row r stands at place c ^ (r mod 8) of
// its row, so that the eight chunks c of eight rows lie in different banks. To be exact, bits 4–6
// of the address are replaced by their exclusive or with bits 7–9; a tile must therefore begin on
// 1024 bytes.
constexpr int SWIZZLED_ROW = 128;
constexpr int SWIZZLED_ROWS = 8 * SWIZZLED_ROW;

__device__ inline int swizzled(int row, int chunk) { return chunk ^ (row % 8); }

#ifdef __CUDACC__
// ---- on the GPU -------------------------------------------------------------------------------

// What the host wrote with cuTensorMapEncodeTiled: address, shape, strides, box and swizzle.
struct __align__(128) TensorMap {
    char opaque[128];
};

// What PTX calls an address in shared memory: 32 bits.
__device__ inline unsigned shared_address(const void* pointer) {
    return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// One lane of the warp, always the same; all 32 must ask.
__device__ inline bool elect() {
    unsigned elected;
    asm volatile("{\n .reg .pred p;\n elect.sync _|p, 0xffffffff;\n selp.u32 %0, 1, 0, p;\n}"
                 : "=r"(elected));
    return elected;
}

// A phase of an mbarrier ends when `arrivals` have come and no bytes are outstanding; the next
// one begins at once. Phases have numbers from 0; a wait names the parity of the one it waits
// for.
__device__ inline void mbarrier_init(Barrier& barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" //
                 ::"r"(shared_address(&barrier)), "r"(arrivals) : "memory");
}

// The copy engine works through a proxy of its own. What the thread read and wrote in shared memory
// before the fence comes before what the engine is asked for after it.
__device__ inline void async_proxy_fence() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// After the last init and before the block's barrier: makes it known to the copy engine. (CUTLASS
// has the first fence, the CUDA programming guide the second.)
__device__ inline void mbarrier_init_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    async_proxy_fence();
}

// What the thread read and wrote before is done for each thread that sees the phase end.
__device__ inline void mbarrier_arrive(Barrier& barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" //
                 ::"r"(shared_address(&barrier)) : "memory");
}

// Arrives, and announces so many bytes: the phase lasts until copies have brought them.
__device__ inline void mbarrier_arrive_expecting(Barrier& barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" //
                 ::"r"(shared_address(&barrier)), "r"(bytes) : "memory");
}

// Waits for the end of the current phase if it has this parity; if it has the other, the phase
// asked for is already over. A barrier just initialised is in phase 0, so a wait for parity 1
// returns at once.
__device__ inline void mbarrier_wait(Barrier& barrier, unsigned parity) {
    unsigned over;
    do {
        asm volatile("{\n .reg .pred p;\n"
                     " mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     " selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(over) : "r"(shared_address(&barrier)), "r"(parity) : "memory");
    } while (!over);
}

// Sends the box of the tensor that begins at element (x, y, z), x innermost, on its way into
// shared memory, swizzled as the map says, zeros where the tensor has ended. One thread asks for
// it, none carries it. The barrier gets the bytes of the whole box, zeros included.
__device__ inline void tma_load(void* shared, const TensorMap& map, Barrier& barrier, //
                                int x, int y, int z) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4, %5}], [%2];" //
                 ::"r"(shared_address(shared)), "l"(&map), "r"(shared_address(&barrier)),
                   "r"(x), "r"(y), "r"(z) : "memory");
}

// Sends `bytes`, a multiple of 16, on their way into shared memory, in the same manner. Both places
// are on 16 bytes.
__device__ inline void bulk_load(void* shared, const void* from, unsigned bytes, Barrier& barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1], %2, [%3];" //
                 ::"r"(shared_address(shared)), "l"(__cvta_generic_to_global(from)), "r"(bytes),
                   "r"(shared_address(&barrier)) : "memory");
}

// The warpgroup gives registers back to the block's pool, or takes some (and waits until they are
// there): from now on each of its threads has `count`, a multiple of 8 from 24 to 256.
template <int count> __device__ void keep_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}

template <int count> __device__ void take_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}

// Barrier `number`, 1 to 15 (0 is that of __syncthreads): its turn ends when `threads` have come,
// and those who `sync` stay until then.
__device__ inline void named_barrier_sync(int number, int threads) {
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

__device__ inline void named_barrier_arrive(int number, int threads) {
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

// Products run beside the threads. Between a thread's last use of a register and the first
// product that reads or writes it stands a fence; products are committed in groups; until a group
// has been waited for, its registers must not be touched, and its tiles in shared memory must
// stay.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }

__device__ inline void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most `pending` of the latest groups are under way.
template <int pending> __device__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

// For the compiler, which does not know that products run on: what happens to these registers
// before this line stays before it, and after it, after. No instruction comes of it.
template <int count> __device__ void pin(float (&registers)[count]) {
#pragma unroll
    for (int i = 0; i < count; ++i) asm volatile("" : "+f"(registers[i])::"memory");
}

template <int rows, int count> __device__ void pin(unsigned (&registers)[rows][count]) {
#pragma unroll
    for (int i = 0; i < rows; ++i)
#pragma unroll
        for (int j = 0; j < count; ++j) asm volatile("" : "+r"(registers[i][j])::"memory");
}

// The operands of a product, which PTX wants one by one: their places in the text, and the
// registers.
#define PLACES_32                                                                                  \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                       \
    "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PLACES_64                                                                                  \
    PLACES_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
              "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define REGISTERS_8(d, i)                                                                          \
    "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]),    \
        "+f"(d[i + 6]), "+f"(d[i + 7])
#define REGISTERS_32(d, i)                                                                         \
    REGISTERS_8(d, i), REGISTERS_8(d, i + 8), REGISTERS_8(d, i + 16), REGISTERS_8(d, i + 24)

// How a warpgroup holds a matrix. Warp w of the four has rows 16 w to 16 w + 15; its lane 4 g + t
// has of these the rows g and g + 8. Of the n columns of D it has 2t and 2t + 1 of every eight:
//     d[4 j], d[4 j + 1]       row g,     columns 8 j + 2t and 8 j + 2t + 1
//     d[4 j + 2], d[4 j + 3]   row g + 8, the same columns
// Of A (64, 16) it has, as pairs of bf16, a[0], a[1]: rows g and g + 8, columns 2t and 2t + 1,
// and a[2], a[3]: the same, eight columns on. Two neighbouring eights of a D make just such an A.

// D (64, n) += A B, or, if not `accumulate`, D = A B. A (64, 16) and B (16, n) lie in shared
// memory, both with the 16 along the rows of 128 bytes ("K-major"): B is a tile of n rows as it is.
__device__ inline void wgmma(float (&d)[64], unsigned long long a, unsigned long long b,
                             bool accumulate) {
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %66, 0;\n"
                 " wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" PLACES_64 "},"
                 " %64, %65, p, 1, 1, 0, 0;\n}" // neither factor negated, neither transposed
                 : REGISTERS_32(d, 0), REGISTERS_32(d, 32)
                 : "l"(a), "l"(b), "r"(int(accumulate)));
}

__device__ inline void wgmma(float (&d)[32], unsigned long long a, unsigned long long b,
                             bool accumulate) {
    asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %34, 0;\n"
                 " wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" PLACES_32 "},"
                 " %32, %33, p, 1, 1, 0, 0;\n}"
                 : REGISTERS_32(d, 0)
                 : "l"(a), "l"(b), "r"(int(accumulate)));
}

// D (64, n) += A B. A (64, 16) is in registers; B (16, n) lies in shared memory with its n along
// the rows ("MN-major"): a tile of values as it is.
__device__ inline void wgmma(float (&d)[64], const unsigned (&a)[4], unsigned long long b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" PLACES_64 "},"
                 " {%64, %65, %66, %67}, %68, 1, 1, 1, 1;" // the last 1: B is transposed
                 : REGISTERS_32(d, 0), REGISTERS_32(d, 32)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ inline void wgmma(float (&d)[32], const unsigned (&a)[4], unsigned long long b) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" PLACES_32 "},"
                 " {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"
                 : REGISTERS_32(d, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#else
#include "host/hopper.h"
#endif

// What wgmma is told of a factor in shared memory with 128-byte swizzle (PTX ISA, "Matrix
// Descriptor Format"): its address in bits 0–13, the leading offset in bits 16–29, the stride
// offset in bits 32–45, all without their last four bits, and in bits 62–63 a 1 for the swizzle.
// Bits 49–51 are 0 where the pattern begins on 1024 bytes. The offsets depend on how the 16 of
// the product lie:
//   along the rows (K-major): `stride` from eight rows to the next eight; `leading` is not used,
//   and written as 1.
//   down the rows (MN-major): `stride` the same, from eight of the 16 to the other eight; `leading`
//   from 64 columns, which fill a row, to the next 64.
__device__ inline unsigned long long descriptor(const void* tile, int leading = 16) {
    const auto encode = [](unsigned bytes) { return (unsigned long long)((bytes & 0x3ffff) >> 4); };
    return encode(shared_address(tile)) | encode(leading) << 16 | encode(SWIZZLED_ROWS) << 32
           | 1ull << 62;
}

// The descriptor of what lies `bytes` further on. Within a row too: the swizzle looks at the
// address.
__device__ inline unsigned long long advance(unsigned long long descriptor, int bytes) {
    return descriptor + (bytes >> 4);
}
