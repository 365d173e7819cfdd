//! A result's columns as its client sees them: the components of a vector, which are arrays of their own, as one column.

use arrow::array::{ArrayRef, FixedSizeListArray, RecordBatch, RecordBatchOptions};
use arrow::compute::interleave;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use std::ops::Range;
use std::sync::Arc;

/// Of each column that is told, the columns of the plan that it is of.
#[derive(Clone)]
pub struct Vectors {
    parts: Vec<Range<usize>>,
    pub schema: SchemaRef,
}

/// What a vector's part is called; a complex number's is another.
const COMPONENT: &str = "component";

/// The number of a vector's component: `v:2`.
fn component(name: &str) -> Option<(&str, usize)> {
    let (vector, number) = name.rsplit_once(':')?;
    Some((vector, number.parse().ok()?))
}

impl Vectors {
    /// Components 0, 1, 2 … of one type that stand side by side are a vector.
    pub fn of(fields: Vec<Field>) -> Vectors {
        let mut parts = vec![];
        let mut told: Vec<Field> = vec![];
        let mut first = 0;
        while first < fields.len() {
            let vector = component(fields[first].name()).filter(|(_, number)| *number == 0).map(|(vector, _)| vector);
            let is_next = |&(number, field): &(usize, &Field)| {
                component(field.name()) == vector.map(|vector| (vector, number))
                    && field.data_type() == fields[first].data_type()
                    && field.metadata() == fields[first].metadata()
            };
            let count = fields[first..].iter().enumerate().take_while(is_next).count();
            let is_taken = |name: &str| fields.iter().chain(&told).any(|field| field.name() == name);
            match vector.filter(|vector| count > 1 && !is_taken(vector)) {
                Some(vector) => {
                    let is_nullable = fields[first..first + count].iter().any(Field::is_nullable);
                    let item = item(fields[first].data_type().clone(), is_nullable);
                    let data_type = DataType::FixedSizeList(item, count as i32);
                    let metadata = fields[first].metadata().clone();
                    told.push(Field::new(vector, data_type, false).with_metadata(metadata));
                    parts.push(first..first + count);
                }
                None => {
                    told.push(fields[first].clone());
                    parts.push(first..first + 1);
                }
            }
            first = parts.last().expect("one was told now").end;
        }
        Vectors { parts, schema: Arc::new(Schema::new(told)) }
    }

    pub fn batch(&self, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let rows = batch.num_rows();
        let mut columns: Vec<ArrayRef> = vec![];
        for (part, field) in self.parts.iter().zip(self.schema.fields()) {
            let components: Vec<_> = batch.columns()[part.clone()].iter().map(|column| column.as_ref()).collect();
            columns.push(match field.data_type() {
                DataType::FixedSizeList(item, count) if components.len() > 1 => {
                    let places: Vec<_> =
                        (0..rows * components.len()).map(|i| (i % components.len(), i / components.len())).collect();
                    let values = interleave(&components, &places)?;
                    Arc::new(FixedSizeListArray::try_new_with_length(item.clone(), *count, values, None, rows)?)
                }
                _ => batch.column(part.start).clone(),
            });
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)
    }
}

fn item(data_type: DataType, is_nullable: bool) -> FieldRef {
    Arc::new(Field::new(COMPONENT, data_type, is_nullable))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Array, AsArray, Float64Array, Int32Array};
    use arrow::datatypes::Float64Type;

    #[test]
    fn components_that_stand_side_by_side_are_one_column() {
        let real = |name: &str| Field::new(name, DataType::Float64, false);
        let told = |names: &[&str]| -> Vec<String> {
            let vectors = Vectors::of(names.iter().map(|name| real(name)).collect());
            vectors.schema.fields().iter().map(|field| field.name().clone()).collect()
        };
        assert_eq!(told(&["x", "v:0", "v:1", "w:0", "w:1", "w:2", "a"]), ["x", "v", "w", "a"]);
        for apart in [&["v:0", "w:1"][..], &["v:1", "v:2"], &["v:0"], &["v:1", "v:0"], &["v:0", "v:1", "v"]] {
            assert_eq!(told(apart), apart);
        }
        let fields = vec![Field::new("x", DataType::Int32, false), real("v:0"), real("v:1")];
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int32Array::from(vec![7, 8])),
            Arc::new(Float64Array::from(vec![1.0, 2.0])),
            Arc::new(Float64Array::from(vec![3.0, 4.0])),
        ];
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields.clone())), columns).unwrap();
        let told = Vectors::of(fields).batch(&batch).unwrap();
        let second = told.column(1).as_fixed_size_list().value(1);
        assert_eq!(second.as_primitive::<Float64Type>().values().to_vec(), [2.0, 4.0]);
        assert_eq!((told.num_columns(), second.len()), (2, 2));
    }
}
