// Kernel 4, whose blocks stay: one for each multiprocessor, which takes one tile of queries after
// another. While it writes an output, its copy engine has already begun with the next queries and
// keys, and the consumer that is done first with its rows goes on.

#define PERSISTENT
#include "hopper.cu"
