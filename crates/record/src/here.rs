//! The machine at hand, and the time: what a record says of its circumstances.

use crate::{Cache, Machine};
use anyhow::{Context, Result};
use jiff::{Timestamp, Unit};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

/// This machine.
///
/// # Errors
/// The system does not tell what its processor is.
pub fn machine() -> Result<Machine> {
    let what = RefreshKind::nothing()
        .with_cpu(CpuRefreshKind::nothing())
        .with_memory(MemoryRefreshKind::nothing().with_ram());
    let system = System::new_with_specifics(what);
    let cpu = system.cpus().first().context("the system shows no processor")?;
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    Ok(Machine {
        cpu: cpu.brand().trim().to_owned(),
        microarchitecture: microarchitecture(),
        family: number_in(&cpuinfo, "cpu family"),
        model: number_in(&cpuinfo, "model"),
        cores: system.cpus().len(),
        memory: system.total_memory(),
        caches: caches(Path::new("/sys/devices/system/cpu/cpu0/cache")),
        accelerator: None,
        os: std::env::consts::OS.to_owned(),
        arch: std::env::consts::ARCH.to_owned(),
    })
}

/// The name that LLVM gives to this processor's microarchitecture, if `rustc` is there to tell.
fn microarchitecture() -> Option<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(["--print", "target-cpus"]).output().ok()?;
    microarchitecture_in(&String::from_utf8(output.stdout).ok()?)
}

/// The name in `native - Select the CPU of the current host (currently NAME).`
fn microarchitecture_in(target_cpus: &str) -> Option<String> {
    let mut lines = target_cpus.lines().map(str::trim_start);
    let native = lines.find(|line| line.starts_with("native "))?;
    let (_, name) = native.split_once("(currently ")?;
    let name = name.strip_suffix(").")?;
    (!name.is_empty() && name != "generic").then(|| name.to_owned())
}

/// Returns the number in the first line `NAME : NUMBER` of what Linux tells of its processors.
fn number_in(cpuinfo: &str, name: &str) -> Option<u32> {
    let mut lines = cpuinfo.lines().filter_map(|line| line.split_once(':'));
    let (_, number) = lines.find(|(found, _)| found.trim() == name)?;
    number.trim().parse().ok()
}

/// Returns the caches of one core that Linux tells of; elsewhere, none.
fn caches(folder: &Path) -> Vec<Cache> {
    let cache = |folder: PathBuf| -> Option<Cache> {
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let kib: u64 = read("size")?.trim().strip_suffix('K')?.parse().ok()?;
        Some(Cache {
            level: read("level")?.trim().parse().ok()?,
            kind: read("type")?.trim().to_owned(),
            bytes: kib << 10,
        })
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut caches: Vec<_> = entries.filter_map(|entry| cache(entry.path())).collect();
    caches.sort_by(|a, b| (a.level, &a.kind).cmp(&(b.level, &b.kind)));
    caches
}

/// The time of day, as a record tells it.
///
/// # Errors
/// There is none.
pub fn now() -> Result<String> {
    Ok(Timestamp::now().round(Unit::Second)?.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_can_be_described() {
        let machine = machine().unwrap();
        assert!(machine.cores > 0 && machine.memory > 0, "{machine:?}");
    }

    #[test]
    fn the_compiler_tells_the_microarchitecture() {
        let text = "Available CPUs for this target:\n    \
             native                  - Select the CPU of the current host (currently znver5).\n    \
             alderlake\n";
        assert_eq!(microarchitecture_in(text).as_deref(), Some("znver5"));
        assert_eq!(microarchitecture_in(&text.replace("znver5", "generic")), None);
        assert_eq!(microarchitecture_in("error: no such option"), None);
    }

    #[test]
    fn family_and_model_are_read_from_what_linux_tells() {
        let text = "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 173\nmodel name\t: Intel(R) Xeon(R)\n";
        assert_eq!(number_in(text, "cpu family"), Some(6));
        assert_eq!(number_in(text, "model"), Some(173));
        assert_eq!(number_in(text, "stepping"), None);
        assert_eq!(number_in("model\t: six", "model"), None);
    }

    #[test]
    fn now_is_a_date() {
        assert!(crate::is_time(&now().unwrap()));
    }
}
