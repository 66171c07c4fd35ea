//! A span as a row of integers, and back. Payloads become one compact blob.

use faultscope_model::span::{Extent, Parentage, Payload, Span, Wire};
use faultscope_model::{CallError, InstanceId, NodeId, SlotId, SpanId, TraceId, TrialId};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, Row, Statement, ToSql};

use crate::numbered_names::{NameTable, Names};
use crate::sealed::{Cell, CellOpener, CellSealer, Column};
use crate::sqlite::damaged_row;

/// Writes one span as a row.
pub(crate) const INSERT: &str = "INSERT INTO spans VALUES
  (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,?16,?17,?18,?19,?20,?21,?22,?23,?24,?25,?26,?27,?28,?29)";

/// All columns in their order, for [`read_span`].
pub(crate) const COLUMNS: &str = "trace_high, trace_low, span, parent, parentage, caller, caller_ordinal, caller_node, \
     callee, callee_instance, callee_ordinal, callee_node, port, wire, method, path, start_us, duration_us, \
     first_byte_us, request_bytes, response_bytes, status, grpc_status, error, rules, payload";

/// A name in a row: its number, or its text.
enum Name<'t> {
    Number(i64),
    Text(&'t str),
}

impl ToSql for Name<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Number(number) => ToSqlOutput::Owned(Value::Integer(*number)),
            Self::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
        })
    }
}

/// The place of the path and the payload of a call.
pub(crate) fn call_cell(span: SpanId) -> Cell {
    Cell { column: Column::Call, row: span.0.cast_signed() }
}

/// What calls are written with.
#[derive(Debug)]
pub(crate) struct CallWriter {
    pub(crate) names: Names,
    pub(crate) cells: CellSealer,
    /// Used again for each call.
    buffer: Vec<u8>,
}

impl CallWriter {
    pub(crate) fn new(names: Names, cells: CellSealer) -> Self {
        Self { names, cells, buffer: Vec::new() }
    }
}

/// What calls are read with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallReader<'c> {
    pub(crate) connection: &'c Connection,
    pub(crate) names: &'c NameTable,
    pub(crate) opener: &'c CellOpener,
}

/// Writes a span with the statement of [`INSERT`].
pub(crate) fn write_span(
    connection: &Connection,
    insert: &mut Statement<'_>,
    insert_name: &mut Statement<'_>,
    writer: &mut CallWriter,
    row: i64,
    place: (TrialId, SlotId),
    span: &Span,
) -> rusqlite::Result<()> {
    let CallWriter { names, cells, buffer } = writer;
    let mut name = |text: &str| names.number(text, insert_name);
    let caller = name(span.caller.service.as_str())?;
    let callee = name(span.callee.as_str())?;
    let method = name(&span.method)?;
    let error = span.error.as_ref().map(CallError::words).map(&mut name).transpose()?.flatten();
    // The instance nearly always belongs to the callee; then only its ordinal is written.
    let other =
        span.callee_instance.as_ref().map(|instance| &instance.service).filter(|s| **s != span.callee);
    let other_number = other.map(|service| name(service.as_str())).transpose()?.flatten();

    let named = |number: Option<i64>, text| number.map_or(Name::Text(text), Name::Number);
    insert.raw_bind_parameter(1, row)?;
    insert.raw_bind_parameter(2, place.0.key().cast_signed())?;
    insert.raw_bind_parameter(3, place.1.0)?;
    insert.raw_bind_parameter(4, ((span.trace.0 >> 64) as u64).cast_signed())?;
    insert.raw_bind_parameter(5, (span.trace.0 as u64).cast_signed())?;
    insert.raw_bind_parameter(6, span.id.0.cast_signed())?;
    insert.raw_bind_parameter(7, span.parent.map(|parent| parent.0.cast_signed()))?;
    insert.raw_bind_parameter(8, parentage_number(span.parentage))?;
    insert.raw_bind_parameter(9, named(caller, span.caller.service.as_str()))?;
    insert.raw_bind_parameter(10, span.caller.ordinal)?;
    insert.raw_bind_parameter(11, span.caller_node.0)?;
    insert.raw_bind_parameter(12, named(callee, span.callee.as_str()))?;
    insert.raw_bind_parameter(13, other.map(|service| named(other_number, service.as_str())))?;
    insert.raw_bind_parameter(14, span.callee_instance.as_ref().map(|instance| instance.ordinal))?;
    insert.raw_bind_parameter(15, span.callee_node.0)?;
    insert.raw_bind_parameter(16, span.port)?;
    insert.raw_bind_parameter(17, wire_number(span.wire) | extent_bits(span.extent))?;
    insert.raw_bind_parameter(18, named(method, &span.method))?;
    insert.raw_bind_parameter(20, span.start_us.cast_signed())?;
    insert.raw_bind_parameter(21, span.duration_us.cast_signed())?;
    insert.raw_bind_parameter(22, span.first_byte_us.map(u64::cast_signed))?;
    insert.raw_bind_parameter(23, span.request_bytes.cast_signed())?;
    insert.raw_bind_parameter(24, span.response_bytes.cast_signed())?;
    insert.raw_bind_parameter(25, span.status)?;
    insert.raw_bind_parameter(26, span.grpc_status)?;
    insert.raw_bind_parameter(27, span.error.as_ref().map(|kind| named(error, kind.words())))?;
    insert.raw_bind_parameter(28, rules_to_bytes(&span.rules))?;
    buffer.clear();
    if cells.is_plain() {
        insert.raw_bind_parameter(19, &span.path)?;
        let payload = span.payload.as_deref().map(|payload| {
            payload_into(buffer, payload);
            buffer.as_slice()
        });
        insert.raw_bind_parameter(29, payload)?;
    } else {
        path_and_payload_into(buffer, &span.path, span.payload.as_deref());
        // A path of this type says that the payload has it.
        insert.raw_bind_parameter(19, [].as_slice())?;
        insert.raw_bind_parameter(29, cells.seal(connection, call_cell(span.id), buffer)?)?;
    }
    insert.raw_execute()?;
    Ok(())
}

/// Parses the stored text of an error.
fn call_error(words: &str) -> CallError {
    let Ok(error) = words.parse();
    error
}

/// Reads a span from a row of [`COLUMNS`].
pub(crate) fn read_span(row: &Row<'_>, reader: CallReader<'_>) -> rusqlite::Result<Span> {
    let sealed = match (row.get_ref(15)?, row.get_ref(25)?) {
        (ValueRef::Blob(_), ValueRef::Blob(sealed)) => {
            let id = SpanId(row.get::<_, i64>(2)?.cast_unsigned());
            Some(reader.opener.open(reader.connection, call_cell(id), sealed)?)
        }
        _ => None,
    };
    let mut span = read_columns(row, reader.names, sealed.is_some()).map_err(damaged_row)?;
    if let Some(plain) = sealed {
        (span.path, span.payload) = path_and_payload_of(&plain).map_err(damaged_row)?;
    }
    Ok(span)
}

fn read_columns(row: &Row<'_>, names: &NameTable, is_sealed: bool) -> Result<Span, String> {
    let integer = |column: usize| row.get::<_, i64>(column).map_err(|e| e.to_string());
    let optional = |column: usize| row.get::<_, Option<i64>>(column).map_err(|e| e.to_string());
    let bytes = |column: usize| match row.get_ref(column).map_err(|e| e.to_string())? {
        ValueRef::Null => Ok(None),
        ValueRef::Blob(bytes) => Ok(Some(bytes)),
        other => Err(format!("a blob is of type {}", other.data_type())),
    };
    let value = |column: usize| row.get_ref(column).map_err(|e| e.to_string());
    let callee = names.service(value(8)?)?;
    let callee_instance = match optional(10)? {
        None => None,
        Some(ordinal) => {
            let service =
                if value(9)? == ValueRef::Null { callee.clone() } else { names.service(value(9)?)? };
            Some(InstanceId::new(service, narrow(ordinal)?))
        }
    };
    let trace = (u128::from(integer(0)?.cast_unsigned()) << 64) | u128::from(integer(1)?.cast_unsigned());
    Ok(Span {
        trace: TraceId(trace),
        id: SpanId(integer(2)?.cast_unsigned()),
        parent: optional(3)?.map(|parent| SpanId(parent.cast_unsigned())),
        parentage: parentage_of(integer(4)?)?,
        caller: InstanceId::new(names.service(value(5)?)?, narrow(integer(6)?)?),
        caller_node: NodeId(narrow(integer(7)?)?),
        callee,
        callee_instance,
        callee_node: NodeId(narrow(integer(11)?)?),
        port: narrow(integer(12)?)?,
        wire: wire_of(integer(13)? & i64::from(WIRE_BITS))?,
        method: names.text(value(14)?)?,
        path: if is_sealed { String::new() } else { row.get(15).map_err(|e| e.to_string())? },
        start_us: integer(16)?.cast_unsigned(),
        duration_us: integer(17)?.cast_unsigned(),
        first_byte_us: optional(18)?.map(i64::cast_unsigned),
        request_bytes: integer(19)?.cast_unsigned(),
        response_bytes: integer(20)?.cast_unsigned(),
        status: optional(21)?.map(narrow).transpose()?,
        grpc_status: optional(22)?.map(narrow).transpose()?,
        error: if value(23)? == ValueRef::Null { None } else { Some(call_error(&names.text(value(23)?)?)) },
        rules: bytes(24)?.map(rules_of).transpose()?.unwrap_or_default(),
        // Targets are only needed while a trial is judged; `rules` has what a rule did to a call.
        target: None,
        extent: extent_of(integer(13)?),
        payload: if is_sealed { None } else { bytes(25)?.map(payload_of).transpose()?.map(Box::new) },
    })
}

fn narrow<T: TryFrom<i64>>(value: i64) -> Result<T, String> {
    T::try_from(value).map_err(|_| format!("{value} is out of range"))
}

fn parentage_number(parentage: Parentage) -> u8 {
    match parentage {
        Parentage::Root => 0,
        Parentage::Propagated => 1,
        Parentage::Inferred => 2,
        Parentage::Unknown => 3,
    }
}

fn parentage_of(number: i64) -> Result<Parentage, String> {
    Ok(match number {
        0 => Parentage::Root,
        1 => Parentage::Propagated,
        2 => Parentage::Inferred,
        3 => Parentage::Unknown,
        other => return Err(format!("parentage {other} is not known")),
    })
}

/// The wire and the extent of a call share a column, so that campaigns of earlier versions need no other table.
const WIRE_BITS: u8 = 0x0f;
const CONTINUED: u8 = 0x10;
const OPEN: u8 = 0x20;

fn extent_bits(extent: Extent) -> u8 {
    (if extent.continued { CONTINUED } else { 0 }) | (if extent.open { OPEN } else { 0 })
}

fn extent_of(number: i64) -> Extent {
    let has = |bit: u8| number & i64::from(bit) != 0;
    Extent { continued: has(CONTINUED), open: has(OPEN) }
}

fn wire_number(wire: Wire) -> u8 {
    match wire {
        Wire::Http1 => 0,
        Wire::Http2 => 1,
        Wire::WebSocket => 2,
        Wire::Tcp => 3,
        Wire::Tls => 4,
    }
}

fn wire_of(number: i64) -> Result<Wire, String> {
    Ok(match number {
        0 => Wire::Http1,
        1 => Wire::Http2,
        2 => Wire::WebSocket,
        3 => Wire::Tcp,
        4 => Wire::Tls,
        other => return Err(format!("wire {other} is not known")),
    })
}

fn rules_to_bytes(rules: &[u32]) -> Option<Vec<u8>> {
    (!rules.is_empty()).then(|| rules.iter().flat_map(|rule| rule.to_le_bytes()).collect())
}

fn rules_of(bytes: &[u8]) -> Result<Vec<u32>, String> {
    let (rules, rest) = bytes.as_chunks::<4>();
    if !rest.is_empty() {
        return Err("the rules of a span are cut off".to_owned());
    }
    Ok(rules.iter().map(|rule| u32::from_le_bytes(*rule)).collect())
}

/// The path with its length, then the payload, if there is one.
pub(crate) fn path_and_payload_into(out: &mut Vec<u8>, path: &str, payload: Option<&Payload>) {
    let length = u32::try_from(path.len()).unwrap_or(u32::MAX);
    out.extend(length.to_le_bytes());
    out.extend(&path.as_bytes()[..length as usize]);
    if let Some(payload) = payload {
        payload_into(out, payload);
    }
}

fn path_and_payload_of(bytes: &[u8]) -> Result<(String, Option<Box<Payload>>), String> {
    let mut rest = Bytes(bytes);
    let path = String::from_utf8(rest.take()?.to_vec()).map_err(|_| "a path is not text".to_owned())?;
    let payload = if rest.0.is_empty() { None } else { Some(Box::new(payload_of(rest.0)?)) };
    Ok((path, payload))
}

/// The bytes of a payload.
pub(crate) fn payload_to_bytes(payload: &Payload) -> Vec<u8> {
    let mut out = Vec::with_capacity(payload_size(payload));
    payload_into(&mut out, payload);
    out
}

/// Lengths as little-endian 32-bit numbers before their bytes: headers of both sides, then both bodies.
fn payload_into(out: &mut Vec<u8>, payload: &Payload) {
    let put = |out: &mut Vec<u8>, bytes: &[u8]| {
        // The mesh bounds bodies and headers far below 4 GiB; anything beyond is cut.
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        out.extend(length.to_le_bytes());
        out.extend(&bytes[..length as usize]);
    };
    for headers in [&payload.request_headers, &payload.response_headers] {
        out.extend(u32::try_from(headers.len()).unwrap_or(u32::MAX).to_le_bytes());
        for (name, value) in headers.iter().take(u32::MAX as usize) {
            put(out, name.as_bytes());
            put(out, value.as_bytes());
        }
    }
    put(out, &payload.request_body);
    put(out, &payload.response_body);
}

/// The approximate size of a payload in the queue and on disk.
pub(crate) fn payload_size(payload: &Payload) -> usize {
    let headers = payload.request_headers.iter().chain(&payload.response_headers);
    let headers: usize = headers.map(|(name, value)| name.len() + value.len() + 8).sum();
    headers + payload.request_body.len() + payload.response_body.len() + 16
}

fn payload_of(bytes: &[u8]) -> Result<Payload, String> {
    let mut rest = Bytes(bytes);
    Ok(Payload {
        request_headers: rest.headers()?,
        response_headers: rest.headers()?,
        request_body: rest.take()?.to_vec(),
        response_body: rest.take()?.to_vec(),
        decoded: None,
    })
}

/// The unread rest of a payload.
struct Bytes<'b>(&'b [u8]);

impl<'b> Bytes<'b> {
    fn number(&mut self) -> Result<usize, String> {
        let (number, rest) = self.0.split_first_chunk::<4>().ok_or("a payload is cut off")?;
        self.0 = rest;
        Ok(u32::from_le_bytes(*number) as usize)
    }

    fn take(&mut self) -> Result<&'b [u8], String> {
        let length = self.number()?;
        let (taken, rest) = self.0.split_at_checked(length).ok_or("a payload is cut off")?;
        self.0 = rest;
        Ok(taken)
    }

    fn text(&mut self) -> Result<String, String> {
        String::from_utf8(self.take()?.to_vec()).map_err(|_| "a header is not text".to_owned())
    }

    fn headers(&mut self) -> Result<Vec<(String, String)>, String> {
        let count = self.number()?;
        // The count may be damaged; the remaining bytes bound what can follow.
        let mut headers = Vec::with_capacity(count.min(self.0.len() / 8));
        for _ in 0..count {
            headers.push((self.text()?, self.text()?));
        }
        Ok(headers)
    }
}
