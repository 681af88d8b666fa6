//! The arguments of the attribute.

use darling::ast::NestedMeta;
use darling::{Error, FromMeta};
use proc_macro2::{Span as Place, TokenStream};
use syn::spanned::Spanned;
use syn::{Expr, ExprCall, ExprLit, Ident, Lit, LitStr, Path};

use crate::duration::{self, Span};
use crate::template::Template;

/// The arguments of `#[locked(…)]`, checked.
#[derive(Debug, FromMeta)]
pub(crate) struct Args {
    #[darling(default)]
    key: Option<Template>,
    #[darling(default)]
    keys: Option<Templates>,
    #[darling(default)]
    pub(crate) wait: Wait,
    #[darling(default)]
    pub(crate) ttl: Option<Span>,
    #[darling(default)]
    pub(crate) max_hold: Option<Span>,
    #[darling(default)]
    pub(crate) min_hold: Option<Span>,
    #[darling(default)]
    pub(crate) expect: Option<Span>,
    #[darling(default)]
    pub(crate) kind: Kind,
    #[darling(default)]
    pub(crate) order: Order,
    #[darling(default)]
    pub(crate) fenced: bool,
    #[darling(default)]
    pub(crate) reason: Option<LitStr>,
    #[darling(default)]
    pub(crate) locks: Option<Any>,
    #[darling(default)]
    pub(crate) on_busy: OnBusy,
    #[darling(default)]
    pub(crate) guard: Option<Name>,
}

impl Args {
    pub(crate) fn parse(args: TokenStream) -> Result<Self, Error> {
        let args = Self::from_list(&NestedMeta::parse_meta_list(args)?)?;
        match (&args.key, &args.keys) {
            (None, None) => Err(
                Error::custom("which lock? Name it: #[locked(key = \"order:close:{id}\")]")
                    .with_span(&Place::call_site()),
            ),
            (Some(_), Some(_)) => {
                Err(Error::custom("give `key` or `keys`, not both").with_span(&Place::call_site()))
            }
            _ => Ok(args),
        }
    }

    /// The keys, at least one.
    pub(crate) fn keys(&self) -> &[Template] {
        match (&self.key, &self.keys) {
            (Some(key), _) => std::slice::from_ref(key),
            (None, Some(keys)) => &keys.0,
            (None, None) => &[],
        }
    }
}

/// `["a:{x}", "b:{y}"]`
#[derive(Debug)]
struct Templates(Vec<Template>);

impl FromMeta for Templates {
    fn from_expr(expr: &Expr) -> Result<Self, Error> {
        let fail =
            |at: &Expr| Error::custom("`keys` is a list of strings: [\"a:{x}\", \"b:{y}\"]").with_span(at);
        let Expr::Array(array) = expr else {
            return Err(fail(expr));
        };
        if array.elems.is_empty() {
            return Err(fail(expr));
        }
        let keys = array.elems.iter().map(|key| match key {
            Expr::Lit(ExprLit {
                lit: Lit::Str(text), ..
            }) => Template::parse(text),
            other => Err(fail(other)),
        });
        keys.collect::<Result<_, _>>().map(Self)
    }
}

/// How long to wait for the lock.
#[derive(Debug, Default)]
pub(crate) enum Wait {
    /// Three seconds: a call in a service neither fails at the first contention nor hangs.
    #[default]
    Usual,
    Try,
    Forever,
    For(Span),
}

impl FromMeta for Wait {
    fn from_expr(expr: &Expr) -> Result<Self, Error> {
        let Expr::Lit(ExprLit {
            lit: Lit::Str(text), ..
        }) = expr
        else {
            return Span::from_expr(expr).map(Self::For);
        };
        match text.value().as_str() {
            "try" => Ok(Self::Try),
            "forever" => Ok(Self::Forever),
            "0" | "0s" | "0ms" => {
                Err(Error::custom("to make a single attempt, write wait = \"try\"").with_span(text))
            }
            _ => duration::parse(text).map(|d| Self::For(Span::Written(d))),
        }
    }
}

/// The kind of lock.
#[derive(Debug, Default)]
pub(crate) enum Kind {
    #[default]
    Mutex,
    Read,
    Write,
    Permits(Box<Expr>),
}

impl FromMeta for Kind {
    fn from_expr(expr: &Expr) -> Result<Self, Error> {
        let fail = || Error::custom("`kind` is one of: mutex, read, write, permits(n)").with_span(expr);
        match (word(expr).as_deref(), call(expr)) {
            (Some("mutex"), _) => Ok(Self::Mutex),
            (Some("read"), _) => Ok(Self::Read),
            (Some("write"), _) => Ok(Self::Write),
            (_, Some((name, arg))) if name == "permits" => {
                if let Expr::Lit(ExprLit { lit: Lit::Int(n), .. }) = arg
                    && n.base10_parse::<u32>().map_err(Error::from)? == 0
                {
                    return Err(Error::custom("a semaphore has at least one permit").with_span(arg));
                }
                Ok(Self::Permits(Box::new(arg.clone())))
            }
            _ => Err(fail()),
        }
    }
}

/// Whether the contender insists on its turn.
#[derive(Debug, Default, PartialEq)]
pub(crate) enum Order {
    #[default]
    Any,
    Fifo,
}

impl FromMeta for Order {
    fn from_expr(expr: &Expr) -> Result<Self, Error> {
        match word(expr).as_deref() {
            Some("any") => Ok(Self::Any),
            Some("fifo") => Ok(Self::Fifo),
            _ => Err(Error::custom("`order` is one of: any, fifo").with_span(expr)),
        }
    }
}

/// What happens when the lock is not obtained because somebody else has it.
#[derive(Debug, Default)]
pub(crate) enum OnBusy {
    #[default]
    Error,
    Skip(Box<Expr>),
    Call(Path),
}

impl FromMeta for OnBusy {
    fn from_expr(expr: &Expr) -> Result<Self, Error> {
        let fail = || {
            Error::custom(
                "`on_busy` is one of: error, skip(expression) such as skip(Ok(())), call(function) such as call(later)",
            )
            .with_span(expr)
        };
        match (word(expr).as_deref(), call(expr)) {
            (Some("error"), _) => Ok(Self::Error),
            (_, Some((name, arg))) if name == "skip" => Ok(Self::Skip(Box::new(arg.clone()))),
            (_, Some((name, Expr::Path(path)))) if name == "call" => Ok(Self::Call(path.path.clone())),
            _ => Err(fail()),
        }
    }
}

/// Any expression, taken as it is written (a string stays a string).
#[derive(Debug)]
pub(crate) struct Any(pub(crate) Expr);

impl FromMeta for Any {
    fn from_expr(expr: &Expr) -> Result<Self, Error> {
        Ok(Self(expr.clone()))
    }
}

/// A name to bind.
#[derive(Debug)]
pub(crate) struct Name(pub(crate) Ident);

impl FromMeta for Name {
    fn from_expr(expr: &Expr) -> Result<Self, Error> {
        match expr {
            Expr::Path(path) if path.path.get_ident().is_some_and(|name| name != "self") => path
                .path
                .get_ident()
                .cloned()
                .map(Self)
                .ok_or_else(|| Error::custom("a name")),
            _ => Err(
                Error::custom("`guard` is the name to give to the hold, such as guard = held")
                    .with_span(expr),
            ),
        }
    }
}

/// `word`
fn word(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Path(path) => path.path.get_ident().map(Ident::to_string),
        Expr::Group(group) => word(&group.expr),
        _ => None,
    }
}

/// `name(argument)`
fn call(expr: &Expr) -> Option<(String, &Expr)> {
    match expr {
        Expr::Call(ExprCall { func, args, .. }) if args.len() == 1 => Some((word(func)?, args.first()?)),
        Expr::Group(group) => call(&group.expr),
        _ => None,
    }
}

/// The place of an argument in the source, for messages.
pub(crate) fn place(expr: &Expr) -> Place {
    expr.span()
}
