//! Charts as data: the content of a drawing, without its appearance. The report's script draws
//! them. The table and the CSV file beside each chart hold the same points.

use serde::Serialize;

use loam_format::units::Unit;

/// An axis.
#[derive(Debug, Clone, Serialize)]
pub struct Axis {
    /// Its name.
    pub label: String,
    /// How its values are written.
    pub unit: Unit,
    /// Whether it is logarithmic.
    pub log: bool,
    /// Names of the places on an axis of categories; x is then an index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub categories: Option<Vec<String>>,
}

impl Axis {
    /// A linear axis.
    pub fn of(label: &str, unit: Unit) -> Axis {
        Axis {
            label: label.to_owned(),
            unit,
            log: false,
            categories: None,
        }
    }

    /// An axis of named places.
    pub fn categories(label: &str, names: Vec<String>) -> Axis {
        Axis {
            label: label.to_owned(),
            unit: Unit::Count,
            log: false,
            categories: Some(names),
        }
    }
}

/// How a chart is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Curves over x, with bands.
    Lines,
    /// One point for each allocator, with error bars.
    Scatter,
    /// Bars side by side at named places.
    Bars,
    /// A horizontal bar for each place. The curves are the parts of the bars.
    Stack,
}

/// A point of a curve.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Point {
    /// Place on the x axis.
    pub x: f64,
    /// Median of the rounds.
    pub y: f64,
    /// Smallest of the rounds.
    pub low: f64,
    /// Largest of the rounds.
    pub high: f64,
    /// Number of rounds.
    pub count: usize,
    /// Range of x, in scatter charts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub x_range: Option<(f64, f64)>,
}

/// A curve.
#[derive(Debug, Clone, Serialize)]
pub struct Curve {
    /// Its name in the legend.
    pub label: String,
    /// The allocator, which decides its colour.
    pub allocator: String,
    /// The variant, which decides its dashes.
    pub variant: String,
    /// Its points.
    pub points: Vec<Point>,
}

/// A place on the x axis that has a name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mark {
    /// Its position.
    pub x: f64,
    /// Its name.
    pub label: String,
}

/// A chart.
#[derive(Debug, Clone, Serialize)]
pub struct Chart {
    /// Unique in the report.
    pub id: String,
    /// The heading.
    pub title: String,
    /// How to read the chart.
    pub reading: String,
    /// How it is drawn.
    pub kind: Kind,
    /// The x axis.
    pub x: Axis,
    /// The y axis.
    pub y: Axis,
    /// The curves.
    pub curves: Vec<Curve>,
    /// Named lines across the curves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
    /// The common heading, if the chart belongs to a group of small charts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
}

impl Chart {
    /// A chart with an id that is fit for anchors; none if there is nothing to draw.
    pub fn of(
        kind: Kind,
        [id, title, reading]: [&str; 3],
        x: Axis,
        y: Axis,
        mut curves: Vec<Curve>,
    ) -> Option<Chart> {
        curves.retain(|curve| !curve.points.is_empty());
        if curves.is_empty() {
            return None;
        }
        Some(Chart {
            id: identifier(id),
            title: title.to_owned(),
            reading: reading.to_owned(),
            kind,
            x,
            y,
            curves,
            marks: Vec::new(),
            group: None,
        })
    }

    /// The same chart with a logarithmic y axis.
    pub fn logarithmic(mut self) -> Chart {
        self.y.log = true;
        self
    }

    /// The same chart as part of a group of small charts with a common heading.
    pub fn in_group(mut self, heading: &str) -> Chart {
        self.group = Some(heading.to_owned());
        self
    }
}

/// Keeps only letters, digits and hyphens, because the text becomes a part of a page's anchors and
/// of file names.
fn identifier(text: &str) -> String {
    let clean = |c: char| {
        if c.is_ascii_alphanumeric() {
            c.to_ascii_lowercase()
        } else {
            '-'
        }
    };
    text.chars().map(clean).collect()
}
