//! `model open FILE`: what a model of somebody else's makes of a text, and what its heads look at.

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use model::opened::{self, Family, Head, Means, Network, Opened, log_sum_exps};
use model::{HeadScores, draw_next, scores_of_weights};
use nalgebra::{DMatrix, DVector};
use rand::SeedableRng as _;
use rand::rngs::ChaCha8Rng;
use serde_json::json;
use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::Instant;

#[derive(Args)]
pub struct Open {
    /// A GGUF file; a safetensors file with its config.json beside it; or a folder with both.
    file: PathBuf,
    /// What the model reads.
    #[arg(long, required_unless_present = "ids", conflicts_with = "ids")]
    text: Option<String>,
    /// The numbers of tokens, in place of a text.
    #[arg(long, value_delimiter = ',')]
    ids: Vec<usize>,
    /// How many tokens the model writes after the text.
    #[arg(long, default_value_t = 0, value_name = "N")]
    write: usize,
    /// At 0 it takes the likeliest token; at 1 it draws with the model's probabilities.
    #[arg(long, default_value_t = 0.0)]
    temperature: f32,
    /// Where random numbers begin.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Shows what each head looks at: itself, the token before, the first, and the one behind an earlier copy.
    #[arg(long)]
    heads: bool,
    /// Shows the weights of these heads: a block, a point and the head's place in it, both from 0.
    #[arg(long, value_delimiter = ',', value_parser = head, value_name = "L.H")]
    weights: Vec<Head>,
    /// Switches these heads off: their output is zero.
    #[arg(long, value_delimiter = ',', value_parser = head, value_name = "L.H")]
    ablate: Vec<Head>,
    /// Their output is its mean over the first 512 tokens of this file instead.
    #[arg(long, requires = "ablate", value_name = "FILE")]
    mean_over: Option<PathBuf>,
    /// Their output is what it is at the last token of this text instead: a swap.
    #[arg(long, requires = "ablate", conflicts_with = "mean_over", value_name = "TEXT")]
    output_of: Option<String>,
    /// Prints everything as JSON instead.
    #[arg(long)]
    json: bool,
    /// On how many threads.
    #[arg(long)]
    threads: Option<usize>,
}

fn head(text: &str) -> Result<Head, String> {
    let parts = text
        .split_once('.')
        .and_then(|(block, head)| Some((block.parse().ok()?, head.parse().ok()?)));
    parts.ok_or_else(|| {
        "a head is a block, a point and its place in the block, as 13.8".into()
    })
}

/// Tokens are read so many at a time, so that there is progress to be shown and little memory is needed.
const CHUNK: usize = 512;

/// What a head finds in place of its own.
type Output = Box<dyn Fn(Head) -> Vec<f32>>;

/// How many of the likeliest tokens are told.
const LIKELIEST: usize = 10;

impl Open {
    pub fn run(self) -> Result<()> {
        if let Some(threads) = self.threads {
            rayon::ThreadPoolBuilder::new().num_threads(threads).build_global()?;
        }
        ensure!(self.temperature >= 0.0, "a temperature is at least 0");
        let begin = Instant::now();
        let bar = bar("opening")?;
        let Opened { mut network, tokenizer } = opened::open(&self.file, |done, of| {
            bar.set_length(of as u64);
            bar.set_position(done as u64);
        })?;
        bar.finish_and_clear();
        let load = begin.elapsed().as_secs_f64();
        let words = match (&self.text, tokenizer) {
            // Without a text a tokenizer only names the tokens.
            (None, tokenizer) => Words::new(tokenizer).ok(),
            (Some(_), tokenizer) => Some(Words::new(tokenizer)?),
        };
        let ids = match (&self.text, &words) {
            (Some(text), Some(words)) => words.ids(text)?,
            _ => self.ids.clone(),
        };
        ensure!(!ids.is_empty(), "the text has no tokens");
        // A text that can't be read is told of before anything is printed.
        for id in &ids {
            let n = network.vocabulary();
            ensure!(*id < n, "token {id} isn't one of the model's {n}");
        }
        let before = match self.ablate.as_slice() {
            [] => None,
            _ if network.family == Family::Bert => None,
            _ => Some(network.losses(&ids)?),
        };
        let shape = (network.parameters(), network.blocks.len(), load);
        let heads = self.ablate.clone();
        let outputs = self.outputs(&network, words.as_ref())?;
        let tell = |network: &Network| {
            self.tell(network, words.as_ref(), &ids, before.as_deref(), shape)
        };
        match outputs {
            None => network.without_heads(&heads, tell),
            Some(output) => network.with_heads_replaced(&heads, output, tell),
        }
    }

    /// What a head finds that is switched off, if it isn't zero.
    fn outputs(
        &self,
        network: &Network,
        words: Option<&Words>,
    ) -> Result<Option<Output>> {
        let ids = |text: &str| {
            let ids = words.context("a text needs the model's tokenizer")?.ids(text)?;
            ensure!(!ids.is_empty(), "a text has no tokens");
            Ok(ids)
        };
        if let Some(path) = &self.mean_over {
            let text = fs::read_to_string(path)
                .with_context(|| format!("{} can't be read", path.display()))?;
            let mut ids = ids(&text)?;
            ids.truncate(CHUNK);
            let means = Means::of(network, &[ids]);
            let means = means.with_context(|| format!("in {}", path.display()))?;
            return Ok(Some(Box::new(move |head| means.of_head(head))));
        }
        let Some(text) = &self.output_of else { return Ok(None) };
        let found = network.look(&ids(text).context("in `--output-of`")?)?.found;
        let n_heads = network.blocks[0].attention.n_heads();
        Ok(Some(Box::new(move |(block, head)| {
            let (found, d) = (&found[block], found[block].ncols() / n_heads);
            let last = found.row(found.nrows() - 1);
            last.columns(head * d, d).iter().copied().collect()
        })))
    }

    fn tell(
        &self,
        network: &Network,
        words: Option<&Words>,
        ids: &[usize],
        losses_before: Option<&[f64]>,
        (parameters, n_blocks, load): (usize, usize, f64),
    ) -> Result<()> {
        let named =
            |id: usize| words.map_or_else(|| id.to_string(), |words| words.token(id));
        let tokens: Vec<String> = ids.iter().map(|&id| named(id)).collect();
        let n_heads = network.blocks.first().map_or(0, |block| block.attention.n_heads());
        let mut told = json!({ "ids": ids });
        if words.is_some() {
            told["tokens"] = json!(tokens);
        }
        let mut out = anstream::stdout().lock();
        if !self.json {
            let name = self.file.file_name().unwrap_or(self.file.as_os_str());
            writeln!(
                out,
                "{}: {:.1} million parameters, {n_blocks} blocks of {n_heads} heads, {} different tokens; opened in {load:.1} s",
                name.display(),
                parameters as f64 / 1e6,
                network.vocabulary()
            )?;
        }
        let reads_both_ways = network.family == Family::Bert;
        if reads_both_ways {
            ensure!(self.write == 0, "a model that reads both ways doesn't write");
            if !self.json {
                writeln!(out, "\n{}", tokens.join(" "))?;
            }
        } else {
            let read = self.read(network, ids)?;
            let (top, probability) =
                (read.likeliest(), |logit: f64| (logit - read.log_sum_exp).exp());
            told["top_ids"] = json!(top.iter().map(|(id, _)| id).collect::<Vec<_>>());
            told["top_logits"] =
                json!(top.iter().map(|(_, logit)| logit).collect::<Vec<_>>());
            told["log_sum_exp"] = json!(read.log_sum_exp);
            told["losses"] = json!(read.losses);
            told["mean_loss"] = json!(mean(&read.losses));
            if let Some(before) = losses_before {
                told["losses_with_all_heads"] = json!(before);
            }
            if !self.json {
                let heading =
                    if losses_before.is_some() { "  with all heads" } else { "" };
                writeln!(out, "\n token  −log p{heading}")?;
                // The loss of a token, and what it is with all heads.
                let both = |loss: f64, before: Option<f64>| match before {
                    Some(before) => format!("{loss:7.3}  {before:14.3}"),
                    None => format!("{loss:7.3}"),
                };
                for (i, token) in tokens.iter().enumerate() {
                    let loss = i.checked_sub(1).map(|i| {
                        both(read.losses[i], losses_before.map(|before| before[i]))
                    });
                    let width = 7 + heading.len();
                    writeln!(out, "{i:6} {:width$}  {token}", loss.unwrap_or_default())?;
                }
                if !read.losses.is_empty() {
                    let loss = both(mean(&read.losses), losses_before.map(mean));
                    writeln!(out, "  mean {loss}")?;
                }
                writeln!(out, "\nWhat may come next:")?;
                for (id, logit) in top.iter().take(5) {
                    writeln!(
                        out,
                        "{:6.1} %  {}",
                        100.0 * probability(*logit),
                        named(*id)
                    )?;
                }
            }
            let (prefill, begin) = (read.seconds, Instant::now());
            let written = self.go_on(network, read, words, &mut out)?;
            let key = if self.temperature == 0.0 { "greedy" } else { "drawn" };
            told[key] = json!(written);
            let write = begin.elapsed().as_secs_f64();
            told["seconds"] = json!({ "load": load, "prefill": prefill, "write": write });
        }
        if self.heads || !self.weights.is_empty() {
            self.look(network, ids, &tokens, &mut told, &mut out)?;
        }
        if self.json {
            told["peak_bytes"] = json!(crate::peak_bytes());
            told["processor"] = json!(record::here::machine()?.processor());
            writeln!(out, "{told}")?;
        }
        Ok(())
    }

    /// Reads the text, a chunk at a time.
    fn read(&self, network: &Network, ids: &[usize]) -> Result<Read> {
        let bar = bar("reading")?;
        bar.set_length(ids.len() as u64);
        let (mut caches, mut losses, mut last) =
            (network.caches(), vec![], DMatrix::zeros(0, 0));
        let begin = Instant::now();
        for (number, chunk) in ids.chunks(CHUNK).enumerate() {
            let hidden = network.forward_cached(chunk, &mut caches)?;
            // The last token of a text has no next one.
            let next = &ids[number * CHUNK + 1..];
            let next = &next[..next.len().min(chunk.len())];
            losses.extend(network.losses_after(&hidden, next)?);
            last = network.scores(hidden.rows(chunk.len() - 1, 1))?;
            bar.inc(chunk.len() as u64);
        }
        bar.finish_and_clear();
        let seconds = begin.elapsed().as_secs_f64();
        let log_sum_exp = log_sum_exps(&last)[0];
        let scores = last.row(0).transpose();
        Ok(Read { caches, losses, log_sum_exp, scores, seconds })
    }

    /// Writes what comes next, token by token.
    fn go_on(
        &self,
        network: &Network,
        read: Read,
        words: Option<&Words>,
        out: &mut impl std::io::Write,
    ) -> Result<Vec<usize>> {
        let Read { mut caches, mut scores, .. } = read;
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let mut written = vec![];
        if self.write > 0 && !self.json {
            writeln!(out, "\nIt goes on:")?;
        }
        let mut stream = words.map(Words::stream);
        for number in 0..self.write {
            let next = match self.temperature {
                0.0 => scores.imax(),
                temperature => draw_next(&scores, temperature, &mut rng)?,
            };
            written.push(next);
            if !self.json {
                match &mut stream {
                    Some(stream) => write!(out, "{}", stream(next)?)?,
                    None => write!(out, "{next} ")?,
                }
                out.flush()?;
            }
            if number + 1 < self.write {
                let hidden = network.forward_cached(&[next], &mut caches)?;
                scores = network.scores(&hidden)?.row(0).transpose();
            }
        }
        if self.write > 0 && !self.json {
            writeln!(out)?;
        }
        Ok(written)
    }

    /// Tells what heads look at.
    fn look(
        &self,
        network: &Network,
        ids: &[usize],
        tokens: &[String],
        told: &mut serde_json::Value,
        out: &mut impl std::io::Write,
    ) -> Result<()> {
        let seen = network.look(ids)?;
        if self.heads {
            let scores = scores_of_weights(ids, &seen.weights)?;
            told["heads"] = json!(scores);
            if !self.json {
                write_heads(out, &scores)?;
            }
        }
        for &(block, head) in &self.weights {
            let weights = seen.weights.get(block).and_then(|heads| heads.get(head));
            let weights =
                weights.with_context(|| format!("there is no head {block}.{head}"))?;
            let rows =
                weights.row_iter().map(|row| row.iter().copied().collect::<Vec<f32>>());
            told["weights"][format!("{block}.{head}")] = json!(rows.collect::<Vec<_>>());
            if !self.json {
                writeln!(
                    out,
                    "\nWeights of head {block}.{head}, in hundredths; a row is a query:"
                )?;
                write_weights(out, weights, tokens)?;
            }
        }
        Ok(())
    }
}

/// What reading a text leaves.
struct Read {
    caches: Vec<attention::KeyValueCache<f32>>,
    losses: Vec<f64>,
    /// Of the token after the last (vocabulary, 1).
    scores: DVector<f32>,
    log_sum_exp: f64,
    seconds: f64,
}

impl Read {
    /// Returns the likeliest next tokens with their scores, the likeliest first.
    fn likeliest(&self) -> Vec<(usize, f64)> {
        let mut order: Vec<usize> = (0..self.scores.len()).collect();
        order.sort_by(|&a, &b| self.scores[b].total_cmp(&self.scores[a]));
        order.into_iter().take(LIKELIEST).map(|id| (id, self.scores[id].into())).collect()
    }
}

fn mean(losses: &[f64]) -> f64 {
    losses.iter().sum::<f64>() / losses.len() as f64
}

/// Progress, where somebody sees it.
fn bar(what: &'static str) -> Result<ProgressBar> {
    if !std::io::stderr().is_terminal() {
        return Ok(ProgressBar::hidden());
    }
    let bar = ProgressBar::new(0).with_message(what);
    bar.set_style(ProgressStyle::with_template(
        "{msg} {bar:30} {pos} of {len}, {elapsed}",
    )?);
    Ok(bar)
}

/// A share in two digits, on a ground that is the darker the larger it is. Where nothing is coloured, the digits remain.
fn cell(out: &mut impl std::io::Write, share: f32) -> Result<()> {
    let mix = |from: f32, to: f32| (from + (to - from) * share.clamp(0.0, 1.0)) as u8;
    let ground = anstyle::RgbColor(mix(247.0, 8.0), mix(251.0, 48.0), mix(255.0, 107.0));
    let ink = if share > 0.5 {
        anstyle::RgbColor(255, 255, 255)
    } else {
        anstyle::RgbColor(30, 30, 30)
    };
    let style =
        anstyle::Style::new().fg_color(Some(ink.into())).bg_color(Some(ground.into()));
    match (100.0 * share).round() as u32 {
        0 => write!(out, "{style}  ·{style:#}")?,
        hundredths => write!(out, "{style}{hundredths:3}{style:#}")?,
    }
    Ok(())
}

/// The scores of all heads: a map for each, blocks downwards, heads to the right.
fn write_heads(out: &mut impl std::io::Write, scores: &[Vec<HeadScores>]) -> Result<()> {
    type Score = fn(&HeadScores) -> f32;
    let maps: [(&str, Score); 4] = [
        ("itself", |scores| scores.itself),
        ("the token before", |scores| scores.previous),
        ("the first token", |scores| scores.first),
        ("behind a copy", |scores| scores.after_copy),
    ];
    writeln!(
        out,
        "\nWhere the weight of each head goes, in hundredths; rows are blocks:"
    )?;
    let width = 3 * scores.first().map_or(0, Vec::len);
    write!(out, "   ")?;
    for (name, _) in &maps {
        write!(out, "  {name:width$}")?;
    }
    writeln!(out)?;
    for (block, heads) in scores.iter().enumerate() {
        write!(out, "{block:3}")?;
        for (_, score) in &maps {
            write!(out, "  ")?;
            heads.iter().try_for_each(|head| cell(out, score(head)))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn write_weights(
    out: &mut impl std::io::Write,
    weights: &DMatrix<f32>,
    tokens: &[String],
) -> Result<()> {
    let width = tokens.iter().map(|token| token.chars().count()).max().unwrap_or(0);
    for (i, (row, token)) in weights.row_iter().zip(tokens).enumerate() {
        write!(out, "{i:4} {token}{} ", " ".repeat(width - token.chars().count()))?;
        row.iter().try_for_each(|&weight| cell(out, weight))?;
        writeln!(out)?;
    }
    Ok(())
}

/// A model's tokenizer, if this program was built with one.
#[cfg(feature = "tokenizer")]
struct Words(tokenizers::Tokenizer);

#[cfg(feature = "tokenizer")]
impl Words {
    fn new(tokenizer: Result<Vec<u8>>) -> Result<Self> {
        let tokenizer =
            tokenizer.context("the model's tokenizer can't be used: give it --ids")?;
        let mut tokenizer =
            tokenizers::Tokenizer::from_bytes(tokenizer).map_err(|error| {
                anyhow::anyhow!("the model's tokenizer can't be used: {error}")
            })?;
        // Some files ask for texts of one length.
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| anyhow::anyhow!("{error}"))?;
        Ok(Words(tokenizer))
    }

    fn ids(&self, text: &str) -> Result<Vec<usize>> {
        let encoding = self.0.encode(text, true);
        let encoding = encoding
            .map_err(|error| anyhow::anyhow!("the text can't be read: {error}"))?;
        Ok(encoding.get_ids().iter().map(|&id| id as usize).collect())
    }

    fn token(&self, id: usize) -> String {
        let token = u32::try_from(id).ok().and_then(|id| self.0.id_to_token(id));
        token.unwrap_or_else(|| format!("[{id}]"))
    }

    /// Turns tokens into text as they come: several may be one letter.
    fn stream(&self) -> impl FnMut(usize) -> Result<String> {
        let mut stream = self.0.decode_stream(false);
        move |id| {
            let text = stream.step(u32::try_from(id)?);
            Ok(text.map_err(|error| anyhow::anyhow!("{error}"))?.unwrap_or_default())
        }
    }
}

#[cfg(not(feature = "tokenizer"))]
struct Words(std::convert::Infallible);

#[cfg(not(feature = "tokenizer"))]
impl Words {
    fn new(_: Result<Vec<u8>>) -> Result<Self> {
        anyhow::bail!(
            "this program was built without tokenizers: run it as `cargo run --release -p model --features tokenizer -- open …`, or give it --ids"
        );
    }

    fn ids(&self, _: &str) -> Result<Vec<usize>> {
        match self.0 {}
    }

    fn token(&self, _: usize) -> String {
        match self.0 {}
    }

    fn stream(&self) -> impl FnMut(usize) -> Result<String> {
        |_| match self.0 {}
    }
}
