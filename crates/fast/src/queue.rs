//! Tasks for several threads, which take the next one when they are done with theirs.

use attention::Result;
use attention::engine::{check_positive, wrong_value};
use std::sync::{Mutex, PoisonError};

/// The threads that do the work.
#[derive(Debug, Clone)]
pub(super) enum Threads {
    /// As many as rayon has: `RAYON_NUM_THREADS`, or the cores of the machine.
    All,
    /// The caller's thread alone.
    One,
    /// This many, which wait for work between calls.
    #[cfg(feature = "rayon")]
    Pool(std::sync::Arc<rayon::ThreadPool>),
}

impl Threads {
    /// More than any processor has: to start tens of thousands takes minutes, or hangs.
    pub(super) const MOST: usize = 1024;

    pub(super) fn new(threads: usize) -> Result<Self> {
        check_positive("threads", threads)?;
        if threads > Self::MOST {
            let because = format!("it must be at most {}", Self::MOST);
            return Err(wrong_value("threads", threads, because));
        }
        if threads == 1 {
            return Ok(Threads::One);
        }
        Self::pool(threads)
    }

    #[cfg(feature = "rayon")]
    fn pool(threads: usize) -> Result<Self> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        let because = |error| format!("the system does not start that many: {error}");
        let pool =
            pool.map_err(|error| wrong_value("threads", threads, because(error)))?;
        Ok(Threads::Pool(pool.into()))
    }

    #[cfg(not(feature = "rayon"))]
    fn pool(threads: usize) -> Result<Self> {
        let because = "without the feature `rayon` there is only 1";
        Err(wrong_value("threads", threads, because))
    }

    pub(super) fn count(&self) -> usize {
        match self {
            Threads::One => 1,
            #[cfg(feature = "rayon")]
            Threads::Pool(pool) => pool.current_num_threads(),
            #[cfg(feature = "rayon")]
            Threads::All => rayon::current_num_threads(),
            #[cfg(not(feature = "rayon"))]
            Threads::All => 1,
        }
    }

    /// Has every task done, by whichever thread is free. A thread makes its `scratch` once,
    /// and keeps it from task to task.
    pub(super) fn run<Task: Send, Scratch>(
        &self,
        tasks: Vec<Task>,
        scratch: impl Fn() -> Scratch + Sync,
        work: impl Fn(&mut Scratch, Task) + Sync,
    ) {
        let workers = self.count().min(tasks.len());
        let queue = Mutex::new(tasks.into_iter());
        let next = || lock(&queue).next();
        let worker = || {
            let Some(first) = next() else { return };
            let mut scratch = scratch();
            work(&mut scratch, first);
            while let Some(task) = next() {
                work(&mut scratch, task);
            }
        };
        self.on_each(workers, worker);
    }

    #[cfg(feature = "rayon")]
    fn on_each(&self, workers: usize, worker: impl Fn() + Sync) {
        match self {
            Threads::One => worker(),
            Threads::All => rayon::scope(|scope| share_out(scope, workers, &worker)),
            Threads::Pool(pool) => pool.scope(|scope| share_out(scope, workers, &worker)),
        }
    }

    #[cfg(not(feature = "rayon"))]
    fn on_each(&self, _workers: usize, worker: impl Fn() + Sync) {
        worker();
    }
}

/// The thread that waits for the others is one of them.
#[cfg(feature = "rayon")]
fn share_out<'s>(
    scope: &rayon::Scope<'s>,
    workers: usize,
    worker: &'s (impl Fn() + Sync),
) {
    (1..workers).for_each(|_| scope.spawn(|_| worker()));
    worker();
}

/// The content of a mutex. If another thread panicked while it held it, that panic ends the call anyway.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the content of a mutex, once the lock is no longer needed.
pub(super) fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}
