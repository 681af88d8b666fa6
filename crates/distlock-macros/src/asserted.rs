//! `assert_locked!`

use proc_macro2::TokenStream;
use quote::quote;
use syn::LitStr;

use crate::template::Template;

pub(crate) fn assert_locked(input: TokenStream) -> TokenStream {
    let key = syn::parse2::<LitStr>(input)
        .map_err(darling::Error::from)
        .and_then(|key| Template::parse(&key));
    match key {
        Ok(key) => quote!(::distlock::__private::assert_locked(#key)),
        Err(e) => e.write_errors(),
    }
}
