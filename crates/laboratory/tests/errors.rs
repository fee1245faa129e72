//! Misuse is an error that names the argument, and never a panic.

#[path = "support/foreign.rs"]
mod foreign;

use attention::testing::{blame, heads_of, parameters, random};
use attention::{
    AttentionShape, Error, Mask, MultiHeadAttention, MultiHeadCache, NamedParameters,
    Result,
};
use foreign::Foreign;
use laboratory::traffic::{
    self, Memory, SlowMatrix, chunked_attention, fused_attention, naive_attention,
    naive_attention_backward, strip_for, tiled_attention, tiled_attention_backward,
    tiles_for, tiles_for_backward,
};
use laboratory::{AttentionLayer, Fault, Patient, diagnose};
use nalgebra::{DMatrix, RowDVector};

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

/// The variant, the argument that it blames, and the numbers of room that are needed.
fn blame_traffic(error: &traffic::Error) -> String {
    match error {
        traffic::Error::FastMemory { argument, needed, .. } => {
            format!("FastMemory {argument} {needed}")
        }
        traffic::Error::OutOfBounds { argument, .. } => format!("OutOfBounds {argument}"),
        traffic::Error::Elsewhere { argument } => format!("Elsewhere {argument}"),
        traffic::Error::Attention(error) => blame(error),
        other => panic!("{other}"),
    }
}

#[track_caller]
fn assert_blames<R>(result: traffic::Result<R>, expected: &str) {
    assert_eq!(
        result.map(|_| ()).map_err(|error| blame_traffic(&error)),
        Err(expected.to_owned())
    );
}

#[test]
fn what_does_not_fit_the_machine() {
    const ABSURD: usize = 1 << 50; // no memory holds as many numbers
    let memory = Memory::<f64>::new(10);
    assert_blames(
        memory.tile(usize::MAX, 2),
        &format!("FastMemory tile {}", 2 * usize::MAX as u128),
    );
    assert_blames(Memory::<f64>::new(usize::MAX).tile(ABSURD, 4), "NoMemory rows");
    assert_blames(memory.allocate("a", 4, 0), "Zero columns");
    assert_blames(memory.allocate("a", ABSURD, ABSURD), "NoMemory columns");
    assert_blames(memory.put("a", matrix((5, 5))).load(0..3, 1..5), "FastMemory tile 12");

    let mut a = memory.put("a", matrix((3, 2)));
    #[expect(clippy::reversed_empty_ranges, reason = "a caller may give one")]
    let reversed = 2..1;
    assert_blames(a.load(1..4, 0..2), "OutOfBounds rows");
    assert_blames(a.load(reversed, 0..2), "OutOfBounds rows");
    assert_blames(a.load(0..1, 3..3), "OutOfBounds columns");
    assert_blames(a.store((2, 0), &memory.tile(2, 1).unwrap()), "OutOfBounds rows");
    assert_blames(a.store((0, 1), &memory.tile(1, 2).unwrap()), "OutOfBounds columns");
}

/// The shapes of `a`, `b` and the tile.
#[test]
fn products_that_do_not_fit() {
    let memory = Memory::<f64>::new(100);
    for (product, shapes, expected) in [
        ("a b", [(2, 3), (4, 2), (2, 2)], "Shape b"),
        ("a b", [(2, 3), (3, 2), (3, 2)], "Shape tile"),
        ("a b", [(2, 3), (3, 2), (2, 1)], "Shape tile"),
        ("a bᵀ", [(2, 3), (2, 4), (2, 2)], "Shape b"),
        ("a bᵀ", [(2, 3), (2, 3), (3, 2)], "Shape tile"),
        ("a bᵀ", [(2, 3), (2, 3), (2, 1)], "Shape tile"),
        ("aᵀ b", [(3, 2), (4, 2), (2, 2)], "Shape b"),
        ("aᵀ b", [(3, 2), (3, 2), (3, 2)], "Shape tile"),
        ("aᵀ b", [(3, 2), (3, 2), (2, 1)], "Shape tile"),
    ] {
        let [a, b, mut tile] =
            shapes.map(|(rows, columns)| memory.tile(rows, columns).unwrap());
        let result = match product {
            "a b" => tile.add_product(&a, &b),
            "a bᵀ" => tile.add_product_tr(&a, &b),
            _ => tile.add_tr_product(&a, &b),
        };
        assert_blames(result, expected);
    }
}

type Program = for<'m> fn(
    &'m Memory<f64>,
    [&SlowMatrix<'m, f64>; 3],
    Mask,
) -> traffic::Result<(SlowMatrix<'m, f64>, SlowMatrix<'m, f64>)>;

#[test]
fn what_does_not_fit_a_forward_pass() {
    let step_by_step: [Program; 2] = [naive_attention, fused_attention];
    let in_parts: [Program; 2] = [
        |memory, inputs, mask| chunked_attention(memory, inputs, mask, 2),
        |memory, inputs, mask| tiled_attention(memory, inputs, mask, (2, 3)),
    ];
    let run = |program: Program, capacity, shapes: [(usize, usize); 3], mask| {
        let memory = Memory::new(capacity);
        let [q, k, v] = shapes.map(|shape| memory.put("", matrix(shape)));
        program(&memory, [&q, &k, &v], mask).map(drop)
    };
    for program in step_by_step.into_iter().chain(in_parts) {
        for (shapes, expected) in [
            ([(0, 3), (4, 3), (4, 2)], "Empty q"),
            ([(2, 3), (4, 2), (4, 2)], "Shape k"),
            ([(2, 3), (4, 3), (5, 2)], "Shape v"),
        ] {
            assert_blames(run(program, 100, shapes, Mask::none()), expected);
        }
        assert_blames(run(program, 100, [(4, 3); 3], valid(2)), "Shape valid");
        let (here, there) = (Memory::new(100), Memory::new(100));
        let [x, y] = [&here, &there].map(|memory| memory.put("", matrix((4, 3))));
        assert_blames(program(&here, [&x, &y, &x], Mask::none()), "Elsewhere k");
        assert_blames(program(&here, [&x, &x, &y], Mask::none()), "Elsewhere v");
    }
    for program in step_by_step {
        for shapes in [[(2, 5), (4, 5), (4, 2)], [(2, 3), (4, 3), (4, 5)]] {
            assert_blames(
                run(program, 10, shapes, Mask::none()),
                "FastMemory capacity 11",
            );
        }
    }
}

/// With 40 numbers free of 50.
#[test]
fn strips_and_tiles_that_do_not_fit() {
    let memory = Memory::new(50);
    let x = memory.put("x", matrix((7, 3)));
    let _taken = memory.tile(1, 10).unwrap();
    for (strip, expected) in [
        (0, "Zero strip"),
        (4, "FastMemory strip 43"),
        (usize::MAX, "FastMemory strip 73"),
    ] {
        assert_blames(chunked_attention(&memory, [&x; 3], Mask::none(), strip), expected);
    }
    for (tiles, expected) in [
        ((0, 3), "Zero tiles.0"),
        ((3, 0), "Zero tiles.1"),
        ((4, 2), "FastMemory tiles 52"),
        ((usize::MAX, usize::MAX), "FastMemory tiles 147"),
    ] {
        assert_blames(tiled_attention(&memory, [&x; 3], Mask::none(), tiles), expected);
    }
}

#[test]
fn sizes_for_which_there_are_no_strips_or_tiles() {
    assert_blames(strip_for(100, 0, 3, 3), "Zero n_k");
    assert_blames(strip_for(100, 7, 0, 3), "Zero d_k");
    assert_blames(strip_for(100, 7, 3, 0), "Zero d_v");
    assert_blames(strip_for(12, 7, 3, 2), "FastMemory capacity 13");
    let needed = 3 * usize::MAX as u128;
    assert_blames(
        strip_for(12, usize::MAX, usize::MAX, 1),
        &format!("FastMemory capacity {needed}"),
    );
    for (choose, least) in [(tiles_for as fn(_, _, _) -> _, 13), (tiles_for_backward, 22)]
    {
        assert_blames(choose(100, 0, 2), "Zero d_k");
        assert_blames(choose(100, 3, 0), "Zero d_v");
        assert_blames(choose(least - 1, 3, 2), &format!("FastMemory capacity {least}"));
    }
    let needed = 4 * usize::MAX as u128 + 3;
    assert_blames(
        tiles_for(usize::MAX, usize::MAX, usize::MAX),
        &format!("FastMemory capacity {needed}"),
    );
}

#[test]
fn what_does_not_fit_a_naive_backward_pass() {
    for (shapes, expected) in [
        ([(2, 3), (4, 2), (4, 2), (2, 4), (2, 2)], "Shape k"),
        ([(2, 3), (4, 3), (5, 2), (2, 4), (2, 2)], "Shape v"),
        ([(2, 3), (4, 3), (4, 2), (3, 4), (2, 2)], "Shape weights"),
        ([(2, 3), (4, 3), (4, 2), (2, 4), (2, 3)], "Shape grad_output"),
        ([(2, 5), (4, 5), (4, 2), (2, 4), (2, 2)], "FastMemory capacity 11"),
    ] {
        let memory = Memory::new(10);
        let [q, k, v, weights, g] = shapes.map(|shape| memory.put("", matrix(shape)));
        let result = naive_attention_backward(&memory, [&q, &k, &v], &weights, &g);
        assert_blames(result, expected);
    }
    let (here, there) = (Memory::new(10), Memory::new(10));
    let [x, g] = [&here, &there].map(|memory| memory.put("", matrix((3, 3))));
    let result = naive_attention_backward(&here, [&x; 3], &x, &g);
    assert_blames(result, "Elsewhere grad_output");
}

/// Runs the backward pass on queries, keys, values, output, log-sum-exp and the gradient of the output.
fn tiled_backward<'m>(
    memory: &'m Memory<f64>,
    [q, k, v, o, lse, g]: [&SlowMatrix<'m, f64>; 6],
    mask: Mask,
    tiles: (usize, usize),
) -> traffic::Result<()> {
    tiled_attention_backward(memory, [q, k, v], [o, lse], g, mask, tiles).map(drop)
}

#[test]
fn what_does_not_fit_a_tiled_backward_pass() {
    for (shapes, expected) in [
        ([(2, 3), (4, 2), (4, 2), (2, 2), (2, 1), (2, 2)], "Shape k"),
        ([(2, 3), (4, 3), (5, 2), (2, 2), (2, 1), (2, 2)], "Shape v"),
        ([(2, 3), (4, 3), (4, 2), (2, 3), (2, 1), (2, 2)], "Shape output"),
        ([(2, 3), (4, 3), (4, 2), (2, 2), (1, 2), (2, 2)], "Shape log_sum_exp"),
        ([(2, 3), (4, 3), (4, 2), (2, 2), (2, 1), (3, 2)], "Shape grad_output"),
    ] {
        let memory = Memory::new(100);
        let matrices = shapes.map(|shape| memory.put("", matrix(shape)));
        assert_blames(
            tiled_backward(&memory, matrices.each_ref(), Mask::none(), (2, 2)),
            expected,
        );
    }
    let (here, there) = (Memory::new(100), Memory::new(100));
    let of = |memory, columns| Memory::put(memory, "", matrix((7, columns)));
    let [x, lse] = [3, 1].map(|columns| of(&here, columns));
    let [other, other_lse] = [3, 1].map(|columns| of(&there, columns));
    for (argument, matrices) in [
        ("k", [&x, &other, &x, &x, &lse, &x]),
        ("output", [&x, &x, &x, &other, &lse, &x]),
        ("log_sum_exp", [&x, &x, &x, &x, &other_lse, &x]),
        ("grad_output", [&x, &x, &x, &x, &lse, &other]),
    ] {
        let expected = format!("Elsewhere {argument}");
        assert_blames(tiled_backward(&here, matrices, Mask::none(), (1, 1)), &expected);
    }
    let _taken = here.tile(1, 10).unwrap();
    for (tiles, mask, expected) in [
        ((0, 3), Mask::none(), "Zero tiles.0"),
        ((3, 0), Mask::none(), "Zero tiles.1"),
        ((4, 3), Mask::none(), "FastMemory tiles 104"),
        ((2, 2), valid(2), "Shape valid"),
    ] {
        assert_blames(
            tiled_backward(&here, [&x, &x, &x, &x, &lse, &x], mask, tiles),
            expected,
        );
    }
}

// ---------------------------------------------------------------------------------------------------- layers

/// The variant and the argument that it blames.
fn blamed<R>(result: Result<R>) -> String {
    blame(&result.map(|_| ()).unwrap_err())
}

#[test]
fn a_roofline_of_nothing() {
    let steps = |tokens, element| {
        let shape = AttentionShape::self_attention(1, tokens, 64, 64, 1);
        laboratory::roofline::steps(&shape, element)
    };
    assert_eq!(blamed(steps(0, 4)), "Zero n_q");
    assert_eq!(blamed(steps(8, 0)), "Zero element");
}

/// d_model = 4, two heads.
fn multi_head() -> MultiHeadAttention<f64> {
    MultiHeadAttention::from_parameters(parameters(4, 4, 4, 0), 2).unwrap()
}

#[test]
fn inputs_that_do_not_fit_the_examined_layer() {
    let patient = Patient::new(multi_head(), Fault::WrongAxis).unwrap();
    assert_eq!(
        blamed(diagnose(&multi_head(), &matrix((6, 3)), None, Mask::none())),
        "Shape x"
    );
    assert_eq!(
        blamed(diagnose(&patient, &matrix((0, 4)), None, Mask::none())),
        "Empty x"
    );
    assert_eq!(
        blamed(diagnose(&multi_head(), &matrix((3, 4)), None, valid(2))),
        "Shape valid"
    );
}

/// A layer of someone else's may return anything.
#[test]
fn what_the_examined_layer_returns_and_should_not() {
    let healthy = || Foreign::healthy(multi_head());
    let output = |output| Foreign { output, ..healthy() };
    let cache = |cache| Foreign { cache, ..healthy() };
    let gradients = |gradients| Foreign { gradients, ..healthy() };
    for (layer, expected) in [
        (output(|output| *output = matrix((2, 4))), "Shape output"),
        (output(|output| *output = matrix((3, 5))), "Shape output"),
        (cache(|cache| drop(heads_of(cache).pop())), "Shape w_q"),
        (cache(|cache| heads_of(cache)[1].v = matrix((3, 3))), "Shape w_v"),
        (cache(|cache| heads_of(cache)[0].k = matrix((2, 2))), "Shape cache.k"),
        (
            cache(|cache| heads_of(cache)[0].weights = matrix((3, 2))),
            "Shape cache.weights",
        ),
        (
            cache(|cache| {
                let head = &mut heads_of(cache)[0];
                (head.q, head.weights) = (matrix((2, 2)), matrix((2, 3)));
            }),
            "Shape cache.weights",
        ),
        (gradients(|g| g.parameters.w_o = matrix((3, 4))), "Shape w_o"),
        (gradients(|g| g.x = matrix((2, 4))), "Shape gradients.x"),
        (
            gradients(|g| g.parameters.b_q = RowDVector::zeros(3)),
            "`b_q`: Shape gradients",
        ),
        (gradients(|g| g.parameters.b_q = RowDVector::zeros(0)), "Shape gradients"),
        (gradients(|g| g.parameters.w_k = matrix((3, 4))), "`w_k`: Shape gradients"),
    ] {
        assert_eq!(
            blamed(diagnose(&layer, &matrix((3, 4)), None, Mask::none())),
            expected
        );
    }
    let layer = gradients(|g| g.context = Some(matrix((4, 4))));
    let context = &matrix((5, 4));
    let result = diagnose(&layer, &matrix((3, 4)), Some(context), Mask::none());
    assert_eq!(blamed(result), "Shape gradients.context");
}

#[test]
fn layers_that_cannot_be_patients() {
    let patient = |change: fn(&mut MultiHeadAttention<f64>)| {
        let mut layer = multi_head();
        change(&mut layer);
        Patient::new(layer, Fault::DeadHead)
    };
    assert_eq!(
        blamed(patient(|layer| layer.parameters.w_k = matrix((4, 3)))),
        "Shape w_k"
    );
    assert_eq!(
        blamed(patient(|layer| layer.parameters = parameters(4, 2, 4, 0))),
        "Shape w_q"
    );
    assert_eq!(
        blamed(patient(|layer| layer.parameters = parameters(4, 4, 2, 0))),
        "Shape w_v"
    );
    let without_biases = patient(|layer| {
        layer.parameters = layer.parameters.clone().without_biases();
    });
    assert_eq!(
        without_biases.unwrap_err().to_string(),
        "`b_q` has 0 columns but a patient has biases of d_model = 4"
    );
}

#[test]
fn what_does_not_fit_a_patient() {
    let patient = Patient::new(multi_head(), Fault::WrongAxis).unwrap();
    let (x, context) = (matrix((3, 4)), matrix((5, 4)));
    assert_eq!(blamed(patient.forward(&matrix((3, 3)), None, Mask::none())), "Shape x");
    assert_eq!(blamed(patient.forward(&x, Some(&context), valid(2))), "Shape valid");
    let backward = |change: fn(&mut MultiHeadCache<f64>), n| {
        let (_, mut cache) = patient.forward(&x, Some(&context), Mask::none())?;
        change(&mut cache);
        patient.backward(&cache, &matrix((n, 4)))
    };
    assert_eq!(blamed(backward(|_| (), 2)), "Shape grad_output");
    assert_eq!(
        blamed(backward(|cache| drop(heads_of(cache).pop()), 3)),
        "Shape cache.heads"
    );
    let weights = backward(|cache| heads_of(cache)[0].weights = matrix((3, 2)), 3);
    assert_eq!(blamed(weights), "Shape cache.weights");
}

#[test]
fn a_cache_from_before_a_step() {
    let mut patient = Patient::new(multi_head(), Fault::None).unwrap();
    let (output, cache) = patient.forward(&matrix((3, 4)), None, Mask::none()).unwrap();
    let gradients = patient.backward(&cache, &output).unwrap();
    patient.step(&gradients.parameters, 0.1).unwrap();
    let result = patient.backward(&cache, &output);
    assert!(matches!(result, Err(Error::OtherParameters { .. })));
}
