use crate::support::Shell;

#[test]
fn limits_are_tried_without_a_store() {
    let shell = Shell::new();
    let traffic = ["simulate", "--policy", "api=10/minute", "--traffic", "3 clients 1/s", "--for", "2m"];
    let simulated = shell.run(&traffic);
    assert!(simulated.status == 0 && simulated.output.contains("api"), "{simulated:?}");
    let with_candidate = shell.run(&[&traffic[..], &["--candidate", "api=20/minute", "--no-plot"]].concat());
    assert_eq!(with_candidate.status, 1, "{with_candidate:?}");
    let json = shell.run(&[&traffic[..], &["--json"]].concat()).fine();
    let simulation: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(simulation.is_object());
    shell
        .run(&["simulate", "--policy", "api=10/fortnight", "--traffic", "1 client 1/s"])
        .fails(64, "fortnight");
    shell.run(&["simulate", "--policy", "api=10/s"]).fails(64, "there are no requests");
    shell.file("limits.toml", "polylimit = 1\n[policies.api]\nquotas = '10/minute'\n");
    let of_document =
        ["--policies", "limits.toml", "simulate", "--policy", "api", "--traffic", "1 client 1/s", "--quiet"];
    assert_eq!(shell.run(&of_document).fine(), "");
}
