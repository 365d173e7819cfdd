//! IORE's experiment files, unchanged: their keys in any case, sizes with K, M, G, T, booleans that may be text.
//!
//! An IORE file has no directory; its `file_name` is a path, so files lie where that says, relative to the experiment.
//! Where IORE had defects, the meaning is kept and the defect is not: "random" is random, storage layouts are set.

use crate::error::{Error, Result};
use crate::experiment::{Experiment, Launch, NamedRun, Order, Replications};
use crate::quantity::Span;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// An IORE file has `runs` with a `test` each, or one of the keys that only IORE has.
pub fn looks_like(value: &Value) -> bool {
    let Some(top) = value.as_object() else { return false };
    top.iter().any(|(key, value)| match key.to_ascii_lowercase().as_str() {
        "stats_exporter" | "num_replications" | "run_order" => true,
        "runs" => value.as_array().is_some_and(|runs| {
            runs.iter()
                .any(|run| run.as_object().is_some_and(|run| run.keys().any(|key| key.eq_ignore_ascii_case("test"))))
        }),
        _ => false,
    })
}

/// An object whose keys are taken one by one, in any case; what is left at the end is unknown.
struct Keys<'a> {
    place: &'a str,
    left: Map<String, Value>,
}

impl<'a> Keys<'a> {
    fn of(place: &'a str, value: Value) -> Result<Keys<'a>> {
        let Value::Object(object) = value else {
            return Err(Error::input(format!("`{place}` must be an object, not {value}"), HINT));
        };
        let mut left = Map::new();
        for (key, value) in object {
            let key = key.to_ascii_lowercase();
            if left.contains_key(&key) {
                return Err(Error::input(format!("`{place}` has the key `{key}` twice, in any case"), HINT));
            }
            left.insert(key, value);
        }
        Ok(Keys { place, left })
    }
    fn take(&mut self, key: &str) -> Option<Value> {
        self.left.remove(key)
    }
    fn number(&mut self, key: &str) -> Result<Option<u64>> {
        self.take(key)
            .map(|value| {
                let number = value.as_u64().or_else(|| value.as_str()?.trim().parse().ok());
                number.ok_or_else(|| self.wrong(key, "a whole number", &value))
            })
            .transpose()
    }
    fn boolean(&mut self, key: &str) -> Result<Option<bool>> {
        self.take(key)
            .map(|value| {
                let text = value.as_str().map(str::to_ascii_lowercase);
                match (value.as_bool(), text.as_deref()) {
                    (Some(truth), _) => Ok(truth),
                    (_, Some("true" | "yes" | "1")) => Ok(true),
                    (_, Some("false" | "no" | "0")) => Ok(false),
                    _ => Err(self.wrong(key, "true or false", &value)),
                }
            })
            .transpose()
    }
    fn text(&mut self, key: &str) -> Result<Option<String>> {
        self.take(key)
            .map(|value| value.as_str().map(str::to_owned).ok_or_else(|| self.wrong(key, "text", &value)))
            .transpose()
    }
    fn list(&mut self, key: &str) -> Result<Option<Vec<Value>>> {
        match self.take(key) {
            None => Ok(None),
            Some(Value::Array(list)) => Ok(Some(list)),
            Some(value) => Err(self.wrong(key, "a list", &value)),
        }
    }
    fn wrong(&self, key: &str, wanted: &str, found: &Value) -> Error {
        Error::input(format!("`{}.{key}` must be {wanted}, not {found}", self.place), HINT)
    }
    fn end(self) -> Result<()> {
        match self.left.into_iter().next() {
            None => Ok(()),
            Some((key, _)) => Err(Error::input(format!("`{}` has the unknown key `{key}`", self.place), HINT)),
        }
    }
}

const HINT: &str = "this file was read as IORE's format; docs/guide/bench.md lists its keys under \"IORE's files\"";

pub fn translate(value: Value) -> Result<Experiment> {
    let mut top = Keys::of("experiment", value)?;
    let mut experiment = Experiment {
        name: "iore".into(),
        directory: ".".into(),
        seed: 0,
        replications: Replications::Fixed(
            u32::try_from(top.number("num_replications")?.unwrap_or(1)).unwrap_or(u32::MAX),
        ),
        order: Order::Fixed,
        delay: Span(0.0),
        time_limit: None,
        base: Value::Null,
        factors: BTreeMap::new(),
        exclude: vec![],
        runs: vec![],
        launch: Launch::default(),
    };
    if let Some(order) = top.text("run_order")? {
        experiment.order = match order.to_ascii_lowercase().as_str() {
            "fixed" => Order::Fixed,
            "random" => Order::Random,
            other => return Err(Error::input(format!("`run_order` is `{other}`"), "it is `fixed` or `random`")),
        };
    }
    if let Some(exporter) = top.take("stats_exporter") {
        // Results are always of workers and of tests, in all formats: nothing to choose.
        let mut exporter = Keys::of("stats_exporter", exporter)?;
        exporter.list("report_type")?;
        exporter.text("data_format")?;
        exporter.text("export_dir")?;
        exporter.end()?;
    }
    for (index, run) in top.list("runs")?.unwrap_or_default().into_iter().enumerate() {
        let mut run = Keys::of("run", run)?;
        let repetitions = run.number("num_repetitions")?.unwrap_or(1);
        let mut settings = test(run.take("test").unwrap_or_else(|| json!({})))?;
        settings.insert("repetitions".into(), json!(repetitions));
        run.end()?;
        experiment.runs.push(NamedRun { name: format!("{}", index + 1), settings: Value::Object(settings) });
    }
    place(&mut experiment)?;
    top.end()?;
    if experiment.runs.is_empty() {
        return Err(Error::input("the experiment has no runs", HINT));
    }
    experiment.check()?;
    Ok(experiment)
}

/// An absolute `file_name` says where the files are: its directory becomes the experiment's.
fn place(experiment: &mut Experiment) -> Result<()> {
    let names = |run: &NamedRun| run.settings["file_name"].as_str().map(PathBuf::from);
    let all: Vec<PathBuf> = experiment.runs.iter().filter_map(names).collect();
    if !all.iter().any(|name| name.is_absolute()) {
        return Ok(());
    }
    if all.len() < experiment.runs.len() || all.iter().any(|name| name.is_relative()) {
        return Err(Error::input(
            "`file_name` is absolute in some runs and not in others",
            "make all absolute, or all relative",
        ));
    }
    let mut directory = all[0].parent().unwrap_or(Path::new("/")).to_owned();
    while !all.iter().all(|name| name.starts_with(&directory)) {
        directory.pop();
    }
    for run in &mut experiment.runs {
        let below = names(run).and_then(|name| Some(name.strip_prefix(&directory).ok()?.to_str()?.to_owned()));
        run.settings["file_name"] = json!(below);
    }
    experiment.directory = directory;
    Ok(())
}

fn test(value: Value) -> Result<Map<String, Value>> {
    let mut test = Keys::of("test", value)?;
    let mut settings = Map::new();
    let mut put = |key: &str, value: Value| drop(settings.insert(key.to_owned(), value));
    if let Some(types) = test.list("type")? {
        put("operations", types.iter().map(|kind| Value::String(lower(kind))).collect());
    }
    let flush = test.boolean("write_flush")?.unwrap_or(false);
    let flush_each = test.boolean("write_flush_per_req")?.unwrap_or(false);
    put(
        "flush",
        json!(if flush_each {
            "request"
        } else if flush {
            "end"
        } else {
            "never"
        }),
    );
    if let Some(shift) = test.number("read_reorder_offset")?
        && shift > 0
    {
        put("reorder", json!({ "shift": shift }));
    }
    put("barriers", json!(test.boolean("intra_test_barrier")?.unwrap_or(false)));
    put("delay", json!(test.number("inter_test_delay_secs")?.unwrap_or(0)));
    let own = match test.text("file_mode")?.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None | Some("nx1") => false,
        Some("nxn") => true,
        Some(other) => return Err(Error::input(format!("`file_mode` is `{other}`"), "it is `Nx1` or `NxN`")),
    };
    put("files", json!(if own { "per_worker" } else { "shared" }));
    let name = test.text("file_name")?.unwrap_or_else(|| "./testfile".into());
    let numbered = test.boolean("file_name_append_sequence_num")?.unwrap_or(false);
    let each = test.boolean("file_name_append_task_id")?.unwrap_or(false);
    let directory_each = test.boolean("file_dir_per_task")?.unwrap_or(false);
    if each && !own {
        // IORE's tasks would share a file of which each has another name.
        return Err(Error::input(
            "`file_name_append_task_id` with the `file_mode` Nx1: a file that all tasks share has one name",
            "leave it out, or use NxN",
        ));
    }
    put("file_name", json!(file_name(&name, numbered, own, own && directory_each)));
    put("keep", json!(test.boolean("file_keep")?.unwrap_or(false)));
    let mut is_dataset = false;
    if let Some(value) = test.take("workload") {
        let (workers, translated) = workload(value)?;
        is_dataset = translated.get("dataset").is_some();
        put("workers", json!(workers));
        put("workload", translated);
    }
    if let Some(value) = test.take("afio") {
        put("backend", backend(value, is_dataset)?);
    }
    if let Some(value) = test.take("afsb") {
        put("layout", layout(value)?);
    }
    test.end()?;
    Ok(settings)
}

/// The names that IORE gives: `DIRECTORY/task.TASK/NAME.REPLICATION.RUN.REPETITION.TASK`.
fn file_name(name: &str, numbered: bool, own: bool, own_directory: bool) -> PathBuf {
    let plain: PathBuf = Path::new(name).components().filter(|part| *part != Component::CurDir).collect();
    let mut file = plain.file_name().unwrap_or_default().to_os_string();
    if numbered {
        file.push(".{replication}.{run}.{repetition}");
    }
    if own {
        file.push(".{worker}");
    }
    let mut path = plain.parent().unwrap_or(Path::new("")).to_owned();
    if own_directory {
        path.push("task.{worker}");
    }
    path.join(file)
}

fn lower(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_ascii_lowercase)
}

fn workload(value: Value) -> Result<(u64, Value)> {
    let mut workload = Keys::of("workload", value)?;
    let workers = workload.number("num_tasks")?.unwrap_or(1);
    let translated = if let Some(dataset) = workload.take("dataset") {
        json!({ "dataset": self::dataset(dataset)? })
    } else {
        let mut offset = Keys::of("offset", workload.take("offset").unwrap_or_else(|| json!({})))?;
        let mut ours = Map::new();
        if let Some(pattern) = offset.text("access_pattern")? {
            ours.insert("pattern".into(), json!(pattern.to_ascii_lowercase()));
        }
        for (list, drawn, our_key) in [
            ("data_sizes", "data_size_distrib", "data_size"),
            ("request_sizes", "request_size_distrib", "request_size"),
        ] {
            if let Some(sizes) = offset.list(list)? {
                ours.insert(our_key.into(), sizes.into_iter().collect());
            }
            if let Some(distribution) = offset.take(drawn) {
                ours.insert(our_key.into(), lower_keys(distribution));
            }
        }
        offset.end()?;
        json!({ "offset": ours })
    };
    workload.end()?;
    Ok((workers, translated))
}

fn lower_keys(value: Value) -> Value {
    match value {
        Value::Object(object) => {
            object.into_iter().map(|(key, value)| (key.to_ascii_lowercase(), lower_keys(value))).collect()
        }
        other => other,
    }
}

fn dataset(value: Value) -> Result<Value> {
    let mut dataset = Keys::of("dataset", value)?;
    let count = dataset.number("num_vars")?;
    let types = dataset.list("var_types")?.unwrap_or_else(|| vec![json!("double")]);
    let mut types: Vec<Value> = types.iter().map(|name| Value::String(lower(name))).collect();
    if let Some(count) = count {
        match types.len() as u64 {
            1 => types = vec![types[0].clone(); count.min(100_000) as usize],
            have if have == count => {}
            have => {
                return Err(Error::input(
                    format!("`num_vars` is {count}, but `var_types` has {have}"),
                    "make them agree",
                ));
            }
        }
    }
    let mut cartesian = Keys::of("cartesian", dataset.take("cartesian").unwrap_or_else(|| json!({})))?;
    let dimensions = cartesian.number("num_dims")?;
    let sizes = cartesian.list("dim_sizes")?.unwrap_or_default();
    let divisions = cartesian.list("dim_divs")?.unwrap_or_default();
    if let Some(dimensions) = dimensions
        && dimensions != sizes.len() as u64
    {
        return Err(Error::input(
            format!("`num_dims` is {dimensions}, but `dim_sizes` has {}", sizes.len()),
            "make them agree",
        ));
    }
    cartesian.end()?;
    dataset.end()?;
    Ok(json!({ "variables": types, "dimensions": sizes, "divisions": divisions }))
}

fn one(place: &str, value: Value) -> Result<(String, Value)> {
    match value {
        Value::Object(object) if object.len() == 1 => {
            let (key, value) = object.into_iter().next().expect("there is one");
            Ok((key.to_ascii_lowercase(), value))
        }
        other => Err(Error::input(format!("`{place}` must have exactly one key, not {other}"), HINT)),
    }
}

fn backend(value: Value, is_dataset: bool) -> Result<Value> {
    let (name, parameters) = one("afio", value)?;
    let mut parameters = Keys::of("afio", parameters)?;
    // IORE's "one operation" is our default; without it, it seeks.
    let seek = !parameters.boolean("seek_rw_single_op")?.unwrap_or(true);
    let translated = match name.as_str() {
        "posix" => json!({ "posix": { "seek": seek } }),
        "cstream" => json!({ "cstream": {} }),
        "mpiio" => {
            let collective = parameters.boolean("collective_io")?.unwrap_or(false);
            // A view is of a part of a grid. IORE takes the word for other workloads, too, and makes none.
            let view = parameters.boolean("file_view")?.unwrap_or(false) && is_dataset;
            json!({ "mpiio": { "seek": seek, "collective": collective, "view": view } })
        }
        other => {
            return Err(Error::input(
                format!("`afio` names the interface `{other}`"),
                "it is `posix`, `cstream` or `mpiio`",
            ));
        }
    };
    parameters.end()?;
    Ok(translated)
}

fn layout(value: Value) -> Result<Value> {
    let (name, parameters) = one("afsb", value)?;
    if !matches!(name.as_str(), "lustre" | "orangefs") {
        return Err(Error::input(format!("`afsb` names the storage `{name}`"), "it is `lustre` or `orangefs`"));
    }
    let mut parameters = Keys::of("afsb", parameters)?;
    let mut stripes = Map::new();
    if let Some(size) = parameters.take("stripe_size") {
        stripes.insert("stripe_size".into(), size);
    }
    if let Some(width) = parameters.number("stripe_width")? {
        stripes.insert("stripe_count".into(), json!(width));
    }
    parameters.end()?;
    Ok(json!({ name: stripes }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Format;
    use crate::plan::Plan;
    use crate::settings::*;

    const FILE: &str = include_str!("../tests/bench/iore.json");

    #[test]
    fn an_iore_file_runs_as_it_is() {
        let experiment = Experiment::parse(FILE, Format::Json).unwrap();
        let plan = Plan::of(&experiment).unwrap();
        assert_eq!((plan.runs.len(), plan.blocks.len()), (3, 2));
        let first = &plan.runs[0].settings;
        assert_eq!((first.workers, first.repetitions, first.files), (4, 2, Files::PerWorker));
        assert_eq!(first.flush, Flush::End);
        assert!(first.barriers && !first.keep);
        assert_eq!(first.file_name.as_deref(), Some("task.{worker}/testfile.{worker}"));
        let Workload::Offset(offset) = &first.workload else { panic!() };
        assert_eq!(offset.pattern, Pattern::Random);
        let Sizes::Each(sizes) = &offset.data_size else { panic!() };
        assert_eq!(sizes.iter().map(|size| size.0).collect::<Vec<_>>(), [1 << 20, 2 << 20]);
        let second = &plan.runs[1].settings;
        let Workload::Dataset(dataset) = &second.workload else { panic!() };
        assert_eq!(dataset.variables, [DataType::Float32, DataType::Float64]);
        assert_eq!(second.reorder, Reorder::Shift(2));
        let BackendSettings::Mpiio(mpi) = &second.backend else { panic!() };
        assert!(mpi.collective && mpi.view && !mpi.seek);
        // IORE never called its storage backends: the layout would not have been set.
        let LayoutSettings::Lustre(stripes) = &second.layout else { panic!() };
        assert_eq!((stripes.stripe_size.unwrap().0, stripes.stripe_count), (1 << 20, Some(4)));
        let Workload::Offset(offset) = &plan.runs[2].settings.workload else { panic!() };
        assert!(matches!(offset.request_size, Sizes::Drawn(Distribution::Geometric(_))));
        assert!(matches!(offset.data_size, Sizes::Drawn(Distribution::Normal(_))));
    }

    #[test]
    fn an_absolute_file_name_of_iore_says_where_the_files_are() {
        let of = |one: &str, two: &str| {
            let test = |name: &str| json!({ "test": { "file_name": name } });
            Experiment::parse(&json!({ "runs": [test(one), test(two)] }).to_string(), Format::Json)
        };
        let experiment = of("/scratch/a/./one", "/scratch/b/two").unwrap();
        assert_eq!(experiment.directory, Path::new("/scratch"));
        let plan = Plan::of(&experiment).unwrap();
        let names: Vec<_> = plan.runs.iter().map(|run| run.settings.file_name.as_deref().unwrap()).collect();
        assert_eq!(names, ["a/one", "b/two"]);
        assert!(of("/scratch/one", "two").unwrap_err().to_string().contains("absolute in some"));
    }

    #[test]
    fn what_iore_would_not_know_is_refused_by_name() {
        let refused = |text: &str| Experiment::parse(text, Format::Json).unwrap_err().to_string();
        assert!(refused(r#"{"num_replications": 1, "runs": [{"test": {"colour": 1}}]}"#).contains("`colour`"));
        assert!(refused(r#"{"run_order": "sideways", "runs": [{"test": {}}]}"#).contains("sideways"));
        assert!(refused(r#"{"num_replications": 1, "runs": []}"#).contains("no runs"));
        assert!(refused(r#"{"runs": [{"test": {"afio": {"ofsproto": {}}}}]}"#).contains("ofsproto"));
    }
}
