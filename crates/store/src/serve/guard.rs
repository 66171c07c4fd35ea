//! Access control: a token if one is set, and no requests from web pages of other origins.

use std::net::IpAddr;
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
    if let Some(origin) = &origin
        && !access.knows_origin(origin)
    {
        return Failure::new(StatusCode::FORBIDDEN, "pages of this origin may not send requests here")
            .into_response();
    }
    if access.token.is_none() && !names_this_machine(request.headers()) {
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
        given.and_then(|given| given.strip_prefix("Bearer ")).is_some_and(|given| is_equal(given, token))
    }

    fn knows_origin(&self, origin: &HeaderValue) -> bool {
        let Ok(origin) = origin.to_str() else { return false };
        let host = origin.split_once("://").map_or(origin, |(_, host)| host);
        self.origins.iter().any(|known| known == origin || known == "*") || is_loopback(host_of(host))
    }
}

/// Compares in constant time, so that the duration reveals nothing.
fn is_equal(given: &str, wanted: &str) -> bool {
    let differences = given.bytes().zip(wanted.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    given.len() == wanted.len() && differences == 0
}

fn names_this_machine(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST) else { return true };
    let Ok(host) = host.to_str() else { return false };
    let host = host_of(host);
    is_loopback(host) || host.parse::<IpAddr>().is_ok()
}

fn host_of(text: &str) -> &str {
    match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, _)) => host,
        None => text.rsplit_once(':').map_or(text, |(host, _)| host),
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host.ends_with(".localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
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
        ] {
            assert_eq!(access.knows_origin(&HeaderValue::from_static(origin)), may, "{origin}");
        }
    }

    #[test]
    fn names_that_may_point_anywhere_are_refused() {
        let of = |host: &'static str| {
            names_this_machine(&HeaderMap::from_iter([(HOST, HeaderValue::from_static(host))]))
        };
        assert!(of("localhost:9411") && of("127.0.0.1:9411") && of("[::1]:9411") && of("10.0.0.3"));
        assert!(!of("rebound.example:9411"));
        assert!(names_this_machine(&HeaderMap::new()));
    }

    #[test]
    fn tokens_are_compared_whole() {
        assert!(is_equal("abc", "abc"));
        assert!(!is_equal("ab", "abc") && !is_equal("abd", "abc") && !is_equal("", "abc"));
    }
}
