//! Statements as MySQL wants them: `?` instead of `$n`, and a `?` for each element of a list.

use mysql_async::Value;

use crate::statement::Arg;

/// A statement cut at its arguments.
#[derive(Debug)]
pub(crate) struct Placed {
    /// The text before each argument, and its index.
    parts: Vec<(String, usize)>,
    rest: String,
}

impl Placed {
    pub(crate) fn new(text: &str) -> Self {
        let mut parts = Vec::new();
        let mut pieces = text.split('$');
        let mut before = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let end = piece.find(|c: char| !c.is_ascii_digit()).unwrap_or(piece.len());
            let index: usize = piece[..end].parse().unwrap_or(1);
            parts.push((std::mem::take(&mut before), index - 1));
            piece[end..].clone_into(&mut before);
        }
        Self { parts, rest: before }
    }

    /// The text and the values in the order of their places. Lists are padded to a power of two with their last
    /// element, so that few different statements have to be prepared.
    pub(crate) fn fill(&self, args: &[Arg<'_>]) -> (String, Vec<Value>) {
        let mut text = String::new();
        let mut values = Vec::new();
        for (before, index) in &self.parts {
            text.push_str(before);
            text.push('?');
            match &args[*index] {
                Arg::Text(s) => values.push(Value::Bytes(s.as_bytes().to_vec())),
                Arg::Int(n) => values.push(Value::Int(*n)),
                Arg::Texts(list) => {
                    let size = list.len().next_power_of_two();
                    let last = list.last().map(String::as_str).unwrap_or_default();
                    let padded = list.iter().map(String::as_str).chain(std::iter::repeat(last));
                    values.extend(padded.take(size).map(|s| Value::Bytes(s.as_bytes().to_vec())));
                    (1..size).for_each(|_| text.push_str(", ?"));
                }
                Arg::Ints(list) => values.extend(list.iter().map(|n| Value::Int(*n))),
            }
        }
        text.push_str(&self.rest);
        (text, values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_repeated_in_place_and_lists_are_padded() {
        let placed = Placed::new("UPDATE t SET a = $2 + $10 WHERE n IN ($1) AND b = $2");
        let mut args = vec![Arg::Texts(vec!["x".into(), "y".into(), "z".into()]), Arg::Int(5)];
        args.extend((3..=10).map(Arg::Int));
        let (text, values) = placed.fill(&args);
        assert_eq!(text, "UPDATE t SET a = ? + ? WHERE n IN (?, ?, ?, ?) AND b = ?");
        let bytes = |s: &str| Value::Bytes(s.into());
        assert_eq!(
            values,
            [
                Value::Int(5),
                Value::Int(10),
                bytes("x"),
                bytes("y"),
                bytes("z"),
                bytes("z"),
                Value::Int(5)
            ]
        );
    }
}
