//! Functions that are not `async` but return a future: what `#[async_trait]` makes of a method, and the same by hand.

use syn::visit_mut::{self, VisitMut};
use syn::{
    AngleBracketedGenericArguments, Block, Expr, ExprAsync, GenericArgument, PathArguments, PathSegment,
    ReturnType, Stmt, Type, TypeParamBound, parse_quote,
};

/// What the returned future gives, if the return type is one: `impl Future<Output = R>`,
/// `Pin<Box<dyn Future<Output = R>>>`, `BoxFuture<'_, R>`.
pub(crate) fn output(ret: &ReturnType) -> Option<Type> {
    let ReturnType::Type(_, ty) = ret else { return None };
    of_type(ty)
}

fn of_type(ty: &Type) -> Option<Type> {
    match ty {
        Type::Group(group) => of_type(&group.elem),
        Type::Paren(paren) => of_type(&paren.elem),
        Type::ImplTrait(bounds) => bounds.bounds.iter().find_map(of_bound),
        Type::TraitObject(bounds) => bounds.bounds.iter().find_map(of_bound),
        Type::Path(path) => {
            let last = path.path.segments.last()?;
            let mut types = arguments(last)?.args.iter().filter_map(|arg| match arg {
                GenericArgument::Type(ty) => Some(ty),
                _ => None,
            });
            match last.ident.to_string().as_str() {
                "Pin" | "Box" => of_type(types.next()?),
                "BoxFuture" | "LocalBoxFuture" => types.next().cloned(),
                _ => None,
            }
        }
        _ => None,
    }
}

fn of_bound(bound: &TypeParamBound) -> Option<Type> {
    let TypeParamBound::Trait(bound) = bound else {
        return None;
    };
    let last = bound.path.segments.last()?;
    if last.ident != "Future" {
        return None;
    }
    arguments(last)?.args.iter().find_map(|arg| match arg {
        GenericArgument::AssocType(assoc) if assoc.ident == "Output" => Some(assoc.ty.clone()),
        _ => None,
    })
}

fn arguments(segment: &PathSegment) -> Option<&AngleBracketedGenericArguments> {
    match &segment.arguments {
        PathArguments::AngleBracketed(args) => Some(args),
        _ => None,
    }
}

/// The async block that the function ends with: `async move { … }` or `Box::pin(async move { … })`.
pub(crate) fn last_async(block: &mut Block) -> Option<&mut ExprAsync> {
    let Some(Stmt::Expr(last, None)) = block.stmts.last_mut() else {
        return None;
    };
    match last {
        Expr::Async(block) => Some(block),
        Expr::Call(call) if is_box_pin(&call.func) => match call.args.first_mut() {
            Some(Expr::Async(block)) => Some(block),
            _ => None,
        },
        _ => None,
    }
}

fn is_box_pin(func: &Expr) -> bool {
    let Expr::Path(path) = func else { return false };
    let mut names = path.path.segments.iter().rev().map(|s| s.ident.to_string());
    names.next().as_deref() == Some("pin") && names.next().as_deref() == Some("Box")
}

/// A type that may be written in a body: `impl Trait` becomes `_`.
pub(crate) fn inferable(mut ty: Type) -> Type {
    struct Erase;
    impl VisitMut for Erase {
        fn visit_type_mut(&mut self, ty: &mut Type) {
            if let Type::ImplTrait(_) = ty {
                *ty = parse_quote!(_);
            }
            visit_mut::visit_type_mut(self, ty);
        }
    }
    Erase.visit_type_mut(&mut ty);
    ty
}
