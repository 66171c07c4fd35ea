//! Protobuf's wire format: fields one after the other, each a number, a type and a value.
//!
//! Reads any bytes. A field that the bytes end in is returned with what there is of it.

/// The largest number that a field may have.
const MAX_FIELD: u64 = (1 << 29) - 1;

/// One field of an encoded message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WireField<'b> {
    pub(super) number: u32,
    pub(super) value: WireValue<'b>,
}

/// A value as it is encoded; its type in the language is not known here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WireValue<'b> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes {
        content: &'b [u8],
        /// Bytes of the value that are not there.
        missing: u64,
    },
    GroupStart,
    GroupEnd,
}

/// Why a message cannot be read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WireEnd {
    /// The bytes end in the middle of a tag or a number.
    Cut,
    /// This is not protobuf.
    Damaged,
}

/// Reads the fields of a message one after the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct WireReader<'b> {
    rest: &'b [u8],
}

impl<'b> WireReader<'b> {
    pub(super) fn new(bytes: &'b [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next field; none at the end of the message.
    pub(super) fn next_field(&mut self) -> Result<Option<WireField<'b>>, WireEnd> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = tag >> 3;
        if number == 0 || number > MAX_FIELD {
            return Err(WireEnd::Damaged);
        }
        let value = match tag & 7 {
            0 => WireValue::Varint(self.varint()?),
            1 => WireValue::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let length = self.varint()?;
                // No message is longer than 2 GiB, whatever a length says.
                if length > i32::MAX as u64 {
                    return Err(WireEnd::Damaged);
                }
                let there = usize::try_from(length).unwrap_or(usize::MAX).min(self.rest.len());
                let (content, rest) = self.rest.split_at(there);
                self.rest = rest;
                WireValue::Bytes { content, missing: length - there as u64 }
            }
            3 => WireValue::GroupStart,
            4 => WireValue::GroupEnd,
            5 => WireValue::Fixed32(u32::from_le_bytes(self.array()?)),
            _ => return Err(WireEnd::Damaged),
        };
        // The number fits: it is at most 29 bits long.
        Ok(Some(WireField { number: number as u32, value }))
    }

    /// The next number of variable length.
    pub(super) fn varint(&mut self) -> Result<u64, WireEnd> {
        let mut value = 0u64;
        for (place, byte) in self.rest.iter().enumerate().take(10) {
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit.
            if place == 9 && bits > 1 {
                return Err(WireEnd::Damaged);
            }
            value |= bits << (7 * place);
            if byte & 0x80 == 0 {
                self.rest = &self.rest[place + 1..];
                return Ok(value);
            }
        }
        Err(if self.rest.len() < 10 { WireEnd::Cut } else { WireEnd::Damaged })
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], WireEnd> {
        let (array, rest) = self.rest.split_first_chunk::<N>().ok_or(WireEnd::Cut)?;
        self.rest = rest;
        Ok(*array)
    }

    /// What has not been read.
    pub(super) fn rest(&self) -> &'b [u8] {
        self.rest
    }
}

/// Writes a number of variable length.
pub(super) fn write_varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes a field of bytes, of which `missing` do not follow.
pub(super) fn write_bytes(number: u32, content: &[u8], missing: u64, out: &mut Vec<u8>) {
    write_varint(u64::from(number) << 3 | 2, out);
    write_varint(content.len() as u64 + missing, out);
    out.extend(content);
}

/// Writes a field as it was read.
pub(super) fn write_field(field: WireField<'_>, out: &mut Vec<u8>) {
    let number = u64::from(field.number) << 3;
    match field.value {
        WireValue::Varint(value) => {
            write_varint(number, out);
            write_varint(value, out);
        }
        WireValue::Fixed64(value) => {
            write_varint(number | 1, out);
            out.extend(value.to_le_bytes());
        }
        WireValue::Bytes { content, missing } => write_bytes(field.number, content, missing, out),
        WireValue::GroupStart => write_varint(number | 3, out),
        WireValue::GroupEnd => write_varint(number | 4, out),
        WireValue::Fixed32(value) => {
            write_varint(number | 5, out);
            out.extend(value.to_le_bytes());
        }
    }
}
