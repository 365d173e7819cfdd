//! Objects over HTTP: `terrace serve --http` and `terrace web`, asked as anybody can ask.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::time::Duration;
use terrace_client::{Array, ArraySpec, Create, DataType, Region, Session, TagValue};
use terrace_tests::{Http, Outcome, Random, Served, Wish, Workplace, wait_until};

fn served(place: &Workplace) -> (Served, Session) {
    let served = Served::begin(place, &["--http", "127.0.0.1:0"]);
    let session = Session::open(&served.index).unwrap();
    (served, session)
}

fn http(served: &Served) -> &Http {
    served.http.as_ref().expect("it was begun with --http")
}

fn region(offset: &[u64], count: &[u64]) -> Region {
    Region::block(offset, count).unwrap()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// `study/v`: 5 × 7, in chunks of 2 × 4, each cell its number.
fn study(session: &Session) -> Array {
    session.create_container("study", Create::IfMissing).unwrap();
    let spec = ArraySpec::new(DataType::Float32, &[5, 7]).chunks(&[2, 4]).fill(&(-1f32).to_le_bytes());
    let v = session.create_array("study/v", &spec.dimensions(&["y", "x"]), Create::New).unwrap();
    let values: Vec<f32> = (0..35).map(|cell| cell as f32).collect();
    v.put_values(&region(&[0, 0], &[5, 7]), &values).unwrap();
    v
}

#[test]
fn nothing_is_said_without_the_token() {
    let place = Workplace::new();
    let (served, session) = served(&place);
    study(&session);
    let web = http(&served);
    let paths = [
        "/",
        "/zarr/study/zarr.json",
        "/zarr/study/v/c/0/0",
        "/api/status",
        "/api/events",
        "/metrics",
        "/page/page.js",
        "/nothing",
    ];
    for path in paths {
        for lines in [
            "",
            "Authorization: Bearer 0123456789abcdef-and-mor\r\n",
            "Authorization: Bearer\r\n",
            "Cookie: terrace=1\r\n",
        ] {
            let answer = web.send("GET", path, lines, b"");
            assert_eq!(answer.status, 401, "{path} {lines}");
            assert!(!answer.text().contains("study") && answer.header("www-authenticate").starts_with("Bearer"));
        }
    }
    let refused = web.send("GET", &format!("/?token={}", Served::TOKEN), "", b"");
    assert_eq!(refused.status, 401, "the token itself is not for addresses");
    for method in ["PUT", "POST", "DELETE", "PATCH", "OPTIONS"] {
        let answer = web.send(method, "/zarr/study/v/c/0/0", &format!("Authorization: Bearer {}\r\n", web.token), b"x");
        assert_eq!((answer.status, answer.header("allow")), (405, "GET, HEAD"), "{method}");
    }
    // A browser gets a cookie for the token.
    assert_eq!(web.send("POST", "/login", "", b"token=wrong").status, 401);
    let entered = web.send("POST", "/login", "", format!("token={}", web.token).as_bytes());
    let cookie = entered.header("set-cookie").to_owned();
    assert_eq!((entered.status, entered.header("location")), (303, "/"));
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax"), "{cookie}");
    let shown = web.send("GET", "/", &format!("Cookie: {}\r\n", cookie.split(';').next().unwrap()), b"");
    assert!(shown.status == 200 && shown.text().contains("<title>Terrace</title>"));
    let policy = shown.header("content-security-policy");
    assert!(
        policy.contains("default-src 'none'") && policy.contains("script-src 'self'") && !policy.contains("unsafe")
    );
    drop(session);
    served.end();
}

#[test]
fn an_address_of_the_page_works_once() {
    let place = Workplace::new();
    let shell = place.shell();
    let mut command = place.terrace("web");
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let page = lines.next().unwrap().unwrap();
    let (url, path) = page.strip_prefix("page: ").unwrap().split_once("/?").unwrap();
    let path = format!("/?{}", path.split(' ').next().unwrap());
    let web = Http::new(url, "");
    assert_eq!(web.send("HEAD", &path, "", b"").status, 401, "whoever looks beforehand does not use it up");
    let entered = web.send("GET", &path, "", b"");
    let cookie = entered.header("set-cookie").split(';').next().unwrap().to_owned();
    assert_eq!((entered.status, entered.header("location")), (303, "/"));
    assert_eq!(web.send("GET", &path, "", b"").status, 401);
    assert_eq!(web.send("GET", "/api/status", &format!("Cookie: {cookie}\r\n"), b"").status, 200);
    // The token that was made for it lies in the root's state, for its user alone.
    let token = std::fs::read_to_string(place.state().join("web.token")).unwrap();
    assert_eq!(Http::new(url, token.trim()).get("/zarr/zarr.json").status, 200);
    // SAFETY: our own child.
    unsafe { libc::kill(process.id() as i32, libc::SIGTERM) };
    assert!(process.wait().unwrap().success());
    shell.ends_and_leaves();
}

#[test]
fn containers_and_arrays_are_keys_of_a_store_staged_flushed_and_evicted() {
    let place = Workplace::new();
    let (served, session) = served(&place);
    let v = study(&session);
    session.put_tag("study/v", "units", TagValue::Text("m".into())).unwrap();
    session.put_tag("study", "run", TagValue::Int(7)).unwrap();
    session.create_container("study/empty", Create::New).unwrap();
    session.create_bytes("study/notes", Create::New).unwrap().close().unwrap();
    let web = http(&served);
    for state in ["staged", "flushed", "evicted"] {
        let array = web.get("/zarr/study/v/zarr.json").json();
        assert_eq!(array["shape"], serde_json::json!([5, 7]), "{state}");
        assert_eq!(array["dimension_names"], serde_json::json!(["y", "x"]));
        assert_eq!(array["attributes"], serde_json::json!({"units": "m"}));
        let group = web.get("/zarr/study/zarr.json").json();
        assert_eq!((&group["node_type"], &group["attributes"]["run"]), (&"group".into(), &7.into()));
        let below = group["consolidated_metadata"]["metadata"].as_object().unwrap();
        assert_eq!(below.keys().collect::<Vec<_>>(), ["empty", "v"]);
        assert_eq!(below["v"], array);
        assert_eq!(web.get("/zarr/study/v/c/0/0").body, bytes(&[0.0, 1.0, 2.0, 3.0, 7.0, 8.0, 9.0, 10.0]));
        // At the array's end the chunk is filled up.
        assert_eq!(web.get("/zarr/study/v/c/2/1").body, bytes(&[32.0, 33.0, 34.0, -1.0, -1.0, -1.0, -1.0, -1.0]));
        for absent in [
            "study/v/c/3/0",
            "study/v/c/0",
            "study/v/c/0/0/0",
            "study/v/c/00/0",
            "study/x/zarr.json",
            "study/notes",
            "study/v/.zarray",
        ] {
            assert_eq!(web.get(&format!("/zarr/{absent}")).status, 404, "{absent}");
        }
        match state {
            "staged" => session.flush("study").unwrap(),
            _ => session.evict("study").unwrap(),
        }
    }
    v.put_values(&region(&[0, 0], &[1, 2]), &[50f32, 51.0]).unwrap();
    assert_eq!(web.get("/zarr/study/v/c/0/0").body[..8], bytes(&[50.0, 51.0]));
    // What other programs have written with codecs is sent as its files.
    let encoded = place.root().join("study/encoded");
    std::fs::create_dir_all(encoded.join("c")).unwrap();
    let mut document = web.get("/zarr/study/v/zarr.json").json();
    document["codecs"] = serde_json::json!([{"name": "bytes"}, {"name": "gzip", "configuration": {"level": 1}}]);
    std::fs::write(encoded.join("zarr.json"), document.to_string()).unwrap();
    std::fs::write(encoded.join("c/0"), b"whatever it is").unwrap();
    assert_eq!(web.get("/zarr/study/encoded/zarr.json").json()["codecs"][1]["name"], "gzip");
    assert_eq!(web.get("/zarr/study/encoded/c/0").body, b"whatever it is");
    assert_eq!(web.get("/zarr/study/encoded/c/1").status, 404);
    drop((session, v));
    served.end();
}

#[test]
fn parts_are_sent_as_ranges_and_what_is_known_is_not_sent_again() {
    let place = Workplace::new();
    let (served, session) = served(&place);
    let v = study(&session);
    let web = http(&served);
    let path = "/zarr/study/v/c/0/0";
    let whole = web.get(path);
    assert_eq!((whole.status, whole.header("accept-ranges"), whole.header("content-length")), (200, "bytes", "32"));
    let head = web.send("HEAD", path, &format!("Authorization: Bearer {}\r\n", web.token), b"");
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (200, "32", 0));
    assert_eq!(head.header("etag"), whole.header("etag"));
    let ask = |lines: &str| web.get_with(path, lines);
    let part = ask("Range: bytes=4-7\r\n");
    assert_eq!((part.status, part.header("content-range")), (206, "bytes 4-7/32"));
    assert_eq!(part.body, whole.body[4..8]);
    assert_eq!(ask("Range: bytes=-8\r\n").body, whole.body[24..]);
    assert_eq!(ask("Range: bytes=28-99\r\n").body, whole.body[28..]);
    assert_eq!(ask("Range: bytes=0-1,4-5\r\n").body, whole.body, "several ranges: the whole, as the standard allows");
    let beyond = ask("Range: bytes=32-\r\n");
    assert_eq!((beyond.status, beyond.header("content-range")), (416, "bytes */32"));
    let known = format!("If-None-Match: {}\r\n", whole.header("etag"));
    let again = ask(&known);
    assert_eq!((again.status, again.body.len()), (304, 0));
    v.put_values(&region(&[1, 1], &[1, 1]), &[99f32]).unwrap();
    let changed = ask(&known);
    assert_eq!(changed.status, 200);
    assert_ne!(changed.header("etag"), whole.header("etag"));
    let mixed = ask(&format!("Range: bytes=0-3\r\nIf-Range: {}\r\n", whole.header("etag")));
    assert_eq!((mixed.status, mixed.body.len()), (200, 32), "parts of two states are not put together");
    drop((session, v));
    served.end();
}

fn steps(session: &Session, names: &[&str]) -> Vec<Array> {
    session.create_container("run", Create::IfMissing).unwrap();
    let spec =
        ArraySpec::new(DataType::Float32, &[0, 4, 6]).unlimited(0).chunks(&[2, 4, 6]).dimensions(&["time", "y", "x"]);
    names.iter().map(|name| session.create_array(&format!("run/{name}"), &spec, Create::New).unwrap()).collect()
}

#[test]
fn a_step_is_shown_when_all_arrays_of_its_container_have_all_of_it() {
    let place = Workplace::new();
    let (served, session) = served(&place);
    let arrays = steps(&session, &["p", "q"]);
    let web = http(&served);
    let shown = |name: &str| web.get(&format!("/zarr/run/{name}/zarr.json")).json()["shape"][0].as_u64().unwrap();
    let put = |array: usize, step: u64, rows: u64| {
        let values = vec![step as f32 + 1.0; rows as usize * 6];
        arrays[array].put_values(&region(&[step, 0, 0], &[1, rows, 6]), &values).unwrap();
    };
    assert_eq!((shown("p"), shown("q")), (0, 0));
    put(0, 0, 4);
    assert_eq!((shown("p"), shown("q")), (0, 0));
    put(1, 0, 2);
    assert_eq!((shown("p"), shown("q")), (0, 0), "half of a step is none");
    assert_eq!(web.get("/zarr/run/p/c/0/0/0").status, 404);
    put(1, 0, 4);
    assert_eq!((shown("p"), shown("q")), (1, 1));
    // The second step of the chunk is begun, and not shown: the fill value.
    put(0, 1, 4);
    let chunk = web.get("/zarr/run/p/c/0/0/0").body;
    assert_eq!(chunk[..96], bytes(&[1.0; 24]));
    assert_eq!(chunk[96..], bytes(&[0.0; 24]));
    put(1, 2, 4);
    assert_eq!((shown("p"), shown("q")), (1, 1), "a step is missing before it");
    put(1, 1, 4);
    assert_eq!((shown("p"), shown("q")), (2, 2));
    assert_eq!(web.get("/zarr/run/p/c/0/0/0").body[96..], bytes(&[2.0; 24]));
    let group = web.get("/zarr/run/zarr.json").json();
    let metadata = &group["consolidated_metadata"]["metadata"];
    assert_eq!((metadata["p"]["shape"][0].as_u64(), metadata["q"]["shape"][0].as_u64()), (Some(2), Some(2)));
    // Flushed steps stay, and the container's tag changes which are shown.
    session.flush("run").unwrap();
    put(0, 2, 4);
    assert_eq!((shown("p"), shown("q")), (3, 3));
    session.put_tag("run", "terrace.steps", TagValue::Int(1)).unwrap();
    assert_eq!((shown("p"), shown("q")), (1, 1));
    session.put_tag("run", "terrace.steps", TagValue::Text("often".into())).unwrap();
    assert!(web.get("/zarr/run/p/zarr.json").text().contains("terrace.steps"));
    drop((session, arrays));
    served.end();
}

#[test]
fn a_slice_has_its_plane_and_the_planes_statistics() {
    let place = Workplace::new();
    let (served, session) = served(&place);
    let arrays = steps(&session, &["p"]);
    let values: Vec<f32> = (0..24).map(|cell| if cell == 5 { f32::NAN } else { cell as f32 }).collect();
    arrays[0].put_values(&region(&[0, 0, 0], &[1, 4, 6]), &values).unwrap();
    let web = http(&served);
    let slice = web.get("/api/slice/run/p?at=last,*,*");
    let told: serde_json::Value = serde_json::from_str(slice.header("x-terrace-slice")).unwrap();
    assert_eq!(slice.body, bytes(&values));
    let wanted = serde_json::json!({
        "rows": 4, "columns": 6, "every": 1, "sampled": false, "at": [0, 0, 0], "drawn": [1, 2], "shape": [1, 4, 6],
        "min": 0.0, "max": 23.0, "mean": 271.0 / 23.0, "count": 23,
    });
    assert_eq!(told, wanted);
    assert_eq!(web.get("/api/slice/run/p?at=*,2,*").body, bytes(&values[12..18]));
    for (at, status) in [("1,*,*", 404), ("*,*", 400), ("0,0,*", 400), ("x,*,*", 400), ("", 400)] {
        assert_eq!(web.get(&format!("/api/slice/run/p?at={at}")).status, status, "{at}");
    }
    // A plane that is too large to be drawn: its statistics are those of all cells.
    let spec = ArraySpec::new(DataType::UInt8, &[3000, 2000]);
    let large = session.create_array("large", &spec, Create::New).unwrap();
    large.put(&region(&[2999, 1999], &[1, 1]), &[9]).unwrap();
    let slice = web.get("/api/slice/large?at=*,*");
    let told: serde_json::Value = serde_json::from_str(slice.header("x-terrace-slice")).unwrap();
    assert_eq!(
        (&told["rows"], &told["columns"], &told["max"], &told["count"]),
        (&1000.into(), &667.into(), &9.0.into(), &6_000_000.into())
    );
    assert_eq!(slice.body.len(), 1000 * 667 * 4);
    let objects = web.get("/api/objects/run").json();
    assert_eq!((&objects["objects"][0]["name"], &objects["objects"][0]["type"]), (&"p".into(), &"float32".into()));
    drop((session, arrays, large));
    served.end();
}

#[test]
fn events_tell_of_tiers_and_of_a_step_when_it_arrives() {
    let place = Workplace::new();
    let (served, session) = served(&place);
    let arrays = steps(&session, &["p", "q"]);
    let web = http(&served);
    let mut stream = BufReader::new(web.connect());
    let head =
        format!("GET /api/events?array=run%2Fp HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n", web.token);
    stream.get_mut().write_all(head.as_bytes()).unwrap();
    let mut next = |wanted: &str| loop {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).unwrap() > 0, "the events ended before {wanted}");
        if line.trim() == format!("event: {wanted}") {
            let mut data = String::new();
            stream.read_line(&mut data).unwrap();
            break serde_json::from_str::<serde_json::Value>(data.strip_prefix("data: ").unwrap()).unwrap();
        }
    };
    let status = next("status");
    assert_eq!((&status["tiers"][0]["name"], &status["tiers"][0]["durable"]), (&"ram".into(), &false.into()));
    assert_eq!(next("shape")["shape"], serde_json::json!([0, 4, 6]));
    for (count, array) in arrays.iter().enumerate() {
        array.put_values(&region(&[0, 0, 0], &[1, 4, 6]), &[1f32; 24]).unwrap();
        let told = next("shape");
        // Only the step that both have is shown; that one is begun is told.
        assert_eq!((&told["shape"][0], &told["begun"][0]), (&count.into(), &1.into()));
    }
    drop((session, arrays));
    served.end();
}

#[test]
fn what_tiers_hold_and_what_was_moved_is_told_as_metrics() {
    let place = Workplace::new();
    let (served, session) = served(&place);
    let array = study(&session);
    let web = http(&served);
    let value = |name: &str| -> f64 {
        let answer = web.get("/metrics");
        assert_eq!((answer.status, answer.header("content-type").contains("openmetrics-text")), (200, true));
        let text = answer.text();
        assert!(text.ends_with("# EOF\n"), "{text}");
        let root = place.root().display();
        let (family, labels) = name.split_once('{').unwrap_or((name, "}"));
        let separator = if labels == "}" { "" } else { "," };
        let begin = format!("terrace_{family}{{root=\"{root}\"{separator}{labels} ");
        let line = text.lines().find_map(|line| line.strip_prefix(&begin));
        line.unwrap_or_else(|| panic!("{begin}is not in\n{text}")).parse().unwrap()
    };
    assert_eq!(value("tier_capacity_bytes{tier=\"ram\"}"), (4 << 20) as f64);
    assert!(value("tier_used_bytes{tier=\"ram\"}") > 0.0 && value("uptime_seconds") > 0.0);
    array.flush().unwrap();
    assert!(wait_until(60, || value("unflushed_bytes") == 0.0 && value("moving_files") == 0.0));
    // Counters are told before anything was counted.
    value("moved_bytes_total{move=\"evict\"}");
    assert_eq!(web.get("/metrics/x").status, 404);
    drop((session, array));
    served.end();
}

#[test]
fn whatever_is_asked_the_server_goes_on_and_leads_nowhere_else() {
    let place = Workplace::new();
    let (served, session) = served(&place);
    study(&session);
    std::fs::write(place.root().parent().unwrap().join("secret"), b"not for you").unwrap();
    std::fs::write(place.root().join("plain"), b"not a key").unwrap();
    let web = http(&served);
    let parts = [
        "zarr",
        "api",
        "page",
        "study",
        "v",
        "c",
        "0",
        "1",
        "zarr.json",
        "..",
        ".",
        "",
        "%2e%2e",
        "%2E%2e%2f",
        "%00",
        "%",
        "%f",
        "%ff",
        "secret",
        "plain",
        ".terrace",
        "agents",
        "objects",
        "slice",
        "array",
        "events",
        "18446744073709551615",
        "-1",
        "0x1",
        "\\",
        "~",
        "*",
        ":",
        "etc",
        "passwd",
        "%C3%A4",
        "?at=*",
        "?at=0,*",
        "#",
        "?token=",
        "vendor",
        "login",
        "é",
    ];
    let mut random = Random::new(5);
    let mut pick = |count: usize| random.below(count as u64) as usize;
    let mut well = 0;
    for _ in 0..3000 {
        let count = 1 + pick(7);
        let path: String = (0..count).map(|_| format!("/{}", parts[pick(parts.len())])).collect();
        if path.starts_with("/api/events") {
            continue; // it does not end
        }
        let method = ["GET", "HEAD"][pick(2)];
        let range =
            ["", "Range: bytes=-1\r\n", "Range: bytes=99999999999999999999-\r\n", "If-None-Match: *\r\n"][pick(4)];
        let lines = format!("Authorization: Bearer {}\r\n{range}", web.token);
        let answer = web.send(method, &path, &lines, b"");
        assert!(answer.status < 500, "{method} {path}: {} {}", answer.status, answer.text());
        well += usize::from(answer.status < 300);
        let text = answer.text();
        assert!(
            !text.contains("not for you") && !text.contains("root:x:") && !text.contains("not a key"),
            "{path}: {text}"
        );
    }
    assert!(well > 20, "some of it makes sense: {well}");
    // Noise where a request should be.
    for length in [0, 1, 10, 100, 5000, 200_000] {
        let noise = random.bytes(length);
        web.noise(&noise);
        web.noise(&[b"GET /zarr/".as_slice(), &noise].concat());
        web.noise(&[b"GET / HTTP/1.1\r\nAuthorization: Bearer ".as_slice(), &noise, b"\r\n\r\n"].concat());
    }
    assert_eq!(web.get(&format!("/zarr/{}", "a/".repeat(10_000))).status, 400);
    web.noise(format!("GET /{} HTTP/1.1\r\n\r\n", "a/".repeat(1_000_000)).as_bytes());
    assert_eq!(web.get("/zarr/study/v/c/0/0").body.len(), 32);
    drop(session);
    served.end();
}

/// Children of a process that run this program.
fn children(parent: u32, program: &str) -> Vec<i32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let Some((name, rest)) = stat.rsplit_once(')') else { return false };
        name.ends_with(program) && rest.split(' ').nth(2) == Some(&parent.to_string())
    })
    .collect()
}

#[test]
fn an_agent_does_not_care_when_its_web_server_dies_and_ends_it_with_itself() {
    let place = Workplace::new();
    let (served, session) = served(&place);
    let v = study(&session);
    let servers = children(served.pid(), "terrace-web");
    assert_eq!(servers.len(), 1);
    // SAFETY: a process of this test's own.
    unsafe { libc::kill(servers[0], libc::SIGKILL) };
    assert!(wait_until(30, || children(served.pid(), "terrace-web").is_empty()));
    v.put_values(&region(&[0, 0], &[1, 1]), &[5f32]).unwrap();
    assert_eq!(v.get_values::<f32>(&region(&[0, 0], &[1, 1])).unwrap(), [5.0]);
    drop((v, session));
    served.end();

    let served = Served::begin(&place, &["--http", "127.0.0.1:0"]);
    let address = http(&served).address.clone();
    assert_eq!(http(&served).get("/zarr/study/v/c/0/0").status, 200);
    // A page that is being told of changes does not hold it back.
    let mut stream = http(&served).connect();
    let head = format!("GET /api/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n", Served::TOKEN);
    stream.write_all(head.as_bytes()).unwrap();
    assert!(stream.read(&mut [0; 16]).unwrap() > 0);
    served.end();
    assert!(std::net::TcpStream::connect(&address).is_err());
    place.settled_tree();
}

#[test]
fn the_server_goes_on_when_the_agent_is_killed_and_started_again() {
    let place = Workplace::new();
    let (served, session) = served(&place);
    study(&session);
    let web = http(&served);
    let before = (web.get("/zarr/study/zarr.json").text(), web.get("/zarr/study/v/c/1/0").body);
    let agent = place.status().unwrap().agent_pid;
    // SAFETY: this workplace's own agent.
    unsafe { libc::kill(agent as i32, libc::SIGKILL) };
    assert!(wait_until(60, || place.status().is_some_and(|status| status.agent_pid != agent)));
    assert_eq!((web.get("/zarr/study/zarr.json").text(), web.get("/zarr/study/v/c/1/0").body), before);
    assert_eq!(web.get("/api/status").status, 200);
    drop(session);
    served.end();
}

#[test]
fn objects_of_an_agent_elsewhere_are_served_too() {
    let place = Workplace::new();
    let served = Served::begin(&place, &[]);
    let session = Session::open(&served.index).unwrap();
    let v = study(&session);
    let token_file = place.scratch().join("token");
    let mut command = place.terrace("web");
    command.args(["--connect", &format!("tcp://{}", served.address), "--token-file"]).arg(&token_file);
    let mut process = command.env("TERRACE_TOKEN_FILE", &token_file).stdout(Stdio::piped()).spawn().unwrap();
    let page = BufReader::new(process.stdout.take().unwrap()).lines().next().unwrap().unwrap();
    let web = Http::new(page.strip_prefix("page: ").unwrap().split("/?").next().unwrap(), Served::TOKEN);
    let group = web.get("/zarr/study/zarr.json").json();
    assert_eq!(group["consolidated_metadata"]["metadata"]["v"]["shape"], serde_json::json!([5, 7]));
    assert_eq!(web.get("/zarr/study/v/c/0/1").body, bytes(&[4.0, 5.0, 6.0, -1.0, 11.0, 12.0, 13.0, -1.0]));
    v.put_values(&region(&[0, 4], &[1, 1]), &[44f32]).unwrap();
    assert_eq!(web.get("/zarr/study/v/c/0/1").body[..4], bytes(&[44.0]));
    assert_eq!(web.get("/api/status").status, 501, "its tiers are not to be seen from here");
    process.kill().unwrap();
    process.wait().unwrap();
    drop((session, v));
    served.end();
}

#[test]
fn an_address_that_others_reach_is_served_by_tls_only_or_by_word() {
    let place = Wish::default().build();
    let shell = place.shell();
    let begin = |flags: &[&str]| {
        let mut command = place.terrace("web");
        let mut process = command.args(flags).stdout(Stdio::piped()).spawn().unwrap();
        let lines: Vec<String> =
            BufReader::new(process.stdout.take().unwrap()).lines().take(3).map(Result::unwrap).collect();
        (process, lines)
    };
    let (mut process, lines) = begin(&["--listen", "0.0.0.0:0"]);
    let url = lines[0].strip_prefix("page: https://").unwrap_or_else(|| panic!("{lines:?}"));
    let known = std::fs::read_to_string(place.state().join("web.token.fingerprint")).unwrap();
    assert_eq!(lines[2].strip_prefix("fingerprint: "), Some(known.trim()));
    let port = url.split(['/', ':']).nth(1).unwrap().to_owned();
    let token = std::fs::read_to_string(place.state().join("web.token")).unwrap();
    let clear = Http::new(&format!("http://127.0.0.1:{port}"), token.trim());
    let request = format!("GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n", clear.token);
    assert!(clear.raw(request.as_bytes()).is_none(), "in the clear nothing is said");
    process.kill().unwrap();
    process.wait().unwrap();
    let bad = Outcome::of(place.terrace("web").args(["--listen", "nowhere.invalid:1"]).output().unwrap());
    assert!(bad.code != 0 && bad.stderr.contains("nowhere.invalid:1"), "{}", bad.stderr);
    std::thread::sleep(Duration::from_millis(10));
    shell.ends_and_leaves();
}

/// It would take for hours.
const LONG: &str =
    "SELECT count(*) FROM generate_series(1, 3000000) a(i) JOIN generate_series(1, 3000000) b(j) ON i + j < 0";

#[test]
fn the_page_asks_sql_and_lists_and_ends_queries() {
    let place = Workplace::new();
    let served = Served::begin(&place, &["--http", "127.0.0.1:0", "--query-timeout", "20s"]);
    let session = Session::open(&served.index).unwrap();
    study(&session);
    let web = http(&served);
    let lines = format!("Authorization: Bearer {}\r\n", web.token);
    let ask = |sql: &str| web.send("POST", "/api/query", &lines, sql.as_bytes());
    let answer = ask("SELECT y, avg(v) AS mean FROM study GROUP BY y ORDER BY y").json();
    assert_eq!(answer["count"], 5);
    assert_eq!(answer["rows"][1], serde_json::json!(["1", "10.0"]));
    assert_eq!(answer["columns"][1]["name"], "mean");
    assert_eq!(answer["columns"][1]["numbers"], serde_json::json!([3.0, 10.0, 17.0, 24.0, 31.0]));
    let many = ask("SELECT i FROM generate_series(1, 25000) t(i)").json();
    assert_eq!((many["count"].as_u64(), many["rows"].as_array().unwrap().len()), (Some(25000), 1000));
    let wrong = ask("SELECT nothing FROM study");
    assert!(wrong.status == 400 && wrong.json()["error"].as_str().unwrap().contains("nothing"), "{}", wrong.text());
    // Another page of this host has the cookie sent, and may not ask.
    assert_eq!(web.send("POST", "/api/query", "", b"SELECT 1").status, 401);
    let foreign = format!("{lines}Origin: http://127.0.0.1:1\r\n");
    assert_eq!(web.send("POST", "/api/query", &foreign, b"SELECT 1").status, 403);
    assert_eq!(web.get("/api/query").header("allow"), "POST");
    let state = |wanted: &str| {
        let listed = web.get("/api/queries").json();
        let all = listed["queries"].as_array().unwrap().clone();
        all.into_iter().find(|query| query["text"] == LONG && query["state"] == wanted)
    };
    // Ended by the list's button.
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| ask(LONG));
        assert!(wait_until(60, || state("running").is_some()), "it is not listed");
        let id = state("running").unwrap()["id"].as_str().unwrap().to_owned();
        assert_eq!(web.send("POST", "/api/cancel", &lines, id.as_bytes()).status, 200);
        let refused = asked.join().unwrap();
        assert!(refused.status == 400 && refused.text().contains("was cancelled"), "{}", refused.text());
        assert_eq!(web.send("POST", "/api/cancel", &lines, id.as_bytes()).status, 404);
    });
    // A page that goes away.
    let mut stream = std::net::TcpStream::connect(&web.address).unwrap();
    let head = format!("POST /api/query HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n{lines}\r\n{LONG}", LONG.len());
    stream.write_all(head.as_bytes()).unwrap();
    assert!(wait_until(60, || state("running").is_some()), "it is not listed");
    drop(stream);
    assert!(wait_until(10, || state("left").is_some()), "{}", web.get("/api/queries").text());
    drop(session);
    served.end();
}
