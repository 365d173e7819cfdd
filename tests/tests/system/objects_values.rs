//! Questions about values, and regions of the program's memory.

use terrace_client::{ArraySpec, Create, DataType, Kind, Region, Session, Where, histogram};
use terrace_tests::{Random, Served, Workplace};

const ROWS: u64 = 40;
const COLUMNS: u64 = 5000;

/// Against a look at each cell, where extents overlap, lie in the root alone, and are known by their ranges.
#[test]
fn cells_are_selected_by_what_they_are() {
    let place = Workplace::new();
    let served = Served::begin(&place, &[]);
    let here = Session::open(&served.index).unwrap();
    let there = Session::connect_to(&served.address, Served::TOKEN).unwrap();
    let mut random = Random::new(23);
    let spec = |data_type| ArraySpec::new(data_type, &[ROWS, COLUMNS]).chunks(&[7, 1000]);
    let a = here.create_array("a", &spec(DataType::Float32), Create::New).unwrap();
    let b = here.create_array("b", &spec(DataType::Int64), Create::New).unwrap();
    let (mut of_a, mut of_b) = (vec![0f32; (ROWS * COLUMNS) as usize], vec![0i64; (ROWS * COLUMNS) as usize]);
    for turn in 0..60 {
        let row = random.below(ROWS - 8);
        let column = random.below(COLUMNS - 2000);
        let region = Region::block(&[row, column], &[8, 2000]).unwrap();
        let base = turn as f32 * 10.0;
        let values: Vec<f32> = (0..16_000).map(|_| base + random.below(100) as f32 / 10.0).collect();
        let others: Vec<i64> = (0..16_000).map(|_| random.below(1000) as i64 - 500).collect();
        a.put_values(&region, &values).unwrap();
        b.put_values(&region, &others).unwrap();
        for number in 0..16_000u64 {
            let at = ((row + number / 2000) * COLUMNS + column + number % 2000) as usize;
            (of_a[at], of_b[at]) = (values[number as usize], others[number as usize]);
        }
        if turn == 30 {
            here.evict("a").unwrap();
        }
    }
    let ask = |session: &Session| {
        let (a, b) = (session.open_array("a", false).unwrap(), session.open_array("b", false).unwrap());
        let low = || Where::new(&a, ">= 95.5").unwrap();
        let high = || Where::new(&a, "< 420").unwrap();
        let few = || Where::new(&b, "= 7").unwrap();
        type Wanted = fn(f32, i64) -> bool;
        let asked: [(Where, Wanted); 4] = [
            (low(), |a, _| a >= 95.5),
            (low().and(high()), |a, _| (95.5..420.0).contains(&a)),
            (low().and(high()).and(few()), |a, b| (95.5..420.0).contains(&a) && b == 7),
            (few().or(Where::new(&a, "> 1e9").unwrap()), |_, b| b == 7),
        ];
        for (number, (question, wanted)) in asked.into_iter().enumerate() {
            let wanted_at = |at: &usize| wanted(of_a[*at], of_b[*at]);
            let positions: Vec<usize> = (0..of_a.len()).filter(wanted_at).collect();
            let selection = question.select(None).unwrap();
            assert_eq!(selection.count(), positions.len() as u64, "question {number}");
            assert!(selection.positions().eq(positions.iter().map(|at| *at as u64)), "question {number}");
            let data = selection.data(&a).unwrap();
            let values = data.chunks_exact(4).map(|cell| f32::from_le_bytes(cell.try_into().unwrap()));
            assert!(values.eq(positions.iter().map(|at| of_a[*at])), "question {number}");

            let block = Region::block(&[5, 100], &[20, 3000]).unwrap();
            let inside = |at: &&usize| {
                (5..25).contains(&(**at as u64 / COLUMNS)) && (100..3100).contains(&(**at as u64 % COLUMNS))
            };
            let selection = question.select(Some(&block)).unwrap();
            assert!(
                selection.positions().eq(positions.iter().filter(inside).map(|at| *at as u64)),
                "question {number}"
            );
        }
        let found = histogram(&a, None, 10, Some((0.0, 600.0))).unwrap();
        let mut wanted = vec![0u64; 10];
        of_a.iter()
            .filter(|value| (0.0..=600.0).contains(*value))
            .for_each(|value| wanted[((value / 60.0) as usize).min(9)] += 1);
        assert_eq!(found.counts, wanted);
        let all = histogram(&b, None, 3, None).unwrap();
        assert_eq!(all.counts.iter().sum::<u64>(), ROWS * COLUMNS);
    };
    ask(&here);
    ask(&there);
    here.flush("").unwrap();
    ask(&here);

    let other = here.create_array("other", &ArraySpec::new(DataType::Int8, &[3]), Create::New).unwrap();
    let refused = Where::new(&a, "> 1").unwrap().and(Where::new(&other, "> 1").unwrap()).select(None).unwrap_err();
    assert!(refused.kind == Kind::Invalid && refused.message.contains("shape"), "{refused}");
    assert_eq!(Where::new(&a, "about 3").err().unwrap().kind, Kind::Invalid);
    let text = here.create_array("text", &ArraySpec::new(DataType::Bytes(4), &[3]), Create::New).unwrap();
    assert_eq!(Where::new(&text, "> 1").err().unwrap().kind, Kind::Invalid);
    drop((a, b, other, text, here, there));
    served.end();
}

/// The inside of a buffer with a halo, and every second cell of another.
#[test]
fn cells_are_put_from_and_got_into_regions_of_memory() {
    let place = Workplace::new();
    let served = Served::begin(&place, &[]);
    let session = Session::open(&served.index).unwrap();
    let array = session.create_array("a", &ArraySpec::new(DataType::UInt16, &[6, 8]), Create::New).unwrap();
    let bytes = |values: &[u16]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
    let with_halo: Vec<u16> = (0..8 * 10).collect();
    let inside = Region::block(&[1, 1], &[6, 8]).unwrap();
    array.put_from(&Region::whole(&[6, 8]).unwrap(), &[8, 10], &inside, &bytes(&with_halo)).unwrap();
    let cells = array.get_values::<u16>(&Region::whole(&[6, 8]).unwrap()).unwrap();
    assert!(cells.iter().enumerate().all(|(at, cell)| *cell as usize == (at / 8 + 1) * 10 + at % 8 + 1));

    // A row of the array into every second cell of a line.
    let mut line = vec![0xff; 16 * 2];
    let every_second = Region::strided(&[1], &[8], &[2]).unwrap();
    let row = Region::block(&[2, 0], &[1, 8]).unwrap();
    array.get_into(&row, &[16], &every_second, &mut line).unwrap();
    let line: Vec<u16> = line.chunks_exact(2).map(|cell| u16::from_le_bytes(cell.try_into().unwrap())).collect();
    assert!((0..8).all(|at| line[2 * at] == 0xffff && line[2 * at + 1] == 31 + at as u16), "{line:?}");

    let refused = array.put_from(&row, &[16], &Region::block(&[0], &[7]).unwrap(), &[0; 32]).unwrap_err();
    assert!(refused.message.contains("7"), "{refused}");
    let refused = array.put_from(&row, &[16], &Region::block(&[9], &[8]).unwrap(), &[0; 32]).unwrap_err();
    assert_eq!(refused.kind, Kind::OutOfBounds);
    assert_eq!(array.put_from(&row, &[16], &every_second, &[0; 31]).unwrap_err().kind, Kind::Invalid);
    drop((array, session));
    served.end();
}
