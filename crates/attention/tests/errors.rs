//! Every misuse of every function that can fail: an error which names the argument, what was given and what was
//! expected; never a panic. And a guard, so that a new function cannot be left out.

#[path = "common/cases.rs"]
mod cases;
mod common;

use attention::building_blocks::{
    check_count, check_positive, check_queries_and_keys, check_room, check_shape,
    check_values,
};
use attention::flash::{
    self, Flash, FlashOutput, Inputs, Instructions, OnlineSoftmax, TileProducts, Tiles,
};
use attention::{
    AttentionCache, AttentionShape, Error, ForwardOptions, HeadsCache, Mask,
    MultiHeadAttention, MultiHeadCache, Parameters, Result, SingleHeadAttention,
    SingleHeadCache, attention, attention_backward, attention_static, attention_weights,
    gradient_check, gradient_check_parameters, heat_map, linear, linear_backward,
    log_sum_exp, log_sum_exp_rows, numerical_gradient, relative_error, row_entropy,
    scaled_scores, softmax, softmax_backward, softmax_jacobian, softmax_rows,
    softmax_rows_backward,
};
use cases::{Case, case};
use common::{Layer, heads_of, options, parameters, random};
use nalgebra::{DMatrix, DVector, RowDVector, SMatrix};
use rand::{SeedableRng, rngs::ChaCha8Rng};

/// An error's text, and the change that leads to it; or a field's name, and how it is cleared.
type Change<T> = (&'static str, fn(&mut T));

#[test]
fn every_misuse_is_an_error_with_this_text_and_no_panic() {
    cases::check(all_cases());
}

#[test]
fn every_public_function_that_can_fail_has_a_case() {
    cases::check_complete(&all_cases(), &["attention", "Mask::sized"]);
}

fn all_cases() -> Vec<Case> {
    [
        of_softmax(),
        of_masks(),
        of_attention(),
        of_parameters(),
        of_self_attention(),
        of_multi_head_attention(),
        of_gradient_checks(),
        of_costs(),
        of_inspection(),
        of_flash(),
        of_flash_layers(),
        of_online_softmax(),
        of_building_blocks(),
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

fn vector(entries: usize) -> DVector<f64> {
    DVector::from_element(entries, 0.5)
}

fn valid(entries: usize) -> Mask {
    Mask::padding(&vec![true; entries]).unwrap()
}

fn none() -> Mask {
    Mask::none()
}

fn rng() -> ChaCha8Rng {
    ChaCha8Rng::seed_from_u64(0)
}

/// d_model = 4, d_k = 3, d_v = 2.
fn single_head() -> SingleHeadAttention<f64> {
    SingleHeadAttention::from(parameters(4, 3, 2, 0))
}

/// d_model = 4, two heads.
fn multi_head() -> MultiHeadAttention<f64> {
    MultiHeadAttention::from_parameters(parameters(4, 4, 4, 0), 2).unwrap()
}

/// The cache of three queries, five keys, d_k = 4, d_v = 2, after a change.
fn changed_cache(change: impl Fn(&mut AttentionCache<f64>)) -> AttentionCache<f64> {
    let (_, mut cache) =
        attention(&matrix(3, 4), &matrix(5, 4), &matrix(5, 2), &none()).unwrap();
    change(&mut cache);
    cache
}

/// The cache of three tokens that attend to five others, after a change.
fn changed_layer_cache<L: Layer<f64>>(
    layer: L,
    change: impl Fn(&mut L::Cache),
) -> L::Cache {
    let (_, mut cache) =
        layer.forward(&matrix(3, 4), options(Some(&matrix(5, 4)), &none())).unwrap();
    change(&mut cache);
    cache
}

// ---------------------------------------------------------------------------------------------------- softmax

fn of_softmax() -> Vec<Case> {
    let no_entries = |argument| {
        format!("`{argument}` is empty (0 entries) but at least one entry is needed")
    };
    let no_rows = |argument| {
        format!("`{argument}` is empty (0 x 4) but at least one entry is needed")
    };
    let no_columns = |argument| {
        format!("`{argument}` is empty (4 x 0) but at least one entry is needed")
    };
    vec![
        case("softmax", no_entries("x"), || softmax(&vector(0))),
        case("log_sum_exp", no_entries("x"), || log_sum_exp(&vector(0))),
        case("softmax_jacobian", no_entries("p"), || softmax_jacobian(&vector(0))),
        case("softmax_backward", no_entries("p"), || {
            softmax_backward(&vector(0), &vector(0))
        }),
        case("softmax_backward", "`grad_p` has 3 entries but `p` has 4", || {
            softmax_backward(&vector(4), &vector(3))
        }),
        case("softmax_backward", "`grad_p` has 1 entry but `p` has 4", || {
            softmax_backward(&vector(4), &vector(1))
        }),
        case("softmax_rows", no_rows("scores"), || softmax_rows(&matrix(0, 4))),
        case("softmax_rows", no_columns("scores"), || softmax_rows(&matrix(4, 0))),
        case("log_sum_exp_rows", no_rows("scores"), || log_sum_exp_rows(&matrix(0, 4))),
        case("log_sum_exp_rows", no_columns("scores"), || {
            log_sum_exp_rows(&matrix(4, 0))
        }),
        case("softmax_rows_backward", no_rows("weights"), || {
            softmax_rows_backward(&matrix(0, 4), matrix(0, 4))
        }),
        case(
            "softmax_rows_backward",
            "`grad_weights` has 2 rows but `weights` is 3 x 4",
            || softmax_rows_backward(&matrix(3, 4), matrix(2, 4)),
        ),
        case(
            "softmax_rows_backward",
            "`grad_weights` has 5 columns but `weights` is 3 x 4",
            || softmax_rows_backward(&matrix(3, 4), matrix(3, 5)),
        ),
    ]
}

// ---------------------------------------------------------------------------------------------------- masks

fn of_masks() -> Vec<Case> {
    let no_memory = |n_q: usize, n_k: usize| {
        format!("`n_k` is {n_k} but with n_q = {n_q} no memory could hold the matrix")
    };
    let dense = |rows, columns| Mask::dense(DMatrix::from_element(rows, columns, true));
    vec![
        case(
            "Mask::padding",
            "`valid` is empty (0 entries) but at least one entry is needed",
            || Mask::padding(&[]),
        ),
        case("Mask::window", "`width` is 0 but it must be at least 1", || {
            Mask::window(0)
        }),
        case(
            "Mask::dense",
            "`allowed` is empty (0 x 3) but at least one entry is needed",
            move || dense(0, 3),
        ),
        case(
            "Mask::dense",
            "`allowed` is empty (3 x 0) but at least one entry is needed",
            move || dense(3, 0),
        ),
        case("Mask::sized", "`n_q` is 0 but it must be at least 1", || {
            none().sized(0, 3).map(|_| ())
        }),
        case("Mask::sized", "`n_k` is 0 but it must be at least 1", || {
            none().sized(3, 0).map(|_| ())
        }),
        case("Mask::sized", no_memory(usize::MAX, usize::MAX), || {
            none().sized(usize::MAX, usize::MAX).map(|_| ())
        }),
        case("Mask::sized", no_memory(1, usize::MAX), || {
            none().sized(1, usize::MAX).map(|_| ())
        }),
        case("Mask::sized", "`valid` has 2 entries but n_k = 3", || {
            valid(2).sized(3, 3).map(|_| ())
        }),
        case("Mask::sized", "`valid` has 1 entry but n_k = 3", || {
            Mask::causal().and(valid(1)).sized(3, 3).map(|_| ())
        }),
        case("Mask::sized", "`valid` has 4 entries but n_k = 3", || {
            valid(4).and(Mask::causal()).sized(3, 3).map(|_| ())
        }),
        case(
            "Mask::sized",
            "`allowed` has 2 rows but the score matrix is 3 x 3",
            move || dense(2, 3)?.sized(3, 3).map(|_| ()),
        ),
        case(
            "Mask::sized",
            "`allowed` has 2 columns but the score matrix is 3 x 3",
            move || dense(3, 2)?.sized(3, 3).map(|_| ()),
        ),
        case("SizedMask::apply", "`scores` has 2 rows but the mask is 3 x 4", || {
            none().sized(3, 4)?.apply(matrix(2, 4))
        }),
        case("SizedMask::apply", "`scores` has 1 column but the mask is 3 x 4", || {
            none().sized(3, 4)?.apply(matrix(3, 1))
        }),
    ]
}

// ---------------------------------------------------------------------------------------------------- attention

fn of_attention() -> Vec<Case> {
    type Run = fn(&DMatrix<f64>, &DMatrix<f64>, &Mask) -> Result<()>;
    let of_queries_and_keys: [(&str, Run); 3] = [
        ("scaled_scores", |q, k, _| scaled_scores(q, k).map(|_| ())),
        ("attention_weights", |q, k, mask| attention_weights(q, k, mask).map(|_| ())),
        ("attention", |q, k, mask| attention(q, k, &matrix(5, 2), mask).map(|_| ())),
    ];
    let mut cases = vec![];
    for (function, run) in of_queries_and_keys {
        for (message, q, k) in [
            ("`q` is empty (0 x 4) but at least one entry is needed", (0, 4), (5, 4)),
            ("`q` is empty (3 x 0) but at least one entry is needed", (3, 0), (5, 4)),
            ("`k` is empty (0 x 4) but at least one entry is needed", (3, 4), (0, 4)),
            ("`k` has 3 columns but `q` has d_k = 4", (3, 4), (5, 3)),
            ("`k` has 1 column but `q` has d_k = 4", (3, 4), (5, 1)),
        ] {
            let shapes = move || run(&matrix(q.0, q.1), &matrix(k.0, k.1), &none());
            cases.push(case(function, message, shapes));
        }
    }
    for (function, run) in of_queries_and_keys.into_iter().skip(1) {
        cases.push(case(function, "`valid` has 2 entries but n_k = 5", move || {
            run(&matrix(3, 4), &matrix(5, 4), &valid(2))
        }));
    }

    let of_caches: [Change<AttentionCache<f64>>; 13] = [
        ("`cache.q` is empty (0 x 4) but at least one entry is needed", |c| {
            c.q = matrix(0, 4)
        }),
        ("`cache.v` is empty (5 x 0) but at least one entry is needed", |c| {
            c.v = matrix(5, 0)
        }),
        ("`cache.k` has 4 rows but (n_k, d_k) is 5 x 4", |c| c.k = matrix(4, 4)),
        ("`cache.k` has 3 columns but (n_k, d_k) is 5 x 4", |c| c.k = matrix(5, 3)),
        ("`cache.k` has 5 rows but (n_k, d_k) is 6 x 4", |c| c.v = matrix(6, 2)),
        ("`cache.weights` has 2 rows but (n_q, n_k) is 3 x 5", |c| {
            c.weights = matrix(2, 5)
        }),
        ("`cache.weights` has 1 column but (n_q, n_k) is 3 x 5", |c| {
            c.weights = matrix(3, 1)
        }),
        ("`cache.weights` has 3 rows but (n_q, n_k) is 2 x 5", |c| c.q = matrix(2, 4)),
        ("`valid` has 2 entries but n_k = 5", |c| c.mask = valid(2)),
        ("`cache.dropout` has 2 rows but `cache.weights` is 3 x 5", |c| {
            c.dropout = Some(matrix(2, 5))
        }),
        ("`cache.dropout` has 4 columns but `cache.weights` is 3 x 5", |c| {
            c.dropout = Some(matrix(3, 4));
        }),
        ("`grad_output` has 3 rows but the output is 4 x 2", |c| {
            (c.q, c.weights) = (matrix(4, 4), matrix(4, 5));
        }),
        ("`grad_output` has 2 columns but the output is 3 x 7", |c| c.v = matrix(5, 7)),
    ];
    for (message, change) in of_caches {
        cases.push(case("attention_backward", message, move || {
            attention_backward(&changed_cache(change), &matrix(3, 2))
        }));
    }

    cases.extend([
        case(
            "attention",
            "`v` is empty (0 x 2) but at least one entry is needed",
            || attention(&matrix(3, 4), &matrix(5, 4), &matrix(0, 2), &none()),
        ),
        case(
            "attention",
            "`v` is empty (5 x 0) but at least one entry is needed",
            || attention(&matrix(3, 4), &matrix(5, 4), &matrix(5, 0), &none()),
        ),
        case("attention", "`v` has 4 rows but `k` has n_k = 5", || {
            attention(&matrix(3, 4), &matrix(5, 4), &matrix(4, 2), &none())
        }),
        case(
            "attention_backward",
            "`grad_output` has 0 rows but the output is 3 x 2",
            || attention_backward(&changed_cache(|_| ()), &matrix(0, 2)),
        ),
        case(
            "attention_backward",
            "`grad_output` has 3 columns but the output is 3 x 2",
            || attention_backward(&changed_cache(|_| ()), &matrix(3, 3)),
        ),
        case(
            "AttentionCache::weights_used",
            "`cache.dropout` has 1 row but `cache.weights` is 3 x 5",
            || {
                changed_cache(|c| c.dropout = Some(matrix(1, 5)))
                    .weights_used()
                    .map(|used| used.into_owned())
            },
        ),
    ]);
    cases
}

// ---------------------------------------------------------------------------------------------------- layers

/// What the constructors are given.
fn of_parameters() -> Vec<Case> {
    let mut cases = vec![];
    for (message, [d_model, d_k, d_v]) in [
        ("`d_model` is 0 but it must be at least 1", [0, 3, 2]),
        ("`d_k` is 0 but it must be at least 1", [4, 0, 2]),
        ("`d_v` is 0 but it must be at least 1", [4, 3, 0]),
        (
            "`d_k` is 18446744073709551615 but with d_model = 4 no memory could hold the matrix",
            [4, usize::MAX, 2],
        ),
        (
            "`d_v` is 1125899906842624 but with d_model = 4 no memory could hold the matrix",
            [4, 3, ABSURD],
        ),
        (
            "`d_model` is 1125899906842624 but with d_k = 3 no memory could hold the matrix",
            [ABSURD, 3, 2],
        ),
    ] {
        cases.push(case("Parameters::xavier", message, move || {
            Parameters::<f64>::xavier(d_model, d_k, d_v, &mut rng())
        }));
        cases.push(case("SingleHeadAttention::xavier", message, move || {
            SingleHeadAttention::<f64>::xavier(d_model, d_k, d_v, &mut rng())
        }));
    }
    cases.push(case("Parameters::check", "`b_v` has 3 columns but `w_v` has 2", || {
        let mut parameters = parameters(4, 3, 2, 0);
        parameters.b_v = RowDVector::zeros(3);
        parameters.check()
    }));
    for (message, d_model, n_heads) in [
        ("`d_model` is 0 but it must be at least 1", 0, 1),
        ("`n_heads` is 0 but it must be at least 1", 8, 0),
        ("`n_heads` is 3 but it must divide d_model = 8", 8, 3),
        ("`n_heads` is 16 but it must divide d_model = 8", 8, 16),
        (
            "`d_model` is 1125899906842624 but no memory could hold a square matrix of that size",
            ABSURD,
            1,
        ),
    ] {
        cases.push(case("MultiHeadAttention::xavier", message, move || {
            MultiHeadAttention::<f64>::xavier(d_model, n_heads, &mut rng())
        }));
    }
    for (message, [d_model, d_k, d_v], n_heads) in [
        ("`n_heads` is 0 but it must be at least 1", [6, 6, 6], 0),
        ("`n_heads` is 4 but it must divide the 6 columns of `w_q`", [6, 6, 6], 4),
        ("`n_heads` is 2 but it must divide the 5 columns of `w_q`", [6, 5, 6], 2),
        ("`n_heads` is 2 but it must divide the 3 columns of `w_v`", [6, 6, 3], 2),
    ] {
        cases.push(case("MultiHeadAttention::from_parameters", message, move || {
            MultiHeadAttention::from_parameters(parameters(d_model, d_k, d_v, 0), n_heads)
        }));
    }
    for (given, p) in
        [("1", 1.0), ("-0.1", -0.1), ("NaN", f64::NAN), ("inf", f64::INFINITY)]
    {
        let message = format!(
            "`options.dropout` is {given} but it must be at least 0 and less than 1"
        );
        cases.push(case("MultiHeadAttention::forward", message, move || {
            multi_head().forward(&matrix(3, 4), ForwardOptions::new().with_dropout(p, 0))
        }));
    }
    cases
}

/// The parameters are public fields. What a change makes wrong is said by every function of a layer.
const CHANGED_PARAMETERS: [Change<Parameters<f64>>; 9] = [
    ("`w_q` is empty (4 x 0) but at least one entry is needed", |p| p.w_q = matrix(4, 0)),
    ("`w_v` is empty (0 x 4) but at least one entry is needed", |p| p.w_v = matrix(0, 4)),
    ("`w_k` has 1 row but `w_q` is 4 x 4", |p| p.w_k = matrix(1, 4)),
    ("`w_k` has 5 columns but `w_q` is 4 x 4", |p| p.w_k = matrix(4, 5)),
    ("`w_v` has 3 rows but `w_q` has d_model = 4", |p| p.w_v = matrix(3, 4)),
    ("`w_o` has 3 rows but (d_v, d_model) is 4 x 4", |p| p.w_o = matrix(3, 4)),
    ("`w_o` has 5 columns but (d_v, d_model) is 4 x 4", |p| p.w_o = matrix(4, 5)),
    ("`b_q` has 3 columns but `w_q` has 4", |p| p.b_q = RowDVector::zeros(3)),
    ("`b_v` has 2 columns but `w_v` has 4", |p| p.b_v = RowDVector::zeros(2)),
];
const CHANGED_BIASES: [Change<Parameters<f64>>; 2] = [
    ("`b_k` has 1 column but `w_k` has 4", |p| p.b_k = RowDVector::zeros(1)),
    ("`b_o` has 5 columns but `w_o` has 4", |p| p.b_o = RowDVector::zeros(5)),
];

fn of_self_attention() -> Vec<Case> {
    let mut cases = vec![];
    for (message, change) in CHANGED_PARAMETERS.into_iter().chain(CHANGED_BIASES) {
        let changed = move || {
            let mut layer = SingleHeadAttention::from(parameters(4, 4, 4, 0));
            change(&mut layer.parameters);
            layer
        };
        cases.push(case("SingleHeadAttention::forward", message, move || {
            changed().forward(&matrix(3, 4), &none())
        }));
        cases.push(case("SingleHeadAttention::forward", message, move || {
            let context = matrix(5, 4);
            changed().forward(&matrix(3, 4), options(Some(&context), &none()))
        }));
        cases.push(case("SingleHeadAttention::backward", message, move || {
            let layer = SingleHeadAttention::from(parameters(4, 4, 4, 0));
            changed().backward(&changed_layer_cache(layer, |_| ()), &matrix(3, 4))
        }));
    }
    for (message, x, w, b) in [
        (
            "`x` is empty (0 x 4) but at least one entry is needed",
            matrix(0, 4),
            matrix(4, 2),
            2,
        ),
        (
            "`w` is empty (4 x 0) but at least one entry is needed",
            matrix(3, 4),
            matrix(4, 0),
            0,
        ),
        ("`w` has 5 rows but `x` has 4 columns", matrix(3, 4), matrix(5, 2), 2),
        ("`b` has 3 columns but `w` has 2", matrix(3, 4), matrix(4, 2), 3),
    ] {
        cases
            .push(case("linear", message, move || linear(&x, &w, &RowDVector::zeros(b))));
    }
    cases.extend(of_forward("SingleHeadAttention::forward", |x, _, mask| {
        single_head().forward(x, mask).map(|_| ())
    }));
    cases.extend(of_cross("SingleHeadAttention::forward", |x, context, mask| {
        single_head().forward(x, options(Some(context), mask)).map(|_| ())
    }));
    for (message, layer) in [
        ("`options.dropout` is given but SingleHeadAttention has none", "dropout"),
        ("`options.flash` is given but SingleHeadAttention has none", "flash"),
    ] {
        cases.push(case("SingleHeadAttention::forward", message, move || {
            let flash = Flash::new();
            let asked = match layer {
                "flash" => ForwardOptions::new().with_flash(&flash),
                _ => ForwardOptions::new().with_dropout(0.5, 0),
            };
            single_head().forward(&matrix(3, 4), asked)
        }));
    }
    cases.push(case(
        "ForwardOptions::check_no_dropout_or_flash",
        "`options.dropout` is given but MyLayer has none",
        || {
            ForwardOptions::<f64>::new()
                .with_dropout(0.5, 0)
                .check_no_dropout_or_flash("MyLayer")
        },
    ));
    cases.push(case(
        "linear_backward",
        "`grad_y` has 1 row but the output is 3 x 2",
        || linear_backward(&matrix(3, 4), &matrix(4, 2), &matrix(1, 2)),
    ));
    cases.push(case(
        "Parameters::accumulate",
        "`other.b_q` has 4 columns but the parameter is 1 x 0",
        || {
            let [mut one, mut other] =
                [0, 1].map(|seed| parameters(4, 4, 4, seed).without_biases());
            (one.b_k, other.b_q) = (RowDVector::zeros(4), RowDVector::zeros(4));
            one.accumulate(&other)
        },
    ));
    cases.push(case(
        "gradient_check_parameters",
        "`other.w_q` has 3 columns but the parameter is 4 x 2",
        || {
            let (p, gradients) = (parameters(4, 2, 2, 0), parameters(4, 3, 2, 0));
            gradient_check_parameters(&p, &gradients, 1e-5, |_| Ok(0.0))
        },
    ));
    cases.push(case(
        "gradient_check_parameters",
        "`epsilon` is 0 but it must be positive and finite",
        || {
            let p = parameters(4, 2, 2, 0);
            gradient_check_parameters(&p, &p, 0.0, |p| Ok(p.w_q.sum()))
        },
    ));
    cases.push(case("linear_backward", "`w` has 5 rows but `x` has 4 columns", || {
        linear_backward(&matrix(3, 4), &matrix(5, 2), &matrix(3, 2))
    }));
    cases.push(case(
        "Parameters::accumulate",
        "`other.b_q` has 0 columns but the parameter is 1 x 3",
        || parameters(4, 3, 2, 0).accumulate(&parameters(4, 3, 2, 0).without_biases()),
    ));
    cases.push(case(
        "Parameters::accumulate",
        "`other.w_q` has 3 columns but the parameter is 4 x 2",
        || parameters(4, 2, 2, 0).accumulate(&parameters(4, 3, 2, 0)),
    ));
    cases.push(case(
        "Parameters::accumulate",
        "`other.w_q` has 5 rows but the parameter is 4 x 2",
        || parameters(4, 2, 2, 0).accumulate(&parameters(5, 2, 2, 0)),
    ));

    let of_caches: [Change<SingleHeadCache<f64>>; 15] = [
        ("`cache.x` is empty (0 x 4) but at least one entry is needed", |c| {
            c.x = matrix(0, 4)
        }),
        ("`cache.x` has 5 columns but the layer has d_model = 4", |c| c.x = matrix(3, 5)),
        ("`cache.context` is empty (0 x 4) but at least one entry is needed", |c| {
            c.context = Some(matrix(0, 4));
        }),
        ("`cache.context` has 3 columns but the layer has d_model = 4", |c| {
            c.context = Some(matrix(5, 3));
        }),
        ("`cache.attended` has 2 rows but (n_q, d_v) is 3 x 2", |c| {
            c.attended = matrix(2, 2)
        }),
        ("`cache.attended` has 1 column but (n_q, d_v) is 3 x 2", |c| {
            c.attended = matrix(3, 1)
        }),
        ("`cache.attended` has 3 rows but (n_q, d_v) is 2 x 2", |c| c.x = matrix(2, 4)),
        ("`cache.attention.q` has 2 rows but its projection is 3 x 3", |c| {
            c.attention.q = matrix(2, 3);
        }),
        ("`cache.attention.q` has 4 columns but its projection is 3 x 3", |c| {
            c.attention.q = matrix(3, 4);
        }),
        ("`cache.attention.v` has 6 rows but its projection is 5 x 2", |c| {
            c.attention.v = matrix(6, 2);
        }),
        ("`cache.attention.v` has 5 rows but its projection is 3 x 2", |c| {
            c.context = None
        }),
        ("`cache.attention.v` has 3 columns but its projection is 5 x 2", |c| {
            c.attention.v = matrix(5, 3);
        }),
        ("`cache.k` has 4 rows but (n_k, d_k) is 5 x 3", |c| {
            c.attention.k = matrix(4, 3)
        }),
        ("`cache.weights` has 4 columns but (n_q, n_k) is 3 x 5", |c| {
            c.attention.weights = matrix(3, 4);
        }),
        ("`valid` has 4 entries but n_k = 5", |c| c.attention.mask = valid(4)),
    ];
    for (message, change) in of_caches {
        cases.push(case("SingleHeadAttention::backward", message, move || {
            single_head()
                .backward(&changed_layer_cache(single_head(), change), &matrix(3, 4))
        }));
    }
    cases.extend(of_stale_caches());
    cases.extend(of_d_output("SingleHeadAttention::backward", |grad_output| {
        single_head()
            .backward(&changed_layer_cache(single_head(), |_| ()), grad_output)
            .map(|_| ())
    }));
    cases.extend(of_batches(single_head));
    cases
}

fn of_multi_head_attention() -> Vec<Case> {
    let mut cases = vec![];
    for (message, change) in CHANGED_PARAMETERS.into_iter().chain(CHANGED_BIASES) {
        let changed = move || {
            let mut layer = multi_head();
            change(&mut layer.parameters);
            layer
        };
        cases.push(case("MultiHeadAttention::from_parameters", message, move || {
            MultiHeadAttention::from_parameters(changed().parameters, 2)
        }));
        cases.push(case("MultiHeadAttention::forward", message, move || {
            changed().forward(&matrix(3, 4), &none())
        }));
        cases.push(case("MultiHeadAttention::forward", message, move || {
            let context = matrix(5, 4);
            changed().forward(&matrix(3, 4), options(Some(&context), &none()))
        }));
        cases.push(case("MultiHeadAttention::forward", message, move || {
            changed().forward(&matrix(3, 4), ForwardOptions::new().with_dropout(0.5, 0))
        }));
        cases.push(case("MultiHeadAttention::backward", message, move || {
            changed().backward(&changed_layer_cache(multi_head(), |_| ()), &matrix(3, 4))
        }));
    }
    for (message, [d_model, d_k, d_v]) in [
        ("`n_heads` is 2 but it must divide the 3 columns of `w_q`", [4, 3, 4]),
        ("`n_heads` is 2 but it must divide the 5 columns of `w_v`", [4, 4, 5]),
    ] {
        cases.push(case("MultiHeadAttention::forward", message, move || {
            let mut layer = multi_head();
            layer.parameters = parameters(d_model, d_k, d_v, 0);
            layer.forward(&matrix(3, 4), &none())
        }));
    }
    cases.extend(of_forward("MultiHeadAttention::forward", |x, _, mask| {
        multi_head().forward(x, mask).map(|_| ())
    }));
    cases.extend(of_forward("MultiHeadAttention::forward", |x, _, mask| {
        multi_head().forward(x, ForwardOptions::from(mask).with_dropout(0.5, 0)).map(drop)
    }));
    cases.extend(of_cross("MultiHeadAttention::forward", |x, context, mask| {
        multi_head().forward(x, options(Some(context), mask)).map(drop)
    }));
    cases.extend(of_cross("MultiHeadAttention::forward", |x, context, mask| {
        let options = options(Some(context), mask).with_dropout(0.5, 0);
        multi_head().forward(x, options).map(drop)
    }));
    cases.push(case(
        "MultiHeadAttention::forward",
        "`options.dropout` is given but flash attention keeps no weights to drop",
        || {
            let flash = Flash::new();
            let options = ForwardOptions::new().with_flash(&flash).with_dropout(0.5, 0);
            multi_head().forward(&matrix(3, 4), options)
        },
    ));

    let of_caches: [Change<MultiHeadCache<f64>>; 15] = [
        ("`cache.x` is empty (0 x 4) but at least one entry is needed", |c| {
            c.x = matrix(0, 4)
        }),
        ("`cache.x` has 5 columns but the layer has d_model = 4", |c| c.x = matrix(3, 5)),
        ("`cache.context` is empty (0 x 4) but at least one entry is needed", |c| {
            c.context = Some(matrix(0, 4));
        }),
        ("`cache.context` has 3 columns but the layer has d_model = 4", |c| {
            c.context = Some(matrix(5, 3));
        }),
        ("`cache.attended` has 2 rows but (n_q, d_v) is 3 x 4", |c| {
            *attended_of(c) = matrix(2, 4)
        }),
        ("`cache.attended` has 2 columns but (n_q, d_v) is 3 x 4", |c| {
            *attended_of(c) = matrix(3, 2)
        }),
        ("`cache.heads` has 1 entry but the layer has n_heads = 2", |c| {
            heads_of(c).truncate(1)
        }),
        ("`cache.heads` has 0 entries but the layer has n_heads = 2", |c| {
            heads_of(c).clear()
        }),
        ("`cache.heads[..].q` has 2 rows but a head's slice is 3 x 2", |c| {
            heads_of(c)[1].q = matrix(2, 2);
        }),
        ("`cache.heads[..].q` has 4 columns but a head's slice is 3 x 2", |c| {
            heads_of(c)[0].q = matrix(3, 4);
        }),
        ("`cache.heads[..].v` has 5 rows but a head's slice is 3 x 2", |c| {
            c.context = None
        }),
        ("`cache.heads[..].v` has 1 column but a head's slice is 5 x 2", |c| {
            heads_of(c)[1].v = matrix(5, 1);
        }),
        ("`cache.k` has 4 rows but (n_k, d_k) is 5 x 2", |c| {
            heads_of(c)[1].k = matrix(4, 2)
        }),
        ("`cache.dropout` has 2 rows but `cache.weights` is 3 x 5", |c| {
            heads_of(c)[0].dropout = Some(matrix(2, 5));
        }),
        ("`allowed` has 5 rows but the score matrix is 3 x 5", |c| {
            heads_of(c)[0].mask = Mask::dense(DMatrix::from_element(5, 5, true)).unwrap();
        }),
    ];
    for (message, change) in of_caches {
        cases.push(case("MultiHeadAttention::backward", message, move || {
            multi_head()
                .backward(&changed_layer_cache(multi_head(), change), &matrix(3, 4))
        }));
    }
    cases.extend(of_d_output("MultiHeadAttention::backward", |grad_output| {
        multi_head()
            .backward(&changed_layer_cache(multi_head(), |_| ()), grad_output)
            .map(|_| ())
    }));
    cases.extend(of_batches(multi_head));
    cases
}

fn attended_of(cache: &mut MultiHeadCache<f64>) -> &mut DMatrix<f64> {
    let HeadsCache::Weights { attended, .. } = &mut cache.core else {
        panic!("flash attention was not asked for");
    };
    attended
}

type Forward = fn(x: &DMatrix<f64>, context: &DMatrix<f64>, mask: &Mask) -> Result<()>;

/// A layer with d_model = 4, and a wrong input.
fn of_forward(function: &'static str, run: Forward) -> Vec<Case> {
    let context = || matrix(5, 4);
    vec![
        case(
            function,
            "`x` is empty (0 x 4) but at least one entry is needed",
            move || run(&matrix(0, 4), &context(), &none()),
        ),
        case(
            function,
            "`x` is empty (3 x 0) but at least one entry is needed",
            move || run(&matrix(3, 0), &context(), &none()),
        ),
        case(function, "`x` has 5 columns but the layer has d_model = 4", move || {
            run(&matrix(3, 5), &context(), &none())
        }),
        case(function, "`valid` has 7 entries but n_k = 5", move || {
            run(&matrix(5, 4), &context(), &valid(7))
        }),
        case(function, "`allowed` has 1 row but the score matrix is 5 x 5", move || {
            let mask = Mask::dense(DMatrix::from_element(1, 5, true))?;
            run(&matrix(5, 4), &context(), &mask)
        }),
    ]
}

fn of_cross(function: &'static str, run: Forward) -> Vec<Case> {
    let mut cases = of_forward(function, run);
    cases.extend([
        case(
            function,
            "`context` is empty (0 x 4) but at least one entry is needed",
            move || run(&matrix(3, 4), &matrix(0, 4), &none()),
        ),
        case(
            function,
            "`context` has 3 columns but the layer has d_model = 4",
            move || run(&matrix(3, 4), &matrix(5, 3), &none()),
        ),
        case(function, "`valid` has 3 entries but n_k = 5", move || {
            run(&matrix(3, 4), &matrix(5, 4), &valid(3))
        }),
    ]);
    cases
}

/// An output of three tokens with d_model = 4, and a gradient of another shape.
fn of_d_output(
    function: &'static str,
    run: fn(&DMatrix<f64>) -> Result<()>,
) -> Vec<Case> {
    vec![
        case(function, "`grad_output` has 0 rows but the output is 3 x 4", move || {
            run(&matrix(0, 4))
        }),
        case(function, "`grad_output` has 2 rows but the output is 3 x 4", move || {
            run(&matrix(2, 4))
        }),
        case(function, "`grad_output` has 1 column but the output is 3 x 4", move || {
            run(&matrix(3, 1))
        }),
    ]
}

/// Batches through a layer with d_model = 4.
fn of_batches<L: Layer<f64> + 'static>(layer: fn() -> L) -> Vec<Case> {
    let [forward_batch, backward_batch] =
        ["AttentionLayer::forward_batch", "AttentionLayer::backward_batch"];
    let run =
        move |xs: &[_], mask: Mask| layer().forward_batch(xs, |_| &mask).map(|_| ());
    let caches = move || run_two(&layer());
    vec![
        case(
            forward_batch,
            "`xs` is empty (0 sequences) but at least one entry is needed",
            move || run(&[], none()),
        ),
        case(
            forward_batch,
            "sequence 1 of the batch: `x` has 5 columns but the layer has d_model = 4",
            move || run(&[matrix(3, 4), matrix(2, 5), matrix(0, 4)], none()),
        ),
        case(
            forward_batch,
            "sequence 0 of the batch: `x` is empty (0 x 4) but at least one entry is needed",
            move || run(&[matrix(0, 4), matrix(2, 4)], none()),
        ),
        case(
            forward_batch,
            "sequence 1 of the batch: `valid` has 3 entries but n_k = 2",
            move || run(&[matrix(3, 4), matrix(2, 4)], valid(3)),
        ),
        case(
            backward_batch,
            "`caches` is empty (0 sequences) but at least one entry is needed",
            move || layer().backward_batch(&[], &[]),
        ),
        case(
            backward_batch,
            "`grad_outputs` has 1 entry but `caches` has 2",
            move || layer().backward_batch(&caches(), &[matrix(3, 4)]),
        ),
        case(
            backward_batch,
            "`grad_outputs` has 2 entries but `caches` has 0",
            move || layer().backward_batch(&[], &[matrix(3, 4), matrix(2, 4)]),
        ),
        case(
            backward_batch,
            "sequence 1 of the batch: `grad_output` has 3 rows but the output is 2 x 4",
            move || layer().backward_batch(&caches(), &[matrix(3, 4), matrix(3, 4)]),
        ),
    ]
}

fn run_two<L: Layer<f64>>(layer: &L) -> Vec<L::Cache> {
    let sequences = [matrix(3, 4), matrix(2, 4)];
    layer.forward_batch(&sequences, |_| ForwardOptions::new()).unwrap().1
}

// ---------------------------------------------------------------------------------------------------- tools

fn of_gradient_checks() -> Vec<Case> {
    fn loss(x: &DMatrix<f64>) -> Result<f64> {
        Ok(x.sum())
    }
    fn failing(_: &DMatrix<f64>) -> Result<f64> {
        Mask::window(0).map(|_| 0.0)
    }
    let mut cases = vec![
        case(
            "numerical_gradient",
            "`x` is empty (0 x 2) but at least one entry is needed",
            || numerical_gradient(&matrix(0, 2), 1e-5, loss),
        ),
        case("numerical_gradient", "`width` is 0 but it must be at least 1", || {
            numerical_gradient(&matrix(2, 2), 1e-5, failing)
        }),
        case(
            "gradient_check",
            "`x` is empty (2 x 0) but at least one entry is needed",
            || gradient_check(&matrix(2, 0), &matrix(2, 0), 1e-5, loss),
        ),
        case("gradient_check", "`analytic` has 3 rows but `x` is 2 x 2", || {
            gradient_check(&matrix(2, 2), &matrix(3, 2), 1e-5, loss)
        }),
        case("gradient_check", "`analytic` has 1 column but `x` is 2 x 2", || {
            gradient_check(&matrix(2, 2), &matrix(2, 1), 1e-5, loss)
        }),
        case("gradient_check", "`width` is 0 but it must be at least 1", || {
            gradient_check(&matrix(2, 2), &matrix(2, 2), 1e-5, failing)
        }),
    ];
    for (given, epsilon) in
        [("0", 0.0), ("-0.00001", -1e-5), ("NaN", f64::NAN), ("inf", f64::INFINITY)]
    {
        let message = format!("`epsilon` is {given} but it must be positive and finite");
        cases.push(case("numerical_gradient", message.clone(), move || {
            numerical_gradient(&matrix(2, 2), epsilon, loss)
        }));
        cases.push(case("gradient_check", message, move || {
            gradient_check(&matrix(2, 2), &matrix(2, 2), epsilon, loss)
        }));
    }
    cases
}

fn of_costs() -> Vec<Case> {
    type Count = fn(&AttentionShape) -> Result<()>;
    let counts: [(&str, Count); 4] = [
        ("AttentionShape::flops", |shape| shape.flops().map(|_| ())),
        ("AttentionShape::backward_flops", |shape| shape.backward_flops().map(|_| ())),
        ("AttentionShape::bytes", |shape| shape.bytes(4).map(|_| ())),
        ("AttentionShape::intensity", |shape| shape.intensity(4).map(|_| ())),
    ];
    let sizes: [Change<AttentionShape>; 7] = [
        ("batch", |shape| shape.batch = 0),
        ("n_q", |shape| shape.n_q = 0),
        ("n_k", |shape| shape.n_k = 0),
        ("d_model", |shape| shape.d_model = 0),
        ("d_k", |shape| shape.d_k = 0),
        ("d_v", |shape| shape.d_v = 0),
        ("n_heads", |shape| shape.n_heads = 0),
    ];
    let small = AttentionShape::self_attention(1, 8, 4, 4, 1);
    let mut cases = vec![];
    for (function, count) in counts {
        for (size, clear) in sizes {
            let message = format!("`{size}` is 0 but it must be at least 1");
            cases.push(case(function, message, move || {
                let mut shape = small;
                clear(&mut shape);
                count(&shape)
            }));
        }
        let message = "`shape` is too large but its operations and bytes, and their sums, must fit 128 bits";
        cases.push(case(function, message, move || {
            count(&AttentionShape::self_attention(
                usize::MAX,
                usize::MAX,
                1,
                usize::MAX,
                1,
            ))
        }));
    }
    cases.extend([
        case(
            "AttentionShape::bytes",
            "`element` is 0 but it must be at least 1",
            move || small.bytes(0),
        ),
        case(
            "AttentionShape::intensity",
            "`element` is 0 but it must be at least 1",
            move || small.intensity(0),
        ),
    ]);
    cases
}

fn of_inspection() -> Vec<Case> {
    vec![
        case(
            "row_entropy",
            "`weights` is empty (0 x 3) but at least one entry is needed",
            || row_entropy(&matrix(0, 3)),
        ),
        case(
            "heat_map",
            "`matrix` is empty (0 x 0) but at least one entry is needed",
            || heat_map(&matrix(0, 0), &[], &[]),
        ),
        case("heat_map", "`row_labels` has 1 entry but `matrix` has 2 rows", || {
            heat_map(&matrix(2, 3), &["a"], &["a", "b", "c"])
        }),
        case(
            "heat_map",
            "`column_labels` has 4 entries but `matrix` has 3 columns",
            || heat_map(&matrix(2, 3), &["a", "b"], &["a", "b", "c", "d"]),
        ),
    ]
}

// ---------------------------------------------------------------------------------------------------- flash

/// Three queries, five keys, two heads with d_k = 4 and d_v = 2.
fn of_flash() -> Vec<Case> {
    let mut cases = vec![];
    for (message, q, k, v) in [
        ("`q` is empty (0 x 8) but at least one entry is needed", (0, 8), (5, 8), (5, 4)),
        ("`k` is empty (0 x 8) but at least one entry is needed", (3, 8), (0, 8), (5, 4)),
        ("`v` is empty (5 x 0) but at least one entry is needed", (3, 8), (5, 8), (5, 0)),
        ("`k` has 6 columns but `q` has d_k = 8", (3, 8), (5, 6), (5, 4)),
        ("`v` has 4 rows but `k` has n_k = 5", (3, 8), (5, 8), (4, 4)),
    ] {
        cases.push(case("Inputs::new", message, move || {
            let [q, k, v] = [q, k, v].map(|(rows, columns)| matrix(rows, columns));
            Inputs::new(&q, &k, &v, &none()).map(drop)
        }));
    }
    cases.push(case("Inputs::new", "`valid` has 4 entries but n_k = 5", || {
        Inputs::new(&matrix(3, 8), &matrix(5, 8), &matrix(5, 4), &valid(4)).map(drop)
    }));
    for (message, n_heads, width) in [
        ("`n_heads` is 0 but it must be at least 1", 0, 4),
        ("`n_heads` is 3 but it must divide the 8 columns of `q`", 3, 6),
        ("`n_heads` is 4 but it must divide the 6 columns of `v`", 4, 6),
    ] {
        cases.push(case("Inputs::with_heads", message, move || {
            let (q, k, v) = (matrix(3, 8), matrix(5, 8), matrix(5, width));
            Inputs::new(&q, &k, &v, &none())?.with_heads(n_heads).map(drop)
        }));
    }
    for (message, tiles) in [
        ("`tiles.queries` is 0 but it must be at least 1", Tiles { queries: 0, keys: 1 }),
        ("`tiles.keys` is 0 but it must be at least 1", Tiles { queries: 1, keys: 0 }),
    ] {
        cases.push(case("Flash::with_tiles", message, move || {
            Flash::new().with_tiles(tiles)
        }));
        cases.push(case("tiled_attention", message, move || {
            with_inputs(|inputs, _, _| flash::tiled_attention(inputs, tiles).map(drop))
        }));
        cases.push(case("tiled_attention_backward", message, move || {
            with_inputs(|inputs, forward, grad| {
                flash::tiled_attention_backward(inputs, forward, grad, tiles).map(drop)
            })
        }));
    }
    cases.push(case(
        "Flash::with_threads",
        "`threads` is 0 but it must be at least 1",
        || Flash::new().with_threads(0),
    ));
    cases.push(case(
        "Flash::with_threads",
        "`threads` is 100000 but it must be at most 1024",
        || Flash::new().with_threads(100_000),
    ));
    // No processor has both.
    let elsewhere = if cfg!(target_arch = "aarch64") {
        Instructions::Avx2
    } else {
        Instructions::Neon
    };
    let available = Instructions::available();
    let message =
        format!("`instructions` is {elsewhere:?} but this processor has {available:?}");
    cases.push(case("Flash::with_instructions", &message, move || {
        Flash::new().with_instructions(elsewhere)
    }));
    cases.push(case("TileProducts::new", &message, move || {
        TileProducts::<f32>::new(elsewhere, 8, 8).map(drop)
    }));
    for (message, keys, d) in [
        ("`keys` is 0 but it must be at least 1", 0, 8),
        ("`d` is 0 but it must be at least 1", 8, 0),
    ] {
        cases.push(case("TileProducts::new", message, move || {
            TileProducts::<f32>::new(Instructions::Portable, keys, d).map(drop)
        }));
    }
    for (message, change) in [
        (
            "`forward.output` has 2 rows but (n_q, n_heads · d_v) is 3 x 4",
            (|forward, _| forward.output = matrix(2, 4)) as Mismatch,
        ),
        (
            "`forward.output` has 6 columns but (n_q, n_heads · d_v) is 3 x 4",
            |forward, _| forward.output = matrix(3, 6),
        ),
        (
            "`forward.log_sum_exp` has 1 column but (n_q, n_heads) is 3 x 2",
            |forward, _| forward.log_sum_exp = matrix(3, 1),
        ),
        (
            "`forward.log_sum_exp_low` has 2 rows but (n_q, n_heads) is 3 x 2",
            |forward, _| forward.log_sum_exp_low = matrix(2, 2),
        ),
        ("`grad_output` has 4 rows but the output is 3 x 4", |_, grad| {
            *grad = matrix(4, 4)
        }),
        ("`grad_output` is empty (3 x 0) but at least one entry is needed", |_, grad| {
            *grad = matrix(3, 0)
        }),
    ] {
        cases.push(case("Flash::backward", message, move || {
            with_inputs(|inputs, forward, grad| {
                change(forward, grad);
                Flash::new().backward(inputs, forward, grad).map(drop)
            })
        }));
        cases.push(case("tiled_attention_backward", message, move || {
            with_inputs(|inputs, forward, grad| {
                change(forward, grad);
                let tiles = Tiles::default();
                flash::tiled_attention_backward(inputs, forward, grad, tiles).map(drop)
            })
        }));
    }
    cases
}

/// Caches of other parameters than those of the backward pass: of another layer, or from before a step of an optimiser.
fn of_stale_caches() -> Vec<Case> {
    const MESSAGE: &str =
        "`cache` is of other parameters but `backward` needs those of its forward pass";
    /// A small step, as of gradient descent.
    fn step(parameters: &mut Parameters<f64>) {
        for (_, mut matrix) in parameters.named_mut() {
            matrix.apply(|x| *x -= 1e-9 * (1.0 + x.abs()));
        }
    }
    let x = || matrix(3, 4);
    vec![
        case("SingleHeadAttention::backward", MESSAGE, move || {
            let mut layer = single_head();
            let (output, cache) = layer.forward(&x(), &none())?;
            step(&mut layer.parameters);
            layer.backward(&cache, &output)
        }),
        case("SingleHeadAttention::backward", MESSAGE, move || {
            let (output, cache) = single_head().forward(&x(), &none())?;
            SingleHeadAttention::from(parameters(4, 3, 2, 1)).backward(&cache, &output)
        }),
        case("MultiHeadAttention::backward", MESSAGE, move || {
            let mut layer = multi_head();
            let (output, cache) = layer.forward(&x(), &none())?;
            step(&mut layer.parameters);
            layer.backward(&cache, &output)
        }),
        case("MultiHeadAttention::backward", MESSAGE, move || {
            let (mut layer, flash) = (multi_head(), Flash::new());
            let options = ForwardOptions::new().with_flash(&flash);
            let (output, cache) = layer.forward(&x(), options)?;
            step(&mut layer.parameters);
            layer.backward(&cache, &output)
        }),
    ]
}

type Mismatch = fn(&mut FlashOutput<f64>, &mut DMatrix<f64>);

/// Inputs that fit, what comes out of them, and a gradient of it.
fn with_inputs(
    run: impl Fn(&Inputs<f64>, &mut FlashOutput<f64>, &mut DMatrix<f64>) -> Result<()>,
) -> Result<()> {
    let (q, k, v, mask) = (matrix(3, 8), matrix(5, 8), matrix(5, 4), none());
    let inputs = Inputs::new(&q, &k, &v, &mask)?.with_heads(2)?;
    run(&inputs, &mut Flash::new().forward(&inputs), &mut matrix(3, 4))
}

fn of_flash_layers() -> Vec<Case> {
    let forward = "MultiHeadAttention::forward";
    let backward = "MultiHeadAttention::backward";
    let mut cases = of_forward(forward, |x, _, mask| {
        let flash = Flash::new();
        let options = ForwardOptions::from(mask).with_flash(&flash);
        multi_head().forward(x, options).map(drop)
    });
    cases.extend(of_cross(forward, |x, context, mask| {
        let flash = Flash::new();
        let options = ForwardOptions::from(mask).with_flash(&flash);
        multi_head().forward(x, options.with_context(context)).map(drop)
    }));
    type FlashCache<'a> =
        ([&'a mut DMatrix<f64>; 3], &'a mut Mask, &'a mut FlashOutput<f64>);
    type Changed = (&'static str, fn(FlashCache));
    let of_core: [Changed; 8] = [
        (
            "`cache.forward.output` has 2 rows but (n_q, d_v) is 3 x 4",
            |(_, _, forward)| forward.output = matrix(2, 4),
        ),
        ("`cache.q` has 3 columns but its projection is 3 x 4", |([q, _, _], _, _)| {
            *q = matrix(3, 3)
        }),
        ("`cache.k` has 2 rows but its projection is 5 x 4", |([_, k, _], _, _)| {
            *k = matrix(2, 4)
        }),
        ("`cache.v` has 3 columns but its projection is 5 x 4", |([_, _, v], _, _)| {
            *v = matrix(5, 3)
        }),
        ("`valid` has 4 entries but n_k = 5", |(_, mask, _)| *mask = valid(4)),
        ("`forward.log_sum_exp` has 1 row but (n_q, n_heads) is 3 x 2", |(_, _, f)| {
            f.log_sum_exp = matrix(1, 2)
        }),
        (
            "`forward.log_sum_exp_low` has 1 column but (n_q, n_heads) is 3 x 2",
            |(_, _, f)| f.log_sum_exp_low = matrix(3, 1),
        ),
        ("`cache.q` has 2 rows but its projection is 3 x 4", |([q, _, _], _, _)| {
            *q = matrix(2, 4)
        }),
    ];
    for (message, change) in of_core {
        cases.push(case(backward, message, move || {
            let (output, mut cache) = flash_cache()?;
            let HeadsCache::Flash { q, k, v, mask, forward, .. } = &mut cache.core else {
                panic!("flash attention was asked for");
            };
            change(([q, k, v], mask, forward));
            multi_head().backward(&cache, &output).map(drop)
        }));
    }
    let of_inputs: [Change<MultiHeadCache<f64>>; 2] = [
        ("`cache.x` is empty (0 x 4) but at least one entry is needed", |cache| {
            cache.x = matrix(0, 4);
        }),
        ("`cache.context` has 3 columns but the layer has d_model = 4", |cache| {
            cache.context = Some(matrix(5, 3))
        }),
    ];
    for (message, change) in of_inputs {
        cases.push(case(backward, message, move || {
            let (output, mut cache) = flash_cache()?;
            change(&mut cache);
            multi_head().backward(&cache, &output).map(drop)
        }));
    }
    cases.push(case(
        backward,
        "`grad_output` has 2 rows but the output is 3 x 4",
        || multi_head().backward(&flash_cache()?.1, &matrix(2, 4)).map(drop),
    ));
    cases
}

fn flash_cache() -> Result<(DMatrix<f64>, MultiHeadCache<f64>)> {
    let (flash, context) = (Flash::new(), matrix(5, 4));
    let options = ForwardOptions::new().with_context(&context).with_flash(&flash);
    multi_head().forward(&matrix(3, 4), options)
}

// ---------------------------------------------------------------------------------------------------- online softmax

fn of_online_softmax() -> Vec<Case> {
    type State = OnlineSoftmax<f64>;
    let mut cases = vec![];
    for (message, rows, d_v) in [
        ("`rows` is 0 but it must be at least 1", 0, 2),
        ("`d_v` is 0 but it must be at least 1", 2, 0),
        (
            "`rows` is 1125899906842624 but with d_v = 2 no memory could hold the matrix",
            ABSURD,
            2,
        ),
        (
            "`d_v` is 18446744073709551615 but with rows = 2 no memory could hold the matrix",
            2,
            usize::MAX,
        ),
    ] {
        cases.push(case("OnlineSoftmax::new", message, move || State::new(rows, d_v)));
    }
    for (message, scores, values) in [
        ("`scores` is empty (2 x 0) but at least one entry is needed", (2, 0), (0, 3)),
        ("`scores` is empty (0 x 4) but at least one entry is needed", (0, 4), (4, 3)),
        ("`values` is empty (0 x 3) but at least one entry is needed", (2, 4), (0, 3)),
        ("`values` is empty (4 x 0) but at least one entry is needed", (2, 4), (4, 0)),
        ("`scores` has 1 row but the state has 2", (1, 4), (4, 3)),
        ("`scores` has 3 rows but the state has 2", (3, 4), (4, 3)),
        ("`values` has 5 rows but (keys, d_v) is 4 x 3", (2, 4), (5, 3)),
        ("`values` has 1 column but (keys, d_v) is 4 x 3", (2, 4), (4, 1)),
    ] {
        cases.push(case("OnlineSoftmax::absorb", message, move || {
            let (scores, values) =
                (matrix(scores.0, scores.1), matrix(values.0, values.1));
            State::new(2, 3)?.absorb(&scores, &values)
        }));
    }
    for (message, rows, d_v) in [
        ("`other` has 3 rows but `self` is 2 x 3", 3, 3),
        ("`other` has 1 row but `self` is 2 x 3", 1, 3),
        ("`other` has 4 columns but `self` is 2 x 3", 2, 4),
    ] {
        cases.push(case("OnlineSoftmax::merge", message, move || {
            State::new(2, 3)?.merge(State::new(rows, d_v)?)
        }));
    }
    cases
}

// ---------------------------------------------------------------------------------------------------- building blocks

fn of_building_blocks() -> Vec<Case> {
    let mut cases = vec![
        case("check_positive", "`n` is 0 but it must be at least 1", || {
            check_positive("n", 0)
        }),
        case("check_count", "`x` has 1 entry but two are needed", || {
            check_count("x", "entry", 1, 2, || "two are needed".to_owned())
        }),
        case("check_shape", "`x` has 2 rows but the other is 3 x 4", || {
            check_shape("x", &matrix(2, 4), (3, 4), "the other")
        }),
        case("check_shape", "`x` has 1 column but the other is 3 x 4", || {
            check_shape("x", &matrix(3, 1), (3, 4), "the other")
        }),
        case("check_room", "`rows` is 0 but it must be at least 1", || {
            check_room::<f64>(("rows", 0), ("columns", 2))
        }),
        case("check_room", "`columns` is 0 but it must be at least 1", || {
            check_room::<f64>(("rows", 2), ("columns", 0))
        }),
    ];
    for (rows, columns) in [(ABSURD, 2), (usize::MAX, 2), (1 << 45, 2)] {
        let message = format!(
            "`rows` is {rows} but with columns = {columns} no memory could hold the matrix"
        );
        cases.push(case("check_room", message, move || {
            check_room::<f64>(("rows", rows), ("columns", columns))
        }));
    }
    for (message, q, k) in [
        ("`q` is empty (0 x 4) but at least one entry is needed", (0, 4), (5, 4)),
        ("`k` is empty (5 x 0) but at least one entry is needed", (3, 4), (5, 0)),
        ("`k` has 3 columns but `q` has d_k = 4", (3, 4), (5, 3)),
    ] {
        cases.push(case("check_queries_and_keys", message, move || {
            check_queries_and_keys(&matrix(q.0, q.1), &matrix(k.0, k.1))
        }));
    }
    for (message, k, v) in [
        ("`k` is empty (0 x 4) but at least one entry is needed", (0, 4), (5, 2)),
        ("`v` is empty (5 x 0) but at least one entry is needed", (5, 4), (5, 0)),
        ("`v` has 4 rows but `k` has n_k = 5", (5, 4), (4, 2)),
    ] {
        cases.push(case("check_values", message, move || {
            check_values(&matrix(k.0, k.1), &matrix(v.0, v.1))
        }));
    }
    for (message, x, w, grad_y) in [
        ("`x` is empty (0 x 4) but at least one entry is needed", (0, 4), (4, 2), (0, 2)),
        ("`w` is empty (4 x 0) but at least one entry is needed", (3, 4), (4, 0), (3, 0)),
        ("`w` has 5 rows but `x` has 4 columns", (3, 4), (5, 2), (3, 2)),
        ("`grad_y` has 2 rows but the output is 3 x 2", (3, 4), (4, 2), (2, 2)),
        ("`grad_y` has 3 columns but the output is 3 x 2", (3, 4), (4, 2), (3, 3)),
    ] {
        cases.push(case("linear_backward", message, move || {
            let [x, w, grad_y] = [x, w, grad_y].map(|(n, d)| matrix(n, d));
            linear_backward(&x, &w, &grad_y)
        }));
    }
    let of_caches: [Change<AttentionCache<f64>>; 5] = [
        ("`cache.q` is empty (0 x 4) but at least one entry is needed", |c| {
            c.q = matrix(0, 4)
        }),
        ("`cache.v` is empty (5 x 0) but at least one entry is needed", |c| {
            c.v = matrix(5, 0)
        }),
        ("`cache.k` has 3 columns but (n_k, d_k) is 5 x 4", |c| c.k = matrix(5, 3)),
        ("`cache.k` has 5 rows but (n_k, d_k) is 6 x 4", |c| c.v = matrix(6, 2)),
        ("`cache.weights` has 2 rows but (n_q, n_k) is 3 x 5", |c| {
            c.weights = matrix(2, 5)
        }),
    ];
    for (message, change) in of_caches {
        cases.push(case("AttentionCache::check", message, move || {
            changed_cache(change).check()
        }));
    }
    cases
}

// ---------------------------------------------------------------------------------------------------- no error to return

/// What cannot fail must have an answer for everything.
#[test]
fn what_returns_no_error_answers_every_question() {
    let no_parameters = Parameters {
        w_q: matrix(0, 0),
        w_k: matrix(0, 3),
        w_v: matrix(3, 0),
        w_o: matrix(0, 0),
        b_q: RowDVector::zeros(0),
        b_k: RowDVector::zeros(0),
        b_v: RowDVector::zeros(0),
        b_o: RowDVector::zeros(0),
    };
    assert_eq!(no_parameters.d_model(), 0);

    assert!(relative_error(f64::NAN, 1.0).is_nan());
    assert!(relative_error(f64::INFINITY, f64::INFINITY).is_nan());

    let mask = Mask::window(usize::MAX).unwrap().and(Mask::causal());
    let sized = mask.sized(3, 5).unwrap();
    assert!(!sized.allows(usize::MAX, 0) && !sized.allows(0, usize::MAX));
    #[expect(clippy::reversed_empty_ranges, reason = "a caller may give one")]
    let tiles = [(usize::MAX..usize::MAX, 0..5), (2..1, 0..5), (0..3, 7..usize::MAX)];
    for (rows, columns) in tiles {
        assert_eq!(sized.visibility(rows, columns), attention::Visibility::Hidden);
    }

    let all = Mask::dense(DMatrix::from_element(3, 5, true)).unwrap().and(mask.clone());
    let all = all.sized(3, 5).unwrap();
    #[expect(clippy::reversed_empty_ranges, reason = "a caller may give one")]
    let elsewhere = [(usize::MAX, 0..3), (0, 2..9), (4, 3..usize::MAX), (9, 2..1)];
    for (key, queries) in elsewhere {
        let mut line = [1.0; 4];
        all.hide_queries(key, queries.clone(), &mut line, 0.0);
        for (entry, i) in line.into_iter().zip(queries) {
            assert_eq!(entry != 0.0, all.allows(i, key), "query {i}, key {key}");
        }
        all.hide_queries(key, 0..3, &mut [], 0.0);
    }

    let flops =
        attention::Flops { projections: u128::MAX, scores: 1, softmax: 1, values: 1 };
    assert_eq!(flops.total(), u128::MAX);
    let bytes =
        attention::Bytes { q: u128::MAX, k: 1, v: 1, weights: 1, output: u128::MAX };
    assert_eq!(bytes.total(), u128::MAX);
    assert_eq!(
        AttentionShape::self_attention(0, 0, usize::MAX, 0, 0).crossover(),
        usize::MAX
    );

    let no_keys = attention_static(
        &SMatrix::<f64, 2, 3>::zeros(),
        &SMatrix::<f64, 0, 3>::zeros(),
        &SMatrix::<f64, 0, 2>::zeros(),
    );
    assert_eq!(no_keys, SMatrix::<f64, 2, 2>::zeros());
}

/// `format!` panics at a width beyond 65535.
#[test]
fn a_heat_map_takes_labels_of_any_length() {
    let long = "x".repeat(70_000);
    let map = heat_map(&matrix(1, 2), &[&long], &[&long, "b"]).unwrap();
    let widths: Vec<usize> = map.lines().map(|line| line.chars().count()).collect();
    assert_eq!(widths, [3 * 70_000 + 4; 2]);
}

// ---------------------------------------------------------------------------------------------------- variants

/// What a caller matches on: each variant, with its numbers as numbers.
#[test]
fn every_variant_has_its_numbers() {
    let x = matrix(2, 4);
    let mask = none();
    let inputs = |heads| Inputs::new(&x, &x, &x, &mask)?.with_heads(heads);
    let epsilon = |epsilon| numerical_gradient(&x, epsilon, |x| Ok(x.sum()));
    let batch = |x: DMatrix<f64>| {
        multi_head().forward_batch(&[matrix(2, 4), x], |_| ForwardOptions::new())
    };
    let dropping = ForwardOptions::new().with_dropout(0.5, 0);
    let empty = Error::Empty { argument: "x", given: "0 x 4".to_owned() };
    let shape = |expected, because: &str| Error::Shape {
        argument: "k",
        axis: "column",
        given: 3,
        expected,
        because: because.to_owned(),
    };
    for (error, expected) in [
        (scaled_scores(&x, &matrix(5, 3)).unwrap_err(), shape(4, "`q` has d_k = 4")),
        (inputs(0).unwrap_err(), Error::Zero { argument: "n_heads" }),
        (
            inputs(3).unwrap_err(),
            Error::Indivisible {
                argument: "n_heads",
                given: 3,
                total: 4,
                because: "it must divide the 4 columns of `q`".to_owned(),
            },
        ),
        (
            epsilon(-0.5).unwrap_err(),
            Error::OutOfRange {
                argument: "epsilon",
                given: -0.5,
                because: "it must be positive and finite".to_owned(),
            },
        ),
        (
            Mask::none().sized(3, ABSURD << 10).unwrap_err(),
            Error::NoMemory { rows: ("n_q", 3), columns: ("n_k", ABSURD << 10) },
        ),
        (
            AttentionShape::self_attention(ABSURD, ABSURD, ABSURD, 1, 1)
                .flops()
                .unwrap_err(),
            Error::Overflow { argument: "shape" },
        ),
        (
            single_head().forward(&x, dropping).unwrap_err(),
            Error::Unsupported {
                argument: "options.dropout",
                given: "given".to_owned(),
                expected: "SingleHeadAttention has none".to_owned(),
            },
        ),
        (
            batch(matrix(0, 4)).unwrap_err(),
            Error::Sequence { index: 1, source: Box::new(empty) },
        ),
    ] {
        assert_eq!(error, expected);
    }
}
