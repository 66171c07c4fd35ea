//! Health checks: those that fetch a page, connect or ask gRPC for health become probes, all others stay commands.

use std::time::Duration;

use crate::import::ImportedReadiness;
use crate::import::node::Node;
use crate::import::shell::split_words;

/// The probe of a `healthcheck`; none when it is switched off. `names` are the service's own names.
pub(super) fn read_readiness(
    check: &Node,
    names: &[&str],
    first_port: Option<u16>,
) -> Result<Option<ImportedReadiness>, String> {
    if check.get_text("disable") == Some("true") {
        return Ok(None);
    }
    let Some(test) = check.get("test") else {
        return Ok(None);
    };
    let words: Vec<String> = match (test.as_list(), test.as_text()) {
        (Some(items), _) => items.iter().filter_map(|item| item.as_text().map(str::to_owned)).collect(),
        (_, Some(text)) => vec!["CMD-SHELL".to_owned(), text.to_owned()],
        _ => return Err("the test of a health check is a text or a list".to_owned()),
    };
    let probe = match words.split_first() {
        None => return Ok(None),
        Some((kind, _)) if kind == "NONE" => return Ok(None),
        Some((kind, argv)) if kind == "CMD" && !argv.is_empty() => find_probe(argv, names, first_port)
            .unwrap_or_else(|| ImportedReadiness { command: argv.to_vec(), ..ImportedReadiness::default() }),
        Some((kind, script)) if kind == "CMD-SHELL" && !script.is_empty() => {
            let script = script.join(" ");
            let simple = simple_words(&script).and_then(|words| find_probe(&words, names, first_port));
            simple.unwrap_or_else(|| ImportedReadiness {
                command: vec!["sh".to_owned(), "-c".to_owned(), script],
                ..ImportedReadiness::default()
            })
        }
        Some(_) => return Err("the test of a health check starts with CMD, CMD-SHELL or NONE".to_owned()),
    };
    Ok(Some(ImportedReadiness { within: Some(show_duration(sum_wait(check)?)), ..probe }))
}

/// The port that a health check asks.
pub(super) fn find_checked_port(ready: &ImportedReadiness) -> Option<u16> {
    ready.port.or(ready.tcp).or_else(|| find_port_option(&ready.command))
}

/// The port in the options of a checking command: `pg_isready -p 5433`, `grpc_health_probe -tls -addr=:50051`.
fn find_port_option(command: &[String]) -> Option<u16> {
    let words = match command {
        [shell, option, script] if shell == "sh" && option == "-c" => simple_words(script)?,
        words => words.to_vec(),
    };
    let (program, arguments) = words.split_first()?;
    let options: &[&str] = match program.rsplit('/').next()? {
        "grpc_health_probe" | "grpc-health-probe" => &["addr"],
        "pg_isready" | "redis-cli" | "valkey-cli" => &["p", "port"],
        _ => return None,
    };
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        let Some(option) = argument.strip_prefix('-').map(|option| option.trim_start_matches('-')) else {
            continue;
        };
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        if options.contains(&name) {
            let value = value.or_else(|| arguments.next().map(String::as_str))?;
            let (host, port) = value.rsplit_once(':').unwrap_or(("", value));
            return port.parse().ok().filter(|_| host.is_empty() || is_self(host, &[]));
        }
    }
    None
}

/// Reads a duration as Compose writes it: `1m30s`, `500ms`.
pub(super) fn parse_duration(text: &str) -> Result<Duration, String> {
    let refuse = || format!("`{}` is not a duration like `1m30s`", text.chars().take(30).collect::<String>());
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(refuse());
    }
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let number: f64 = rest[..digits].parse().map_err(|_| refuse())?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        seconds += number
            * match &rest[..letters] {
                "ns" => 1e-9,
                "us" | "µs" => 1e-6,
                "ms" => 1e-3,
                "s" | "" => 1.0,
                "m" => 60.0,
                "h" => 3600.0,
                "d" => 86400.0,
                _ => return Err(refuse()),
            };
        rest = &rest[letters..];
    }
    if !(0.0..=1e9).contains(&seconds) {
        return Err(refuse());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Writes a duration as the application file has it.
pub(in crate::import) fn show_duration(duration: Duration) -> String {
    let millis = duration.as_millis();
    if millis.is_multiple_of(1000) { format!("{}s", millis / 1000) } else { format!("{millis}ms") }
}

/// How long the checks may go on before Compose gives up, within reason.
fn sum_wait(check: &Node) -> Result<Duration, String> {
    let read = |key: &str, default: u64| match check.get_text(key) {
        Some(text) => parse_duration(text),
        None => Ok(Duration::from_secs(default)),
    };
    let retries =
        check.get_text("retries").and_then(|text| text.parse::<u32>().ok()).unwrap_or(3).clamp(1, 1000);
    let interval = read("interval", 30)?.as_secs_f64();
    let all = read("start_period", 0)?.as_secs_f64() + interval * f64::from(retries);
    // Below ten seconds a busy machine would spoil trials; above ten minutes nobody waits.
    Ok(Duration::from_secs_f64(all.clamp(10.0, 600.0)))
}

/// The words of a script that is one plain command, maybe with `|| exit 1` and its output thrown away.
fn simple_words(script: &str) -> Option<Vec<String>> {
    let mut script = script.trim();
    if let Some((command, end)) = script.rsplit_once("||")
        && matches!(end.trim().trim_end_matches(';'), "exit 1" | "exit" | "false" | "kill 1" | "exit -1")
    {
        script = command;
    }
    let mut kept = String::from(script);
    for noise in
        ["2>&1", "2> /dev/null", "2>/dev/null", "&> /dev/null", "&>/dev/null", "> /dev/null", ">/dev/null"]
    {
        kept = kept.replace(noise, " ");
    }
    if kept.contains(['|', '&', ';', '<', '>', '`', '$', '(']) {
        // An ampersand inside quotes belongs to the address, but telling that apart is not worth it.
        return None;
    }
    split_words(&kept).ok()
}

fn find_probe(words: &[String], names: &[&str], first_port: Option<u16>) -> Option<ImportedReadiness> {
    let (program, arguments) = words.split_first()?;
    match program.rsplit('/').next()? {
        "curl" | "wget" | "http" => http_probe(arguments, names, first_port),
        "nc" | "netcat" => tcp_probe(arguments, names),
        _ => grpc_command(words, names, first_port),
    }
}

/// The probe of a command that asks gRPC for health; none if it is another command.
pub(in crate::import) fn grpc_command(
    words: &[String],
    names: &[&str],
    first_port: Option<u16>,
) -> Option<ImportedReadiness> {
    let (program, arguments) = words.split_first()?;
    match program.rsplit('/').next()? {
        "grpc_health_probe" | "grpc-health-probe" => grpc_probe(arguments, names, first_port),
        _ => None,
    }
}

/// A plain GET of a page on the service itself.
fn http_probe(arguments: &[String], names: &[&str], first_port: Option<u16>) -> Option<ImportedReadiness> {
    // Other methods, bodies and headers are more than our probe does.
    let special = |a: &String| {
        matches!(
            a.as_str(),
            "-X" | "--request" | "-d" | "--data" | "-H" | "--header" | "-u" | "--user" | "--unix-socket"
        ) || a.starts_with("--header=")
            || a.starts_with("--post")
    };
    if arguments.iter().any(special) {
        return None;
    }
    let is_address = |a: &&String| {
        let host = a.split(['/', ':']).next().unwrap_or_default();
        a.starts_with("http://") || (!a.starts_with('-') && (is_self(host, names)))
    };
    let mut addresses = arguments.iter().filter(is_address);
    let address = addresses.next()?;
    if addresses.next().is_some() {
        return None;
    }
    let rest = address.strip_prefix("http://").unwrap_or(address);
    let (authority, path) = rest.find(['/', '?']).map_or((rest, ""), |at| rest.split_at(at));
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        _ => (authority, 80),
    };
    if !is_self(host, names) {
        return None;
    }
    let path = path.split('#').next().unwrap_or_default();
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let port = (first_port != Some(port)).then_some(port);
    Some(ImportedReadiness { http: Some(path), port, ..ImportedReadiness::default() })
}

/// `nc -z localhost 5432`.
fn tcp_probe(arguments: &[String], names: &[&str]) -> Option<ImportedReadiness> {
    let zero = arguments.iter().any(|a| a.starts_with('-') && !a.starts_with("--") && a.contains('z'));
    let [.., host, port] = arguments else { return None };
    if !zero || !is_self(host, names) {
        return None;
    }
    Some(ImportedReadiness { tcp: Some(port.parse().ok()?), ..ImportedReadiness::default() })
}

/// `grpc_health_probe -addr=:50051 -service=shop.Stock`. Options for TLS and metadata are more than our probe does.
fn grpc_probe(arguments: &[String], names: &[&str], first_port: Option<u16>) -> Option<ImportedReadiness> {
    let (mut port, mut service) = (None, String::new());
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let option = word.trim_start_matches('-');
        let (key, value) = match option.split_once('=') {
            Some((key, value)) => (key, value),
            // A switch has no value.
            None if matches!(option, "v" | "gzip") => (option, ""),
            None => (option, words.next()?.as_str()),
        };
        match key {
            "addr" => {
                let (host, number) = value.rsplit_once(':')?;
                port = Some(number.parse::<u16>().ok()?);
                if !host.is_empty() && !is_self(host, names) {
                    return None;
                }
            }
            "service" => service = value.to_owned(),
            "connect-timeout" | "rpc-timeout" | "user-agent" | "v" | "gzip" => {}
            _ => return None,
        }
    }
    let port = port?;
    let port = (first_port != Some(port)).then_some(port);
    Some(ImportedReadiness { grpc: Some(service), port, ..ImportedReadiness::default() })
}

fn is_self(host: &str, names: &[&str]) -> bool {
    matches!(host, "localhost" | "127.0.0.1" | "0.0.0.0" | "[::1]") || names.contains(&host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(yaml: &str) -> String {
        let node = Node::parse("f", yaml).unwrap();
        match read_readiness(&node, &["order"], Some(8080)) {
            Ok(None) => "none".to_owned(),
            Ok(Some(ready)) => {
                let parts = [
                    ready.http.unwrap_or_default(),
                    ready.tcp.map(|p| format!("tcp {p}")).unwrap_or_default(),
                    ready.grpc.map(|service| format!("grpc {service:?}")).unwrap_or_default(),
                    ready.command.join(","),
                    ready.port.map(|p| format!(":{p}")).unwrap_or_default(),
                    ready.within.unwrap_or_default(),
                ];
                parts.into_iter().filter(|p| !p.is_empty()).collect::<Vec<_>>().join(" ")
            }
            Err(error) => error,
        }
    }

    #[test]
    fn tests_become_probes() {
        for (test, expected) in [
            ("NONE", "sh,-c,NONE 90s"),
            ("[NONE]", "none"),
            ("[]", "none"),
            ("curl -f http://localhost:8080/health || exit 1", "/health 90s"),
            ("[CMD, curl, -f, 'http://127.0.0.1:8080/']", "/ 90s"),
            (
                "[CMD-SHELL, 'curl -sf localhost:8080/ready?full=1 > /dev/null 2>&1 || exit 1']",
                "/ready?full=1 90s",
            ),
            ("wget --spider -q http://order:9000/x", "/x :9000 90s"),
            ("[CMD, wget, -qO-, 'http://localhost']", "/ :80 90s"),
            ("curl http://other:8080/", "sh,-c,curl http://other:8080/ 90s"),
            ("curl https://localhost:8080/", "sh,-c,curl https://localhost:8080/ 90s"),
            ("[CMD, curl, -X, POST, 'http://localhost:8080/']", "curl,-X,POST,http://localhost:8080/ 90s"),
            ("curl localhost:8080 | grep ok", "sh,-c,curl localhost:8080 | grep ok 90s"),
            ("[CMD, redis-cli, ping]", "redis-cli,ping 90s"),
            ("pg_isready -U postgres", "sh,-c,pg_isready -U postgres 90s"),
            ("nc -z localhost 5432", "tcp 5432 90s"),
            ("nc localhost 5432", "sh,-c,nc localhost 5432 90s"),
            ("[CMD, /bin/grpc_health_probe, '-addr=:8080']", "grpc \"\" 90s"),
            (
                "grpc_health_probe -addr localhost:50051 --service=shop.Stock || exit 1",
                "grpc \"shop.Stock\" :50051 90s",
            ),
            ("[CMD, grpc_health_probe, '-addr=other:8080']", "grpc_health_probe,-addr=other:8080 90s"),
            ("[CMD, grpc_health_probe, '-addr=:8080', -tls]", "grpc_health_probe,-addr=:8080,-tls 90s"),
            ("[curl, x]", "the test of a health check starts with CMD, CMD-SHELL or NONE"),
        ] {
            assert_eq!(read(&format!("test: {test}")), expected, "{test}");
        }
        assert_eq!(read("{test: x, interval: 5s, retries: 4, start_period: 1m10s}"), "sh,-c,x 90s");
        assert_eq!(read("{test: x, interval: 100ms, retries: 1}"), "sh,-c,x 10s");
        assert_eq!(read("{test: x, disable: true}"), "none");
        assert_eq!(read("{test: x, interval: soon}"), "`soon` is not a duration like `1m30s`");
    }

    #[test]
    fn ports_of_commands() {
        for (test, expected) in [
            ("[CMD, /bin/grpc_health_probe, '-addr=:50051']", Some(50051)),
            ("grpc_health_probe --addr localhost:7070 || exit 1", Some(7070)),
            ("[CMD, grpc_health_probe, -tls, '-addr=:50051']", Some(50051)),
            ("pg_isready -U shop -p 5433", Some(5433)),
            ("[CMD, redis-cli, -p, '6380', ping]", Some(6380)),
            ("grpc_health_probe -addr=other:7070", None),
            ("mysqladmin ping -p 3306", None),
            ("pg_isready", None),
        ] {
            let node = Node::parse("f", &format!("test: {test}")).unwrap();
            let ready = read_readiness(&node, &[], None).unwrap().unwrap();
            assert_eq!(find_checked_port(&ready), expected, "{test}");
        }
    }

    #[test]
    fn durations() {
        for (text, millis) in
            [("1m30s", 90_000), ("1.5s", 1500), ("250ms", 250), ("2h", 7_200_000), ("3", 3000)]
        {
            assert_eq!(parse_duration(text).unwrap().as_millis(), millis, "{text}");
        }
        for bad in ["", "s", "1x", "-1s", "1e400s", "99999999999h", "1..2s"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
        assert_eq!(show_duration(Duration::from_millis(1500)), "1500ms");
    }
}
