//! Arrow's JDBC driver for Flight SQL, as it comes from Maven Central: what a tool does by it, in Java.

use std::path::PathBuf;
use std::process::Command;
use terrace_client::{ArraySpec, Create, DataType, Region, Session, TagValue};
use terrace_tests::{Outcome, Served, Workplace, checkout};

const DRIVER: &str = "build/jdbc/flight-sql-jdbc-driver-18.3.0.jar";

/// `None`, loudly: there is no Java, or no driver.
fn driver() -> Option<PathBuf> {
    let driver = checkout().join(DRIVER);
    let has_java = Command::new("java").arg("-version").output().is_ok_and(|outcome| outcome.status.success());
    if !has_java || !driver.exists() {
        eprintln!("SKIPPED: java and {DRIVER} are needed; hint: scripts/setup.sh test");
        return None;
    }
    Some(driver)
}

/// `study`: v and w along x (3 to 6, step 1) and y (10, 20, 40).
fn study(served: &Served) {
    let session = Session::open(&served.index).unwrap();
    session.create_container("study", Create::New).unwrap();
    let spec = |data_type| ArraySpec::new(data_type, &[4, 3]).dimensions(&["x", "y"]);
    let all = Region::block(&[0, 0], &[4, 3]).unwrap();
    let v: Vec<f64> = (0..12).map(|cell| f64::from(cell) + 0.5).collect();
    session.create_array("study/v", &spec(DataType::Float64), Create::New).unwrap().put_values(&all, &v).unwrap();
    let w = [0i32, 1, 2, 0, 3, 4, 0, 5, 6, 0, 7, 8];
    session.create_array("study/w", &spec(DataType::Int32), Create::New).unwrap().put_values(&all, &w).unwrap();
    let y = ArraySpec::new(DataType::Float32, &[3]).dimensions(&["y"]);
    let y = session.create_array("study/y", &y, Create::New).unwrap();
    y.put_values(&Region::block(&[0], &[3]).unwrap(), &[10f32, 20.0, 40.0]).unwrap();
    session.put_tag("study", "terrace.dimension.x", TagValue::Ints(vec![3, 6, 1])).unwrap();
}

/// One of `jdbc/Claims.java`, against a server of its own with these flags.
fn holds(claim: &str, flags: &[&str]) {
    let Some(driver) = driver() else { return };
    let place = Workplace::new();
    let served = Served::begin(&place, &[&["--flight", "localhost:0"], flags].concat());
    study(&served);
    let port = served.flight.as_ref().unwrap().rsplit_once(':').unwrap().1;
    let how = match flags.contains(&"--tls") {
        true => format!("useEncryption=true&tlsRootCerts={}", served.certificate.display()),
        false => "useEncryption=false".into(),
    };
    let url = format!("jdbc:arrow-flight-sql://localhost:{port}/?{how}");
    let mut java = Command::new("java");
    // Compiled at the first tier only: it is done before the next one would pay.
    java.args(["-XX:TieredStopAtLevel=1", "--add-opens=java.base/java.nio=ALL-UNNAMED", "-cp"]).arg(driver);
    java.arg(checkout().join("tests/tests/system/jdbc/Claims.java")).args([claim, &url, Served::TOKEN]);
    let outcome = Outcome::within(120, &mut java);
    assert!(outcome.code == 0 && outcome.stdout.ends_with(&format!("{claim}\n")), "{outcome:?}");
    served.end();
}

#[test]
fn a_jdbc_client_connects_with_the_token_alone() {
    holds("connects", &[]);
}

#[test]
fn a_jdbc_client_connects_by_tls_with_the_servers_certificate() {
    holds("connects", &["--tls"]);
}

#[test]
fn all_that_a_jdbc_tool_asks_of_the_server_is_answered() {
    holds("metadata", &[]);
}

#[test]
fn columns_have_their_types_in_jdbc() {
    holds("types", &[]);
}

#[test]
fn a_prepared_statement_takes_values_for_its_parameters() {
    holds("parameters", &[]);
}

#[test]
fn a_statement_that_is_cancelled_in_jdbc_runs_no_further() {
    holds("cancel", &[]);
}

#[test]
fn errors_are_sql_exceptions_with_the_servers_words() {
    holds("errors", &[]);
}
