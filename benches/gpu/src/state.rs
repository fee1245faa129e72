//! The state of the device while kernels run on it: its clock and its power, asked of NVML all the time.

use anyhow::{Context, Result};
use attention::cuda::Gpu;
use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::Clock;
use record::statistics::median;
use std::ffi::OsStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What a device does at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct State {
    /// Clocks of a multiprocessor in a second.
    pub clock: f64,
    /// Watts, which the driver averages over some time.
    pub power: f64,
}

impl State {
    /// The median of each number; none of none.
    pub fn median_of(states: &[Self]) -> Option<Self> {
        let of = |number: fn(&Self) -> f64| {
            median(&states.iter().map(number).collect::<Vec<_>>())
        };
        (!states.is_empty()).then(|| Self {
            clock: of(|state| state.clock),
            power: of(|state| state.power),
        })
    }
}

/// Tells the states of the device from one moment to another.
pub trait Watch {
    /// One at least, if there are any.
    fn between(&self, begin: Instant, end: Instant) -> Vec<State>;
}

/// Knows nothing.
pub struct Blind;

impl Watch for Blind {
    fn between(&self, _begin: Instant, _end: Instant) -> Vec<State> {
        vec![]
    }
}

/// A thread that asks NVML, until it is dropped.
pub struct Sampler {
    samples: Arc<Mutex<Vec<(Instant, State)>>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    const PAUSE: Duration = Duration::from_millis(10);

    /// # Errors
    /// There is no NVML, which the driver brings, or it doesn't know this GPU.
    pub fn start(gpu: &Gpu) -> Result<Self> {
        let id = gpu.stream().context().uuid().context("ask which device it is")?;
        let name = name_of(id.bytes.map(|byte| byte as u8));
        let nvml = Nvml::builder().lib_path(OsStr::new("libnvidia-ml.so.1")).init()?;
        state(&nvml, &name)?; // an error is told now
        let (samples, is_over) = (Arc::default(), Arc::default());
        let (kept, over) = (Arc::clone(&samples), Arc::clone(&is_over));
        let ask = move || {
            while !AtomicBool::load(&over, Ordering::Relaxed) {
                if let Ok(state) = state(&nvml, &name) {
                    let all: &Mutex<Vec<_>> = &kept;
                    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
                    all.push((Instant::now(), state));
                }
                thread::sleep(Self::PAUSE);
            }
        };
        Ok(Self { samples, is_over, thread: Some(thread::spawn(ask)) })
    }
}

impl Watch for Sampler {
    /// A time that is shorter than the pause between two questions has the latest state.
    fn between(&self, begin: Instant, end: Instant) -> Vec<State> {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let is_in = |(at, _): &&(Instant, State)| (begin..=end).contains(at);
        let states: Vec<_> =
            samples.iter().filter(is_in).map(|sample| sample.1).collect();
        if states.is_empty() {
            samples.last().map(|last| last.1).into_iter().collect()
        } else {
            states
        }
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn state(nvml: &Nvml, name: &str) -> Result<State> {
    let device = nvml.device_by_uuid(name)?;
    let (mhz, milliwatts) = (device.clock_info(Clock::SM)?, device.power_usage()?);
    Ok(State { clock: f64::from(mhz) * 1e6, power: f64::from(milliwatts) / 1e3 })
}

/// NVML's name of a device: "GPU-00112233-4455-6677-8899-aabbccddeeff".
fn name_of(id: [u8; 16]) -> String {
    let hex =
        |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let [a, b, c, d, e] = [0..4, 4..6, 6..8, 8..10, 10..16].map(|range| hex(&id[range]));
    format!("GPU-{a}-{b}-{c}-{d}-{e}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_the_name_that_its_driver_prints() {
        let id = std::array::from_fn(|i| 17 * i as u8);
        assert_eq!(name_of(id), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn states_are_those_of_their_time() {
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let state = |clock: f64| State { clock, power: 100.0 };
        let samples =
            [(0, 1.0), (10, 2.0), (20, 3.0)].map(|(ms, clock)| (at(ms), state(clock)));
        let sampler = Sampler {
            samples: Arc::new(Mutex::new(samples.to_vec())),
            is_over: Arc::default(),
            thread: None,
        };
        assert_eq!(sampler.between(at(5), at(20)), [state(2.0), state(3.0)]);
        assert_eq!(sampler.between(at(25), at(26)), [state(3.0)]); // the last one before
        assert_eq!(
            State::median_of(&[state(1.0), state(5.0), state(2.0)]),
            Some(state(2.0))
        );
        assert_eq!(State::median_of(&[]), None);
    }
}
