//! The figure of the ladder: a bar for what was measured and a ring for what was predicted.

use super::facts::Step;
use crate::figures::format::{duration, fixed};
use crate::figures::{Area, BLUE, Color, MUTED, TEXT, filled, label, line, ring, text};
use anyhow::Result;

const LEFT: i32 = 104; // where the bars begin
const TOP: i32 = 38;
const ROW: i32 = 34;
const HALF: i32 = 10; // of a bar's height

/// The time that was predicted, if there is one: a ring can only be drawn at a time.
pub fn ring_of(step: &Step) -> Option<f64> {
    step.predicted().filter(|seconds| *seconds > 0.0)
}

/// The distance from one line to the next, in seconds: 1, 2 or 5 times a power of ten, for at most six lines.
fn tick(longest: f64) -> f64 {
    let least = longest / 5.0;
    let power = 10.0_f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= least);
    factor.unwrap_or(10.0) * power
}

/// Step by step from top to bottom.
pub fn draw(area: &Area, steps: &[Step]) -> Result<()> {
    let times =
        steps.iter().flat_map(|step| [step.seconds, ring_of(step).unwrap_or(0.0)]);
    let longest = times.fold(0.0, f64::max);
    let width = f64::from(area.dim_in_pixel().0 as i32 - LEFT - 84);
    let place = |seconds: f64| LEFT + (width * seconds / longest).round() as i32;
    filled(area, [(LEFT, 6), (LEFT + 28, 22)], BLUE.mix(0.45))?;
    text(area, (LEFT + 36, 14), "measured")?;
    ring(area, (LEFT + 160, 14), TEXT)?;
    text(area, (LEFT + 174, 14), "predicted from the version before")?;

    let bottom = TOP + ROW * steps.len() as i32;
    let tick = tick(longest);
    for seconds in (0..=(longest / tick) as usize).map(|i| tick * i as f64) {
        let x = place(seconds);
        line(area, &[(x, TOP), (x, bottom)], MUTED.mix(0.25))?;
        let milliseconds = fixed(1e3 * seconds, usize::from(tick < 1e-3));
        label(area, (x, bottom + 14), &milliseconds, TEXT)?;
    }
    label(area, (place(longest / 2.0), bottom + 42), "milliseconds", TEXT)?;
    for (i, step) in steps.iter().enumerate() {
        draw_step(area, TOP + ROW * i as i32 + ROW / 2, step, place)?;
    }
    Ok(())
}

/// A bar at this height.
fn draw_step(area: &Area, y: i32, step: &Step, place: impl Fn(f64) -> i32) -> Result<()> {
    let mut end = place(step.seconds);
    filled(area, [(LEFT, y - HALF), (end, y + HALF)], BLUE.mix(0.45))?;
    text(area, (4, y), &format!("{} {}", step.number, step.name))?;
    if let Some(predicted) = ring_of(step) {
        let x = place(predicted);
        ring(area, (x, y), TEXT)?;
        // The time stands at the end of its bar, or behind the ring if that is in its way.
        if (end - 6..end + 84).contains(&x) {
            end = end.max(x + 6);
        }
    }
    text(area, (end + 8, y), &duration(step.seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_round_numbers_stand_below_the_bars() {
        let about =
            |longest: f64, expected: f64| (tick(longest) / expected - 1.0).abs() < 1e-9;
        assert!(
            about(0.41, 0.1) && about(0.82, 0.2) && about(2.4, 0.5) && about(30.0, 10.0)
        );
        assert!(about(0.004, 0.001) && about(0.0017, 0.0005));
    }
}
