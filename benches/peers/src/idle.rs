//! Other work beside the peer's, which may spoil the measurements.

use crate::programs::Program;
use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

/// Beyond this, what goes on beside the peer at work is worth a warning: as a part of one core.
const DISTURBING: f64 = 0.05;

/// Returns a warning if the machine is at work on something else before anything begins.
pub fn disturbance() -> Option<String> {
    let mut system = System::new();
    system.refresh_cpu_usage();
    sleep(Duration::from_millis(500));
    system.refresh_cpu_usage();
    let cores = system.cpus().len() as f64;
    let busy = f64::from(system.global_cpu_usage()) / 100.0 * cores;
    (busy > DISTURBING * cores).then(|| {
        format!("something else was at work when this began: {busy:.1} of {cores} cores were busy")
    })
}

/// The processor time that the peers use while it is not their turn.
#[derive(Default)]
pub struct Idle {
    system: System,
    /// Seconds of processors, by peer.
    spent: BTreeMap<Program, f64>,
    /// Seconds of turns.
    wall: f64,
}

impl Idle {
    /// Returns the seconds of processors that each of these processes has used.
    pub fn cpu(&mut self, processes: &[(Program, Pid)]) -> Vec<f64> {
        let ids: Vec<_> = processes.iter().map(|(_, id)| *id).collect();
        let what = ProcessRefreshKind::nothing().with_cpu().without_tasks();
        let processes = ProcessesToUpdate::Some(&ids);
        self.system.refresh_processes_specifics(processes, false, what);
        let milliseconds =
            |id: &Pid| self.system.process(*id).map_or(0, |p| p.accumulated_cpu_time());
        ids.iter().map(|id| milliseconds(id) as f64 / 1000.0).collect()
    }

    /// Adds what these processes have used since they had used so much, in a turn of another one.
    pub fn add(&mut self, processes: &[(Program, Pid)], before: &[f64], turn: Duration) {
        let after = self.cpu(processes);
        for (((program, _), after), before) in processes.iter().zip(after).zip(before) {
            *self.spent.entry(*program).or_default() += after - before;
        }
        self.wall += turn.as_secs_f64();
    }

    pub fn warning(&self) -> Option<String> {
        let percent = |seconds: f64| 100.0 * seconds / self.wall;
        let all: f64 = self.spent.values().sum();
        let part = |(program, seconds): (&Program, &f64)| {
            format!("{program} on {:.1} % of a core", percent(*seconds))
        };
        let parts: Vec<_> = self.spent.iter().map(part).collect();
        (percent(all) > 100.0 * DISTURBING).then(|| {
            format!("peers were at work when it was not their turn: {}", parts.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn who_works_out_of_turn_is_found_out() {
        let mut idle = Idle { wall: 100.0, ..Idle::default() };
        idle.spent.extend([(Program::PyTorch, 0.2), (Program::NumPy, 0.0)]);
        assert_eq!(idle.warning(), None);
        idle.spent.insert(Program::PyTorch, 20.0);
        let warning = idle.warning().unwrap();
        assert!(
            warning.contains("PyTorch on 20.0 % of a core, NumPy on 0.0 %"),
            "{warning}"
        );
    }

    /// This process has used some processor time by now, and uses more in a loop.
    #[test]
    fn processor_time_is_counted() {
        let mut idle = Idle::default();
        let own = [(Program::Ours, Pid::from_u32(std::process::id()))];
        let before = idle.cpu(&own)[0];
        let begun = Instant::now();
        while idle.cpu(&own)[0] - before < 0.03 {
            assert!(begun.elapsed() < Duration::from_secs(60));
        }
    }
}
