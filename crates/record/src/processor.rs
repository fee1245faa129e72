//! The name of a machine's processor, from what the processor and the compiler report.

use crate::Machine;

/// A design of processor cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Design {
    /// LLVM's name for it, as `rustc --print target-cpus` gives it.
    pub llvm: &'static str,
    /// The vendor's name for it.
    pub name: &'static str,
    /// The sizes in KiB of a core's first-level data cache, its first-level instruction cache, and its second-level cache.
    caches: [u64; 3],
}

const fn design(llvm: &'static str, name: &'static str, caches: [u64; 3]) -> Design {
    Design { llvm, name, caches }
}

/// Designs of servers, from the vendors' optimisation manuals.
const DESIGNS: [Design; 9] = [
    design("znver2", "Zen 2", [32, 32, 512]),
    design("znver3", "Zen 3", [32, 32, 512]),
    design("znver4", "Zen 4", [32, 32, 1024]),
    design("znver5", "Zen 5", [48, 32, 1024]),
    design("cascadelake", "Cascade Lake", [32, 32, 1024]),
    design("icelake-server", "Ice Lake", [48, 32, 1280]),
    design("sapphirerapids", "Sapphire Rapids", [48, 32, 2048]),
    design("emeraldrapids", "Emerald Rapids", [48, 32, 2048]),
    design("graniterapids", "Granite Rapids", [48, 64, 2048]),
];

/// The design of a machine's cores, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Known<'a> {
    /// The compiler's name for it, which doesn't contradict the caches.
    Named(Design),
    /// The compiler's name contradicts the caches, which are those of this design and of no other in the list.
    ByCaches(Design),
    /// The compiler's name, which isn't in the list.
    Unlisted(&'a str),
    /// Neither: the compiler didn't say, or what it said contradicts the caches and they fit no design or several.
    Nothing,
}

impl Machine {
    /// Returns what is known of the design of the cores.
    ///
    /// The compiler asks the processor for its family and model. A virtual machine may be told those of an older processor, and an
    /// older compiler doesn't know new ones. The sizes of the caches come from the processor too, so a name that contradicts
    /// them isn't believed.
    ///
    /// ```
    /// use record::{Known, Record};
    ///
    /// let mut machine = Record::parse("pace", include_str!("../tests/pace.json"))?.machine;
    /// machine.microarchitecture = Some("znver5".to_owned());
    /// machine.caches.clear(); // nothing that could contradict it
    /// assert!(matches!(machine.known_design(), Known::Named(design) if design.name == "Zen 5"));
    /// machine.microarchitecture = Some("leather".to_owned());
    /// assert_eq!(machine.known_design(), Known::Unlisted("leather"));
    /// # Ok::<(), anyhow::Error>(())
    /// ```
    #[must_use]
    pub fn known_design(&self) -> Known<'_> {
        let Some(said) = &self.microarchitecture else {
            return Known::Nothing;
        };
        let Some(named) = DESIGNS.into_iter().find(|design| design.llvm == said) else {
            return Known::Unlisted(said);
        };
        let Some(caches) = self.caches_of_a_core() else {
            return Known::Named(named);
        };
        if named.caches == caches {
            return Known::Named(named);
        }
        let mut fitting = DESIGNS.into_iter().filter(|design| design.caches == caches);
        match (fitting.next(), fitting.next()) {
            (Some(only), None) => Known::ByCaches(only),
            _ => Known::Nothing,
        }
    }

    /// The three sizes of [`Design::caches`], if the machine tells all of them.
    fn caches_of_a_core(&self) -> Option<[u64; 3]> {
        let size = |level: u32, kind: &str| {
            let is_it =
                |cache: &&crate::Cache| cache.level == level && cache.kind == kind;
            self.caches.iter().find(is_it).map(|cache| cache.bytes >> 10)
        };
        Some([size(1, "Data")?, size(1, "Instruction")?, size(2, "Unified")?])
    }

    /// Returns the processor's brand with the design of its cores as far as it is known, or else with its family and model:
    /// `AMD EPYC (Zen 5)`.
    #[must_use]
    pub fn processor(&self) -> String {
        let brand = &self.cpu;
        match (self.known_design(), self.family, self.model) {
            (Known::Named(design), ..) => format!("{brand} ({})", design.name),
            (Known::ByCaches(design), ..) => {
                format!("{brand} ({}, by its caches)", design.name)
            }
            (Known::Unlisted(said), ..) => format!("{brand} ({said})"),
            (Known::Nothing, Some(family), Some(model)) => {
                format!("{brand} (family {family}, model {model})")
            }
            (Known::Nothing, ..) => brand.clone(),
        }
    }

    /// Returns what the machine's folder is named after: the brand, and LLVM's name for the design if it is known.
    pub(crate) fn slug(&self) -> String {
        match self.known_design() {
            Known::Named(design) | Known::ByCaches(design) => {
                slug(&format!("{} {}", self.cpu, design.llvm))
            }
            Known::Unlisted(_) | Known::Nothing => slug(&self.processor()),
        }
    }
}

/// Returns a name for a folder: `Intel(R) Xeon(R) Gold 6148 CPU @ 2.40GHz` becomes `intel-xeon-gold-6148-cpu-2-40ghz`.
fn slug(cpu: &str) -> String {
    let mut text = cpu.to_lowercase();
    for mark in ["(r)", "(tm)", "(c)", "®", "™"] {
        text = text.replace(mark, " ");
    }
    let words: Vec<_> = text
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .collect();
    if words.is_empty() { "machine".to_owned() } else { words.join("-") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cache, Record};

    /// A machine whose compiler gives this name, with these caches in KiB: first-level data and instructions, second level.
    fn machine(said: &str, [data, instruction, second]: [u64; 3]) -> Machine {
        let pace = Record::parse("pace", include_str!("../tests/pace.json")).unwrap();
        let cache = |level, kind: &str, kib: u64| Cache {
            level,
            kind: kind.to_owned(),
            bytes: kib << 10,
        };
        Machine {
            cpu: "Intel(R) Xeon(R) Processor".to_owned(),
            microarchitecture: Some(said.to_owned()),
            caches: vec![
                cache(1, "Data", data),
                cache(1, "Instruction", instruction),
                cache(2, "Unified", second),
                cache(3, "Unified", 480 << 10),
            ],
            ..pace.machine
        }
    }

    #[test]
    fn a_name_that_fits_the_caches_is_believed() {
        let emerald = machine("emeraldrapids", [48, 32, 2048]);
        assert_eq!(emerald.processor(), "Intel(R) Xeon(R) Processor (Emerald Rapids)");
        assert_eq!(emerald.slug(), "intel-xeon-processor-emeraldrapids");
    }

    #[test]
    fn a_name_that_contradicts_the_caches_gives_way_to_the_only_design_that_fits() {
        let granite = machine("emeraldrapids", [48, 64, 2048]);
        let says = "Intel(R) Xeon(R) Processor (Granite Rapids, by its caches)";
        assert_eq!(granite.processor(), says);
        assert_eq!(granite.slug(), "intel-xeon-processor-graniterapids");
    }

    #[test]
    fn without_a_design_that_fits_the_family_and_the_model_are_told() {
        // The caches of several designs, and those of none.
        for caches in [[48, 32, 2048], [1, 2, 3]] {
            let mut unknown = machine("znver5", caches);
            assert_eq!(unknown.known_design(), Known::Nothing);
            assert_eq!(unknown.processor(), "Intel(R) Xeon(R) Processor");
            (unknown.family, unknown.model) = (Some(6), Some(207));
            let says = "Intel(R) Xeon(R) Processor (family 6, model 207)";
            assert_eq!(unknown.processor(), says);
            assert_eq!(unknown.slug(), "intel-xeon-processor-family-6-model-207");
        }
    }

    #[test]
    fn folders_are_named_after_processors() {
        assert_eq!(slug("AMD EPYC"), "amd-epyc");
        assert_eq!(slug("Intel(R) Xeon(R) Processor"), "intel-xeon-processor");
        assert_eq!(
            slug("Intel(R) Core(TM) i7-8550U CPU @ 1.80GHz"),
            "intel-core-i7-8550u-cpu-1-80ghz"
        );
        assert_eq!(slug("™"), "machine");
    }
}
