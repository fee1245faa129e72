//! A training that is killed goes on as if nothing had happened.

use model::{Repeated, Run, Trained, Training};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt as _, SeedableRng as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{fs, thread};

const STEPS: u64 = 60;
const SAVE_EVERY: u64 = 5;

fn train(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_model"));
    let (steps, every) = (STEPS.to_string(), SAVE_EVERY.to_string());
    command.args(["train", "repeated", "--steps", &steps, "--save-every", &every]);
    command.arg("--folder").arg(folder).stderr(Stdio::null());
    command
}

/// Killed at 20 random moments, it loses no more than the steps since it was last saved, and ends with the same bits.
#[test]
fn a_training_that_is_killed_twenty_times_ends_with_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let (whole, killed) = (folder.path().join("whole"), folder.path().join("killed"));
    assert!(train(&whole).status().unwrap().success());

    let file = killed.join("training.json");
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    let (mut kills, mut reached) = (0, 0);
    while kills < 20 {
        let mut running = train(&killed).spawn().unwrap();
        thread::sleep(Duration::from_millis(rng.random_range(0..400)));
        let ended = running.try_wait().unwrap().is_some();
        running.kill().unwrap();
        running.wait().unwrap();
        if file.exists() {
            let steps = Training::open(&file, &Repeated::OF_BOOK).unwrap().steps();
            assert!(steps >= reached && steps.is_multiple_of(SAVE_EVERY), "{steps}");
            reached = steps;
        }
        if ended {
            // It reached the end before it was killed: from the beginning again.
            assert_eq!(
                fs::read(&file).unwrap(),
                fs::read(whole.join("training.json")).unwrap()
            );
            fs::remove_file(&file).unwrap();
            reached = 0;
        } else {
            kills += 1;
        }
    }
    assert!(train(&killed).status().unwrap().success());
    assert_eq!(fs::read(&file).unwrap(), fs::read(whole.join("training.json")).unwrap());
}

#[test]
fn what_was_trained_is_read_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    assert!(train(folder.path()).status().unwrap().success());
    let training =
        Training::open(&folder.path().join("training.json"), &Repeated::OF_BOOK).unwrap();
    let run = Run {
        date: "2026-11-26T12:00:00Z".to_owned(),
        processor: "a processor".to_owned(),
        threads: 2,
        seconds: 1.5,
        peak_bytes: None,
    };
    let trained = Trained::new(training, run, ('ß'..).take(64).collect());
    trained.save(folder.path(), "it").unwrap();
    assert_eq!(Trained::open(folder.path(), "it").unwrap(), trained);

    let weights = folder.path().join("it.f32");
    let bytes = fs::read(&weights).unwrap();
    fs::write(&weights, &bytes[1..]).unwrap();
    let said = Trained::open(folder.path(), "it").unwrap_err().to_string();
    assert!(said.starts_with("it.f32 has"), "{said}");
}

/// As many different characters, and so the same sizes. The text changes where it is held out, or only where it is learned from.
#[test]
fn another_text_is_no_text_to_go_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let run = |lines: &str, arguments: &[&str]| {
        let text = folder.path().join("text");
        fs::write(&text, lines).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_model"));
        command.args(arguments);
        command.arg("--text").arg(text).arg("--folder").arg(folder.path().join("to"));
        command.output().unwrap()
    };
    let train =
        |lines: &str| run(lines, &["train", "book", "--steps", "1", "--save-every", "1"]);
    let write =
        |prompt: &str, lines: &str| run(lines, &["write", prompt, "--characters", "5"]);
    let said = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();

    let text = "abc\n".repeat(8000);
    assert!(train(&text).status.success());
    let file = folder.path().join("to/training.json");
    let before = fs::read(&file).unwrap();
    let first_line_changed = text.replacen("abc", "cba", 1);
    for other in [
        "aacb\n".repeat(8000),
        first_line_changed,
        "ABC\n".repeat(8000),
        "a\n".repeat(9000),
    ] {
        for run in [train(&other), write("a", &other), write("A", &other)] {
            assert!(!run.status.success());
            let words = said(&run.stderr);
            assert!(words.contains("it was trained on other texts"), "{words}");
            assert!(run.stdout.is_empty());
        }
        assert_eq!(fs::read(&file).unwrap(), before);
    }
    assert!(train(&text).status.success());
    let written = write("ab", &text);
    let words = said(&written.stdout);
    assert!(
        written.status.success() && words.starts_with("ab") && words.len() > 7,
        "{words}"
    );
    let unknown = write("aX", &text);
    assert!(!unknown.status.success() && unknown.stdout.is_empty());
    assert!(said(&unknown.stderr).contains("'X' is not in the model's alphabet"));
}

#[test]
fn a_file_that_is_no_training_and_a_folder_in_use_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("training.json");
    fs::write(&file, "{}").unwrap();
    let said = train(folder.path()).stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("training.json is no training to go on with"), "{said}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "{}"); // left as it was

    let lock = fs::File::create(folder.path().join("lock")).unwrap();
    lock.lock().unwrap();
    let said = train(folder.path()).stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8(said.stderr).unwrap();
    assert!(said.contains("another program is training in"), "{said}");
}
