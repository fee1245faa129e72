// Runs the three kernels in backward_hopper.cu, of which two get matrices as tensor maps: reads q, k,
// v, the output, the gradient of the output and the log-sum-exp; writes the gradients of q, k and v.

#include "run.h"

#include KERNEL

int main(int count, char** words) {
    const Options o = options(count, words);
    const int kv_heads = o.heads / GROUP;
    const size_t queries = size_t(o.heads) * o.n_q, keys = size_t(kv_heads) * o.n_k;
    const Input<Bf16> q(queries * D), k(keys * D), v(keys * D);
    const Input<Bf16> output(queries * D), d_output(queries * D);
    const Input<float> lse(queries);
    Buffer<float> numbers(size_t(o.heads) * tiles_of_numbers(o.n_q) * sizeof(Numbers) / sizeof(float));
    Buffer<Bf16> d_q(queries * D), d_k(keys * D), d_v(keys * D);
    const float scale = float(1 / sqrt(double(D)));
    const TensorMap maps[] = {tensor_map(q.data, o.heads, o.n_q, BOX),
                              tensor_map(k.data, kv_heads, o.n_k, BOX),
                              tensor_map(v.data, kv_heads, o.n_k, BOX),
                              tensor_map(d_output.data, o.heads, o.n_q, BOX)};
    launch(backward_delta, backward_delta_launch, o.n_q, o.heads, output.data, d_output.data,
           lse.data, numbers.data, o.n_q);
    launch(backward_keys, backward_keys_launch, o.n_k, kv_heads, maps[0], maps[1], maps[2], maps[3],
           numbers.data, d_k.data, d_v.data, o.n_q, o.n_k, scale);
    launch(backward_queries, backward_queries_launch, o.n_q, o.heads, maps[0], maps[1], maps[2],
           maps[3], numbers.data, d_q.data, o.n_q, o.n_k, scale);
    write(d_q);
    write(d_k);
    write(d_v);
}
