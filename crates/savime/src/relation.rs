//! What a query's parts are: rows with elements, of which some are dimensions with a domain.

use crate::elements::{Number, name_of_arrow};
use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Float64Array, Int64Array};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::common::Column;
use datafusion::logical_expr::Expr;
use datafusion::prelude::{DataFrame, SessionContext};
use std::ops::Range;
use std::sync::Arc;
use terrace_analysis::{Axis, Error, Grid, GridTable, Result};

#[derive(Clone)]
pub struct Relation {
    pub frame: DataFrame,
    /// In the order of the frame's columns.
    pub elements: Vec<Element>,
    /// Rows of one block of the result.
    pub block: Option<usize>,
}

#[derive(Clone, Debug)]
pub struct Element {
    pub name: String,
    pub kind: Kind,
    /// What the type of the TAR says that it is.
    pub role: Option<String>,
}

#[derive(Clone, Debug)]
pub enum Kind {
    Attribute,
    /// `None`: its coordinates are those that its rows have.
    Dimension(Option<Domain>),
}

impl Element {
    pub fn is_dimension(&self) -> bool {
        matches!(self.kind, Kind::Dimension(_))
    }
}

/// Indexes `range` of an axis.
#[derive(Clone, Debug)]
pub struct Domain {
    pub axis: Axis,
    pub range: Range<u64>,
}

/// A dimension with more coordinates than this is not listed.
const LISTED_MAX: u64 = 1 << 28;

impl Domain {
    pub fn extent(&self) -> u64 {
        self.range.end - self.range.start
    }

    pub fn coordinates(&self) -> Result<ArrayRef> {
        match self.extent() <= LISTED_MAX {
            true => Ok(self.axis.values(self.range.clone())),
            false => {
                Err(Error::invalid(format!("a dimension of {} coordinates is too long to be listed", self.extent())))
            }
        }
    }

    /// Least and greatest coordinate; `None`: it has none.
    pub fn ends(&self) -> Result<Option<(Number, Number)>> {
        if self.range.is_empty() {
            return Ok(None);
        }
        let numbers = match &self.axis {
            Axis::Explicit(_) => Numbers::of(&self.coordinates()?)?,
            axis => Numbers::of(&axis.take(&[self.range.start, self.range.end - 1]))?,
        };
        Ok(match numbers {
            Numbers::Ints(values) => {
                let ends = (arrow::compute::min(&values), arrow::compute::max(&values));
                ends.0.zip(ends.1).map(|(low, high)| (Number::Int(low), Number::Int(high)))
            }
            Numbers::Reals(values) => {
                let ends = (arrow::compute::min(&values), arrow::compute::max(&values));
                ends.0.zip(ends.1).map(|(low, high)| (Number::Real(low), Number::Real(high)))
            }
        })
    }

    /// The coordinates from `low` to `high`.
    pub fn within(&self, low: Number, high: Number) -> Result<Domain> {
        let coordinates = self.coordinates()?;
        let is_inside: Vec<bool> = match Numbers::of(&coordinates)? {
            Numbers::Ints(values) => {
                let inside = |value: &i64| at_least(*value, low) && at_most(*value, high);
                values.values().iter().map(inside).collect()
            }
            Numbers::Reals(values) => {
                values.values().iter().map(|value| *value >= low.real() && *value <= high.real()).collect()
            }
        };
        let first = is_inside.iter().position(|inside| *inside).unwrap_or(0);
        let count = is_inside.iter().filter(|inside| **inside).count();
        if is_inside[first..].iter().take_while(|inside| **inside).count() == count {
            let start = self.range.start + first as u64;
            return Ok(Domain { axis: self.axis.clone(), range: start..start + count as u64 });
        }
        let kept = arrow::compute::filter(&coordinates, &BooleanArray::from(is_inside))?;
        Ok(Domain { range: 0..kept.len() as u64, axis: Axis::Explicit(kept) })
    }

    /// The same dimension, so much further.
    pub fn translated(&self, by: Number) -> Result<Domain> {
        let axis = match (&self.axis, by) {
            (Axis::Integer { low, step }, Number::Int(by)) => {
                let low =
                    low.checked_add(by).ok_or_else(|| Error::invalid("the dimension would leave 64-bit integers"))?;
                Axis::Integer { low, step: *step }
            }
            _ => {
                let moved = match (Numbers::of(&self.coordinates()?)?, by) {
                    (Numbers::Ints(values), Number::Int(by)) => {
                        Arc::new(arrow::compute::unary::<_, _, Int64Type>(&values, |value| value.wrapping_add(by)))
                            as ArrayRef
                    }
                    (Numbers::Ints(values), Number::Real(by)) => {
                        Arc::new(arrow::compute::unary::<_, _, Float64Type>(&values, |value| value as f64 + by))
                    }
                    (Numbers::Reals(values), by) => {
                        Arc::new(arrow::compute::unary::<_, _, Float64Type>(&values, |value| value + by.real()))
                    }
                };
                return Ok(Domain { range: 0..moved.len() as u64, axis: Axis::Explicit(moved) });
            }
        };
        Ok(Domain { axis, range: self.range.clone() })
    }
}

fn at_least(value: i64, low: Number) -> bool {
    match low {
        Number::Int(low) => value >= low,
        Number::Real(low) => value as f64 >= low,
    }
}

fn at_most(value: i64, high: Number) -> bool {
    match high {
        Number::Int(high) => value <= high,
        Number::Real(high) => value as f64 <= high,
    }
}

/// Coordinates as numbers, without a loss.
pub enum Numbers {
    Ints(Int64Array),
    Reals(Float64Array),
}

impl Numbers {
    pub fn of(values: &ArrayRef) -> Result<Numbers> {
        let as_type = |wanted: &DataType| arrow::compute::cast(values, wanted);
        match values.data_type() {
            DataType::Float32 | DataType::Float64 => {
                Ok(Numbers::Reals(as_type(&DataType::Float64)?.as_primitive::<Float64Type>().clone()))
            }
            data_type if data_type.is_integer() => {
                let found = as_type(&DataType::Int64)?;
                match found.null_count() == values.null_count() {
                    true => Ok(Numbers::Ints(found.as_primitive::<Int64Type>().clone())),
                    false => Err(Error::invalid("a dimension has coordinates beyond 64-bit integers")),
                }
            }
            other => Err(Error::invalid(format!("a dimension of type {} has no numbers", name_of_arrow(other)))),
        }
    }
}

/// A column by its name, whatever letters that has.
pub fn column(name: &str) -> Expr {
    Expr::Column(Column::from_name(name))
}

impl Relation {
    /// A table's elements. `role` says the roles of elements, `declared` the domains where they are wider than what is loaded.
    pub fn of_grid(
        context: &SessionContext,
        grid: Grid,
        role: impl Fn(&str) -> Option<String>,
        declared: impl Fn(&str) -> Option<Domain>,
    ) -> Result<Relation> {
        let mut elements = vec![];
        for dimension in &grid.dimensions {
            let loaded = Domain { axis: dimension.axis.clone(), range: 0..dimension.extent };
            let domain = declared(&dimension.name).unwrap_or(loaded);
            elements.push(Element {
                name: dimension.name.clone(),
                kind: Kind::Dimension(Some(domain)),
                role: role(&dimension.name),
            });
        }
        let fields = grid.schema();
        for field in &fields.fields()[grid.rank()..] {
            elements.push(Element { name: field.name().clone(), kind: Kind::Attribute, role: role(field.name()) });
        }
        let frame = context.read_table(Arc::new(GridTable(Arc::new(grid))))?;
        let relation = Relation { frame, elements, block: None };
        let (names, elements) = (relation.names(), relation.elements.clone());
        // Without the table's name, so that names are the same wherever rows come from.
        relation.projected(names.iter().map(|name| (column(name), name.clone())).collect(), elements)
    }

    pub fn names(&self) -> Vec<String> {
        self.elements.iter().map(|element| element.name.clone()).collect()
    }

    pub fn element(&self, name: &str) -> Option<&Element> {
        self.elements.iter().find(|element| element.name == name)
    }

    /// The element of a name, or what the names are.
    pub fn known(&self, name: &str) -> Result<&Element> {
        self.element(name).ok_or_else(|| {
            Error::new(terrace_client::Kind::NotFound, format!("there is no element `{name}`"))
                .hint(format!("it has {}", self.names().join(", ")))
        })
    }

    /// The dimension of a name.
    pub fn dimension(&self, name: &str) -> Result<&Option<Domain>> {
        match &self.known(name)?.kind {
            Kind::Dimension(domain) => Ok(domain),
            Kind::Attribute => Err(Error::invalid(format!("`{name}` is an attribute, not a dimension"))),
        }
    }

    pub fn dimensions(&self) -> impl Iterator<Item = &Element> {
        self.elements.iter().filter(|element| element.is_dimension())
    }

    /// Names that a name stands for: itself, or the components of a vector.
    pub fn expanded(&self, name: &str) -> Result<Vec<String>> {
        if self.element(name).is_none() {
            let prefix = format!("{name}:");
            let is_component = |found: &&Element| {
                found.name.strip_prefix(&prefix).is_some_and(|rest| rest.chars().all(|digit| digit.is_ascii_digit()))
            };
            let found: Vec<String> =
                self.elements.iter().filter(is_component).map(|found| found.name.clone()).collect();
            if !found.is_empty() {
                return Ok(found);
            }
        }
        Ok(vec![self.known(name)?.name.clone()])
    }

    pub fn data_type(&self, name: &str) -> Result<DataType> {
        Ok(self.frame.schema().field_with_unqualified_name(name)?.data_type().clone())
    }

    /// Columns of these expressions with these elements.
    pub fn projected(self, columns: Vec<(Expr, String)>, elements: Vec<Element>) -> Result<Relation> {
        let mut seen = std::collections::BTreeSet::new();
        for (_, name) in &columns {
            if !seen.insert(name.as_str()) {
                return Err(Error::invalid(format!("two elements would have the name `{name}`")));
            }
        }
        let columns: Vec<Expr> = columns.into_iter().map(|(expr, name)| expr.alias(name)).collect();
        Ok(Relation { frame: self.frame.select(columns)?, elements, block: self.block })
    }

    pub fn filtered(self, predicate: Expr) -> Result<Relation> {
        Ok(Relation { frame: self.frame.filter(predicate)?, ..self })
    }

    /// As SAVIME answers: whoever reads columns by their places finds all dimensions before the attributes.
    pub fn dimensions_first(self) -> Result<Relation> {
        if self.elements.is_sorted_by_key(|element| !element.is_dimension()) {
            return Ok(self);
        }
        let mut elements = self.elements.clone();
        elements.sort_by_key(|element| !element.is_dimension());
        let columns = elements.iter().map(|element| (column(&element.name), element.name.clone())).collect();
        self.projected(columns, elements)
    }

    /// All names with a prefix.
    pub fn prefixed(self, prefix: &str) -> Result<Relation> {
        let columns = self.names().into_iter().map(|name| (column(&name), format!("{prefix}{name}"))).collect();
        let renamed = |element: &Element| Element { name: format!("{prefix}{}", element.name), ..element.clone() };
        let elements = self.elements.iter().map(renamed).collect();
        self.projected(columns, elements)
    }
}
