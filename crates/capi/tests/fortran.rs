//! `fortran/terrace_c.f90` binds all of `terrace.h`: it is made of it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

/// Without comments, as one line for each declaration.
fn declarations(header: &str) -> Vec<String> {
    // The one comment of the other kind is at the top.
    let plain: Vec<&str> = header
        .split_once("*/")
        .map_or(header, |(_, rest)| rest)
        .lines()
        .map(|line| line.split("//").next().unwrap().trim())
        .filter(|line| !line.starts_with('#') && !line.starts_with("extern \"C\""))
        .collect();
    let text = plain.join(" ");
    let (mut found, mut depth, mut begun) = (vec![], 0, 0);
    for (at, symbol) in text.char_indices() {
        match symbol {
            '{' => depth += 1,
            '}' => depth -= 1,
            ';' if depth == 0 => {
                found.push(text[begun..at].split_whitespace().collect::<Vec<_>>().join(" "));
                begun = at + 1;
            }
            _ => {}
        }
    }
    found
}

/// A parameter's or a field's type without its name, and its name; function pointers are `fn`.
fn split(declared: &str) -> (String, String) {
    if let Some((_, rest)) = declared.split_once("(*") {
        return ("fn".into(), rest.split(')').next().unwrap().into());
    }
    let at = declared.rfind([' ', '*']).unwrap() + 1;
    (declared[..at].trim().into(), declared[at..].into())
}

fn number(kind: &str) -> Option<&'static str> {
    Some(match kind {
        "int" | "int32_t" => "integer(c_int)",
        "size_t" => "integer(c_size_t)",
        "uint64_t" | "int64_t" => "integer(c_int64_t)",
        "double" => "real(c_double)",
        "bool" => "logical(c_bool)",
        _ => return None,
    })
}

/// At commas outside brackets.
fn parameters(text: &str) -> Vec<String> {
    let (mut found, mut depth) = (vec![String::new()], 0);
    for symbol in text.chars() {
        match symbol {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                found.push(String::new());
                continue;
            }
            _ => {}
        }
        found.last_mut().unwrap().push(symbol);
    }
    found.into_iter().map(|one| one.trim().to_owned()).filter(|one| !one.is_empty() && one != "void").collect()
}

/// Fortran takes 63 characters of a name, and has words of its own.
fn named(name: &str) -> String {
    if matches!(name, "type" | "in" | "out") { format!("{name}_") } else { name.to_owned() }
}

fn structure(name: &str, body: &str) -> String {
    let mut text = format!("  type, bind(c), public :: {name}\n");
    for field in body.split(';').map(str::trim).filter(|field| !field.is_empty()) {
        let (declared, size) = match field.split_once('[') {
            Some((declared, size)) => (declared, Some(size.trim_end_matches(']').to_owned())),
            None => (field, None),
        };
        let (kind, field) = split(declared);
        let kind = match (number(&kind), kind.as_str()) {
            (Some(kind), _) => kind.to_owned(),
            (None, "char") => "character(c_char)".into(),
            (None, kind) if kind.ends_with('*') || kind == "fn" => "type(c_ptr)".into(),
            (None, kind) => format!("type({})", kind.trim_start_matches("struct ")),
        };
        let initial = match kind.as_str() {
            "logical(c_bool)" => ".false._c_bool",
            "type(c_ptr)" => "c_null_ptr",
            "real(c_double)" => "0",
            "character(c_char)" => "c_null_char",
            kind if kind.starts_with("type(") => "",
            _ => "0",
        };
        let initial = if initial.is_empty() { String::new() } else { format!(" = {initial}") };
        let size = size.map_or(String::new(), |size| format!("({size})"));
        text.push_str(&format!("    {kind} :: {}{size}{initial}\n", named(&field)));
    }
    text + "  end type\n"
}

fn function(declaration: &str) -> Option<(String, String)> {
    let (head, rest) = declaration.split_once('(')?;
    let (result, name) = split(head);
    let list = parameters(rest.strip_suffix(')')?);
    let result = match (number(&result), result.ends_with('*')) {
        (Some(kind), _) => Some(kind.to_owned()),
        (None, true) => Some("type(c_ptr)".to_owned()),
        (None, false) => None,
    };
    let (mut names, mut declared) = (vec![], vec![]);
    for one in list {
        let (kind, name) = split(&one);
        let name = named(&name);
        let how = match (number(&kind), kind.as_str()) {
            (Some(kind), _) => format!("{kind}, value"),
            (None, "fn") => "type(c_funptr), value".into(),
            (None, "const char *") => "character(c_char), intent(in)".into(),
            // A handle that is made.
            (None, kind) if kind.ends_with("**") && !kind.contains("const") => "type(c_ptr), intent(out)".into(),
            (None, _) => "type(c_ptr), value".into(),
        };
        let array = if kind == "const char *" { "(*)" } else { "" };
        declared.push(format!("      {how} :: {name}{array}\n"));
        names.push(name);
    }
    let word = if result.is_some() { "function" } else { "subroutine" };
    // In a line of its own each, since lines end at 132 characters.
    let arguments = names.join(", &\n        ");
    let end = if result.is_some() { " result(answer)" } else { "" };
    let mut text = format!("    {word} c_{name}({arguments}) &\n        bind(c, name=\"{name}\"){end}\n      import\n");
    declared.iter().for_each(|line| text.push_str(line));
    if let Some(kind) = &result {
        text.push_str(&format!("      {kind} :: answer\n"));
    }
    Some((name, text + &format!("    end {word}\n")))
}

fn made_of(header: &str) -> (String, BTreeSet<String>) {
    let (mut constants, mut types, mut functions, mut names) =
        (String::new(), String::new(), String::new(), BTreeSet::new());
    for line in header.lines().filter(|line| line.starts_with("#define TERRACE_")) {
        let mut words = line.split_whitespace().skip(1);
        if let (Some(name), Some(Ok(value))) = (words.next(), words.next().map(str::parse::<i64>)) {
            constants.push_str(&format!("  integer(c_int), parameter, public :: {name} = {value}\n"));
        }
    }
    for declaration in declarations(header) {
        if let Some(rest) = declaration.strip_prefix("typedef enum ") {
            let body = rest.split_once('{').unwrap().1.rsplit_once('}').unwrap().0;
            for one in body.split(',').map(str::trim).filter(|one| !one.is_empty()) {
                constants.push_str(&format!("  integer(c_int), parameter, public :: {one}\n"));
            }
        } else if let Some(rest) = declaration.strip_prefix("typedef struct ") {
            if let Some((name, body)) = rest.split_once(" {") {
                types.push_str(&structure(name, body.rsplit_once('}').unwrap().0));
            }
        } else if let Some((name, text)) = function(&declaration) {
            functions.push_str(&text);
            names.insert(name);
        }
    }
    let public: String = names.iter().map(|name| format!("  public :: c_{name}\n")).collect();
    let text = format!(
        "! All of terrace.h, as it is: each call has `c_` before its name. Made of the header by tests/fortran.rs; do not edit.\n\
         ! Texts end in c_null_char, dimensions are in C's order (the last one is innermost) and count from 0, pointers are c_loc of\n\
         ! what they lead to. The module `terrace` (terrace.f90) is these calls in Fortran's own terms.\n\
         module terrace_c\n  use, intrinsic :: iso_c_binding\n  implicit none\n  private\n\n{constants}\n{types}\n{public}\n  interface\n{functions}  \
         end interface\nend module\n"
    );
    (text, names)
}

#[test]
fn the_module_binds_all_of_the_header() {
    let header = std::fs::read_to_string(here().join("include/terrace.h")).unwrap();
    let (made, names) = made_of(&header);
    let calls = header.matches("\nint terrace_").count()
        + header.matches("\nconst char *terrace_").count()
        + header.matches("\nvoid terrace_").count();
    assert_eq!(names.len(), calls, "{names:?}");
    let file = here().join("fortran/terrace_c.f90");
    if std::env::var_os("TERRACE_WRITE_FORTRAN").is_some() {
        std::fs::write(&file, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        made == kept,
        "fortran/terrace_c.f90 is not what the header says\n\
         hint: TERRACE_WRITE_FORTRAN=1 cargo test --release -p terrace-capi --test fortran"
    );
}

#[test]
fn a_compiler_takes_the_module() {
    if std::process::Command::new("gfortran").arg("--version").output().is_err() {
        eprintln!("SKIPPED: no gfortran here");
        return;
    }
    let place = std::env::temp_dir().join(format!("terrace-fortran-{}", std::process::id()));
    std::fs::create_dir_all(&place).unwrap();
    let output = std::process::Command::new("gfortran")
        .args(["-std=f2018", "-Wall", "-Werror", "-c", "-J"])
        .arg(&place)
        .arg(here().join("fortran/terrace_c.f90"))
        .arg("-o")
        .arg(place.join("terrace_c.o"))
        .output()
        .unwrap();
    let _ = std::fs::remove_dir_all(&place);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
