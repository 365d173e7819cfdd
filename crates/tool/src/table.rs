//! Answers as they are laid out: text tables (columns as wide as their cells, numbers on the right), and JSON.

pub struct Table {
    rows: Vec<Vec<String>>,
    right: Vec<bool>,
}

impl Table {
    /// A heading that starts with `>` is a column of numbers.
    pub fn new(headings: &[&str]) -> Table {
        let right = headings.iter().map(|heading| heading.starts_with('>')).collect();
        let names = headings.iter().map(|heading| heading.trim_start_matches('>').to_owned()).collect();
        Table { rows: vec![names], right }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    pub fn is_empty(&self) -> bool {
        self.rows.len() < 2
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let width =
            |column: usize| self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let pad = " ".repeat(width(column).unwrap_or(0) - cell.chars().count());
                let gap = if column == 0 { "" } else { "  " };
                match self.right[column] {
                    true => line.push_str(&format!("{gap}{pad}{cell}")),
                    false => line.push_str(&format!("{gap}{cell}{pad}")),
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// As every `--json` prints it.
pub fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string_pretty(value).expect("these are plain data")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_on_the_right() {
        let mut table = Table::new(&["tier", ">bytes"]);
        table.row(["ram".into(), "1".into()]);
        table.row(["durable".into(), "100".into()]);
        assert_eq!(table.to_string(), "tier     bytes\nram          1\ndurable    100\n");
    }
}
