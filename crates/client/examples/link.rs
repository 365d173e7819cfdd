//! What objects reach over a link, beside what a plain stream reaches on it. Prints JSON lines.
//!
//!   link serve ADDRESS:PORT              the other end of the plain stream
//!   link measure TARGET ADDRESS:PORT     puts and gets by way of TARGET (tcp://, tls://, plain://) and streams, taking turns

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Instant;
use terrace_client::{ArraySpec, Create, DataType, Region, Session};

const SIZES: [usize; 3] = [1 << 20, 16 << 20, 64 << 20];
const ROUNDS: usize = 15;
const LARGEST: usize = 64 << 20;

fn serve(address: &str) -> std::io::Result<()> {
    let listener = TcpListener::bind(address)?;
    let mut buffer = vec![1u8; LARGEST];
    loop {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut request = [0; 9];
        while stream.read_exact(&mut request).is_ok() {
            let bytes = u64::from_le_bytes(request[1..].try_into().expect("8 bytes")) as usize;
            match request[0] {
                b'p' => {
                    stream.read_exact(&mut buffer[..bytes])?;
                    stream.write_all(&[0])?;
                }
                _ => stream.write_all(&buffer[..bytes])?,
            }
        }
    }
}

fn ask(stream: &mut TcpStream, what: u8, bytes: usize) -> std::io::Result<()> {
    let mut request = [what; 9];
    request[1..].copy_from_slice(&(bytes as u64).to_le_bytes());
    stream.write_all(&request)
}

fn seconds(act: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    act();
    begun.elapsed().as_secs_f64()
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn measure(target: &str, address: &str) -> terrace_client::Result<()> {
    let session = Session::connect(target)?;
    let mut stream = TcpStream::connect(address).expect("`link serve` listens");
    stream.set_nodelay(true).expect("a socket");
    let mut buffer = vec![7u8; LARGEST];
    for size in SIZES {
        let spec = ArraySpec::new(DataType::UInt8, &[size as u64]);
        let array = session.create_array(&format!("link-{size}"), &spec, Create::Replace)?;
        let region = Region::whole(&[size as u64])?;
        let mut times: [Vec<f64>; 4] = Default::default();
        // The first rounds touch the memory on both sides.
        for round in 0..ROUNDS + 3 {
            let cells = &mut buffer[..size];
            let turn = [
                seconds(|| array.put(&region, cells).expect("a put")),
                seconds(|| {
                    ask(&mut stream, b'p', size).and_then(|()| stream.write_all(cells)).expect("a stream");
                    stream.read_exact(&mut [0]).expect("a stream");
                }),
                seconds(|| array.get(&region, cells).expect("a get")),
                seconds(|| {
                    ask(&mut stream, b'g', size).expect("a stream");
                    stream.read_exact(cells).expect("a stream");
                }),
            ];
            if round >= 3 {
                times.iter_mut().zip(turn).for_each(|(times, time)| times.push(time));
            }
        }
        let rate = times.map(|times| size as f64 / median(times) / 1e9);
        println!(
            "{{\"bytes\": {size}, \"put_gb_s\": {:.2}, \"stream_out_gb_s\": {:.2}, \"put_of_stream\": {:.2}, \
             \"get_gb_s\": {:.2}, \"stream_in_gb_s\": {:.2}, \"get_of_stream\": {:.2}}}",
            rate[0],
            rate[1],
            rate[0] / rate[1],
            rate[2],
            rate[3],
            rate[2] / rate[3]
        );
        session.remove(&format!("link-{size}"), false)?;
    }
    Ok(())
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["serve", address] => serve(address).expect("an address to listen on"),
        ["measure", target, address] => {
            if let Err(error) = measure(target, address) {
                eprintln!("link: {error}");
                std::process::exit(1);
            }
        }
        _ => eprintln!("usage: link serve ADDRESS:PORT | link measure TARGET ADDRESS:PORT"),
    }
}
