//! # An exponential by hand
//!
//! hard, 40 minutes, without `.exp` `::exp` `.exp2` `::exp2` `.exp_m1` `::exp_m1` `.powf` `::powf` `.powi` `::powi` `f64`
//!
//! The chapter computes $2^x$ by arithmetic alone, so that loops over it can be made of vector instructions. Write
//! $e^x$ in `f32` in the same way: take out a power of two, and give what is left to a polynomial.
//!
//! All is `f32`: no `exp`, no `powf` or `powi`, no `f64`. Wherever $e^x$ is a normal number, the relative error must stay below
//! `5e-7`, about four units in the last place. That's harder for large $x$ than for small ones.
//!
//! Also: $e^0$ is exactly 1. What is too large for an `f32` gives $\infty$, and what is too small gives a number that
//! isn't negative and at most as large as the smallest normal one. $e^{-\infty}$ is 0, and NaN stays NaN.
//!
//! # Hint
//!
//! $e^x = 2^k e^r$ with $k = \mathrm{round}(x \log_2 e)$ and $r = x - k \ln 2$. How large can $r$ be? How many terms of
//! $e^r = \sum_i r^i / i!$ do you need?
//!
//! # Hint
//!
//! If $x$ is 80, then $k \ln 2$ is about 80 as well, and rounding it to `f32` loses digits that $r$ needs. Split
//! $\ln 2$ into `0.693359375` and `-2.1219444e-4`. The first has so few bits that its product with $k$ is exact.
//! Subtract both products, one after the other.
//!
//! # Hint
//!
//! Clamp $x$ to a range such as $\pm 110$, whose ends give $0$ and $\infty$. The power $2^k$ is
//! `f32::from_bits(((k + 127) as u32) << 23)` for $k$ from $-126$ to $127$. Since $k$ can be $128$ or $-150$, multiply
//! by two powers, with $k / 2$ and the rest. The polynomial is $1 + r (1 + r/2 (1 + r/3 (\dots)))$.

/// Returns e^x.
pub fn exp(x: f32) -> f32 {
    // SOLUTION
    // FAULT no-clamp: does the exponent leave its bits
    // > let x = if x.is_finite() { x } else { 0.0 * x };
    // FAULT the-library: has `.exp`: this exercise asks you to do without it
    // > return x.exp();
    // > let x = x.clamp(-110.0, 110.0);
    // FAULT in-f64: has `f64`: this exercise asks you to do without it
    // > let x = (x as f64).clamp(-110.0, 110.0) as f32;
    let x = x.clamp(-110.0, 110.0); // NaN stays NaN
    let k = (x * std::f32::consts::LOG2_E).round();
    // The first part of ln 2 has few bits, so its product with k is exact.
    // FAULT one-constant: which product loses the digits
    // > let r = x - k * std::f32::consts::LN_2;
    let r = x - k * 0.693359375 - k * -2.1219444e-4;
    // 1 + r (1 + r/2 (1 + r/3 (…))), for r from −0.35 to 0.35
    let mut sum = 1.0;
    // FAULT few-terms: does the polynomial have enough terms
    // > for i in (1..=4).rev() {
    for i in (1..=7).rev() {
        sum = 1.0 + sum * r / i as f32;
    }
    let k = k as i32;
    // FAULT one-power: has no room for 2 to the power of 128
    // > sum * power_of_two(k.clamp(-127, 128))
    sum * power_of_two(k / 2) * power_of_two(k - k / 2)
    // END
}

// SOLUTION
/// 2^k for k from −126 to 127, by writing k into the bits of the exponent.
fn power_of_two(k: i32) -> f32 {
    f32::from_bits((k.wrapping_add(127) as u32) << 23)
}
// END

#[cfg(test)]
mod tests {
    use super::*;

    fn error(x: f32) -> f64 {
        let right = f64::from(x).exp();
        ((f64::from(exp(x)) - right) / right).abs()
    }

    /// The largest relative error over a range, and where it is.
    fn worst(from: f32, to: f32) -> (f64, f32) {
        let places = (0..=2000).map(|i| from + (to - from) * i as f32 / 2000.0);
        places
            .map(|x| (error(x), x))
            .fold((0.0, from), |a, b| if b.0 <= a.0 { a } else { b })
    }

    #[test]
    fn near_zero_the_polynomial_is_accurate() {
        assert!(
            exp(0.0) == 1.0,
            "the exponential of 0 is exactly 1; yours is {:?}, expected {:?}",
            exp(0.0),
            1.0
        );
        let (error, x) = worst(-0.34, 0.34);
        assert!(
            error < 5e-7,
            "for x = {x} the relative error is {error:.1e}: does the polynomial have enough terms?"
        );
    }

    #[test]
    fn a_few_units_are_accurate() {
        let (error, x) = worst(-4.0, 4.0);
        assert!(
            error < 5e-7,
            "for x = {x} the relative error is {error:.1e}: is r, what is left after k is taken out, between −0.35 and 0.35?"
        );
    }

    #[test]
    fn large_numbers_are_as_accurate() {
        for (from, to) in [(-87.3, -60.0), (60.0, 88.0), (-60.0, 60.0)] {
            let (error, x) = worst(from, to);
            assert!(
                error < 5e-7,
                "for x = {x} the relative error is {error:.1e}, though it's small near 0: which product loses the digits that r needs?"
            );
        }
    }

    #[test]
    fn the_largest_numbers_are_there() {
        let (error, x) = worst(88.0, 88.72);
        assert!(
            error < 5e-7,
            "e^{x} fits in an f32, and you are off by {error:.1e}: k is 128, and the field of the exponent has no room for 2 to the power of 128"
        );
    }

    #[test]
    fn beyond_its_range_it_is_zero_or_infinite() {
        for x in [89.0, 120.0, 1e4, 3e38, f32::INFINITY] {
            assert!(
                exp(x) == f32::INFINITY,
                "e^{x} is too large for an f32: does the exponent leave its bits? Yours is {:?}, expected {:?}",
                exp(x),
                f32::INFINITY
            );
        }
        for x in [-88.0, -95.0, -104.0, -120.0, -1e4, -3e38, f32::NEG_INFINITY] {
            let came = exp(x);
            assert!(
                (0.0..=f32::MIN_POSITIVE).contains(&came),
                "e^{x} gives {came}, but it's smaller than any normal f32: does the exponent leave its bits?"
            );
        }
        assert!(
            exp(f32::NEG_INFINITY) == 0.0,
            "a hidden score has the weight 0; yours is {:?}, expected {:?}",
            exp(f32::NEG_INFINITY),
            0.0
        );
        assert!(exp(f32::NAN).is_nan(), "NaN should stay NaN");
    }
}
