// Runs the forward kernel in the file KERNEL, which gets q, k and v as tensor maps: reads q, k,
// v; writes the output and the log-sum-exp.

#include "run.h"

#include KERNEL

// A tensor (heads, n, D), of which a copy takes 64 columns and `rows` rows at a time.
TensorMap tensor_map(const Buffer<Bf16>& tensor, int heads, int n, int rows) {
    const long long row = D * sizeof(Bf16);
    return {tensor.data, {D, n, heads}, {row, n * row}, {64, rows}};
}

int main(int count, char** words) {
    const Options o = options(count, words);
    const size_t queries = size_t(o.heads) * o.n_q, keys = size_t(o.heads) * o.n_k;
    const Input<Bf16> q(queries * D), k(keys * D), v(keys * D);
    Buffer<Bf16> output(queries * D);
    Buffer<float> lse(queries);
    const int(&boxes)[2] = attention_forward_boxes;
    launch(attention_forward, attention_forward_launch, o.n_q, o.heads,
           tensor_map(q, o.heads, o.n_q, boxes[0]), tensor_map(k, o.heads, o.n_k, boxes[1]),
           tensor_map(v, o.heads, o.n_k, boxes[1]), output.data, lse.data, o.n_q, o.n_k,
           float(1 / sqrt(double(D))));
    write(output);
    write(lse);
}
