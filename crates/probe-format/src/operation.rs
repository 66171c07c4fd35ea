//! What is asked of a service, without what differs between runs.

/// Method and path without query, with `{}` for what looks like an id.
///
/// ```
/// use faultscope_probe_format::masked_operation;
/// assert_eq!(masked_operation("GET", "/carts/7f3a9c1e-1111-4222-8333-944445555666/v2"), "GET /carts/{}/v2");
/// ```
pub fn masked_operation(method: &str, path: &str) -> String {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let masked: Vec<&str> =
        path.split('/').map(|part| if looks_like_id(part) { "{}" } else { part }).collect();
    format!("{method} {}", masked.join("/"))
}

/// The path of a gRPC method that is written as `package.Service/Method`; none if a text is something else.
///
/// A service without a package begins with a capital letter, so that `orders/list` is no method. `*` stands for all
/// methods of a service.
///
/// ```
/// use faultscope_probe_format::grpc_path;
/// assert_eq!(grpc_path("shop.Orders/Get").as_deref(), Some("/shop.Orders/Get"));
/// assert_eq!(grpc_path("orders/list"), None);
/// ```
pub fn grpc_path(text: &str) -> Option<String> {
    let (service, method) = text.split_once('/')?;
    let is_name = |part: &str| {
        part.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    };
    let is_service = service.split('.').all(is_name);
    let is_distinct = service.contains('.') || service.starts_with(|c: char| c.is_ascii_uppercase());
    (is_service && is_distinct && (is_name(method) || method == "*")).then(|| format!("/{text}"))
}

/// Numbers, and longer words of hexadecimal digits or of letters mixed with several digits.
fn looks_like_id(part: &str) -> bool {
    let digits = part.bytes().filter(u8::is_ascii_digit).count();
    let is_word = part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
    let is_hex = part.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-');
    digits > 0
        && is_word
        && (digits == part.len() || (is_hex && part.len() >= 8) || (part.len() >= 16 && digits >= 4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_an_id_is_masked() {
        let same = ["/orders/17", "/orders/deadbeef01", "/orders/cart_7f3a9c1e1111422283"];
        for path in same {
            assert_eq!(masked_operation("GET", path), "GET /orders/{}", "{path}");
        }
        for path in ["/orders/v2", "/orders/list", "/orders/feedback", "/api/oauth2"] {
            assert_eq!(masked_operation("GET", path), format!("GET {path}"));
        }
    }

    #[test]
    fn other_texts_are_no_methods_of_grpc() {
        for text in [
            "orders/list",
            "shop.Stock",
            "shop.Stock/",
            "/shop.Stock/Get",
            "shop..Stock/Get",
            "1.B/C",
            "a.B/C d",
        ] {
            assert_eq!(grpc_path(text), None, "{text}");
        }
    }
}
