//! The suite that every engine passes: functions over a table of engines, which `test_engines!` turns into tests. What one engine alone
//! promises is tested beside it.

pub mod agreement;
pub mod cached;
pub mod errors;
pub mod gradients;
pub mod hidden;
pub mod layers;
pub mod numbers;
pub mod pytorch;
pub mod split;

use attention::engine::{Engine, Factor, PagedInputs};
use attention::flash::{FlashOutput, Inputs, Tiles};
use attention::{AttentionGradients, Float, Result};
use nalgebra::{DMatrix, DMatrixView};
use std::fmt;
use std::sync::Arc;

/// An engine under the name by which a failure tells it.
#[derive(Clone)]
pub struct Named<T: Float> {
    name: String,
    keys: usize, // in a tile
    engine: Arc<dyn Engine<T>>,
}

/// A program's table: its engines in all their configurations, with these tiles, or with their own.
pub type Engines<T> = fn(Option<Tiles>) -> Vec<Named<T>>;

impl<T: Float> Named<T> {
    /// Returns an engine that sums over so many keys at a time.
    pub fn new(
        name: impl Into<String>,
        keys: usize,
        engine: impl Engine<T> + 'static,
    ) -> Self {
        Named { name: name.into(), keys, engine: Arc::new(engine) }
    }
}

impl<T: Float> fmt::Debug for Named<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)
    }
}

impl<T: Float> Engine<T> for Named<T> {
    fn forward(&self, inputs: &Inputs<T>) -> Result<FlashOutput<T>> {
        self.engine.forward(inputs)
    }

    fn backward(
        &self,
        inputs: &Inputs<T>,
        forward: &FlashOutput<T>,
        grad_output: DMatrixView<T>,
    ) -> Result<AttentionGradients<T>> {
        self.engine.backward(inputs, forward, grad_output)
    }

    fn forward_paged(&self, inputs: &PagedInputs<T>) -> Result<FlashOutput<T>> {
        self.engine.forward_paged(inputs)
    }

    fn product(&self, a: Factor<T>, b: Factor<T>, bias: Option<&[T]>) -> DMatrix<T> {
        self.engine.product(a, b, bias)
    }
}

/// The engines with tiles that no length of a test is a multiple of, and with their own.
fn with_two_tiles<T: Float>(engines: Engines<T>, tiles: Tiles) -> Vec<Named<T>> {
    [engines(Some(tiles)), engines(None)].concat()
}

/// Makes a test of each function of the suite, on the engines of this table. A function that isn't listed is dead code, of which the
/// compiler warns.
macro_rules! test_engines {
    ($engines:ident) => {
        crate::engines::test_engines! { $engines
            in_f64 f64 {
                agreement: every_length, larger_problems, random_problems, rules_for_scores, shared_keys, order_of_keys,
                    views, calls_from_parallel_loops;
                cached: any_cut_is_the_whole_text, pages_change_no_bit, a_window_is_its_mask,
                    masks_and_rules_are_those_of_the_whole_text, pages_come_late;
                errors: wrong_shapes_are_refused;
                gradients: of_attention, of_tables, of_layers;
                hidden: what_no_query_sees_is_exactly_zero, hidden_keys_change_no_bit,
                    a_visible_nan_does_not_reach_hidden_keys, a_visible_nan_is_in_every_gradient_of_its_row;
                layers: layers_are_their_definition, dropout, options_choose_an_engine;
                numbers: ties_are_ties_at_any_score;
                pytorch: attention, rules_for_scores, shared_keys, layers, decoding;
                split: parts_of_the_keys_merge_to_the_whole;
            }
            in_f32 f32 {
                agreement: every_length, larger_problems, random_problems;
                cached: any_cut_is_the_whole_text, pages_change_no_bit;
                hidden: a_score_that_overflows_does_not_reach_hidden_keys;
                layers: layers_are_their_definition;
                numbers: ties_are_ties_at_any_score, equal_scores_of_many_keys,
                    a_score_may_overflow_before_it_is_scaled, nearly_equal_scores,
                    the_gradient_of_queries_over_many_keys;
                split: parts_of_the_keys_merge_to_the_whole, gradients_over_parts_of_the_keys_add_up;
            }
        }
    };
    ($engines:ident $($precision:ident $float:ident { $($file:ident: $($test:ident),*;)* })*) => {
        $(mod $precision { $(mod $file { $(
            #[test]
            fn $test() {
                crate::engines::$file::$test(super::super::$engines::<$float>);
            }
        )* })* })*
    };
}
pub(crate) use test_engines;
