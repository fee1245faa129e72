//! The cost of fresh pages: softmax, attention and a layer, each measured with the allocator as it is and told to keep its pages.

use anyhow::{Context, Result};
use record::{Record, Unit};

/// One computation.
pub struct Paged {
    pub name: &'static str,
    /// Page faults with the allocator as it is.
    pub faults: f64,
    /// Seconds with the allocator as it is.
    pub fresh: f64,
    /// Seconds with the pages kept.
    pub kept: f64,
}

impl Paged {
    fn of(record: &Record, name: &'static str, what: &str) -> Result<Self> {
        let number = |group: &str, unit| {
            let what = format!("{group}/{what}");
            let found = record.all(&what, "f32").next();
            record.in_unit(found.with_context(|| format!("no {what}"))?, unit)
        };
        Ok(Paged {
            name,
            faults: number("fresh faults", Unit::Count)?,
            fresh: number("fresh", Unit::Seconds)?,
            kept: number("kept", Unit::Seconds)?,
        })
    }
}

/// Returns the largest spread of a time, as a share of its median.
pub fn widest_spread(record: &Record) -> f64 {
    let times = record.measurements.iter().filter(|m| m.unit == Unit::Seconds);
    times.map(|m| m.spread / m.median).fold(0.0, f64::max)
}

/// All that the record has.
pub struct Pages {
    pub softmax: Paged,
    pub forward: Paged,
    pub causal: Paged,
    pub projections: Paged,
    pub cores: Paged,
    pub layer: Paged,
}

impl Pages {
    pub fn of(record: &Record) -> Result<Self> {
        let of = |name, what| {
            let paged = Paged::of(record, name, what);
            paged.with_context(|| format!("the record `{}`", record.topic))
        };
        Ok(Pages {
            softmax: of("softmax alone, $n = 4096$", "softmax")?,
            forward: of("attention, $n = 4096$", "forward")?,
            causal: of("the same with a causal mask", "forward causal")?,
            projections: of("four projections, $n = 1024$", "projections")?,
            cores: of("eight heads, one after the other, $n = 1024$", "cores")?,
            layer: of("the whole layer, $n = 1024$", "layer")?,
        })
    }

    pub fn rows(&self) -> [&Paged; 6] {
        let Pages { softmax, forward, causal, projections, cores, layer } = self;
        [softmax, forward, causal, projections, cores, layer]
    }

    /// Returns how many times as long as its projections and cores the whole layer takes: with fresh pages, and with kept ones.
    pub fn layer_over_parts(&self) -> [f64; 2] {
        let Pages { projections, cores, layer, .. } = self;
        [
            layer.fresh / (projections.fresh + cores.fresh),
            layer.kept / (projections.kept + cores.kept),
        ]
    }
}
