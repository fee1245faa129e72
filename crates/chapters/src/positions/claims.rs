//! Tests of what the chapter says of its numbers.

use super::facts;
use super::task::{BACK, Model, Positions, TRAINED};

#[test]
fn waves_and_angles_give_the_same_curve() {
    let (waves, turned) =
        (facts::product_of_waves().unwrap(), facts::product_of_turned().unwrap());
    for (a, b) in waves.iter().zip(&turned) {
        assert!((a - b).abs() < 1e-12);
    }
    // Neighbours have the largest product.
    assert!(waves[1] < 1.0 && waves[1..].iter().all(|&product| product <= waves[1]));
}

#[test]
fn sixteen_bits_lose_a_position() {
    let (exact, rounded) = facts::cosines(257).unwrap();
    assert!((exact - 257_f64.cos()).abs() < 1e-15);
    assert!((rounded - 256_f64.cos()).abs() < 1e-15);
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
