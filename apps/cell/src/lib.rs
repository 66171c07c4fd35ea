//! A generic service that behaves as a small spec says.
