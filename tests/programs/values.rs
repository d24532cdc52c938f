// SPDX-License-Identifier: MIT
//! Values of all sorts of types, passed to functions of all sorts.

pub mod cart {
    #[derive(Clone, Copy, PartialEq, Debug)]
    pub enum Color { Red, Green = 5, Blue = 9 }
    #[repr(i16)]
    #[derive(Clone, Copy, Debug)]
    pub enum Level { Low = -3, High = 300 }
    pub struct Point { pub x: i32, pub y: i64 }
    pub struct Pair(pub u8, pub i16);
    pub enum Shape { Empty, Circle(u32), Rect { w: u16, h: u16 }, Named(String) }
    pub struct Customer<'a> {
        pub name: &'a str,
        pub owned: String,
        pub tags: Vec<u32>,
        pub color: Color,
        pub level: Level,
        pub vip: bool,
        pub letter: char,
        pub age: u8,
        pub debt: i64,
        pub big: u128,
        pub ratio: f64,
        pub at: Point,
        pub pair: Pair,
        pub both: (i32, u8),
        pub grid: [[u16; 3]; 2],
        pub best: Option<&'a Point>,
        pub none: Option<&'a Point>,
        pub maybe: Option<u32>,
        pub shape: Shape,
        pub boxed: Box<Point>,
        pub raw: *const i32,
        pub unit: (),
    }
    #[inline(never)]
    pub fn sell(customer: &Customer, qty: i32, slice: &[u16], name: &str, yes: bool) -> i32 {
        let sum = customer.at.x + qty + slice.len() as i32 + name.len() as i32;
        let more = sum * 2;
        std::hint::black_box(more);
        if yes { sum } else { more }
    }
    #[inline(never)]
    pub fn by_value(p: Point, pair: Pair, both: (i32, u8), c: char, color: Color, o: Option<u32>, s: Shape) -> i64 {
        std::hint::black_box(p.y + pair.1 as i64 + both.0 as i64 + c as i64 + color as i64 + o.unwrap_or(3) as i64
            + match s { Shape::Circle(n) => n as i64, Shape::Rect{w, h} => (w * h) as i64, _ => 0 })
    }
    #[inline(never)]
    pub fn most<T: PartialOrd + Copy>(a: T, b: T) -> T { if std::hint::black_box(a) > b { a } else { b } }
    pub struct Cart { pub n: u32, pub items: Vec<u64> }
    pub trait Shop { fn buy(&mut self, n: u32) -> u32; }
    impl Cart {
        #[inline(never)]
        pub fn add(&mut self, n: u32) { self.n += std::hint::black_box(n); self.items.push(n as u64); }
        #[inline(never)]
        pub fn total(self, x: u64) -> u64 { std::hint::black_box(self.n as u64 + x) }
    }
    impl Shop for Cart {
        #[inline(never)]
        fn buy(&mut self, n: u32) -> u32 { self.n -= std::hint::black_box(n); self.n }
    }
    #[inline(never)]
    pub fn parse(text: &str) -> Option<Box<Point>> {
        if std::hint::black_box(text).is_empty() { None } else { Some(Box::new(Point { x: text.len() as i32, y: -1 })) }
    }
}
use cart::*;
static STOCK: std::sync::atomic::AtomicI32 = std::sync::atomic::AtomicI32::new(12);
#[inline(never)]
fn apply<F: Fn(i32) -> i32>(f: F, n: i32) -> i32 { f(std::hint::black_box(n)) }
fn main() {
    let p = Point { x: 11, y: -12 };
    let n = 5i32;
    let c = Customer { name: "alice", owned: String::from("owned text"), tags: vec![1, 2, 3], color: Color::Green,
        level: Level::Low, vip: true, letter: 'é', age: 44, debt: -5, big: 1 << 100, ratio: 1.5, at: Point { x: 1, y: 2 },
        pair: Pair(7, -8), both: (-9, 10), grid: [[1, 2, 3], [4, 5, 6]], best: Some(&p), none: None, maybe: Some(77),
        shape: Shape::Rect { w: 3, h: 4 }, boxed: Box::new(Point { x: 5, y: 6 }), raw: &n, unit: () };
    let mut r = sell(&c, 3, &[1, 2, 3, 4], "bobby", true) as i64;
    r += sell(&c, -4, &[9], "x", false) as i64;
    r += by_value(Point { x: 1, y: 2 }, Pair(3, 4), (5, 6), 'z', Color::Blue, Some(8), Shape::Circle(9));
    r += by_value(Point { x: 1, y: 2 }, Pair(3, -4), (-5, 6), 'q', Color::Red, None, Shape::Named("n".to_string()));
    for n in 3..5 { r += most(n, 4) as i64 + most(n as u8 + 2, 6) as i64; }
    let mut cart = Cart { n: 1, items: vec![] };
    for n in 4..6 { cart.add(n); }
    for n in 1..3 { r += cart.buy(n) as i64; }
    r += cart.total(100) as i64;
    for m in 6..8 { r += apply(#[inline(never)] |x| std::hint::black_box(x + n), m) as i64; }
    r += parse("hello").map_or(0, |p| p.y) + STOCK.load(std::sync::atomic::Ordering::Relaxed) as i64;
    println!("{} {} {} {} {}", r, c.owned, c.tags.len(), c.big, c.ratio);
}
