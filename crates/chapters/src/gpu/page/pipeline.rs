//! The plan of kernel 4 in numbers.

use crate::figures::format::{integer, percent};
use crate::gpu::pipeline::of_hopper;
use crate::output::Page;
use laboratory::gpu::CONSUMERS;

pub fn generate(page: &mut Page) {
    let lengths = of_hopper();
    page.value("plan-entries", integer(lengths.entries));
    page.value("plan-product", integer(lengths.product));
    page.value("plan-two-products", integer(2 * lengths.product));
    page.value("plan-three-products", integer(3 * lengths.product));
    page.value("plan-exponentials", integer(lengths.exponentials));
    page.value("plan-others", integer(lengths.others));
    page.value("plan-correction", integer(lengths.correction));
    page.value("plan-softmax", integer(lengths.softmax()));
    page.value("plan-slack", integer(lengths.longest_softmax(true) - lengths.softmax()));
    page.value("plan-waited-for", integer(lengths.softmax() + lengths.correction));
    let percent_in_tex =
        format!("{}\\,\\%", integer((100.0 * lengths.softmax_busy()).round() as usize));
    page.value("plan-softmax-busy-tex", percent_in_tex);
    page.value("plan-busy-alone", percent(lengths.busy(1, false), 0));
    page.value("plan-busy-overlap", percent(lengths.busy(1, true), 0));
    page.value("plan-busy", percent(lengths.busy(CONSUMERS, false), 0));
    page.value("plan-busy-both", percent(lengths.busy(CONSUMERS, true), 0));
    let left = lengths.longest_softmax(false) - lengths.softmax();
    page.value("plan-slack-turns", integer(left));
}
