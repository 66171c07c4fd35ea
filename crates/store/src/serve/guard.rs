//! Access control: a token if one is set, and no requests from web pages of other origins.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN, AUTHORIZATION,
    HOST, ORIGIN, VARY, WWW_AUTHENTICATE,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Served;
use super::answer::Failure;

/// Who may send requests.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// The token for `Authorization: Bearer`; none on the loopback interface.
    pub token: Option<String>,
    /// Origins whose pages may send requests, besides those of this machine.
    pub origins: Vec<String>,
}

/// Accepts or rejects a request.
pub(super) async fn guard(State(served): State<Arc<Served>>, request: Request, next: Next) -> Response {
    let access = &served.options.access;
    let origin = request.headers().get(ORIGIN).cloned();
    if !access.knows_origins(request.headers()) {
        return Failure::new(StatusCode::FORBIDDEN, "pages of this origin may not send requests here")
            .into_response();
    }
    if access.token.is_none() && !names_this_machine(&request) {
        let message =
            "use an IP address or localhost: other host names are rejected as possible DNS rebinding";
        return Failure::new(StatusCode::FORBIDDEN, message).into_response();
    }
    let preflight = request.method() == Method::OPTIONS && origin.is_some();
    // Health reveals nothing about stored data, and health checks rarely have a token.
    let open = preflight || request.uri().path() == "/health";
    let mut response = if !open && !access.knows_token(request.headers()) {
        let failure = Failure::new(StatusCode::UNAUTHORIZED, "a token is needed: Authorization: Bearer ...");
        let mut response = failure.into_response();
        response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        response
    } else if preflight {
        let mut response = StatusCode::NO_CONTENT.into_response();
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
        let allowed = "authorization, content-encoding, content-type";
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(allowed));
        response
    } else {
        next.run(request).await
    };
    if let Some(origin) = origin {
        response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        response.headers_mut().insert(VARY, HeaderValue::from_static("origin"));
    }
    response
}

impl Access {
    fn knows_token(&self, headers: &HeaderMap) -> bool {
        let Some(token) = &self.token else { return true };
        let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        // The name of a scheme has no case.
        let credential = given
            .and_then(|given| given.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        credential.is_some_and(|(_, given)| is_equal(given.trim_start_matches(' '), token))
    }

    /// Whether requests may come from all origins that this one names. Browsers name one.
    fn knows_origins(&self, headers: &HeaderMap) -> bool {
        headers.get_all(ORIGIN).iter().all(|origin| self.knows_origin(origin))
    }

    fn knows_origin(&self, origin: &HeaderValue) -> bool {
        let Ok(origin) = origin.to_str() else { return false };
        self.origins.iter().any(|known| known == origin || known == "*") || is_loopback_origin(origin)
    }
}

/// Compares in constant time, so that the duration reveals nothing.
fn is_equal(given: &str, wanted: &str) -> bool {
    let differences = given.bytes().zip(wanted.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    given.len() == wanted.len() && differences == 0
}

/// Whether all names of the server in a request are of this machine: the `Host` of HTTP/1 and the `:authority` of
/// HTTP/2. One that is not what a browser would send is of no machine.
fn names_this_machine(request: &Request) -> bool {
    let hosts = request.headers().get_all(HOST);
    if hosts.iter().count() > 1 {
        return false;
    }
    let hosts = hosts.iter().map(|host| host.to_str().unwrap_or("?"));
    let authority = request.uri().authority().map(axum::http::uri::Authority::as_str);
    hosts
        .chain(authority)
        .all(|host| parse_host(host).is_some_and(|host| is_loopback(host) || host.parse::<IpAddr>().is_ok()))
}

/// Whether an origin is `http` or `https`, a name of this machine and at most a port.
fn is_loopback_origin(origin: &str) -> bool {
    let host = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    host.and_then(parse_host).is_some_and(is_loopback)
}

/// The host of `host`, `host:port`, `[address]` or `[address]:port`, and of nothing else: no user, no path, no second
/// port. An address in brackets is one of IPv6.
fn parse_host(text: &str) -> Option<&str> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            host.parse::<Ipv6Addr>().ok()?;
            (host, port)
        }
        None => {
            let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            let is_label = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
            let is_name = !host.is_empty() && host.bytes().all(is_label) && !host.contains("..");
            (Some(host).filter(|_| is_name && !host.starts_with('.'))?, port)
        }
    };
    match port.strip_prefix(':') {
        None if port.is_empty() => Some(host),
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            digits.parse::<u16>().ok().map(|_| host)
        }
        _ => None,
    }
}

fn is_loopback(host: &str) -> bool {
    let lower = host.to_ascii_lowercase();
    lower == "localhost"
        || lower.ends_with(".localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_this_machine_and_of_named_origins_may_ask() {
        let access = Access { token: None, origins: vec!["https://viewer.example".into()] };
        for (origin, may) in [
            ("http://localhost:9411", true),
            ("http://127.0.0.1", true),
            ("http://[::1]:80", true),
            ("https://viewer.example", true),
            ("https://evil.example", false),
            ("http://localhost.evil.example", false),
            ("null", false),
            ("http://LOCALHOST:9411", true),
            ("http://shop.localhost", true),
            ("http://evil.example:80@localhost", false),
            ("http://localhost:80:90", false),
            ("http://localhost:x", false),
            ("http://localhost/path", false),
            ("http://[localhost]", false),
            ("http://[::1]x", false),
            ("http://[::1].evil.example", false),
            ("http://127.0.0.1.evil.example", false),
            ("http://evil.example#localhost", false),
            ("file://localhost", false),
            ("localhost", false),
            ("http://", false),
            ("http://.localhost", false),
        ] {
            assert_eq!(access.knows_origin(&HeaderValue::from_static(origin)), may, "{origin}");
        }
    }

    #[test]
    fn every_origin_of_a_request_counts() {
        let mut headers = HeaderMap::new();
        assert!(Access::default().knows_origins(&headers), "programs name none");
        headers.append(ORIGIN, HeaderValue::from_static("http://localhost"));
        assert!(Access::default().knows_origins(&headers));
        headers.append(ORIGIN, HeaderValue::from_static("https://evil.example"));
        assert!(!Access::default().knows_origins(&headers));
    }

    #[test]
    fn names_that_may_point_anywhere_are_refused() {
        let asked = |host: &[&str], uri: &str| {
            let mut request = Request::builder().uri(uri);
            for host in host {
                request = request.header(HOST, *host);
            }
            names_this_machine(&request.body(axum::body::Body::empty()).unwrap())
        };
        for host in ["localhost:9411", "127.0.0.1:9411", "[::1]:9411", "10.0.0.3", "LOCALHOST"] {
            assert!(asked(&[host], "/"), "{host}");
            assert!(asked(&[], &format!("http://{host}/")), "{host} as an authority");
        }
        for host in [
            "rebound.example:9411",
            "localhost:1:2",
            "localhost,evil",
            "localhost@evil",
            "",
            "[::1",
            "127.0.0.1:99999",
        ] {
            assert!(!asked(&[host], "/"), "{host}");
        }
        assert!(!asked(&["localhost", "localhost"], "/"), "two hosts");
        assert!(!asked(&["localhost"], "http://rebound.example/"), "both count");
        assert!(!asked(&[], "http://rebound.example/"));
        assert!(asked(&[], "/"));
    }

    #[test]
    fn tokens_are_compared_whole() {
        assert!(is_equal("abc", "abc"));
        assert!(!is_equal("ab", "abc") && !is_equal("abd", "abc") && !is_equal("", "abc"));
    }

    #[test]
    fn the_scheme_of_a_token_has_no_case() {
        let access = Access { token: Some("0123456789abcdef".into()), origins: Vec::new() };
        let knows = |value: &'static str| {
            access.knows_token(&HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static(value))]))
        };
        assert!(
            knows("Bearer 0123456789abcdef")
                && knows("bearer 0123456789abcdef")
                && knows("BEARER  0123456789abcdef")
        );
        assert!(
            !knows("0123456789abcdef")
                && !knows("Basic 0123456789abcdef")
                && !knows("Bearer0123456789abcdef")
        );
        assert!(!access.knows_token(&HeaderMap::new()));
    }
}
