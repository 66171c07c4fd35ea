//! Content types, content encodings and the limits of bodies.

use std::borrow::Cow;
use std::io::Write;

use flate2::Compression;
use flate2::write::{GzEncoder, ZlibEncoder};

use crate::interop::{DecodeError, Limits, MetricFormat, SpanFormat, grpc_message, inflate, inflate_within};

#[test]
fn content_types_say_the_format() {
    use SpanFormat::*;
    for (text, v1, v2, otlp) in [
        (None, Some(ZipkinV1Json), Some(ZipkinV2Json), None),
        (Some("application/json"), Some(ZipkinV1Json), Some(ZipkinV2Json), Some(OtlpJson)),
        (Some("Application/JSON; charset=utf-8"), Some(ZipkinV1Json), Some(ZipkinV2Json), Some(OtlpJson)),
        (Some("text/plain;charset=UTF-8"), Some(ZipkinV1Json), Some(ZipkinV2Json), None),
        (Some("application/x-protobuf"), None, Some(ZipkinV2Proto), Some(OtlpProto)),
        (Some("application/x-thrift"), Some(ZipkinV1Thrift), None, None),
        (Some("text/html"), None, None, None),
    ] {
        assert_eq!(SpanFormat::zipkin_v1(text).ok(), v1, "{text:?}");
        assert_eq!(SpanFormat::zipkin_v2(text).ok(), v2, "{text:?}");
        assert_eq!(SpanFormat::otlp(text).ok(), otlp, "{text:?}");
        assert_eq!(MetricFormat::otlp(text).is_ok(), otlp.is_some(), "{text:?}");
    }
    assert_eq!(SpanFormat::otlp(Some("text/html")).unwrap_err().status(), 415);
}

#[test]
fn gzip_and_deflate_are_undone() {
    let limits = Limits::default();
    let body = b"[{\"traceId\":\"1\",\"id\":\"2\"}]";
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(body).unwrap();
    let gzip = gzip.finish().unwrap();
    let mut deflate = ZlibEncoder::new(Vec::new(), Compression::fast());
    deflate.write_all(body).unwrap();
    for (bytes, encoding) in [
        (body.to_vec(), None),
        (body.to_vec(), Some("identity")),
        (gzip.clone(), Some("gzip")),
        (gzip.clone(), Some(" GZIP ")),
        (deflate.finish().unwrap(), Some("deflate")),
    ] {
        assert_eq!(inflate(&bytes, encoding, &limits).unwrap().as_ref(), body, "{encoding:?}");
    }
    assert_eq!(inflate(b"", Some("gzip"), &limits).unwrap().as_ref(), b"");
    assert_eq!(inflate(body, Some("br"), &limits).unwrap_err().status(), 415);
    assert_eq!(inflate(body, Some("gzip"), &limits).unwrap_err().status(), 400);
    assert_eq!(inflate(&gzip[..gzip.len() - 9], Some("gzip"), &limits).unwrap_err().status(), 400);
}

#[test]
fn a_bomb_is_defused() {
    let limits = Limits { body_bytes: 1 << 20, ..Limits::default() };
    let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
    let zeros = vec![b' '; 1 << 16];
    for _ in 0..1_000 {
        gzip.write_all(&zeros).unwrap();
    }
    let bomb = gzip.finish().unwrap();
    assert!(bomb.len() < 1 << 17);
    assert_eq!(
        inflate(&bomb, Some("gzip"), &limits),
        Err(DecodeError::TooLarge { what: "the decompressed body", limit: 1 << 20 })
    );
    // The sum over several members counts, too.
    let mut small = GzEncoder::new(Vec::new(), Compression::best());
    small.write_all(&vec![b' '; 700 << 10]).unwrap();
    let small = small.finish().unwrap();
    assert!(inflate(&small, Some("gzip"), &limits).is_ok());
    assert_eq!(inflate(&[small.clone(), small].concat(), Some("gzip"), &limits).unwrap_err().status(), 413);
}

#[test]
fn bodies_are_bounded() {
    let limits = Limits { body_bytes: 8, ..Limits::default() };
    for format in SpanFormat::ALL {
        assert_eq!(format.decode(&[b' '; 9], &limits).unwrap_err().status(), 413, "{format:?}");
    }
    assert_eq!(inflate(&[b' '; 9], None, &limits).unwrap_err().status(), 413);
}

#[test]
fn empty_bodies_hold_nothing() {
    let limits = Limits::default();
    for format in SpanFormat::ALL {
        assert!(format.decode(b"", &limits).unwrap().items.is_empty(), "{format:?}");
    }
    assert!(SpanFormat::ZipkinV2Json.decode(b" [ ]\n", &limits).unwrap().items.is_empty());
    assert!(SpanFormat::OtlpJson.decode(b"{}", &limits).unwrap().items.is_empty());
    assert!(SpanFormat::ZipkinV1Thrift.decode(&[12, 0, 0, 0, 0], &limits).unwrap().items.is_empty());
}

#[test]
fn deep_nesting_is_refused_or_skipped() {
    let deep = |open: &str, close: &str| format!("{}{}", open.repeat(100_000), close.repeat(100_000));
    let limits = Limits::default();
    let body = format!(r#"[{{"traceId":"1","id":"2","x":{}}}]"#, deep("[", "]"));
    assert_eq!(SpanFormat::ZipkinV2Json.decode(body.as_bytes(), &limits).unwrap().items.len(), 1);
    for format in [SpanFormat::ZipkinV1Json, SpanFormat::ZipkinV2Json, SpanFormat::OtlpJson] {
        let body = deep("[", "]");
        assert!(format.decode(body.as_bytes(), &limits).is_err() || format != SpanFormat::OtlpJson);
    }
    let value = deep(r#"{"arrayValue":{"values":["#, "]}}");
    let attribute = format!(r#"{{"key":"k","value":{value}}}"#);
    let ids = r#""traceId":"00000000000000000000000000000001","spanId":"0000000000000001""#;
    let body = format!(
        r#"{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{{ids},"attributes":[{attribute}]}},{{{ids}}}]}}]}}]}}"#
    );
    let limits = Limits { item_bytes: 32 << 20, ..limits };
    let decoded = SpanFormat::OtlpJson.decode(body.as_bytes(), &limits).unwrap();
    assert_eq!((decoded.items.len(), decoded.n_rejected), (1, 1));
}

#[test]
fn a_grpc_body_is_one_whole_message() {
    let limits = Limits::default();
    let read = |body: &[u8]| grpc_message(body, "gzip", &limits, &mut |_| true).map(Cow::into_owned);
    assert_eq!(read(&[0, 0, 0, 0, 2, 7, 8]).unwrap(), [7, 8]);
    assert_eq!(read(&[0, 0, 0, 0, 0]).unwrap(), [0u8; 0]);
    for bad in [&[][..], &[0, 0, 0, 0], &[0, 0, 0, 0, 2, 7], &[0, 0, 0, 0, 1, 7, 8], &[1, 0, 0, 0, 1, 7]] {
        assert!(read(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn room_is_asked_for_as_a_body_grows() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(&vec![b' '; 3 << 20]).unwrap();
    let body = encoder.finish().unwrap();
    let limits = Limits::default();
    let mut asked = 0;
    let plain = inflate_within(&body, Some("gzip"), &limits, &mut |more| {
        asked += more;
        true
    });
    assert_eq!(plain.unwrap().len(), 3 << 20);
    assert!((3 << 20..4 << 20).contains(&asked), "{asked}");
    let mut left = 1 << 20;
    let refused = inflate_within(&body, Some("gzip"), &limits, &mut |more| {
        left -= i64::try_from(more).unwrap();
        left >= 0
    });
    assert_eq!(refused.unwrap_err(), DecodeError::NoRoom);
    assert_eq!(DecodeError::NoRoom.status(), 429);
}
