//! Tests of what the chapter says of its numbers.

use super::backward::{Loads, Plan, Registers};
use super::banks::{self, Clocks, D, clocks_with_padding};
use super::compiled::needs;
use super::decoding;
use super::fragments::{left_factor, scores};
use super::ladder::{self, Step, steps};
use super::machine::{self, *};
use super::pipeline::of_hopper;
use super::published::{FLASH_2, FLASH_3};
use super::{race, short, source};
use crate::records::tests::committed;
use gpu::tiles;
use laboratory::gpu::{CONSUMERS, Work, clocks};

/// The guide's multiply-adds per clock and the data sheet's rates meet there.
#[test]
fn the_clocks_are_those_that_nvidia_states() {
    for (clock, stated) in [(clock_f32(), 1.98e9), (clock_tensor(), 1.83e9)] {
        assert!((clock / stated - 1.0).abs() < 1e-3, "{clock} is not {stated}");
    }
}

#[test]
fn registers_are_larger_than_shared_memory_and_both_together_than_l2() {
    let [registers, shared, l2, _] = machine::memories().map(|memory| memory.bytes);
    assert!(registers > shared && registers + shared > l2);
}

/// Four words for each unit, one for each bank.
#[test]
fn bandwidths_are_multiplied_as_the_chapter_does() {
    let words_a_clock = MULTIPROCESSORS as f64 * clock_f32() * 4.0;
    let [registers, shared, ..] = machine::memories().map(|memory| memory.bandwidth);
    assert_eq!(registers, Some(words_a_clock * (4 * LANES) as f64));
    assert_eq!(shared, Some(words_a_clock * BANKS as f64));
}

#[test]
fn both_reports_of_a_race_name_the_same_lines() {
    let races = race::lines(race::REPORT).unwrap();
    assert_eq!(races, [races[0]; 2]);
    let [write, read] = races[0].map(|line| source::line(line).unwrap());
    assert!(write.starts_with("`tile[row][column] = "));
    assert!(read.contains("shared.k[j][c]"));
}

/// "keys 5, 133, 261"
#[test]
fn a_thread_of_kernel_0_takes_every_128th_key() {
    assert_eq!(tiles::naive::THREADS, 133 - 5);
}

#[test]
fn no_conflict_of_banks_is_left() {
    let Clocks { tiled, registers, matrices } = Clocks::with_remedies();
    assert_eq!((tiled, registers, matrices), ([1, 1], [2; 4], 4));
}

#[test]
fn without_remedies_banks_are_in_conflict() {
    let Clocks { tiled, registers, matrices } = Clocks::without_remedies();
    assert_eq!((tiled, registers[1], matrices), ([8, 4], 16, 32));
    // 16 lanes times 16 bytes are two clocks, whatever the order.
    assert_eq!(registers[3], 2);
}

#[test]
fn other_paddings_cost_as_many_clocks_as_the_answer_says() {
    assert_eq!([4, 8, 16].map(clocks_with_padding), [1, 2, 4]);
}

#[test]
fn the_headings_of_the_panels_are_those_of_the_width() {
    assert_eq!(D, 128);
}

#[test]
fn the_lane_that_holds_a_score_is_the_one_that_wants_its_weight() {
    for (row, column) in (0..256).map(|i| (i / 16, i % 16)) {
        let (from, register) = scores(row, column);
        let (to, part) = left_factor(row, column);
        assert_eq!(from, to, "({row}, {column})");
        // As the kernel packs: `part` takes the pair part % 2 of accumulator part / 2.
        let (tile, pair, which) = (part / 2, part % 2, column % 2);
        assert_eq!(register, 4 * tile + 2 * pair + which, "({row}, {column})");
    }
}

#[test]
fn every_kernel_reaches_a_share_of_its_roof() {
    for step in steps() {
        let (least, most) = step.predicted();
        assert!(0.0 < least && least < most && most <= 1.0, "{}", step.name);
    }
}

#[test]
fn each_kernel_removes_the_obstacle_of_the_one_before() {
    let [naive, tiled, registers, tensor, hopper, _] =
        steps().each_ref().map(Step::relative);
    assert!(naive.loads > 10.0 && naive.loads > naive.slow && naive.slow > 0.9);
    assert!(tiled.loads > 2.0 * tiled.instructions && tiled.loads < naive.loads / 2.0);
    assert!(registers.loads < 0.6 && registers.instructions < 1.2);
    assert!(registers.instructions > registers.loads);
    assert!(tensor.tensor > tensor.loads - 1e-9 && tensor.loads > 1.0);
    assert_eq!(tensor.exponentials, hopper.exponentials);
    assert!(hopper.tensor == 1.0 && hopper.loads < tensor.loads);
    assert!(hopper.exponentials > 0.4);
}

/// They run at a lower rate: a maximum and half a conversion for each score.
#[test]
fn comparisons_and_conversions_are_too_few_to_set_the_pace() {
    let slower = 1.5 / COMPARISONS as f64;
    for step in steps() {
        let instructions: f64 = step.functions.iter().map(|f| f.instructions).sum();
        assert!(slower < instructions, "{}", step.name);
    }
}

/// Two loads, then one, of one clock each, for 32 multiply-adds.
#[test]
fn the_loads_of_kernel_1_are_those_that_the_chapter_works_out() {
    assert!(banks::tiled_loads(D + 1).iter().all(|load| clocks(load) == 1));
    let [one, two] = [1, 2].map(|loads| ladder::row_of_loads(loads) as f64);
    let tiled = steps()[1].relative();
    assert!((tiled.loads - f64::midpoint(two, one) - 0.25).abs() < 0.05, "{tiled:?}");
}

#[test]
fn the_functions_of_kernel_0_cannot_overlap() {
    let [naive, ..] = steps();
    assert!(naive.predicted().1 < 1.0 / naive.relative().loads);
    assert_eq!(naive.beyond, (2 * D * 4 + 7 * 4) as f64);
}

#[test]
fn kernels_0_3_and_4_ask_for_more_than_hbm_delivers() {
    let steps = steps();
    let greedy = steps
        .iter()
        .filter(|step| step.asked_of_l2_at(step.predicted().1) > H100.bandwidth);
    assert_eq!(greedy.map(|step| step.number).collect::<Vec<_>>(), [0, 3, 4]);
}

/// Kernels 3 and 4 fetch each key and value once for 128 queries: too few operations per byte for the tensor cores.
#[test]
fn the_reads_of_kernels_3_and_4_lie_left_of_the_ridge() {
    for step in &steps()[3..5] {
        assert_eq!(step.intensity_beyond(), 128.0);
        assert!(step.intensity_beyond() < H100.ridge_bf16());
    }
}

#[test]
fn keys_and_values_of_a_head_fit_l2_three_times() {
    assert!(3 * ladder::bytes_of_head(4) < L2);
}

#[test]
fn at_a_width_of_64_the_exponentials_take_as_long_as_the_products() {
    let ratio = TENSOR as f64 / (2.0 * 64.0 * EXPONENTIALS as f64);
    assert!((ratio - 1.0).abs() < 1e-9);
}

#[test]
fn turns_are_enough_and_one_consumer_is_not_whatever_overlaps() {
    let lengths = of_hopper();
    assert_eq!([false, true].map(|overlap| lengths.busy(CONSUMERS, overlap)), [1.0; 2]);
    let [alone, overlapped] = [false, true].map(|overlap| lengths.busy(1, overlap));
    assert!(alone < overlapped && overlapped < 1.0);
}

/// The first softmax has only the other consumer's first scores beside it.
#[test]
fn the_tensor_cores_of_the_plan_rest_only_at_the_start() {
    let lengths = of_hopper();
    let mut products = lengths.time_line(CONSUMERS, true, 20);
    products.retain(|bar| bar.work != Work::Softmax);
    products.sort_by_key(|bar| bar.span.from);
    let rests = products.windows(2).map(|pair| pair[1].span.from - pair[0].span.to);
    let rests: Vec<_> = rests.enumerate().filter(|(_, rest)| *rest > 0).collect();
    let first = lengths.softmax() + lengths.correction - lengths.product;
    assert_eq!(rests, [(1, first)]);
}

/// Two stages for keys and two for values are in use.
#[test]
fn shared_memory_has_room_for_a_third_stage_of_kernel_4_and_not_for_a_fourth() {
    let kernels = committed().of_no_machine("kernels").unwrap();
    let functions = needs(&kernels).unwrap();
    let (.., hopper) = functions.iter().find(|(kernel, ..)| *kernel == "hopper").unwrap();
    let stage = 2 * tiles::hopper::KEYS * D * 2; // a tile of keys and one of values, of two bytes per number
    assert!(
        hopper.shared + stage <= MOST_SHARED && hopper.shared + 2 * stage > MOST_SHARED
    );
}

/// The design of kernel 3 is that of FlashAttention-2, and kernel 4's that of FlashAttention-3.
#[test]
fn the_published_speeds_lie_where_they_are_predicted() {
    let [_, _, _, tensor_cores, hopper, _] = steps();
    for (step, published) in [(tensor_cores, FLASH_2), (hopper, FLASH_3)] {
        let ((least, most), [share, _]) = (step.predicted(), published.shares());
        assert!((least..most).contains(&share), "{}", published.who);
    }
}

#[test]
fn kernel_1_waits_for_its_loads() {
    let [_, tiled, ..] = steps();
    assert!(tiled.relative().loads > 0.6 / tiled.predicted().0);
}

/// "Two thread blocks fit on a multiprocessor", "a warp has just eight pages", "eight independent warps", "twelve rows are zeros", "four heads read the same keys"
#[test]
fn a_step_fills_places_and_rows_as_the_page_says() {
    let record = committed().of_no_machine("kernels").unwrap();
    let functions = needs(&record).unwrap();
    let blocks = |name: &str| {
        functions.iter().find(|(_, function, _)| *function == name).unwrap().2.blocks()
    };
    assert_eq!(blocks("decode_split"), 2);
    assert_eq!(blocks("decode_split") * tiles::decode::WARPS, 8);
    let group = decoding::HEADS / decoding::KV_HEADS;
    assert_eq!((group, tiles::decode::ROWS - group), (4, 12));
    let pages = tiles::decode::SPLIT / tiles::decode::PAGE;
    assert_eq!((pages, pages, pages / tiles::decode::WARPS), (32, WARP, 8));
    assert_eq!(tiles::decode::MERGING_WARPS, 16);
    assert_eq!((1000 / tiles::decode::PAGE, 1000 % tiles::decode::PAGE), (62, 8));
}

/// "$dK$ and $dV$ take 128 registers of a thread, $dQ$ takes 64"; the scores of 64 more keys take what $dV$ would; all fit
#[test]
fn a_consumer_of_kernel_6_has_registers_for_its_tiles() {
    use tiles::backward_hopper::{CONSUMER_REGISTERS, KEYS, QUERIES};
    let [keys, queries] = [Registers::new(QUERIES, 2), Registers::new(KEYS, 1)];
    assert_eq!((keys.sums, queries.sums), (128, 64));
    assert_eq!(2 * (queries.entries - keys.entries), keys.sums - queries.sums);
    assert!(keys.all().max(queries.all()) < CONSUMER_REGISTERS);
    assert!(Registers::new(2 * QUERIES, 2).all() > 255);
}

/// "more products than a round of one lasts"; "Reading their factors takes shared memory as long as multiplying takes the tensor cores"
#[test]
fn kernel_6_waits_for_tensor_cores_and_almost_for_its_loads() {
    let plans = Plan::of_functions();
    assert!(plans.iter().all(|plan| CONSUMERS * plan.products() > plan.of_tile()));
    let relative = ladder::backward_on_tensor_cores().relative();
    assert!(
        (relative.tensor - 1.4).abs() < 1e-9 && relative.loads > 0.8 * relative.tensor
    );
    assert_eq!(relative.together(), relative.tensor);
    let [keys, queries] = Loads::of_functions();
    let of_products = plans.each_ref().map(|plan| plan.products() as f64);
    assert_eq!(keys.factors, 2.0 * plans[0].product as f64);
    assert!(keys.all() / of_products[0] > 0.9 && queries.all() / of_products[1] < 0.9);
}

/// "Kernel 1 overlaps most, kernels 2 and 5 least, and the two kernels on tensor cores lie between";
/// "Tensor cores … used a smaller share of what they could do; *hopper* won that share back"
#[test]
fn speeds_lie_in_their_ranges_as_the_page_says() {
    let record = committed().of_one_machine(["gpu"]).unwrap();
    let shares = super::page::shares(&record[0], &steps()).unwrap();
    let overlap =
        |i: usize| super::page::overlap_of(shares[i], steps()[i].predicted()).unwrap();
    let mut kernels = [1, 2, 3, 4, 5];
    kernels.sort_by(|a, b| overlap(*a).total_cmp(&overlap(*b)));
    assert_eq!([kernels[0], kernels[1], kernels[4]], [2, 5, 1]);
    assert!([2, 5].into_iter().all(|i| {
        let of = steps()[i].relative();
        of.instructions > of.loads && of.instructions > of.slow
    }));
    assert!(shares[3] < shares[2] && shares[2] < shares[4]);
    // "Kernels 2 and 4 each reach four fifths of the speed of NVIDIA's own product"
    for i in [2, 4] {
        let product = record[0].all("roof/product", steps()[i].dtype).next().unwrap();
        let n = product.sizes["n"] as f64;
        let of_product =
            shares[i] * steps()[i].roof() * product.median / (2.0 * n.powi(3));
        assert!((0.78..0.83).contains(&of_product), "{of_product}");
    }
    let widths = steps().each_ref().map(|step| step.predicted().1 / step.predicted().0);
    let widest = widths.into_iter().fold(0.0, f64::max);
    assert!((2.5..3.0).contains(&widest), "{widest}");
}

/// "At the shortest length kernel 4 is always slower than cuDNN", "At the longer lengths kernel 4 is level or faster"; kernel 5 beside *math*
#[test]
fn kernels_beside_pytorch_are_as_the_page_says() {
    let [record] = committed().of_one_machine(["gpu"]).unwrap();
    for m in record.all("forward/torch-cudnn / hopper", "bf16") {
        let is_short = m.sizes["n"] == 1024;
        assert!(if is_short { m.median < 1.0 } else { m.median > 0.98 }, "{m:?}");
    }
    for m in record.all("backward/torch-math / backward", "f32") {
        assert_eq!(m.median > 1.0, m.settings["mask"] == "causal", "{m:?}");
    }
}

/// "Arithmetic is nearly free here"; "as fast as a copy" if everything overlaps
#[test]
fn a_step_waits_for_memory() {
    let demands = decoding::demands(3e12);
    assert_eq!(demands.together(), demands.slow);
    assert!(decoding::intensity() < H100.ridge_bf16() / 50.0);
}

/// "they always have the same work"; "{{128}} rows of the last tile empty, and with a causal mask that is the tile with the most keys"; a
/// model that is off by no more than the page shows.
#[test]
fn short_sequences_cost_what_the_page_says() {
    let causal = short::Batch::new(16_384, (1024, 128), tiles::hopper::QUERIES, true);
    let n = causal.keys.len();
    assert!((0..n).all(|i| causal.keys[i] + causal.keys[n - 1 - i] == n + 1));
    let [times] = committed().of_one_machine(["gpu"]).unwrap();
    let kernels = committed().of_no_machine("kernels").unwrap();
    let [wide, narrow] = [128, 64].map(|d| short::of_width(&times, &kernels, d).unwrap());
    assert_eq!((wide.rows, narrow.rows), ([128; 2], [192, 128]));
    assert_eq!((wide.empty, narrow.empty), ([0; 2], [128, 0]));
    for short in [wide, narrow] {
        let [model, measured, _] = short.causal;
        assert!((model / measured - 1.0).abs() < 0.11, "{model}, not {measured}");
        let both = short.persistent.iter();
        assert!(both.map(|one| one.predicted).all(|[least, most]| least < most));
    }
}
