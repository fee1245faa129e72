//! Tests of what the chapter says of its numbers.

use super::task::{BACK, Model, Positions, TRAINED};
use attention::Rotary;
use attention::positions::{RotaryPairs, sinusoidal_positions};
use nalgebra::DMatrix;

#[test]
fn waves_and_angles_give_the_same_sum_of_cosines() {
    let waves = sinusoidal_positions::<f64>(65, 64).unwrap();
    let rotary = Rotary::new(10_000.0, RotaryPairs::Neighbours).unwrap();
    // As in the waves, each pair has the length 1.
    let turned = rotary.turn(&DMatrix::repeat(65, 64, 0.5_f64.sqrt()), 1, 0).unwrap();
    for i in 0..65 {
        let [wave, angle] = [&waves, &turned].map(|rows| rows.row(0).dot(&rows.row(i)));
        assert!((wave - angle).abs() < 1e-10 && wave <= 32.0, "{i}");
    }
}

/// What the list below the table says, way by way.
#[test]
fn some_positions_carry_over_to_longer_texts() {
    let losses = |model: &Model| {
        [TRAINED, 2 * TRAINED, 8 * TRAINED].map(|n| model.loss(n).unwrap())
    };
    let [none, learned, sinusoidal, alibi, table, rotary] =
        Model::all_trained().iter().map(losses).collect::<Vec<_>>()[..]
    else {
        panic!()
    };
    assert!(none[0] > 0.8 && alibi[0] > 0.8);
    assert!(learned[0] < 0.01 && learned[1] > 1.0 && learned[2] > 1.0);
    assert!(sinusoidal[0] < 0.01 && sinusoidal[1] > 0.2);
    assert!(table[1] < 0.02 && rotary[1] < 0.02);
    assert!(table[2] > table[1] && rotary[2] > rotary[1] + 0.1);
}

/// The table learns where to look: its largest entry is at the distance that the task asks for.
#[test]
fn the_largest_bias_is_that_of_the_third_token_back() {
    let table = Positions::ALL.iter().position(|way| *way == Positions::Table).unwrap();
    let biases = Model::all_trained()[table].largest_biases();
    assert!(biases.contains(&(BACK as isize)), "{biases:?}");
}
