// Runs the forward kernel in the file KERNEL, which gets q, k and v as tensor maps: reads q, k,
// v; writes the output and the log-sum-exp.

#include "run.h"

#include KERNEL

int main(int count, char** words) {
    const Options o = options(count, words);
    const size_t queries = size_t(o.heads) * o.n_q, keys = size_t(o.heads / GROUP) * o.n_k;
    const Input<Bf16> q(queries * D), k(keys * D), v(keys * D);
    Buffer<Bf16> output(queries * D);
    Buffer<float> lse(queries);
    const int(&boxes)[2] = attention_forward_boxes;
#ifdef PERSISTENT
    const int rows = 3 * QUERIES, in_grid = 1; // as on a device of three multiprocessors
#else
    const int rows = o.n_q, in_grid = o.heads;
#endif
    launch(attention_forward, attention_forward_launch, rows, in_grid,
           tensor_map(q.data, o.heads, o.n_q, boxes[0]), tensor_map(k.data, o.heads / GROUP, o.n_k, boxes[1]),
           tensor_map(v.data, o.heads / GROUP, o.n_k, boxes[1]), output.data, lse.data, o.n_q, o.n_k,
           o.heads, float(1 / sqrt(double(D))));
    write(output);
    write(lse);
}
