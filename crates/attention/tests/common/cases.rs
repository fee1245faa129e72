//! Misuses with the errors that they lead to, and the demand for one of each public function that can fail. The tests of
//! other crates include this file.

use attention::Result;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// One misuse: the function, what it is given, and the error's exact text.
pub struct Case {
    function: &'static str,
    message: String,
    run: Box<dyn Fn() -> Result<()>>,
}

pub fn case<R>(
    function: &'static str,
    message: impl Into<String>,
    run: impl Fn() -> Result<R> + 'static,
) -> Case {
    Case { function, message: message.into(), run: Box::new(move || run().map(|_| ())) }
}

/// Each is an error with the text that it names, and none panics.
pub fn check(cases: Vec<Case>) {
    let mut failures = vec![];
    for Case { function, message, run } in cases {
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Err(error)) if error.to_string() == message => {}
            Ok(Err(error)) => {
                failures.push(format!("{function}\n  says  {error}\n  for   {message}"))
            }
            Ok(Ok(())) => failures.push(format!(
                "{function}\n  is content where it should say\n  {message}"
            )),
            Err(_) => failures
                .push(format!("{function}\n  panics where it should say\n  {message}")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Every public function of the crate under test that can fail has a case, and nothing else has. `known` are some that must be
/// found.
pub fn check_complete(cases: &[Case], known: &[&str]) {
    let covered: BTreeSet<String> =
        cases.iter().map(|case| case.function.to_owned()).collect();
    let fallible = fallible_functions();
    assert!(known.iter().all(|&name| fallible.contains(name)), "found only {fallible:?}");
    let missing: Vec<_> = fallible.difference(&covered).collect();
    let unknown: Vec<_> = covered.difference(&fallible).collect();
    assert!(missing.is_empty(), "without a case: {missing:?}");
    assert!(unknown.is_empty(), "with a case, but not in the crate: {unknown:?}");
}

/// The name of every public function of the crate that returns a `Result`, as the source has it. A module behind a
/// feature that is off by default is left to the tests of that feature.
fn fallible_functions() -> BTreeSet<String> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut names = BTreeSet::new();
    collect_from_file(&src.join("lib.rs"), &src, &mut names);
    names
}

fn collect_from_file(file: &Path, folder: &Path, names: &mut BTreeSet<String>) {
    let text = std::fs::read_to_string(file)
        .unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display()));
    let parsed = syn::parse_file(&text)
        .unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    collect(&parsed.items, folder, names);
}

fn collect(items: &[syn::Item], folder: &Path, names: &mut BTreeSet<String>) {
    for item in items {
        match item {
            syn::Item::Mod(module) if is_optional(&module.attrs) => {}
            syn::Item::Mod(module) => {
                let folder = folder.join(module.ident.to_string());
                match &module.content {
                    Some((_, items)) => collect(items, &folder, names),
                    None => collect_from_file(&file_of(&folder), &folder, names),
                }
            }
            syn::Item::Fn(function)
                if is_public(&function.vis) && returns_result(&function.sig) =>
            {
                names.insert(function.sig.ident.to_string());
            }
            // What a trait provides; what it asks for is each type's.
            syn::Item::Trait(block) if is_public(&block.vis) => {
                for function in block.items.iter().filter_map(|item| match item {
                    syn::TraitItem::Fn(function) => Some(function),
                    _ => None,
                }) {
                    if function.default.is_some() && returns_result(&function.sig) {
                        names.insert(format!("{}::{}", block.ident, function.sig.ident));
                    }
                }
            }
            syn::Item::Impl(block) => {
                let of_trait = block.trait_.is_some(); // whose functions are as public as the trait
                for function in block.items.iter().filter_map(|item| match item {
                    syn::ImplItem::Fn(function) => Some(function),
                    _ => None,
                }) {
                    if (of_trait || is_public(&function.vis))
                        && returns_result(&function.sig)
                    {
                        names.insert(format!(
                            "{}::{}",
                            type_name(&block.self_ty),
                            function.sig.ident
                        ));
                    }
                }
            }
            _ => {}
        }
    }
}

/// `folder.rs` or `folder/mod.rs`.
fn file_of(folder: &Path) -> PathBuf {
    let beside = folder.with_extension("rs");
    if beside.exists() { beside } else { folder.join("mod.rs") }
}

/// Only for tests, or behind a feature: those functions have their cases beside them, and in the crate's own tests.
fn is_optional(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident("cfg"))
}

fn is_public(visibility: &syn::Visibility) -> bool {
    matches!(visibility, syn::Visibility::Public(_))
}

fn returns_result(signature: &syn::Signature) -> bool {
    let syn::ReturnType::Type(_, output) = &signature.output else { return false };
    type_name(output) == "Result"
}

/// The last name of a type's path, without its parameters. `fmt::Result` counts as one of the formatter, not of ours.
fn type_name(r#type: &syn::Type) -> String {
    match r#type {
        syn::Type::Path(path) => {
            let segments = &path.path.segments;
            let names: Vec<_> =
                segments.iter().map(|segment| segment.ident.to_string()).collect();
            if names.iter().any(|name| name == "fmt") {
                "fmt".to_owned()
            } else {
                names[names.len() - 1].clone()
            }
        }
        _ => String::new(),
    }
}
