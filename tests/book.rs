#[test] fn demo() { assert_eq!(attention::two(), 2); }
