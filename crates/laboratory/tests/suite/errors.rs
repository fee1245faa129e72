//! Misuse is an error that names the argument, and never a panic.

use crate::foreign::Foreign;
use crate::support::{blame, parameters, random};
use attention::{
    AttentionCache, Error, Mask, MultiHeadAttention, NamedParameters, Result,
};
use laboratory::cost::AttentionShape;
use laboratory::traffic::{
    self, Memory, SlowMatrix, chunked_attention, fused_attention, naive_attention,
    naive_attention_backward, strip_for, tiled_attention, tiled_attention_backward,
    tiles_for, tiles_for_backward,
};
use laboratory::{
    AttentionLayer, DecodingLayer, Fault, Patient, PatientKeyValues, diagnose,
    diagnose_chunks,
};
use nalgebra::DMatrix;

fn matrix((rows, columns): (usize, usize)) -> DMatrix<f64> {
    random(rows, columns, 0)
}

fn valid(entries: usize) -> Mask {
    Mask::padding(&vec![true; entries]).unwrap()
}

// ---------------------------------------------------------------------------------------------------- traffic

/// The words, once a variant.
#[test]
fn every_variant_of_traffic_has_its_words() {
    let memory = Memory::new(5);
    let elsewhere = Memory::new(100);
    let x = memory.put("x", matrix((2, 4)));
    let k = elsewhere.put("k", matrix((2, 4)));
    for (error, words) in [
        (
            memory.tile(3, 2).unwrap_err(),
            "`tile` is 3 x 2 but that needs room for 6 numbers, and fast memory has 5 free of 5",
        ),
        (x.load(1..3, 0..4).unwrap_err(), "`rows` is 1..3 but `x` ends at row 2"),
        (
            naive_attention(&memory, [&x, &k, &x], Mask::none()).unwrap_err(),
            "`k` is in the slow memory of another machine but it must be in that of `memory`",
        ),
        (
            memory.allocate("y", 0, 4).unwrap_err(),
            "`rows` is 0 but it must be at least 1",
        ),
    ] {
        assert_eq!(error.to_string(), words);
        assert_eq!(format!("{error:?}"), words);
    }
}

/// The variant, and the argument that it blames.
#[track_caller]
fn assert_blames<R>(result: traffic::Result<R>, expected: &str) {
    let blamed = match result.map(|_| ()).unwrap_err() {
        traffic::Error::FastMemory { argument, .. } => format!("FastMemory {argument}"),
        traffic::Error::OutOfBounds { argument, .. } => format!("OutOfBounds {argument}"),
        traffic::Error::Elsewhere { argument } => format!("Elsewhere {argument}"),
        traffic::Error::Attention(error) => blame(&error),
        other => panic!("{other}"),
    };
    assert_eq!(blamed, expected);
}

/// Sizes whose products fit no `usize` are refused, too.
#[test]
fn what_does_not_fit_the_machine() {
    const ABSURD: usize = 1 << 50; // no memory holds as many numbers
    let memory = Memory::<f64>::new(20);
    assert_blames(memory.tile(usize::MAX, 2), "FastMemory tile");
    assert_blames(Memory::<f64>::new(usize::MAX).tile(ABSURD, 4), "NoMemory rows");
    assert_blames(memory.allocate("a", ABSURD, ABSURD), "NoMemory columns");
    let mut a = memory.put("a", matrix((3, 2)));
    assert_blames(a.load(0..1, 3..3), "OutOfBounds columns");
    assert_blames(a.store((2, 0), &memory.tile(2, 1).unwrap()), "OutOfBounds rows");
    let [square, wide] = [(2, 2), (2, 3)].map(|(n, d)| memory.tile(n, d).unwrap());
    let mut tile = memory.tile(1, 2).unwrap();
    assert_blames(tile.add_product(&wide, &square), "Shape b");
    assert_blames(tile.add_product_tr(&square, &square), "Shape tile");
    assert_blames(tile.add_tr_product(&square, &square), "Shape tile");
    assert_blames(strip_for(12, usize::MAX, usize::MAX, 1), "FastMemory capacity");
    assert_blames(tiles_for(usize::MAX, usize::MAX, usize::MAX), "FastMemory capacity");
    assert_blames(tiles_for_backward(21, 3, 2), "FastMemory capacity");
}

type Program = for<'m> fn(
    &'m Memory<f64>,
    [&SlowMatrix<'m, f64>; 3],
    Mask,
) -> traffic::Result<(SlowMatrix<'m, f64>, SlowMatrix<'m, f64>)>;

#[test]
fn what_does_not_fit_a_forward_pass() {
    let programs: [Program; 4] = [
        naive_attention,
        fused_attention,
        |memory, inputs, mask| chunked_attention(memory, inputs, mask, 2),
        |memory, inputs, mask| tiled_attention(memory, inputs, mask, (2, 3)),
    ];
    for program in programs {
        let run = |capacity, shapes: [(usize, usize); 3], mask| {
            let memory = Memory::new(capacity);
            let [q, k, v] = shapes.map(|shape| memory.put("", matrix(shape)));
            program(&memory, [&q, &k, &v], mask).map(drop)
        };
        assert_blames(run(100, [(0, 3), (4, 3), (4, 2)], Mask::none()), "Empty q");
        assert_blames(run(100, [(2, 3), (4, 2), (4, 2)], Mask::none()), "Shape k");
        assert_blames(run(100, [(2, 3), (4, 3), (5, 2)], Mask::none()), "Shape v");
        assert_blames(run(100, [(4, 3); 3], valid(2)), "Shape valid");
    }
    let memory = Memory::new(50);
    let x = memory.put("x", matrix((7, 3)));
    let none = Mask::none;
    assert_blames(chunked_attention(&memory, [&x; 3], none(), 0), "Zero strip");
    assert_blames(chunked_attention(&memory, [&x; 3], none(), 7), "FastMemory strip");
    assert_blames(tiled_attention(&memory, [&x; 3], none(), (0, 3)), "Zero tiles.0");
    assert_blames(tiled_attention(&memory, [&x; 3], none(), (4, 2)), "FastMemory tiles");
}

#[test]
fn what_does_not_fit_a_backward_pass() {
    let memory = Memory::new(100);
    let put = |shape| memory.put("", matrix(shape));
    let [q, k, v] = [(2, 3), (4, 3), (4, 2)].map(put);
    let [weights, lse, output, other] = [(2, 4), (2, 1), (2, 2), (3, 4)].map(put);
    let naive =
        |weights, grad| naive_attention_backward(&memory, [&q, &k, &v], weights, grad);
    assert_blames(naive(&other, &output), "Shape weights");
    assert_blames(naive(&weights, &other), "Shape grad_output");
    let tiled = |saved, grad, mask, tiles| {
        tiled_attention_backward(&memory, [&q, &k, &v], saved, grad, mask, tiles)
    };
    assert_blames(tiled([&other, &lse], &output, Mask::none(), (2, 2)), "Shape output");
    assert_blames(
        tiled([&output, &other], &output, Mask::none(), (2, 2)),
        "Shape log_sum_exp",
    );
    assert_blames(
        tiled([&output, &lse], &other, Mask::none(), (2, 2)),
        "Shape grad_output",
    );
    assert_blames(tiled([&output, &lse], &output, valid(2), (2, 2)), "Shape valid");
    assert_blames(tiled([&output, &lse], &output, Mask::none(), (2, 0)), "Zero tiles.1");
}

// ---------------------------------------------------------------------------------------------------- layers

/// The variant and the argument that it blames.
fn blamed<R>(result: Result<R>) -> String {
    blame(&result.map(|_| ()).unwrap_err())
}

#[test]
fn a_roofline_of_nothing() {
    let shape = AttentionShape::self_attention(1, 8, 64, 64, 1);
    assert_eq!(blamed(laboratory::roofline::steps(&shape, 0)), "Zero element");
}

/// d_model = 4, two heads.
fn multi_head() -> MultiHeadAttention<f64> {
    MultiHeadAttention::from_parameters(parameters(4, 4, 4, 0), 2).unwrap()
}

/// A layer of someone else's may return anything.
#[test]
fn what_does_not_fit_the_examined_layer() {
    let examine = |layer: &Foreign, shape, mask| {
        blamed(diagnose(layer, &matrix(shape), None, mask))
    };
    let healthy = || Foreign::healthy(multi_head());
    assert_eq!(examine(&healthy(), (6, 3), Mask::none()), "Shape x");
    assert_eq!(examine(&healthy(), (0, 4), Mask::none()), "Empty x");
    assert_eq!(examine(&healthy(), (3, 4), valid(2)), "Shape valid");
    let ill = Foreign { output: |output| *output = matrix((2, 4)), ..healthy() };
    assert_eq!(examine(&ill, (3, 4), Mask::none()), "Shape output");
    for (heads, expected) in [
        (
            (|heads: &mut Vec<AttentionCache<f64>>| drop(heads.pop())) as fn(&mut Vec<_>),
            "Shape w_q",
        ),
        (|heads| heads[1].v = matrix((3, 3)), "Shape w_v"),
        (|heads| heads[0].k = matrix((2, 2)), "Shape cache.k"),
        (|heads| heads[0].weights = matrix((3, 2)), "Shape cache.weights"),
    ] {
        let ill = Foreign { heads, ..healthy() };
        assert_eq!(examine(&ill, (3, 4), Mask::none()), expected);
    }
    let ill = Foreign { gradients: |g| g.x = matrix((2, 4)), ..healthy() };
    assert_eq!(examine(&ill, (3, 4), Mask::none()), "Shape gradients.x");
    let ill = Foreign { gradients: |g| g.parameters.w_k = matrix((3, 4)), ..healthy() };
    assert_eq!(examine(&ill, (3, 4), Mask::none()), "`w_k`: Shape gradients");
}

#[test]
fn what_does_not_fit_a_text_in_chunks() {
    let patient = Patient::new(multi_head(), Fault::PositionOfTheChunk).unwrap();
    for (shape, expected) in [((6, 3), "Shape x"), ((0, 4), "Empty x")] {
        let x = matrix(shape);
        assert_eq!(blamed(diagnose_chunks(&multi_head(), &x)), expected);
        assert_eq!(blamed(diagnose_chunks(&patient, &x)), expected);
        let mut cached = PatientKeyValues::default();
        assert_eq!(blamed(patient.forward_cached(&x, &mut cached)), expected);
        assert_eq!(cached.tokens(), 0);
    }
}

#[test]
fn what_does_not_fit_a_patient() {
    let patient = |change: fn(&mut MultiHeadAttention<f64>)| {
        let mut layer = multi_head();
        change(&mut layer);
        Patient::new(layer, Fault::DeadHead)
    };
    assert_eq!(
        blamed(patient(|layer| layer.parameters = parameters(4, 2, 4, 0).into())),
        "Shape w_q"
    );
    let without_biases = |layer: &mut MultiHeadAttention<f64>| {
        layer.parameters = layer.parameters.clone().into_inner().without_biases().into();
    };
    assert_eq!(
        patient(without_biases).unwrap_err().to_string(),
        "`b_q` has 0 columns but a patient has biases of d_model = 4"
    );
    assert_eq!(
        Patient::new(multi_head(), Fault::AlibiAdded).unwrap_err().to_string(),
        "`fault` is alibi-added but a patient has one of `Patient::FAULTS`"
    );
    let mut patient = patient(|_| ()).unwrap();
    let (output, cache) = patient.forward(&matrix((3, 4)), None, Mask::none()).unwrap();
    assert_eq!(blamed(patient.backward(&cache, &matrix((2, 4)))), "Shape grad_output");
    let gradients = patient.backward(&cache, &output).unwrap();
    patient.step(&gradients.parameters, 0.1).unwrap();
    let result = patient.backward(&cache, &output);
    assert!(matches!(result, Err(Error::Value { argument: "cache", .. })));
}
