//! A library that a program opens when it runs.

#[global_allocator]
static HEAP: loam_alloc::Loam = loam_alloc::Loam;

/// How many blocks of a hundred are Loam's, half of them another thread's.
#[no_mangle]
pub extern "C" fn blocks_on_loam() -> i32 {
    let count = || {
        let blocks: Vec<Box<u64>> = (0..50).map(Box::new).collect();
        blocks
            .iter()
            .filter(|block| loam_alloc::owns(&***block))
            .count() as i32
    };
    count() + std::thread::spawn(count).join().unwrap_or(0)
}
