//! Durations as people write them, checked while compiling.

use std::time::Duration;

use darling::{Error, FromMeta};
use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::spanned::Spanned;
use syn::{Expr, ExprLit, Lit, LitStr};

/// The longest duration that distlock accepts anywhere.
const MOST: Duration = Duration::from_secs(366 * 86_400);

/// `"30s"`, or an expression of the type `Duration`.
#[derive(Debug, Clone)]
pub(crate) enum Span {
    Written(Duration),
    Expr(Box<Expr>),
}

impl FromMeta for Span {
    fn from_expr(expr: &Expr) -> Result<Self, Error> {
        match expr {
            Expr::Group(group) => Self::from_expr(&group.expr),
            Expr::Lit(ExprLit {
                lit: Lit::Str(text), ..
            }) => parse(text).map(Self::Written),
            Expr::Lit(lit) => Err(Error::custom(
                "a duration needs a unit: write it as a string like \"30s\" or \"200ms\"",
            )
            .with_span(lit)),
            other => Ok(Self::Expr(Box::new(other.clone()))),
        }
    }
}

impl ToTokens for Span {
    fn to_tokens(&self, out: &mut TokenStream) {
        out.extend(match self {
            Self::Written(d) => {
                let (secs, nanos) = (d.as_secs(), d.subsec_nanos());
                quote!(::core::time::Duration::new(#secs, #nanos))
            }
            Self::Expr(expr) => {
                let span = expr.span();
                quote::quote_spanned!(span=> { let d: ::core::time::Duration = #expr; d })
            }
        });
    }
}

/// Between one nanosecond and 366 days.
pub(crate) fn parse(text: &LitStr) -> Result<Duration, Error> {
    let value = text.value();
    let fail = |why: String| Err(Error::custom(why).with_span(text));
    match humantime::parse_duration(&value) {
        Err(e) => fail(format!(
            "{value:?} is not a duration ({e}); write it like \"30s\", \"200ms\" or \"1m 30s\""
        )),
        Ok(d) if d.is_zero() => {
            fail("a duration of zero is not a setting; leave the argument out".to_owned())
        }
        Ok(d) if d > MOST => fail(format!("{value:?} is longer than 366 days")),
        Ok(d) => Ok(d),
    }
}
