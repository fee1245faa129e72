// Runs the three kernels in backward.cu: reads q, k, v, the output, the gradient of the output and
// the log-sum-exp; writes the gradients of q, k and v.

#include "run.h"

#include KERNEL

int main(int count, char** words) {
    const Options o = options(count, words);
    const size_t queries = size_t(o.heads) * o.n_q, keys = size_t(o.heads / GROUP) * o.n_k;
    const Input<float> q(queries * D), k(keys * D), v(keys * D);
    const Input<float> output(queries * D), d_output(queries * D), lse(queries);
    Buffer<float> delta(queries), d_q(queries * D), d_k(keys * D), d_v(keys * D);
    const float scale = 1 / sqrtf(D);
    launch(backward_delta, backward_delta_launch, o.n_q, o.heads, output.data, d_output.data,
           delta.data, o.n_q);
    launch(backward_keys, backward_keys_launch, o.n_k, o.heads / GROUP, q.data, k.data, v.data,
           d_output.data, lse.data, delta.data, d_k.data, d_v.data, o.n_q, o.n_k, scale);
    launch(backward_queries, backward_queries_launch, o.n_q, o.heads, q.data, k.data, v.data,
           d_output.data, lse.data, delta.data, d_q.data, o.n_q, o.n_k, scale);
    write(d_q);
    write(d_k);
    write(d_v);
}
