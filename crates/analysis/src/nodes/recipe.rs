//! What another node has to know to do a leaf's work, or its share of it: names of arrays, and not their cells.
//!
//! Numbers and names go by postcard, expressions by DataFusion's own protocol, coordinates and types by Arrow's.

use super::Share;
use super::fault::carried;
use crate::axis::Axis;
use crate::error::{Error, Result};
use crate::exec::{ArrayExec, Work};
use crate::grid::{Column, Dimension, Grid, Meaning};
use crate::reduce::{Function, Input, Key, Merge, Partial, Reduced, Reduction};
use crate::scan::Scan;
use crate::tables::Objects;
use arrow::array::{ArrayRef, RecordBatch};
use arrow::datatypes::{DataType as ArrowType, Field, Schema};
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;
use datafusion::common::internal_err;
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::bytes::Serializeable;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use terrace_client::{DataType, Kind};

/// A leaf, or what merges those of several nodes.
#[derive(Clone, Serialize, Deserialize)]
pub enum Recipe {
    Scan {
        grid: GridRecipe,
        fields: Vec<usize>,
        filters: Vec<Vec<u8>>,
        limit: Option<usize>,
        partitions: usize,
        share: Option<Share>,
    },
    /// States of sums.
    Partial { reduction: ReductionRecipe, share: Option<Share> },
    /// Results of states.
    Merge { reduction: ReductionRecipe, fields: Vec<usize> },
}

#[derive(Clone, Serialize, Deserialize)]
pub struct ReductionRecipe {
    pub grid: GridRecipe,
    pub keys: Vec<KeyRecipe>,
    pub reductions: Vec<OneReduction>,
    /// Of each reduction, as Arrow's schema.
    pub outputs: Vec<u8>,
    pub filters: Vec<Vec<u8>>,
}

#[derive(Clone, Serialize, Deserialize)]
pub struct KeyRecipe {
    dimension: usize,
    of: Vec<Vec<u8>>,
    is_index: bool,
}

#[derive(Clone, Serialize, Deserialize)]
pub struct OneReduction {
    function: Function,
    input: InputRecipe,
    cells: DataType,
    text: String,
}

#[derive(Clone, Serialize, Deserialize)]
enum InputRecipe {
    Rows,
    Column(usize),
    Expression(Vec<u8>),
}

#[derive(Clone, Serialize, Deserialize)]
pub struct GridRecipe {
    name: String,
    dimensions: Vec<(String, u64, AxisRecipe)>,
    columns: Vec<ColumnRecipe>,
    axes: Vec<AxisRecipe>,
    fields: Vec<(String, Meaning)>,
    is_sparse: bool,
    presence: Vec<usize>,
}

#[derive(Clone, Serialize, Deserialize)]
struct ColumnRecipe {
    name: String,
    array: String,
    identity: u64,
    /// As it was seen by who asks.
    shape: Vec<u64>,
    data_type: DataType,
    along: Vec<(usize, i64)>,
}

#[derive(Clone, Serialize, Deserialize)]
enum AxisRecipe {
    Integer(i64, i64),
    Real(f64, f64),
    /// A batch of one column.
    Explicit(Vec<u8>),
}

fn batch_bytes(batch: &RecordBatch) -> Result<Vec<u8>> {
    let mut bytes = vec![];
    let mut writer = StreamWriter::try_new(&mut bytes, &batch.schema())?;
    writer.write(batch)?;
    writer.finish()?;
    drop(writer);
    Ok(bytes)
}

fn batch_of(bytes: &[u8]) -> Result<RecordBatch> {
    let mut batches = StreamReader::try_new(bytes, None)?;
    batches.next().unwrap_or_else(|| Ok(RecordBatch::new_empty(batches.schema()))).map_err(Into::into)
}

impl AxisRecipe {
    fn of(axis: &Axis, extent: u64) -> Result<AxisRecipe> {
        Ok(match axis {
            Axis::Integer { low, step } => AxisRecipe::Integer(*low, *step),
            Axis::Real { low, step } => AxisRecipe::Real(*low, *step),
            Axis::Explicit(values) => {
                let values = values.slice(0, extent as usize);
                let field = Field::new("c", values.data_type().clone(), values.null_count() > 0);
                let batch = RecordBatch::try_new(Arc::new(Schema::new(vec![field])), vec![values])?;
                AxisRecipe::Explicit(batch_bytes(&batch)?)
            }
        })
    }

    fn axis(&self) -> Result<Axis> {
        Ok(match self {
            AxisRecipe::Integer(low, step) => Axis::Integer { low: *low, step: *step },
            AxisRecipe::Real(low, step) => Axis::Real { low: *low, step: *step },
            AxisRecipe::Explicit(bytes) => {
                let values: ArrayRef = batch_of(bytes)?.column(0).clone();
                Axis::Explicit(values)
            }
        })
    }
}

impl GridRecipe {
    /// `None`: it has a column that is no array, as a computed one.
    pub fn of(grid: &Grid) -> Result<Option<GridRecipe>> {
        let mut columns = vec![];
        for column in &grid.columns {
            let Some((array, identity)) = column.source.shared_array() else { return Ok(None) };
            columns.push(ColumnRecipe {
                name: column.name.clone(),
                array,
                identity,
                shape: column.source.shape().to_vec(),
                data_type: column.data_type(),
                along: column.along.clone(),
            });
        }
        let dimensions =
            grid.dimensions.iter().map(|d| Ok((d.name.clone(), d.extent, AxisRecipe::of(&d.axis, d.extent)?)));
        let extent_along = |number: usize| {
            let of = grid.fields.iter().find_map(|field| match *field {
                Meaning::Along { dimension, axis } if axis == number => Some(grid.dimensions[dimension].extent),
                _ => None,
            });
            of.unwrap_or(0)
        };
        let axes = grid.axes.iter().enumerate().map(|(number, axis)| AxisRecipe::of(axis, extent_along(number)));
        let names = grid.schema();
        Ok(Some(GridRecipe {
            name: grid.name.clone(),
            dimensions: dimensions.collect::<Result<_>>()?,
            columns,
            axes: axes.collect::<Result<_>>()?,
            fields: grid.fields.iter().enumerate().map(|(n, field)| (names.field(n).name().clone(), *field)).collect(),
            is_sparse: grid.is_sparse,
            presence: grid.presence.clone(),
        }))
    }

    /// Over the arrays as this node has them.
    pub fn grid(&self, objects: &Objects) -> Result<Grid> {
        let mut columns = vec![];
        for ColumnRecipe { name, array, identity, shape, data_type, along } in &self.columns {
            let source = objects.column(array)?;
            let is_same = source.shared_array().is_some_and(|(_, now)| now == *identity)
                && source.data_type() == *data_type
                && source.shape().len() == shape.len()
                && source.shape().iter().zip(shape).all(|(now, then)| now >= then);
            if !is_same {
                return Err(Error::new(
                    Kind::NotFound,
                    format!("the array `{array}` was made anew while the query began"),
                )
                .hint("ask again"));
            }
            columns.push(Column::new(name.clone(), source, along.clone()));
        }
        let dimension = |(name, extent, axis): &(String, u64, AxisRecipe)| {
            Ok(Dimension { name: name.clone(), extent: *extent, axis: axis.axis()? })
        };
        let dimensions = self.dimensions.iter().map(dimension).collect::<Result<_>>()?;
        let axes = self.axes.iter().map(AxisRecipe::axis).collect::<Result<_>>()?;
        let (names, fields) = self.fields.iter().cloned().unzip();
        let mut grid = Grid::with_fields(&self.name, dimensions, columns, axes, (fields, names), self.is_sparse)?;
        grid.presence = self.presence.clone();
        Ok(grid)
    }
}

/// A leaf without cells, which every node can make.
pub fn is_without_cells(plan: &Arc<dyn ExecutionPlan>) -> bool {
    matches!(plan.name(), "EmptyExec" | "PlaceholderRowExec")
}

/// For another node.
pub fn told(exprs: &[Expr]) -> Result<Vec<Vec<u8>>> {
    exprs.iter().map(|expr| Ok(expr.to_bytes()?.to_vec())).collect()
}

fn untold(exprs: &[Vec<u8>], context: &TaskContext) -> Result<Vec<Expr>> {
    exprs.iter().map(|bytes| Ok(Expr::from_bytes_with_ctx(bytes, context)?)).collect()
}

impl ReductionRecipe {
    /// `None`: its grid can't be told.
    pub fn of(reduced: &Reduced) -> Result<Option<ReductionRecipe>> {
        let Some(grid) = GridRecipe::of(&reduced.grid)? else { return Ok(None) };
        let key = |key: &Key| Ok(KeyRecipe { dimension: key.dimension, of: told(&key.of)?, is_index: key.is_index });
        let one = |reduction: &Reduction| {
            let input = match &reduction.input {
                Input::Rows => InputRecipe::Rows,
                Input::Column(column) => InputRecipe::Column(*column),
                Input::Expression(general) => {
                    InputRecipe::Expression(told(std::slice::from_ref(&general.told))?.remove(0))
                }
            };
            Ok(OneReduction {
                function: reduction.function,
                input,
                cells: reduction.cells,
                text: reduction.text.clone(),
            })
        };
        let fields =
            reduced.reductions.iter().enumerate().map(|(n, r)| Field::new(format!("a{n}"), r.output.clone(), true));
        let outputs = RecordBatch::new_empty(Arc::new(Schema::new(fields.collect::<Vec<_>>())));
        Ok(Some(ReductionRecipe {
            grid,
            keys: reduced.keys_asked.iter().map(key).collect::<Result<_>>()?,
            reductions: reduced.reductions.iter().map(one).collect::<Result<_>>()?,
            outputs: batch_bytes(&outputs)?,
            filters: told(&reduced.scope.filters)?,
        }))
    }

    fn reduced(&self, objects: &Objects, context: &TaskContext, share: Option<&Share>) -> Result<Reduced> {
        let grid = Arc::new(self.grid.grid(objects)?);
        let outputs: Vec<ArrowType> =
            batch_of(&self.outputs)?.schema().fields().iter().map(|field| field.data_type().clone()).collect();
        let key = |key: &KeyRecipe| {
            Ok(Key { dimension: key.dimension, of: untold(&key.of, context)?, is_index: key.is_index })
        };
        let keys = self.keys.iter().map(key).collect::<Result<Vec<_>>>()?;
        let one = |(reduction, output): (&OneReduction, ArrowType)| {
            let input = match &reduction.input {
                InputRecipe::Rows => Input::Rows,
                InputRecipe::Column(column) => Input::Column(*column),
                InputRecipe::Expression(bytes) => {
                    let expr = untold(std::slice::from_ref(bytes), context)?.remove(0);
                    Input::Expression(crate::predicate::General::new(&grid, &expr)?)
                }
            };
            let OneReduction { function, cells, ref text, .. } = *reduction;
            Ok(Reduction { function, input, cells, output, text: text.clone() })
        };
        let reductions = self.reductions.iter().zip(outputs).map(one).collect::<Result<Vec<_>>>()?;
        let filters = untold(&self.filters, context)?;
        Reduced::plan(grid, keys, reductions, filters, share)?
            .ok_or_else(|| Error::new(Kind::Protocol, "this node groups in another way than who asks"))
    }
}

/// Leaves by their recipes. Who asks has no use for arrays.
#[derive(Clone)]
pub struct Codec {
    pub objects: Arc<Objects>,
}

impl std::fmt::Debug for Codec {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Codec")
    }
}

impl PhysicalExtensionCodec for Codec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        self.decoded(bytes, inputs, context).map_err(carried)
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> DataFusionResult<()> {
        let recipe = match (node.downcast_ref::<ArrayExec>(), node.downcast_ref::<Merge>()) {
            (Some(leaf), _) => leaf.work().recipe()?,
            (_, Some(merge)) => merge.recipe()?,
            _ => None,
        };
        let Some(recipe) = recipe else { return internal_err!("`{}` is for this node only", node.name()) };
        *bytes = postcard::to_stdvec(&recipe)
            .map_err(|error| Error::new(Kind::Protocol, format!("a part of a query can't be told: {error}")))?;
        Ok(())
    }
}

impl Codec {
    fn decoded(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
    ) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        let recipe: Recipe = postcard::from_bytes(bytes)
            .map_err(|error| Error::new(Kind::Protocol, format!("a part of a query can't be read: {error}")))?;
        let objects = &self.objects;
        let work: Arc<dyn Work> = match recipe {
            Recipe::Scan { grid, fields, filters, limit, partitions, share } => {
                let grid = Arc::new(grid.grid(objects)?);
                let filters = untold(&filters, context)?;
                let batch_size = context.session_config().batch_size();
                Arc::new(Scan::plan(grid, fields, &filters, limit, partitions, batch_size, share.as_ref())?)
            }
            Recipe::Partial { reduction, share } => {
                let reduced = reduction.reduced(objects, context, share.as_ref())?;
                Arc::new(Partial::new(Arc::new(reduced), context.session_config().target_partitions()))
            }
            Recipe::Merge { reduction, fields } => {
                let reduced = reduction.reduced(objects, context, None)?;
                let [states] = inputs else { return internal_err!("a merge of {} inputs", inputs.len()) };
                return Ok(Arc::new(Merge::new(Arc::new(reduced), fields, states.clone())?));
            }
        };
        Ok(Arc::new(ArrayExec::new(work)))
    }
}
