//! Server-rendered pages.
