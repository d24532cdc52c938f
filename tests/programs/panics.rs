// SPDX-License-Identifier: MIT
//! Threads that panic, clean up and catch it, and count what they do.
use std::io::BufRead;
use std::panic;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::thread;

static MADE: AtomicI64 = AtomicI64::new(0);
static DROPPED: AtomicI64 = AtomicI64::new(0);
const THREADS: i64 = 4;
const DEPTH: i64 = 4;

struct Held(i64);

impl Drop for Held {
    #[inline(never)]
    fn drop(&mut self) {
        DROPPED.fetch_add(self.0, Relaxed);
    }
}

#[no_mangle]
#[inline(never)]
pub fn risk(n: i64, depth: i64) -> i64 {
    let held = Held(1);
    MADE.fetch_add(1, Relaxed);
    if depth > 0 {
        return risk(n, depth - 1) + held.0;
    }
    if n % 3 == 0 {
        panic!("{}", n);
    }
    n
}

#[no_mangle]
#[inline(never)]
pub fn accept(n: i64) -> i64 {
    match panic::catch_unwind(|| risk(n, DEPTH)) {
        Ok(sum) => sum - DEPTH,
        Err(told) => -told.downcast_ref::<String>().unwrap().parse::<i64>().unwrap(),
    }
}

fn main() {
    panic::set_hook(Box::new(|_| {}));
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let calls: i64 = line.unwrap().trim().parse().unwrap();
        let (made, dropped) = (MADE.load(Relaxed), DROPPED.load(Relaxed));
        let work = move || {
            for n in 0..calls {
                assert!(accept(n) == if n % 3 == 0 { -n } else { n });
            }
        };
        let all: Vec<_> = (0..THREADS).map(|_| thread::spawn(work)).collect();
        for one in all {
            one.join().unwrap();
        }
        assert!(DROPPED.load(Relaxed) - dropped == MADE.load(Relaxed) - made);
        println!("made {}", MADE.load(Relaxed) - made);
    }
}
