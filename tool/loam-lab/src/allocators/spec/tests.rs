use super::*;

fn available() -> Vec<Allocator> {
    let one = |name: &str, status| Allocator {
        name: name.to_owned(),
        title: name.to_owned(),
        status,
        version: None,
        path: None,
        source: String::new(),
        environment: BTreeMap::new(),
        memory_environment: match name {
            "jemalloc" => BTreeMap::from([("MALLOC_CONF".into(), "x:0".into())]),
            _ => BTreeMap::new(),
        },
        reason: (status == Status::Absent).then(|| "not installed".to_owned()),
        remedy: (status == Status::Absent).then(|| "apt-get install it".to_owned()),
    };
    vec![
        one("system", Status::Found),
        one("loam", Status::Found),
        one("jemalloc", Status::Found),
        one("mimalloc", Status::Absent),
    ]
}

fn labels(lists: &[&str]) -> Result<Vec<String>, SpecError> {
    let lists: Vec<String> = lists.iter().map(|list| (*list).to_owned()).collect();
    pick(&lists, &available()).map(|all| all.into_iter().map(|one| one.label).collect())
}

fn environment(list: &str) -> Vec<(String, String)> {
    pick(&[list.to_owned()], &available())
        .unwrap()
        .pop()
        .unwrap()
        .environment
        .into_iter()
        .collect()
}

#[test]
fn names_and_aliases_are_picked_in_order() {
    assert_eq!(
        labels(&["loam,glibc", "jemalloc"]).unwrap(),
        ["loam", "system", "jemalloc"]
    );
}

#[test]
fn a_value_keeps_its_commas_and_colons() {
    let spec = "jemalloc:MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0";
    let value = (
        "MALLOC_CONF".to_owned(),
        "dirty_decay_ms:0,muzzy_decay_ms:0".to_owned(),
    );
    assert_eq!(environment(spec), [value]);
    assert_eq!(labels(&[&format!("{spec},loam")]).unwrap(), [spec, "loam"]);
}

#[test]
fn lists_are_split_into_specs_that_are_lists_of_one() {
    let tight = "tight=jemalloc:MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:0";
    let lists = [format!("{tight},loam"), "system".to_owned()];
    let specs = split(&lists, &available()).unwrap();
    assert_eq!(specs, [tight, "loam", "system"]);
    assert_eq!(split(&specs, &available()).unwrap(), specs);
}

#[test]
fn one_allocator_takes_several_settings() {
    let spec =
        "system:GLIBC_TUNABLES=glibc.malloc.arena_max=1:glibc.malloc.trim=2:MALLOC_TOP_PAD_=0";
    let settings = environment(spec);
    assert_eq!(settings.len(), 2);
    assert_eq!(
        settings[0].1,
        "glibc.malloc.arena_max=1:glibc.malloc.trim=2"
    );
}

#[test]
fn the_advised_memory_setting_has_a_short_name() {
    assert_eq!(
        environment("jemalloc:memory"),
        [("MALLOC_CONF".to_owned(), "x:0".to_owned())]
    );
    assert_eq!(
        labels(&["loam:memory"]),
        Err(SpecError::NoMemorySetting {
            name: "loam".into()
        })
    );
}

#[test]
fn a_label_tells_two_settings_of_one_library_apart() {
    assert_eq!(
        labels(&["a=jemalloc:A=1,b=jemalloc:A=2"]).unwrap(),
        ["a", "b"]
    );
    assert_eq!(
        labels(&["loam,loam"]),
        Err(SpecError::Twice {
            label: "loam".into()
        })
    );
}

#[test]
fn what_can_not_be_used_is_an_error_with_a_remedy() {
    let error = labels(&["jemaloc"]).unwrap_err().to_string();
    assert!(
        error.contains("did you mean `jemalloc`") && error.contains("known: system"),
        "{error}"
    );
    let error = labels(&["mimalloc"]).unwrap_err().to_string();
    assert!(
        error.contains("not installed") && error.contains("apt-get"),
        "{error}"
    );
    assert!(matches!(
        labels(&["jemalloc:A=1,jemaloc"]),
        Err(SpecError::Unknown { .. })
    ));
    assert!(matches!(
        labels(&["loam:quick"]),
        Err(SpecError::Setting { .. })
    ));
    assert!(matches!(
        labels(&["loam:LD_PRELOAD=x.so"]),
        Err(SpecError::Preload { .. })
    ));
    assert_eq!(labels(&["loam,,system"]), Err(SpecError::Empty));
    assert!(matches!(
        labels(&["./no/such.so"]),
        Err(SpecError::Absent { .. })
    ));
}
