//! The JSON views.

use serde::Serialize;

/// Anything of this crate's as indented JSON with a newline at its end. Figures have as many digits
/// as say something.
///
/// # Errors
/// Fails only if a value cannot be written as JSON, which none of this crate's is.
pub fn to_json(value: &impl Serialize) -> serde_json::Result<String> {
    let mut value = serde_json::to_value(value)?;
    round(&mut value);
    let mut text = serde_json::to_string_pretty(&value)?;
    text.push('\n');
    Ok(text)
}

/// Sums that were made in another order differ in their last digits: six are enough for any figure
/// here.
fn round(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Number(number) => {
            if let Some(float) = number.as_f64().filter(|_| number.is_f64())
                && let Some(rounded) = serde_json::Number::from_f64(significant(float))
            {
                *number = rounded;
            }
        }
        serde_json::Value::Array(values) => values.iter_mut().for_each(round),
        serde_json::Value::Object(map) => map.values_mut().for_each(round),
        _ => {}
    }
}

fn significant(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let places = 5 - value.abs().log10().floor() as i32;
    if !(-300..300).contains(&places) {
        return value;
    }
    let scale = 10f64.powi(places);
    let rounded = (value * scale).round() / scale;
    if rounded.is_finite() { rounded } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_digits() {
        assert_eq!(significant(1_234_567.0), 1_234_570.0);
        assert_eq!(significant(0.007_936_507_9), 0.007_936_51);
        assert_eq!(significant(0.0), 0.0);
        assert_eq!(significant(f64::MAX), f64::MAX);
        assert_eq!(to_json(&[0.1 + 0.2]).expect("JSON"), "[\n  0.3\n]\n");
    }
}
