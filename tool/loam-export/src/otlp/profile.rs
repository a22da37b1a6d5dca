//! Requests with profiles: what the live blocks of a process on Loam are, by type, under what holds
//! them.
//!
//! A census is the source, so a stack is no stack of calls: its first frame is the type of the
//! blocks, and each further one is the type of what holds the one before. Flame graphs then show
//! who holds what.

use std::collections::HashMap;
use std::time::Duration;

use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::profiles::v1development::{
    Function, KeyValueAndUnit, Line, Link, Location, Mapping, Profile, ProfilesDictionary,
    ResourceProfiles, Sample, ScopeProfiles, Stack, ValueType,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

use loam_census::census::Census;
use loam_format::plain::printable;

use super::resource::{self, nanos};

/// Places that hold too little to be told apart.
const OTHERS: &str = "(others)";

/// Tables to which profiles point by numbers. The first row of each is empty, as the format wants
/// it.
struct Tables {
    dictionary: ProfilesDictionary,
    texts: HashMap<String, i32>,
    locations: HashMap<i32, i32>,
}

impl Tables {
    fn new() -> Tables {
        Tables {
            dictionary: ProfilesDictionary {
                mapping_table: vec![Mapping::default()],
                location_table: vec![Location::default()],
                function_table: vec![Function::default()],
                link_table: vec![Link::default()],
                string_table: vec![String::new()],
                attribute_table: vec![KeyValueAndUnit::default()],
                stack_table: vec![Stack::default()],
            },
            texts: HashMap::new(),
            locations: HashMap::new(),
        }
    }

    fn text(&mut self, text: &str) -> i32 {
        if let Some(known) = self.texts.get(text) {
            return *known;
        }
        let number = self.dictionary.string_table.len() as i32;
        self.dictionary.string_table.push(text.to_owned());
        self.texts.insert(text.to_owned(), number);
        number
    }

    /// The place whose only function has that name.
    fn location(&mut self, name: &str) -> i32 {
        let name = self.text(name);
        if let Some(known) = self.locations.get(&name) {
            return *known;
        }
        let function_index = self.dictionary.function_table.len() as i32;
        self.dictionary.function_table.push(Function {
            name_strindex: name,
            ..Function::default()
        });
        let number = self.dictionary.location_table.len() as i32;
        self.dictionary.location_table.push(Location {
            lines: vec![Line {
                function_index,
                ..Line::default()
            }],
            ..Location::default()
        });
        self.locations.insert(name, number);
        number
    }

    fn stack(&mut self, location_indices: Vec<i32>) -> i32 {
        let number = self.dictionary.stack_table.len() as i32;
        self.dictionary.stack_table.push(Stack { location_indices });
        number
    }

    fn kind(&mut self, what: &str, unit: &str) -> ValueType {
        ValueType {
            type_strindex: self.text(what),
            unit_strindex: self.text(unit),
        }
    }
}

/// A place of the tree: its stack, blocks and bytes.
type Place = (Vec<i32>, u64, u64);

fn places(census: &Census, tables: &mut Tables) -> Vec<Place> {
    let Some(tree) = census.tree.as_ref().filter(|tree| tree.nodes.len() > 1) else {
        let rows = census.rows.iter();
        return rows
            .map(|row| {
                let name = printable(&row.kind.title(&row.name));
                let stack = vec![tables.location(&name)];
                (stack, row.blocks, row.with_parts_bytes)
            })
            .collect();
    };
    let mut stacks: Vec<Vec<i32>> = Vec::with_capacity(tree.nodes.len());
    let mut cut: Vec<u64> = tree
        .nodes
        .iter()
        .map(|node| node.held_bytes - node.own_bytes.min(node.held_bytes))
        .collect();
    let mut places = Vec::new();
    for (number, node) in tree.nodes.iter().enumerate() {
        // The first place is all, and no frame.
        let mut stack = Vec::new();
        if number > 0 {
            let parent = (node.parent as usize).min(number - 1);
            cut[parent] = cut[parent].saturating_sub(node.held_bytes);
            let name = tree.names.get(node.name as usize).map_or("", |name| name);
            stack.push(tables.location(&printable(&node.kind.title(name))));
            stack.extend_from_slice(&stacks[parent]);
        }
        if node.own_bytes > 0 && !stack.is_empty() {
            places.push((stack.clone(), node.blocks, node.own_bytes));
        }
        stacks.push(stack);
    }
    for (stack, bytes) in stacks.iter().zip(cut).filter(|(_, bytes)| *bytes > 0) {
        let mut whole = vec![tables.location(OTHERS)];
        whole.extend_from_slice(stack);
        places.push((whole, 0, bytes));
    }
    places
}

/// The request for one process.
pub fn request(
    resource: Resource,
    census: &Census,
    time: Duration,
) -> ExportProfilesServiceRequest {
    let mut tables = Tables::new();
    let places: Vec<(i32, u64, u64)> = places(census, &mut tables)
        .into_iter()
        .map(|(stack, blocks, bytes)| (tables.stack(stack), blocks, bytes))
        .collect();
    let kinds = [
        tables.kind("inuse_space", "bytes"),
        tables.kind("inuse_objects", "count"),
    ];
    let profiles = kinds.into_iter().enumerate().map(|(which, kind)| {
        let samples = places.iter().map(|(stack, blocks, bytes)| Sample {
            stack_index: *stack,
            values: vec![[*bytes, *blocks][which] as i64],
            ..Sample::default()
        });
        Profile {
            sample_type: Some(kind),
            samples: samples.filter(|sample| sample.values != [0]).collect(),
            time_unix_nano: nanos(time),
            profile_id: fastrand::u128(1..).to_be_bytes().to_vec(),
            ..Profile::default()
        }
    });
    let profiles = profiles.collect();
    ExportProfilesServiceRequest {
        resource_profiles: vec![ResourceProfiles {
            resource: Some(resource),
            scope_profiles: vec![ScopeProfiles {
                scope: Some(resource::scope()),
                profiles,
                ..ScopeProfiles::default()
            }],
            ..ResourceProfiles::default()
        }],
        dictionary: Some(tables.dictionary),
    }
}
