//! Numbers of the kernels' sources that the book computes with. A test compiles each source with them, and fails if it has others.

/// A module for each kernel, a constant for each number, and the list of all.
macro_rules! tiles {
    ($($(#[$of_kernel:meta])* $kernel:ident { $($(#[$about:meta])* $name:ident = $number:literal, $code:literal;)* })*) => {
        $($(#[$of_kernel])* pub mod $kernel {
            $($(#[$about])* pub const $name: usize = $number;)*
        })*

        /// Kernel, expression in its source for a head of 128 columns, and the number that it is.
        pub const ALL: &[(&str, &str, usize)] = &[$($((stringify!($kernel), $code, $number)),*),*];
    };
}

tiles! {
    /// Kernel 0.
    naive {
        /// Threads of a block, which take a row of scores together.
        THREADS = 128, "THREADS";
    }
    /// Kernel 1.
    tiled {
        /// Rows of a block.
        QUERIES = 32, "QUERIES";
        /// Rows of a tile of keys and values.
        KEYS = 32, "KEYS";
        /// Neighbouring threads that share a row of queries.
        THREADS_A_ROW = 4, "THREADS_A_ROW";
        /// Words between two rows of queries and of keys in shared memory.
        PADDING = 1, "sizeof(Shared::k[0]) / sizeof(float) - D";
    }
    /// Kernel 2.
    registers {
        /// Rows of a block.
        QUERIES = 64, "QUERIES";
        /// Rows of a tile of keys and values.
        KEYS = 128, "KEYS";
        /// Rows that a thread computes at once.
        ROWS = 8, "ROWS";
        /// Columns that a thread computes at once.
        COLUMNS = 8, "COLUMNS";
        /// Words between two rows of queries in shared memory.
        PADDING = 4, "sizeof(Shared::q[0]) / sizeof(float) - D";
    }
    /// Kernel 3.
    tensor_cores {
        /// Warps of a block.
        WARPS = 4, "WARPS";
        /// Tiles of 16 queries that a warp has.
        ROW_TILES = 2, "ROW_TILES";
        /// Rows of a tile of keys or of values.
        KEYS = 64, "KEYS";
    }
    /// Kernel 4.
    hopper {
        /// Warpgroups beside the producer.
        CONSUMERS = 2, "CONSUMERS";
        /// Rows of a block.
        QUERIES = 128, "QUERIES";
        /// Rows of a tile of keys, or of values.
        KEYS = 128, "KEYS";
        /// Tiles of each that shared memory holds.
        STAGES = 2, "STAGES";
        /// Registers of a thread of the producer, once they were dealt out again.
        PRODUCER_REGISTERS = 24, "PRODUCER_REGISTERS";
        /// Registers of a thread of a consumer.
        CONSUMER_REGISTERS = 240, "CONSUMER_REGISTERS";
    }
    /// Kernel 4 with persistent thread blocks.
    hopper_persistent {
        /// Rows of a tile of queries.
        QUERIES = 128, "QUERIES";
        /// Tiles of queries that shared memory holds.
        QUERY_STAGES = 2, "QUERY_STAGES";
    }
    /// Kernel 5.
    backward {
        /// Rows that a block keeps.
        STAYING = 32, "STAYING";
        /// Columns of a product that a thread computes at once.
        COLUMNS = 4, "COLUMNS";
    }
    /// Kernel 6.
    backward_hopper {
        /// Warpgroups beside the producer.
        CONSUMERS = 2, "CONSUMERS";
        /// Rows that a block keeps.
        STAYING = 128, "STAYING";
        /// Rows that the copy engine brings at once.
        BOX = 64, "BOX";
        /// Queries of a tile that passes.
        QUERIES = 64, "QUERIES";
        /// Keys of a tile that passes.
        KEYS = 128, "KEYS";
        /// Registers of a thread of a consumer, once they were dealt out again.
        CONSUMER_REGISTERS = 240, "CONSUMER_REGISTERS";
    }
    /// Kernel 7.
    decode {
        /// Warps of a block.
        WARPS = 4, "WARPS";
        /// Rows of a tile: heads of a group, times queries.
        ROWS = 16, "ROWS";
        /// Keys of a page.
        PAGE = 16, "PAGE";
        /// Keys of a block.
        SPLIT = 512, "SPLIT";
        /// Pages of a warp in shared memory.
        SLOTS = 3, "SLOTS";
        /// Warps of a block that merges splits.
        MERGING_WARPS = 16, "MERGING_WARPS";
    }
}
