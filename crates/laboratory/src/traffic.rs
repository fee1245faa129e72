//! A machine that counts: a large slow memory, a small fast one, and every number that moves between them.
//!
//! Matrices live in slow memory as [`SlowMatrix`], which cannot be computed with. A program loads a part of one into a [`Tile`] of
//! fast memory, computes there, and stores the result. Loading and storing are counted, by pass and by matrix; a tile
//! that does not fit is an error; a tile that is dropped gives its room back. So a program that runs on this machine
//! comes with a true count of its own traffic, and it computes the real result as well.
//!
//! Conventions. The capacity and all counts are in *numbers*; [`Counts::bytes`] multiplies. Single numbers held
//! in variables are free, as registers are, and so is everything a [`Mask`](attention::Mask) is asked, since it is a rule. Placing
//! inputs in slow memory and taking results out of it is free. What a real machine adds is not counted: cache lines,
//! latency, and hardware that decides for itself what to keep.

mod error; // the errors of programs
mod programs; // attention step by step, written for this machine
#[cfg(test)]
mod samples; // inputs and checks for the tests
mod tiled; // in tiles
mod tiled_backward; // and their backward pass

pub use error::{Error, Result};
pub use programs::{fused_attention, naive_attention, naive_attention_backward};
pub use tiled::{chunked_attention, strip_for, tiled_attention, tiles_for};
pub use tiled_backward::{tiled_attention_backward, tiles_for_backward};

use attention::Float;
pub use attention::engine::blocks;
use attention::engine::{check_count, check_room};
use nalgebra::{DMatrix, DMatrixView, DMatrixViewMut};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::marker::PhantomData;
use std::ops::{Add, Range};

// ---------------------------------------------------------------------------------------------------- the machine

/// A machine with a slow memory without limit and a fast memory of a given capacity, in numbers.
///
/// ```
/// use laboratory::traffic::Memory;
/// use nalgebra::dmatrix;
///
/// let memory = Memory::new(4); // room for four numbers
/// let a = memory.put("a", dmatrix![1.0_f64, 2.0, 3.0; 4.0, 5.0, 6.0]);
/// let mut b = memory.allocate("b", 2, 3)?;
/// memory.pass("double");
/// for j in 0..3 {
///     let mut column = a.load(0..2, j..j + 1)?; // counted
///     column.view_mut().scale_mut(2.0);
///     b.store((0, j), &column)?; // counted
/// }
/// assert_eq!(b.into_matrix(), dmatrix![2.0, 4.0, 6.0; 8.0, 10.0, 12.0]);
/// let total = memory.report().total();
/// assert_eq!((total.read, total.written), (6, 6));
/// assert_eq!(memory.peak(), 2); // a column at a time
/// # Ok::<(), laboratory::traffic::Error>(())
/// ```
#[derive(Debug)]
pub struct Memory<T> {
    capacity: usize,
    used: Cell<usize>,
    peak: Cell<usize>,
    report: RefCell<Report>,
    numbers: PhantomData<T>,
}

impl<T: Float> Memory<T> {
    /// A machine whose fast memory holds `capacity` numbers, of whatever size a `T` has.
    ///
    /// ```
    /// assert_eq!(laboratory::traffic::Memory::<f32>::new(1024).capacity(), 1024);
    /// ```
    pub fn new(capacity: usize) -> Self {
        Memory {
            capacity,
            used: Cell::new(0),
            peak: Cell::new(0),
            report: RefCell::default(),
            numbers: PhantomData,
        }
    }

    /// Returns the number of numbers that fast memory holds.
    ///
    /// ```
    /// assert_eq!(laboratory::traffic::Memory::<f64>::new(7).capacity(), 7);
    /// ```
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the number of numbers that fast memory still has room for.
    ///
    /// ```
    /// let memory = laboratory::traffic::Memory::<f64>::new(10);
    /// let tile = memory.tile(2, 3)?;
    /// assert_eq!(memory.free(), 4);
    /// drop(tile);
    /// assert_eq!(memory.free(), 10);
    /// # Ok::<(), laboratory::traffic::Error>(())
    /// ```
    pub fn free(&self) -> usize {
        self.capacity - self.used.get()
    }

    /// The free room, and the capacity.
    fn room(&self) -> (usize, usize) {
        (self.free(), self.capacity)
    }

    /// Returns the most numbers that fast memory held at any time.
    ///
    /// ```
    /// let memory = laboratory::traffic::Memory::<f64>::new(10);
    /// drop(memory.tile(2, 3)?);
    /// drop(memory.tile(2, 2)?);
    /// assert_eq!(memory.peak(), 6);
    /// # Ok::<(), laboratory::traffic::Error>(())
    /// ```
    pub fn peak(&self) -> usize {
        self.peak.get()
    }

    /// From here on, traffic belongs to a new pass of this name. The counts of passes with one name add up.
    ///
    /// ```
    /// let memory = laboratory::traffic::Memory::<f64>::new(10);
    /// memory.pass("first");
    /// assert_eq!(memory.report().passes(), ["first"]);
    /// ```
    pub fn pass(&self, name: &'static str) {
        self.report.borrow_mut().begin(name);
    }

    /// Returns the counts so far.
    ///
    /// ```
    /// let memory = laboratory::traffic::Memory::<f64>::new(10);
    /// assert_eq!(memory.report().total().all(), 0);
    /// ```
    pub fn report(&self) -> Report {
        self.report.borrow().clone()
    }

    /// A matrix that was in slow memory all along: this costs nothing. `name` is for the report.
    ///
    /// ```
    /// use nalgebra::dmatrix;
    ///
    /// let memory = laboratory::traffic::Memory::new(10);
    /// let a = memory.put("a", dmatrix![1.0_f64, 2.0]);
    /// assert_eq!(a.shape(), (1, 2));
    /// ```
    pub fn put(&self, name: &'static str, matrix: DMatrix<T>) -> SlowMatrix<'_, T> {
        SlowMatrix { memory: self, name, matrix }
    }

    /// A matrix in slow memory that has not been written yet. Its entries are NaN, so that reading too early shows.
    ///
    /// # Errors
    /// `rows` or `columns` is 0, or no memory could hold the matrix.
    ///
    /// ```
    /// let memory = laboratory::traffic::Memory::<f64>::new(10);
    /// assert_eq!(memory.allocate("scores", 100, 100)?.shape(), (100, 100));
    /// assert_eq!(memory.free(), 10); // it is not in fast memory
    /// # Ok::<(), laboratory::traffic::Error>(())
    /// ```
    pub fn allocate(
        &self,
        name: &'static str,
        rows: usize,
        columns: usize,
    ) -> Result<SlowMatrix<'_, T>> {
        check_room::<T>(("rows", rows), ("columns", columns))?;
        let unwritten = nalgebra::convert::<f64, T>(f64::NAN);
        Ok(self.put(name, DMatrix::from_element(rows, columns, unwritten)))
    }

    /// A tile of zeros in fast memory, to compute into.
    ///
    /// # Errors
    /// Fast memory has no room for `rows` × `columns` numbers, or the computer itself has no room.
    ///
    /// ```
    /// let memory = laboratory::traffic::Memory::<f64>::new(10);
    /// let first = memory.tile(2, 3)?;
    /// let error = memory.tile(3, 2).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "`tile` is 3 x 2 but that needs room for 6 numbers, and fast memory has 4 free of 10"
    /// );
    /// # Ok::<(), laboratory::traffic::Error>(())
    /// ```
    pub fn tile(&self, rows: usize, columns: usize) -> Result<Tile<'_, T>> {
        // A capacity may be beyond what the computer has that plays the machine.
        if rows.checked_mul(columns).is_some_and(|n| n > 0 && n <= self.free()) {
            check_room::<T>(("rows", rows), ("columns", columns))?;
        }
        let room = self.reserve(rows, columns)?;
        Ok(Tile { matrix: DMatrix::zeros(rows, columns), room })
    }

    /// A tile of numbers that were computed in fast memory.
    fn hold(&self, matrix: DMatrix<T>) -> Result<Tile<'_, T>> {
        let room = self.reserve(matrix.nrows(), matrix.ncols())?;
        Ok(Tile { matrix, room })
    }

    // ANCHOR: reserve
    fn reserve(&self, rows: usize, columns: usize) -> Result<Room<'_>> {
        let needed = rows as u128 * columns as u128;
        let shape = format_args!("{rows} x {columns}");
        check_fits("tile", shape, "that", needed, self.room())?;
        let numbers = rows * columns; // no overflow, since they fit
        self.used.set(self.used.get() + numbers);
        self.peak.set(self.peak.get().max(self.used.get()));
        Ok(Room { used: &self.used, numbers })
    }
    // ANCHOR_END: reserve

    fn count(&self, matrix: &'static str, counts: Counts) {
        self.report.borrow_mut().count(matrix, counts);
    }
}

/// Errs unless the `needed` numbers, which `what` needs room for, fit into what is free of the capacity.
fn check_fits(
    argument: &'static str,
    given: impl Display,
    what: impl Display,
    needed: u128,
    (free, capacity): (usize, usize),
) -> Result<()> {
    if needed <= free as u128 {
        return Ok(());
    }
    let (given, what) = (given.to_string(), what.to_string());
    Err(Error::FastMemory { argument, given, what, needed, free, capacity })
}

/// A part of fast memory that is taken, until this is dropped.
#[derive(Debug)]
struct Room<'m> {
    used: &'m Cell<usize>,
    numbers: usize,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.used.set(self.used.get() - self.numbers);
    }
}

/// A matrix in slow memory. It can be loaded from and stored to, tile by tile, and nothing else.
///
/// ```
/// use nalgebra::dmatrix;
///
/// let memory = laboratory::traffic::Memory::new(10);
/// let a = memory.put("a", dmatrix![1.0_f64, 2.0; 3.0, 4.0]);
/// let row = a.load(1..2, 0..2)?;
/// assert_eq!(row.view(), dmatrix![3.0, 4.0]);
/// assert_eq!(memory.report().matrix("a").read, 2);
/// # Ok::<(), laboratory::traffic::Error>(())
/// ```
#[derive(Debug)]
pub struct SlowMatrix<'m, T> {
    memory: &'m Memory<T>,
    name: &'static str,
    matrix: DMatrix<T>,
}

impl<'m, T: Float> SlowMatrix<'m, T> {
    /// Rows and columns.
    ///
    /// ```
    /// let memory = laboratory::traffic::Memory::<f64>::new(10);
    /// assert_eq!(memory.allocate("a", 2, 3)?.shape(), (2, 3));
    /// # Ok::<(), laboratory::traffic::Error>(())
    /// ```
    pub fn shape(&self) -> (usize, usize) {
        self.matrix.shape()
    }

    /// The rows and columns of a part, read into fast memory: as many reads as numbers.
    ///
    /// # Errors
    /// The part is not inside of the matrix, or fast memory has no room for it.
    ///
    /// ```
    /// use nalgebra::dmatrix;
    ///
    /// let memory = laboratory::traffic::Memory::new(3);
    /// let a = memory.put("a", dmatrix![1.0_f64, 2.0; 3.0, 4.0]);
    /// assert!(a.load(0..2, 0..2).is_err()); // four numbers
    /// assert_eq!(a.load(0..2, 1..2)?.view(), dmatrix![2.0; 4.0]);
    /// # Ok::<(), laboratory::traffic::Error>(())
    /// ```
    // ANCHOR: load
    pub fn load(&self, rows: Range<usize>, columns: Range<usize>) -> Result<Tile<'m, T>> {
        self.check_inside(&rows, &columns)?;
        let room = self.memory.reserve(rows.len(), columns.len())?;
        let start = (rows.start, columns.start);
        let matrix = self.matrix.view(start, (rows.len(), columns.len())).into_owned();
        self.memory.count(self.name, Counts { read: matrix.len() as u128, written: 0 });
        Ok(Tile { matrix, room })
    }
    // ANCHOR_END: load

    /// Writes a tile into the matrix, its first entry to `(row, column)`: as many writes as numbers.
    ///
    /// # Errors
    /// The tile would reach over the matrix's edge.
    ///
    /// ```
    /// use nalgebra::dmatrix;
    ///
    /// let memory = laboratory::traffic::Memory::new(3);
    /// let mut a = memory.put("a", dmatrix![1.0_f64, 2.0; 3.0, 4.0]);
    /// let zero = memory.tile(1, 1)?;
    /// a.store((1, 0), &zero)?;
    /// assert_eq!(a.into_matrix(), dmatrix![1.0, 2.0; 0.0, 4.0]);
    /// # Ok::<(), laboratory::traffic::Error>(())
    /// ```
    pub fn store(&mut self, (row, column): (usize, usize), tile: &Tile<T>) -> Result<()> {
        let (rows, columns) = tile.shape();
        let (to_row, to_column) =
            (row.saturating_add(rows), column.saturating_add(columns));
        self.check_inside(&(row..to_row), &(column..to_column))?;
        self.matrix.view_mut((row, column), (rows, columns)).copy_from(&tile.matrix);
        let written = tile.matrix.len() as u128;
        self.memory.count(self.name, Counts { read: 0, written });
        Ok(())
    }

    /// The matrix, taken out of the machine. As with [`Memory::put`], this costs nothing.
    ///
    /// ```
    /// use nalgebra::dmatrix;
    ///
    /// let memory = laboratory::traffic::Memory::new(3);
    /// assert_eq!(memory.put("a", dmatrix![1.0_f64]).into_matrix(), dmatrix![1.0]);
    /// ```
    pub fn into_matrix(self) -> DMatrix<T> {
        self.matrix
    }

    fn check_inside(&self, rows: &Range<usize>, columns: &Range<usize>) -> Result<()> {
        let (n, d) = self.shape();
        for (argument, range, axis, count) in
            [("rows", rows, "row", n), ("columns", columns, "column", d)]
        {
            if range.start > range.end || range.end > count {
                let (given, matrix, end) = (range.clone(), self.name, count);
                return Err(Error::OutOfBounds { argument, given, matrix, axis, end });
            }
        }
        Ok(())
    }
}

/// A matrix in fast memory, whose room is given back when it is dropped. Here, and only here, arithmetic can happen.
///
/// ```
/// let memory = laboratory::traffic::Memory::<f64>::new(10);
/// let mut tile = memory.tile(2, 2)?;
/// tile.view_mut()[(0, 1)] = 3.0;
/// assert_eq!(tile.view().sum(), 3.0);
/// # Ok::<(), laboratory::traffic::Error>(())
/// ```
#[derive(Debug)]
pub struct Tile<'m, T> {
    matrix: DMatrix<T>,
    #[expect(dead_code, reason = "held to be dropped")]
    room: Room<'m>,
}

impl<T: Float> Tile<'_, T> {
    /// Rows and columns.
    ///
    /// ```
    /// assert_eq!(laboratory::traffic::Memory::<f64>::new(6).tile(2, 3)?.shape(), (2, 3));
    /// # Ok::<(), laboratory::traffic::Error>(())
    /// ```
    pub fn shape(&self) -> (usize, usize) {
        self.matrix.shape()
    }

    /// The numbers, to be read.
    ///
    /// ```
    /// assert_eq!(laboratory::traffic::Memory::<f64>::new(6).tile(2, 3)?.view().sum(), 0.0);
    /// # Ok::<(), laboratory::traffic::Error>(())
    /// ```
    pub fn view(&self) -> DMatrixView<'_, T> {
        self.matrix.as_view()
    }

    /// The numbers, to be changed; their count cannot be.
    ///
    /// ```
    /// let memory = laboratory::traffic::Memory::<f64>::new(6);
    /// let mut tile = memory.tile(2, 3)?;
    /// tile.view_mut().fill(1.0);
    /// assert_eq!(tile.view().sum(), 6.0);
    /// # Ok::<(), laboratory::traffic::Error>(())
    /// ```
    pub fn view_mut(&mut self) -> DMatrixViewMut<'_, T> {
        self.matrix.as_view_mut()
    }

    /// Adds `a · b`, and needs no room for it.
    ///
    /// Shapes: `a` (m, l), `b` (l, n), and the tile (m, n).
    ///
    /// # Errors
    /// The shapes do not fit.
    ///
    /// ```
    /// use nalgebra::dmatrix;
    ///
    /// let memory = laboratory::traffic::Memory::new(9);
    /// let a = memory.put("a", dmatrix![1.0_f64, 2.0]).load(0..1, 0..2)?;
    /// let b = memory.put("b", dmatrix![3.0; 4.0]).load(0..2, 0..1)?;
    /// let mut c = memory.tile(1, 1)?;
    /// c.add_product(&a, &b)?;
    /// assert_eq!(c.view(), dmatrix![11.0]);
    /// # Ok::<(), laboratory::traffic::Error>(())
    /// ```
    pub fn add_product(&mut self, a: &Tile<T>, b: &Tile<T>) -> Result<()> {
        let ((m, l), (l_b, n)) = (a.shape(), b.shape());
        self.check_product("row", (l, l_b), (m, n))?;
        self.matrix.gemm(T::one(), &a.matrix, &b.matrix, T::one());
        Ok(())
    }

    /// Adds `a · bᵀ`, and needs no room for it.
    ///
    /// Shapes: `a` (m, l), `b` (n, l), and the tile (m, n).
    ///
    /// # Errors
    /// The shapes do not fit.
    ///
    /// ```
    /// use nalgebra::dmatrix;
    ///
    /// let memory = laboratory::traffic::Memory::new(9);
    /// let a = memory.put("a", dmatrix![1.0_f64, 2.0]).load(0..1, 0..2)?;
    /// let b = memory.put("b", dmatrix![3.0, 4.0]).load(0..1, 0..2)?;
    /// let mut c = memory.tile(1, 1)?;
    /// c.add_product_tr(&a, &b)?;
    /// assert_eq!(c.view(), dmatrix![11.0]);
    /// # Ok::<(), laboratory::traffic::Error>(())
    /// ```
    pub fn add_product_tr(&mut self, a: &Tile<T>, b: &Tile<T>) -> Result<()> {
        let ((m, l), (n, l_b)) = (a.shape(), b.shape());
        self.check_product("column", (l, l_b), (m, n))?;
        self.matrix.gemm(T::one(), &a.matrix, &b.matrix.transpose(), T::one());
        Ok(())
    }

    /// Adds `aᵀ · b`, and needs no room for it.
    ///
    /// Shapes: `a` (l, m), `b` (l, n), and the tile (m, n).
    ///
    /// # Errors
    /// The shapes do not fit.
    ///
    /// ```
    /// use nalgebra::dmatrix;
    ///
    /// let memory = laboratory::traffic::Memory::new(9);
    /// let a = memory.put("a", dmatrix![1.0_f64; 2.0]).load(0..2, 0..1)?;
    /// let b = memory.put("b", dmatrix![3.0; 4.0]).load(0..2, 0..1)?;
    /// let mut c = memory.tile(1, 1)?;
    /// c.add_tr_product(&a, &b)?;
    /// assert_eq!(c.view(), dmatrix![11.0]);
    /// # Ok::<(), laboratory::traffic::Error>(())
    /// ```
    pub fn add_tr_product(&mut self, a: &Tile<T>, b: &Tile<T>) -> Result<()> {
        let ((l, m), (l_b, n)) = (a.shape(), b.shape());
        self.check_product("row", (l, l_b), (m, n))?;
        self.matrix.gemm_tr(T::one(), &a.matrix, &b.matrix, T::one());
        Ok(())
    }

    /// `inner` is the length of the sum: what `a` has, and what `b` has along `axis`.
    fn check_product(
        &self,
        axis: &'static str,
        inner: (usize, usize),
        (m, n): (usize, usize),
    ) -> Result<()> {
        let (of_a, of_b) = inner;
        check_count("b", axis, of_b, of_a, || format!("`a` asks for {of_a}"))?;
        let product = || format!("the product is {m} x {n}");
        check_count("tile", "row", self.matrix.nrows(), m, product)?;
        check_count("tile", "column", self.matrix.ncols(), n, product)?;
        Ok(())
    }
}

// ---------------------------------------------------------------------------------------------------- the report

/// Numbers read from slow memory and written to it.
///
/// ```
/// let counts = laboratory::traffic::Counts { read: 10, written: 2 };
/// assert_eq!(counts.all(), 12);
/// assert_eq!(counts.bytes(4), 48); // in f32
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Loaded into fast memory.
    pub read: u128,
    /// Stored to slow memory.
    pub written: u128,
}

impl Counts {
    /// Read and written together.
    ///
    /// ```
    /// assert_eq!(laboratory::traffic::Counts { read: 1, written: 2 }.all(), 3);
    /// ```
    pub fn all(&self) -> u128 {
        self.read.saturating_add(self.written)
    }

    /// Bytes read and written, for numbers of `element` bytes.
    ///
    /// ```
    /// assert_eq!(laboratory::traffic::Counts { read: 1, written: 2 }.bytes(8), 24);
    /// ```
    pub fn bytes(&self, element: usize) -> u128 {
        self.all().saturating_mul(element as u128)
    }
}

impl Add for Counts {
    type Output = Counts;

    fn add(self, other: Counts) -> Counts {
        let read = self.read.saturating_add(other.read);
        Counts { read, written: self.written.saturating_add(other.written) }
    }
}

/// The numbers that moved between slow and fast memory, by pass and by matrix.
///
/// ```
/// use laboratory::traffic::Memory;
///
/// let memory = Memory::<f64>::new(10);
/// let mut a = memory.allocate("a", 2, 3)?;
/// memory.pass("clear");
/// a.store((0, 0), &memory.tile(2, 3)?)?;
/// memory.pass("read back");
/// a.load(0..1, 0..3)?;
///
/// let report = memory.report();
/// assert_eq!(report.passes(), ["clear", "read back"]);
/// assert_eq!(report.pass("clear").written, 6);
/// assert_eq!(report.matrix("a").all(), 9);
/// assert_eq!(report.of("read back", "a").read, 3);
/// # Ok::<(), laboratory::traffic::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    passes: Vec<&'static str>,
    current: Option<&'static str>,
    /// The counts by pass and matrix, without those of 0.
    entries: BTreeMap<(&'static str, &'static str), Counts>,
}

impl Report {
    fn begin(&mut self, pass: &'static str) {
        if !self.passes.contains(&pass) {
            self.passes.push(pass);
        }
        self.current = Some(pass);
    }

    /// Adds to the current pass. What moves before there is one makes a pass of its own, so that nothing is lost.
    fn count(&mut self, matrix: &'static str, counts: Counts) {
        if self.current.is_none() {
            self.begin("before the first pass");
        }
        let pass = self.current.unwrap_or_default();
        if counts != Counts::default() {
            let entry = self.entries.entry((pass, matrix)).or_default();
            *entry = *entry + counts;
        }
    }

    fn sum(&self, of: impl Fn(&str, &str) -> bool) -> Counts {
        let entries = self.entries.iter().filter(|((pass, matrix), _)| of(pass, matrix));
        entries.fold(Counts::default(), |sum, (_, &counts)| sum + counts)
    }

    /// The names of the passes, each once, in the order in which they first began.
    ///
    /// ```
    /// let memory = laboratory::traffic::Memory::<f64>::new(1);
    /// memory.pass("first");
    /// memory.pass("second");
    /// assert_eq!(memory.report().passes(), ["first", "second"]);
    /// ```
    pub fn passes(&self) -> &[&'static str] {
        &self.passes
    }

    /// Returns the traffic of all passes.
    ///
    /// ```
    /// assert_eq!(laboratory::traffic::Report::default().total().all(), 0);
    /// ```
    pub fn total(&self) -> Counts {
        self.sum(|_, _| true)
    }

    /// Returns the traffic of the passes of this name.
    ///
    /// ```
    /// assert_eq!(laboratory::traffic::Report::default().pass("mask").all(), 0);
    /// ```
    pub fn pass(&self, pass: &str) -> Counts {
        self.sum(|of, _| of == pass)
    }

    /// Returns the traffic of the matrices of this name.
    ///
    /// ```
    /// assert_eq!(laboratory::traffic::Report::default().matrix("scores").all(), 0);
    /// ```
    pub fn matrix(&self, matrix: &str) -> Counts {
        self.sum(|_, of| of == matrix)
    }

    /// Returns the traffic of a matrix in one pass.
    ///
    /// ```
    /// assert_eq!(laboratory::traffic::Report::default().of("mask", "scores").all(), 0);
    /// ```
    pub fn of(&self, pass: &str, matrix: &str) -> Counts {
        self.sum(|of, which| of == pass && which == matrix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nalgebra::dmatrix;

    /// Every number that moved is in some pass, and in one only, also where a name comes twice or not yet.
    #[test]
    fn passes_make_the_total() {
        let memory = Memory::<f64>::new(10);
        let a = memory.put("a", DMatrix::zeros(2, 3));
        a.load(0..2, 0..1).unwrap();
        for pass in ["first", "second", "first"] {
            memory.pass(pass);
            a.load(0..2, 0..3).unwrap();
        }
        let report = memory.report();
        assert_eq!(report.passes(), ["before the first pass", "first", "second"]);
        let counts: Vec<u128> =
            report.passes().iter().map(|pass| report.pass(pass).all()).collect();
        assert_eq!(counts, [2, 12, 6]);
        assert_eq!(report.total().all(), 20);
    }

    #[test]
    fn what_is_full_takes_no_more_until_something_is_dropped() {
        let memory = Memory::new(6);
        let a = memory.put("a", DMatrix::from_element(4, 4, 1.0_f64));
        let first = a.load(0..2, 0..2).unwrap();
        let message = "`tile` is 3 x 1 but that needs room for 3 numbers, and fast memory has 2 free of 6";
        assert_eq!(a.load(0..3, 0..1).unwrap_err().to_string(), message);
        assert_eq!(memory.tile(3, 1).unwrap_err().to_string(), message);
        let second = memory.tile(1, 2).unwrap();
        assert_eq!((memory.free(), memory.peak()), (0, 6));
        drop(first);
        assert_eq!((memory.free(), memory.peak()), (4, 6));
        a.load(0..4, 0..1).unwrap();
        drop(second);
        assert_eq!(memory.free(), 6);
        // What was refused was not counted.
        assert_eq!(memory.report().total(), Counts { read: 8, written: 0 });
    }

    #[test]
    fn a_load_reads_and_a_store_writes_where_it_says() {
        let memory = Memory::new(9);
        let mut a = memory.put("a", dmatrix![1.0_f64, 2.0, 3.0; 4.0, 5.0, 6.0]);
        let part = a.load(0..2, 1..3).unwrap();
        assert_eq!(part.view(), dmatrix![2.0, 3.0; 5.0, 6.0]);
        a.store((0, 0), &part).unwrap();
        assert!(a.store((1, 0), &part).is_err());
        assert!(a.store((0, usize::MAX), &part).is_err());
        assert_eq!(a.into_matrix(), dmatrix![2.0, 3.0, 3.0; 5.0, 6.0, 6.0]);
        assert_eq!(memory.report().matrix("a"), Counts { read: 4, written: 4 });
    }

    #[test]
    fn nothing_can_be_loaded_and_stored() {
        let memory = Memory::new(0);
        let mut a = memory.put("a", DMatrix::from_element(3, 2, 1.0_f64));
        for (rows, columns) in [(0..0, 0..2), (3..3, 2..2), (1..3, 2..2)] {
            let start = (rows.start, columns.start);
            let nothing = a.load(rows, columns).unwrap();
            a.store(start, &nothing).unwrap();
        }
        assert_eq!(memory.report().total().all(), 0);
        assert!(a.load(0..1, 0..1).is_err());
    }

    #[test]
    fn what_was_not_written_is_not_a_number() {
        let memory = Memory::<f64>::new(9);
        let a = memory.allocate("a", 2, 2).unwrap();
        assert!(a.load(0..2, 0..2).unwrap().view().iter().all(|x| x.is_nan()));
    }

    #[test]
    fn products_agree_with_nalgebra_and_add() {
        let memory = Memory::new(100);
        let a = DMatrix::from_fn(3, 4, |i, j| (i + 2 * j) as f64);
        let b = DMatrix::from_fn(4, 2, |i, j| (3 * i) as f64 - j as f64);
        let load = |matrix: &DMatrix<f64>| {
            let (rows, columns) = matrix.shape();
            memory.put("", matrix.clone()).load(0..rows, 0..columns).unwrap()
        };
        let mut c = memory.tile(3, 2).unwrap();
        c.add_product(&load(&a), &load(&b)).unwrap();
        assert_eq!(c.view(), &a * &b);
        c.add_product_tr(&load(&a), &load(&b.transpose())).unwrap();
        assert_eq!(c.view(), &a * &b * 2.0);
        c.add_tr_product(&load(&a.transpose()), &load(&b)).unwrap();
        assert_eq!(c.view(), &a * &b * 3.0);
    }
}
