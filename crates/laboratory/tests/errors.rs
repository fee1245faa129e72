//! Every misuse of every function that can fail: an error which names the argument, what was given and what was
//! expected; never a panic. And a guard, so that a new function cannot be left out.

#[path = "../../attention/tests/common/cases.rs"]
mod cases;
#[path = "../../attention/tests/common/mod.rs"]
mod common;

use attention::{
    AttentionLayer, AttentionShape, Error, ForwardOptions, Mask, MultiHeadAttention,
    Result, SingleHeadAttention,
};
use cases::{Case, case};
use common::{Foreign, heads_of, options, parameters, random};
use laboratory::traffic::{
    Memory, SlowMatrix, chunked_attention, fused_attention, naive_attention,
    naive_attention_backward, strip_for, tiled_attention, tiled_attention_backward,
    tiles_for, tiles_for_backward,
};
use laboratory::{Fault, Patient, diagnose};
use nalgebra::{DMatrix, RowDVector};

#[test]
fn every_misuse_is_an_error_with_this_text_and_no_panic() {
    cases::check(all_cases());
}

#[test]
fn every_public_function_that_can_fail_has_a_case() {
    cases::check_complete(&all_cases(), &["diagnose", "SlowMatrix::load"]);
}

fn all_cases() -> Vec<Case> {
    [
        of_traffic(),
        of_programs(),
        of_strips(),
        of_tiles(),
        of_tiles_backward(),
        of_diagnoses(),
        of_roofline(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

// ---------------------------------------------------------------------------------------------------- material

const ABSURD: usize = 1 << 50; // no memory holds as many numbers

fn matrix(rows: usize, columns: usize) -> DMatrix<f64> {
    random(rows, columns, 0)
}

fn valid(entries: usize) -> Mask {
    Mask::padding(&vec![true; entries]).unwrap()
}

fn none() -> Mask {
    Mask::none()
}

/// d_model = 4, d_k = 3, d_v = 2.
fn single_head() -> SingleHeadAttention<f64> {
    SingleHeadAttention::from(parameters(4, 3, 2, 0))
}

/// d_model = 4, two heads.
fn multi_head() -> MultiHeadAttention<f64> {
    MultiHeadAttention::from_parameters(parameters(4, 4, 4, 0), 2).unwrap()
}

/// The cache of three tokens that attend to five others, after a change.
fn changed_layer_cache<L: AttentionLayer<f64>>(
    layer: L,
    change: impl Fn(&mut L::Cache),
) -> L::Cache {
    let (_, mut cache) =
        layer.forward(&matrix(3, 4), options(Some(&matrix(5, 4)), &none())).unwrap();
    change(&mut cache);
    cache
}

// ---------------------------------------------------------------------------------------------------- traffic

fn of_roofline() -> Vec<Case> {
    let steps = |tokens: usize, element: usize| {
        let shape = AttentionShape::self_attention(1, tokens, 64, 64, 1);
        laboratory::roofline::steps(&shape, element).map(|_| ())
    };
    vec![
        case("steps", "`n_q` is 0 but it must be at least 1", move || steps(0, 4)),
        case("steps", "`element` is 0 but it must be at least 1", move || steps(8, 0)),
    ]
}

fn of_traffic() -> Vec<Case> {
    let full = "`tile` is 3 x 4 but that needs room for 12 numbers, and fast memory has 10 free of 10";
    let overflowing = format!(
        "`tile` is {} x 2 but that needs room for {} numbers, and fast memory has 10 free of 10",
        usize::MAX,
        2 * usize::MAX as u128
    );
    let mut cases = vec![
        case("Memory::tile", full, || Memory::<f64>::new(10).tile(3, 4).map(|_| ())),
        case("Memory::tile", overflowing, || {
            Memory::<f64>::new(10).tile(usize::MAX, 2).map(|_| ())
        }),
        case(
            "Memory::tile",
            format!(
                "`rows` is {ABSURD} but with columns = 4 no memory could hold the matrix"
            ),
            || Memory::<f64>::new(usize::MAX).tile(ABSURD, 4).map(|_| ()),
        ),
        case("Memory::allocate", "`rows` is 0 but it must be at least 1", || {
            Memory::<f64>::new(10).allocate("a", 0, 4).map(|_| ())
        }),
        case("Memory::allocate", "`columns` is 0 but it must be at least 1", || {
            Memory::<f64>::new(10).allocate("a", 4, 0).map(|_| ())
        }),
        case(
            "Memory::allocate",
            format!(
                "`columns` is {ABSURD} but with rows = {ABSURD} no memory could hold the matrix"
            ),
            || Memory::<f64>::new(10).allocate("a", ABSURD, ABSURD).map(|_| ()),
        ),
        case("SlowMatrix::load", full, || {
            Memory::new(10).put("a", matrix(5, 5)).load(0..3, 1..5).map(|_| ())
        }),
        case("SlowMatrix::store", "`rows` is 1..3 but `a` ends at row 2", || {
            let memory = Memory::new(10);
            memory.put("a", matrix(2, 2)).store((1, 0), &memory.tile(2, 1)?)
        }),
        case("SlowMatrix::store", "`columns` is 1..3 but `a` ends at column 2", || {
            let memory = Memory::new(10);
            memory.put("a", matrix(2, 2)).store((0, 1), &memory.tile(1, 2)?)
        }),
    ];
    #[expect(clippy::reversed_empty_ranges, reason = "a caller may give one")]
    let outside = [
        ("`rows` is 1..4 but `a` ends at row 3", 1..4, 0..2),
        ("`rows` is 2..1 but `a` ends at row 3", 2..1, 0..2),
        ("`columns` is 3..3 but `a` ends at column 2", 0..1, 3..3),
    ];
    for (message, rows, columns) in outside {
        cases.push(case("SlowMatrix::load", message, move || {
            let memory = Memory::new(10);
            memory.put("a", matrix(3, 2)).load(rows.clone(), columns.clone()).map(|_| ())
        }));
    }
    // The product's function, the shapes of `a`, `b` and the tile, and what is wrong.
    let products = [
        ("Tile::add_product", [(2, 3), (4, 2), (2, 2)], INNER),
        ("Tile::add_product", [(2, 3), (3, 2), (3, 2)], ROWS),
        ("Tile::add_product", [(2, 3), (3, 2), (2, 1)], COLUMN),
        ("Tile::add_product_tr", [(2, 3), (2, 4), (2, 2)], INNER_COLUMNS),
        ("Tile::add_product_tr", [(2, 3), (2, 3), (3, 2)], ROWS),
        ("Tile::add_product_tr", [(2, 3), (2, 3), (2, 1)], COLUMN),
        ("Tile::add_tr_product", [(3, 2), (4, 2), (2, 2)], INNER),
        ("Tile::add_tr_product", [(3, 2), (3, 2), (3, 2)], ROWS),
        ("Tile::add_tr_product", [(3, 2), (3, 2), (2, 1)], COLUMN),
    ];
    for (function, shapes, message) in products {
        cases.push(case(function, message, move || {
            let memory = Memory::<f64>::new(100);
            let [a, b, c] = shapes.map(|(rows, columns)| memory.tile(rows, columns));
            let (a, b, mut c) = (a?, b?, c?);
            match function {
                "Tile::add_product" => c.add_product(&a, &b),
                "Tile::add_product_tr" => c.add_product_tr(&a, &b),
                _ => c.add_tr_product(&a, &b),
            }
        }));
    }
    cases
}

const INNER: &str = "`b` has 4 rows but `a` asks for 3";
const INNER_COLUMNS: &str = "`b` has 4 columns but `a` asks for 3";
const ROWS: &str = "`tile` has 3 rows but the product is 2 x 2";
const COLUMN: &str = "`tile` has 1 column but the product is 2 x 2";

const ELSEWHERE: &str =
    "in the slow memory of another machine but it must be in that of `memory`";

fn of_programs() -> Vec<Case> {
    type Program = for<'m> fn(
        &'m Memory<f64>,
        [&SlowMatrix<'m, f64>; 3],
        &Mask,
    ) -> Result<(SlowMatrix<'m, f64>, SlowMatrix<'m, f64>)>;
    let programs: [(&str, Program); 4] = [
        ("naive_attention", naive_attention),
        ("fused_attention", fused_attention),
        ("chunked_attention", |memory, inputs, mask| {
            chunked_attention(memory, inputs, mask, 2)
        }),
        ("tiled_attention", |memory, inputs, mask| {
            tiled_attention(memory, inputs, mask, (2, 3))
        }),
    ];
    let run = |program: Program, capacity, shapes: [(usize, usize); 3]| {
        move || {
            let memory = Memory::new(capacity);
            let [q, k, v] = shapes.map(|(n, d)| memory.put("", matrix(n, d)));
            program(&memory, [&q, &k, &v], &none()).map(|_| ())
        }
    };
    let mut cases = vec![];
    for (function, program) in programs {
        for (message, shapes) in [
            (
                "`q` is empty (0 x 3) but at least one entry is needed",
                [(0, 3), (4, 3), (4, 2)],
            ),
            ("`k` has 2 columns but `q` has d_k = 3", [(2, 3), (4, 2), (4, 2)]),
            ("`v` has 5 rows but `k` has n_k = 4", [(2, 3), (4, 3), (5, 2)]),
        ] {
            cases.push(case(function, message, run(program, 100, shapes)));
        }
        cases.push(case(function, "`valid` has 2 entries but n_k = 4", move || {
            let memory = Memory::new(100);
            let x = memory.put("x", matrix(4, 3));
            program(&memory, [&x, &x, &x], &valid(2)).map(|_| ())
        }));
        for (argument, elsewhere) in [("k", 1), ("v", 2)] {
            cases.push(case(
                function,
                format!("`{argument}` is {ELSEWHERE}"),
                move || {
                    let (here, there) = (Memory::new(100), Memory::new(100));
                    let home = |index| if index == elsewhere { &there } else { &here };
                    let [q, k, v] = [0, 1, 2].map(|i| home(i).put("x", matrix(4, 3)));
                    program(&here, [&q, &k, &v], &none()).map(|_| ())
                },
            ));
        }
    }
    let small = "`capacity` is 10 but a product of width 5 needs room for 11 numbers, and fast memory has 10 free of 10";
    for (function, program) in [programs[0], programs[1]] {
        for shapes in [[(2, 5), (4, 5), (4, 2)], [(2, 3), (4, 3), (4, 5)]] {
            cases.push(case(function, small, run(program, 10, shapes)));
        }
    }
    cases.push(case(
        "naive_attention_backward",
        format!("`grad_output` is {ELSEWHERE}"),
        || {
            let (memory, other) = (Memory::new(10), Memory::new(10));
            let [x, g] = [&memory, &other].map(|memory| memory.put("x", matrix(3, 3)));
            naive_attention_backward(&memory, [&x, &x, &x], &x, &g).map(|_| ())
        },
    ));
    for (message, [q, k, v, weights, grad_output]) in [
        (
            "`k` has 2 columns but `q` has d_k = 3",
            [(2, 3), (4, 2), (4, 2), (2, 4), (2, 2)],
        ),
        ("`v` has 5 rows but `k` has n_k = 4", [(2, 3), (4, 3), (5, 2), (2, 4), (2, 2)]),
        (
            "`weights` has 3 rows but (n_q, n_k) is 2 x 4",
            [(2, 3), (4, 3), (4, 2), (3, 4), (2, 2)],
        ),
        (
            "`grad_output` has 3 columns but the output is 2 x 2",
            [(2, 3), (4, 3), (4, 2), (2, 4), (2, 3)],
        ),
        (small, [(2, 5), (4, 5), (4, 2), (2, 4), (2, 2)]),
    ] {
        cases.push(case("naive_attention_backward", message, move || {
            let memory = Memory::new(10);
            let [q, k, v, weights, grad_output] = [q, k, v, weights, grad_output]
                .map(|(n, d)| memory.put("", matrix(n, d)));
            let inputs = [&q, &k, &v];
            naive_attention_backward(&memory, inputs, &weights, &grad_output).map(|_| ())
        }));
    }
    cases
}

const NO_TILE: &str = "`tiles.0` is 0 but it must be at least 1";
const NO_KEY: &str = "`tiles.1` is 0 but it must be at least 1";

fn of_strips() -> Vec<Case> {
    let needs = |strip: usize, needed: u128, free: usize| {
        format!(
            "`strip` is {strip} but that needs room for {needed} numbers, and fast memory has {free} free of 50"
        )
    };
    let run = |strip| {
        move || {
            let memory = Memory::new(50);
            let x = memory.put("x", matrix(7, 3));
            let _tile = memory.tile(1, 10)?;
            chunked_attention(&memory, [&x, &x, &x], &none(), strip).map(|_| ())
        }
    };
    let too_small = "`capacity` is 12 but a strip of one query needs room for 13 numbers, and fast memory has 12 free of 12";
    vec![
        case("chunked_attention", "`strip` is 0 but it must be at least 1", run(0)),
        case("chunked_attention", needs(4, 43, 40), run(4)),
        case("chunked_attention", needs(usize::MAX, 73, 40), run(usize::MAX)),
        case("strip_for", "`n_k` is 0 but it must be at least 1", || {
            strip_for(100, 0, 3, 3)
        }),
        case("strip_for", "`d_k` is 0 but it must be at least 1", || {
            strip_for(100, 7, 0, 3)
        }),
        case("strip_for", "`d_v` is 0 but it must be at least 1", || {
            strip_for(100, 7, 3, 0)
        }),
        case("strip_for", too_small, || strip_for(12, 7, 3, 2)),
        case(
            "strip_for",
            format!(
                "`capacity` is 12 but a strip of one query needs room for {} numbers, and fast memory has 12 free of 12",
                3 * usize::MAX as u128
            ),
            || strip_for(12, usize::MAX, usize::MAX, 1),
        ),
    ]
}

fn of_tiles() -> Vec<Case> {
    let needs = "`tiles` is (4, 2) but that needs room for 52 numbers, and fast memory has 40 free of 50";
    let all_of_it = format!(
        "`tiles` is ({0}, {0}) but that needs room for 147 numbers, and fast memory has 40 free of 50",
        usize::MAX
    );
    let run = |tiles| {
        move || {
            let memory = Memory::new(50);
            let x = memory.put("x", matrix(7, 3));
            let _tile = memory.tile(1, 10)?;
            tiled_attention(&memory, [&x, &x, &x], &none(), tiles).map(|_| ())
        }
    };
    let mut cases = vec![
        case("tiled_attention", NO_TILE, run((0, 3))),
        case("tiled_attention", NO_KEY, run((3, 0))),
        case("tiled_attention", needs, run((4, 2))),
        case("tiled_attention", all_of_it, run((usize::MAX, usize::MAX))),
    ];
    type Choice = fn(usize, usize, usize) -> Result<(usize, usize)>;
    let choices: [(&str, Choice, usize); 2] =
        [("tiles_for", tiles_for, 13), ("tiles_for_backward", tiles_for_backward, 22)];
    for (function, choose, least) in choices {
        cases.push(case(function, "`d_k` is 0 but it must be at least 1", move || {
            choose(100, 0, 2)
        }));
        cases.push(case(function, "`d_v` is 0 but it must be at least 1", move || {
            choose(100, 3, 0)
        }));
        let small = format!(
            "`capacity` is {0} but a tile of one query and one key needs room for {least} numbers, and fast memory has {0} free of {0}",
            least - 1
        );
        cases.push(case(function, small, move || choose(least - 1, 3, 2)));
    }
    let largest = format!(
        "`capacity` is {0} but a tile of one query and one key needs room for {1} numbers, and fast memory has {0} free of {0}",
        usize::MAX,
        4 * usize::MAX as u128 + 3
    );
    cases.push(case("tiles_for", largest, || {
        tiles_for(usize::MAX, usize::MAX, usize::MAX)
    }));
    cases
}

fn of_tiles_backward() -> Vec<Case> {
    let mut cases = vec![];
    for (message, shapes) in [
        (
            "`k` has 2 columns but `q` has d_k = 3",
            [(2, 3), (4, 2), (4, 2), (2, 2), (2, 1), (2, 2)],
        ),
        (
            "`v` has 5 rows but `k` has n_k = 4",
            [(2, 3), (4, 3), (5, 2), (2, 2), (2, 1), (2, 2)],
        ),
        (
            "`output` has 3 columns but (n_q, d_v) is 2 x 2",
            [(2, 3), (4, 3), (4, 2), (2, 3), (2, 1), (2, 2)],
        ),
        (
            "`log_sum_exp` has 1 row but (n_q, 1) is 2 x 1",
            [(2, 3), (4, 3), (4, 2), (2, 2), (1, 2), (2, 2)],
        ),
        (
            "`grad_output` has 3 rows but the output is 2 x 2",
            [(2, 3), (4, 3), (4, 2), (2, 2), (2, 1), (3, 2)],
        ),
    ] {
        cases.push(case("tiled_attention_backward", message, move || {
            let memory = Memory::new(100);
            let [q, k, v, o, lse, g] =
                shapes.map(|(rows, columns)| memory.put("", matrix(rows, columns)));
            let (inputs, kept) = ([&q, &k, &v], [&o, &lse]);
            tiled_attention_backward(&memory, inputs, kept, &g, &none(), (2, 2))
                .map(|_| ())
        }));
    }
    for (argument, elsewhere) in
        [("k", 1), ("output", 3), ("log_sum_exp", 4), ("grad_output", 5)]
    {
        let message = format!("`{argument}` is {ELSEWHERE}");
        cases.push(case("tiled_attention_backward", message, move || {
            let (here, there) = (Memory::new(100), Memory::new(100));
            let home = |index: usize| if index == elsewhere { &there } else { &here };
            let [q, k, v, o, lse, g] = [0, 1, 2, 3, 4, 5]
                .map(|i| home(i).put("", matrix(3, if i == 4 { 1 } else { 3 })));
            let (inputs, kept) = ([&q, &k, &v], [&o, &lse]);
            tiled_attention_backward(&here, inputs, kept, &g, &none(), (1, 1)).map(|_| ())
        }));
    }
    let run = |tiles, mask: fn() -> Mask| {
        move || {
            let memory = Memory::new(100);
            let [q, lse] = [3, 1].map(|columns| memory.put("", matrix(7, columns)));
            let (inputs, kept) = ([&q, &q, &q], [&q, &lse]);
            let _tile = memory.tile(1, 10)?;
            tiled_attention_backward(&memory, inputs, kept, &q, &mask(), tiles)
                .map(|_| ())
        }
    };
    let needs = "`tiles` is (4, 3) but that needs room for 104 numbers, and fast memory has 90 free of 100";
    cases.extend([
        case("tiled_attention_backward", NO_TILE, run((0, 3), none)),
        case("tiled_attention_backward", NO_KEY, run((3, 0), none)),
        case("tiled_attention_backward", needs, run((4, 3), none)),
        case(
            "tiled_attention_backward",
            "`valid` has 2 entries but n_k = 7",
            run((2, 2), || valid(2)),
        ),
    ]);
    cases
}

// ---------------------------------------------------------------------------------------------------- diagnoses

fn of_diagnoses() -> Vec<Case> {
    let foreign = || Foreign {
        layer: multi_head(),
        output: |_| (),
        cache: |_| (),
        gradients: |_| (),
    };
    let of_foreign = |message: &'static str, change: fn(&mut Foreign)| {
        let mut layer = foreign();
        change(&mut layer);
        case("diagnose", message, move || diagnose(&layer, &matrix(3, 4), None, &none()))
    };
    let across = |message: &'static str, change: fn(&mut Foreign)| {
        let mut layer = foreign();
        change(&mut layer);
        case("diagnose", message, move || {
            diagnose(&layer, &matrix(3, 4), Some(&matrix(5, 4)), &none())
        })
    };
    let patient = || Patient::new(multi_head(), Fault::WrongAxis).unwrap();
    let unfit = || {
        let mut layer = multi_head();
        layer.parameters.w_k = matrix(4, 3);
        layer
    };
    vec![
        case("diagnose", "`x` has 3 columns but the layer has d_model = 4", || {
            diagnose(&multi_head(), &matrix(6, 3), None, &none())
        }),
        case(
            "diagnose",
            "`x` is empty (0 x 4) but at least one entry is needed",
            move || diagnose(&patient(), &matrix(0, 4), None, &none()),
        ),
        case("diagnose", "`valid` has 2 entries but n_k = 3", || {
            diagnose(&single_head(), &matrix(3, 4), None, &valid(2))
        }),
        of_foreign("`output` has 2 rows but `x` is 3 x 4", |foreign| {
            foreign.output = |output| *output = matrix(2, 4)
        }),
        of_foreign("`output` has 5 columns but `x` is 3 x 4", |foreign| {
            foreign.output = |output| *output = matrix(3, 5)
        }),
        of_foreign("`w_q` has 4 columns but the heads have 2 together", |foreign| {
            foreign.cache = |cache| {
                heads_of(cache).pop();
            }
        }),
        of_foreign("`w_v` has 4 columns but the heads have 5 together", |foreign| {
            foreign.cache = |cache| heads_of(cache)[1].v = matrix(3, 3)
        }),
        of_foreign("`cache.k` has 2 rows but (n_k, d_k) is 3 x 2", |foreign| {
            foreign.cache = |cache| heads_of(cache)[0].k = matrix(2, 2)
        }),
        of_foreign("`cache.weights` has 2 columns but (n_q, n_k) is 3 x 3", |foreign| {
            foreign.cache = |cache| heads_of(cache)[0].weights = matrix(3, 2)
        }),
        of_foreign("`cache.weights` has 2 rows but the mask is 3 x 3", |foreign| {
            foreign.cache = |cache| {
                let head = &mut heads_of(cache)[0];
                (head.q, head.weights) = (matrix(2, 2), matrix(2, 3));
            }
        }),
        of_foreign(
            "`w_o` has 3 rows but `w_v` has another number of columns",
            |foreign| {
                foreign.gradients = |gradients| gradients.parameters.w_o = matrix(3, 4)
            },
        ),
        of_foreign("`gradients.x` has 2 rows but `x` is 3 x 4", |foreign| {
            foreign.gradients = |gradients| gradients.x = matrix(2, 4)
        }),
        of_foreign("`b_q` has 3 entries but the parameter has 4", |foreign| {
            foreign.gradients =
                |gradients| gradients.parameters.b_q = RowDVector::zeros(3)
        }),
        of_foreign("`w_k` has 12 entries but the parameter has 16", |foreign| {
            foreign.gradients = |gradients| gradients.parameters.w_k = matrix(3, 4)
        }),
        across("`gradients.context` has 4 rows but `context` is 5 x 4", |foreign| {
            foreign.gradients = |gradients| gradients.context = Some(matrix(4, 4))
        }),
        case("Patient::new", "`w_k` has 3 columns but `w_q` is 4 x 4", move || {
            Patient::new(unfit(), Fault::None)
        }),
        case(
            "Patient::new",
            "`w_q` has 2 columns but heads share a width of d_model = 4",
            {
                || {
                    let parameters = parameters(4, 2, 4, 0);
                    let layer = MultiHeadAttention::from_parameters(parameters, 2)?;
                    Patient::new(layer, Fault::None)
                }
            },
        ),
        case(
            "Patient::forward",
            "`options.dropout` is given but Patient has none",
            move || {
                let dropping = ForwardOptions::new().with_dropout(0.5, 0);
                patient().forward(&matrix(3, 4), dropping)
            },
        ),
        case(
            "Patient::forward",
            "`x` has 3 columns but the layer has d_model = 4",
            move || patient().forward(&matrix(3, 3), &none()),
        ),
        case("Patient::forward", "`valid` has 2 entries but n_k = 5", move || {
            patient().forward(&matrix(3, 4), options(Some(&matrix(5, 4)), &valid(2)))
        }),
        case("Patient::forward", "`w_k` has 3 columns but `w_q` is 4 x 4", move || {
            let mut patient = patient();
            patient.parameters_mut().w_k = matrix(4, 3);
            patient.forward(&matrix(3, 4), &none())
        }),
        case("Patient::backward", "`grad_output` has 2 rows but the output is 3 x 4", {
            move || {
                let (_, cache) = patient().forward(&matrix(3, 4), &none())?;
                patient().backward(&cache, &matrix(2, 4))
            }
        }),
        case(
            "Patient::backward",
            "`cache.heads` has 1 entry but the layer has n_heads = 2",
            {
                move || {
                    let cache = changed_layer_cache(patient(), |cache| {
                        heads_of(cache).pop();
                    });
                    patient().backward(&cache, &matrix(3, 4))
                }
            },
        ),
        case(
            "Patient::backward",
            "`cache.weights` has 2 columns but (n_q, n_k) is 3 x 5",
            move || {
                let cache = changed_layer_cache(patient(), |cache| {
                    heads_of(cache)[0].weights = matrix(3, 2)
                });
                patient().backward(&cache, &matrix(3, 4))
            },
        ),
    ]
}

// ---------------------------------------------------------------------------------------------------- variants

/// What a caller matches on: each variant, with its numbers as numbers.
#[test]
fn every_variant_has_its_numbers() {
    let memory = Memory::new(5);
    let slow = memory.put("x", matrix(2, 4));
    let elsewhere = Memory::new(100);
    let foreign = elsewhere.put("k", matrix(2, 4));
    for (error, expected) in [
        (
            slow.load(1..3, 0..4).unwrap_err(),
            Error::OutOfBounds {
                argument: "rows",
                given: 1..3,
                matrix: "x",
                axis: "row",
                end: 2,
            },
        ),
        (
            memory.tile(3, 2).unwrap_err(),
            Error::FastMemory {
                argument: "tile",
                given: "3 x 2".to_owned(),
                needed: 6,
                free: 5,
                capacity: 5,
                because: "that needs room for 6 numbers, and fast memory has 5 free of 5"
                    .to_owned(),
            },
        ),
        (
            naive_attention(&memory, [&slow, &foreign, &slow], &none()).unwrap_err(),
            Error::Elsewhere {
                argument: "k",
                given: "in the slow memory of another machine".to_owned(),
                expected: "it must be in that of `memory`".to_owned(),
            },
        ),
    ] {
        assert_eq!(error, expected);
    }
}
