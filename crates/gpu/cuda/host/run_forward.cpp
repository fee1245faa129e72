// Runs the forward kernel in the file KERNEL: reads q, k, v; writes the output and the log-sum-exp.

#include "run.h"

#include KERNEL

template <typename E>
void run(void (*kernel)(const E*, const E*, const E*, E*, float*, int, int, float), Options o) {
    const size_t queries = size_t(o.heads) * o.n_q, keys = size_t(o.heads / GROUP) * o.n_k;
    const Input<E> q(queries * D), k(keys * D), v(keys * D);
    Buffer<E> output(queries * D);
    Buffer<float> lse(queries);
    const float scale = 1 / sqrtf(D);
    launch(kernel, attention_forward_launch, o.n_q, o.heads, q.data, k.data, v.data, output.data,
           lse.data, o.n_q, o.n_k, scale);
    write(output);
    write(lse);
}

int main(int count, char** words) { run(attention_forward, options(count, words)); }
