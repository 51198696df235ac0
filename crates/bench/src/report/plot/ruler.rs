//! Places of an axis's numbers, and those that are written beside it.

use crate::model::{Axis, Scale};

/// More steps of a logarithmic axis than these are not all written.
const STEPS: usize = 9;

pub(super) struct Ruler {
    scale: Scale,
    pub(super) low: f64,
    pub(super) high: f64,
    /// Values that are written beside it.
    pub(super) ticks: Vec<Tick>,
}

/// A value that is written.
pub(super) struct Tick {
    pub(super) place: f64,
    pub(super) label: String,
}

impl Ruler {
    /// From left to right: the values reach from end to end.
    pub(super) fn across(axis: &Axis, values: impl Iterator<Item = f64>) -> Self {
        Self::of(axis, values, 0.0)
    }

    /// Upwards: there is air above the values, and on a logarithmic axis also below.
    pub(super) fn upwards(axis: &Axis, values: impl Iterator<Item = f64>) -> Self {
        Self::of(axis, values, 0.05)
    }

    fn of(axis: &Axis, values: impl Iterator<Item = f64>, air: f64) -> Self {
        let is_log = matches!(axis.scale, Scale::Log2 | Scale::Log10);
        let is_shown = |value: &f64| value.is_finite() && (!is_log || *value > 0.0);
        let ends = values.filter(is_shown).fold(None, |ends: Option<(f64, f64)>, value| {
            Some(ends.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
        });
        let (low, high) = ends.unwrap_or((1.0, 1.0));
        let sizes = axis.label.contains("bytes");
        let write = |value: f64| if sizes { size(value) } else { number(value) };
        match &axis.scale {
            Scale::Names(names) => Self::of_names(&axis.scale, names),
            Scale::Linear => {
                let low = low.min(0.0);
                let high = (high * (1.0 + air)).max(0.0);
                let high = if high > low { high } else { low + 1.0 };
                let step = if sizes { power_of_two(high - low) } else { round(high - low) };
                let high = if air > 0.0 { (high / step).ceil() * step } else { high };
                let low = (low / step).floor() * step;
                let count = ((high - low) / step * (1.0 + 1e-9)).floor();
                let values = up_to(count).map(|index| low + index * step);
                let ticks = values.map(|value| Tick { place: value, label: write(value) });
                Self { scale: Scale::Linear, low, high, ticks: ticks.collect() }
            }
            Scale::Log2 | Scale::Log10 => {
                let steps = if axis.scale == Scale::Log2 { doublings } else { decades };
                let steps = steps(low * (1.0 - air), high * (1.0 + air));
                Self::of_steps(&axis.scale, &steps, write)
            }
        }
    }

    fn of_names(scale: &Scale, names: &[String]) -> Self {
        let tick = |(place, label): (f64, &String)| Tick { place, label: label.clone() };
        let places = std::iter::successors(Some(0.0), |place| Some(place + 1.0));
        let ticks: Vec<Tick> = places.zip(names).map(tick).collect();
        let last = ticks.last().map_or(0.0, |tick| tick.place);
        Self { scale: scale.clone(), low: -0.5, high: last + 0.5, ticks }
    }

    /// A logarithmic axis from the first step to the last. Where there are too many, only every
    /// second one is written, or third ...; of decades first only the powers of ten.
    fn of_steps(scale: &Scale, steps: &[f64], write: impl Fn(f64) -> String) -> Self {
        let place = |value: &f64| place(scale, *value);
        let low = steps.first().map_or(0.0, place);
        let high = steps.last().map_or(1.0, place);
        let is_whole = |value: &&f64| (place(value) - place(value).round()).abs() < 1e-9;
        let mut written: Vec<f64> = steps.to_vec();
        if written.len() > STEPS {
            written = steps.iter().filter(is_whole).copied().collect();
        }
        let every = written.len().div_ceil(STEPS).max(1);
        let tick = |value: &f64| Tick { place: place(value), label: write(*value) };
        let ticks = written.iter().step_by(every).map(tick).collect();
        Self { scale: scale.clone(), low, high, ticks }
    }

    /// Place of a value; `None` for one that the axis cannot show.
    pub(super) fn place(&self, value: f64) -> Option<f64> {
        let place = place(&self.scale, value);
        (place.is_finite() && place >= self.low - 1e-9 && place <= self.high + 1e-9)
            .then_some(place)
    }
}

fn place(scale: &Scale, value: f64) -> f64 {
    match scale {
        Scale::Linear | Scale::Names(_) => value,
        Scale::Log2 => value.log2(),
        Scale::Log10 => value.log10(),
    }
}

/// 0, 1, 2 ... up to a number.
fn up_to(most: f64) -> impl Iterator<Item = f64> {
    std::iter::successors(Some(0.0), move |index| Some(index + 1.0).filter(|next| *next <= most))
}

/// The step that cuts a length into four to ten parts, and is 1, 2 or 5 times a power of ten.
fn round(length: f64) -> f64 {
    let ten = 10f64.powf((length / 5.0).log10().floor());
    let parts = length / 5.0 / ten;
    ten * [1.0, 2.0, 5.0].into_iter().find(|step| parts <= *step).unwrap_or(10.0)
}

/// The same for sizes.
fn power_of_two(length: f64) -> f64 {
    (length / 5.0).log2().ceil().exp2()
}

/// Powers of two around two values, at least two.
fn doublings(low: f64, high: f64) -> Vec<f64> {
    let first = low.log2().floor();
    let last = high.log2().ceil();
    let last = if last > first { last } else { first + 1.0 };
    up_to(last - first).map(|step| (first + step).exp2()).collect()
}

/// 1, 2, 5, 10, 20 ... around two values, at least two.
fn decades(low: f64, high: f64) -> Vec<f64> {
    let first = low.log10().floor();
    let of_decade = |step: f64| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powf(first + step));
    let all: Vec<f64> = up_to(high.log10().ceil() - first + 1.0).flat_map(of_decade).collect();
    let near = low * (1.0 + 1e-9);
    let far = high * (1.0 - 1e-9);
    let begin = all.iter().rposition(|step| *step <= near).unwrap_or(0);
    let end = all.iter().position(|step| *step >= far).unwrap_or(all.len() - 1);
    all[begin..=end.max(begin + 1).min(all.len() - 1)].to_vec()
}

/// `4K`, `1M` ... in powers of 1024.
fn size(bytes: f64) -> String {
    scaled(bytes, 1024.0, 1024.0, &["", "K", "M", "G", "T", "P"])
}

/// `500`, `20k`, `1.5M` ... in powers of 1000.
fn number(value: f64) -> String {
    scaled(value, 1000.0, 10_000.0, &["", "k", "M", "G"])
}

fn scaled(value: f64, step: f64, from: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut unit = 0;
    if value.abs() >= from {
        while value.abs() >= step && unit + 1 < units.len() {
            value /= step;
            unit += 1;
        }
    }
    let digits = format!("{value:.6}");
    let digits = digits.trim_end_matches('0').trim_end_matches('.');
    format!("{digits}{}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale, label: &str, values: &[f64]) -> String {
        let axis = Axis { label: label.to_owned(), scale };
        let ruler = Ruler::upwards(&axis, values.iter().copied());
        for value in values.iter().filter(|value| value.is_finite() && **value > 0.0) {
            assert!(ruler.place(*value).is_some(), "{value} lies on the axis");
        }
        let labels: Vec<String> = ruler.ticks.into_iter().map(|tick| tick.label).collect();
        labels.join(" ")
    }

    #[test]
    fn a_linear_axis_begins_at_0_and_has_round_steps() {
        assert_eq!(labels(Scale::Linear, "MB/s", &[370.0, 1180.0]), "0 500 1000 1500");
        assert_eq!(labels(Scale::Linear, "1/s", &[61_000.0]), "0 20k 40k 60k 80k");
        assert_eq!(labels(Scale::Linear, "s", &[0.00013]), "0 0.00005 0.0001 0.00015");
        assert_eq!(labels(Scale::Linear, "bytes", &[5e6]), "0 2M 4M 6M");
        assert_eq!(labels(Scale::Linear, "s", &[f64::NAN]), "0 0.5 1 1.5");
        assert_eq!(labels(Scale::Linear, "s", &[-3.0, 2.0]), "-4 -2 0 2 4");
    }

    #[test]
    fn a_doubling_axis_has_powers_of_two() {
        let sizes = [4096.0, 65536.0, 1048576.0];
        let of_sizes = labels(Scale::Log2, "request, bytes", &sizes);
        assert_eq!(of_sizes, "2K 8K 32K 128K 512K 2M", "every second one, with air at both ends");
        let axis = Axis { label: "request, bytes".to_owned(), scale: Scale::Log2 };
        let ruler = Ruler::across(&axis, sizes.into_iter());
        assert_eq!((ruler.low, ruler.high, ruler.ticks.len()), (12.0, 20.0, 9));
        assert_eq!(labels(Scale::Log2, "nodes", &[3.0, 5.0]), "2 4 8");
        assert_eq!(labels(Scale::Log2, "nodes", &[f64::NAN, -1.0, 0.0]), "0.5 1 2");
    }

    #[test]
    fn a_tenfold_axis_has_fine_steps_where_there_is_room() {
        assert_eq!(labels(Scale::Log10, "MB/s", &[15.0, 180.0]), "10 20 50 100 200");
        let wide = labels(Scale::Log10, "1/s", &[1.5, 900_000.0]);
        assert_eq!(wide, "1 10 100 1000 10k 100k 1M");
        assert_eq!(labels(Scale::Log10, "MB/s", &[100.0]), "50 100 200");
    }

    #[test]
    fn names_stand_in_the_middle_of_their_places() {
        let axis = Axis {
            label: String::new(),
            scale: Scale::Names(["RAID 5", "RAID 6"].map(str::to_owned).to_vec()),
        };
        let ruler = Ruler::across(&axis, [7.0].into_iter());
        assert_eq!((ruler.low, ruler.high, ruler.ticks.len()), (-0.5, 1.5, 2));
        assert_eq!((ruler.place(1.0), ruler.place(7.0)), (Some(1.0), None));
    }
}
