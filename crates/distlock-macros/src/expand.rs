//! What `#[locked]` makes of a function.

use darling::Error;
use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Block, ItemFn, ReturnType, Type, parse_quote};

use crate::args::{self, Args, Kind, OnBusy, Order, Wait};
use crate::future;

pub(crate) fn locked(args: TokenStream, item: TokenStream) -> TokenStream {
    match Args::parse(args) {
        Ok(args) => match function(item.clone()).and_then(|f| rewrite(&args, f)) {
            Ok(function) => function.into_token_stream(),
            Err(e) => with_item(&e, item),
        },
        Err(e) => with_item(&e, item),
    }
}

/// The errors, and the function as it was written, so that its callers do not fail as well.
fn with_item(e: &Error, item: TokenStream) -> TokenStream {
    let errors = e.clone().write_errors();
    quote!(#errors #[allow(unused_variables)] #item)
}

fn function(item: TokenStream) -> Result<ItemFn, Error> {
    let place = item.clone();
    syn::parse2(item).map_err(|e| {
        Error::custom(format!("#[locked] goes on a function with a body ({e})")).with_span(&place)
    })
}

/// Puts the body under the lock.
fn rewrite(args: &Args, mut function: ItemFn) -> Result<ItemFn, Error> {
    if let Some(constness) = &function.sig.constness {
        return Err(Error::custom("a `const fn` cannot take a lock").with_span(constness));
    }
    if function.sig.asyncness.is_some() {
        let ret = result(&function.sig.output, &function.sig.ident)?;
        let body = Body {
            args,
            ret,
            block: &function.block,
        };
        *function.block = braced(&body.asynchronous());
    } else if let Some(ret) = future::output(&function.sig.output) {
        let Some(last) = future::last_async(&mut function.block) else {
            let why = "this function returns a future that #[locked] cannot see into, so the lock would be released \
                       before the future runs; make it an `async fn`, or end it with `Box::pin(async move { … })`";
            return Err(Error::custom(why).with_span(&function.sig.output));
        };
        let body = Body {
            args,
            ret,
            block: &last.block,
        };
        last.block = braced(&body.asynchronous());
    } else {
        let ret = result(&function.sig.output, &function.sig.ident)?;
        let body = Body {
            args,
            ret,
            block: &function.block,
        };
        *function.block = braced(&body.blocking());
    }
    Ok(function)
}

fn braced(code: &TokenStream) -> Block {
    parse_quote!({ #code })
}

/// The declared type, which must be there: taking a lock can fail.
fn result(ret: &ReturnType, name: &Ident) -> Result<Type, Error> {
    let why = "taking a lock can fail, so a #[locked] function returns a `Result<T, E>` \
               where `E: From<distlock::Error>`";
    match ret {
        ReturnType::Default => Err(Error::custom(why).with_span(name)),
        ReturnType::Type(_, ty) => match &**ty {
            Type::Tuple(unit) if unit.elems.is_empty() => Err(Error::custom(why).with_span(unit)),
            Type::Never(never) => Err(Error::custom(why).with_span(never)),
            ty => Ok(ty.clone()),
        },
    }
}

/// A function's body on its way under the lock.
struct Body<'a> {
    args: &'a Args,
    /// What it returns, or what its future gives.
    ret: Type,
    block: &'a Block,
}

impl Body<'_> {
    /// The lock is taken in two steps, entering and running, so that the arguments, which the body may consume, are
    /// still there for `on_busy` when it was not obtained.
    fn asynchronous(&self) -> TokenStream {
        let (lock, busy, place) = (self.lock(), self.busy(), self.place());
        let (guard, ret, block) = (self.guard(), future::inferable(self.ret.clone()), self.block);
        let Names {
            setup,
            entered,
            error,
        } = Names::new();
        let body = quote_spanned! {place=>
            move |#guard| async move {
                // Fixes the type that `?` and `return` in the body convert to.
                if let ::core::option::Option::Some(returned) = ::core::option::Option::None::<#ret> {
                    #[allow(unreachable_code)]
                    return returned;
                }
                #block
            }
        };
        let run = quote_spanned!(place=> ::distlock::__private::run(#entered, #body).await);
        quote! {
            let #setup = #lock;
            match ::distlock::__private::enter(#setup).await {
                ::core::result::Result::Ok(#entered) => #run,
                ::core::result::Result::Err(#error) => #busy,
            }
        }
    }

    fn blocking(&self) -> TokenStream {
        let (lock, busy, place) = (self.lock(), self.busy(), self.place());
        let (guard, ret, block) = (self.guard(), future::inferable(self.ret.clone()), self.block);
        let Names {
            setup,
            entered,
            error,
        } = Names::new();
        let body = quote_spanned!(place=> move |#guard| -> #ret { #block });
        let run = quote_spanned!(place=> ::distlock::__private::run_blocking(#entered, #body));
        quote! {
            let #setup = #lock;
            match ::distlock::__private::enter_blocking(#setup) {
                ::core::result::Result::Ok(#entered) => #run,
                ::core::result::Result::Err(#error) => #busy,
            }
        }
    }

    /// The return type's place, where the compiler shows that a type does not fit.
    fn place(&self) -> Span {
        self.ret.span().resolved_at(Span::mixed_site())
    }

    /// An expression of the type `Result<Lock, Error>`, which borrows the arguments only while it is evaluated.
    fn lock(&self) -> TokenStream {
        let args = self.args;
        let locks = format_ident!("locks", span = Span::mixed_site());
        let settings = self.settings();
        let one = |key: &dyn ToTokens| match &args.kind {
            Kind::Mutex => quote!(#locks.mutex(#key) #settings),
            Kind::Read => quote!(#locks.rw(#key).read() #settings),
            Kind::Write => quote!(#locks.rw(#key).write() #settings),
            Kind::Permits(n) => quote!(#locks.semaphore(#key, #n) #settings),
        };
        let lock = match args.keys() {
            [key] => one(key),
            keys => {
                let each = keys.iter().map(|key| one(key));
                quote!(::distlock::all([#(#each),*]))
            }
        };
        let wait = self.wait();
        let client = match &args.locks {
            None => quote!(::distlock::__private::installed()),
            Some(client) => {
                let (span, client) = (args::place(&client.0), &client.0);
                quote_spanned!(span=> ::core::result::Result::<&::distlock::Locks, ::distlock::Error>::Ok(&#client))
            }
        };
        quote! {
            match #client {
                ::core::result::Result::Ok(#locks) => ::core::result::Result::Ok(#lock.wait(#wait)),
                ::core::result::Result::Err(error) => ::core::result::Result::Err(error),
            }
        }
    }

    fn wait(&self) -> TokenStream {
        match &self.args.wait {
            Wait::Usual => quote!(::distlock::__private::USUAL_WAIT),
            Wait::Try => quote!(::distlock::Wait::Try),
            Wait::Forever => quote!(::distlock::Wait::Forever),
            Wait::For(d) => quote!(::distlock::Wait::For(#d)),
        }
    }

    /// The calls of the builder, for each of the locks.
    fn settings(&self) -> TokenStream {
        let args = self.args;
        let ttl = args.ttl.iter().map(|d| quote!(.ttl(#d)));
        let max_hold = args.max_hold.iter().map(|d| quote!(.max_hold(#d)));
        let min_hold = args.min_hold.iter().map(|d| quote!(.min_hold(#d)));
        let expect = args.expect.iter().map(|d| quote!(.expect(#d)));
        let reason = args.reason.iter().map(|text| quote!(.reason(#text)));
        let order = (args.order == Order::Fifo).then(|| quote!(.order(::distlock::Order::Fifo)));
        let fenced = args.fenced.then(|| quote!(.fenced()));
        quote!(#(#ttl)* #(#max_hold)* #(#min_hold)* #(#expect)* #(#reason)* #order #fenced)
    }

    /// What is returned when the lock was not obtained.
    fn busy(&self) -> TokenStream {
        let error = Names::new().error;
        let fail = quote_spanned!(self.place()=> ::distlock::__private::not_obtained(#error));
        let instead = match &self.args.on_busy {
            OnBusy::Error => return fail,
            OnBusy::Skip(value) => quote!(#value),
            OnBusy::Call(path) => quote!(#path(#error)),
        };
        quote!(if #error.is_contention() { #instead } else { #fail })
    }

    fn guard(&self) -> TokenStream {
        match &self.args.guard {
            Some(name) => name.0.to_token_stream(),
            None => quote!(_),
        }
    }
}

/// Names that cannot meet a name of the user's.
struct Names {
    setup: Ident,
    entered: Ident,
    error: Ident,
}

impl Names {
    fn new() -> Self {
        let name = |name| Ident::new(name, Span::mixed_site());
        Self {
            setup: name("setup"),
            entered: name("entered"),
            error: name("error"),
        }
    }
}
