//! Walks the fields of a protobuf message without building anything.
//!
//! Containers are walked and only single spans and metrics are decoded, so that millions of two-byte fields
//! cannot become a hundred bytes each in memory, and one bad span does not affect its neighbours.

/// A field of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Field<'a> {
    /// Its number.
    pub(super) number: u32,
    /// Its bytes if it is a string, bytes or a message; empty for numbers.
    pub(super) bytes: &'a [u8],
    /// Whether it has bytes.
    pub(super) is_bytes: bool,
}

/// The fields of a message, in their order.
#[derive(Debug)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    fn varint(&mut self) -> Result<u64, &'static str> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let (&byte, rest) = self.rest.split_first().ok_or("a number ends too early")?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or_default();
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number is too long")
    }

    fn take(&mut self, n: u64) -> Result<&'a [u8], &'static str> {
        let n = usize::try_from(n).map_err(|_| "a field is too long")?;
        let (taken, rest) = self.rest.split_at_checked(n).ok_or("a field ends too early")?;
        self.rest = rest;
        Ok(taken)
    }

    fn read(&mut self) -> Result<Field<'a>, &'static str> {
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| "a field number is too large")?;
        if number == 0 {
            return Err("a field has the number 0");
        }
        let mut bytes: &[u8] = &[];
        let mut is_bytes = false;
        match tag & 7 {
            0 => drop(self.varint()?),
            1 => drop(self.take(8)?),
            2 => {
                let length = self.varint()?;
                bytes = self.take(length)?;
                is_bytes = true;
            }
            5 => drop(self.take(4)?),
            _ => return Err("a field has an unknown wire type"),
        }
        Ok(Field { number, bytes, is_bytes })
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.read();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}
