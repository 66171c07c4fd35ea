//! The parameters of a query string.

/// The most parameters that are parsed.
const MOST: usize = 256;

/// An invalid parameter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}: {reason}")]
pub struct QueryError {
    /// The name of the parameter.
    pub name: String,
    /// What is wrong, as the rest of the sentence.
    pub reason: String,
}

impl QueryError {
    pub(super) fn new(name: &str, reason: impl Into<String>) -> Self {
        Self { name: name.to_owned(), reason: reason.into() }
    }
}

/// Parameters, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Parameters(pub Vec<(String, String)>);

impl Parameters {
    /// Parses a query string: `+` is a space, `%41` an `A`; invalid UTF-8 is replaced.
    pub fn parse(query: &str) -> Self {
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).take(MOST);
        Self(
            pairs
                .map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decoded(name), decoded(value))
                })
                .collect(),
        )
    }

    /// The first value with this name that is not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.all(name).find(|value| !value.is_empty())
    }

    /// All values with this name.
    pub fn all<'a>(&'a self, name: &str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A number above zero.
    pub(super) fn positive(&self, name: &str) -> Result<Option<u64>, QueryError> {
        let Some(text) = self.get(name) else { return Ok(None) };
        match text.parse::<i64>() {
            Ok(number) if number > 0 => Ok(Some(number.unsigned_abs())),
            Ok(_) => Err(QueryError::new(name, "must be above 0")),
            Err(_) => Err(QueryError::new(name, "is not a whole number")),
        }
    }
}

fn decoded(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let digit = |at: usize| after.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        match byte {
            b'+' => out.push(b' '),
            b'%' => match (digit(0), digit(1)) {
                (Some(high), Some(low)) => {
                    // Two digits make one byte.
                    out.push((high << 4 | low) as u8);
                    rest = after.get(2..).unwrap_or_default();
                }
                _ => out.push(b'%'),
            },
            byte => out.push(byte),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}
