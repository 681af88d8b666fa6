//! The page for people: embedded, so that nothing is loaded from elsewhere.

/// The page, its style and its script.
pub(crate) const PAGE: &str = include_str!("dashboard/page.html");
pub(crate) const STYLE: &str = include_str!("dashboard/page.css");
pub(crate) const SCRIPT: &str = include_str!("dashboard/page.js");

/// What the page may do: load its own style and script, and speak to this gateway. No inline script runs, so that
/// a key or label cannot bring one.
pub(crate) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
