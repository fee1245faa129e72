// Runs the three kernels in naive.cu: reads q, k, v; writes the output and the log-sum-exp.

#include "run.h"

#include KERNEL

int main(int count, char** words) {
    const Options o = options(count, words);
    const size_t queries = size_t(o.heads) * o.n_q, keys = size_t(o.heads / GROUP) * o.n_k;
    const Input<float> q(queries * D), k(keys * D), v(keys * D);
    Buffer<float> s(queries * o.n_k), output(queries * D), lse(queries);
    const float scale = 1 / sqrtf(D);
    launch(scores, scores_launch, o.n_q, o.heads, q.data, k.data, s.data, o.n_q, o.n_k, scale);
    launch(softmax, softmax_launch, o.n_q, o.heads, s.data, lse.data, o.n_q, o.n_k);
    launch(weigh, weigh_launch, o.n_q, o.heads, s.data, v.data, output.data, o.n_q, o.n_k);
    write(output);
    write(lse);
}
