// The same in Rust: lose_session() forgets vectors; serve() replaces vectors.
use std::time::{Duration, Instant};

#[inline(never)]
fn lose_session(block: usize) {
    std::mem::forget(std::hint::black_box(vec![1u8; block]));
}

#[inline(never)]
fn serve(kept: &mut [Vec<u8>], seed: &mut u32) {
    *seed = seed.wrapping_mul(1103515245).wrapping_add(12345);
    let place = (*seed >> 8) as usize % kept.len();
    kept[place] = vec![2u8; 16 + (*seed >> 12) as usize % 2000];
}

fn main() {
    let arguments: Vec<f64> = std::env::args().skip(1).map(|word| word.parse().unwrap()).collect();
    let (rate, block, calls) = (arguments[0], arguments[1] as usize, arguments[2]);
    let mut kept = vec![Vec::new(); 1000];
    let (mut seed, mut leaked, mut served) = (1u32, 0.0, 0.0);
    let begun = Instant::now();
    loop {
        let passed = begun.elapsed().as_secs_f64();
        while leaked + block as f64 <= passed * rate {
            lose_session(block);
            leaked += block as f64;
        }
        served = f64::max(served, passed * calls - 100_000.0);
        for _ in 0..10_000 {
            if served >= passed * calls {
                std::thread::sleep(Duration::from_micros(500));
                break;
            }
            serve(&mut kept, &mut seed);
            served += 1.0;
        }
    }
}
