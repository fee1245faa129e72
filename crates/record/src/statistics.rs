//! Medians and means.

/// Half of the numbers are at most this. Of an even count, the mean of the two in the middle; of none, NaN.
///
/// ```
/// use record::statistics::median;
/// assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
/// assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
/// assert!(median(&[]).is_nan());
/// ```
#[must_use]
pub fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.len() % 2, sorted.get(middle)) {
        (_, None) => f64::NAN,
        (1, Some(number)) => *number,
        (_, Some(number)) => (sorted[middle - 1] + number) / 2.0,
    }
}

/// The median distance from the median, times 1.4826: the standard deviation, if the noise is normal.
///
/// ```
/// // The distances are 1, 0, 2, 7 and 0.
/// assert_eq!(record::statistics::spread(&[1.0, 2.0, 4.0, 9.0, 2.0]), 1.4826);
/// ```
#[must_use]
pub fn spread(numbers: &[f64]) -> f64 {
    let middle = median(numbers);
    1.4826
        * median(
            &numbers.iter().map(|number| (number - middle).abs()).collect::<Vec<_>>(),
        )
}

/// The n-th root of the product.
///
/// ```
/// use record::statistics::geometric_mean;
/// assert_eq!(geometric_mean(&[4.0, 0.25]), 1.0);
/// assert!((geometric_mean(&[2.0, 8.0]) - 4.0).abs() < 1e-14);
/// ```
#[must_use]
pub fn geometric_mean(numbers: &[f64]) -> f64 {
    (numbers.iter().map(|number| number.ln()).sum::<f64>() / numbers.len() as f64).exp()
}

/// Returns the ratio of the other one's time: its median and its spread, over the rounds in which both took part. A slow
/// moment that hits both leaves it alone.
///
/// ```
/// use record::statistics::ratio;
/// assert_eq!(ratio(&[2.0, 20.0, 2.0], &[1.0, 10.0, 1.0]), (2.0, 0.0));
/// let ours_took_one_more = [1.0, 10.0, 1.0, 1.0];
/// assert_eq!(ratio(&[2.0, 20.0, 2.0], &ours_took_one_more), (2.0, 0.0));
/// ```
#[must_use]
pub fn ratio(other: &[f64], ours: &[f64]) -> (f64, f64) {
    let ratios: Vec<_> =
        other.iter().zip(ours).map(|(other, ours)| other / ours).collect();
    (median(&ratios), spread(&ratios))
}
