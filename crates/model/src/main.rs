//! `model train …` and `model write …`: trains the models of the book, and lets one write. `model open …`: looks into a model of others.

mod open;
mod prose;

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use model::{Characters, Plan, Repeated, Run, Sizes, Task, Trained, Training};
use std::fs::{self, File, TryLockError};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A step makes and drops matrices by the thousand; this allocator keeps their memory where glibc's hands it back.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Trains the models of the book, and lets one write.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Trains a model, or goes on where it was stopped.
    Train {
        /// What is to be learned.
        task: TaskName,
        /// Where the training is kept.
        #[arg(long)]
        folder: Option<PathBuf>,
        /// How many steps, instead of those of the book; a training that goes on keeps those that it began with.
        #[arg(long)]
        steps: Option<u64>,
        /// Where random numbers begin.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// How many blocks, instead of those of the book.
        #[arg(long)]
        blocks: Option<usize>,
        /// The training is written to its folder after every so many steps.
        #[arg(long, default_value_t = 100)]
        save_every: u64,
        /// The text that the task `book` learns from.
        #[arg(long, default_value = BOOK)]
        text: PathBuf,
        /// Also writes model and curves for the book to show, as NAME.json and NAME.f32 in crates/model/trained.
        #[arg(long, value_name = "NAME")]
        record: Option<String>,
    },
    /// Times some steps of the task `book`, and prints seconds and sizes as JSON: for benches/peers/train.py.
    Time {
        /// How many steps, after one that isn't counted.
        #[arg(long, default_value_t = 15)]
        steps: u64,
        /// On how many threads.
        #[arg(long, default_value_t = 1)]
        threads: usize,
        /// The text that it learns from.
        #[arg(long, default_value = BOOK)]
        text: PathBuf,
    },
    /// Prints the prose of a book's chapters, from which the task `book` learns.
    Prose {
        /// The folder with the chapters and their SUMMARY.md.
        #[arg(default_value = "src")]
        src: PathBuf,
    },
    /// Opens a model of others, and tells what it makes of a text.
    Open(open::Open),
    /// Goes on with a text, by a model that learned the task `book`.
    Write {
        /// How the text begins.
        prompt: String,
        /// Where the training is kept.
        #[arg(long, default_value = "target/model/book")]
        folder: PathBuf,
        /// How many characters.
        #[arg(long, default_value_t = 400)]
        characters: usize,
        /// Near 0 it takes the likeliest character; at 1 it draws as it has learned.
        #[arg(long, default_value_t = 0.7)]
        temperature: f32,
        /// Where random numbers begin.
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// The text that it learned from.
        #[arg(long, default_value = BOOK)]
        text: PathBuf,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TaskName {
    /// Random tokens that are repeated.
    Repeated,
    /// The prose of the book, character by character.
    Book,
}

const BOOK: &str = "crates/model/trained/book.txt";
const TRAINED: &str = "crates/model/trained";

fn main() -> Result<()> {
    // Someone who reads only the first lines, as `head` does, ends the program without a word.
    sigpipe::reset();
    match Arguments::parse().command {
        Command::Train {
            task,
            folder,
            steps,
            seed,
            blocks,
            save_every,
            text,
            record,
        } => {
            let folder = folder.unwrap_or_else(|| match task {
                TaskName::Repeated => "target/model/repeated".into(),
                TaskName::Book => "target/model/book".into(),
            });
            let change = |mut plan: Plan| {
                plan.steps = steps.unwrap_or(plan.steps);
                plan.sizes.n_blocks = blocks.unwrap_or(plan.sizes.n_blocks);
                Plan { seed, ..plan }
            };
            ensure!(
                record.is_none() || !folder.join(FILE).exists(),
                "what is recorded begins with the first step: remove {} or take another folder",
                folder.join(FILE).display()
            );
            let (begin, date) = (Instant::now(), record::here::now()?);
            let (training, alphabet) = match task {
                TaskName::Repeated => {
                    let task = Repeated::OF_BOOK;
                    let plan = change(repeated_plan(&task));
                    (train(plan, &task, &folder, save_every)?, vec![])
                }
                TaskName::Book => {
                    let task = characters(&text)?;
                    let plan = change(book_plan(&task));
                    (train(plan, &task, &folder, save_every)?, task.alphabet)
                }
            };
            let Some(name) = record else { return Ok(()) };
            let run = Run {
                date,
                processor: record::here::machine()?.processor(),
                threads: rayon::current_num_threads(),
                seconds: begin.elapsed().as_secs_f64(),
                peak_bytes: peak_bytes(),
            };
            Trained::new(training, run, alphabet).save(Path::new(TRAINED), &name)
        }
        Command::Time { steps, threads, text } => {
            time(steps, threads, &characters(&text)?)
        }
        Command::Open(open) => open.run(),
        Command::Prose { src } => {
            print!("{}", prose::prose_of_book(&src)?);
            Ok(())
        }
        Command::Write { prompt, folder, characters: count, temperature, seed, text } => {
            let task = characters(&text)?;
            let model = Training::open(&folder.join(FILE), &task)?.model;
            task.tokens(&prompt)?; // an error before anything is written
            let mut out = std::io::stdout().lock();
            write!(out, "{prompt}")?;
            let how = (count, temperature, seed);
            task.go_on(&model, &prompt, how, |character| {
                write!(out, "{character}")?;
                Ok(out.flush()?)
            })?;
            Ok(writeln!(out)?)
        }
    }
}

/// Two blocks of attention alone.
fn repeated_plan(task: &Repeated) -> Plan {
    Plan {
        sizes: Sizes {
            vocabulary: task.vocabulary(),
            d_model: 64,
            n_blocks: 2,
            n_heads: 2,
            n_kv_heads: 2,
            d_hidden: 0,
        },
        seed: 0,
        steps: 1000,
        batch: 32,
        rate: 0.003,
        warm_up: 50,
        clip: 1.0,
        weight_decay: 0.0,
        measure_every: 10,
    }
}

fn book_plan(task: &Characters) -> Plan {
    Plan {
        sizes: Sizes {
            vocabulary: task.vocabulary(),
            d_model: 64,
            n_blocks: 4,
            n_heads: 4,
            n_kv_heads: 2,
            d_hidden: 256,
        },
        seed: 0,
        steps: 2000,
        batch: 16,
        rate: 0.004,
        warm_up: 100,
        clip: 1.0,
        weight_decay: 0.1,
        measure_every: 50,
    }
}

fn characters(text: &Path) -> Result<Characters> {
    let read = fs::read_to_string(text);
    let read = read.with_context(|| format!("{} can't be read", text.display()))?;
    Characters::of_book(&read)
}

const FILE: &str = "training.json";

/// Trains to the end of the plan, from where the folder's training is, if it has one.
fn train(
    plan: Plan,
    task: &impl Task,
    folder: &Path,
    save_every: u64,
) -> Result<Training> {
    fs::create_dir_all(folder)
        .with_context(|| format!("{} can't be made", folder.display()))?;
    let lock = File::create(folder.join("lock"))?;
    match lock.try_lock() {
        Err(TryLockError::WouldBlock) => {
            anyhow::bail!("another program is training in {}", folder.display())
        }
        other => other?,
    }
    let path = folder.join(FILE);
    let mut training = if path.exists() {
        Training::open(&path, task)?
    } else {
        Training::new(plan.clone(), task)?
    };
    let begun = &training.plan;
    ensure!(
        begun.sizes == plan.sizes && begun.seed == plan.seed,
        "{} has a training with other sizes or another seed: go on with those, or take another folder",
        folder.display()
    );
    let bar = ProgressBar::new(training.plan.steps);
    bar.set_style(ProgressStyle::with_template(
        "{bar:30} step {pos} of {len}, {elapsed}, {eta} left: {msg}",
    )?);
    bar.enable_steady_tick(Duration::from_secs(1));
    bar.set_position(training.steps());
    bar.reset_eta();
    while training.steps() < training.plan.steps {
        training.step(task)?;
        bar.inc(1);
        if let Some(last) = training.history.last() {
            bar.set_message(format!("loss {:.3} on unseen texts", last.held_out));
        }
        if training.steps().is_multiple_of(save_every) {
            training.save(&path)?;
        }
    }
    bar.finish();
    training.save(&path)?;
    Ok(training)
}

/// The largest memory that this program had so far, where Linux tells.
fn peak_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib << 10)
}

/// Prints the seconds that some steps take.
fn time(steps: u64, threads: usize, task: &Characters) -> Result<()> {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
    let plan = Plan { measure_every: u64::MAX, ..book_plan(task) };
    let mut training = Training::new(plan, task)?;
    training.step(task)?;
    let begin = Instant::now();
    for _ in 0..steps {
        training.step(task)?;
    }
    let mut printed = serde_json::to_value(training.plan.sizes)?;
    printed["seconds"] = begin.elapsed().as_secs_f64().into();
    printed["processor"] = record::here::machine()?.processor().into();
    printed["threads"] = threads.into();
    printed["batch"] = training.plan.batch.into();
    printed["length"] = task.length().into();
    println!("{printed}");
    Ok(())
}
