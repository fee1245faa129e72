//! Kernels on a CPU: a kernel's source, unmodified, compiled for this machine with one fiber for each CUDA thread, and run.
//!
//! It takes a C++ compiler with its sanitizers, on Linux. The example `kernel_on_cpu` is a program around it.

mod data;
mod race;

pub use data::{Data, bound};
pub use race::Race;

use crate::{DECODE, Precision, declarations, is_backward};
use attention::cuda::{Program, Variant};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::{env, fmt, fs, io};
use tempfile::TempDir;

/// The sanitizer that watches over a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watch {
    /// None.
    Nothing,
    /// ThreadSanitizer, which finds races between the threads of a block.
    Races,
    /// AddressSanitizer and the sanitizer of undefined behaviour, which find what is read or written outside of its place.
    Addresses,
}

impl Watch {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Watch::Nothing => &[],
            Watch::Races => &["-fsanitize=thread"],
            Watch::Addresses => {
                &["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
            }
        }
    }
}

/// The size of the problem; (heads, n, d) are the shapes of all tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    pub heads: usize,
    pub n_q: usize,
    pub n_k: usize,
}

/// The choices for one run.
#[derive(Debug, Clone, Copy, Default)]
pub struct Choices {
    /// Of the order in which threads run; 0 is the order of their numbers.
    pub seed: u32,
    /// The line of the `__syncthreads()` that is left out; 0 is none.
    pub missing_barrier: u32,
}

/// Why a run has no result.
#[derive(Debug)]
pub enum Failure {
    /// The first race that ThreadSanitizer found.
    Race(Race),
    /// Threads wait for one another for ever, or at different barriers: who, and where.
    Stuck(String),
    /// Anything else, such as the report of another sanitizer.
    Other(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Race(race) => race.fmt(f),
            Failure::Stuck(words) | Failure::Other(words) => f.write_str(words),
        }
    }
}

/// A program that runs one kernel, for one head dimension and one variant.
pub struct OnCpu {
    program: Program,
    d: usize,
    group: usize,
    file: PathBuf,
    _folder: TempDir, // removed with it
}

impl OnCpu {
    /// Compiles the source of a program and the machine that runs it.
    ///
    /// # Errors
    /// There is no C++ compiler, it refuses, or a file can't be written.
    pub fn compile(
        program: Program,
        d: usize,
        variant: impl Into<Variant>,
        watch: Watch,
    ) -> io::Result<Self> {
        Self::compile_text(program, program.source().text, d, variant, watch)
    }

    /// The same with a text that stands in for the program's: one with a mistake, say.
    ///
    /// # Errors
    /// As [`OnCpu::compile`].
    pub fn compile_text(
        program: Program,
        text: &str,
        d: usize,
        variant: impl Into<Variant>,
        watch: Watch,
    ) -> io::Result<Self> {
        let source = program.source();
        let runner = match source.name {
            "naive" => "run_naive.cpp",
            "hopper" | "hopper_persistent" => "run_hopper.cpp",
            "backward" => "run_backward.cpp",
            "backward_hopper" => "run_backward_hopper.cpp",
            "decode" => "run_decode.cpp",
            _ => "run_forward.cpp",
        };
        let Variant { causal, group, rule, mask } = variant.into();
        let folder = tempfile::tempdir()?;
        let kernel = folder.path().join(format!("{}.cu", source.name));
        fs::write(&kernel, format!("{text}{}", declarations(program)))?;
        for (name, text) in source.headers {
            fs::write(folder.path().join(name), text)?;
        }
        let mut chosen = vec![
            format!("-DD={d}"),
            format!("-DCAUSAL={}", i32::from(causal)),
            format!("-DGROUP={group}"),
            format!("-DKERNEL=\"{}\"", kernel.display()),
        ];
        for (macro_name, name, text) in
            [("SCORE_RULE", "score_rule.cuh", rule), ("MASK", "mask.cuh", mask)]
        {
            let Some(text) = text else { continue };
            let file = folder.path().join(name);
            fs::write(&file, text)?;
            chosen.push(format!("-D{macro_name}=\"{}\"", file.display()));
        }
        let options = watch.flags().iter().map(|&flag| flag.to_owned()).chain(chosen);
        let file =
            compile_with_fibers(runner, &options.collect::<Vec<_>>(), folder.path())?;
        Ok(OnCpu { program, d, group, file, _folder: folder })
    }

    /// Output and log-sum-exp of a forward kernel. Numbers are rounded to what the kernel reads.
    pub fn forward(
        &self,
        sizes: Sizes,
        inputs: [&[f32]; 3],
        choices: Choices,
    ) -> Result<(Vec<f32>, Vec<f32>), Failure> {
        let texts = if self.program == DECODE { sizes.heads / self.group } else { 0 };
        self.forward_of_texts(sizes, inputs, &vec![sizes.n_k; texts], choices)
    }

    /// The same of a kernel to which it is told how many keys each head of keys has; the keys after these are there, and don't count.
    pub fn forward_of_texts(
        &self,
        sizes: Sizes,
        [q, k, v]: [&[f32]; 3],
        lengths: &[usize],
        choices: Choices,
    ) -> Result<(Vec<f32>, Vec<f32>), Failure> {
        let precision = Precision::of(self.program);
        let mut input = precision.encode(&[q, k, v].concat());
        input.extend(lengths.iter().flat_map(|&length| (length as i32).to_le_bytes()));
        let bytes = self.run(sizes, input, choices)?;
        let entries = sizes.heads * sizes.n_q;
        let (output, lse) = bytes.split_at(entries * self.d * precision.bytes());
        assert_eq!(
            lse.len(),
            4 * entries,
            "the kernel's program wrote too much or too little"
        );
        Ok((precision.decode(output), Precision::F32.decode(lse)))
    }

    /// The gradients of queries, keys and values, of q, k, v, output, d_output and lse.
    pub fn backward(
        &self,
        sizes: Sizes,
        arguments: [&[f32]; 6],
        choices: Choices,
    ) -> Result<[Vec<f32>; 3], Failure> {
        let precision = Precision::of(self.program);
        let [matrices @ .., lse] = arguments;
        let input =
            [precision.encode(&matrices.concat()), Precision::F32.encode(lse)].concat();
        let gradients = precision.decode(&self.run(sizes, input, choices)?);
        let kv_heads = sizes.heads / self.group;
        let [n_q, n_k] = [(sizes.heads, sizes.n_q), (kv_heads, sizes.n_k)]
            .map(|(h, n)| h * n * self.d);
        assert_eq!(gradients.len(), n_q + 2 * n_k);
        let (d_q, rest) = gradients.split_at(n_q);
        let (d_k, d_v) = rest.split_at(n_k);
        Ok([d_q, d_k, d_v].map(<[f32]>::to_vec))
    }

    fn run(
        &self,
        sizes: Sizes,
        input: Vec<u8>,
        choices: Choices,
    ) -> Result<Vec<u8>, Failure> {
        let Sizes { heads, n_q, n_k } = sizes;
        let numbers =
            [heads, n_q, n_k, choices.seed as usize, choices.missing_barrier as usize];
        let arguments = numbers.map(|number| number.to_string());
        let mut output = feed(Command::new(&self.file).args(&arguments), &input);
        // Where the system spreads memory over more addresses than the race detector can follow.
        if said(&output).contains("unexpected memory mapping") {
            output = feed(
                Command::new("setarch").arg("-R").arg(&self.file).args(&arguments),
                &input,
            );
        }
        let words = said(&output);
        match output.status.code() {
            Some(0) => Ok(output.stdout),
            Some(3) => Err(Failure::Stuck(words)),
            Some(66) => Err(match Race::parse(&words) {
                Some(race) => Failure::Race(race),
                None => Failure::Other(words),
            }),
            _ => Err(Failure::Other(format!("{}: {words}", output.status))),
        }
    }
}

/// Compiles a file of `cuda/host`, and the machine that runs a block of threads.
fn compile_with_fibers(
    name: &str,
    options: &[String],
    folder: &Path,
) -> io::Result<PathBuf> {
    let cuda = Path::new(env!("CARGO_MANIFEST_DIR")).join("cuda");
    let host = cuda.join("host");
    let [fibers, file] = ["fibers.o", "program"].map(|name| folder.join(name));
    // The machine itself is not watched: it says what it does.
    done(compiler().arg("-c").arg(host.join("fibers.cpp")).arg("-o").arg(&fibers))?;
    let mut program = compiler();
    program.args(options).args(["-w", "-include"]).arg(host.join("cuda.h"));
    program.arg("-I").arg(cuda).args([&host.join(name), &fibers]);
    done(program.arg("-o").arg(&file))?;
    Ok(file)
}

/// Returns the error of each result, in words.
pub fn lines(program: Program, errors: &[f64]) -> Vec<String> {
    let names: &[&str] = if is_backward(program) {
        &["gradient of q", "gradient of k", "gradient of v"]
    } else {
        &["output", "log-sum-exp"]
    };
    names
        .iter()
        .zip(errors)
        .map(|(name, error)| format!("{name}: off by {error:.1e}"))
        .collect()
}

/// The lines at which the source of `program` has a `__syncthreads()`.
pub fn barriers(program: Program) -> Vec<u32> {
    let code = |line: &str| {
        line.split("//").next().unwrap_or_default().contains("__syncthreads()")
    };
    (1..)
        .zip(program.source().text.lines())
        .filter(|(_, line)| code(line))
        .map(|(n, _)| n)
        .collect()
}

/// The system's C++ compiler, or the one that `CXX` names.
fn compiler() -> Command {
    let mut command = Command::new(env::var("CXX").unwrap_or_else(|_| "c++".to_owned()));
    command.args(["-std=c++17", "-O1", "-g"]);
    command
}

/// Runs a compiler to its end.
fn done(command: &mut Command) -> io::Result<()> {
    let output = command.output().map_err(|error| {
        let program = command.get_program().to_string_lossy().into_owned();
        let words = format!(
            "a kernel runs on the CPU only once a C++ compiler has compiled it, and `{program}` could not be started \
             ({error}); install one, such as g++, or name it in the environment variable CXX"
        );
        io::Error::new(error.kind(), words)
    })?;
    if !output.status.success() {
        return Err(io::Error::other(said(&output)));
    }
    Ok(())
}

fn feed(command: &mut Command, input: &[u8]) -> Output {
    let mut child = command
        .env("ASAN_OPTIONS", "detect_leaks=0") // the machine keeps its stacks to the end
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("what was just compiled can be started");
    let mut stdin = child.stdin.take().expect("it was asked for");
    // All of the input is read before anything is written; who stops early says why.
    let _ = stdin.write_all(input);
    drop(stdin);
    child.wait_with_output().expect("it was started")
}

/// Standard error, without what AddressSanitizer says at each switch of fibers.
fn said(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines =
        text.lines().filter(|line| !line.contains("makecontext") && !line.is_empty());
    lines.map(|line| format!("{line}\n")).collect()
}

/// Returns true if kernels can run here; the machine switches fibers as Linux does it.
pub fn here() -> bool {
    cfg!(target_os = "linux") || {
        println!("skipped: kernels run on a CPU under Linux only");
        false
    }
}
