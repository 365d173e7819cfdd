//! Array-native plans give what DataFusion's own operators give over the same tables, and what a model gives that looks at
//! every cell.

use crate::arrow::array::{Array, ArrayRef, Float64Array, RecordBatch};
use crate::arrow::buffer::Buffer;
use crate::arrow::compute::cast;
use crate::arrow::datatypes::DataType as ArrowType;
use crate::arrow::util::pretty::pretty_format_batches;
use crate::datafusion::execution::session_state::SessionStateBuilder;
use crate::datafusion::prelude::{SessionConfig, SessionContext};
use crate::session::register_functions;
use crate::{Axis, Column, Dimension, Grid, GridTable, MemoryArray, Source, array_rules};
use proptest::prelude::*;
use std::sync::Arc;
use terrace_client::{DataType, Region};

/// So few that the small worlds have several batches, some of them not full.
const ROWS_FEW: usize = 7;
/// As DataFusion has them: with few, a large grid would take minutes.
const ROWS_MANY: usize = 8192;

fn context(array_plans: bool) -> SessionContext {
    context_with(array_plans, ROWS_FEW)
}

fn context_with(array_plans: bool, batch_rows: usize) -> SessionContext {
    let mut config = SessionConfig::new().with_target_partitions(2).with_batch_size(batch_rows);
    config.options_mut().sql_parser.enable_ident_normalization = false;
    let mut state = SessionStateBuilder::new().with_config(config).with_default_features();
    if array_plans {
        state = array_rules().into_iter().fold(state, SessionStateBuilder::with_optimizer_rule);
    }
    let mut context = SessionContext::new_with_state(state.build());
    register_functions(&mut context).unwrap();
    context
}

/// Cells as bytes of their type.
fn packed(data_type: DataType, values: &[f64]) -> Buffer {
    let bytes: Vec<u8> = values
        .iter()
        .flat_map(|&value| match data_type {
            DataType::Float64 => value.to_le_bytes().to_vec(),
            DataType::Float32 => (value as f32).to_le_bytes().to_vec(),
            DataType::Int64 => (value as i64).to_le_bytes().to_vec(),
            DataType::Int32 => (value as i32).to_le_bytes().to_vec(),
            DataType::Int16 => (value as i16).to_le_bytes().to_vec(),
            DataType::UInt8 => (value as u8).to_le_bytes().to_vec(),
            other => panic!("{other} is not used here"),
        })
        .collect();
    // Aligned, as tier memory is.
    Buffer::from_slice_ref(bytes.as_slice())
}

#[derive(Clone, Debug)]
struct Put {
    offset: Vec<u64>,
    count: Vec<u64>,
    stride: Vec<u64>,
    seed: u64,
}

/// An array and what each of its cells is.
fn array(data_type: DataType, shape: &[u64], puts: &[Put]) -> (Arc<dyn Source>, Vec<f64>) {
    let mut array = MemoryArray::new(data_type, shape);
    let mut model = vec![0.0; shape.iter().product::<u64>() as usize];
    for put in puts {
        let region = Region::strided(&put.offset, &put.count, &put.stride).unwrap();
        let values: Vec<f64> = (0..region.cells()).map(|i| ((i * 37 + put.seed * 11) % 101) as f64).collect();
        let mut index = vec![0u64; shape.len()];
        for value in &values {
            let place =
                (0..shape.len()).fold(0, |place, d| place * shape[d] + put.offset[d] + index[d] * put.stride[d]);
            model[place as usize] = *value;
            for d in (0..shape.len()).rev() {
                index[d] += 1;
                if index[d] < put.count[d] {
                    break;
                }
                index[d] = 0;
            }
        }
        array.put(region, packed(data_type, &values)).unwrap();
    }
    (Arc::new(array), model)
}

fn puts(shape: Vec<u64>) -> impl Strategy<Value = Vec<Put>> {
    let one = shape
        .iter()
        .map(|&extent| {
            (0..extent, 1u64..3).prop_flat_map(move |(offset, stride)| {
                let most = (extent - offset).div_ceil(stride);
                (Just(offset), 1..=most, Just(stride))
            })
        })
        .collect::<Vec<_>>();
    let whole = Put { offset: vec![0; shape.len()], count: shape.clone(), stride: vec![1; shape.len()], seed: 5 };
    let parts = proptest::collection::vec((one, any::<u8>()), 0..6);
    (any::<bool>(), parts).prop_map(move |(begins_whole, parts)| {
        let mut puts: Vec<Put> = parts
            .into_iter()
            .map(|(part, seed)| Put {
                offset: part.iter().map(|p| p.0).collect(),
                count: part.iter().map(|p| p.1).collect(),
                stride: part.iter().map(|p| if p.1 == 1 { 1 } else { p.2 }).collect(),
                seed: seed as u64,
            })
            .collect();
        if begins_whole {
            puts.insert(0, whole.clone());
        }
        puts
    })
}

/// `g(x, y, z; v, w, u)` and `h(x, y, z; v)` at a shift along x, `c(x; k)`: v of floats, w and u of the types given; u has only y.
#[derive(Clone, Debug)]
struct World {
    shape: Vec<u64>,
    types: (DataType, DataType),
    shift: i64,
    puts: Vec<Vec<Put>>,
}

fn worlds() -> impl Strategy<Value = World> {
    let types = prop::sample::select(vec![
        DataType::Float64,
        DataType::Float32,
        DataType::Int64,
        DataType::Int32,
        DataType::Int16,
        DataType::UInt8,
    ]);
    (proptest::collection::vec(1u64..6, 3), types.clone(), types, -2i64..3).prop_flat_map(|(shape, a, b, shift)| {
        let shapes = [shape.clone(), shape.clone(), vec![shape[1]], shape.clone(), vec![shape[0]]];
        let all = shapes.into_iter().map(puts).collect::<Vec<_>>();
        (Just(shape), Just((a, b)), Just(shift), all).prop_map(|(shape, types, shift, puts)| World {
            shape,
            types,
            shift,
            puts,
        })
    })
}

impl World {
    fn dimension(&self, d: usize, low: i64) -> Dimension {
        let axis = match d {
            0 => Axis::Integer { low, step: 3 },
            1 => Axis::Real { low: -1.5, step: 0.25 },
            _ => Axis::Explicit(Arc::new(Float64Array::from_iter_values((0..self.shape[2]).map(|i| (i * i) as f64)))),
        };
        Dimension { name: ["x", "y", "z"][d].into(), extent: self.shape[d], axis }
    }

    /// The tables, and v cell by cell.
    fn register(&self, context: &SessionContext) -> Vec<f64> {
        let column = |name: &str, source: Arc<dyn Source>, dimensions: &[usize]| {
            Column::new(name, source, dimensions.iter().map(|&d| (d, 0)).collect())
        };
        let (v, model) = array(DataType::Float64, &self.shape, &self.puts[0]);
        let w = array(self.types.0, &self.shape, &self.puts[1]).0;
        let u = array(self.types.1, &self.shape[1..2], &self.puts[2]).0;
        let other = array(DataType::Float64, &self.shape, &self.puts[3]).0;
        let k = array(DataType::Int32, &self.shape[..1], &self.puts[4]).0;
        let all = |low: i64| (0..3).map(|d| self.dimension(d, low)).collect::<Vec<_>>();
        let columns = vec![column("v", v, &[0, 1, 2]), column("w", w, &[0, 1, 2]), column("u", u, &[1])];
        let g = Grid::new("g", all(6), columns, false).unwrap();
        let h = Grid::new("h", all(6 + 3 * self.shift), vec![column("v", other, &[0, 1, 2])], false).unwrap();
        let c = Grid::new("c", vec![self.dimension(0, 6)], vec![column("k", k, &[0])], false).unwrap();
        for grid in [g, h, c] {
            context.register_table(grid.name.clone(), Arc::new(GridTable(Arc::new(grid)))).unwrap();
        }
        model
    }
}

fn answer(context: &SessionContext, query: &str) -> Vec<RecordBatch> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let frame = runtime.block_on(context.sql(query)).unwrap_or_else(|error| panic!("{query}: {error}"));
    runtime.block_on(frame.collect()).unwrap_or_else(|error| panic!("{query}: {error}"))
}

/// Rows of numbers, sorted; nulls are infinite.
fn rows(batches: &[RecordBatch]) -> Vec<Vec<f64>> {
    let mut rows = vec![];
    for batch in batches {
        let columns: Vec<ArrayRef> =
            batch.columns().iter().map(|column| cast(column, &ArrowType::Float64).unwrap()).collect();
        for row in 0..batch.num_rows() {
            let value = |column: &ArrayRef| {
                let column = column.as_any().downcast_ref::<Float64Array>().unwrap();
                if column.is_null(row) { f64::INFINITY } else { column.value(row) }
            };
            rows.push(columns.iter().map(value).collect::<Vec<f64>>());
        }
    }
    rows.sort_by(|a, b| {
        a.iter().zip(b).map(|(a, b)| a.total_cmp(b)).find(|o| o.is_ne()).unwrap_or(std::cmp::Ordering::Equal)
    });
    rows
}

fn is_near(a: &[Vec<f64>], b: &[Vec<f64>]) -> bool {
    let near =
        |a: &f64, b: &f64| a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-9 * (1.0 + a.abs().max(b.abs()));
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.iter().zip(b).all(|(a, b)| near(a, b)))
}

fn plan_of(context: &SessionContext, query: &str) -> String {
    pretty_format_batches(&answer(context, &format!("EXPLAIN {query}"))).unwrap().to_string()
}

/// Queries, and whether an array-native plan is to answer them.
fn queries(a: i64, t: f64) -> Vec<(String, Option<&'static str>)> {
    let reduce = Some("GridReduce");
    let zip = Some("⋈");
    let union = Some("UnionExec");
    vec![
        (format!("SELECT * FROM g WHERE x BETWEEN {a} AND {}", a + 7), None),
        (format!("SELECT x, y, z, v, w, u FROM g WHERE v > {t} AND z <> 4 AND x + 1 > {a}"), None),
        (format!("SELECT v, z FROM g WHERE x % 2 = 0 OR v < {t}"), None),
        (format!("SELECT y, w FROM g WHERE y IN (-1.5, -1.0, 0.0) AND w >= {a} AND u <= {a}"), None),
        ("SELECT z, x FROM g".into(), None),
        ("SELECT x, avg(v), sum(w), min(v), max(w), count(*) FROM g GROUP BY x".into(), reduce),
        ("SELECT avg(v), z, sum(u), min(u) FROM g WHERE y > -1.3 GROUP BY z".into(), reduce),
        (format!("SELECT y, x, sum(v), max(v) FROM g WHERE x >= {a} GROUP BY y, x"), reduce),
        (format!("SELECT z, count(*), sum(v), min(w), max(u) FROM g WHERE v > {t} GROUP BY z"), reduce),
        (format!("SELECT count(*), sum(v), avg(w), min(v), max(v) FROM g WHERE v > {t} AND w < 90"), reduce),
        (format!("SELECT x, y, z, sum(v * w + y) AS s FROM g WHERE x <= {a} GROUP BY z, y, x"), reduce),
        (format!("SELECT count(v), sum(x), avg(v * v) FROM g WHERE v + w > {t}"), reduce),
        ("SELECT x, avg(v) AS m FROM g GROUP BY x HAVING avg(v) > 20 ORDER BY m".into(), reduce),
        ("SELECT x, count(DISTINCT v) FROM g GROUP BY x".into(), None),
        ("SELECT w, count(*) FROM g GROUP BY w".into(), None),
        ("SELECT g.x, avg(g.v - h.v) FROM g JOIN h ON g.x = h.x AND g.y = h.y AND g.z = h.z GROUP BY g.x".into(), reduce),
        (format!("SELECT g.x, g.y, g.z, g.v, h.v, w FROM g JOIN h USING (x, y, z) WHERE h.v > {t} AND g.x > {a}"), zip),
        (format!("SELECT h.x, g.y, h.v + g.v FROM h JOIN g ON g.x = h.x AND h.z = g.z AND g.y = h.y AND g.v > h.v + {a}"), zip),
        (format!("SELECT g.x, c.k, v FROM c JOIN g ON g.x = c.x WHERE k > {a}"), zip),
        ("SELECT g.x, g.y, v, m FROM g JOIN (SELECT x, max(v) AS m FROM g GROUP BY x) q ON g.x = q.x AND g.v = q.m".into(), zip),
        (
            format!(
                "SELECT y, q.x, v, n FROM g JOIN (SELECT x, avg(v) AS m, count(*) AS n FROM g WHERE v > {t} AND x > {a} GROUP BY x) q
                 ON g.x = q.x WHERE v > m"
            ),
            zip,
        ),
        ("SELECT c.x, sum(g.v * c.k), count(*), min(c.k) FROM g CROSS JOIN c GROUP BY c.x".into(), reduce),
        (format!("SELECT c.x, g.z, max(g.v - k) FROM c, g WHERE k > {a} AND g.y > -1 GROUP BY g.z, c.x"), reduce),
        (format!("SELECT g.x, c.x, v, k FROM g CROSS JOIN c WHERE v > {t} AND c.x > {a}"), zip),
        // Neighbours.
        ("SELECT a.x, b.x, a.y, a.z, a.v - b.v FROM g a JOIN g b ON a.x = b.x + 3 AND a.y = b.y AND a.z = b.z".into(), zip),
        (format!("SELECT b.x, b.y, a.v FROM g a JOIN g b ON a.x = b.x AND a.y = b.y - 0.25 AND a.z = b.z AND b.x > {a} AND b.y > -1.3"), zip),
        ("SELECT sum(abs(a.v - b.v)), count(*) FROM g a JOIN g b ON a.x + 6 = b.x AND a.y = b.y AND b.z = a.z".into(), reduce),
        (format!("SELECT b.x, sum(a.v * b.v) FROM g a JOIN h b ON a.x - 3 = b.x AND a.y + 0.5 = b.y AND b.z = a.z AND b.v > {t} GROUP BY b.x"), reduce),
        (
            "SELECT b.x, a.y, sum(a.v - 2 * b.v + c.v) FROM g b JOIN g a ON a.x = b.x - 3 AND a.y = b.y AND a.z = b.z
             JOIN g c ON c.x = b.x + 3 AND c.y = b.y AND c.z = b.z GROUP BY b.x, a.y".into(),
            reduce,
        ),
        ("SELECT a.x, b.x, a.v FROM g a JOIN g b ON a.x = b.x * 2 AND a.y = b.y AND a.z = b.z".into(), None),
        ("SELECT a.x, b.x, c.k FROM g a JOIN c b ON a.x = b.x + 3 JOIN c ON c.x = b.x - 3".into(), zip),
        // Groups of coordinates.
        ("SELECT x / 6 AS k, y, avg(v), count(*), max(w) FROM g GROUP BY x / 6, y".into(), reduce),
        (format!("SELECT x % 2 AS k, z, sum(v), count(*), min(w) FROM g WHERE v > {t} AND x > {a} GROUP BY k, z"), reduce),
        (format!("SELECT z > 2 AS k, floor(y) AS f, x, sum(w), max(v) FROM g WHERE v < {t} GROUP BY k, f, x"), reduce),
        ("SELECT z > 2 AS k, x / 9 AS b, sum(v), sum(w), min(u) FROM g GROUP BY k, b".into(), reduce),
        ("SELECT x / 9 AS k, median(v), count(*) FROM g GROUP BY k HAVING count(*) > 2".into(), reduce),
        (format!("SELECT CASE WHEN x < {a} THEN NULL ELSE 7 END AS k, count(*), avg(v) FROM g GROUP BY k"), reduce),
        ("SELECT DISTINCT floor(y) FROM g".into(), reduce),
        ("SELECT x / 6 AS k, x % 2 AS o, y, sum(v), count(*) FROM g GROUP BY k, y, o".into(), reduce),
        ("SELECT a.x, b.x, sum(a.v - b.v) FROM g a JOIN g b ON a.x = b.x + 3 AND a.y = b.y AND a.z = b.z GROUP BY a.x, b.x".into(), reduce),
        ("SELECT CASE WHEN x % 2 = 0 THEN x ELSE -1 END AS k, median(v), count(*) FROM g GROUP BY k".into(), None),
        (format!("SELECT x, avg(power(abs(v), 2)), count(sqrt(abs(v))) FROM g WHERE v > {t} GROUP BY x"), None),
        // What is said of the other side's coordinates, below another aggregate or join.
        (
            format!(
                "SELECT avg(s) FROM (SELECT a.x, sum(a.v - b.v) AS s FROM g a JOIN g b ON a.x = b.x + 3 AND a.y = b.y AND a.z = b.z
                 WHERE b.x < {a} GROUP BY a.x) q"
            ),
            None,
        ),
        (
            format!(
                "SELECT q.x, s, k FROM (SELECT a.x, sum(a.v) AS s FROM g a JOIN g b ON a.x = b.x + 3 AND a.y = b.y AND a.z = b.z
                 WHERE b.x <= {a} AND b.x > 6 GROUP BY a.x) q JOIN c ON q.x = c.x"
            ),
            None,
        ),
        (
            format!(
                "SELECT g.x, g.y, s FROM g JOIN (SELECT a.x, sum(a.v) AS s FROM g a JOIN g b ON a.x = b.x - 3 AND a.y = b.y AND a.z = b.z
                 WHERE b.x > {a} GROUP BY a.x) q ON g.x = q.x WHERE g.z = 0"
            ),
            None,
        ),
        // Windows along a dimension.
        ("SELECT x, y, z, v - lag(v) OVER (PARTITION BY y, z ORDER BY x) AS d FROM g".into(), union),
        (format!("SELECT z, y, x, lead(w, 2, 7) OVER (PARTITION BY z, x ORDER BY y DESC) AS l, u FROM g WHERE x > {a} AND z <> 1"), union),
        ("SELECT x, z, avg(v) OVER (PARTITION BY x, y ORDER BY z ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS m FROM g".into(), union),
        (
            "SELECT x, y, z, u, min(w) OVER o AS a, max(v) OVER o AS b, count(w) OVER o AS c, sum(v + 1) OVER o AS s, lag(u, 3) OVER (PARTITION BY y, z ORDER BY x DESC)
             FROM g WINDOW o AS (PARTITION BY z, y ORDER BY x DESC ROWS BETWEEN 2 PRECEDING AND CURRENT ROW)".into(),
            union,
        ),
        (format!("SELECT x, sum(abs(d)), count(d) FROM (SELECT x, v - lag(v, -1) OVER (PARTITION BY x, z ORDER BY y) AS d FROM g) q WHERE x > {a} GROUP BY x"), None),
        ("SELECT x, y, z, sum(v) OVER (PARTITION BY y, z ORDER BY x ROWS BETWEEN 2 FOLLOWING AND 3 FOLLOWING) AS s FROM g".into(), union),
        ("SELECT x, k, lag(k) OVER (ORDER BY x) AS b, lead(x) OVER (ORDER BY x) AS n FROM c".into(), None),
        ("SELECT x, k - lag(k, 1, 7) OVER (ORDER BY x) AS b FROM c".into(), union),
        (format!("SELECT x, y, z, lag(v) OVER (PARTITION BY y, z ORDER BY x) AS b FROM (SELECT * FROM g WHERE v > {t}) q"), None),
        (format!("SELECT x, y, z, lag(v) OVER (PARTITION BY y, z ORDER BY x) AS b FROM (SELECT * FROM g WHERE x > {a}) q"), None),
        ("SELECT x, y, z, lag(w) OVER (PARTITION BY y ORDER BY x, z) AS b FROM g".into(), None),
        ("SELECT x, y, z, avg(v) OVER (PARTITION BY y, z ORDER BY x) AS b FROM g".into(), None),
        ("SELECT g.x, h.x, g.v FROM g JOIN h ON g.x = h.x AND g.y = h.y WHERE g.v = h.v".into(), None),
        ("SELECT g.x, h.v FROM g LEFT JOIN h ON g.x = h.x AND g.y = h.y AND g.z = h.z".into(), None),
    ]
}

/// Of which a large grid would have too many rows.
fn products(a: i64) -> Vec<(String, Option<&'static str>)> {
    vec![
        ("SELECT g.z, h.z, g.x, h.v - g.v FROM g JOIN h ON g.x = h.x AND h.y = g.y".into(), Some("⋈")),
        (
            format!("SELECT h.z, count(*), sum(g.v * h.v) FROM h JOIN g ON g.z = h.z AND g.x > {a} GROUP BY h.z"),
            Some("⋈"),
        ),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn array_plans_answer_as_the_generic_way_does(world in worlds(), a in 0i64..18, t in 0.0f64..100.0) {
        let (native, generic) = (context(true), context(false));
        world.register(&native);
        world.register(&generic);
        for (query, _) in queries(a, t).into_iter().chain(products(a)) {
            let (own, other) = (answer(&native, &query), answer(&generic, &query));
            prop_assert!(is_near(&rows(&own), &rows(&other)),
                "{query}\n{}\n{}\n{}", plan_of(&native, &query),
                pretty_format_batches(&own).unwrap(), pretty_format_batches(&other).unwrap());
        }
    }

    #[test]
    fn the_range_of_a_box_holds_all_of_its_values(world in worlds(), corners in prop::collection::vec(0u64..6, 6)) {
        let shape = &world.shape;
        let (source, model) = array(DataType::Float64, shape, &world.puts[0]);
        let column = Column::new("v", source, vec![(0, 0), (1, 0), (2, 0)]);
        let bounds: Vec<_> = (0..3)
            .map(|d| {
                let (one, other) = (corners[d] % shape[d], corners[d + 3] % shape[d]);
                one.min(other)..one.max(other) + 1
            })
            .collect();
        if let Some((least, greatest)) = column.range(&bounds) {
            for (place, value) in model.iter().enumerate() {
                let (x, y, z) = (place as u64 / (shape[1] * shape[2]), place as u64 / shape[2] % shape[1], place as u64 % shape[2]);
                let is_inside = bounds[0].contains(&x) && bounds[1].contains(&y) && bounds[2].contains(&z);
                prop_assert!(!is_inside || (least..=greatest).contains(value), "{value} in {bounds:?}: {least}..={greatest}");
            }
        }
    }

    /// Steps, of which some have what is no number, or zeroes of both signs.
    #[test]
    fn a_sort_with_a_limit_has_the_rows_of_a_sort_of_all(
        steps in prop::collection::vec((-4i32..4, prop::sample::select(vec![0.0, -0.0, 2.5, f64::NAN, f64::NEG_INFINITY])), 2..30),
        limit in 1usize..50,
        is_descending: bool,
    ) {
        let values = |(step, &(base, odd)): (usize, &(i32, f64))| -> Vec<f64> {
            (0..20).map(|i| if i == step % 20 { odd } else { f64::from(base) + f64::from(i as u32 * 7 % 20) / 8.0 }).collect()
        };
        let all: Vec<Vec<f64>> = steps.iter().enumerate().map(values).collect();
        let context = context(true);
        context.register_table("g", Arc::new(GridTable(Arc::new(of_steps(&all))))).unwrap();
        let order = if is_descending { "DESC" } else { "ASC" };
        let found = rows(&answer(&context, &format!("SELECT v FROM g ORDER BY v {order} LIMIT {limit}")));
        let mut wanted: Vec<f64> = all.concat();
        wanted.sort_by(f64::total_cmp);
        if is_descending {
            wanted.reverse();
        }
        wanted.truncate(limit);
        wanted.sort_by(f64::total_cmp);
        let bits = |values: Vec<f64>| values.into_iter().map(f64::to_bits).collect::<Vec<_>>();
        prop_assert_eq!(bits(found.concat()), bits(wanted));
    }

    #[test]
    fn means_by_each_dimension_are_those_of_a_model(world in worlds()) {
        let native = context(true);
        let model = world.register(&native);
        let shape = &world.shape;
        for (d, name) in ["x", "y", "z"].into_iter().enumerate() {
            let unit: u64 = shape[d + 1..].iter().product();
            let mut sums = vec![0.0; shape[d] as usize];
            for (place, value) in model.iter().enumerate() {
                sums[(place as u64 / unit % shape[d]) as usize] += value;
            }
            let cells = model.len() as f64 / shape[d] as f64;
            let found = rows(&answer(&native, &format!("SELECT {name}, avg(v) FROM g GROUP BY {name}")));
            // Coordinates ascend with the index on every axis here.
            let found: Vec<Vec<f64>> = found.into_iter().map(|row| row[1..].to_vec()).collect();
            let wanted: Vec<Vec<f64>> = sums.iter().map(|sum| vec![sum / cells]).collect();
            prop_assert!(is_near(&found, &wanted), "{name}: {found:?} {wanted:?}");
        }
    }
}

fn large() -> World {
    // Several tiles, in two layers that meet along z.
    let shape = vec![5, 70, 900];
    let part = |start: u64, count: u64, seed| Put {
        offset: vec![0, 0, start],
        count: vec![5, 70, count],
        stride: vec![1; 3],
        seed,
    };
    let whole = |shape: &[u64]| Put {
        offset: vec![0; shape.len()],
        count: shape.into(),
        stride: vec![1; shape.len()],
        seed: 3,
    };
    let puts = vec![
        vec![part(0, 400, 1), part(400, 500, 2)],
        vec![whole(&shape)],
        vec![whole(&[70])],
        vec![whole(&shape)],
        vec![whole(&[5])],
    ];
    World { shape, types: (DataType::Float32, DataType::Int16), shift: 1, puts }
}

/// A quarter of the queries, so that four tests run side by side; together they are all of them.
fn compare_on_large_grids(quarter: usize) {
    let (native, generic) = (context_with(true, ROWS_MANY), context_with(false, ROWS_MANY));
    large().register(&native);
    large().register(&generic);
    let asked: Vec<_> = queries(7, 95.0).into_iter().skip(quarter).step_by(4).collect();
    assert!(asked.len() >= 6);
    for (query, _) in asked {
        assert!(is_near(&rows(&answer(&native, &query)), &rows(&answer(&generic, &query))), "{query}");
    }
}

#[test]
fn tiles_of_large_grids_answer_as_the_generic_way_does_1() {
    compare_on_large_grids(0);
}

#[test]
fn tiles_of_large_grids_answer_as_the_generic_way_does_2() {
    compare_on_large_grids(1);
}

#[test]
fn tiles_of_large_grids_answer_as_the_generic_way_does_3() {
    compare_on_large_grids(2);
}

#[test]
fn tiles_of_large_grids_answer_as_the_generic_way_does_4() {
    compare_on_large_grids(3);
}

#[test]
fn plans_on_dimensions_are_recognised() {
    let native = context(true);
    large().register(&native);
    for (query, wanted) in queries(7, 50.0) {
        let plan = plan_of(&native, &query);
        if let Some(wanted) = wanted {
            let is_generic = plan.contains("HashJoin") || plan.contains("WindowAgg");
            assert!(plan.contains(wanted) && !is_generic, "{query}\n{plan}");
        }
    }
}

#[test]
fn a_limit_reads_no_more_than_it_needs() {
    let native = context(true);
    large().register(&native);
    assert_eq!(rows(&answer(&native, "SELECT x, v FROM g LIMIT 5")).len(), 5);
    assert_eq!(rows(&answer(&native, "SELECT x, v FROM g WHERE v > 10 LIMIT 11")).len(), 11);
}

/// SAVIME: max{-5, -3, -1} was 0, and 2^53 + 1 became 2^53 in sums.
#[test]
fn extremes_of_negative_numbers_and_sums_of_large_ones_are_exact() {
    let context = context(true);
    let column = |name: &str, values: &[i64]| {
        let mut array = MemoryArray::new(DataType::Int64, &[3]);
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        array.put(Region::whole(&[3]).unwrap(), Buffer::from_slice_ref(bytes.as_slice())).unwrap();
        Column::new(name, Arc::new(array), vec![(0, 0)])
    };
    let dimension = Dimension { name: "i".into(), extent: 3, axis: Axis::INDEX };
    let columns = vec![column("a", &[-5, -3, -1]), column("b", &[1 << 53, 1, 0])];
    let grid = Grid::new("g", vec![dimension], columns, false).unwrap();
    context.register_table("g", Arc::new(GridTable(Arc::new(grid)))).unwrap();
    let found = answer(&context, "SELECT max(a), min(a), sum(b) FROM g");
    let text = pretty_format_batches(&found).unwrap().to_string();
    assert!(text.contains("| -1 ") && text.contains("| -5 ") && text.contains("9007199254740993"), "{text}");
}

/// A number along each of two dimensions, and one for each pair.
#[test]
fn not_a_number_compares_the_same_on_both_ways() {
    let values = [f64::NAN, -f64::NAN, 0.0, -0.0, f64::INFINITY, 3.0, -2.0];
    let all: Vec<f64> = (0..49).map(|place| values[(place * 3 + place / 7) % 7]).collect();
    let make = |array_plans, first: usize| {
        let context = context(array_plans);
        let own = &values[first..];
        let count = own.len() as u64;
        let dimension = |name: &str, extent| Dimension { name: name.into(), extent, axis: Axis::INDEX };
        let along = |name: &str, d: usize, values: &[f64]| {
            let mut array = MemoryArray::new(DataType::Float64, &[values.len() as u64]);
            let region = Region::whole(&[values.len() as u64]).unwrap();
            array.put(region, packed(DataType::Float64, values)).unwrap();
            Column::new(name, Arc::new(array), vec![(d, 0)])
        };
        let pairs: Vec<f64> = all.chunks(7).take(own.len()).flatten().copied().collect();
        let columns = vec![
            along("v", 0, own),
            along("w", 1, &values),
            column_of("u", DataType::Float64, &[count, 7], &packed(DataType::Float64, &pairs)),
            column_of(
                "s",
                DataType::Float64,
                &[count, 7],
                &packed(DataType::Float64, &pairs[..].iter().rev().copied().collect::<Vec<_>>()),
            ),
        ];
        let grid = Grid::new("g", vec![dimension("i", count), dimension("j", 7)], columns, false).unwrap();
        context.register_table("g", Arc::new(GridTable(Arc::new(grid)))).unwrap();
        context
    };
    // Without a NaN of one's own, too.
    for first in [0, 2] {
        let (native, generic) = (make(true, first), make(false, first));
        let compared = ["v", "w", "u", "s", "0.0", "2.5", "3.0", "-0.0"];
        for (left, right) in ["v", "w", "u"].into_iter().flat_map(|left| compared.map(|right| (left, right))) {
            for operator in [">", ">=", "<", "<=", "=", "<>"] {
                let scan = format!("SELECT i, j FROM g WHERE {left} {operator} {right}");
                // A filter above the scan is DataFusion's own.
                let other = format!("SELECT i, j FROM (SELECT * FROM g LIMIT 100) WHERE {left} {operator} {right}");
                assert_eq!(rows(&answer(&native, &scan)), rows(&answer(&generic, &other)), "{scan}");
                let count = format!("SELECT count(*) FROM g WHERE {left} {operator} {right}");
                assert_eq!(rows(&answer(&native, &count)), rows(&answer(&generic, &count)), "{count}");
            }
        }
    }
}

/// As 0/0 is on x86. Which of several NaNs is the greatest is chance, unless it has no sign.
#[test]
fn a_nan_whose_sign_is_set_is_the_greatest_too() {
    let values = [1.0, -f64::NAN, 3.0, 2.0, 5.0, f64::NAN];
    let column = || column_of("v", DataType::Float64, &[6], &packed(DataType::Float64, &values));
    let dimension = || Dimension { name: "x".into(), extent: 6, axis: Axis::INDEX };
    let (native, generic) = on_both_ways(&|| vec![Grid::new("g", vec![dimension()], vec![column()], false).unwrap()]);
    let moving = "max(v) OVER (ORDER BY x ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS a, \
                  min(v) OVER (ORDER BY x ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS b";
    for context in [&native, &generic] {
        let found = answer(context, &format!("SELECT a, b FROM (SELECT x, {moving} FROM g) ORDER BY x"));
        let text = pretty_format_batches(&found).unwrap().to_string();
        let numbers: Vec<&str> = text
            .lines()
            .skip(3)
            .flat_map(|line| line.split(['|', ' ', '+', '-']))
            .filter(|word| !word.is_empty())
            .collect();
        assert_eq!(
            numbers,
            ["1.0", "1.0", "NaN", "1.0", "NaN", "3.0", "3.0", "2.0", "5.0", "2.0", "NaN", "5.0"],
            "{text}"
        );
        let found = rows(&answer(context, "SELECT max(v), min(v) FROM g"));
        assert!(found[0][0].is_nan() && found[0][0].is_sign_positive() && found[0][1] == 1.0, "{found:?}");
        assert_eq!(rows(&answer(context, "SELECT x FROM g WHERE v = (SELECT max(v) FROM g)")), [[5.0]]);
    }
}

#[test]
fn what_may_fail_for_a_row_is_counted_row_by_row() {
    let column = |name: &str, values: &[f64]| column_of(name, DataType::Int32, &[3], &packed(DataType::Int32, values));
    let dimension = || Dimension { name: "x".into(), extent: 3, axis: Axis::INDEX };
    let columns = || vec![column("i", &[1.0, 2.0, 3.0]), column("j", &[1.0, 0.0, 1.0])];
    let (native, _) = on_both_ways(&|| vec![Grid::new("g", vec![dimension()], columns(), false).unwrap()]);
    for query in [
        "SELECT count(i / j) FROM g",
        "SELECT i % 2, count(i % j) FROM g GROUP BY 1",
        "SELECT x, count(i / j) FROM g GROUP BY x",
    ] {
        assert!(is_refused(&native, query), "{query}");
    }
    assert_eq!(rows(&answer(&native, "SELECT count(i + j) FROM g")), [[3.0]]);
}

/// Of which most steps have none.
#[test]
fn cells_at_the_greatest_of_their_place_are_looked_for_where_they_may_be() {
    let (native, generic) = on_both_ways(&|| {
        let steps: Vec<Vec<f64>> = (0..8).map(|step| (0..100).map(|i| f64::from(step * 100 + i)).collect()).collect();
        vec![of_steps(&steps)]
    });
    let query = "SELECT time, g.x FROM g JOIN (SELECT x, max(v) AS m FROM g GROUP BY x) q ON g.x = q.x WHERE v = m";
    assert_eq!(texts(&native, query), texts(&generic, query));
    let said = pretty_format_batches(&answer(&native, &format!("EXPLAIN ANALYZE {query}"))).unwrap().to_string();
    let line = said.lines().find(|line| line.contains("GridScan")).unwrap_or_else(|| panic!("{said}"));
    let left_out = line.split_once("tiles_left_out=").unwrap().1.split([',', ']']).next().unwrap().parse::<u64>();
    // Before the greatest are known, a tile of each partition may have been read.
    assert!(left_out.unwrap() >= 5, "{line}");
}

#[test]
fn cells_at_the_extremes_of_their_planes_are_those_of_the_generic_way() {
    let (native, generic) = on_both_ways(&|| vec![]);
    for context in [&native, &generic] {
        const SHAPE: [u64; 2] = [3, 200_000];
        let values = |by: u64| (0..SHAPE[0] * SHAPE[1]).map(|i| (i * by % 600_011) as f64).collect::<Vec<_>>();
        let column =
            |name: &str, values: &[f64]| column_of(name, DataType::Float64, &SHAPE, &packed(DataType::Float64, values));
        let mut with_nan = values(7919);
        with_nan[250_000] = f64::NAN;
        let columns = vec![column("v", &values(7919)), column("w", &with_nan)];
        let dimension = |(name, extent): (&str, u64)| Dimension { name: name.into(), extent, axis: Axis::INDEX };
        let dimensions = [("x", SHAPE[0]), ("y", SHAPE[1])].into_iter().map(dimension).collect();
        let grid = Grid::new("g", dimensions, columns, false).unwrap();
        context.register_table("g", Arc::new(GridTable(Arc::new(grid)))).unwrap();
    }
    let of = |column| [("max", "="), ("min", "="), ("max", ">="), ("avg", "<>")].map(|(what, how)| (column, what, how));
    for (column, aggregate, operator) in of("v").into_iter().chain(of("w")) {
        let query = format!(
            "SELECT g.x, count(*), min(y) FROM g JOIN (SELECT x, {aggregate}({column}) AS m FROM g GROUP BY x) q \
             ON g.x = q.x WHERE {column} {operator} m GROUP BY g.x"
        );
        assert_eq!(texts(&native, &query), texts(&generic, &query), "{query}");
    }
}

#[test]
fn groups_by_whole_numbers_of_values_are_those_of_the_generic_way() {
    const SHAPE: [u64; 2] = [600, 500];
    const CELLS: u64 = SHAPE[0] * SHAPE[1];
    let (native, generic) = on_both_ways(&|| vec![]);
    for context in [&native, &generic] {
        let of = |value: &dyn Fn(u64) -> f64| (0..CELLS).map(value).collect::<Vec<f64>>();
        let column =
            |name: &str, data_type, values: &[f64]| column_of(name, data_type, &SHAPE, &packed(data_type, values));
        let columns = vec![
            column("v", DataType::Float64, &of(&|i| (i * 7919 % 100_003) as f64 / 8.0 - 3000.0)),
            column("f", DataType::Float32, &of(&|i| if i % 5003 == 7 { f64::NAN } else { (i % 97) as f64 })),
            column("i", DataType::Int32, &of(&|i| (i * 31 % 1000) as f64 - 500.0)),
            column("u", DataType::UInt8, &of(&|i| (i % 251) as f64)),
            column("l", DataType::Int64, &of(&|i| (i * 104_729 % CELLS) as f64 * 1e9)),
        ];
        let dimension = |(name, extent): (&str, u64)| Dimension { name: name.into(), extent, axis: Axis::INDEX };
        let dimensions = [("x", SHAPE[0]), ("y", SHAPE[1])].into_iter().map(dimension).collect();
        let grid = Grid::new("g", dimensions, columns, false).unwrap();
        context.register_table("g", Arc::new(GridTable(Arc::new(grid)))).unwrap();
    }
    for query in [
        "SELECT CAST(floor(v / 50) AS BIGINT) AS k, count(*), sum(v), avg(v), min(i), max(l) FROM g GROUP BY k",
        "SELECT i, count(*), max(f), min(f), sum(u * 0.5) FROM g GROUP BY i",
        "SELECT u % 7 AS k, max(v) AS m FROM g WHERE v > 100 AND i <> 3 GROUP BY k HAVING max(v) > 9000 ORDER BY k LIMIT 3",
        "SELECT x + y AS k, count(u), min(u) FROM g GROUP BY k",
        "SELECT DISTINCT i FROM g WHERE y < 3",
        "SELECT u AS k, count(*) FROM g WHERE v > 1e9 GROUP BY u",
        // More groups than a table has; and one for each cell.
        "SELECT l / 3000000000 AS k, count(*), max(v) FROM g GROUP BY k",
        "SELECT l, count(*), max(v), min(u), sum(v) FROM g GROUP BY l",
        // It fails for cells that are no rows.
        "SELECT 1000 / i AS k, count(*) FROM g WHERE i <> 0 GROUP BY k",
        "SELECT k, avg(m) FROM (SELECT i AS k, max(v) AS m FROM g GROUP BY i) GROUP BY k",
        // Names are the query's own, and a limit is of what is sorted.
        "SELECT 1000 - i AS key FROM g GROUP BY i ORDER BY key LIMIT 3",
        "SELECT i, 0 - max(v) AS s0 FROM g GROUP BY i ORDER BY s0 DESC, i LIMIT 3",
        "SELECT i AS rows, max(v) AS key FROM g GROUP BY i ORDER BY key DESC, rows LIMIT 4",
    ] {
        assert!(plan_of(&native, query).contains("GridClasses"), "{query}\n{}", plan_of(&native, query));
        assert_eq!(texts(&native, query), texts(&generic, query), "{query}");
    }
    let of_groups = "SELECT CAST(floor(m / 10) AS BIGINT) AS k, count(*) FROM (SELECT x, max(v) AS m FROM g GROUP BY x) q GROUP BY k";
    assert_eq!(texts(&native, of_groups), texts(&generic, of_groups));
    for query in [
        of_groups,
        "SELECT v, count(*) FROM g GROUP BY v",
        "SELECT i, sum(i) FROM g GROUP BY i",
        "SELECT i, u, count(*) FROM g GROUP BY i, u",
    ] {
        assert!(!plan_of(&native, query).contains("GridClasses"), "{query}");
    }
}

/// Steps of rising values, one region each: what can't have rows is not read, and EXPLAIN says so.
#[test]
fn regions_that_cannot_have_rows_are_left_out() {
    let (native, generic) = (context(true), context(false));
    for context in [&native, &generic] {
        let rising = |step| (0..100).map(|i| f64::from(step * 100 + i)).collect();
        let mut steps: Vec<Vec<f64>> = (0..8).map(rising).collect();
        // The seventh has no range.
        steps[6] = vec![f64::NAN; 100];
        context.register_table("g", Arc::new(GridTable(Arc::new(of_steps(&steps))))).unwrap();
    }
    for (condition, pruned) in
        [("v > 650", 6), ("v >= 199 AND v < 201", 5), ("v = 250", 6), ("v <> 3", 0), ("v > 799", 7), ("150 > v", 5)]
    {
        for query in [
            format!("SELECT time, x, v FROM g WHERE {condition}"),
            format!("SELECT time, count(*), sum(v) FROM g WHERE {condition} AND v < 1000 GROUP BY time"),
        ] {
            let plan = plan_of(&native, &query);
            let said = format!("pruned={pruned}");
            assert!(if pruned > 0 { plan.contains(&said) } else { !plan.contains("pruned") }, "{said}\n{plan}");
            // A filter above the scan is DataFusion's own.
            let other = query.replace("FROM g", "FROM (SELECT * FROM g LIMIT 10000) g");
            assert!(is_near(&rows(&answer(&native, &query)), &rows(&answer(&generic, &other))), "{query}");
        }
    }
}

/// One region for each step.
fn of_steps(steps: &[Vec<f64>]) -> Grid {
    let cells = steps[0].len() as u64;
    let mut array = MemoryArray::new(DataType::Float64, &[steps.len() as u64, cells]);
    for (step, values) in steps.iter().enumerate() {
        array.put(Region::block(&[step as u64, 0], &[1, cells]).unwrap(), packed(DataType::Float64, values)).unwrap();
    }
    let dimensions = [("time", steps.len() as u64), ("x", cells)]
        .map(|(name, extent)| Dimension { name: name.into(), extent, axis: Axis::INDEX })
        .into();
    Grid::new("g", dimensions, vec![Column::new("v", Arc::new(array), vec![(0, 0), (1, 0)])], false).unwrap()
}

#[test]
fn a_sort_with_a_limit_reads_those_regions_alone_that_may_have_its_rows() {
    let context = context(true);
    let steps: Vec<Vec<f64>> =
        (0..200).map(|step| (0..500).map(|i| f64::from(step * 37 % 200 * 500 + i)).collect()).collect();
    context.register_table("g", Arc::new(GridTable(Arc::new(of_steps(&steps))))).unwrap();
    for (order, first) in [("DESC", 99_999.0), ("ASC", 0.0)] {
        let query = format!("SELECT time, x, v FROM g ORDER BY v {order} LIMIT 3");
        assert!(rows(&answer(&context, &query)).iter().any(|row| row[2] == first), "{order}");
        let said = pretty_format_batches(&answer(&context, &format!("EXPLAIN ANALYZE {query}"))).unwrap().to_string();
        let line = said.lines().find(|line| line.contains("GridScan")).unwrap_or_else(|| panic!("{said}"));
        let number = |metric: &str| line.split_once(metric).unwrap().1.split([',', ']']).next().unwrap().parse::<u64>();
        let (read, left_out) = (number("tiles_read=").unwrap(), number("tiles_left_out=").unwrap());
        // A thread reads a few ahead of what the sort has seen.
        assert!(read + left_out == 200 && read < 30, "{order}: {line}");
    }
}

/// What EXPLAIN ANALYZE says of array plans: all tiles of what was asked for, once, and the rows that came of them.
#[test]
fn explain_analyze_tells_what_was_read() {
    let context = context(true);
    let steps: Vec<Vec<f64>> = (0..8).map(|step| (0..100).map(|i| f64::from(step * 100 + i)).collect()).collect();
    context.register_table("g", Arc::new(GridTable(Arc::new(of_steps(&steps))))).unwrap();
    for (query, leaf, cells, rows) in [
        ("SELECT time, sum(v) FROM g GROUP BY time", "GridReduce", 800, 8),
        ("SELECT time, x, v FROM g WHERE v > 649", "GridScan", 200, 150),
    ] {
        let said = pretty_format_batches(&answer(&context, &format!("EXPLAIN ANALYZE {query}"))).unwrap().to_string();
        let line = said.lines().find(|line| line.contains(leaf)).unwrap_or_else(|| panic!("{said}"));
        for metric in
            [format!("cells_read={cells}"), format!("output_rows={rows}"), "tiles_read=".into(), "tiles_time=".into()]
        {
            assert!(line.contains(&metric), "{metric}: {line}");
        }
    }
}

/// A table of the given dimensions and columns of 64-bit and other numbers, on both ways.
fn on_both_ways(grids: &dyn Fn() -> Vec<Grid>) -> (SessionContext, SessionContext) {
    let of = |array_plans| {
        let context = context(array_plans);
        for grid in grids() {
            context.register_table(grid.name.clone(), Arc::new(GridTable(Arc::new(grid)))).unwrap();
        }
        context
    };
    (of(true), of(false))
}

fn column_of(name: &str, data_type: DataType, shape: &[u64], bytes: &[u8]) -> Column {
    let mut array = MemoryArray::new(data_type, shape);
    array.put(Region::whole(shape).unwrap(), Buffer::from_slice_ref(bytes)).unwrap();
    Column::new(name, Arc::new(array), (0..shape.len()).map(|d| (d, 0)).collect())
}

/// Rows as text, sorted: numbers as they are, not as floats.
fn texts(context: &SessionContext, query: &str) -> Vec<String> {
    let text = pretty_format_batches(&answer(context, query)).unwrap().to_string();
    let mut lines: Vec<String> = text.lines().map(String::from).collect();
    lines.sort();
    lines
}

fn is_refused(context: &SessionContext, query: &str) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { context.sql(query).await?.collect().await }).is_err()
}

#[test]
fn coordinates_that_repeat_are_one_group_and_meet_each_other() {
    let explicit = |values: &[f64]| Axis::Explicit(Arc::new(Float64Array::from(values.to_vec())));
    for axis in [
        explicit(&[1.0, 1.0, 2.0, 2.0]),
        explicit(&[3.0, 1.0, 2.0, 1.0]),
        explicit(&[f64::NAN, 1.0, f64::NAN, 2.0]),
        explicit(&[-0.0, 0.0, 1.0, 2.0]),
        Axis::Integer { low: 5, step: 0 },
        Axis::Integer { low: 5, step: i64::MIN },
        Axis::Real { low: 5.0, step: 0.0 },
        Axis::Real { low: 1e17, step: 1.0 },
        Axis::Real { low: f64::NAN, step: 1.0 },
        Axis::Real { low: 1.0, step: f64::INFINITY },
    ] {
        let values: Vec<f64> = (0..12).map(f64::from).collect();
        let (native, generic) = on_both_ways(&|| {
            let dimensions = vec![
                Dimension { name: "x".into(), extent: 4, axis: axis.clone() },
                Dimension { name: "y".into(), extent: 3, axis: Axis::INDEX },
            ];
            let v = column_of("v", DataType::Float64, &[4, 3], &packed(DataType::Float64, &values));
            vec![Grid::new("g", dimensions, vec![v], false).unwrap()]
        });
        for query in [
            "SELECT x, sum(v) AS s, count(*) AS n FROM g GROUP BY x",
            "SELECT DISTINCT x FROM g",
            "SELECT count(*) AS n FROM g a JOIN g b ON a.x = b.x AND a.y = b.y",
            "SELECT a.x, sum(a.v * b.v) AS s FROM g a JOIN g b ON a.x = b.x AND a.y = b.y GROUP BY a.x",
        ] {
            assert_eq!(texts(&native, query), texts(&generic, query), "{axis:?}: {query}");
        }
        assert!(plan_of(&native, "SELECT y, sum(v) FROM g GROUP BY y").contains("GridReduce"));
    }
    // Once each, in any order: nothing but arrays is needed.
    for axis in
        [explicit(&[3.0, 1.0, 2.0, 0.5]), Axis::Real { low: 1e9, step: 1e-6 }, Axis::Integer { low: 9, step: -3 }]
    {
        let (native, _) = on_both_ways(&|| {
            let dimensions = vec![Dimension { name: "x".into(), extent: 4, axis: axis.clone() }];
            let v = column_of("v", DataType::Float64, &[4], &packed(DataType::Float64, &[1.0; 4]));
            vec![Grid::new("g", dimensions, vec![v], false).unwrap()]
        });
        assert!(plan_of(&native, "SELECT x, sum(v) FROM g GROUP BY x").contains("GridReduce"), "{axis:?}");
    }
}

#[test]
fn sums_of_casts_are_sums_of_what_was_cast() {
    let (native, generic) = on_both_ways(&|| {
        let bytes = |values: [i64; 5]| values.map(i64::to_le_bytes).concat();
        let columns = vec![
            column_of("v", DataType::Float64, &[5], &packed(DataType::Float64, &[0.6, 0.6, 0.6, 0.6, -0.6])),
            column_of("f", DataType::Float32, &[5], &packed(DataType::Float32, &[0.6, 0.6, 0.6, 0.6, -0.6])),
            column_of("i", DataType::Int64, &[5], &bytes([1 << 62, 1 << 62, 1 << 62, 1 << 62, 1])),
            column_of("u", DataType::UInt64, &[5], &bytes([7, 8, 9, 10, 11])),
            column_of("h", DataType::UInt64, &[5], &bytes([-1, -1, -1, -1, 1])),
            column_of("s", DataType::Int16, &[5], &packed(DataType::Int16, &[-128.0, 127.0, 0.0, -1.0, 5.0])),
            column_of("b", DataType::UInt8, &[5], &packed(DataType::UInt8, &[255.0, 127.0, 0.0, 1.0, 5.0])),
        ];
        let dimension = Dimension { name: "x".into(), extent: 5, axis: Axis::INDEX };
        vec![Grid::new("g", vec![dimension], columns, false).unwrap()]
    });
    for query in [
        "SELECT sum(CAST(v AS BIGINT)) AS a, avg(CAST(v AS BIGINT)) AS b, sum(CAST(f AS BIGINT)) AS c FROM g",
        "SELECT sum(CAST(v AS INT)) AS a, min(CAST(v AS BIGINT)) AS b, max(CAST(f AS INT)) AS c FROM g",
        "SELECT sum(CAST(i AS DOUBLE)) AS a, avg(i) AS b, sum(CAST(h AS DOUBLE)) AS c, avg(h) AS d FROM g",
        "SELECT x, sum(CAST(u AS BIGINT)) AS a, avg(u) AS b FROM g GROUP BY x",
        "SELECT x, sum(u) AS a FROM g GROUP BY x",
        "SELECT x, sum(CAST(u AS DOUBLE)) AS a FROM g GROUP BY x",
        "SELECT sum(f) AS a, sum(s) AS b, sum(b) AS c, avg(b) AS d FROM g",
        "SELECT sum(CAST(s AS DOUBLE)) AS a, sum(CAST(b AS DOUBLE)) AS b, sum(CAST(f AS DOUBLE)) AS c FROM g",
    ] {
        assert_eq!(texts(&native, query), texts(&generic, query), "{query}");
    }
    for query in ["SELECT sum(CAST(h AS BIGINT)) FROM g", "SELECT sum(arrow_cast(s, 'UInt64')) FROM g"] {
        assert!(is_refused(&native, query) && is_refused(&generic, query), "{query}");
    }
    let plan = plan_of(&native, "SELECT x, sum(f), sum(s), avg(i), sum(b) FROM g GROUP BY x");
    assert!(plan.contains("GridReduce"), "{plan}");
}

/// The engine's own sums went round: twice the greatest integer was -2.
#[test]
fn sums_of_64_bit_integers_are_exact_or_an_error() {
    const COUNT: usize = 40;
    let (native, generic) = on_both_ways(&|| {
        let column = |name: &str, data_type: DataType, value: &dyn Fn(usize) -> i64| {
            let bytes: Vec<u8> = (0..COUNT).flat_map(|x| value(x).to_le_bytes()).collect();
            column_of(name, data_type, &[COUNT as u64], &bytes)
        };
        let columns = vec![
            // Leaves 64 bits on the way, and comes back.
            column("back", DataType::Int64, &|x| if x < COUNT / 2 { i64::MAX } else { -i64::MAX + (x % 2) as i64 }),
            column("high", DataType::Int64, &|x| if x > 30 { i64::MAX } else { 1 }),
            column("low", DataType::Int64, &|x| if x > 30 { i64::MIN } else { 1 }),
            column("u", DataType::UInt64, &|x| if x == 7 { i64::MIN } else { 3 }),
            column("full", DataType::UInt64, &|x| if x == 7 { -1 } else { 3 }),
        ];
        let dimension = Dimension { name: "x".into(), extent: COUNT as u64, axis: Axis::INDEX };
        vec![Grid::new("g", vec![dimension], columns, false).unwrap()]
    });
    let both = |query: &str, wanted: &str| {
        let found = texts(&native, query);
        assert_eq!(found, texts(&generic, query), "{query}");
        assert!(found.iter().any(|line| line.contains(wanted)), "{query}: {found:?}");
    };
    both("SELECT sum(back) AS s FROM g", "| 10 ");
    both("SELECT sum(back) FILTER (WHERE x % 2 = 1) AS s FROM g", "| 10 ");
    both("SELECT sum(CASE WHEN x % 2 = 1 THEN back END) AS s FROM g", "| 10 ");
    both("SELECT sum(u) AS s FROM g", "| 9223372036854775925 ");
    both("SELECT x % 3 AS m, sum(u) AS s FROM g GROUP BY x % 3", "| 1 | 9223372036854775844 ");
    both("SELECT x, sum(high) AS s FROM g GROUP BY x", "| 39 | 9223372036854775807 ");
    both("SELECT x / 20 AS h, sum(CASE WHEN x < 0 THEN u END) AS s FROM g GROUP BY x / 20", "| 1 |   ");
    both(
        "SELECT x, sum(low) OVER (ORDER BY x ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) AS s FROM g WHERE x < 32",
        "| 31 | -9223372036854775807 ",
    );
    for query in [
        "SELECT sum(high) FROM g",
        "SELECT sum(low) FROM g",
        "SELECT sum(full) FROM g",
        "SELECT sum(high + 0) FROM g WHERE x <> 3",
        "SELECT x % 2, sum(high) FROM g GROUP BY x % 2",
        "SELECT x % 2, sum(full) FROM g GROUP BY x % 2",
        "SELECT sum(low) OVER (ORDER BY x ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM g",
        "SELECT count(*) FROM g JOIN (SELECT sum(high) AS s FROM g) t ON g.high < t.s",
    ] {
        assert!(is_refused(&native, query) && is_refused(&generic, query), "{query}");
    }
    assert!(plan_of(&native, "SELECT sum(high) FROM g").contains("GridReduce"));
}

/// One dimension under two names, as a join of two tables has it.
#[test]
fn a_filter_that_names_a_dimension_twice_is_kept_in_a_join_with_an_aggregate() {
    let values: Vec<f64> = (0..300).map(f64::from).collect();
    let (native, generic) = on_both_ways(&|| {
        let of = |name: &str| {
            let dimensions = [("x", 100), ("y", 3)]
                .map(|(name, extent)| Dimension { name: name.into(), extent, axis: Axis::INDEX })
                .into();
            let column =
                column_of(&format!("v{name}"), DataType::Float64, &[100, 3], &packed(DataType::Float64, &values));
            Grid::new(name, dimensions, vec![column], false).unwrap()
        };
        ["a", "b", "c"].map(of).into()
    });
    for condition in ["a.x + b.x < 10", "a.x + b.x > 190", "a.x * b.x = 2500", "a.x < 90 AND a.x + b.x > 60"] {
        let query = format!(
            "SELECT q.x, q.s, vc FROM c JOIN
             (SELECT a.x, sum(va * vb) AS s FROM a JOIN b ON a.x = b.x AND a.y = b.y WHERE {condition} GROUP BY a.x) q ON q.x = c.x"
        );
        assert!(plan_of(&native, &query).contains("⋈"), "{query}");
        assert_eq!(rows(&answer(&native, &query)), rows(&answer(&generic, &query)), "{query}");
    }
}

#[test]
fn expressions_are_not_evaluated_on_cells_that_are_no_rows() {
    let (native, generic) = on_both_ways(&|| {
        let dimensions = [("x", 2), ("y", 4)]
            .map(|(name, extent)| Dimension { name: name.into(), extent, axis: Axis::INDEX })
            .into();
        let b = [2.0, 0.0, 5.0, 10.0, 0.0, 0.0, 1.0, 0.0];
        let column = column_of("b", DataType::Int32, &[2, 4], &packed(DataType::Int32, &b));
        let w = column_of(
            "w",
            DataType::Int64,
            &[2, 4],
            &packed(DataType::Int64, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]),
        );
        vec![Grid::new("g", dimensions, vec![column, w], false).unwrap()]
    });
    for query in [
        "SELECT sum(10 / b) AS s, count(*) AS n FROM g WHERE b <> 0",
        "SELECT x, sum(10 / b) AS s, min(10 / b) AS l, max(w / b) AS m FROM g WHERE b <> 0 GROUP BY x",
        "SELECT y, x, avg(w / b) AS s FROM g WHERE b > 0 AND w < 8 GROUP BY x, y",
    ] {
        assert!(plan_of(&native, query).contains("GridReduce"), "{query}");
        assert_eq!(texts(&native, query), texts(&generic, query), "{query}");
    }
    assert_eq!(rows(&answer(&native, "SELECT x, y FROM g WHERE b <> 0 AND 10 / b > 4")), [[0.0, 0.0], [1.0, 2.0]]);
    assert!(is_refused(&native, "SELECT sum(10 / b) AS s FROM g"));
}

/// A plan of the memory of few groups.
#[test]
fn groups_and_medians_that_do_not_fit_into_memory_are_computed_after_one_another() {
    use crate::datafusion::execution::memory_pool::GreedyMemoryPool;
    use crate::datafusion::execution::runtime_env::RuntimeEnvBuilder;
    const SHAPE: [u64; 3] = [13, 40, 31];
    const COUNT: u64 = 13 * 40 * 31;
    let pool = |bytes| RuntimeEnvBuilder::new().with_memory_pool(Arc::new(GreedyMemoryPool::new(bytes))).build_arc();
    let of = |array_plans, bytes| {
        let config = SessionConfig::new().with_target_partitions(2).with_batch_size(ROWS_MANY);
        let mut state = SessionStateBuilder::new().with_config(config).with_default_features();
        state = state.with_runtime_env(pool(bytes).unwrap());
        if array_plans {
            state = array_rules().into_iter().fold(state, SessionStateBuilder::with_optimizer_rule);
        }
        let mut context = SessionContext::new_with_state(state.build());
        register_functions(&mut context).unwrap();
        let dimension = |(name, extent): (&str, u64)| Dimension { name: name.into(), extent, axis: Axis::INDEX };
        let dimensions = ["x", "y", "z"].into_iter().zip(SHAPE).map(dimension).collect();
        let values = |by: u64, least: f64| (0..COUNT).map(|i| (i * by % 10007) as f64 + least).collect::<Vec<f64>>();
        let column =
            |name: &str, data_type, values: &[f64]| column_of(name, data_type, &SHAPE, &packed(data_type, values));
        let columns = vec![
            column("v", DataType::Float64, &values(7919, -5000.25)),
            column("f", DataType::Float32, &values(31, -0.1)),
            column("i", DataType::Int32, &values(5003, -5000.0)),
            column("l", DataType::Int64, &values(101, -9e15)),
        ];
        let grid = Grid::new("g", dimensions, columns, false).unwrap();
        context.register_table("g", Arc::new(GridTable(Arc::new(grid)))).unwrap();
        context
    };
    // All values are 129 KB, and sums of all cells twice that.
    let (small, generic) = (of(true, 64 << 10), of(false, usize::MAX));
    for query in [
        "SELECT x, y, z, sum(v) AS s, max(i) AS m, count(*) AS n FROM g GROUP BY x, y, z",
        "SELECT z, y, x, sum(v) AS s FROM g WHERE i > 0 AND y <> 7 GROUP BY z, x, y",
        "SELECT x, median(v) AS a, median(f) AS b, median(i) AS c, median(l) AS d FROM g GROUP BY x",
        "SELECT z, y, median(v) AS a, sum(i) AS s FROM g WHERE x BETWEEN 2 AND 9 GROUP BY y, z",
        "SELECT y, median(v) AS a, count(*) AS n FROM g WHERE v > 3000 OR z = 4 GROUP BY y",
        "SELECT x, median(v * 2) AS a, median(l - 1) AS b FROM g WHERE f > 100 GROUP BY x",
        "SELECT x % 3 AS k, y, z, sum(v) AS s, max(i) AS m, count(*) AS n FROM g GROUP BY k, y, z",
        "SELECT z / 4 AS k, y % 2 AS o, x, median(v) AS a FROM g GROUP BY k, o, x",
        "SELECT median(v) AS a FROM g WHERE x = 1 AND y < 9",
        "SELECT median(v) AS a FROM g WHERE v > 1e9 AND x = 3",
    ] {
        assert!(plan_of(&small, query).contains("GridReduce"), "{query}");
        assert_eq!(texts(&small, query), texts(&generic, query), "{query}");
    }
    // One group has more values than there is memory.
    assert!(is_refused(&small, "SELECT median(v) FROM g"));
    let plenty = of(true, 16 << 20);
    for query in [
        "SELECT median(v) AS a, median(l) AS b FROM g",
        "SELECT median(q.a) AS m FROM (SELECT x, median(v) AS a FROM g GROUP BY x) q",
    ] {
        assert_eq!(texts(&plenty, query), texts(&generic, query), "{query}");
    }
    let join = "SELECT g.x, count(*) AS n FROM g JOIN (SELECT x, median(v) AS m FROM g GROUP BY x) q ON g.x = q.x WHERE g.v > q.m GROUP BY g.x";
    assert_eq!(texts(&plenty, join), texts(&generic, join));
}

#[test]
fn a_sort_with_a_limit_reads_columns_of_the_rows_that_may_be_among_its_own() {
    let (native, generic) = on_both_ways(&|| vec![]);
    answer(&generic, "SET datafusion.optimizer.enable_topk_dynamic_filter_pushdown = false");
    const COUNT: u64 = 300_000;
    for context in [&native, &generic] {
        let column = |name: &str, values: Vec<f64>| {
            column_of(name, DataType::Float64, &[COUNT], &packed(DataType::Float64, &values))
        };
        let v = (0..COUNT).map(|i| if i % 5003 == 7 { f64::NAN } else { (i * 7919 % 100_003) as f64 }).collect();
        let columns = vec![column("v", v), column("w", (0..COUNT).map(|i| (i % 17) as f64).collect())];
        let dimension = Dimension { name: "x".into(), extent: COUNT, axis: Axis::INDEX };
        let grid = Grid::new("g", vec![dimension], columns, false).unwrap();
        context.register_table("g", Arc::new(GridTable(Arc::new(grid)))).unwrap();
    }
    for query in [
        "SELECT v, x FROM g ORDER BY v DESC, x LIMIT 100",
        "SELECT x, w FROM g ORDER BY v, x LIMIT 10 OFFSET 3",
        "SELECT w, v, x FROM g ORDER BY w DESC, v DESC, x LIMIT 20",
        "SELECT x FROM g WHERE w > 3 ORDER BY v * w DESC NULLS LAST, x LIMIT 5",
        "SELECT x, v - w AS d FROM g ORDER BY d, x DESC LIMIT 7",
    ] {
        let found = texts(&native, query);
        assert_eq!(found, texts(&generic, query), "{query}");
    }
    let wanted: Vec<Vec<f64>> = (1..=3).map(|n| vec![100_003.0 - n as f64]).rev().collect();
    let top = "SELECT DISTINCT v FROM g WHERE v < 200000 ORDER BY v DESC LIMIT 3";
    assert_eq!(rows(&answer(&native, top)), wanted);
}
