use super::*;
use crate::quantity::Bytes;
use crate::settings::*;
use proptest::prelude::*;

fn settings(workload: Workload, workers: u32) -> RunSettings {
    RunSettings { workload, workers, ..RunSettings::default() }
}

/// Marks every byte that is in a request; a byte in two of them, or outside the file, fails.
fn bitmap(settings: &RunSettings, seed: u64) -> Vec<u8> {
    settings.check().unwrap();
    let mut touched = vec![0_u8; file_bytes(settings, seed, 0).unwrap() as usize];
    for worker in 0..settings.workers {
        let part = part(settings, seed, worker).unwrap();
        let mut bytes = 0;
        for request in part.requests {
            assert!(request.bytes <= part.request_bytes_max);
            bytes += request.bytes;
            for byte in &mut touched[request.offset as usize..(request.offset + request.bytes) as usize] {
                *byte += 1;
            }
        }
        assert_eq!(bytes, part.bytes);
    }
    touched
}

fn each_byte_once(settings: &RunSettings) {
    assert!(bitmap(settings, 3).iter().all(|count| *count == 1));
}

fn offset(pattern: Pattern, data_size: Sizes, request_size: Sizes, segments: u32) -> Workload {
    Workload::Offset(OffsetWorkload { pattern, data_size, request_size, segments, ..OffsetWorkload::default() })
}

fn dataset(dimensions: &[u64], divisions: &[u32], variables: &[DataType]) -> Workload {
    Workload::Dataset(DatasetWorkload {
        variables: variables.to_vec(),
        dimensions: dimensions.to_vec(),
        divisions: divisions.to_vec(),
    })
}

proptest! {
    #[test]
    fn patterns_touch_every_byte_of_a_shared_file_exactly_once(
        data in 64_u64..5000, request in 1_u64..700, workers in 1_u32..6, segments in 1_u32..9, seed: u64
    ) {
        for pattern in [Pattern::Sequential, Pattern::Random, Pattern::Segmented] {
            let workload = offset(pattern, Sizes::One(Bytes(data)), Sizes::One(Bytes(request)), segments);
            prop_assert!(bitmap(&settings(workload, workers), seed).iter().all(|count| *count == 1));
        }
        // A stride leaves holes where the last round is not full.
        let workload = offset(Pattern::Strided, Sizes::One(Bytes(data)), Sizes::One(Bytes(request)), 1);
        let touched = bitmap(&settings(workload, workers), seed);
        prop_assert!(touched.iter().all(|count| *count <= 1));
        prop_assert_eq!(touched.iter().map(|count| u64::from(*count)).sum::<u64>(), data * u64::from(workers));
    }

    #[test]
    fn workers_of_different_sizes_touch_every_byte_exactly_once(
        sizes in prop::collection::vec((1_u64..3000, 1_u64..300), 1..6), seed: u64
    ) {
        let data = Sizes::Each(sizes.iter().map(|(data, _)| Bytes(*data)).collect());
        let request = Sizes::Each(sizes.iter().map(|(_, request)| Bytes(*request)).collect());
        for pattern in [Pattern::Sequential, Pattern::Random] {
            let workload = offset(pattern, data.clone(), request.clone(), 1);
            prop_assert!(bitmap(&settings(workload, sizes.len() as u32), seed).iter().all(|count| *count == 1));
        }
    }

    #[test]
    fn grids_are_divided_without_rest_and_overlap(
        dimensions in prop::collection::vec((1_u64..12, 1_u64..5), 1..4), two: bool
    ) {
        let sizes: Vec<u64> = dimensions.iter().map(|(size, division)| size * division.min(size)).collect();
        let divisions: Vec<u32> = dimensions.iter().map(|(size, division)| *division.min(size) as u32).collect();
        let variables = if two { vec![DataType::Int16, DataType::Float64] } else { vec![DataType::Float32] };
        let workers = divisions.iter().product();
        let mut settings = settings(dataset(&sizes, &divisions, &variables), workers);
        prop_assert!(bitmap(&settings, 0).iter().all(|count| *count == 1));
        settings.coalesce = Coalesce::On;
        prop_assert!(bitmap(&settings, 0).iter().all(|count| *count == 1));
    }
}

#[test]
fn iore_uneven_divisions_work() {
    each_byte_once(&settings(dataset(&[5], &[4], &[DataType::Float32]), 4));
    let rows: Vec<u64> = (0..4)
        .map(|worker| part(&settings(dataset(&[5], &[4], &[DataType::Float32]), 4), 0, worker).unwrap().bytes / 4)
        .collect();
    assert_eq!(rows, [1, 1, 1, 2]);
}

#[test]
fn iore_a_grid_of_1152_by_577_by_94_is_divided_by_7() {
    for divisions in [[7, 1, 1], [1, 7, 1], [1, 1, 7]] {
        let settings = settings(dataset(&[1152, 577, 94], &divisions, &[DataType::Int8]), 7);
        settings.check().unwrap();
        let mut touched = vec![0_u64; (1152 * 577 * 94_usize).div_ceil(64)];
        for worker in 0..7 {
            for request in part(&settings, 0, worker).unwrap().requests {
                for byte in request.offset..request.offset + request.bytes {
                    let (word, bit) = (byte as usize / 64, 1 << (byte % 64));
                    assert_eq!(touched[word] & bit, 0, "byte {byte} is in two requests");
                    touched[word] |= bit;
                }
            }
        }
        let bits: u64 = touched.iter().map(|word| u64::from(word.count_ones())).sum();
        assert_eq!(bits, 1152 * 577 * 94);
    }
}

#[test]
fn iore_random_requests_are_not_contiguous() {
    let workload = offset(Pattern::Random, Sizes::One(Bytes(1 << 20)), Sizes::One(Bytes(4096)), 1);
    let settings = settings(workload, 4);
    each_byte_once(&settings);
    let offsets: Vec<u64> = part(&settings, 1, 2).unwrap().requests.map(|request| request.offset).collect();
    let follow = offsets.windows(2).filter(|pair| pair[1] == pair[0] + 4096).count();
    assert!(follow < 10, "{follow} of 256 requests follow their predecessor");
    assert!(offsets.iter().any(|offset| *offset < 1 << 20) && offsets.iter().any(|offset| *offset > 3 << 20));
}

#[test]
fn iore_more_than_4_gib_of_a_worker_do_not_overflow() {
    let workload = offset(Pattern::Sequential, Sizes::One(Bytes(5 << 30)), Sizes::One(Bytes(1 << 20)), 1);
    let settings = settings(workload, 3);
    settings.check().unwrap();
    let part = part(&settings, 0, 2).unwrap();
    assert_eq!(part.bytes, 5 << 30);
    let last = part.requests.last().unwrap();
    assert_eq!(last.offset + last.bytes, 15 << 30);
}

#[test]
fn offsets_beyond_4_tib_are_exact() {
    let workload = Workload::Offset(OffsetWorkload {
        start: Bytes(5 << 40),
        gap: Bytes(1 << 40),
        data_size: Sizes::One(Bytes(1 << 20)),
        request_size: Sizes::One(Bytes(1 << 19)),
        ..OffsetWorkload::default()
    });
    let settings = settings(workload, 3);
    settings.check().unwrap();
    let first = part(&settings, 0, 2).unwrap().requests.next().unwrap();
    assert_eq!(first.offset, (7 << 40) + (2 << 20));
    assert_eq!(file_bytes(&settings, 0, 0).unwrap(), (7 << 40) + (3 << 20));
}

#[test]
fn particles_touch_every_byte_exactly_once() {
    for arrangement in [Arrangement::Columns, Arrangement::Records] {
        let workload = Workload::Particles(ParticleWorkload {
            count: 1003,
            properties: vec![DataType::Float32, DataType::Float64, DataType::Int16],
            arrangement,
            request_size: Bytes(100),
        });
        each_byte_once(&settings(workload, 7));
    }
}

#[test]
fn coalesced_rows_are_one_request_where_they_touch() {
    let mut settings = settings(dataset(&[8, 8, 8], &[2, 2, 1], &[DataType::Float32]), 4);
    assert_eq!(part(&settings, 0, 0).unwrap().requests.count(), 16);
    settings.coalesce = Coalesce::On;
    assert_eq!(part(&settings, 0, 0).unwrap().requests.count(), 4);
    settings.coalesce = Coalesce::UpTo(Bytes(64));
    assert_eq!(part(&settings, 0, 0).unwrap().requests.count(), 8);
}

#[test]
fn drawn_sizes_follow_from_the_seed_and_their_distribution() {
    let mean = |distribution: Distribution| {
        let sizes = Sizes::Drawn(distribution);
        let drawn: Vec<u64> = (0..2000).map(|worker| sizes::size_of(&sizes, worker, 9, 0).unwrap()).collect();
        assert_eq!(drawn[7], sizes::size_of(&sizes, 7, 9, 0).unwrap());
        assert!(drawn.iter().all(|size| *size >= 1));
        drawn.iter().sum::<u64>() as f64 / drawn.len() as f64
    };
    let uniform = Distribution::Uniform(UniformParameters { min: Bytes(1000), max: Bytes(3000) });
    let normal = Distribution::Normal(NormalParameters { mean: Bytes(2000), standard_deviation: Bytes(100) });
    let geometric = Distribution::Geometric(GeometricParameters { mean: Bytes(2000) });
    for distribution in [uniform, normal, geometric] {
        let mean = mean(distribution.clone());
        assert!((1800.0..2200.0).contains(&mean), "{distribution:?} has a mean of {mean}");
    }
}

#[test]
fn impossible_divisions_are_refused_with_the_reason() {
    let refused = |dimensions: &[u64], divisions: &[u32], workers| {
        settings(dataset(dimensions, divisions, &[DataType::Float32]), workers).check().unwrap_err().to_string()
    };
    assert!(refused(&[8, 8], &[2, 2], 3).contains("4 parts for 3 workers"));
    assert!(refused(&[2, 8], &[4, 1], 4).contains("can't be divided into 4"));
    assert!(refused(&[8], &[2, 2], 4).contains("1 dimensions and 2 divisions"));
    assert!(refused(&[u64::MAX, 2], &[1, 1], 1).contains("8 EiB"));
}

#[test]
fn a_tree_has_its_files_once_and_parents_before_children() {
    let workload = MetadataWorkload { files: 50, depth: 2, fanout: 3, ..MetadataWorkload::default() };
    let tree = Tree::new(std::path::Path::new("/t"), &workload, 1, None);
    let files: std::collections::BTreeSet<_> = tree.files().collect();
    assert_eq!(files.len(), 50);
    let directories: Vec<_> = tree.directories().collect();
    assert_eq!(directories.len(), 1 + 3 + 9);
    for file in &files {
        assert!(directories.contains(&file.parent().unwrap().to_owned()));
    }
}
