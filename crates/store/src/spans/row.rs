//! A reported span as a row of integers and one compact blob, and back.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use faultscope_model::trace::{Endpoint, ReportedSpan, SpanKind};
use faultscope_model::{SpanId, TraceId};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{CachedStatement, Connection, Row, ToSql};

use super::intern::{Interner, NameList};
use crate::sealed::{Cell, CellOpener, CellSealer, Column, is_sealed};
use crate::sqlite::damaged_row;

/// Writes one span as a row.
pub(super) const INSERT: &str = "INSERT INTO spans VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12)";

/// All columns in their order, for [`read`].
pub(super) const COLUMNS: &str =
    "id, trace_high, trace_low, span, parent, flags, service, remote, name, start_us, duration_us, data";

const SHARED: i64 = 1 << 3;
const DEBUG: i64 = 1 << 4;
const FAILED: i64 = 1 << 5;

/// The numbers of a span's names: 0 for none, [`UNNUMBERED`] for one that stands in its row as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Numbers {
    pub(super) service: u16,
    pub(super) remote: u16,
    pub(super) name: u16,
}

/// Stands for a name without a number.
pub(super) const UNNUMBERED: u16 = u16::MAX;

/// A name in a row: none, its number, or itself.
struct Name<'t>(u16, &'t str);

impl ToSql for Name<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self.0 {
            0 => ToSqlOutput::Owned(Value::Null),
            UNNUMBERED => ToSqlOutput::Borrowed(ValueRef::Text(self.1.as_bytes())),
            number => ToSqlOutput::Owned(Value::Integer(number.into())),
        })
    }
}

/// What rows are written with.
pub(super) struct RowWriter<'c> {
    pub(super) connection: &'c Connection,
    /// The statement of [`INSERT`].
    pub(super) insert: CachedStatement<'c>,
    pub(super) insert_name: CachedStatement<'c>,
}

/// What rows are read with.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowReader<'c> {
    pub(super) connection: &'c Connection,
    pub(super) names: &'c NameList,
    pub(super) opener: &'c CellOpener,
}

/// The place of the data of a span.
pub(super) fn data_cell(row: i64) -> Cell {
    Cell { column: Column::SpanData, row }
}

/// Writes a span; the buffer is only there to be used again.
pub(super) fn write(
    writer: &mut RowWriter<'_>,
    interner: &mut Interner,
    sealer: &mut CellSealer,
    buffer: &mut Vec<u8>,
    row: i64,
    span: &ReportedSpan,
) -> rusqlite::Result<Numbers> {
    let RowWriter { connection, insert, insert_name } = writer;
    let service = span.local.service.as_deref().unwrap_or_default();
    let remote = span.remote.service.as_deref().unwrap_or_default();
    let numbers = Numbers {
        service: interner.name(service, insert_name)?,
        remote: interner.name(remote, insert_name)?,
        name: interner.name(&span.name, insert_name)?,
    };
    buffer.clear();
    write_data(buffer, span, |text, is_key| {
        if is_key {
            interner.key(text, insert_name)
        } else {
            interner.value(text, insert_name, connection, sealer)
        }
    })?;
    let data = match buffer.as_slice() {
        [] => None,
        plain => Some(sealer.seal(connection, data_cell(row), plain)?.unwrap_or(plain)),
    };
    insert.raw_bind_parameter(1, row)?;
    insert.raw_bind_parameter(2, ((span.trace.0 >> 64) as u64).cast_signed())?;
    insert.raw_bind_parameter(3, (span.trace.0 as u64).cast_signed())?;
    insert.raw_bind_parameter(4, span.id.0.cast_signed())?;
    insert.raw_bind_parameter(5, span.parent.map(|parent| parent.0.cast_signed()))?;
    insert.raw_bind_parameter(6, flags(span))?;
    insert.raw_bind_parameter(7, Name(numbers.service, service))?;
    insert.raw_bind_parameter(8, Name(numbers.remote, remote))?;
    insert.raw_bind_parameter(9, Name(numbers.name, &span.name))?;
    insert.raw_bind_parameter(10, span.start_us.map(u64::cast_signed))?;
    insert.raw_bind_parameter(11, span.duration_us.map(u64::cast_signed))?;
    insert.raw_bind_parameter(12, data)?;
    insert.raw_execute()?;
    Ok(numbers)
}

/// Reads a span from a row of [`COLUMNS`].
pub(super) fn read(row: &Row<'_>, reader: RowReader<'_>) -> rusqlite::Result<ReportedSpan> {
    let data = open_data(reader, row.get(0)?, row.get_ref(11)?)?;
    read_columns(row, data.as_deref(), reader.names).map_err(damaged_row)
}

/// The data of a row; none if it has none.
fn open_data<'r>(
    reader: RowReader<'_>,
    row: i64,
    value: ValueRef<'r>,
) -> rusqlite::Result<Option<Cow<'r, [u8]>>> {
    match value {
        ValueRef::Null => Ok(None),
        ValueRef::Blob(data) if is_sealed(data) => {
            reader.opener.open(reader.connection, data_cell(row), data).map(|data| Some(Cow::Owned(data)))
        }
        ValueRef::Blob(data) => Ok(Some(Cow::Borrowed(data))),
        other => Err(damaged_row(format!("a span's data is of type {}", other.data_type()))),
    }
}

fn read_columns(row: &Row<'_>, data: Option<&[u8]>, names: &NameList) -> Result<ReportedSpan, String> {
    let integer = |column: usize| row.get::<_, i64>(column).map_err(|e| e.to_string());
    let optional = |column: usize| row.get::<_, Option<i64>>(column).map_err(|e| e.to_string());
    let name = |column: usize| names.text(row.get_ref(column).map_err(|e| e.to_string())?);
    let trace = (u128::from(integer(1)?.cast_unsigned()) << 64) | u128::from(integer(2)?.cast_unsigned());
    let flags = integer(5)?;
    let mut span = ReportedSpan::new(TraceId(trace), SpanId(integer(3)?.cast_unsigned()));
    span.parent = optional(4)?.map(|parent| SpanId(parent.cast_unsigned()));
    span.kind = kind_of(flags & 7)?;
    (span.shared, span.debug, span.failed) = (flags & SHARED != 0, flags & DEBUG != 0, flags & FAILED != 0);
    span.local.service = name(6)?;
    span.remote.service = name(7)?;
    span.name = name(8)?.unwrap_or_default();
    span.start_us = optional(9)?.map(i64::cast_unsigned);
    span.duration_us = optional(10)?.map(i64::cast_unsigned);
    if let Some(data) = data {
        read_data(data, &mut span, names)?;
    }
    Ok(span)
}

/// Reads the numbers of a span's names from a row of [`COLUMNS`].
pub(super) fn numbers(row: &Row<'_>) -> rusqlite::Result<Numbers> {
    let number = |column: usize| -> rusqlite::Result<u16> {
        Ok(match row.get_ref(column)? {
            ValueRef::Null => 0,
            ValueRef::Integer(number) => u16::try_from(number).unwrap_or(UNNUMBERED),
            _ => UNNUMBERED,
        })
    };
    Ok(Numbers { service: number(6)?, remote: number(7)?, name: number(8)? })
}

fn flags(span: &ReportedSpan) -> i64 {
    let kind = match span.kind {
        None => 0,
        Some(SpanKind::Client) => 1,
        Some(SpanKind::Server) => 2,
        Some(SpanKind::Producer) => 3,
        Some(SpanKind::Consumer) => 4,
    };
    let bit = |set: bool, bit: i64| if set { bit } else { 0 };
    kind | bit(span.shared, SHARED) | bit(span.debug, DEBUG) | bit(span.failed, FAILED)
}

fn kind_of(number: i64) -> Result<Option<SpanKind>, String> {
    Ok(match number {
        0 => None,
        1 => Some(SpanKind::Client),
        2 => Some(SpanKind::Server),
        3 => Some(SpanKind::Producer),
        4 => Some(SpanKind::Consumer),
        other => return Err(format!("kind {other} is not known")),
    })
}

/// Addresses, then tags, then annotations with their distance from the start. Nothing at all is no bytes.
fn write_data(
    out: &mut Vec<u8>,
    span: &ReportedSpan,
    mut number: impl FnMut(&str, bool) -> rusqlite::Result<u16>,
) -> rusqlite::Result<()> {
    let (local, remote) = (addresses(&span.local), addresses(&span.remote));
    if local.0 | remote.0 == 0 && span.tags.is_empty() && span.annotations.is_empty() {
        return Ok(());
    }
    out.push(local.0 | (remote.0 << 3));
    for (_, v4, v6, port) in [local, remote] {
        out.extend(v4.map(|ip| ip.octets()).iter().flatten());
        out.extend(v6.map(|ip| ip.octets()).iter().flatten());
        out.extend(port.map(u16::to_le_bytes).iter().flatten());
    }
    let mut put_text = |out: &mut Vec<u8>, text: &str, is_key: bool| -> rusqlite::Result<()> {
        match number(text, is_key)? {
            0 | UNNUMBERED => {
                put(out, ((text.len() as u64) << 1) | 1);
                out.extend(text.as_bytes());
            }
            number => put(out, u64::from(number) << 1),
        }
        Ok(())
    };
    put(out, span.tags.len() as u64);
    for (key, value) in &span.tags {
        put_text(out, key, true)?;
        put_text(out, value, false)?;
    }
    let start = span.start_us.unwrap_or_default();
    for (at, text) in &span.annotations {
        let distance = at.wrapping_sub(start).cast_signed();
        // Small distances to both sides get small numbers.
        put(out, ((distance << 1) ^ (distance >> 63)).cast_unsigned());
        put_text(out, text, false)?;
    }
    Ok(())
}

/// The data of a span with all its texts written out.
pub(super) fn plain_data(span: &ReportedSpan) -> rusqlite::Result<Option<Vec<u8>>> {
    let mut data = Vec::new();
    write_data(&mut data, span, |_, _| Ok(UNNUMBERED))?;
    Ok((!data.is_empty()).then_some(data))
}

/// Whether a row of flags and data has a tag with a value, or an annotation or tag key.
pub(super) fn has_term(
    found: &Row<'_>,
    reader: RowReader<'_>,
    row: i64,
    key: &str,
    value: Option<&str>,
) -> rusqlite::Result<bool> {
    let flags: i64 = found.get(0)?;
    if value.is_none() && key == super::scan::FAILED && flags & FAILED != 0 {
        return Ok(true);
    }
    let Some(data) = open_data(reader, row, found.get_ref(1)?)? else { return Ok(false) };
    data_has_term(&data, reader.names, key, value).map_err(damaged_row)
}

fn data_has_term(data: &[u8], names: &NameList, key: &str, value: Option<&str>) -> Result<bool, String> {
    let mut rest = Bytes(data);
    rest.addresses(|_, _| {})?;
    for _ in 0..rest.number()? {
        let (known, text) = (rest.text(names)?, rest.text(names)?);
        if known == key && value.is_none_or(|value| value == text) {
            return Ok(true);
        }
    }
    while value.is_none() && !rest.0.is_empty() {
        rest.number()?;
        if rest.text(names)? == key {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Passes the numbers of tag keys in plain data to a function.
pub(super) fn key_numbers(data: &[u8], mut found: impl FnMut(u64)) -> Result<(), String> {
    let mut rest = Bytes(data);
    rest.addresses(|_, _| {})?;
    for _ in 0..rest.number()? {
        for is_key in [true, false] {
            let number = rest.number()?;
            if number & 1 != 0 {
                rest.skip(number >> 1)?;
            } else if is_key {
                found(number >> 1);
            }
        }
    }
    Ok(())
}

type Addresses = (u8, Option<Ipv4Addr>, Option<Ipv6Addr>, Option<u16>);

fn addresses(endpoint: &Endpoint) -> Addresses {
    let both = [endpoint.ipv4, endpoint.ipv6];
    let v4 = both.iter().flatten().find_map(|ip| if let IpAddr::V4(ip) = ip { Some(*ip) } else { None });
    let v6 = both.iter().flatten().find_map(|ip| if let IpAddr::V6(ip) = ip { Some(*ip) } else { None });
    let bits = u8::from(v4.is_some()) | u8::from(v6.is_some()) << 1 | u8::from(endpoint.port.is_some()) << 2;
    (bits, v4, v6, endpoint.port)
}

fn read_data(data: &[u8], span: &mut ReportedSpan, names: &NameList) -> Result<(), String> {
    let mut rest = Bytes(data);
    rest.addresses(|is_local, (_, v4, v6, port)| {
        let endpoint = if is_local { &mut span.local } else { &mut span.remote };
        (endpoint.ipv4, endpoint.ipv6, endpoint.port) = (v4.map(IpAddr::V4), v6.map(IpAddr::V6), port);
    })?;
    let n_tags = usize::try_from(rest.number()?).unwrap_or(usize::MAX);
    // The count may be damaged; the bytes that are there bound what can follow.
    span.tags.reserve_exact(n_tags.min(rest.0.len() / 2));
    for _ in 0..n_tags {
        let key = rest.text(names)?.to_owned();
        span.tags.push((key, rest.text(names)?.to_owned()));
    }
    let start = span.start_us.unwrap_or_default();
    while !rest.0.is_empty() {
        let folded = rest.number()?;
        let distance = (folded >> 1) ^ (folded & 1).wrapping_neg();
        let text = rest.text(names)?.to_owned();
        span.annotations.push((start.wrapping_add(distance), text));
    }
    Ok(())
}

/// Appends a number, seven bits a byte, the lowest first.
pub(super) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// What is still to be read of a blob.
struct Bytes<'b>(&'b [u8]);

impl<'b> Bytes<'b> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or("a span's data is cut off")?;
        self.0 = rest;
        Ok(*taken)
    }

    /// Hands both sides' addresses to a function, the reporter's first.
    fn addresses(&mut self, mut take: impl FnMut(bool, Addresses)) -> Result<(), String> {
        let [both] = self.take::<1>()?;
        for (is_local, bits) in [(true, both & 7), (false, both >> 3)] {
            let v4 = if bits & 1 != 0 { Some(Ipv4Addr::from(self.take::<4>()?)) } else { None };
            let v6 = if bits & 2 != 0 { Some(Ipv6Addr::from(self.take::<16>()?)) } else { None };
            let port = if bits & 4 != 0 { Some(u16::from_le_bytes(self.take()?)) } else { None };
            take(is_local, (bits, v4, v6, port));
        }
        Ok(())
    }

    fn number(&mut self) -> Result<u64, String> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.take::<1>()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number in a span's data is too long".to_owned())
    }

    fn skip(&mut self, length: u64) -> Result<&'b [u8], String> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let (taken, rest) = self.0.split_at_checked(length).ok_or("a span's data is cut off")?;
        self.0 = rest;
        Ok(taken)
    }

    fn text<'t>(&mut self, names: &'t NameList) -> Result<&'t str, String>
    where
        'b: 't,
    {
        let number = self.number()?;
        if number & 1 == 0 {
            return names.get(number >> 1);
        }
        let taken = self.skip(number >> 1)?;
        std::str::from_utf8(taken).map_err(|_| "a tag is not text".to_owned())
    }
}
