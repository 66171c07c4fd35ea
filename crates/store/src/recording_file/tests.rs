use proptest::prelude::*;

use super::*;
use faultscope_model::Span;
use faultscope_model::span::Payload as Bodies;

fn passphrase() -> Passphrase {
    Passphrase::new("correct horse battery\n").unwrap()
}

fn head() -> RecordingHead {
    RecordingHead { tool: "1".into(), application: "shop".into(), started_us: 7, secrets: false }
}

fn call(id: u64, body: &str) -> Span {
    let json = serde_json::json!({
        "trace": "1", "id": format!("{id:x}"), "caller": "user-1", "callee": "order", "port": 80, "wire": "http1",
        "method": "POST", "path": "/orders", "start_us": id, "duration_us": 5, "request_bytes": body.len(),
        "response_bytes": 0, "status": 200,
    });
    let mut span: Span = serde_json::from_value(json).unwrap();
    span.payload = Some(Box::new(Bodies { request_body: body.into(), ..Bodies::default() }));
    span
}

fn written(calls: &[Span]) -> Vec<u8> {
    let mut writer = RecordingWriter::new(Vec::new(), &passphrase(), &head()).unwrap();
    calls.iter().for_each(|call| writer.add(call).unwrap());
    writer.finish().unwrap()
}

fn read(file: &[u8], passphrase: &Passphrase) -> Result<Vec<Span>, RecordingFileError> {
    let mut reader = RecordingReader::open(file, passphrase)?;
    let mut calls = Vec::new();
    while let Some(call) = reader.next_call()? {
        calls.push(call);
    }
    Ok(calls)
}

#[test]
fn calls_come_back_over_several_frames() {
    let calls: Vec<Span> = (1..40).map(|id| call(id, &"x".repeat(100_000))).collect();
    let file = written(&calls);
    assert!(file.len() < 1_000_000, "{} bytes for what repeats", file.len());
    assert_eq!(read(&file, &passphrase()).unwrap(), calls);
    assert_eq!(RecordingReader::open(&file[..], &passphrase()).unwrap().head(), &head());
    assert!(read(&written(&[]), &passphrase()).unwrap().is_empty());
}

#[test]
fn nothing_can_be_read_without_the_passphrase() {
    let file = written(&[call(1, "a secret of the shop")]);
    let other = Passphrase::new("correct horse batterz").unwrap();
    assert!(matches!(read(&file, &other), Err(RecordingFileError::WrongPassphrase)));
    for word in ["secret", "orders", "shop"] {
        assert!(!file.windows(word.len()).any(|bytes| bytes == word.as_bytes()), "{word}");
    }
    assert_eq!(Passphrase::new("short").unwrap_err(), PassphraseError::TooShort);
    assert_eq!(format!("{:?}", passphrase()), "Passphrase");
}

#[test]
fn hostile_files_are_bounded_errors() {
    let file = written(&[call(1, "a")]);
    let text = String::from_utf8_lossy(&file).into_owned();
    let with = |from: &str, to: &str| {
        let at = text.find(from).unwrap();
        [&file[..at], to.as_bytes(), &file[at + from.len()..]].concat()
    };
    let error = |file: &[u8]| read(file, &passphrase()).unwrap_err().to_string();
    assert_eq!(error(b""), "it is not a recording");
    assert_eq!(error(&vec![b'x'; 1 << 20]), "it is not a recording");
    assert_eq!(error(&with("recording 1", "recording 9")), "a newer version of the tool wrote it (format 9)");
    let greedy = with("\"memory_kib\":65536", "\"memory_kib\":4294967295");
    assert_eq!(error(&greedy), "the file is too large: it asks for too much memory or time");
    let mut long = file[..text.find("}\n").unwrap() + 2].to_vec();
    long.extend([0xff; 8]);
    assert_eq!(error(&long), "the file is too large: a frame");
}

#[test]
fn frames_cannot_be_left_out() {
    let calls: Vec<Span> = (1..30).map(|id| call(id, &format!("{id}").repeat(50_000))).collect();
    let file = written(&calls);
    let second = file.windows(2).position(|two| two == b"}\n").unwrap() + 2;
    let length = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize + 4;
    let third = second + length(second);
    let without = [&file[..third], &file[third + length(third)..]].concat();
    assert!(matches!(read(&without, &passphrase()), Err(RecordingFileError::Damaged(_))));
    assert!(matches!(read(&file[..third], &passphrase()), Err(RecordingFileError::Damaged("it is cut off"))));
}

proptest! {
    // Each case makes a key, which is slow on purpose.
    #![proptest_config(ProptestConfig::with_cases(8))]
    #[test]
    fn a_changed_byte_is_noticed(place in 0.0..1.0_f64, bit in 0..8_u32) {
        let mut file = written(&[call(1, "body")]);
        let place = ((file.len() - 1) as f64 * place) as usize;
        file[place] ^= 1 << bit;
        // The number of the version may become a newer one, which is an error as well.
        prop_assert!(read(&file, &passphrase()).is_err());
    }
}
