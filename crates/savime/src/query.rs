//! The operators of queries, as plans: what is array-native in SQL is so here, because the plans are the same.

use crate::elements::Number;
use crate::expression::{expression, number, predicate};
use crate::relation::{Element, Kind, Relation, column};
use crate::syntax::{Node, name_of, number_of};
use crate::tar;
use arrow::datatypes::DataType;
use datafusion::common::JoinType;
use datafusion::functions_aggregate::expr_fn::{avg, count, max, min};
use datafusion::functions_window::expr_fn::row_number;
use datafusion::logical_expr::{Expr, ExprFunctionExt, LogicalPlanBuilder, cast, lit};
use datafusion::prelude::DataFrame;
use terrace_analysis::front_end::sum;
use terrace_analysis::{Error, Queries, Result};

pub fn is_query(name: &str) -> bool {
    const OPERATORS: [&str; 16] = [
        "aggregate",
        "att2dim",
        "cross",
        "derive",
        "dimjoin",
        "equijoin",
        "reorient",
        "scan",
        "select",
        "slice",
        "split",
        "subset",
        "translate",
        "union",
        "where",
        "cross_join",
    ];
    OPERATORS.contains(&name)
}

/// What a part of a query gives: an operator's rows, or a TAR's.
pub fn relation(queries: &Queries, node: &Node) -> Result<Relation> {
    match node {
        Node::Name(name) | Node::Text(name) => tar::relation(queries, name),
        Node::Call(name, arguments) if is_query(name) => {
            let call = Call { queries, name, arguments };
            match name.as_str() {
                "scan" => call.only_input(),
                "select" => call.select(),
                "where" => call.filter(),
                "subset" => call.subset(),
                "derive" => call.derive(),
                "cross" | "cross_join" => call.cross(),
                "dimjoin" => call.dimjoin(),
                "equijoin" => call.equijoin(),
                "aggregate" => call.aggregate(),
                "split" => call.split(),
                "reorient" => call.reorient(),
                "slice" => call.slice(),
                "att2dim" => call.att2dim(),
                "union" => call.union(),
                _ => call.translate(),
            }
        }
        Node::Call(name, _) => Err(Error::invalid(format!("`{name}` is not an operator that gives rows"))
            .hint("where a TAR is expected there is a TAR's name, or select, where, subset, derive, cross, dimjoin, aggregate …")),
        _ => Err(Error::invalid("a TAR, or an operator on one, is expected")),
    }
}

pub struct Call<'a> {
    pub queries: &'a Queries,
    pub name: &'a str,
    pub arguments: &'a [Node],
}

impl Call<'_> {
    fn wrong(&self, usage: &str) -> Error {
        let given = self.arguments.len();
        Error::invalid(format!("`{}` with {given} argument{}", self.name, if given == 1 { "" } else { "s" }))
            .hint(usage)
    }

    fn input(&self, number: usize, usage: &str) -> Result<Relation> {
        relation(self.queries, self.arguments.get(number).ok_or_else(|| self.wrong(usage))?)
    }

    fn only_input(&self) -> Result<Relation> {
        match self.arguments.len() {
            1 => self.input(0, ""),
            _ => Err(self.wrong("scan(t)")),
        }
    }

    /// The arguments behind the first ones, so many at a time.
    fn groups(&self, first: usize, size: usize, usage: &str) -> Result<impl Iterator<Item = &[Node]>> {
        let rest = self.arguments.get(first..).unwrap_or_default();
        match rest.is_empty() || rest.len() % size != 0 {
            true => Err(self.wrong(usage)),
            false => Ok(rest.chunks(size)),
        }
    }

    fn select(&self) -> Result<Relation> {
        let input = self.input(0, "select(t, element …)")?;
        let mut names = vec![];
        for node in &self.arguments[1..] {
            names.extend(input.expanded(name_of(node)?)?);
        }
        if names.is_empty() {
            return Ok(input);
        }
        let all: Vec<String> = input.dimensions().map(|element| element.name.clone()).collect();
        let mut columns: Vec<(Expr, String)> = names.iter().map(|name| (column(name), name.clone())).collect();
        let mut elements: Vec<Element> = vec![];
        for name in &names {
            elements.push(input.known(name)?.clone());
        }
        if all.iter().all(|name| names.contains(name)) {
            return input.projected(columns, elements);
        }
        // Cells are counted in the order of the dimensions.
        if names.iter().any(|name| name == ID) {
            return Err(Error::invalid(format!("an element is called `{ID}`, as the cells' number would be"))
                .hint("select all dimensions, or derive it by another name"));
        }
        let order = all.iter().map(|name| column(name).sort(true, false)).collect::<Vec<_>>();
        let counted = row_number().order_by(order).build()?;
        let windowed = input.frame.clone().window(vec![counted.alias(ID)])?;
        let numbered = Relation { frame: windowed, ..input };
        columns.insert(0, (cast(column(ID), DataType::Int64), ID.into()));
        elements.iter_mut().for_each(|element| element.kind = Kind::Attribute);
        elements.insert(0, Element { name: ID.into(), kind: Kind::Dimension(None), role: None });
        numbered.projected(columns, elements)
    }

    fn filter(&self) -> Result<Relation> {
        let [_, condition] = self.arguments else { return Err(self.wrong("where(t, condition)")) };
        let input = self.input(0, "")?;
        let condition = predicate(&input, condition)?;
        input.filtered(condition)
    }

    fn subset(&self) -> Result<Relation> {
        const USAGE: &str = "subset(t, dimension, low, high …)";
        let mut input = self.input(0, USAGE)?;
        let groups: Vec<&[Node]> = self.groups(1, 3, USAGE)?.collect();
        for group in groups {
            let name = name_of(&group[0])?.to_owned();
            let (low, high) = (number_of(&group[1])?, number_of(&group[2])?);
            let domain = input.dimension(&name)?.clone();
            let mut narrowed = None;
            if let Some(domain) = domain {
                let inside = match domain.ends()? {
                    Some((first, last)) => {
                        let is_outside = less(low, first) || less(last, low) || less(high, first) || less(last, high);
                        (!is_outside).then_some(()).ok_or((first, last))
                    }
                    None => return Err(Error::invalid(format!("`{name}` has no coordinates yet: nothing was loaded"))),
                };
                if let Err((first, last)) = inside {
                    return Err(Error::new(
                        terrace_client::Kind::OutOfBounds,
                        format!(
                            "{low} to {high} is not within the dimension `{name}`, which goes from {first} to {last}"
                        ),
                    ));
                }
                narrowed = Some(domain.within(low, high)?);
            }
            if less(high, low) {
                return Err(Error::invalid(format!("the bounds of `{name}` are the wrong way round: {low} to {high}")));
            }
            let condition = column(&name).gt_eq(literal(low)).and(column(&name).lt_eq(literal(high)));
            input = input.filtered(condition)?;
            let element = input.elements.iter_mut().find(|element| element.name == name);
            element.expect("looked up above").kind = Kind::Dimension(narrowed);
        }
        Ok(input)
    }

    fn derive(&self) -> Result<Relation> {
        let [_, new, value] = self.arguments else { return Err(self.wrong("derive(t, name, expression)")) };
        let input = self.input(0, "")?;
        let new = new_name(new)?;
        let value = expression(&input, value)?;
        let mut columns: Vec<(Expr, String)> = input.names().into_iter().map(|name| (column(&name), name)).collect();
        columns.push((value, new.to_owned()));
        let mut elements = input.elements.clone();
        elements.push(Element { name: new.into(), kind: Kind::Attribute, role: None });
        input.projected(columns, elements)
    }

    fn sides(&self, usage: &str) -> Result<(Relation, Relation)> {
        Ok((self.input(0, usage)?.prefixed("left_")?, self.input(1, usage)?.prefixed("right_")?))
    }

    fn cross(&self) -> Result<Relation> {
        match self.arguments.len() {
            2 => {
                let (left, right) = self.sides("")?;
                crossed(left, right)
            }
            _ => Err(self.wrong("cross(left, right)")),
        }
    }

    fn dimjoin(&self) -> Result<Relation> {
        const USAGE: &str = "dimjoin(left, right, dimension of left, dimension of right …)";
        let (left, right) = self.sides(USAGE)?;
        let mut pairs = vec![];
        for group in self.groups(2, 2, USAGE)? {
            let (l, r) = (format!("left_{}", name_of(&group[0])?), format!("right_{}", name_of(&group[1])?));
            left.dimension(&l)?;
            right.dimension(&r)?;
            pairs.push((l, r));
        }
        let kept = |name: &str| !pairs.iter().any(|(_, r)| r == name);
        joined(left, right, &pairs, kept)
    }

    fn equijoin(&self) -> Result<Relation> {
        const USAGE: &str = "equijoin(left, right, element of left, element of right …)";
        let (left, right) = self.sides(USAGE)?;
        let mut pairs = vec![];
        for group in self.groups(2, 2, USAGE)? {
            let (l, r) = (format!("left_{}", name_of(&group[0])?), format!("right_{}", name_of(&group[1])?));
            pairs.push((left.known(&l)?.name.clone(), right.known(&r)?.name.clone()));
        }
        joined(left, right, &pairs, |_| true)
    }

    fn aggregate(&self) -> Result<Relation> {
        const USAGE: &str = "aggregate(t, avg | sum | min | max | count, element, new name … , dimension …)";
        let input = self.input(0, USAGE)?;
        let mut rest = &self.arguments[1..];
        // Aggregates as they are made, and of each new element which of them it is.
        let mut functions: Vec<Expr> = vec![];
        let mut names: Vec<(String, usize)> = vec![];
        while let [Node::Name(function), value, new, ..] = rest
            && let Some(function) = aggregate_function(function)
        {
            let value = match value {
                Node::Name(name) if input.element(name).is_some() => column(name),
                value => number(&input, value)?,
            };
            names.push((new_name(new)?.to_owned(), place_of(&mut functions, function(value))));
            rest = &rest[3..];
        }
        if functions.is_empty() {
            return Err(self.wrong(USAGE));
        }
        let mut groups: Vec<Element> = vec![];
        for node in rest {
            let name = name_of(node)?;
            input.dimension(name)?;
            groups.push(input.known(name)?.clone());
        }
        let by: Vec<Expr> = groups.iter().map(|element| column(&element.name)).collect();
        let block = input.block;
        let frame = input.frame.aggregate(by, functions)?;
        let made: Vec<String> = frame.schema().fields().iter().map(|field| field.name().clone()).collect();
        let grouped = Relation { frame, elements: vec![], block };
        let (of_groups, of_functions) = made.split_at(groups.len());
        let mut columns: Vec<(Expr, String)> =
            of_groups.iter().zip(&groups).map(|(made, element)| (column(made), element.name.clone())).collect();
        columns.extend(names.iter().map(|(name, place)| (column(&of_functions[*place]), name.clone())));
        let mut elements = groups;
        if elements.is_empty() {
            // One cell, in the dimension that SAVIME gives it.
            columns.insert(0, (lit(0i32), ID.into()));
            elements.push(Element { name: ID.into(), kind: Kind::Dimension(None), role: None });
        }
        elements.extend(names.into_iter().map(|(name, _)| Element { name, kind: Kind::Attribute, role: None }));
        grouped.projected(columns, elements)
    }

    fn split(&self) -> Result<Relation> {
        match self.arguments {
            [_, Node::Int(cells)] if *cells > 0 => Ok(Relation { block: Some(*cells as usize), ..self.input(0, "")? }),
            _ => Err(self.wrong("split(t, cells of a block)")),
        }
    }

    fn reorient(&self) -> Result<Relation> {
        let [_, dimension] = self.arguments else { return Err(self.wrong("reorient(t, dimension)")) };
        let input = self.input(0, "")?;
        let first = name_of(dimension)?.to_owned();
        input.dimension(&first)?;
        let mut elements = input.elements.clone();
        elements.sort_by_key(|element| (element.name != first, !element.is_dimension()));
        let columns = elements.iter().map(|element| (column(&element.name), element.name.clone())).collect();
        let turned = input.projected(columns, elements)?;
        let order = turned.dimensions().map(|element| column(&element.name).sort(true, false)).collect();
        Ok(Relation { frame: turned.frame.clone().sort(order)?, ..turned })
    }

    fn slice(&self) -> Result<Relation> {
        const USAGE: &str = "slice(t, dimension, coordinate …)";
        let mut input = self.input(0, USAGE)?;
        let mut left_out = vec![];
        for group in self.groups(1, 2, USAGE)? {
            let (name, at) = (name_of(&group[0])?.to_owned(), number_of(&group[1])?);
            if let Some(domain) = input.dimension(&name)?
                && domain.within(at, at)?.extent() == 0
            {
                return Err(Error::new(
                    terrace_client::Kind::OutOfBounds,
                    format!("the dimension `{name}` has no coordinate {at}"),
                ));
            }
            input = input.filtered(column(&name).eq(literal(at)))?;
            left_out.push(name);
        }
        let mut elements = input.elements.clone();
        elements.retain(|element| !left_out.contains(&element.name));
        let columns = elements.iter().map(|element| (column(&element.name), element.name.clone())).collect();
        input.projected(columns, elements)
    }

    fn att2dim(&self) -> Result<Relation> {
        const USAGE: &str = "att2dim(t, attribute …)";
        let mut input = self.input(0, USAGE)?;
        let names: Vec<String> =
            self.groups(1, 1, USAGE)?.map(|group| Ok(name_of(&group[0])?.to_owned())).collect::<Result<_>>()?;
        for name in names {
            if input.known(&name)?.is_dimension() {
                return Err(Error::invalid(format!("`{name}` is a dimension already")));
            }
            let element = input.elements.iter_mut().find(|element| element.name == name);
            element.expect("looked up above").kind = Kind::Dimension(None);
        }
        Ok(input)
    }

    /// The left side's cells, and those of the right side that the left has not.
    fn union(&self) -> Result<Relation> {
        let [_, _] = self.arguments else { return Err(self.wrong("union(left, right)")) };
        let (left, right) = (self.input(0, "")?, self.input(1, "")?);
        let is_same = left.elements.len() == right.elements.len()
            && left
                .elements
                .iter()
                .all(|own| right.element(&own.name).is_some_and(|other| other.is_dimension() == own.is_dimension()));
        if !is_same {
            return Err(Error::invalid("the two sides of `union` have different elements").hint(format!(
                "left: {}; right: {}",
                left.names().join(", "),
                right.names().join(", ")
            )));
        }
        let names = left.names();
        for name in &names {
            let (own, other) = (left.data_type(name)?, right.data_type(name)?);
            if own != other {
                return Err(Error::invalid(format!(
                    "`{name}` is {own} on the left and {other} on the right of `union`"
                )));
            }
        }
        let columns = names.iter().map(|name| (column(name), name.clone())).collect();
        let right = right.projected(columns, left.elements.clone())?;
        let known = left.clone().prefixed("left_")?;
        let same_cell: Vec<Expr> = left
            .dimensions()
            .map(|element| column(&element.name).eq(column(&format!("left_{}", element.name))))
            .collect();
        let others = right.frame.join_on(known.frame, JoinType::LeftAnti, same_cell)?;
        let mut elements = left.elements;
        for element in elements.iter_mut().filter(|element| element.is_dimension()) {
            element.kind = Kind::Dimension(None);
        }
        Ok(Relation { frame: left.frame.union(others)?, elements, block: left.block })
    }

    fn translate(&self) -> Result<Relation> {
        const USAGE: &str = "translate(t, dimension, by …)";
        let mut input = self.input(0, USAGE)?;
        for group in self.groups(1, 2, USAGE)? {
            let (name, by) = (name_of(&group[0])?.to_owned(), number_of(&group[1])?);
            let moved = match input.dimension(&name)? {
                Some(domain) => Some(domain.translated(by)?),
                None => None,
            };
            let mut elements = input.elements.clone();
            let element = elements.iter_mut().find(|element| element.name == name);
            element.expect("looked up above").kind = Kind::Dimension(moved);
            let value = |of: &str| if of == name { column(of) + literal(by) } else { column(of) };
            let columns = elements.iter().map(|element| (value(&element.name), element.name.clone())).collect();
            input = input.projected(columns, elements)?;
        }
        Ok(input)
    }
}

/// The number of a cell, where not all dimensions are selected.
const ID: &str = "ID";

type Aggregate = fn(Expr) -> Expr;

/// Each function once.
fn place_of(functions: &mut Vec<Expr>, function: Expr) -> usize {
    functions.iter().position(|known| *known == function).unwrap_or_else(|| {
        functions.push(function);
        functions.len() - 1
    })
}

fn aggregate_function(name: &str) -> Option<Aggregate> {
    Some(match name.to_ascii_lowercase().as_str() {
        "avg" => avg,
        "sum" => sum,
        "min" => min,
        "max" => max,
        "count" => |_| count(lit(1i64)),
        _ => return None,
    })
}

fn crossed(left: Relation, right: Relation) -> Result<Relation> {
    let mut elements = left.elements;
    elements.extend(right.elements);
    let (state, plan) = left.frame.into_parts();
    let plan = LogicalPlanBuilder::from(plan).cross_join(right.frame.into_unoptimized_plan())?.build()?;
    Ok(Relation { frame: DataFrame::new(state, plan), elements, block: left.block })
}

fn joined(
    left: Relation,
    right: Relation,
    on: &[(String, String)],
    is_kept: impl Fn(&str) -> bool,
) -> Result<Relation> {
    let same: Vec<Expr> = on.iter().map(|(l, r)| column(l).eq(column(r))).collect();
    let mut elements = left.elements;
    elements.extend(right.elements.into_iter().filter(|element| is_kept(&element.name)));
    let frame = left.frame.join_on(right.frame, JoinType::Inner, same)?;
    let joined = Relation { frame, elements: vec![], block: left.block };
    let columns = elements.iter().map(|element| (column(&element.name), element.name.clone())).collect();
    joined.projected(columns, elements)
}

/// A name of something that is to be.
pub fn new_name(node: &Node) -> Result<&str> {
    crate::elements::check_name("an element", name_of(node)?)
}

fn literal(number: Number) -> Expr {
    match number {
        Number::Int(whole) => lit(whole),
        Number::Real(real) => lit(real),
    }
}

fn less(left: Number, right: Number) -> bool {
    match (left, right) {
        (Number::Int(left), Number::Int(right)) => left < right,
        (left, right) => left.real() < right.real(),
    }
}
