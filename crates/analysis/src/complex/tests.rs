//! Complex columns in SQL, by array plans and by the engine's operators.

use crate::arrow::buffer::Buffer;
use crate::arrow::util::display::array_value_to_string;
use crate::datafusion::prelude::SessionContext;
use crate::{Axis, Column, Dimension, Grid, GridTable, MemoryArray, Options, Source, context, plan};
use std::sync::Arc;
use terrace_client::{DataType, Region};

const NUMBERS: [[f64; 2]; 4] = [[1.0, 2.0], [0.0, -1.0], [-3.0, 0.5], [0.0, 0.0]];

/// `t(x; c, d, v)`: c complex64, d complex128 and the conjugate of c, v its real part.
fn tables(array_plans: bool) -> SessionContext {
    let context = context(&Options { array_plans, threads: Some(2), ..Options::default() }).unwrap();
    let array = |data_type, bytes: Vec<u8>| -> Arc<dyn Source> {
        let mut array = MemoryArray::new(data_type, &[4]);
        array.put(Region::whole(&[4]).unwrap(), Buffer::from_slice_ref(bytes.as_slice())).unwrap();
        Arc::new(array)
    };
    let c = NUMBERS.iter().flatten().flat_map(|&part| (part as f32).to_le_bytes()).collect();
    let d = NUMBERS.iter().flat_map(|&[re, im]| [re, -im]).flat_map(f64::to_le_bytes).collect();
    let v = NUMBERS.iter().flat_map(|&[re, _]| re.to_le_bytes()).collect();
    let columns = vec![
        Column::new("c", array(DataType::Complex64, c), vec![(0, 0)]),
        Column::new("d", array(DataType::Complex128, d), vec![(0, 0)]),
        Column::new("v", array(DataType::Float64, v), vec![(0, 0)]),
    ];
    let dimension = Dimension { name: "x".into(), extent: 4, axis: Axis::INDEX };
    let grid = Grid::new("t", vec![dimension], columns, false).unwrap();
    let catalog = crate::datafusion::catalog::MemoryCatalogProvider::new();
    use crate::datafusion::catalog::CatalogProvider;
    let schema = Arc::new(crate::datafusion::catalog::MemorySchemaProvider::new());
    catalog.register_schema("root", schema).unwrap();
    context.register_catalog("terrace", Arc::new(catalog));
    context.register_table("t", Arc::new(GridTable(Arc::new(grid)))).unwrap();
    context
}

/// Rows with spaces between their columns, sorted; or the error.
fn rows(context: &SessionContext, query: &str) -> Result<Vec<String>, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let batches = runtime.block_on(async {
        let frame = plan(context, query).await.map_err(|error| error.message)?;
        frame.collect().await.map_err(|error| crate::Error::from(error).message)
    })?;
    let mut rows = vec![];
    for batch in &batches {
        for row in 0..batch.num_rows() {
            let cells = batch.columns().iter().map(|column| array_value_to_string(column, row).unwrap());
            rows.push(cells.collect::<Vec<_>>().join(" "));
        }
    }
    rows.sort();
    Ok(rows)
}

#[test]
fn complex_columns_are_computed_with() {
    for array_plans in [true, false] {
        let context = tables(array_plans);
        let ask = |query: &str| rows(&context, query).unwrap_or_else(|error| panic!("{query}: {error}"));
        for (expression, wanted) in [
            ("real(c)", "1.0"),
            ("imag(c)", "2.0"),
            ("imag(d)", "-2.0"),
            ("abs(complex(3, 4) * c / c)", "5.0"),
            ("abs(-2)", "2"),
            ("arg(complex(-1, 0))", "3.141592653589793"),
            ("conj(c)", "[1.0, -2.0]"),
            ("c + d", "[2.0, 0.0]"),
            ("c - 1", "[0.0, 2.0]"),
            ("2.5 * c", "[2.5, 5.0]"),
            ("c * d", "[5.0, 0.0]"),
            ("c / complex(0, 1)", "[2.0, -1.0]"),
            ("(c + d) * (c - d) / v", "[0.0, 8.0]"),
            ("c = conj(d)", "true"),
            ("d = c", "false"),
            ("complex(2, 0) = conj(complex(2, 0))", "true"),
            ("c <> 1", "true"),
            ("c = complex(1, 2)", "true"),
            ("CASE WHEN c = d THEN c ELSE conj(c) END", "[1.0, -2.0]"),
        ] {
            assert_eq!(ask(&format!("SELECT {expression} FROM t WHERE x = 0")), [wanted], "{expression}");
        }
        assert_eq!(
            ask("SELECT sum(c), avg(d), mean(c), count(c) FROM t"),
            ["[-2.0, 1.5] [-0.5, -0.375] [-0.5, 0.375] 4"]
        );
        assert_eq!(ask("SELECT sum(c) FROM t WHERE x > 9"), [""]);
        assert_eq!(ask("SELECT v < 0 AS k, sum(c * d), max(abs(d)) FROM t GROUP BY k").len(), 2);
        assert_eq!(ask("SELECT x, sum(real(c)) FROM t GROUP BY x"), ["0 1.0", "1 0.0", "2 -3.0", "3 0.0"]);
        assert_eq!(ask("SELECT x FROM t WHERE c = complex(0, 0) OR abs(c) > 3"), ["2", "3"]);
        assert_eq!(ask("SELECT x, sum(c) OVER (ORDER BY x ROWS 1 PRECEDING) FROM t")[2], "2 [-3.0, -0.5]");
        assert_eq!(ask("SELECT a.x FROM t a JOIN t b ON a.c = conj(b.d) WHERE a.x > 1"), ["2", "3"]);
        assert_eq!(ask("SELECT x FROM t WHERE EXISTS (SELECT 1 FROM t b WHERE b.c = t.c AND b.x = 1)"), ["1"]);
        assert_eq!(ask("SELECT a.x, b.c + 1 FROM t a LEFT JOIN t b ON a.x = b.x + 1")[..2], ["0 ", "1 [2.0, 2.0]"]);
    }
}

/// 0.1 as a part of complex64 is another number than 0.1 as one of complex128.
#[test]
fn what_is_no_column_takes_the_width_of_the_column() {
    let context = tables(true);
    let type_of =
        |query: &str| rows(&context, &format!("SELECT arrow_typeof({query}) FROM t WHERE x = 0")).unwrap().remove(0);
    let single = type_of("c");
    assert!(single.contains("Float32"), "{single}");
    for expression in ["c * 0.1", "0.1 + c", "c / complex(0.1, 0.1)", "c - c", "conj(c)"] {
        assert_eq!(type_of(expression), single, "{expression}");
    }
    for expression in ["c * v", "c + d", "c + x", "complex(0.1, 0)"] {
        assert_eq!(type_of(expression), type_of("d"), "{expression}");
    }
}

#[test]
fn what_complex_numbers_have_not_is_refused_in_words() {
    let context = tables(true);
    for (query, wanted) in [
        ("SELECT c < d FROM t", "complex numbers have no `<`"),
        ("SELECT c % 2 FROM t", "complex numbers have no `%`"),
        ("SELECT c + 'a' FROM t", "`+` of a complex number and Utf8"),
        ("SELECT real(v) FROM t", "real() is of complex numbers, not of Float64"),
        ("SELECT sum(DISTINCT c), avg(DISTINCT d) FROM t", "DISTINCT in a sum or mean of complex numbers"),
        ("SELECT sqrt(c) FROM t", "sqrt"),
        ("SELECT stddev(c) FROM t", "stddev"),
        ("SELECT median(c) FROM t", "median"),
        ("SELECT sum('a') FROM t", "the function `sum` does not take what it is given"),
        ("SELECT median(c) FROM t", "median(complex64)"),
    ] {
        let error = rows(&context, query).expect_err(query);
        assert!(error.contains(wanted), "{query}: {error}");
        assert!(!error.to_lowercase().contains("bug") && !error.contains("Internal error"), "{query}: {error}");
    }
}
