//! The machine that is asked about: a platform file; or tiers, as measured, as set, as flags say; then single numbers over it.

use crate::args::StorageArgs;
use crate::workload::{parse, parse_json, report_measured_tiers, report_tiers};
use std::path::Path;
use terrace_core::refusal::nearest;
use terrace_model::platform::{CopyCost, DurableTier, FastTier, Mover, PageCache, Peers};
use terrace_model::{Platform, TierMeasurements};
use terrace_tool::failure::{Failure, Result};
use terrace_tool::filesystem::FileSystem;
use terrace_tool::resolve::{Resolved, resolve};
use terrace_tool::setting_args::SettingArgs;

/// The platform, and notes on what was assumed.
pub fn platform(args: &StorageArgs, report: Option<&Path>) -> Result<(Platform, Vec<String>)> {
    let mut notes = vec![];
    let mut platform = match (&args.platform, &args.tiers) {
        (Some(file), _) => parse::<Platform>(file, "a platform")?,
        (None, Some(file)) => measured(args, file, report, &mut notes)?,
        (None, None) if !args.fast_tier.is_empty() => Platform { tiers: fast_tiers(args)?, ..bare(args)? },
        (None, None) => match reported(report)?.filter(|_| args.config.is_none()) {
            Some(tiers) => {
                notes.push(
                    "the faster tiers are those of the run, as it measured them; --fast-tier says otherwise".into(),
                );
                Platform { tiers, ..bare(args)? }
            }
            // Bandwidths of the durable tier and nothing else: it alone is asked about, unless there are settings.
            None => set(args, report)?,
        },
    };
    put_flags(args, &mut platform)?;
    platform.check().map_err(crate::refused)?;
    Ok((platform, notes))
}

/// The tiers of a report whose run has measured them.
fn reported(report: Option<&Path>) -> Result<Option<Vec<FastTier>>> {
    let Some(measured) = report.map(report_measured_tiers).transpose()?.flatten() else { return Ok(None) };
    let tier = |(tier, rate): (crate::workload::ReportTier, crate::workload::ReportBandwidth)| FastTier {
        name: tier.name,
        in_memory: rate.in_memory,
        devices: 1,
        capacity_bytes: tier.capacity_bytes,
        read_bytes_s: rate.read_bytes_s.unwrap_or_default(),
        write_bytes_s: rate.write_bytes_s.unwrap_or_default(),
        latency_s: 0.0,
        processor: CopyCost::default(),
    };
    Ok(Some(measured.into_iter().map(tier).collect()))
}

fn bare(args: &StorageArgs) -> Result<Platform> {
    let needed = |value: Option<u64>, flag: &str| {
        value.map(|rate| rate as f64).ok_or_else(|| {
            Failure::bad_input(
                format!("the bandwidth `{flag}` of the durable tier is not known"),
                format!("give --{flag}, or measure with `terrace bench tiers` and give --tiers FILE"),
            )
        })
    };
    Ok(with_durable(needed(args.read_bandwidth, "read-bandwidth")?, needed(args.write_bandwidth, "write-bandwidth")?))
}

fn with_durable(read_bytes_s: f64, write_bytes_s: f64) -> Platform {
    Platform {
        nodes: 1,
        processes_per_node: 1,
        cores_per_node: None,
        other_threads: 0,
        network_bytes_s: None,
        tiers: vec![],
        durable: DurableTier {
            servers: 1,
            disks: 1,
            read_bytes_s,
            write_bytes_s,
            client_read_bytes_s: None,
            client_write_bytes_s: None,
            stream_read_bytes_s: None,
            latency_s: 0.0,
            operation_processor_s: 0.0,
            metadata_operations_s: None,
            sync_bytes_s: None,
            stripe_disks: 1,
            dirty_bytes: 0,
            cached_on_reopen: true,
            duplex: false,
            processor: CopyCost::default(),
            server_processor: CopyCost::default(),
            servers_on_compute_nodes: false,
        },
        cache: None,
        mover: Mover::default(),
        peers: Peers::default(),
    }
}

/// `--tiers FILE`. Capacities are the file's, the report's or the settings' of the same name, or `--capacity`'s.
fn measured(args: &StorageArgs, file: &Path, report: Option<&Path>, notes: &mut Vec<String>) -> Result<Platform> {
    let measured: TierMeasurements =
        parse_json(file, "does not hold measured tiers", "write it with `terrace bench tiers --output FILE`")?;
    measured.check().map_err(|error| {
        Failure::bad_input(format!("{}: {error}", file.display()), "measure again with `terrace bench tiers`")
    })?;
    let (durable, fast) = measured.durable_and_fast().expect("check refuses a file without tiers");
    let mut known: Vec<(String, u64)> = match report {
        Some(report) => report_tiers(report)?.into_iter().map(|tier| (tier.name, tier.capacity_bytes)).collect(),
        None if args.config.is_some() || Path::new("terrace.toml").exists() => {
            settings(args)?.settings.tiers.into_iter().map(|tier| (tier.name, tier.capacity_bytes)).collect()
        }
        None => vec![],
    };
    known.extend(capacities(args)?);
    let mut platform = with_durable(durable.rates.read_bytes_s, durable.rates.write_bytes_s);
    platform.durable.latency_s = durable.file_latency_s();
    notes.push(format!(
        "`{}` is the durable tier, measured with {} processes; its bandwidth is taken as one disk's unless --disks says more",
        durable.rates.tier,
        measured.workers.max(1)
    ));
    for tier in fast {
        let name = &tier.rates.tier;
        let capacity = known.iter().rev().find(|(known, _)| known == name).map(|(_, capacity)| *capacity);
        platform.tiers.push(FastTier {
            name: name.clone(),
            in_memory: tier.in_memory,
            devices: 1,
            capacity_bytes: capacity.or(tier.capacity_bytes).ok_or_else(|| {
                Failure::bad_input(
                    format!("tier `{name}` of {}: its capacity is not known", file.display()),
                    format!("add --capacity {name}=SIZE, or give the settings with --config"),
                )
            })?,
            read_bytes_s: tier.rates.read_bytes_s,
            write_bytes_s: tier.rates.write_bytes_s,
            latency_s: tier.file_latency_s(),
            processor: CopyCost::default(),
        });
    }
    // What a cached file costs is the same for all; the durable tier's own measurement is the one that is meant.
    let cached = |rate: Option<f64>, direct: f64| rate.map(|rate| rate.max(direct));
    let rates = &durable.rates;
    if let (Some(read_bytes_s), Some(write_bytes_s)) =
        (cached(rates.cached_read_bytes_s, rates.read_bytes_s), cached(rates.cached_write_bytes_s, rates.write_bytes_s))
    {
        platform.cache = Some(page_cache(read_bytes_s, write_bytes_s));
    }
    Ok(platform)
}

/// A quarter of this node's memory may hold files, and a tenth may be dirty: near what Linux does by itself.
fn page_cache(read_bytes_s: f64, write_bytes_s: f64) -> PageCache {
    let memory = memory_bytes();
    PageCache {
        bytes: memory / 4,
        read_bytes_s,
        write_bytes_s,
        dirty_bytes: memory / 10,
        processor: CopyCost::default(),
    }
}

fn memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram.saturating_mul(u64::from(info.mem_unit))
}

fn settings(args: &StorageArgs) -> Result<Resolved> {
    resolve(&SettingArgs { config: args.config.clone(), ..SettingArgs::default() })
}

/// The settings' tiers, with the bandwidths that stand there.
fn set(args: &StorageArgs, report: Option<&Path>) -> Result<Platform> {
    let resolved = settings(args)?;
    let rate = |flag: Option<u64>, key: &str| flag.or_else(|| resolved.wanted.number(key)).filter(|rate| *rate > 0);
    let needed = |value: Option<u64>, key: &str, flag: &str| {
        value.map(|rate| rate as f64).ok_or_else(|| {
            Failure::bad_input(
                format!("`{key}` is not known: the bandwidth of the durable tier"),
                format!("give --{flag}, set `{key}`, or measure with `terrace bench tiers` and give --tiers FILE"),
            )
        })
    };
    let mut platform = with_durable(
        needed(rate(args.read_bandwidth, "model.read_bandwidth"), "model.read_bandwidth", "read-bandwidth")?,
        needed(rate(args.write_bandwidth, "model.write_bandwidth"), "model.write_bandwidth", "write-bandwidth")?,
    );
    platform.mover.threads = resolved.settings.mover.threads as u32;
    platform.mover.settle_s = resolved.settings.mover.settle_ms as f64 / 1000.0;
    platform.mover.high_watermark = resolved.settings.mover.high_watermark;
    platform.mover.low_watermark = resolved.settings.mover.low_watermark;
    let reported = report.map(report_tiers).transpose()?;
    for (tier, wanted) in resolved.settings.tiers.iter().zip(&resolved.wanted_tiers) {
        let rate = |rate: Option<u64>, key: &str| {
            rate.filter(|rate| *rate > 0).map(|rate| rate as f64).ok_or_else(|| {
                Failure::bad_input(
                    format!("tier `{}`: `{key}` is not known", tier.name),
                    format!(
                        "set `{key}` below its `[[tier]]`, or measure with `terrace bench tiers` and give --tiers FILE"
                    ),
                )
            })
        };
        let devices = tier.paths.len().max(1) as u32;
        let capacity = reported.as_ref().and_then(|tiers| tiers.iter().find(|known| known.name == tier.name));
        platform.tiers.push(FastTier {
            name: tier.name.clone(),
            in_memory: tier.paths.first().and_then(|path| FileSystem::of(path).ok()).is_some_and(|fs| fs.is_memory()),
            devices,
            capacity_bytes: capacity.map_or(tier.capacity_bytes, |known| known.capacity_bytes),
            read_bytes_s: rate(wanted.read_bytes_s, "read_bandwidth")?,
            write_bytes_s: rate(wanted.write_bytes_s, "write_bandwidth")?,
            latency_s: 0.0,
            processor: CopyCost::default(),
        });
    }
    Ok(platform)
}

/// `--fast-tier NAME=CAPACITY,READ,WRITE`.
fn fast_tiers(args: &StorageArgs) -> Result<Vec<FastTier>> {
    let one = |text: &String| {
        let wrong = |reason: &str| {
            Failure::bad_input(format!("--fast-tier {text}: {reason}"), "for example --fast-tier ram=64GiB,8GiB,4GiB")
        };
        let (name, numbers) = text.split_once('=').ok_or_else(|| wrong("this is not NAME=CAPACITY,READ,WRITE"))?;
        let numbers = numbers
            .split(',')
            .map(crate::units::size)
            .collect::<std::result::Result<Vec<u64>, String>>()
            .map_err(|reason| wrong(&reason))?;
        let [capacity_bytes, read, write] = numbers[..] else { return Err(wrong("three numbers are needed")) };
        Ok(FastTier {
            name: name.into(),
            in_memory: true,
            devices: 1,
            capacity_bytes,
            read_bytes_s: read as f64,
            write_bytes_s: write as f64,
            latency_s: 0.0,
            processor: CopyCost::default(),
        })
    };
    let tiers: Vec<FastTier> = args.fast_tier.iter().map(one).collect::<Result<_>>()?;
    let is_twice = |(at, tier): (usize, &FastTier)| tiers[..at].iter().any(|other| other.name == tier.name);
    match args.fast_tier.iter().zip(tiers.iter().enumerate()).find(|(_, tier)| is_twice(*tier)) {
        Some((text, (_, tier))) => Err(Failure::bad_input(
            format!("--fast-tier {text}: another tier is called `{}`", tier.name),
            "give each tier a name of its own",
        )),
        None => Ok(tiers),
    }
}

/// `--capacity NAME=SIZE`.
fn capacities(args: &StorageArgs) -> Result<Vec<(String, u64)>> {
    let one = |text: &String| {
        let wrong = |reason: &str| {
            Failure::bad_input(format!("--capacity {text}: {reason}"), "for example --capacity ram=64GiB")
        };
        let (name, size) = text.split_once('=').ok_or_else(|| wrong("this is not NAME=SIZE"))?;
        Ok((name.to_owned(), crate::units::size(size).map_err(|reason| wrong(&reason))?))
    };
    args.capacity.iter().map(one).collect()
}

fn put_flags(args: &StorageArgs, platform: &mut Platform) -> Result<()> {
    for (name, capacity) in capacities(args)? {
        let names: Vec<String> = platform.tiers.iter().map(|tier| tier.name.clone()).collect();
        let tier = platform.tiers.iter_mut().find(|tier| tier.name == name).ok_or_else(|| {
            let meant = nearest(&name, names.iter().map(String::as_str))
                .map_or(String::new(), |near| format!("did you mean `{near}`? "));
            Failure::bad_input(
                format!("--capacity {name}: there is no such tier"),
                format!("{meant}the tiers are: {}", names.join(", ")),
            )
        })?;
        tier.capacity_bytes = capacity;
    }
    let durable = &mut platform.durable;
    durable.read_bytes_s = args.read_bandwidth.map_or(durable.read_bytes_s, |rate| rate as f64);
    durable.write_bytes_s = args.write_bandwidth.map_or(durable.write_bytes_s, |rate| rate as f64);
    durable.disks = args.disks.unwrap_or(durable.disks);
    durable.servers = args.servers.unwrap_or(durable.servers);
    durable.stripe_disks = args.stripe.unwrap_or(durable.stripe_disks);
    durable.latency_s = args.latency.unwrap_or(durable.latency_s);
    durable.metadata_operations_s = args.metadata_rate.or(durable.metadata_operations_s);
    durable.dirty_bytes = args.dirty.unwrap_or(durable.dirty_bytes);
    put_cache(args, platform)?;
    platform.cores_per_node = args.cores.or(platform.cores_per_node);
    platform.network_bytes_s = args.network.map(|rate| rate as f64).or(platform.network_bytes_s);
    let peers = &mut platform.peers;
    peers.stream_bytes_s = args.peer_bandwidth.map(|rate| rate as f64).or(peers.stream_bytes_s);
    platform.mover.threads = args.threads.unwrap_or(platform.mover.threads);
    Ok(())
}

/// `--cache-read-bandwidth` and `--cache-write-bandwidth`: both, unless something else has said what a page cache gives.
fn put_cache(args: &StorageArgs, platform: &mut Platform) -> Result<()> {
    let known = platform.cache.as_ref();
    let read = args.cache_read_bandwidth.map(|rate| rate as f64).or(known.map(|cache| cache.read_bytes_s));
    let write = args.cache_write_bandwidth.map(|rate| rate as f64).or(known.map(|cache| cache.write_bytes_s));
    match (read, write) {
        (None, None) => {}
        (Some(read_bytes_s), Some(write_bytes_s)) => match &mut platform.cache {
            Some(cache) => (cache.read_bytes_s, cache.write_bytes_s) = (read_bytes_s, write_bytes_s),
            None => platform.cache = Some(page_cache(read_bytes_s, write_bytes_s)),
        },
        (read, _) => {
            let (given, missing) = if read.is_some() { ("read", "write") } else { ("write", "read") };
            return Err(Failure::bad_input(
                format!("--cache-{given}-bandwidth is given, and --cache-{missing}-bandwidth is not"),
                "give both: a page cache answers reads and takes writes",
            ));
        }
    }
    Ok(())
}
