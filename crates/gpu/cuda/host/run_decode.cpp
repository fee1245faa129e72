// Runs the two kernels in decode.cu: reads q, k, v, as they are without pages, and the length of
// each head's text; lays k and v out in pages; writes the output and the log-sum-exp.

#include "run.h"

#include KERNEL

#include <numeric>

// The pages of a tensor (heads, n, D). Neighbours lie apart, and one page is free. What isn't a row
// of the tensor isn't a number.
struct Pages : Buffer<Bf16> {
    static int place(int page, int all) {
        int step = all / 2 + 1; // all places are reached if it has no divisor with their number
        while (std::gcd(step, all + 1) != 1) ++step;
        return int((1LL + page) * step % (all + 1));
    }

    Pages(const Buffer<Bf16>& tensor, int heads, int n, int of_head)
        : Buffer(size_t(heads * of_head + 1) * PAGE * D) {
        for (int row = 0; row < heads * n; ++row) {
            const int page = row / n * of_head + row % n / PAGE;
            Bf16* to = data + (size_t(place(page, heads * of_head)) * PAGE + row % n % PAGE) * D;
            std::memcpy(to, tensor.data + size_t(row) * D, D * sizeof(Bf16));
        }
    }
};

int main(int count, char** words) {
    const Options o = options(count, words);
    const int kv_heads = o.heads / GROUP, of_head = divided_up(o.n_k, PAGE);
    const size_t queries = size_t(o.heads) * o.n_q, keys = size_t(kv_heads) * o.n_k;
    const Input<Bf16> q(queries * D), k(keys * D), v(keys * D);
    const Input<int> lengths(kv_heads);
    const Pages k_pages(k, kv_heads, o.n_k, of_head), v_pages(v, kv_heads, o.n_k, of_head);
    Buffer<int> page_table(kv_heads * of_head);
    for (int page = 0; page < kv_heads * of_head; ++page)
        page_table.data[page] = Pages::place(page, kv_heads * of_head);

    const int splits = divided_up(o.n_k, SPLIT);
    const int rows = splits * divided_up(GROUP * o.n_q, ROWS) * ROWS; // of a head of keys
    Buffer<float> part(size_t(kv_heads) * rows * D), part_lse(size_t(kv_heads) * rows);
    Buffer<Bf16> output(queries * D);
    Buffer<float> lse(queries);
    launch(decode_split, decode_split_launch, rows, kv_heads, q.data, k_pages.data, v_pages.data,
           page_table.data, lengths.data, part.data, part_lse.data, o.n_q, o.n_k,
           float(1 / sqrt(double(D))));
    launch(decode_merge, decode_merge_launch, o.n_q, o.heads, part.data, part_lse.data, output.data,
           lse.data, o.n_q, o.n_k);
    write(output);
    write(lse);
}
