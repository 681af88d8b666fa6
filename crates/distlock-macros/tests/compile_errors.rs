//! What a newcomer reads when something is wrong: the messages are part of the interface.

#[test]
fn mistakes_are_explained_while_compiling() {
    let cases = trybuild::TestCases::new();
    cases.compile_fail("tests/ui/*.rs");
}
